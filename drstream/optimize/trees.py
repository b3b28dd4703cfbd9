"""Policies that are trees of binary classifiers: actions compete in pairs, and the policy takes the last winner."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np

from drstream.errors import LogError, PolicyError, parameter
from drstream.log import Events, Log, Reader, as_log
from drstream.log.rows import Origin
from drstream.models.sample import Drawn, More, draw, tidy
from drstream.models.saved import untrusted
from drstream.optimize.base import Learned
from drstream.optimize.losses import Losses, as_losses
from drstream.parameters import check_estimator, scikit_learn, whole
from drstream.policies.sets import given_mask
from drstream.running.execution import Workers
from drstream.types import Bools, Floats, Ints

Lead = Callable[[Any, Any], Floats]  # from two actions for each event: by how much the second is better
LEFT, RIGHT = 0, 1
NOBODY = -1  # the winner of a side without an eligible action
CHECKED = ("sklearn.tree._tree.Tree",)  # its arrays of nodes come from a file, and could point anywhere


class Tournament(Learned):
    """A balanced binary tree over the actions, with a classifier in each node that says which side wins.

    Threads or an executor read the log. The classifiers are fitted in this process, one after the other.

    Nodes are numbered from the leaves up: 0, 1, ..., and K - 2 is the root.

    In a log with eligible sets, only eligible actions compete, and a side without any loses. Which action wins on a
    side depends on the set. So a node of more than two actions shows its classifier the context and, for each of its
    actions, whether it is eligible.
    """

    children_: Ints  # (K - 1, 2): the node on either side; -1 - a is action a
    classifiers_: list[Any]  # of each node; LEFT or RIGHT where one side always wins
    sets_ = False  # whether it was learned from a log with eligible sets
    never_: tuple[int, ...] = ()  # actions that lose, because they were never logged
    kept = ("children_", "classifiers_")
    estimators = True

    def __init__(self, base: Any, sample: Any, seed: Any) -> None:
        who = type(self).__name__
        if base is not None and not check_estimator(base, who, "classifier", PolicyError)[0]:
            raise PolicyError(
                f"{who}: {type(base).__name__} is no classifier of scikit-learn: pass one, e.g. LogisticRegression(); "
                "a class of your own inherits ClassifierMixin and BaseEstimator"
            )
        self.base, self.sample = base, whole("sample", sample, who=who)
        self.seed = whole("seed", seed, -(2**63), who=who)

    @property
    def depth_(self) -> int:
        """Maximum number of classifiers that an event passes: log2 K, rounded up."""
        return len(self.classifiers_).bit_length()

    def _lead(self, events: Drawn) -> Lead:
        raise NotImplementedError

    def _eligible(self, events: Drawn, n_actions: int) -> Bools:
        """Return (n, K), whether events could choose actions, in a log with eligible sets."""
        raise NotImplementedError

    def _grow(
        self,
        log: Log,
        reader: Reader,
        more: More,
        workers: Workers,
        *,
        all_known: bool = False,
        models_of: tuple[Origin, ...] = (),
    ) -> None:
        """Fit the tree. Unless `all_known`, actions that were never logged lose, because their losses are guesses."""
        who = type(self).__name__
        base = _usual(who) if self.base is None else self.base
        if not log.n_features:
            raise PolicyError(f"{who}: the log has no context to learn from: name it with {parameter('context')}")
        sample, skipped = draw(log, self.sample, self.seed, None, workers, reader=reader, more=more)
        if not sample.seen:
            self.remember(log, 0, (np.nan, np.nan))
        events = sample.events()
        X, lead = _rows(events.X), self._lead(events)
        children, classifiers = _balanced(log.n_actions), []
        count = np.bincount(events.action, minlength=log.n_actions)
        unknown = [] if all_known else np.flatnonzero(count == 0).tolist()
        winners: dict[int, Any] = {-1 - a: a for a in range(log.n_actions)}  # of subtrees; of a node, for each event
        sets, spans = log.roles.eligible is not None, _spans(children)
        mask = _unless(self._eligible(events, log.n_actions), unknown) if sets else None
        if mask is not None:
            winners = {-1 - a: np.where(mask[:, a], a, NOBODY) for a in range(log.n_actions)}
        never = {-1 - a for a in unknown}
        for node, (left, right) in enumerate(children.tolist()):
            if left in never or right in never:  # nothing is known about one side
                classifiers.append(RIGHT if left in never else LEFT)
                winners[node] = winners.pop(right if left in never else left)
                never |= {node} if left in never and right in never else set()
                continue
            with np.errstate(invalid="ignore"):  # a side without a winner may cost infinity
                gain = lead(winners[left], winners[right])
            if sets:
                nobody = [winners[side] == NOBODY for side in (left, right)]
                gain[nobody[LEFT] | nobody[RIGHT]] = 0.0
            places = np.flatnonzero(gain)
            rng = np.random.default_rng([self.seed % 2**64, node])
            seen = _with_sets(X, mask, spans(node))
            try:
                classifiers.append(_fit(base, seen[places], gain[places] > 0, np.abs(gain[places]), rng))
                goes_right = _goes_right(classifiers[node], seen)
            except Exception as problem:
                problem.add_note(
                    f"raised by {type(base).__name__} at node {node} of {len(children)} (from the leaves up), "
                    f"fitted on {len(places)} example{'s' * (len(places) != 1)}"
                )
                raise
            if sets:
                goes_right = nobody[LEFT] | (goes_right & ~nobody[RIGHT])
            winners[node] = np.where(goes_right, winners.pop(right), winners.pop(left))
        self.children_, self.classifiers_, self.sets_, self.never_ = children, classifiers, sets, tuple(unknown)
        self.remember(log, len(events), (events.reward.min(), events.reward.max()), skipped, models_of)

    def choose(self, X: Any, eligible: Any = None) -> Ints:
        """Indices (n) of the chosen actions, for contexts (n, d), an array or a sparse array of SciPy.

        eligible  Booleans (n, K): whether an event could choose an action. None: all could choose any.
        """
        self.require_width(X)
        X = _rows(X)
        out = np.empty(X.shape[0], np.int64)
        mask, spans = given_mask(eligible, len(out), len(self.labels_), type(self).__name__), _spans(self.children_)
        if mask is not None or self.sets_:
            mask = _unless(np.ones((len(out), len(self.labels_)), bool) if mask is None else mask, self.never_)
        waiting = [(len(self.classifiers_) - 1, np.arange(len(out)))]  # with one action, the root is -1: action 0
        while waiting:
            node, places = waiting.pop()
            if node < 0:
                out[places] = -1 - node
            elif len(places):
                seen = (
                    _with_sets(X[places], mask[places], spans(node)) if mask is not None and self.sets_ else X[places]
                )
                goes_right = _goes_right(self.classifiers_[node], seen)
                if mask is not None:
                    some = [mask[places, slice(*spans(side))].any(axis=1) for side in self.children_[node].tolist()]
                    goes_right = some[RIGHT] & (goes_right | ~some[LEFT])
                waiting.append((int(self.children_[node, LEFT]), places[~goes_right]))
                waiting.append((int(self.children_[node, RIGHT]), places[goes_right]))
        return out

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        chosen = self.choose(X, eligible)
        out = np.zeros((len(chosen), len(self.labels_)))
        out[np.arange(len(chosen)), chosen] = 1
        return out

    def check_loaded(self, name: str, types: Sequence[str]) -> None:
        kind = scikit_learn("sklearn.tree", type(self).__name__, PolicyError).DecisionTreeClassifier
        children = _balanced(len(self.labels_))
        complete = np.array_equal(self.children_, children) and len(self.classifiers_) == len(children)
        complete &= all(0 <= action < len(self.labels_) for action in self.never_)
        found = [c for c in self.classifiers_ if c not in (LEFT, RIGHT)] if complete else []
        if types and not all(type(c) is kind for c in found):
            raise untrusted(name, types, PolicyError)
        spans = _spans(children)
        counts = [self.n_features_ + self.sets_ * _shown(spans(node)) for node in range(len(children))]
        pairs = zip(self.classifiers_, counts, strict=False)
        if not complete or not all(_leads_down(c.tree_, count) for c, count in pairs if type(c) is kind):
            raise PolicyError(f"{name} holds trees whose nodes lead nowhere: it is damaged. Learn the policy again")

    def kept_parameters(self) -> dict[str, Any]:
        return {**super().kept_parameters(), "sets_": self.sets_, "never_": list(self.never_)}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Make one from the parameters in a file. Files from before there were eligible sets have fewer."""
        more = ("sets_", "never_")
        made = super().from_parameters({name: value for name, value in parameters.items() if name not in more})
        made.sets_, made.never_ = bool(parameters.get("sets_", False)), tuple(map(int, parameters.get("never_", ())))
        return made

    def __repr__(self) -> str:
        return " ".join(super().__repr__().split())


class FilterTree(Tournament):
    """A policy learned from losses of all actions by binary classification (Beygelzimer, Langford and Ravikumar 2008).

    base    Any classifier of scikit-learn. It is cloned and never changed. The default is a pruned decision tree. The
            classifier is fitted with sample_weight or, if it takes none, on examples drawn by importance.
    sample  Maximum number of events to learn from. From a longer log, a hash of the row number draws a uniform sample.
            The events are held in memory with the losses of all actions, 8 K bytes each. While the log is read, up to
            four times as many are held.
    seed    Random seed of the sample, and of examples drawn by importance.

    Nodes are fitted from the leaves up. A node learns which of the winners of its two sides costs less, with the
    difference as importance. An action that was never logged loses, unless a model alone says what actions cost ("dm").
    After `fit`: children_, classifiers_, depth_, labels_, n_events_, reward_range_, skipped_.

    >>> X, costs = np.array([[0.0], [1.0], [2.0]] * 4), np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]] * 4)
    >>> FilterTree().fit(Losses.known(X, costs)).choose(X[:3])
    array([0, 1, 2])
    """

    def __init__(self, base: Any = None, *, sample: int = 1_000_000, seed: int = 0) -> None:
        super().__init__(base, sample, seed)

    def _learn(self, log: Any, model: Any, workers: Workers) -> None:
        losses = as_losses(log, model, workers)
        done = losses.completion
        known: dict[str, Any] = {"all_known": done.estimator == "dm", "models_of": losses.models_of}
        self._grow(losses.log, losses.reader, done.of, workers, **known)

    def _eligible(self, events: Drawn, n_actions: int) -> Bools:
        return np.isfinite(events.more)

    def _lead(self, events: Drawn) -> Lead:
        costs, rows = events.more, np.arange(len(events))
        return lambda left, right: costs[rows, left] - costs[rows, right]


class OffsetTree(Tournament):
    """A policy learned from logged events alone, without a reward model (Beygelzimer and Langford 2009).

    base    As in FilterTree.
    offset  A logged reward above the offset speaks for its action, one below it for the other side. Rewards of a log
            with costs are minus the costs. None is the middle of the range of the rewards, (min + max) / 2. Give an
            offset if a few rewards are far from all others.
    sample  As in FilterTree, but no losses are held in memory.
    seed    As in FilterTree.

    A node is fitted on the events whose logged action won on its side, with importance |r - offset| / p. In the paper
    of 2009, the importance has the factor p(a|x) + p(a'|x), too, which the log does not know. Under uniform logging
    this factor is the same for all events. Otherwise, 1 / p leaves contexts as frequent as they are. After `fit`:
    offset_, and the attributes of FilterTree.

    >>> import pyarrow as pa
    >>> table = pa.table({"action": [0, 1] * 8, "reward": [1.0, 0.0] * 8, "propensity": [0.5] * 16, "x0": [1.0] * 16})
    >>> OffsetTree().fit(table).choose(np.array([[1.0]]))
    array([0])
    """

    def __init__(
        self, base: Any = None, *, offset: float | None = None, sample: int = 1_000_000, seed: int = 0
    ) -> None:
        super().__init__(base, sample, seed)
        if offset is not None and not (isinstance(offset, Real) and np.isfinite(float(offset))):
            raise PolicyError(f"OffsetTree: offset={offset!r}: a number, or None for the middle of the rewards' range")
        self.offset = None if offset is None else float(offset)

    @property
    def offset_(self) -> float:
        return self._offset(*self.reward_range_)

    def _offset(self, low: float, high: float) -> float:
        return (low + high) / 2 if self.offset is None else self.offset

    def _learn(self, log: Any, model: Any, workers: Workers) -> None:
        if model is not None:
            raise PolicyError(
                f"OffsetTree uses no reward model, and got {model!r}: leave it out, or learn from losses that the "
                "model completes, FilterTree().fit(log, model)"
            )
        if isinstance(log, Losses):
            raise PolicyError("OffsetTree learns from logged rewards: pass the log itself, or pass these to FilterTree")
        log = as_log(log)
        if not log.roles.with_propensities:
            raise LogError(
                f"OffsetTree needs propensities, and the log has none: name their column with {parameter('propensity')}"
            )
        self._grow(log, log.reader(context=True, action=True), _propensity, workers)

    def _eligible(self, events: Drawn, n_actions: int) -> Bools:
        words, a = events.more[:, 1:].astype(np.uint32), np.arange(n_actions, dtype=np.uint32)
        return (words[:, a // 32] >> (a % 32)) & 1 == 1

    def _lead(self, events: Drawn) -> Lead:
        action, reward = events.action, events.reward
        gain = (reward - self._offset(float(reward.min()), float(reward.max()))) / events.more[:, 0]
        return lambda left, right: gain * (action == right) - gain * (action == left)


def _propensity(block: Events) -> Floats:
    """The propensity, and the words of the eligible set, if there is one."""
    sets = () if block.eligible_bits is None else block.eligible_bits
    return np.column_stack([block.propensity, *sets])


def _rows(X: Any) -> Any:
    """Contexts in the form that classifiers take: trees of scikit-learn refuse sparse ones with 64-bit indices."""
    X = tidy(X)
    if hasattr(X, "tocsr") and X.nnz < 2**31:
        X.indices, X.indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
    return X


def _balanced(actions: int) -> Ints:
    """The children of each node, which have smaller numbers. One side has at most one action more than the other.

    >>> _balanced(3)
    array([[-1, -2],
           [ 0, -3]])
    """
    children: list[tuple[int, int]] = []

    def grow(first: int, count: int) -> int:
        if count == 1:
            return -1 - first
        half = (count + 1) // 2
        children.append((grow(first, half), grow(first + half, count - half)))
        return len(children) - 1

    grow(0, actions)
    return np.array(children, np.int64).reshape(-1, 2)


def _spans(children: Ints) -> Callable[[int], tuple[int, int]]:
    """The first action below each node, and the one after the last: they are neighbours."""
    found: list[tuple[int, int]] = []

    def of(node: int) -> tuple[int, int]:
        return found[node] if node >= 0 else (-1 - node, -node)

    for left, right in children.tolist():
        found.append((of(left)[0], of(right)[1]))
    return of


def _unless(mask: Bools, never: Sequence[int]) -> Bools:
    """Return the eligible sets (n, K) without actions that must lose, wherever there are others."""
    if not never:
        return mask
    others = mask.copy()
    others[:, list(never)] = False
    return np.where(others.any(axis=1, keepdims=True), others, mask)


def _shown(span: tuple[int, int]) -> int:
    """How many actions of a node a classifier sees the sets of. Two are both eligible when they compete."""
    first, last = span
    return last - first if last - first > 2 else 0


def _with_sets(X: Any, mask: Bools | None, span: tuple[int, int]) -> Any:
    """Return contexts with features for the actions of a node, 1 where they are eligible."""
    if mask is None or not _shown(span):
        return X
    shown = mask[:, slice(*span)].astype(X.dtype)
    if hasattr(X, "tocsr"):
        return importlib.import_module("scipy.sparse").hstack([X, shown], format="csr")
    return np.hstack([X, shown])


def _fit(base: Any, X: Any, right: Bools, importance: Floats, rng: np.random.Generator) -> Any:
    """Fit a clone on examples with these importances. If all examples are on one side, return that side."""
    weights = {}
    name = _weight_name(base)
    if name is not None and len(right):
        weights[name] = importance / importance.mean()
    elif len(right):
        drawn = rng.choice(len(right), len(right), p=importance / importance.sum())
        X, right = X[drawn], right[drawn]
    if not right.any() or right.all():  # a classifier would refuse
        return RIGHT if right.any() else LEFT
    return importlib.import_module("sklearn.base").clone(base).fit(X, right.astype(np.int64), **weights)


def _weight_name(classifier: Any) -> str | None:
    """The name that the classifier's fit has for the weights of examples, or None if it takes none."""
    if isinstance(classifier, importlib.import_module("sklearn.pipeline").Pipeline):
        step, last = classifier.steps[-1]
        name = _weight_name(last)
        return None if name is None else f"{step}__{name}"
    takes = importlib.import_module("sklearn.utils.validation").has_fit_parameter(classifier, "sample_weight")
    return "sample_weight" if takes else None


def _goes_right(classifier: Any, X: Any) -> Bools:
    if isinstance(classifier, int):
        return np.full(X.shape[0], classifier == RIGHT)
    return np.asarray(classifier.predict(X)).reshape(-1) == RIGHT


def _leads_down(tree: Any, features: int) -> bool:
    """Whether every node of a decision tree is a leaf, or leads to two later nodes by a feature that exists."""
    sides = tree.children_left, tree.children_right
    inner = np.flatnonzero((sides[0] != -1) | (sides[1] != -1))
    down = all(((side[inner] > inner) & (side[inner] < tree.node_count)).all() for side in sides)
    known = tree.n_features == features and ((tree.feature[inner] >= 0) & (tree.feature[inner] < features)).all()
    return bool(down and known and len(tree.value) == tree.node_count > 0)


def _usual(who: str) -> Any:
    """The default classifier, like the J48 of the paper's appendix: two examples in a leaf, and pruned.

    Trees that are not pruned fit the noise of weights.
    """
    tree = scikit_learn("sklearn.tree", who, PolicyError)
    return tree.DecisionTreeClassifier(min_samples_leaf=2, ccp_alpha=0.002, random_state=0)
