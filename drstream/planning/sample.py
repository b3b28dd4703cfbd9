"""A sample of a log: short runs of consecutive rows, spread evenly over it, with their row numbers in the log.

A sampled log is a log like any other. It has the same filter, splits and labels, so `evaluate` and `replay` run on it
unchanged. A run is part of a part of the source. To read a run, a Parquet row group is decoded up to its end, so only
some of the row groups are used: at least 16 of them, and four times the sample's share of the log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import DrstreamError, LogError, parameter, phrase
from drstream.log import Log
from drstream.sources.base import Part, Place, Source
from drstream.sources.memory import TablePart

SHARE = 0.02  # of the rows, by default
LEAST_ROWS, MOST_ROWS = 10_000, 500_000  # limits of the default sample
RUNS = 16  # at least so many runs, where the log has enough rows
SPARE = 4  # parts that are used hold so many times the rows of the sample
DECODED = 1 << 14  # rows that are decoded at a time, on the way to a run
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples are spread evenly over [0, 1)


@dataclass(frozen=True)
class Sample:
    """A sampled log, and how much of the whole it is."""

    log: Log
    rows: int
    whole_rows: int  # of the whole log, less the row groups that its filter excludes
    exact: bool  # every row that splits leave is an event: nothing is filtered or skipped

    def whole_events(self, events: int) -> float:
        """Number of events in the whole log, if the sample has so many."""
        most = self.whole_rows * self.log.share
        return most if self.exact else min(self.whole_rows * events / self.rows, most)


def take_sample(log: Log, sample: Any = None) -> Sample:
    """Choose the rows of a sample. Only the sizes of row groups are read, and one column of the rows, to count events.

    sample  Share of the rows.
    """
    share = check_share(sample)
    if log.source_rows is None:
        raise LogError(
            f"the number of rows of a {log.source.name} is not known before it is read, so no sample of it can be "
            "taken. Pass a Parquet path, or a pyarrow Table, e.g. reader.read_all()"
        )
    parts = list(log.source.parts([log.roles.reward], log.filter))
    total = sum(part.rows for part in parts)
    if not total:
        raise LogError(
            f"the log is empty{', after its filter' if log.source_rows else ''}: there is nothing to plan with"
        )
    log.encoding, log.has_candidates or log.labels  # noqa: B018  # of the whole log: the sample may lack some of them
    rows = share * total if share is not None else min(max(SHARE * total, LEAST_ROWS), MOST_ROWS)
    runs = choose_runs([part.rows for part in parts], max(math.ceil(rows), 1))
    chosen = {part.first_row: found for part, found in zip(parts, runs, strict=True) if found}
    exact = log.filter is None and log.on_bad_row == "error"
    taken = sum(count for found in runs for _, count in found)
    result = Sample(log.copy(source=SampledSource(log.source, chosen)), taken, total, exact)
    if not _any_event(result.log):
        wanted = phrase("a larger share with sample=, e.g. sample=0.2", "a larger share, e.g. --sample 0.2")
        raise LogError(f"none of the {taken:,} rows of the sample belongs to the log or can be used: give {wanted}")
    return result


def check_share(sample: Any) -> float | None:
    """Check the parameter sample=."""
    if sample is None:
        return None
    if not isinstance(sample, Real) or isinstance(sample, bool) or not 0 < float(sample) <= 1:
        raise DrstreamError(f"{parameter('sample', sample)}: the share of the rows must be in (0, 1], e.g. 0.02")
    return float(sample)


def _any_event(log: Log) -> bool:
    reader = log.reader()
    return any(True for part in log.parts(reader.columns) for _ in reader.batches(part, Counter()))


Runs = list[tuple[int, int]]  # first row within the part, and number of rows


def choose_runs(sizes: Sequence[int], rows: int) -> list[Runs]:
    """The runs of each part, `rows` in all, given the sizes of the parts.

    >>> choose_runs([100, 100], 200)
    [[(0, 100)], [(0, 100)]]
    """
    total = sum(sizes)
    if rows >= total:
        return [[(0, size)] if size else [] for size in sizes]
    parts = min(len(sizes), max(RUNS, math.ceil(SPARE * rows / total * len(sizes))))
    used = np.unique(((np.arange(parts) + 0.5) * len(sizes) / parts).astype(int))
    if sum(sizes[i] for i in used) < rows:
        used = np.arange(len(sizes))
    ends = np.cumsum([sizes[i] for i in used])
    taken = np.diff(np.floor(ends * (rows / ends[-1]) + 0.5).astype(int), prepend=0)
    each = math.ceil(RUNS / len(used))
    found: list[Runs] = [[] for _ in sizes]
    for place, (i, count) in enumerate(zip(used, taken, strict=True)):
        found[i] = _within(sizes[i], int(count), each, place)
    return found


def _within(size: int, rows: int, runs: int, place: int) -> Runs:
    """Cut a part into equal stretches, each with a run somewhere in it. The free rows before it differ by part."""
    runs = max(min(runs, rows), 1)
    starts = [size * i // runs for i in range(runs + 1)]
    counts = np.diff([rows * i // runs for i in range(runs + 1)])
    found = []
    for i, count in enumerate(map(int, counts)):
        free = starts[i + 1] - starts[i] - count
        offset = int(max(free, 0) * (((place * runs + i + 0.5) * GOLDEN) % 1.0))
        if count:
            found.append((starts[i] + offset, min(count, starts[i + 1] - starts[i])))
    return found


@dataclass
class Piece:
    """Consecutive rows of a part."""

    part: Part
    offset: int
    rows: int

    @property
    def first_row(self) -> int:
        return self.part.first_row + self.offset

    @property
    def place(self) -> Place:
        return self.part.place

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        if isinstance(self.part, TablePart):
            yield from self.part.table.slice(self.offset, self.rows).to_batches(max_chunksize=rows)
            return
        end, row = self.offset + self.rows, 0
        for batch in self.part.batches(min(rows or DECODED, DECODED)):
            first, row = row, row + batch.num_rows
            if row > self.offset:
                start = max(self.offset - first, 0)
                yield batch.slice(start, min(row, end) - first - start)
            if row >= end:
                return


class SampledSource:
    """Some runs of rows of a source. Its number of rows is that of the runs."""

    def __init__(self, source: Source, runs: dict[int, Runs]) -> None:
        self.source = source
        self.runs = runs  # by the first row of a part
        self.name, self.schema, self.keys = source.name, source.schema, source.keys

    @property
    def rows(self) -> int:
        return sum(count for found in self.runs.values() for _, count in found)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Piece]:
        for part in self.source.parts(columns, filter, text):
            for offset, count in self.runs.get(part.first_row, ()):
                yield Piece(part, offset, count)
