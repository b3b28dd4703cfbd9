"""Several loggers in one log: which one logged each event, how likely each would have been to take its action.

The balanced weight of an event divides by the mixture Σ_j (n_j / n) p_j(a|x) of all loggers (Agarwal, Basu, Schnabel,
Joachims 2017). n_j is the number of events of logger j among those that are evaluated, so it is counted before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drstream.errors import LogError, parameter
from drstream.log.bad_rows import refuse, whole
from drstream.log.columns import floats_or_nan
from drstream.log.encoding import abridged
from drstream.log.propensities import beside, far_apart
from drstream.log.schema import is_label, is_number, is_string, require_column
from drstream.sources.base import Source
from drstream.types import Floats

MOST = 1000  # a column with more values is an identifier, not a set of loggers
SCAN_ROWS = 1 << 16


@dataclass(frozen=True)
class Loggers:
    """How to read the loggers of events. It can be pickled.

    labels       The loggers whose propensities are there, in the order of their columns.
    of_loggers   For each of them, the column with its propensities of the logged actions.
    shares       n_j / n for each of them; empty if they have not been counted.
    logged       The column of the logged propensity, if there is one.
    """

    column: str
    labels: tuple[Any, ...] = ()
    of_loggers: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    logged: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.column, *self.of_loggers

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        whole(batch, self.column, "logger is null")
        if not self.of_loggers:
            return {}
        own = self._index(batch)
        hint = f"{parameter('logger_propensities')} is about {abridged([*map(repr, self.labels)])}. "
        refuse(own < 0, "logger has no propensities", self.column, hint=hint)
        found = [floats_or_nan(batch.column(name)) for name in self.of_loggers]
        for name, values in zip(self.of_loggers, found, strict=True):
            refuse(~((values >= 0) & (values <= 1)), "propensity of a logger is not in [0, 1]", name)
        propensity = known["propensity"]
        for j, (name, values) in enumerate(zip(self.of_loggers, found, strict=True)):
            if len(propensity):
                far = (own == j) & far_apart(values, propensity)
                refuse(far, "propensity differs from that of its logger", name, *beside(self.logged), self.column)
        return {"mixture": self._mixture(found)} if self.shares else {}

    def _mixture(self, propensities: list[Floats]) -> Floats:
        """Return Σ_j (n_j / n) p_j(a|x) of each event. Loggers are added one by one, so bits never change."""
        out = np.zeros(len(propensities[0]))
        for share, p in zip(self.shares, propensities, strict=True):
            out += share * p
        return out

    def _index(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Return which of the labels the logger of each row is; -1 if it is none of them."""
        column = _plain(batch.column(self.column))
        found = pc.index_in(column, value_set=pa.array(list(self.labels), column.type))
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False)

    def counts(self, batch: pa.RecordBatch) -> Counter[Any]:
        """Return the number of rows of each logger. Rows without one do not count."""
        found = pc.value_counts(_plain(batch.column(self.column)).drop_null())
        return Counter({row["values"]: row["counts"] for row in found.to_pylist()})

    def counted(self, counts: Mapping[Any, int]) -> tuple[float, ...]:
        """Return n_j / n, given the number of events of each logger."""
        n = sum(counts.get(label, 0) for label in self.labels)
        return tuple(counts.get(label, 0) / n if n else 0.0 for label in self.labels)


def find_loggers(source: Source, column: str) -> tuple[Any, ...]:
    """Return the loggers of a whole log, before filters and splits, sorted."""
    found: dict[Any, None] = {}
    for part in source.peek().parts([column], text=[column]):
        for batch in part.batches(SCAN_ROWS):
            found |= dict.fromkeys(_plain(batch.column(0)).unique().drop_null().to_pylist())
        check_number(len(found), column)
    return tuple(sorted(found))


def check_number(found: int, column: str) -> None:
    if found > MOST:
        raise LogError(
            f"{parameter('logger', column)} has more than {MOST:,} different values: is it an identifier? Name the "
            "column that says which policy logged a row"
        )


def logger_roles(
    schema: pa.Schema, logger: str | None, propensities: Sequence[str] | Mapping[Any, str] | None
) -> tuple[tuple[str, ...], tuple[Any, ...] | None]:
    """Check logger= and logger_propensities= of a log. Return the columns and, if a mapping tells them, the loggers."""
    if logger is None:
        if propensities is not None:
            raise LogError(
                f"{parameter('logger_propensities')} has columns for several loggers: name the column that says which "
                f"one logged a row, with {parameter('logger')}"
            )
        return (), None
    require_column(schema, logger, "logger")
    kind = schema.field(logger).type
    if not is_label(kind):
        raise LogError(f"logger column {logger!r} has type {kind}: it must hold text, integers or booleans")
    if propensities is None:
        return (), None
    if isinstance(propensities, str):
        raise LogError(
            f"{parameter('logger_propensities', propensities)}: name a column for each logger, in the order of the "
            "sorted loggers, or pass a mapping of loggers to columns"
        )
    named = isinstance(propensities, Mapping)
    columns = tuple(propensities.values() if isinstance(propensities, Mapping) else propensities)
    for name in columns:
        require_column(schema, name, "logger's propensities")
        if not is_number(schema.field(name).type):
            raise LogError(
                f"column {name!r} of {parameter('logger_propensities')} has type {schema.field(name).type}: it must "
                "hold the logger's probability of the logged action"
            )
    if not columns or len(set(columns)) < len(columns):
        raise LogError(f"{parameter('logger_propensities', list(columns))}: name one column for each logger")
    return columns, _labels_like(tuple(propensities), kind) if named else None


def _labels_like(labels: tuple[Any, ...], kind: pa.DataType) -> tuple[Any, ...]:
    """Return the loggers that a mapping names, as values of the column. The command line has them as text."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    found = []
    for label in labels:
        try:
            as_is = str(label) if is_string(value) else label
            found.append(pa.scalar(as_is).cast(value).as_py())
        except (pa.ArrowException, ValueError, TypeError):
            raise LogError(
                f"{parameter('logger_propensities')} names the logger {label!r}, but the column of loggers holds {kind}"
            ) from None
    if len(set(found)) < len(found):
        twice = next(label for label in found if found.count(label) > 1)
        raise LogError(f"{parameter('logger_propensities')} names the logger {twice!r} more than once")
    return tuple(found)


def match_loggers(labels: tuple[Any, ...], columns: Sequence[str], column: str) -> tuple[Any, ...]:
    """Return the loggers of a list of columns: those of the log, sorted."""
    if len(labels) != len(columns):
        shown = ", ".join(map(repr, labels[:6])) + (", ..." if len(labels) > 6 else "")
        raise LogError(
            f"{parameter('logger_propensities')} names {len(columns)} columns, and column {column!r} has "
            f"{len(labels)} loggers ({shown}): name one column for each, in this order, or pass a mapping of loggers "
            "to columns"
        )
    return labels


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
