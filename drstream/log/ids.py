"""Columns without a role that look like ids, and how often their values repeat in the first rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drstream.log.facts import LOOKED_AT, SourceFacts
from drstream.log.schema import is_label, is_string
from drstream.log.starred import looks_like
from drstream.sources.base import Source

FEWEST = 20  # different ids: of fewer, no cluster can be made
OFTEN = 1.5  # rows of an id, on average, that are repeats
MANY = 100  # different values that are ids by what they are, and not by the column's name
SPARSE = 100  # times as far apart as they are many: integers that are ids
LONG = 6  # characters of a text that is an id
MOST_OTHERS = 64  # columns whose values are looked at, as their names do not tell


@dataclass(frozen=True)
class IdColumn:
    """The ids in a column."""

    column: str
    rows: int
    different: int
    most: int  # rows of the most frequent one

    @property
    def repeat(self) -> bool:
        """Whether rows of one id come again and again, as those of a user do."""
        return self.different >= FEWEST and self.rows >= OFTEN * self.different

    @property
    def message(self) -> str:
        """What to tell people."""
        often = self.rows / self.different
        return (
            f"Rows of one {self.column} repeat {often:.3g} times on average, and up to {self.most:,} times. Rows of "
            f"one user are alike, and intervals that take them for independent are too narrow. Pass "
            f"cluster={self.column!r}."
        )


def id_columns(facts: SourceFacts, names: Iterable[str]) -> list[str]:
    """Return those of these columns that look like ids, by their names or by their first values."""
    schema = facts.source.schema
    usable = [name for name in names if is_label(schema.field(name).type)]
    named = {name for name in usable if looks_like(schema.field(name), ()) == "id"}
    others = [name for name in usable if name not in named][:MOST_OTHERS]
    by_value = facts.of(("like ids", *others), lambda: _by_value(facts.source, others)) if others else set()
    return [name for name in usable if name in named or name in by_value]


def _by_value(source: Source, names: Sequence[str]) -> set[str]:
    """Those of these columns whose first values look like ids. The values are not kept."""
    rows = SourceFacts(source).more(names, LOOKED_AT)
    return set() if rows is None else {name for name in names if _look_like_ids(rows.column(name))}


def find_ids(facts: SourceFacts, columns: Iterable[str]) -> list[IdColumn]:
    """Return those of these columns whose ids repeat in the first rows, that with the fewest ids first."""
    found = [counted(facts.more([name], LOOKED_AT), name) for name in columns]
    return sorted((ids for ids in found if ids is not None and ids.repeat), key=lambda ids: ids.different)


def counted(batch: pa.RecordBatch | None, name: str) -> IdColumn | None:
    if batch is None:
        return None
    counts = pc.value_counts(batch.column(0).drop_null()).field("counts").to_numpy(zero_copy_only=False)
    return IdColumn(name, int(counts.sum()), len(counts), int(counts.max(initial=0)))


def _look_like_ids(column: pa.Array) -> bool:
    """Whether values are integers far apart, or long texts with digits, and many of both."""
    values = pc.unique(column.drop_null())
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if len(values) < MANY:
        return False
    if is_string(values.type):
        text = values.cast(pa.string())
        like = pc.and_(pc.match_substring_regex(text, "[0-9@]"), pc.greater_equal(pc.utf8_length(text), LONG))
        return bool(pc.mean(like.cast(pa.float64())).as_py() > 0.9)
    if not pa.types.is_integer(values.type):
        return False
    numbers = np.sort(values.to_numpy(zero_copy_only=False).astype(np.float64))
    return bool(numbers[-1] - numbers[0] >= SPARSE * len(numbers))
