"""Reward models from scikit-learn: fitted in memory on a sample of the log, or batch by batch with `partial_fit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.buffers import answer, store
from drstream.errors import ModelError, NoEventsError
from drstream.frames import Feed, feature_names, feed_from, feed_of, named_columns, uses_context
from drstream.log import Events, Log, Reader, as_log
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.candidates import PairsModel
from drstream.models.meeting import by_name
from drstream.models.prefit import (
    Prefitted,
    as_category,
    check_prefit,
    expected_reward,
    is_fitted,
    prefitted_pairs,
    with_action,
)
from drstream.models.sample import draw, tidy
from drstream.models.trained import Trained, check_width
from drstream.parameters import check_estimator, unfitted, whole
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.running.progress import reporter
from drstream.sources.base import Part
from drstream.types import Floats, Ints

AHEAD = 2  # most batches that wait, for each part under way, to be learned from


class from_sklearn(Trained, RewardModel):  # noqa: N801  # reads as a function: drs.models.from_sklearn(Lasso())
    """r̂(x, a) from any regressor or classifier of scikit-learn. Clones are fitted, the estimator itself never changes.

    estimator  Regressor of the reward, or classifier whose classes are the rewards, whole numbers such as 0 and 1. For
               a classifier, r̂ is the expected reward, predict_proba @ classes_.
    action     "separate" fits one clone for each action, on the events in which that action was logged. "feature" fits
               one model of x and the action, which is one-hot encoded after the features.
    sample     Maximum number of events to fit on in memory. From a longer log, a hash of the row number draws a uniform
               sample of exactly this size. It is the same for every batch size and number of threads. Up to four times
               as many events are held while it is drawn.
    partial    True fits all events with the estimator's `partial_fit`, in the order of the log and in batches of up to
               65,536 events that end with each row group. Memory does not grow with the log. False fits in memory.
               None fits in memory if the log has at most `sample` events, else with partial_fit if the estimator has
               it, else on a sample. `fitted_rows_` and repr say which way was taken.
    seed       Random seed of the sample. Randomness in the estimator depends on its own random_state.
    columns    Names of columns of the log. The estimator is given a pandas frame of these, with the types and nulls
               that are stored, instead of contexts. So a pipeline can encode text. With action="feature", the frame
               also has the log's action column, as a category. For LightGBM and XGBoost, text becomes one, too.
    prefit     True uses the estimator as it was fitted, outside of drstream. If it was fitted on a frame, its features
               are found in the log by name, and the action column must be among them. If it was fitted on an array,
               this had the contexts and then the action, one-hot encoded. Or pass a mapping of labels to estimators,
               one for each action, which were fitted without it. drstream cannot know which events they have seen:
               evaluate on others.

    The prediction for an action without events is the mean reward of all events. A classifier needs two classes. If all
    events (of an action, if "separate") have the same reward, the prediction is that reward.

    On a log of candidates, one estimator is fitted on rows [x, z]: the context, then the features of the logged
    candidate. One with prefit=True was fitted on an array of such rows.

    With partial_fit, there may be one more pass first, over rewards and actions. A classifier needs it to know its
    classes, and partial=None needs it to count events. Contexts keep the type that they have in the log, float32 or
    float64. Sparse contexts are a csr_array.

    `fit` sets models_ (for each action the fitted estimator, or a number if there is none), n_events_ (number of events
    fitted on), fitted_rows_, labels_, features_, n_features_, reward_range_ and skipped_ (bad rows, by reason).

    >>> import pyarrow as pa
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> table = pa.table({"action": [0, 0, 1], "reward": [0.0, 1.0, 1.0], "propensity": [0.5] * 3, "x0": [0, 1, 2]})
    >>> from_sklearn(DecisionTreeRegressor()).fit(table).predict(np.array([[0.0], [1.0]]))
    array([[0., 1.],
           [1., 1.]])
    """

    fitted_rows_: str
    models_: list[Any]
    kept = ("models_", "fitted_rows_")
    estimators = True
    feed: Feed | None = None  # how the estimator is given columns; None if it is given contexts
    action_column = "action"  # its name in the last log

    def __init__(
        self,
        estimator: Any,
        *,
        action: str = "separate",
        sample: int = 1_000_000,
        partial: bool | None = None,
        seed: int = 0,
        columns: str | Sequence[str] | None = None,
        prefit: bool = False,
    ) -> None:
        self.prefit, self.estimator, self.action = check_prefit(prefit, estimator, columns), estimator, action
        self.columns = named_columns(columns, "from_sklearn", ModelError) if columns else ()
        self.classifier = not prefit and _is_classifier(estimator)
        if action not in ("separate", "feature"):
            raise ModelError(f'from_sklearn: action={action!r}: it is "separate" or "feature"')
        self.sample = whole("sample", sample, who="from_sklearn", error=ModelError)
        self.seed = whole("seed", seed, -(2**63), who="from_sklearn", error=ModelError)
        if partial not in (None, True, False):
            raise ModelError(f"from_sklearn: partial={partial!r}: it is True, False or None")
        if partial and not hasattr(estimator, "partial_fit"):
            raise ModelError(
                f"from_sklearn: {type(estimator).__name__} has no partial_fit: leave out partial=True to fit it on a "
                "sample, or pass an estimator that has one, e.g. SGDRegressor()"
            )
        self.partial = None if partial is None else bool(partial)

    def _fit(self, log: Any, workers: Workers) -> None:
        """Fit to the log. An executor draws the sample and reads the rewards. This process fits the estimator."""
        log = as_log(log, propensities=False)
        self._check_candidates(log)
        log = self.fit_log(log)
        if self.prefit:
            raise ModelError(
                "from_sklearn: prefit=True uses the estimator as it was fitted: leave out fit(), or prefit"
            )
        if self.columns:
            self._feed(log)
        if self.action == "separate" and not self.columns and not log.n_features:
            raise ModelError(
                'from_sklearn: the log has no context to fit models on: name it with context=, or pass action="feature"'
            )
        by_batches, rewards = self.partial, None
        if by_batches is None:
            most = log.source_rows  # an upper bound on the number of events
            by_batches = hasattr(self.estimator, "partial_fit") and (most is None or most > self.sample)
        if by_batches and (self.classifier or self.partial is None):
            rewards = self._look_at_rewards(log, workers)
            by_batches = self.partial is True or rewards.events > self.sample
        fitted = self._fit_by_batches(log, rewards, workers) if by_batches else self._fit_in_memory(log, workers)
        self.models_, self.fitted_rows_ = fitted.models, fitted.rows
        self.remember(log, fitted.events, fitted.reward_range, fitted.skipped)

    def _feed(self, log: Log) -> None:
        """Find the columns in a log."""
        for name, role in ((log.roles.action, "action"), (log.roles.reward, "reward")):
            if name in self.columns:
                hint = ': action="feature" adds it' if role == "action" else ", which no model may know"
                raise ModelError(f"from_sklearn: columns= has {name!r}, the log's {role}{hint}")
        self.feed = feed_from(log, self.columns, self.estimator, "the reward model", ModelError)
        self.uses_context = uses_context(log, self.columns)
        self.action_column = log.roles.action or "action"

    @property
    def fitted(self) -> bool:
        return self.prefit or super().fitted

    @property
    def known_labels(self) -> Sequence[Any] | None:
        if self.prefit:
            return list(self.estimator) if isinstance(self.estimator, Mapping) else None
        return super().known_labels

    def require_fit(self) -> None:
        if not self.fitted and is_fitted(self.estimator):
            name = type(self.estimator).__name__
            raise ModelError(
                f"the reward model {self!r} is not fitted: call .fit(log) on other events first, or pass prefit=True "
                f"to use this {name} as it was fitted"
            )
        super().require_fit()

    def _reader(self, log: Log, context: bool = True) -> Reader:
        return log.reader(context=context and self.uses_context, action=True, columns=self.columns)

    @property
    def _whole(self) -> str | None:
        """Name of the classifier, for which rewards must be whole numbers; None for a regressor."""
        return type(self.estimator).__name__ if self.classifier else None

    # In memory

    def _fit_in_memory(self, log: Log, workers: Workers) -> Fitted:
        check = None if self._whole is None else partial(_check_whole, self._whole)
        feed = self.feed
        schema = None if feed is None else feed.schema
        sample, skipped = draw(log, self.sample, self.seed, check, workers, reader=self._reader(log), schema=schema)
        if not sample.seen:
            raise _no_events()
        events = sample.events()
        mean, rewards = float(events.reward.mean()), (float(events.reward.min()), float(events.reward.max()))
        models: list[Any] = [mean] * log.n_actions
        X = tidy(events.X) if feed is None else feed.frame(events.X)
        if self.action == "feature":
            model = self._fit_one(self._with_action(X, events.action, log.labels), events.reward, "all actions")
        for a, places in _by_action(events.action, log.n_actions):
            if self.action == "separate":
                model = self._fit_one(_rows(X, places), events.reward[places], f"action {log.labels[a]!r}")
            models[a] = model
        n = len(events)
        rows = f"all {n:,} events" if n == sample.seen else f"a sample of {n:,} of {sample.seen:,} events"
        return Fitted(models, n, rows, rewards, skipped)

    def _fit_one(self, X: Any, reward: Floats, which: str) -> Any:
        if self.classifier and (reward == reward[0]).all():
            return float(reward[0])  # a classifier would raise an error for one class
        try:
            return unfitted(self.estimator).fit(X, reward)
        except Exception as problem:
            problem.add_note(_where(self.estimator, len(reward), which))
            raise

    # With partial_fit

    def _look_at_rewards(self, log: Log, workers: Workers) -> Rewards:
        """Count the events and, for a classifier, find the rewards of each action."""
        contexts = log.on_bad_row == "skip"  # without contexts, events that are skipped for a bad context would count
        reader = self._reader(log, contexts)
        found = Rewards(0, [set() for _ in range(log.n_actions)])
        task = partial(_rewards_of, reader, self._whole, log.n_actions)
        for other in execution.run(task, log, reader.columns, workers):
            found.merge(other)
        return found

    def _fit_by_batches(self, log: Log, rewards: Rewards | None, workers: Workers) -> Fitted:
        reader = self._reader(log)
        actions = log.n_actions
        separate = self.action == "separate"
        learners = [unfitted(self.estimator) for _ in range(actions if separate else 1)]
        classes: list[list[float] | None] = [None] * len(learners)
        if self.classifier and rewards is not None:
            found = rewards.of_action if separate else [set[float]().union(*rewards.of_action)]
            classes = [sorted(values) for values in found]
        counts, total, low, high = np.zeros(actions, np.int64), 0.0, np.inf, -np.inf
        skipped: Counter[str] = Counter()
        parts = log.parts(reader.columns)
        produce = partial(_blocks, reader, self._whole)
        stream = execution.stream(produce, parts, workers.threads, AHEAD)
        with reporter(workers.progress, log.source_rows) as report, closing(stream):
            for item in stream:
                if isinstance(item, Counter):
                    skipped += item
                    continue
                X, reward = tidy(item.matrix) if self.feed is None else self.feed.of(item), item.reward
                counts += np.bincount(item.action, minlength=actions)
                total, low, high = total + reward.sum(), min(low, reward.min()), max(high, reward.max())
                if separate:
                    for a, places in _by_action(item.action, actions):
                        which = f"action {log.labels[a]!r}, in the batch from {item.where(0)} on"
                        self._learn(learners[a], _rows(X, places), reward[places], classes[a], which)
                else:
                    which = f"the batch from {item.where(0)} on"
                    self._learn(learners[0], self._with_action(X, item.action, log.labels), reward, classes[0], which)
                report(int(item.rows[-1]) + 1)
        n = int(counts.sum())
        if not n:
            raise _no_events()
        models: list[Any] = [float(total / n)] * actions
        for a in np.flatnonzero(counts).tolist():
            place = a if separate else 0
            known = classes[place]
            models[a] = learners[place] if known is None or len(known) > 1 else known[0]
        return Fitted(models, n, f"all {n:,} events, with partial_fit", (float(low), float(high)), skipped)

    def _learn(self, learner: Any, X: Any, reward: Floats, classes: list[float] | None, which: str) -> None:
        if classes is not None and len(classes) < 2:
            return
        try:
            learner.partial_fit(X, reward, **({} if classes is None else {"classes": np.array(classes)}))
        except Exception as problem:
            problem.add_note(_where(learner, len(reward), which))
            raise

    # Fitted

    def predict(self, X: Any) -> Floats:
        """Return r̂(x, a) as (n, K), for contexts (n, d); with columns=, for a frame or an Arrow table."""
        self.require_fit()
        if self.prefit:
            raise ModelError("from_sklearn: with prefit=True, call predict of the estimator itself")
        if not self.columns:
            check_width(X, self.row_width)
            return self._predict(tidy(X))
        table = X if isinstance(X, pa.Table | pa.RecordBatch) else pa.Table.from_pandas(X, preserve_index=False)
        feed = feed_of(table.schema, self.columns, self.estimator, "the reward model", ModelError)
        return self._predict(feed.frame(table.select(list(self.columns))))

    def _predict(self, X: Any) -> Floats:
        out = np.empty((X.shape[0], len(self.models_)))
        if not len(out):
            return out
        for a, model in enumerate(self.models_):
            if isinstance(model, float):
                out[:, a] = model
                continue
            Z = X
            if self.action == "feature":
                Z = self._with_action(X, np.full(len(out), a), self.labels_, model)
            out[:, a] = expected_reward(model, Z, self.classifier)
        return out

    def _with_action(self, X: Any, action: NDArray[Any], labels: Sequence[Any], fitted: Any = None) -> Any:
        """Return features and actions: the latter one-hot encoded after the former, or as a column of a frame.

        fitted  The model that knows how the column was called in its fit.
        """
        if self.columns:
            names = (fitted is not None and feature_names(fitted)) or [self.action_column]
            return X.assign(**{names[-1]: as_category(action, labels)})
        return with_action(X, action, len(labels))

    def _check_candidates(self, log: Log) -> None:
        if log.has_candidates and self.columns:
            raise ModelError(
                "from_sklearn: columns= are of events, and this log has candidates, with features of their own: leave "
                "it out, and the estimator is given [x, z], the features of a context and of a candidate"
            )

    def for_candidates(self, log: Log) -> CandidateModel:
        self._check_candidates(log)
        return prefitted_pairs(self.estimator, log) if self.prefit else self._for_candidates(log)

    @by_name
    def _for_candidates(self, log: Log) -> CandidateModel:
        self.check_fits(log)
        assert self.pairs_ is not None
        return PairsModel(self._predict_pairs, self.pairs_)

    def _predict_pairs(self, rows: NDArray[Any]) -> Floats:
        return self._predict(rows)[:, 0]

    def bind(self, log: Log) -> RewardModel:
        return Prefitted(self.estimator).bind(log) if self.prefit else self._bind(log)

    @by_name
    def _bind(self, log: Log) -> RewardModel:
        self.check_fits(log)
        bound: Self = super().bind(log)  # type: ignore[assignment]
        if self.columns:
            bound._feed(log)
        return bound

    def fill(self, block: Events, out: Floats) -> None:
        who, X = "the reward model", tidy(block.matrix) if self.feed is None else self.feed.of(block)
        store(answer(self._predict, X, who, block), who, ModelError, block, out)

    def check_savable(self) -> None:
        if self.prefit:
            raise ModelError("from_sklearn: an estimator with prefit=True is saved with its own library")

    def __repr__(self) -> str:
        estimator = " ".join(repr(self.estimator).split())
        about = f", fitted on {self.fitted_on or 'a log'}: {self.fitted_rows_}" if self.fitted else ""
        return f"{type(self).__name__}({estimator}, action={self.action!r}){about}"


# Checks


def _is_classifier(estimator: Any) -> bool:
    """Check that the estimator is a classifier or a regressor, and return whether it is a classifier."""
    classifier, regressor = check_estimator(estimator, "from_sklearn", "regressor or classifier", ModelError)
    name = type(estimator).__name__
    if not classifier and not regressor:
        raise ModelError(
            f"from_sklearn: {name} is neither a regressor nor a classifier of scikit-learn: pass one; a class of your "
            "own inherits RegressorMixin and BaseEstimator"
        )
    if classifier and not hasattr(estimator, "predict_proba"):
        raise ModelError(
            f"from_sklearn: {name}, with these parameters, has no predict_proba, hence no expected reward: pass a "
            "classifier that has one, e.g. CalibratedClassifierCV of this one, or a regressor"
        )
    return classifier


def _check_whole(classifier: str, block: Events) -> None:
    """Raise an error unless all rewards are whole numbers, which can be classes."""
    broken = block.reward != np.round(block.reward)
    if broken.any():
        i = int(np.argmax(broken))
        raise ModelError(
            f"from_sklearn: {classifier} is a classifier, whose classes are the rewards, and the reward at "
            f"{block.where(i)} is {block.reward[i]:g}, which is no whole number: pass a regressor"
        )


def _no_events() -> NoEventsError:
    return NoEventsError("there is no event to fit the reward model on: the log, or the part of it, is empty")


def _where(estimator: Any, events: int, which: str) -> str:
    """Return a note for an error that an estimator raised."""
    return f"raised by {type(estimator).__name__}, fitted on {events} event{'s' * (events != 1)} of {which}"


@dataclass
class Fitted:
    """The result of a fit."""

    models: list[Any]
    events: int
    rows: str  # which events, in words
    reward_range: tuple[float, float]
    skipped: Counter[str]


@dataclass
class Rewards:
    """The number of events, and the set of rewards of each action."""

    events: int
    of_action: list[set[float]]

    def merge(self, other: Rewards) -> None:
        self.events += other.events
        for known, new in zip(self.of_action, other.of_action, strict=True):
            known |= new


def _rewards_of(reader: Reader, whole: str | None, actions: int, part: Part) -> Rewards:
    found = Rewards(0, [set() for _ in range(actions)])
    for item in _blocks(reader, whole, part):
        execution.raise_if_stopped()
        if isinstance(item, Counter):
            continue
        found.events += len(item)
        if whole is not None:
            for a, places in _by_action(item.action, actions):
                found.of_action[a].update(np.unique(item.reward[places]).tolist())
    return found


def _blocks(reader: Reader, whole: str | None, part: Part) -> Iterator[Events | Counter[str]]:
    """Yield the part's events, a batch at a time, and at the end counts of the bad rows that were left out."""
    skipped: Counter[str] = Counter()
    for batch in reader.batches(part, skipped):
        if whole is not None:
            _check_whole(whole, batch)
        yield batch
    yield skipped


def _by_action(action: NDArray[Any], actions: int) -> Iterator[tuple[int, Ints]]:
    """Yield each action that has events, with the indices of its events, in order."""
    order = np.argsort(action, kind="stable")
    bounds = np.searchsorted(action[order], np.arange(actions + 1))
    for a in range(actions):
        if bounds[a] < bounds[a + 1]:
            yield a, order[bounds[a] : bounds[a + 1]]


def _rows(X: Any, places: Ints) -> Any:
    return X.iloc[places] if hasattr(X, "iloc") else X[places]
