"""The cases of states: those of 30 days, merged to a result; and what checkpoints cost a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from bench.common.logs import ACTIONS, LogFile, model, world
from bench.common.racing import THREADS
from bench.common.selecting import main_names

DAYS, ROWS = 30, 5_000  # rows of a day; the size of a state does not depend on them
ROUNDS = 5
SECONDS = 1.0  # maximum
SHARE = 0.03  # of a run's time that checkpoints may take
EVERY = 1.0  # seconds between two of them; a user's have 30
COPIES = 4  # of the log, as files of one log: runs take some seconds


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


@dataclass(frozen=True)
class Kept:
    """A run with checkpoints beside the same run without."""

    what: str
    log: LogFile = field(default_factory=lambda: LogFile("wide", "snappy"))
    required: float = SHARE
    main: str = ""

    def __str__(self) -> str:
        return f"checkpoints of {self.what}, {self.log}"

    def files(self, folder: Path) -> list[Path]:
        """Names of the log in a folder."""
        names = [folder / f"{number}.parquet" for number in range(COPIES)]
        for name in names:
            os.link(self.log.make(), name)
        return names

    def run(self, files: list[Path], **more: Any) -> Any:
        log = drs.Log(files, actions=ACTIONS)
        options = {"threads": THREADS, **more}
        if self.what == "replay":
            return drs.replay(log, drs.policies.EpsilonGreedy(epsilon=0.1), 1000, model(), **options)
        return drs.evaluate(log, {"soft": drs.policies.Softmax(world.taste, world.appeal)}, model(), **options)


LOG = {"log": {"context": "x*", "actions": 10}}
CASES = [
    Case("two policies, four estimators", LOG),
    Case("with clusters", {**LOG, "cluster": "user"}),
    Case("with clusters and ten segments", {**LOG, "cluster": "user", "by": "country"}, None),
]
KEPT = [Kept("evaluate"), Kept("replay")]
MAIN = main_names([*CASES, *KEPT])
NAMES = [*map(str, CASES), *map(str, KEPT)]
