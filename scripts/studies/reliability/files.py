"""Broken files and odd schemas, made from seeds, and files that change while they are read."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from scripts.studies.reliability.record import ERROR, LOST, SAME, UNTOLD, Case
from tests.helpers.broken import MADE_UP, judge_all

KINDS = {
    "parquet": "Parquet, with checksums",
    "ipc": "Arrow IPC",
    "npz": "models (`.npz`)",
    "skops": "models of scikit-learn (skops)",
    "state": "states",
    "checkpoint": "checkpoints",
    "schema": "odd but valid schemas",
}
FIRST = 1_000  # seeds below are those of the tests
CHECKSUMS = ("parquet", "state", "checkpoint", "schema")  # where any change could have been told
MEANING = {"right": SAME, "error": ERROR, "vague": ERROR, "other": UNTOLD, "DEFECT": LOST}


def run_broken(first: int, last: int, folder: Path, workers: int = 2) -> Iterator[Case]:
    kinds = list(KINDS)
    cases = [(kinds[number % len(kinds)], FIRST + number // len(kinds)) for number in range(first, last)]
    for kind, seed, outcome, words in _twice(cases, workers):
        told = kind in CHECKSUMS and not words.startswith(MADE_UP)
        found = LOST if outcome == "other" and told else MEANING[outcome]
        yield Case(KINDS[kind], found, f"seed {seed}: {words}")


def _twice(cases: list[tuple[str, int]], workers: int) -> Iterator[tuple[str, int, str, str]]:
    """Judge cases. On a busy machine, one may take longer than it is given: it hangs if it does so once more, alone."""
    late = []
    for kind, seed, outcome, words in judge_all(cases, workers):
        if words == "hang":
            late.append((kind, seed))
        else:
            yield kind, seed, outcome, words
    yield from judge_all(late, 1)


# Files that change while they are read

ROWS = {".parquet": 4_000, ".arrow": 400_000}  # Arrow files are read in pieces of 131,072 rows
PARTS = 8


class Meddler:
    """A policy that does something to a file after so many rows."""

    def __init__(self, moment: int, deed: Callable[[], Any]) -> None:
        self.moment, self.deed, self.rows, self.lock = moment, deed, 0, threading.Lock()

    def probabilities(self, X: Any) -> Any:
        with self.lock:
            if self.rows <= self.moment < self.rows + len(X):
                self.deed()
            self.rows += len(X)
        return np.full((len(X), 2), 0.5)


def events(rows: int, reward: float) -> pa.Table:
    ones = np.ones(rows)
    return pa.table({"x0": ones, "action": np.arange(rows) % 2, "reward": reward * ones, "propensity": 0.5 * ones})


def write(path: Path, reward: float) -> None:
    rows = ROWS[path.suffix]
    if path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), events(1, reward).schema) as file:
            file.write_table(events(rows, reward), max_chunksize=rows // PARTS)
    else:
        pq.write_table(events(rows, reward), path, row_group_size=rows // PARTS)


def replace(path: Path, other: Path, rng: random.Random) -> None:
    os.replace(other, path)


def write_into(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(other.read_bytes())


def cut(path: Path, other: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def delete(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


DEEDS = {"replaced": replace, "overwritten": write_into, "truncated": cut, "deleted": delete}


def run_changes(first: int, last: int, folder: Path) -> Iterator[Case]:
    for number in range(first, last):
        rng = random.Random(number)
        what, suffix = list(DEEDS)[number % 4], (".parquet", ".arrow")[number // 4 % 2]
        row = f"{what} while it is read, {'Parquet' if suffix == '.parquet' else 'Arrow IPC'}"
        path, other = folder / f"log{number}{suffix}", folder / f"other{number}{suffix}"
        write(path, 1.0)
        write(other, 0.0)
        meddler = Meddler(rng.randrange(ROWS[suffix]), partial(DEEDS[what], path, other, rng))
        threads = 1 + number // 8 % 2
        try:
            result = drs.evaluate(drs.Log(path), meddler, estimators=["ips"], threads=threads)
        except drs.LogError as error:
            yield Case(row, ERROR) if path.name in str(error) else Case(row, LOST, str(error))
        except BaseException as error:
            yield Case(row, LOST, f"{type(error).__name__}: {error}")
        else:
            value = result["ips"].value
            yield Case(row, SAME) if value == 1.0 else Case(row, LOST, f"a value of {value}")
        path.unlink(missing_ok=True)
        other.unlink(missing_ok=True)
