"""A disk that fills up at some byte of a file, and too few open files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

import drstream as drs
from scripts.studies.reliability.record import ERROR, LOST, SAME, Case
from tests.helpers import scarce

STEPS = 20  # places in each file


@cache
def size_of(what: str, folder: Path) -> int:
    suffix, write = scarce.WRITERS[what]
    path = folder / f"whole{suffix}"
    write(path)
    return path.stat().st_size if path.exists() else 2_000  # a checkpoint is deleted at the end


def run_disk(first: int, last: int, folder: Path) -> Iterator[Case]:
    for number in range(first, last):
        what = list(scarce.WRITERS)[number % len(scarce.WRITERS)]
        suffix, write = scarce.WRITERS[what]
        limit = size_of(what, folder) * (number // len(scarce.WRITERS) % STEPS) // STEPS
        own = folder / f"disk{number}"
        own.mkdir()
        path = own / f"out{suffix}"
        before = b"" if number % 2 else b"what was there"
        if before and what != "a checkpoint":
            path.write_bytes(before)
        try:
            with scarce.small_disk(limit):
                write(path)
        except drs.DrstreamError as error:
            left = sorted(file.name for file in own.iterdir())
            same = not path.exists() or path.read_bytes() == before
            fine = str(path) in str(error) and same and left in ([], [path.name])
            yield Case(what, ERROR) if fine else Case(what, LOST, f"{error}; {left}")
        except BaseException as error:
            yield Case(what, LOST, f"{type(error).__name__}: {error}")
        else:
            yield Case(what, LOST, f"written with a limit of {limit} bytes")


def run_open_files(first: int, last: int, folder: Path) -> Iterator[Case]:
    days = folder / "days"
    if not days.exists():
        days.mkdir()
        for day in range(6):
            pq.write_table(scarce.WORLD.table(200, seed=day), days / f"{day}.parquet", row_group_size=50)
    wanted = value(days, 1)
    for number in range(first, last):
        more, threads = number % 12, 1 + number // 12 % 3
        row = "`evaluate`, six files, one to three threads"
        try:
            with scarce.few_files(more):
                found = value(days, threads)
        except drs.LogError as error:
            clear = str(days) in str(error) and "ulimit" in str(error)
            yield Case(row, ERROR) if clear else Case(row, LOST, str(error))
        except BaseException as error:
            yield Case(row, LOST, f"{more} more files: {type(error).__name__}: {error}")
        else:
            yield Case(row, SAME) if found == wanted else Case(row, LOST, f"{found} instead of {wanted}")


def value(folder: Path, threads: int) -> float:
    log = drs.Log(folder, context="x?")
    return float(drs.evaluate(log, drs.policies.Constant(1), estimators=["ips"], threads=threads)["ips"].value)
