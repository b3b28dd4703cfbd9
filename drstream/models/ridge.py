"""Ridge regressions of the reward: in one pass for dense contexts, by conjugate gradients for sparse contexts."""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from drstream.errors import ModelError, parameter, suggest
from drstream.kernels import sparse
from drstream.kernels.observe import logged_probability
from drstream.log import Events, Log, Reader, as_log
from drstream.log.rows import Blocks, Folds
from drstream.log.spec import ROWS
from drstream.models.gram import Gram
from drstream.models.linear import LinearModel
from drstream.models.passes import Passes
from drstream.models.together import Asked, Fit, alone, side_by_side
from drstream.models.trained import for_matrices
from drstream.parameters import number
from drstream.policies.base import FixedPolicy, as_policy
from drstream.policies.fixed import Uniform
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.states.checkpoint import sum_parts
from drstream.types import Floats

BLOCK_BYTES = 1 << 21  # of (x, r) that are sorted by fold and action at a time; twice as much takes a third longer
COLLINEAR = 1e-12  # pivots and eigenvalues of the scaled system below this are rounding
TOLERANCE = 1e-9  # relative residual of conjugate gradients; predictions are then right to 1e-5 of the largest
MOST_STEPS = 1000
ARRAYS = 16  # of K x d numbers that a fit on sparse contexts holds, with the sums of parts under way
WEIGHTS = ("1/p", "mrdr")
NO_RANGE = (np.nan, np.nan)


class Ridge(LinearModel):
    """r̂(x, a) = w_a . x + b_a, a ridge regression for each action: minimises Σ weight |r - w x - b|² + alpha |w|².

    alpha, fit_intercept
              Parameters of the regression. Objective and names are scikit-learn's.
    shared    Fits one w for all actions, and an intercept for each.
    weights   Weights of the events. None sets all to 1. "1/p" gives the paper's r' of section 4.3. "mrdr" is
              π(a|x)² (1 - p) / p², where π is the policy that is to be evaluated. It minimises the variance of DR,
              exactly so for a deterministic policy (Farajtabar, Chow, Ghavamzadeh 2018).
    policy    Policy π for weights="mrdr".
    interactions
              On a log of candidates, there is one regression, on the features [x, z] of contexts and logged candidates.
              True adds all products x_i z_j, without which contexts change no candidate's rank.

    Dense contexts take one pass, which gathers products of (x, r) for each action. Sparse contexts take one pass for
    each step of conjugate gradients. If they fit into memory, they are decoded only once. The prediction for an action
    that was never logged is the mean reward of all events.
    """

    keeps_passes = True

    def __init__(
        self,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        *,
        shared: bool = False,
        weights: str | None = None,
        policy: Any = None,
        interactions: bool = False,
    ) -> None:
        self.alpha = number("alpha", alpha, who="Ridge", error=ModelError)
        if weights is not None and weights not in WEIGHTS:
            raise ModelError(f"Ridge: weights={weights!r}: {suggest(str(weights), WEIGHTS)}")
        if (policy is None) == (weights == "mrdr"):
            raise ModelError('Ridge: weights="mrdr" goes with policy=, the policy that is to be evaluated')
        self.fit_intercept, self.shared = bool(fit_intercept), bool(shared)
        self.weights, self.policy, self.interactions = weights, policy, bool(interactions)

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Make one from the parameters in a file, which has no policy."""
        needed = Uniform() if parameters.get("weights") == "mrdr" else None
        made: Self = super().from_parameters({**parameters, "policy": needed})
        made.policy = None
        return made

    def _fit(self, log: Any, workers: Workers) -> None:
        log = self.fit_log(as_log(log, propensities=self.weights is not None))
        if log.is_sparse:
            passes, weigher = self._passes(log, None, workers)
            self._finish_sparse(log, alone(self._solve_sparse(log, passes, weigher)))
        else:
            self._finish(log, *self._gather(log, None, workers))

    def fit_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        """Return one model for each fold, fitted on all other folds. Dense contexts take one pass in all.

        On sparse contexts, the fits share their passes over the log.
        """
        log = self.fit_log(log)
        if log.is_sparse:
            return self._fit_sparse_folds(log, folds, workers)
        gram, rewards, skipped = self._gather(log, folds, workers)
        models = []
        for fold in range(folds.count):
            others = gram.of_all_but(fold, folds.count)
            models.append(self.fresh()._finish(log.part_of(folds.all_but(fold)), others, rewards, skipped))
        return models

    def fit_forward(self, log: Log, blocks: Blocks, workers: Workers) -> list[Self | None]:
        """Return one model for each block, fitted on all earlier rows. Dense contexts take one pass in all.

        Sums over the rows so far are kept, and solved whenever a block ends.
        """
        log = self.fit_log(log)
        if log.is_sparse:
            return super().fit_forward(log, blocks, workers)
        models: list[Self | None] = []
        total = Gram(log.n_actions, log.n_features + 1)

        def end_blocks(end: int) -> None:
            """Make the models of all blocks before `end`, from the sums so far."""
            for start in blocks.starts[len(models) : end].tolist():
                some = total.count.any()  # the range of the rewards stays unknown: it is for clamp=True alone
                model = self.fresh()._finish(log.rows_before(start), total, NO_RANGE, Counter()) if some else None
                models.append(model)

        for found in self._run(log, blocks, workers):
            for block in found.folds:
                end_blocks(block + 1)
                total.merge(found.gram.of_fold(block - found.folds.start, log.n_actions))
        end_blocks(blocks.count)
        return models

    # dense

    def _gather(
        self, log: Log, folds: Folds | None, workers: Workers
    ) -> tuple[Gram, tuple[float, float], Counter[str]]:
        gram = Gram(log.n_actions * (folds.count if folds else 1), log.n_features + 1)
        nothing = _Summed(gram, math.inf, -math.inf, Counter())
        total = sum_parts(workers.checkpoint, partial(self._run, log, folds, workers), nothing, _Summed.merge)
        return total.gram, (total.low, total.high), total.skipped

    def _run(self, log: Log, folds: Folds | Blocks | None, workers: Workers, done: int = 0) -> Iterator[_Gathered]:
        """Yield what each part after the first `done` ones has, in order."""
        weigher = self._weigher(log)
        reader = log.reader(context=True, action=True, columns=weigher.columns, folds=folds)
        sums = log.n_actions * (folds.count if isinstance(folds, Folds) else 1) * (log.n_features + 1) ** 2
        execution.check_memory(
            8 * sums * (execution.AHEAD * workers.threads + 1), **for_matrices(log.n_actions, log.n_features)
        )
        parts = itertools.islice(log.parts(reader.columns), done, None)
        return execution.run(partial(_gather, reader, weigher, log.n_actions), log, reader.columns, workers, "", parts)

    def bind(self, log: Log) -> Self:
        bound = copy.copy(self)
        bound.policy = None  # for the fit only, and not always picklable
        return LinearModel.bind(bound, log)

    def _weigher(self, log: Log) -> _Weigher:
        log.contexts.refuse_nan("Ridge", ModelError)
        if self.weights == "mrdr" and log.spec.pairs is not None:
            raise ModelError(
                f'Ridge: weights="mrdr" is for logs with one set of actions for all events, and this log has '
                f"{parameter('candidates')}: leave it out"
            )
        if self.weights == "mrdr" and self.policy is None:
            raise ModelError('Ridge: the policy of weights="mrdr" is not kept in files: make a new Ridge with policy=')
        if self.weights is not None and not log.roles.with_propensities:
            raise ModelError(
                f"Ridge: weights={self.weights!r} needs propensities in a column of the log, and it has none, or they "
                "are not read because others were given instead: fit it on a log that has them"
            )
        policy = None if self.policy is None else as_policy(self.policy, "policy of Ridge").bind(log, "policy of Ridge")
        return _Weigher(self.weights, policy, log.n_actions)

    def _finish(self, log: Log, gram: Gram, rewards: tuple[float, float], skipped: Counter[str]) -> Self:
        d = gram.mean.shape[1] - 1
        self.remember(log, int(gram.count.sum()), rewards, skipped)
        self.coef_ = np.zeros((len(gram.count), d))
        known = np.flatnonzero(gram.weight).tolist()
        products = [gram.products(g) if self.fit_intercept else gram.about_zero(g) for g in known]
        if self.shared and known:
            total = np.sum(products, axis=0)
            self.coef_[:] = solve_ridge(total[:d, :d], total[:d, d], self.alpha)
        elif not self.shared:
            for g, p in zip(known, products, strict=True):
                self.coef_[g] = solve_ridge(p[:d, :d], p[:d, d], self.alpha)
        self._set_intercepts(gram.weight, gram.mean[:, :d], gram.mean[:, d])
        return self

    def _set_intercepts(self, weight: Floats, mean_x: Floats, mean_r: Floats) -> None:
        """Set b_a = mean r - w_a . mean x. An action of weight 0, e.g. without events, gets the mean of all."""
        self.intercept_ = np.zeros(len(weight))
        if self.fit_intercept:
            self.intercept_ = mean_r - np.einsum("kd,kd->k", self.coef_, mean_x)
        unknown = weight == 0
        self.coef_[unknown] = 0
        self.intercept_[unknown] = weight @ mean_r / weight.sum() if weight.any() else 0.0

    # sparse

    def _fit_sparse_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        passes, weigher = self._passes(log, folds, workers)
        fits = [self._solve_sparse(log, passes, weigher) for _ in range(folds.count)]
        models = []
        for fold, found in enumerate(side_by_side(fits, 8 * log.n_actions * log.n_features * ARRAYS)):
            models.append(self.fresh()._finish_sparse(log.part_of(folds.all_but(fold)), found))
        return models

    def _passes(self, log: Log, folds: Folds | None, workers: Workers) -> tuple[Passes, _Weigher]:
        weigher = self._weigher(log)
        reader = log.reader(context=True, action=True, columns=weigher.columns, folds=folds)
        return Passes(log, reader, workers, by_fold=folds is not None), weigher

    def _solve_sparse(self, log: Log, passes: Passes, weigher: _Weigher) -> Fit[_Solved]:
        before = passes.count
        sums = yield Asked(passes, _SumsTask(weigher, log.n_actions, log.n_features), ROWS)
        safe = np.where(sums.weight > 0, sums.weight, 1.0)
        mean_x, mean_r = sums.x / safe, sums.r / safe
        system = _Centred(sums.weight, mean_x if self.fit_intercept else np.zeros_like(mean_x), self.alpha, self.shared)
        target, diagonal = system.columns(sums.xr - system.mean * sums.r), system.diagonal(sums.xx)
        steps = conjugate_gradients(target, diagonal, system.columns(sums.xr))
        try:
            v = next(steps)
            while True:
                found = yield Asked(passes, _ProductTask(weigher, v), ROWS)
                v = steps.send(system.centre(found.product, v))
        except StopIteration as end:
            coef = end.value
        if coef is None:
            raise ModelError(
                f"Ridge: conjugate gradients did not converge in {MOST_STEPS} passes over {sums.events:,} events: a "
                f"larger alpha than {self.alpha:g} makes the problem easier, as do features of like scale"
            )
        about = sums.events, sums.rewards, passes.skipped
        return _Solved(coef.T, sums.weight, mean_x.T, mean_r, *about, passes.count - before)

    def _finish_sparse(self, log: Log, found: _Solved) -> Self:
        self.remember(log, found.events, found.rewards, found.skipped)
        coef = found.coef
        self.coef_ = np.ascontiguousarray(np.repeat(coef, log.n_actions, axis=0) if self.shared else coef)
        self.n_passes_ = found.passes
        self._set_intercepts(found.weight, found.mean_x, found.mean_r)
        return self


class _Solved(NamedTuple):
    """The solution of a fit to sparse contexts."""

    coef: Floats
    weight: Floats
    mean_x: Floats
    mean_r: Floats
    events: int
    rewards: tuple[float, float]
    skipped: Counter[str] | None
    passes: int


class _Weigher:
    """Computes the weights of events. It can be pickled."""

    def __init__(self, kind: str | None, policy: FixedPolicy | None, n_actions: int) -> None:
        self.kind, self.policy, self.n_actions = kind, policy, n_actions

    @property
    def columns(self) -> tuple[str, ...]:
        return self.policy.columns if self.policy else ()

    def of(self, block: Events) -> Floats | None:
        if self.kind is None:
            return None
        if self.kind == "1/p":
            return 1 / block.propensity
        assert self.policy is not None
        if self.policy.only_logged:
            logged = self.policy.logged(block)
        else:
            pi, logged = np.empty((self.n_actions, len(block))), np.empty(len(block))
            self.policy.fill(block, pi)
            logged_probability(pi, block.action, logged)
        return logged**2 * (1 - block.propensity) / block.propensity**2


class _Gathered(NamedTuple):
    """What a part has: products of (x, r) by fold and action, the range of rewards, and counts of bad rows."""

    gram: Gram
    rewards: tuple[float, float]
    skipped: Counter[str]
    folds: range  # the folds, or blocks of rows, that the products are about


@dataclass
class _Summed:
    """What several parts have."""

    gram: Gram
    low: float
    high: float
    skipped: Counter[str]

    def merge(self, found: _Gathered) -> None:
        self.gram.merge(found.gram)
        self.skipped += found.skipped
        self.low, self.high = min(self.low, found.rewards[0]), max(self.high, found.rewards[1])


def _folds_of(part: Part, folds: Folds | Blocks | None) -> range:
    """Return the folds that a part may have events of."""
    if isinstance(folds, Blocks):
        first, last = folds.of(np.array([part.first_row, part.first_row + part.rows - 1]))
        return range(int(first), int(last) + 1)
    return range(1 if folds is None else folds.count)


def _gather(reader: Reader, weigher: _Weigher, actions: int, part: Part) -> _Gathered:
    skipped: Counter[str] = Counter()
    folds = _folds_of(part, reader.folds)
    gram = Gram(actions * len(folds), reader.n_features + 1)
    rows = max(1024, BLOCK_BYTES // (8 * (reader.n_features + 1)))
    low, high = np.inf, -np.inf
    scratch: dict[Any, Any] = {}  # of all batches
    for batch in reader.batches(part, skipped):
        batch.scratch = scratch
        for block in batch.blocks(rows):
            execution.raise_if_stopped()
            group = block.action if reader.folds is None else (block.fold - folds.start) * actions + block.action
            gram.add(block.features, block.reward, group, weigher.of(block))
        low, high = min(low, float(batch.reward.min())), max(high, float(batch.reward.max()))
    return _Gathered(gram, (low, high), skipped, folds)


def solve_ridge(products: Floats, target: Floats, alpha: float) -> Floats:
    """Solve (products + alpha I) w = target by Cholesky. Collinear columns get the shortest solution."""
    if not len(products):
        return np.zeros(0)
    system = products + alpha * np.eye(len(products))
    scale = 1 / np.sqrt(np.where(np.diag(system) > 0, np.diag(system), 1.0))  # makes the features' units irrelevant
    system, target = system * np.outer(scale, scale), target * scale
    try:
        factor = scipy.linalg.cho_factor(system, lower=True)
        if (np.diag(factor[0]) ** 2).min() > COLLINEAR:
            return scale * scipy.linalg.cho_solve(factor, target)
    except np.linalg.LinAlgError:
        pass
    values, vectors = scipy.linalg.eigh(system)
    keep = values > COLLINEAR * values[-1]
    return scale * (vectors[:, keep] @ ((vectors[:, keep].T @ target) / values[keep]))


def conjugate_gradients(target: Floats, diagonal: Floats, terms: Floats) -> Generator[Floats, Floats, Floats | None]:
    """Solve A_k x_k = target_k for each column of x (d, K): yield v, and be sent A_k v_k for all columns at once.

    Return None without convergence. Coordinates are scaled so that the diagonal is 1. No feature then counts less for
    its unit, and no action for having few events. The target is a difference of numbers as large as `terms`, so its
    digits below 1e-14 of them are rounding.
    """
    scale = 1 / np.sqrt(diagonal)
    x, residual = np.zeros(target.shape), scale * target
    along = residual.copy()
    size = (residual**2).sum(axis=0)
    enough = np.maximum(TOLERANCE**2 * size, ((1e-14 * scale * terms) ** 2).sum(axis=0))
    for _ in range(MOST_STEPS):
        going = size > enough
        if not going.any():
            return scale * x
        along[:, ~going] = 0
        product = scale * (yield scale * along)
        bend = (along * product).sum(axis=0)
        step = np.where(bend > 0, size, 0.0) / np.where(bend > 0, bend, 1.0)
        x += step * along
        residual -= step * product
        before, size = size, np.where(going, (residual**2).sum(axis=0), size)
        along = residual + np.where(going, size / np.where(before > 0, before, 1.0), 0.0) * along
    return None


@dataclass
class _SparseSums:
    """Weighted sums for each action: of 1 and r (K), and of x, x r and x² (d, K)."""

    weight: Floats
    r: Floats
    x: Floats
    xr: Floats
    xx: Floats
    events: int = 0
    rewards: tuple[float, float] = (np.inf, -np.inf)

    def merge(self, later: _SparseSums) -> None:
        for name in ("weight", "r", "x", "xr", "xx"):
            getattr(self, name)[:] += getattr(later, name)
        self.note(later.events, *later.rewards)

    def note(self, events: int, low: float, high: float) -> None:
        self.events += events
        self.rewards = min(self.rewards[0], low), max(self.rewards[1], high)


class _SumsTask(NamedTuple):
    weigher: _Weigher
    actions: int
    features: int

    def start(self) -> _SparseSums:
        vectors, matrices = np.zeros((2, self.actions)), np.zeros((3, self.features, self.actions))
        return _SparseSums(*vectors, *matrices)

    def add(self, sums: _SparseSums, block: Events) -> None:
        rows, action, reward = block.sparse, block.action, block.reward
        assert rows is not None
        w = self.weigher.of(block)
        w = np.ones(len(block)) if w is None else w
        matrix = rows.indptr, rows.indices, rows.values
        sparse.add_logged(w, action, *matrix, sums.x)
        sparse.add_logged(w * reward, action, *matrix, sums.xr)
        sparse.add_logged(w, action, rows.indptr, rows.indices, rows.values.astype(np.float64) ** 2, sums.xx)
        sums.weight += np.bincount(action, w, self.actions)
        sums.r += np.bincount(action, w * reward, self.actions)
        sums.note(len(block), float(reward.min()), float(reward.max()))


@dataclass
class _Product:
    product: Floats

    def merge(self, later: _Product) -> None:
        self.product += later.product


class _ProductTask(NamedTuple):
    """Sums up w x (x . v[:, a]), for each action, or for all together if v has one column."""

    weigher: _Weigher
    v: Floats

    def start(self) -> _Product:
        return _Product(np.zeros(self.v.shape))

    def add(self, sums: _Product, block: Events) -> None:
        rows, v = block.sparse, self.v
        assert rows is not None
        action = block.action if v.shape[1] > 1 else np.zeros(len(block), np.int32)
        matrix = rows.indptr, rows.indices, rows.values
        products = np.empty(len(block))
        sparse.logged_products(v, action, *matrix, products)
        weight = self.weigher.of(block)
        sparse.add_logged(products if weight is None else weight * products, action, *matrix, sums.product)


class _Centred(NamedTuple):
    """The normal equations of rows minus the mean of their action, without these rows, which would not be sparse."""

    weight: Floats  # (K)
    mean: Floats  # (d, K)
    alpha: float
    shared: bool

    def columns(self, matrix: Floats) -> Floats:
        """Return the matrix (d, K), or its sum over actions (d, 1) if these share their weights."""
        return matrix.sum(axis=1, keepdims=True) if self.shared else matrix

    def centre(self, product: Floats, v: Floats) -> Floats:
        """Return (Σ w x x' - W mean mean' + alpha) v."""
        along = self.mean * (self.weight * (self.mean * v).sum(axis=0))
        return product - self.columns(along) + self.alpha * v

    def diagonal(self, squares: Floats) -> Floats:
        found = self.columns(squares - self.weight * self.mean**2) + self.alpha
        return np.where(found > COLLINEAR * self.columns(squares), found, 1.0)  # 1 for a feature that never changes
