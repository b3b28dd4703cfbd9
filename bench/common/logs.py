"""The synthetic logs that benchmarks read, and a reward model that is fitted on other rows."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import drstream as drs

ROOT = Path(__file__).parents[2]
LOGS = Path(os.environ.get("DRSTREAM_BENCH_LOGS") or ROOT / "logs")
REQUIRED_ROWS = 5_000_000
QUICK = bool(os.environ.get("DRSTREAM_BENCH_QUICK"))  # scripts/bench --quick: the main rows, in a few minutes
ROWS = int(os.environ.get("DRSTREAM_BENCH_ROWS") or (1_000_000 if QUICK else REQUIRED_ROWS))
FULL_SIZE = ROWS >= REQUIRED_ROWS  # smaller runs report a missed requirement but do not fail
ACTIONS, FEATURES = 10, 20
ROW_GROUP_ROWS = drs.synth.CHUNK
MAPPED = "ipc"


@dataclass(frozen=True)
class LogFile:
    """A synthetic log. scripts/make_log writes it when a benchmark first needs it."""

    layout: str
    codec: str  # of Parquet; MAPPED: uncompressed Arrow IPC, which a loop by hand maps into memory
    rows: int = ROWS
    actions: int = ACTIONS
    features: int = FEATURES
    row_group_rows: int = ROW_GROUP_ROWS
    eligible: float | None = None  # share of the actions in the eligible sets; None: there are none

    def __str__(self) -> str:
        return f"{self.layout} {'mapped' if self.codec == MAPPED else self.codec}"

    @property
    def path(self) -> Path:
        sizes = (self.actions, self.features, self.row_group_rows)
        usual = (ACTIONS, FEATURES, ROW_GROUP_ROWS)
        other = "".join(f"-{name}{size}" for name, size, most in zip("Kdg", sizes, usual, strict=True) if size != most)
        other += "" if self.eligible is None else f"-e{self.eligible:g}"
        return LOGS / f"{self.layout}-{self.codec}-{self.rows}{other}.{'arrow' if self.codec == MAPPED else 'parquet'}"

    @property
    def columns(self) -> list[str]:
        """The columns that an evaluation with contexts reads: all but `target`."""
        contexts = ["x"] if self.layout == "list" else [f"x{j}" for j in range(self.features)]
        return ["action", "reward", "propensity", *contexts]

    def make(self) -> Path:
        if not self.path.exists():
            LOGS.mkdir(parents=True, exist_ok=True)
            sizes = ["--rows", self.rows, "--actions", self.actions, "--features", self.features]
            form = ["--layout", self.layout, "--row-group-rows", self.row_group_rows]
            codec = [] if self.codec == MAPPED else ["--codec", self.codec]
            sets = [] if self.eligible is None else ["--eligible", self.eligible]
            command = [sys.executable, ROOT / "scripts" / "make_log", self.path, *sizes, *form, *codec, *sets]
            subprocess.run([str(word) for word in command], check=True)
        return self.path


WIDE, LIST = LogFile("wide", "snappy"), LogFile("list", "zstd")
MAPPED_LIST = LogFile("list", MAPPED)
SMALL = LogFile("wide", "snappy", rows=1_000)

world = drs.synth.World(ACTIONS, FEATURES, kinds=None)  # make_log draws from the same world


@cache
def model() -> drs.models.Ridge:
    return drs.models.Ridge().fit(drs.Log(world.table(10_000, seed=99)))
