"""Synthetic click logs whose true policy values are known by construction."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.errors import DrstreamError
from drstream.policies.base import FixedPolicy, as_policy
from drstream.storage import atomic_path
from drstream.types import Floats

CHUNK = 1 << 18
LAYOUTS = ("wide", "list")


class World:
    """Users of a few kinds, who click on one of K items with a probability that depends on both.

    A context is the vector of the user's kind (or, with kinds=None, a fresh normal vector each time). The logging
    policy is a softmax with a floor, so that every item has a chance. With kinds, a true value is a finite sum.

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
        seed: int = 0,
    ) -> None:
        if n_actions < 1 or n_features < 1 or (kinds is not None and kinds < 1):
            raise DrstreamError("a world needs at least one action, one feature and one kind of user")
        floor = 0.2 / n_actions if floor is None else floor
        if not 0 <= floor * n_actions <= 1:
            raise DrstreamError(f"floor={floor} for each of {n_actions} actions is more than 1 in all")
        rng = np.random.default_rng(seed)
        scale = 1 / np.sqrt(n_features)
        self.n_actions, self.n_features, self.floor = n_actions, n_features, floor
        self.taste = rng.standard_normal((n_actions, n_features)) * scale  # of the reward
        self.appeal = rng.standard_normal(n_actions) * 0.5 - 2.0
        self.habit = self.taste * 0.8 + rng.standard_normal((n_actions, n_features)) * scale  # of the logging policy
        self.kinds = None if kinds is None else rng.standard_normal((kinds, n_features)).astype(np.float32)
        self.frequency = None if kinds is None else rng.dirichlet(np.full(kinds, 2.0))

    def reward(self, X: NDArray[Any]) -> Floats:
        """The probability (n, K) of a click on each item: a logistic function, which no linear model hits."""
        return 1 / (1 + np.exp(-(np.asarray(X, np.float64) @ self.taste.T * 1.5 + self.appeal)))

    def logging(self, X: NDArray[Any]) -> Floats:
        """The logging policy's probabilities (n, K)."""
        scores = np.asarray(X, np.float64) @ self.habit.T
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        chosen = scores / scores.sum(axis=1, keepdims=True)
        return self.floor + (1 - self.floor * self.n_actions) * chosen

    def value(self, policy: Any) -> float:
        """The true value of a fixed policy."""
        if self.kinds is None or self.frequency is None:
            raise DrstreamError("true values are known by construction for a world with kinds= only")
        return float(self.frequency @ (self._probabilities(policy) * self.reward(self.kinds)).sum(axis=1))

    def _probabilities(self, policy: Any) -> Floats:
        known: FixedPolicy = as_policy(policy, "policy")
        if known.n_actions is None:
            from drstream.log import Log

            known = known.bind(Log(self.table(1), actions=self.n_actions), "policy")
        return np.asarray(known.probabilities(self.kinds), np.float64)  # type: ignore[arg-type]

    def table(self, rows: int, *, seed: int = 0, layout: str = "wide") -> pa.Table:
        """A log: columns action, reward, propensity and x0, x1, ..., or x of lists."""
        rng = np.random.default_rng(seed)
        if self.kinds is None:
            X = rng.standard_normal((rows, self.n_features), dtype=np.float32)
        else:
            X = self.kinds[rng.choice(len(self.kinds), size=rows, p=self.frequency)]
        mu = self.logging(X)
        action = np.minimum((mu.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1), self.n_actions - 1)
        chosen = np.arange(rows), action
        reward = (rng.random(rows) < self.reward(X)[chosen]).astype(np.float64)
        columns = {"action": action.astype(np.int32), "reward": reward, "propensity": mu[chosen]}
        if layout == "wide":
            return pa.table({**columns, **{f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(self.n_features)}})
        if layout == "list":
            return pa.table(
                {**columns, "x": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), self.n_features)}
            )
        raise DrstreamError(f"layout={layout!r}: one of {', '.join(LAYOUTS)}")

    def tables(self, rows: int, *, seed: int = 0, layout: str = "wide") -> Iterator[pa.Table]:
        """The same, in pieces that fit in memory; piece i is drawn with a seed of its own."""
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
        """Write a log to a Parquet file; the file appears when it is complete."""
        schema = self.table(1, layout=layout).schema
        with atomic_path(path) as unfinished, pq.ParquetWriter(unfinished, schema, compression=compression) as writer:
            for table in self.tables(rows, seed=seed, layout=layout):
                writer.write_table(table, row_group_size=row_group_rows)
