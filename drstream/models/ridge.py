"""Ridge regressions of the reward: dense contexts in one pass, sparse ones by conjugate gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from drstream import execution
from drstream.errors import ModelError, suggest
from drstream.execution import Workers
from drstream.kernels import sparse
from drstream.kernels.terms import logged_probability
from drstream.log import Batch, Block, Csr, Log, Reader, as_log
from drstream.log.rows import Folds
from drstream.log.source import Part
from drstream.models.gram import Gram
from drstream.models.linear import LinearModel
from drstream.models.passes import Passes
from drstream.parameters import number
from drstream.policies.base import FixedPolicy, as_policy
from drstream.types import Floats

BLOCK_BYTES = 1 << 22  # of (x, r) sorted by action at a time; twice as many take a third longer
COLLINEAR = 1e-12  # pivots and eigenvalues of the scaled system below this are rounding
TOLERANCE = 1e-9  # of conjugate gradients, on the residual; predictions are then right to 1e-5 of the largest
MOST_STEPS = 1000
WEIGHTS = ("1/p", "mrdr")


class Ridge(LinearModel):
    """r̂(x, a) = w_a . x + b_a, a ridge regression for each action: minimises Σ weight |r - w x - b|² + alpha |w|².

    alpha, fit_intercept
              objective and names are scikit-learn's.
    shared    one w for all actions, and an intercept for each.
    weights   of the events: None (all 1), "1/p" (the paper's r' of section 4.3), or "mrdr": π(a|x)² (1 - p) / p² of
              the policy that is to be evaluated, which minimises the variance of DR, for a deterministic policy exactly
              (Farajtabar, Chow, Ghavamzadeh 2018).
    policy    of "mrdr".

    Dense contexts take one pass, which gathers products of (x, r) for each action; sparse ones take one pass for each
    step of conjugate gradients, over memory if they fit. An action that was never logged is predicted at the mean
    reward of all events.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        *,
        shared: bool = False,
        weights: str | None = None,
        policy: Any = None,
    ) -> None:
        self.alpha = number("alpha", alpha, who="Ridge", error=ModelError)
        if weights is not None and weights not in WEIGHTS:
            raise ModelError(f"Ridge: weights={weights!r}: {suggest(str(weights), WEIGHTS)}")
        if (policy is None) == (weights == "mrdr"):
            raise ModelError('Ridge: weights="mrdr" goes with policy=, the policy that is to be evaluated')
        self.fit_intercept, self.shared = bool(fit_intercept), bool(shared)
        self.weights, self.policy = weights, policy

    def _fit(self, log: Any, workers: Workers) -> None:
        log = as_log(log, propensities=self.weights is not None)
        if log.roles.sparse is not None:
            self._fit_sparse(log, workers)
        else:
            self._finish(log, *self._gather(log, None, workers))

    def fit_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        """One model for each fold, fitted on all other folds: in one pass, where contexts are dense."""
        if log.roles.sparse is not None:
            return super().fit_folds(log, folds, workers)
        gram, rewards, skipped = self._gather(log, folds, workers)
        models = []
        for fold in range(folds.count):
            others = gram.of_all_but(fold, folds.count)
            models.append(self.fresh()._finish(log.part_of(folds.all_but(fold)), others, rewards, skipped))
        return models

    # dense

    def _gather(
        self, log: Log, folds: Folds | None, workers: Workers
    ) -> tuple[Gram, tuple[float, float], Counter[str]]:
        weigher = self._weigher(log)
        reader = log.reader(context=True, action=True, columns=weigher.columns, folds=folds)
        task = partial(_gather, reader, weigher, log.n_actions)
        total = Gram(log.n_actions * (folds.count if folds else 1), log.n_features + 1)
        skipped: Counter[str] = Counter()
        low, high = np.inf, -np.inf
        for gram, rewards, left_out in execution.run(task, log, reader.columns, workers):
            total.merge(gram)
            skipped += left_out
            low, high = min(low, rewards[0]), max(high, rewards[1])
        return total, (low, high), skipped

    def bind(self, log: Log) -> Self:
        bound = super().bind(log)
        bound.policy = None  # of the fit only, and not always to be pickled
        return bound

    def _weigher(self, log: Log) -> _Weigher:
        if self.weights == "mrdr" and self.policy is None:
            raise ModelError('Ridge: the policy of weights="mrdr" is not kept in files: make a new Ridge with policy=')
        if self.weights is not None and log.roles.propensity is None:
            raise ModelError(
                f"Ridge: weights={self.weights!r} needs propensities in a column of the log, and it has none, or they "
                "are not read because others were given with propensity=: fit it on a log that has them"
            )
        policy = None if self.policy is None else as_policy(self.policy, "policy of Ridge").bind(log, "policy of Ridge")
        return _Weigher(self.weights, policy, log.n_actions)

    def _finish(self, log: Log, gram: Gram, rewards: tuple[float, float], skipped: Counter[str]) -> Self:
        d = gram.mean.shape[1] - 1
        self.remember(log, gram.count.sum(), rewards, skipped)
        self.coef_ = np.zeros((len(gram.count), d))
        known = np.flatnonzero(gram.weight).tolist()
        products = [gram.products[g] if self.fit_intercept else gram.about_zero(g) for g in known]
        if self.shared and known:
            total = np.sum(products, axis=0)
            self.coef_[:] = solve_ridge(total[:d, :d], total[:d, d], self.alpha)
        elif not self.shared:
            for g, p in zip(known, products, strict=True):
                self.coef_[g] = solve_ridge(p[:d, :d], p[:d, d], self.alpha)
        self._set_intercepts(gram.weight, gram.mean[:, :d], gram.mean[:, d])
        return self

    def _set_intercepts(self, weight: Floats, mean_x: Floats, mean_r: Floats) -> None:
        """b_a = mean r - w_a . mean x; the mean of all where an action has no events, or none that counts."""
        self.intercept_ = np.zeros(len(weight))
        if self.fit_intercept:
            self.intercept_ = mean_r - np.einsum("kd,kd->k", self.coef_, mean_x)
        unknown = weight == 0
        self.coef_[unknown] = 0
        self.intercept_[unknown] = weight @ mean_r / weight.sum() if weight.any() else 0.0

    # sparse

    def _fit_sparse(self, log: Log, workers: Workers) -> None:
        weigher = self._weigher(log)
        reader = log.reader(context=True, action=True, columns=weigher.columns)
        passes = Passes(log, reader, workers)
        first = partial(_sparse_sums, weigher, log.n_actions, log.n_features)
        sums = _SparseSums.total(passes.run(first), log.n_actions, log.n_features)
        safe = np.where(sums.weight > 0, sums.weight, 1.0)
        mean_x, mean_r = sums.x / safe, sums.r / safe
        system = _Centred(sums.weight, mean_x if self.fit_intercept else np.zeros_like(mean_x), self.alpha, self.shared)
        target, diagonal = system.columns(sums.xr - system.mean * sums.r), system.diagonal(sums.xx)

        def multiply(v: Floats) -> Floats:
            out = np.zeros(v.shape)
            for part in passes.run(partial(_sparse_product, weigher, v)):
                out += part
            return system.centre(out, v)

        found = conjugate_gradients(multiply, target, diagonal, system.columns(sums.xr))
        if found is None:
            raise ModelError(
                f"Ridge: conjugate gradients did not converge in {MOST_STEPS} passes over {sums.events:,} events: a "
                f"larger alpha than {self.alpha:g} makes the problem easier, as do features of like scale"
            )
        self.remember(log, sums.events, sums.rewards, passes.skipped)
        coef = found.T
        self.coef_ = np.ascontiguousarray(np.repeat(coef, log.n_actions, axis=0) if self.shared else coef)
        self.n_passes_ = passes.count
        self._set_intercepts(sums.weight, mean_x.T, mean_r)


class _Weigher:
    """The weights of events. It can be pickled."""

    def __init__(self, kind: str | None, policy: FixedPolicy | None, n_actions: int) -> None:
        self.kind, self.policy, self.n_actions = kind, policy, n_actions

    @property
    def columns(self) -> tuple[str, ...]:
        return self.policy.columns if self.policy else ()

    def of(self, block: Block) -> Floats | None:
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


def _gather(
    reader: Reader, weigher: _Weigher, actions: int, part: Part
) -> tuple[Gram, tuple[float, float], Counter[str]]:
    """The products of (x, r) of one part, for each action (of each fold), and the bad rows left out."""
    skipped: Counter[str] = Counter()
    folds = reader.folds.count if reader.folds else 1
    gram = Gram(actions * folds, reader.n_features + 1)
    rows = max(2048, BLOCK_BYTES // (8 * (reader.n_features + 1)))
    low, high = np.inf, -np.inf
    for batch in reader.batches(part, skipped):
        for block in batch.blocks(rows):
            execution.raise_if_stopped()
            group = block.action if reader.folds is None else block.fold * actions + block.action
            gram.add(block.features, block.reward, group, weigher.of(block))
        low, high = min(low, float(batch.reward.min())), max(high, float(batch.reward.max()))
    return gram, (low, high), skipped


def solve_ridge(products: Floats, target: Floats, alpha: float) -> Floats:
    """w of (products + alpha I) w = target: by Cholesky, or the shortest solution where columns are collinear."""
    if not len(products):
        return np.zeros(0)
    system = products + alpha * np.eye(len(products))
    scale = 1 / np.sqrt(np.where(np.diag(system) > 0, np.diag(system), 1.0))  # else seconds would outweigh clicks
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


def conjugate_gradients(
    multiply: Callable[[Floats], Floats], target: Floats, diagonal: Floats, terms: Floats
) -> Floats | None:
    """x (d, K) of A_k x_k = target_k for each column by itself, all of them in the same passes; None: it found no end.

    In coordinates in which the diagonal is 1, so that no feature counts less for its unit, and no action for its few
    events. `terms` are what the target is a difference of: its digits below 1e-14 of them are rounding.
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
        product = scale * multiply(scale * along)
        bend = (along * product).sum(axis=0)
        step = np.where(bend > 0, size, 0.0) / np.where(bend > 0, bend, 1.0)
        x += step * along
        residual -= step * product
        before, size = size, np.where(going, (residual**2).sum(axis=0), size)
        along = residual + np.where(going, size / np.where(before > 0, before, 1.0), 0.0) * along
    return None


class _SparseSums(NamedTuple):
    """Of one part, for each action: weighted sums of 1, r, x, x r and x² (d, K)."""

    events: int
    rewards: tuple[float, float]
    weight: Floats
    r: Floats
    x: Floats
    xr: Floats
    xx: Floats

    @classmethod
    def total(cls, parts: Iterator[_SparseSums], actions: int, features: int) -> _SparseSums:
        matrices = (np.zeros((features, actions)) for _ in range(3))
        total = cls(0, (np.inf, -np.inf), np.zeros(actions), np.zeros(actions), *matrices)
        for part in parts:
            low, high = min(total.rewards[0], part.rewards[0]), max(total.rewards[1], part.rewards[1])
            for mine, other in zip(total[2:], part[2:], strict=True):
                mine += other
            total = total._replace(events=total.events + part.events, rewards=(low, high))
        return total


def _sparse_sums(weigher: _Weigher, actions: int, features: int, batches: Iterator[Batch]) -> _SparseSums:
    x, xr, xx = (np.zeros((features, actions)) for _ in range(3))
    weight, r = np.zeros(actions), np.zeros(actions)
    count, low, high = 0, np.inf, -np.inf
    for block, rows in _sparse_blocks(batches):
        w = _or_ones(weigher.of(block), block)
        matrix = rows.indptr, rows.indices, rows.values
        sparse.add_logged(w, block.action, *matrix, x)
        sparse.add_logged(w * block.reward, block.action, *matrix, xr)
        sparse.add_logged(w, block.action, rows.indptr, rows.indices, rows.values.astype(np.float64) ** 2, xx)
        weight += np.bincount(block.action, w, actions)
        r += np.bincount(block.action, w * block.reward, actions)
        count += len(block)
        low, high = min(low, float(block.reward.min())), max(high, float(block.reward.max()))
    return _SparseSums(count, (low, high), weight, r, x, xr, xx)


def _sparse_product(weigher: _Weigher, v: Floats, batches: Iterator[Batch]) -> Floats:
    """Σ w x (x . v[:, a]) of one part, for each action, or for all where v has one column."""
    out = np.zeros(v.shape)
    for block, rows in _sparse_blocks(batches):
        action = block.action if v.shape[1] > 1 else np.zeros(len(block), np.int32)
        matrix = rows.indptr, rows.indices, rows.values
        products = np.empty(len(block))
        sparse.logged_products(v, action, *matrix, products)
        weight = weigher.of(block)
        sparse.add_logged(products if weight is None else weight * products, action, *matrix, out)
    return out


def _sparse_blocks(batches: Iterator[Batch]) -> Iterator[tuple[Block, Csr]]:
    for batch in batches:
        execution.raise_if_stopped()
        for block in batch.blocks(len(batch)):
            rows = block.sparse
            assert rows is not None
            yield block, rows


def _or_ones(weight: Floats | None, block: Block) -> Floats:
    return np.ones(len(block)) if weight is None else weight


class _Centred(NamedTuple):
    """The normal equations of rows less their action's mean, without making such rows, which are not sparse."""

    weight: Floats  # (K)
    mean: Floats  # (d, K)
    alpha: float
    shared: bool

    def columns(self, matrix: Floats) -> Floats:
        """(d, K), or its sum over actions (d, 1) where these share their weights."""
        return matrix.sum(axis=1, keepdims=True) if self.shared else matrix

    def centre(self, product: Floats, v: Floats) -> Floats:
        """(Σ w x x' - W mean mean' + alpha) v."""
        along = self.mean * (self.weight * (self.mean * v).sum(axis=0))
        return product - self.columns(along) + self.alpha * v

    def diagonal(self, squares: Floats) -> Floats:
        found = self.columns(squares - self.weight * self.mean**2) + self.alpha
        return np.where(found > COLLINEAR * self.columns(squares), found, 1.0)  # a feature that is always the same
