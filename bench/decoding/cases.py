"""The cases of decoding: columns of numbers of a log, against pyarrow's decoder."""

from __future__ import annotations

from dataclasses import dataclass

from bench.common.logs import LIST, WIDE, LogFile

PYARROW = "pyarrow, one row group per thread"


@dataclass(frozen=True)
class Case:
    log: LogFile
    columns: tuple[str, ...]
    what: str
    main = ""

    def __str__(self) -> str:
        return f"decoding of {self.what}, {self.log}, against {PYARROW}"


CASES = [
    Case(WIDE, tuple(WIDE.columns), "all columns of an evaluation"),
    Case(LogFile("wide", "zstd"), tuple(WIDE.columns), "all columns of an evaluation"),
    Case(LIST, tuple(LIST.columns), "all columns of an evaluation"),
    Case(WIDE, ("target", "reward", "propensity"), "three columns"),
]
NAMES = [*map(str, CASES)]
