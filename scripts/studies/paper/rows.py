"""Turns the rows of an experiment into the numbers of a table, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Results:
    """The rows that an experiment wrote."""

    def __init__(self, path: Path) -> None:
        table = pq.read_table(path)
        self.about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        self.columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}

    def values(self, column: str) -> list[Any]:
        """The distinct values of a column, in the order of their first row."""
        return list(dict.fromkeys(self.columns[column].tolist()))

    def of(self, column: str, **wanted: Any) -> NDArray[Any]:
        """A column, for the rows that have these values."""
        keep = np.ones(len(self.columns[column]), bool)
        for name, value in wanted.items():
            keep &= self.columns[name] == value
        return self.columns[column][keep]


class Error(NamedTuple):
    """How far estimates are from the truth."""

    bias: float
    bias_stderr: float
    rmse: float
    rmse_stderr: float  # by the delta method
    std: float
    count: int

    @classmethod
    def of(cls, estimates: Floats, truth: Any) -> Error:
        off = np.asarray(estimates, float) - truth
        n = len(off)
        rmse = math.sqrt(float((off**2).mean()))
        std = float(off.std(ddof=1)) if n > 1 else math.nan
        square_error = float((off**2).std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return cls(float(off.mean()), std / math.sqrt(n), rmse, square_error / (2 * rmse) if rmse else 0.0, std, n)


def mean_and_stderr(values: Floats) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def with_error(value: float, stderr: float, digits: int = 3) -> str:
    return f"{value:.{digits}f} ± {stderr:.{digits}f}"


def count_words(met: Sequence[bool]) -> str:
    return f"{sum(met)} of {len(met)}"
