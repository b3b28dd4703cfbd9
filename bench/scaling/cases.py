"""The points of the scaling curves: four estimators with one size or form of the log changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.common.logs import ROWS, LogFile
from bench.common.racing import THREADS

ROUNDS = 3
FEW = max(1, ROWS // 5)  # rows of most points: 1 million
CELLS = 50_000_000  # maximum of rows times features
SCORES = 100_000_000  # maximum of rows times actions
BASE = LogFile("wide", "snappy", FEW)


@dataclass(frozen=True)
class Point:
    axis: str
    label: str
    log: LogFile
    x: float | None = None  # None: the axis has no numbers
    policies: int = 1
    threads: int = THREADS
    main = ""

    def __str__(self) -> str:
        return f"scaling, {self.axis}: {self.label}"


def rows() -> list[Point]:
    sizes = (ROWS // 5, ROWS, 4 * ROWS, 10 * ROWS)
    return [Point("rows", f"{n / 1e6:g} M", replace(BASE, rows=n), n) for n in sizes]


def actions() -> list[Point]:
    logs = (replace(BASE, rows=min(FEW, SCORES // k), actions=k) for k in (2, 10, 100, 1_000))
    return [Point("actions K", f"{log.actions:,}", log, log.actions) for log in logs]


def features() -> list[Point]:
    logs = (replace(BASE, rows=min(FEW, CELLS // d), features=d) for d in (1, 20, 100, 500))
    return [Point("features d", f"{log.features:,}", log, log.features) for log in logs]


def policies() -> list[Point]:
    return [Point("policies", str(n), BASE, n, policies=n) for n in (1, 4, 16, 64)]


def threads() -> list[Point]:
    return [Point("threads", str(n), LogFile("wide", "snappy"), n, threads=n) for n in (1, 2)]


def row_groups() -> list[Point]:
    log = replace(BASE, rows=2 * FEW)  # two of the largest
    return [
        Point("rows of a row group", f"{n:,}", replace(log, row_group_rows=n), n)
        for n in (1 << 14, 1 << 16, 1 << 18, 1 << 20)
    ]


def codecs() -> list[Point]:
    return [Point("codec", codec, replace(BASE, codec=codec)) for codec in ("none", "snappy", "zstd")]


def layouts() -> list[Point]:
    forms = (("wide", "snappy"), ("list", "snappy"))
    logs = (replace(BASE, layout=layout, codec=codec) for layout, codec in forms)
    return [Point("layout", str(log), log) for log in logs]


POINTS = [
    *rows(),
    *actions(),
    *features(),
    *policies(),
    *threads(),
    *row_groups(),
    *codecs(),
    *layouts(),
]
NAMES = [*map(str, POINTS)]
