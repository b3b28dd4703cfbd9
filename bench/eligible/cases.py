"""The cases of eligible sets: 50 actions, of which each event could choose about half, against the same log without."""

from __future__ import annotations

from dataclasses import dataclass

import drstream as drs
from bench.common.logs import FEATURES, MAPPED, ROWS, LogFile
from bench.common.racing import THREADS
from bench.common.selecting import main_names

SHARE = 0.5  # of the actions that an event could choose
WITHOUT = "drstream, the same log without the sets"
SCAN = "pyarrow scan of the same columns, one row group per thread"
ESTIMATORS = ["dm", "ips", "snips", "dr"]
FEW = max(1, ROWS // 5)  # rows: 1 million


@dataclass(frozen=True)
class Case:
    log: LogFile
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: for information
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"four estimators with eligible sets, K = {self.log.actions}, {self.log}, against {self.baseline}"

    def run(self, sets: bool = True, **more: object) -> drs.Evaluation:
        found = world(self.log.actions)
        policy = drs.policies.Softmax(found.taste, found.appeal)
        log = drs.Log(self.log.path, actions=self.log.actions, eligible="items" if sets else None)
        options = {"threads": THREADS, "interval": "normal", **more}
        return drs.evaluate(log, policy, model(self.log.actions), ESTIMATORS, **options)


def world(actions: int) -> drs.synth.World:
    return drs.synth.World(actions, FEATURES, kinds=None, eligible=SHARE)


def model(actions: int) -> drs.models.Ridge:
    if actions not in MODELS:
        MODELS[actions] = drs.models.Ridge().fit(drs.Log(world(actions).table(20_000, seed=99), actions=actions))
    return MODELS[actions]


MODELS: dict[int, drs.models.Ridge] = {}
MAPPED_SETS = LogFile("wide", MAPPED, FEW, 50, eligible=SHARE)
PARQUET_SETS = LogFile("wide", "snappy", FEW, 50, eligible=SHARE)
MANY_SETS = LogFile("wide", MAPPED, FEW // 4, 200, eligible=SHARE)
CASES = [
    Case(MAPPED_SETS, WITHOUT, required=1 / 1.5, main="eligible sets, against none"),  # at most 1.5 times as long
    Case(PARQUET_SETS, WITHOUT),
    Case(PARQUET_SETS, SCAN, required=0.5),
    Case(MANY_SETS, WITHOUT),
]
MAIN = main_names(CASES)
NAMES = [*map(str, CASES)]
