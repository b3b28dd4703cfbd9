"""Synthetic click logs whose true policy values are known by construction."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.errors import DrstreamError, because
from drstream.policies.base import FixedPolicy, as_policy
from drstream.policies.sets import NO, wants_sets
from drstream.states.files import atomic_path
from drstream.types import Bools, Floats

__all__ = ["Variance", "World"]

NO_KINDS = "true values are known by construction for a world with kinds= only"
CHUNK = 1 << 18
LAYOUTS = ("wide", "list")
SETS, ITEMS = 16, "items"  # number of eligible sets, and their column


@dataclass(frozen=True)
class Variance:
    """The variance of an event's score: t1 - t2 + t3 + t4 (Lemma 3.3).

    With w the weight, ϱ = μ / μ̂ and Δ = r̂ - r*: t1 = V_x[E_ν[r* + (1 - ϱ)Δ]], t2 = E_x[(E_ν[ϱΔ])²],
    t3 = E_ν[w ϱ V(r)], t4 = E_ν[w ϱ Δ²].
    """

    t1: float
    t2: float
    t3: float
    t4: float

    @property
    def total(self) -> float:
        return self.t1 - self.t2 + self.t3 + self.t4

    @property
    def contexts(self) -> float:
        """As in `result.explain`."""
        return self.t1 - self.t2

    @property
    def importance(self) -> float:
        return self.t3 + self.t4


@dataclass(frozen=True)
class _Event:
    """An event of a world: frequencies of the kinds, and matrices (kinds, K)."""

    frequency: Floats
    policy: Floats
    logged: Floats
    reward: Floats
    predicted: Floats
    weight: Floats

    @property
    def error(self) -> Floats:
        """Δ = r̂ - r*"""
        return self.predicted - self.reward

    @property
    def expected(self) -> Floats:
        """The expected score for each kind: E_ν[r* + (1 - ϱ)Δ] = E_ν[r̂] - E_μ[w Δ]. Where ν = 0, ϱ has no meaning."""
        return (self.policy * self.predicted - self.logged * self.weight * self.error).sum(axis=1)


def _predicted(model: Any, X: NDArray[Any]) -> Any:
    if model is None:
        return 0.0
    if callable(getattr(model, "predict", None)):
        return model.predict(X)
    return model(X) if callable(model) else model


def _lists(eligible: Bools) -> pa.Array:
    starts = np.concatenate([[0], np.cumsum(eligible.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(np.nonzero(eligible)[1], pa.int32()))


class World:
    """A world of users of a few kinds, to whom a policy shows one of K items.

    The probability of a click depends on the kind and the item. A context is the vector of the user's kind. With
    kinds=None, it is a new normal vector for each event. The logging policy is a softmax with a floor, so that every
    item has a chance. With kinds, a true value is a finite sum.

    With eligible=0.5, a user can be shown about half of the items: the column `items` has the eligible set of each
    event. It is one of 16 sets, each as likely as the others; with kinds=None, a new set for each event.

    >>> from drstream.policies import Constant, Uniform
    >>> world = World(n_actions=3, n_features=4, seed=1)
    >>> world.table(1000, seed=2).num_rows
    1000
    >>> bool(0 < world.value(Uniform()) < 1)
    True
    """

    def __init__(
        self,
        n_actions: int = 10,
        n_features: int = 20,
        *,
        kinds: int | None = 256,
        floor: float | None = None,
        eligible: float | None = None,
        seed: int = 0,
    ) -> None:
        if n_actions < 1 or n_features < 1 or (kinds is not None and kinds < 1):
            raise DrstreamError("a world needs at least one action, one feature and one kind of user")
        floor = 0.2 / n_actions if floor is None else floor
        if not 0 <= floor * n_actions <= 1:
            raise DrstreamError(f"floor={floor} for each of {n_actions} actions is more than 1 in all")
        if eligible is not None and not 0 <= eligible <= 1:
            raise DrstreamError(f"eligible={eligible}: the share of the items that a user can be shown, from 0 to 1")
        rng = np.random.default_rng(seed)
        scale = 1 / np.sqrt(n_features)
        self.n_actions, self.n_features, self.floor = n_actions, n_features, floor
        self.taste = rng.standard_normal((n_actions, n_features)) * scale  # of the reward
        self.appeal = rng.standard_normal(n_actions) * 0.5 - 2.0
        self.habit = self.taste * 0.8 + rng.standard_normal((n_actions, n_features)) * scale  # of the logging policy
        self.kinds = None if kinds is None else rng.standard_normal((kinds, n_features)).astype(np.float32)
        self.frequency = None if kinds is None else rng.dirichlet(np.full(kinds, 2.0))
        self.eligible = eligible
        self.sets = None if kinds is None or eligible is None else self._draw_sets(rng, SETS)

    def _draw_sets(self, rng: np.random.Generator, count: int) -> Bools:
        """Return some eligible sets (count, K). Each has an item."""
        assert self.eligible is not None
        out = rng.random((count, self.n_actions)) < self.eligible
        out[np.arange(count), rng.integers(0, self.n_actions, count)] = True
        return out

    def reward(self, X: NDArray[Any]) -> Floats:
        """Return the probability (n, K) of a click on each item. It is logistic, so no linear model is exact."""
        return 1 / (1 + np.exp(-(np.asarray(X, np.float64) @ self.taste.T * 1.5 + self.appeal)))

    def logging(self, X: NDArray[Any], eligible: Any = None) -> Floats:
        """Return the logging policy's probabilities (n, K), on eligible items only, if they are given (n, K)."""
        scores = np.asarray(X, np.float64) @ self.habit.T
        if eligible is not None:
            scores = np.where(eligible, scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        chosen = scores / scores.sum(axis=1, keepdims=True)
        if eligible is None:
            return self.floor + (1 - self.floor * self.n_actions) * chosen
        floor = self.floor * self.n_actions  # of all items together, which those that are eligible share
        return np.where(eligible, floor / eligible.sum(axis=1, keepdims=True) + (1 - floor) * chosen, 0.0)

    def _logging(self, X: NDArray[Any], eligible: Bools | None) -> Floats:
        return self.logging(X) if eligible is None else self.logging(X, eligible)  # a subclass may know no sets

    def value(self, policy: Any) -> float:
        """Return the true value of a fixed policy."""
        frequency, X, _ = self._users()
        return float(frequency @ (self._probabilities(policy) * self.reward(X)).sum(axis=1))

    def _users(self) -> tuple[Floats, NDArray[Any], Bools | None]:
        """How often a user comes, the context, and what is eligible: of each kind, with each set if there are some."""
        if self.kinds is None or self.frequency is None:
            raise DrstreamError(NO_KINDS)
        if self.sets is None:
            return self.frequency, self.kinds, None
        kinds, sets = len(self.kinds), len(self.sets)
        frequency = np.repeat(self.frequency, sets) / sets
        return frequency, np.repeat(self.kinds, sets, axis=0), np.tile(self.sets, (kinds, 1))

    def bias(
        self, policy: Any, model: Any = None, propensity: Any = 1.0, *, cap: float | None = None, floor: float = 0.0
    ) -> float:
        """Return the bias of DR, exactly. The parameters are those of `variance`. (Theorem 3.4)"""
        event = self._event(policy, model, propensity, cap, floor)
        return float(event.frequency @ event.expected) - self.value(policy)

    def variance(
        self, policy: Any, model: Any = None, propensity: Any = 1.0, *, cap: float | None = None, floor: float = 0.0
    ) -> Variance:
        """Return the variance of the score of one event, exactly and in parts. That of DR over n events is 1/n of it.

        model       The reward model r̂: an array (kinds, K), a number, an object with predict(X) -> (n, K), or such a
                    function. None is r̂ = 0, which is IPS.
        propensity  The propensities μ̂ that are used: an array (kinds, K), or a factor c, for c μ. An infinite factor
                    leaves the model alone, which is DM.
        cap, floor  Limits of the weights: w = min(cap, ν / max(floor, μ̂)).
        """
        e = self._event(policy, model, propensity, cap, floor)
        noise = e.reward * (1 - e.reward)  # rewards are 0 or 1

        def over_contexts(values: Floats) -> float:
            return float(e.frequency @ values)

        return Variance(
            t1=over_contexts((e.expected - over_contexts(e.expected)) ** 2),
            t2=over_contexts((e.logged * e.weight * e.error).sum(axis=1) ** 2),
            t3=over_contexts((e.logged * e.weight**2 * noise).sum(axis=1)),
            t4=over_contexts((e.logged * e.weight**2 * e.error**2).sum(axis=1)),
        )

    def _event(self, policy: Any, model: Any, propensity: Any, cap: float | None, floor: float) -> _Event:
        frequency, X, eligible = self._users()
        nu, mu, r = self._probabilities(policy), self._logging(X, eligible), self.reward(X)
        rhat = np.broadcast_to(np.asarray(_predicted(model, X), np.float64), r.shape)
        used = np.asarray(propensity, np.float64)
        used = np.broadcast_to(used * mu if used.ndim == 0 else used, mu.shape)
        if eligible is not None:
            used = np.where(eligible, used, 1.0)  # there, ν is 0
        if not (np.maximum(used, floor) > 0).all():
            raise DrstreamError(f"propensity={propensity!r}: propensities must be above 0, or have a floor above 0")
        weight = np.minimum(math.inf if cap is None else cap, nu / np.maximum(used, floor))
        return _Event(frequency, nu, mu, r, rhat, weight)

    def _probabilities(self, policy: Any) -> Floats:
        known: FixedPolicy = as_policy(policy, "policy")
        if known.n_actions is None:
            from drstream.log import Log

            sets = None if self.eligible is None else ITEMS
            known = known.bind(Log(self.table(1), actions=self.n_actions, eligible=sets), "policy")
        _, X, eligible = self._users()
        given = () if eligible is None or wants_sets(known.asked) == NO else (eligible,)
        return np.asarray(known.probabilities(X, *given), np.float64)

    def table(self, rows: int, *, seed: int = 0, layout: str = "wide") -> pa.Table:
        """Return a log with columns action, reward, propensity, and x0, x1, ... or, with layout="list", lists x.

        With eligible sets, it has a column of lists `items`, too.
        """
        rng = np.random.default_rng(seed)
        if self.kinds is None:
            X = rng.standard_normal((rows, self.n_features), dtype=np.float32)
        else:
            X = self.kinds[rng.choice(len(self.kinds), size=rows, p=self.frequency)]
        eligible = None
        if self.eligible is not None:
            drawn = self.sets is None
            eligible = self._draw_sets(rng, rows) if drawn else self.sets[rng.integers(0, SETS, rows)]  # type: ignore[index]
        mu = self._logging(X, eligible)
        action = np.minimum((mu.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1), self.n_actions - 1)
        chosen = np.arange(rows), action
        reward = (rng.random(rows) < self.reward(X)[chosen]).astype(np.float64)
        columns: dict[str, Any] = {"action": action.astype(np.int32), "reward": reward, "propensity": mu[chosen]}
        if eligible is not None:
            columns[ITEMS] = _lists(eligible)
        if layout == "wide":
            return pa.table({**columns, **{f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(self.n_features)}})
        if layout == "list":
            return pa.table(
                {**columns, "x": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), self.n_features)}
            )
        raise DrstreamError(f"layout={layout!r}: one of {', '.join(LAYOUTS)}")

    def tables(self, rows: int, *, seed: int = 0, layout: str = "wide") -> Iterator[pa.Table]:
        """Yield a log in pieces that fit in memory. Each piece is drawn with its own seed."""
        for i, start in enumerate(range(0, rows, CHUNK)):
            yield self.table(min(CHUNK, rows - start), seed=seed + 1_000_003 * i, layout=layout)

    def write(
        self,
        path: str | os.PathLike[str],
        rows: int,
        *,
        seed: int = 0,
        layout: str = "wide",
        compression: str = "snappy",
        row_group_rows: int = CHUNK,
    ) -> None:
        """Write a log to a Parquet file, which appears only when it is complete."""
        schema = self.table(1, layout=layout).schema
        try:
            with (
                atomic_path(path) as unfinished,
                pq.ParquetWriter(unfinished, schema, compression=compression, write_page_checksum=True) as writer,
            ):
                for table in self.tables(rows, seed=seed, layout=layout):
                    writer.write_table(table, row_group_size=row_group_rows)
        except OSError as error:
            raise DrstreamError(f"cannot write {os.fspath(path)}: {because(error)}. Nothing was written") from None
