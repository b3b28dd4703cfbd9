"""From record batches to read-only NumPy views of checked events, in batches of `Spec.batch_rows` rows.

These are counted from a part's first row, however the source was cut. So every bit of a result stays the same.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
from numpy.typing import NDArray

from drstream import sampling
from drstream.errors import LogError, parameter
from drstream.log import fields, kinds
from drstream.log.bad_rows import BadRowsError, whole
from drstream.log.chunks import exact
from drstream.log.encoding import ERROR, Encoding, check_finite
from drstream.log.events import Events, as_array
from drstream.log.fields import Field
from drstream.log.kinds.candidates.reading import CandidateReader
from drstream.log.loggers import Loggers
from drstream.log.rows import Blocks, Folds, Split, keys_of
from drstream.log.schema import Roles
from drstream.log.spec import ROWS, Needs, Spec
from drstream.sources.base import Part
from drstream.sources.names import arrow_says
from drstream.types import Ints

ROW = "__drstream_row__"  # column of row numbers, added where rows are left out before batches are cut
EARLY = "before the first propensity model"  # why an event is left out


@dataclass(frozen=True)
class Refused:
    """Rows of a batch that cannot be used for one reason."""

    reason: str
    count: int
    row: int  # number of the first one in the log
    value: Any  # what is bad there


@dataclass(frozen=True)
class Read:
    """What was read of a batch: events, which of its rows these are, and the rows that cannot be used."""

    events: Events | None  # None if there are none
    good: Ints | None  # None: all rows
    bad: list[Refused]

    @property
    def kept(self) -> Ints:
        """The rows that are events."""
        if self.good is None:
            return np.arange(0 if self.events is None else len(self.events))
        return self.good


@dataclass(frozen=True)
class Reader:
    """How to read the parts of one log. It can be pickled.

    cluster  The column whose values tell which events depend on each other.
    start    Events of earlier rows are left out, and counted.
    """

    spec: Spec
    needs: Needs
    folds: Folds | Blocks | None = None
    cluster: str | None = None
    start: int = 0

    @cached_property
    def fields(self) -> list[Field]:
        """What is read of each event, in the order of the checks."""
        spec, needs = self.spec, self.needs
        found = kinds.fields(spec, needs)
        if spec.roles.sample_rate is not None:
            found.append(fields.SampleRate(spec.roles.sample_rate))
        if self.clusters:
            found.append(fields.Clusters(self.clusters))
        if self.loggers is not None:
            found.append(self.loggers)
        return [*found, *fields.context(spec, needs)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be decoded."""
        read = [name for field in self.fields for name in field.columns]
        return tuple(dict.fromkeys([*read, *self.needs.columns, *self.spec.filter_columns]))

    @property
    def choosing(self) -> tuple[str, ...]:
        """The columns that decide which rows are events."""
        chosen = [*self.spec.filter_columns, *self.clusters]
        return self.columns if self.spec.skip_bad_rows else tuple(dict.fromkeys(chosen))

    @property
    def clusters(self) -> tuple[str, ...]:
        """The columns whose values, instead of row numbers, decide on splits, folds and buckets."""
        users: list[Split | Folds | Blocks] = [*self.spec.splits, *([self.folds] if self.folds else [])]
        names = [*(user.cluster for user in users), self.cluster]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    # What is read, for those who want to know

    @property
    def roles(self) -> Roles:
        return self.spec.roles

    @property
    def labels(self) -> Sequence[Any]:
        return self.spec.labels

    @property
    def extra(self) -> tuple[str, ...]:
        """The columns that policies and models read."""
        return self.needs.columns

    @property
    def with_context(self) -> bool:
        return self.needs.context

    @property
    def n_features(self) -> int:
        """Number of features of a context, be it that of a pair."""
        if not self.needs.context:
            return 0
        return self.spec.width if self.spec.pairs is None else self.spec.pairs.width

    @property
    def encoding(self) -> Encoding | None:
        return self.spec.encoding if self.needs.context else None

    @property
    def loggers(self) -> Loggers | None:
        return self.spec.loggers if self.needs.loggers else None

    @property
    def offers(self) -> CandidateReader | None:
        return self.spec.offers if self.needs.action else None

    @property
    def with_sets(self) -> bool:
        """Whether eligible sets are read: with actions, or as propensities."""
        return self.roles.eligible is not None and (self.needs.action or self.roles.uniform_over_sets)

    @property
    def plain_context(self) -> bool:
        """Whether contexts are columns of numbers, or of lists of them, in which none may be missing."""
        stored = self.roles.sparse is None and self.encoding is None
        return self.with_context and stored and self.spec.missing == ERROR

    # Other readers

    def unchecked(self) -> Reader:
        """Return a reader that does not look for numbers of contexts that are not finite: see `check_finite`."""
        return replace(self, needs=replace(self.needs, finite=False))

    def with_shares(self, shares: tuple[float, ...]) -> Reader:
        """Return a reader that knows the share of each logger in the events."""
        assert self.spec.loggers is not None
        return replace(self, spec=replace(self.spec, loggers=replace(self.spec.loggers, shares=shares)))

    @staticmethod
    def for_all(readers: Sequence[Reader], roles: Roles) -> Reader:
        """Return a reader for all who have these, of a log with these roles. They differ in needs and rewards alone."""
        needs = functools.reduce(operator.or_, (reader.needs for reader in readers))
        spec = replace(
            readers[0].spec,
            roles=roles,
            width=max(reader.spec.width for reader in readers),
            encoding=next((r.encoding for r in readers if r.encoding is not None), None),
            offers=max((r.spec.offers for r in readers if r.spec.offers), key=_features_of, default=None),
        )
        return replace(readers[0], spec=spec, needs=needs)

    # Reading

    def batches(self, part: Part, skipped: Counter[str]) -> Iterator[Events]:
        """Yield the part's events. `skipped` counts the rows that were left out for a bad value."""
        skipped.update(getattr(part, "dropped", {}))  # lines of a text that hold no row
        for _, found in self.read(part, skipped):
            for bad in found.bad:
                skipped[bad.reason] += bad.count
            if found.events is not None:
                yield found.events

    def rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part's events. If bad rows are an error, they may be among them, and are no error yet.

        Then `choosing` are all columns that the part must have.
        """
        if not self.spec.skip_bad_rows:
            yield from self.chosen(part)
            return
        for batch, found in self.read(part):
            if found.events is not None:
                yield batch.take(pa.array(found.kept)) if found.bad else batch

    def read(self, part: Part, skipped: Counter[str] | None = None) -> Iterator[tuple[pa.RecordBatch, Read]]:
        """Yield the part's rows, also those with bad values, in batches of one size, with what was read of them."""
        first = part.first_row
        for batch in exact(self.chosen(part, skipped), self.spec.batch_rows):
            last = first + batch.num_rows
            rows = batch.column(ROW).to_numpy() if ROW in batch.schema.names else range(first, last)
            yield batch, self._read(batch, rows, part)
            first = last

    def _read(self, batch: pa.RecordBatch, rows: Ints | range, part: Part) -> Read:
        """Read a batch. If a field has bad rows, they are left out, and all fields are read again."""
        kept: Ints | None = None
        found: list[Refused] = []
        while batch.num_rows:
            try:
                return Read(self._events(batch, rows, part), kept, found)
            except BadRowsError as bad:
                if not self.spec.skip_bad_rows:
                    raise self._error(bad, batch, rows, part) from None
                found.append(Refused(bad.reason, int(bad.rows.sum()), int(rows[bad.first]), bad.value(batch)))
                good = ~bad.rows
                rows = as_array(rows)[good]
                batch, kept = batch.filter(pa.array(good)), (np.flatnonzero(good) if kept is None else kept[good])
        return Read(None, kept, found)

    def _error(self, bad: BadRowsError, batch: pa.RecordBatch, rows: Ints | range, part: Part) -> LogError:
        """Return what to tell the user about the first bad row. An earlier one may be bad for a later check."""
        while bad.first:
            try:
                self._events(batch.slice(0, bad.first), rows[: bad.first], part)
                break
            except BadRowsError as earlier:
                bad = earlier
        return bad.error(batch, lambda i: part.place.of_row(int(rows[i])))

    def _events(self, batch: pa.RecordBatch, rows: Ints | range, part: Part) -> Events:
        known: dict[str, Any] = {"action": fields.NO_ACTIONS, "context": []}
        for field in self.fields:
            known |= field.read(batch, known)
        names = [*self.needs.columns, *([] if self.loggers is None else [self.loggers.column])]
        known["columns"] = batch.select(list(dict.fromkeys(names)))
        if self.folds is not None:
            known["fold"] = self.folds.of(_keys(batch, rows, self.folds.cluster))
        if self.cluster is not None:
            known["keys"] = _keys(batch, rows, self.cluster)
        width = self.spec.width if self.needs.context else 0
        found = Events(place=part.place, rows=rows, n_features=width, **known)
        return found if self.spec.pairs is None else self.spec.pairs.logged(found)

    def chosen(self, part: Part, skipped: Counter[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the rows that the filter, the splits or `start` exclude.

        skipped  Counts the rows before `start`.
        """
        spec, row = self.spec, part.first_row
        numbered = spec.filter is not None or spec.splits or self.start  # else rows are consecutive
        for batch in part.batches(spec.batch_rows if spec.batch_rows < ROWS else None):
            if spec.stop is not None and row + batch.num_rows > spec.stop:
                batch = batch.slice(0, max(0, spec.stop - row))
            first, row = row, row + batch.num_rows
            if numbered:
                batch = batch.append_column(ROW, pa.array(np.arange(first, row)))
            if spec.filter is not None:
                chunks = self._filtered(batch, part).combine_chunks().to_batches()
                if not chunks:
                    continue
                batch = chunks[0]
            for split in spec.splits:
                keys = self._split_keys(batch, split.cluster, part)
                batch = batch.filter(pa.array(split.keep(sampling.at_rows(split.seed, keys))))
            if self.start:
                early = int(np.searchsorted(batch.column(ROW).to_numpy(), self.start))  # rows ascend
                if early and skipped is not None:
                    skipped[EARLY] += early
                batch = batch.slice(early)
            if batch.num_rows:
                yield batch

    def _filtered(self, batch: pa.RecordBatch, part: Part) -> pa.Table:
        """Return the rows that satisfy the filter. Parts run in parallel already, so Arrow starts no threads."""
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
        try:
            kept = acero.Declaration("filter", acero.FilterNodeOptions(self.spec.filter), inputs=[source])
            return kept.to_table(use_threads=False)
        except pa.ArrowException as error:
            where = part.place.of_row(part.first_row)
            raise LogError(
                f"{parameter('filter')} cannot be computed for rows of the part that begins at {where}: "
                f"{arrow_says(error)}. Compare columns with values of their own type"
            ) from None

    def _split_keys(self, batch: pa.RecordBatch, cluster: str | None, part: Part) -> NDArray[np.uint64]:
        """Return the keys for the random numbers of a split. Where bad rows are skipped, clusters may be null here."""
        rows = batch.column(ROW).to_numpy()
        if cluster is not None and not self.spec.skip_bad_rows:
            try:
                whole(batch, cluster, fields.NO_CLUSTER)
            except BadRowsError as bad:
                raise bad.error(batch, lambda i: part.place.of_row(int(rows[i]))) from None
        return _keys(batch, rows, cluster)

    def check_finite(self, events: Events) -> None:
        """Raise an error if a number of the contexts is not finite, for a pass that does not check them all."""
        if not self.with_context:
            return
        context = events.context
        columns = [context] if isinstance(context, np.ndarray) else context
        if not isinstance(columns, list):  # an encoding has looked at its numbers
            return
        for name, values in zip(self.roles.context, columns, strict=True):
            try:
                check_finite(values, name)
            except BadRowsError as bad:
                stored = pa.RecordBatch.from_arrays([pa.array(values.tolist())], [name])
                raise bad.error(stored, events.where) from None


def _features_of(offers: CandidateReader) -> bool:
    return offers.with_features


def _keys(batch: pa.RecordBatch, rows: Ints | range, cluster: str | None) -> NDArray[np.uint64]:
    """Return the keys for random numbers: row numbers, or keys of clusters."""
    if cluster is not None:
        return keys_of(batch.column(cluster))
    return as_array(rows).view(np.uint64)
