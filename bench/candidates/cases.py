"""The cases of candidates: throughput against a bare scan of the same columns, and peak memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import drstream as drs
from bench.candidates.log import ITEM_FEATURES, ITEMS, LISTS, STRUCTS, CandidateFile
from bench.common import logs, racing
from bench.common.selecting import main_names

FOUR = ["dm", "ips", "snips", "dr"]
ROW_GROUPS = "pyarrow, a row group a thread"


@cache
def policy(interactions: bool) -> drs.policies.Softmax:
    rng = np.random.default_rng(2)
    weights = rng.normal(size=logs.FEATURES + ITEM_FEATURES) / 4
    products = rng.normal(size=(logs.FEATURES, ITEM_FEATURES)) / 8
    return drs.policies.Softmax(weights, interactions=products if interactions else None)


@cache
def model(interactions: bool) -> drs.models.Ridge:
    other = CandidateFile(rows=20_000)
    table = other.table(other.rows, seed=99)
    return drs.models.Ridge(interactions=interactions).fit(drs.Log(table, candidates=other.candidates()))


def run(log: CandidateFile, interactions: bool) -> drs.Evaluation:
    found = policy(interactions), model(interactions)
    return drs.evaluate(log.open(), *found, FOUR, threads=racing.THREADS)


@dataclass(frozen=True)
class Case:
    log: CandidateFile
    interactions: bool = False
    required: float | None = None  # of the scan's throughput; None: for information
    pairs: int = 9
    main: str = ""  # short name of a main row

    @property
    def task(self) -> str:
        return f"four estimators, softmax, ridge{', with interactions' * self.interactions}"

    def __str__(self) -> str:
        return f"{self.task}; {self.log}"


REQUIRED = 0.5
IN_LISTS, IN_STRUCTS, LOOKED_UP = CandidateFile(), CandidateFile(STRUCTS), CandidateFile(ITEMS)
CASES = [
    Case(IN_LISTS, required=REQUIRED, main="20 candidates of 10 features, against a scan"),
    Case(IN_LISTS, interactions=True, required=REQUIRED),
    Case(IN_STRUCTS),
    Case(LOOKED_UP),
]

# Peak memory

GROWTH = 1.10  # maximum ratio of the larger log's peak to the smaller one's
SMALL = CandidateFile(LISTS, rows=logs.ROWS // 20)
SMALL_ITEMS = CandidateFile(ITEMS, rows=logs.ROWS // 20)
MEMORY = {
    "peak memory on candidates, four times the rows": (SMALL, replace(SMALL, rows=4 * SMALL.rows)),
    "peak memory on candidates, 200 times the items": (SMALL_ITEMS, replace(SMALL_ITEMS, catalogue=200_000)),
}
ITEM_BYTES = 4 * ITEM_FEATURES + 8 + 4 * 16  # of an item in memory: features, id, and its share of the table of keys

MAIN = main_names(CASES)
NAMES = [*map(str, CASES), *MEMORY]
