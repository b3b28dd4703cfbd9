"""The cases of states: those of 30 days, merged to a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from bench.common.selecting import main_names

DAYS, ROWS = 30, 5_000  # rows of a day; the size of a state does not depend on them
ROUNDS = 5
SECONDS = 1.0  # maximum


@dataclass(frozen=True)
class Case:
    what: str
    options: dict[str, Any] = field(default_factory=dict)
    required: float | None = SECONDS
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"states of {DAYS} days, {self.what}"

    def states(self) -> list[bytes]:
        """The states of all days: two policies, four estimators."""
        world = drs.synth.World(n_actions=10, n_features=20)
        policies = {"soft": drs.policies.Softmax(world.taste), "first": drs.policies.Constant(0)}
        model = drs.models.Ridge().fit(drs.Log(world.table(ROWS, seed=DAYS)))
        return [drs.partial([self._day(world, day)], policies, model, **self.options).to_bytes() for day in range(DAYS)]

    def _day(self, world: drs.synth.World, day: int) -> pa.Table:
        rng = np.random.default_rng(day)
        table = world.table(ROWS, seed=day)
        table = table.append_column("user", pa.array(rng.integers(0, 2_000, ROWS)))
        return table.append_column("country", pa.array(rng.integers(0, 10, ROWS)))


LOG = {"log": {"context": "x*", "actions": 10}}
CASES = [
    Case("two policies, four estimators", LOG),
    Case("with clusters", {**LOG, "cluster": "user"}),
    Case("with clusters and ten segments", {**LOG, "cluster": "user", "by": "country"}, None),
]
MAIN = main_names(CASES)
NAMES = [*map(str, CASES)]
