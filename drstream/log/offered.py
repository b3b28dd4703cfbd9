"""The candidates of a batch's events: read from columns of lists, checked, and put into flat arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError, phrase
from drstream.kernels import ragged
from drstream.kernels.checks import first_not_finite
from drstream.log.candidates import ID, Candidates, Items, Piece, candidate_columns, feature_type, split_path
from drstream.log.columns import floats_or_nan, has_nulls, lengths, nulls, numbers
from drstream.log.ragged import flat_lists, places_of
from drstream.log.rows import keys_of
from drstream.log.schema import is_list
from drstream.log.sparse import Csr, Sparse, read_sparse
from drstream.log.sparse import bad_rows as bad_sparse_rows
from drstream.sources.base import Source
from drstream.types import Bools, Floats, Ints

PEEK_ROWS = 1024
ENOUGH = 20  # events: if all of their actions could be positions, it is no accident
ACTION_IS = phrase('drs.Candidates(..., action_is="id") or "position"', "--action-is id or --action-is position")
NULL, EMPTY = "candidates are null", "there are no candidates"
LENGTHS = "candidates have lists of different lengths"
NULL_ID, TWICE, UNKNOWN = "a candidate has no id", "a candidate is there twice", "a candidate is not among the items"
WIDTH, NULL_FEATURE = "a candidate has another number of features", "a candidate's features hold a null"
INFINITE = "a candidate's features are not finite"
SPARSE = ("a candidate's features are", "a candidate's features hold", "a candidate's features have")
ABSENT, OUTSIDE = "action is not among its candidates", "action is not a position among its candidates"


@dataclass(frozen=True)
class Dense:
    """Features of candidates: a matrix (M, d), one row a candidate."""

    matrix: NDArray[Any]  # float32 or float64

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    @property
    def flat(self) -> NDArray[Any]:
        """All numbers, one candidate's after the other's."""
        return np.ascontiguousarray(self.matrix).reshape(-1)

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes

    def array(self) -> NDArray[Any]:
        """Return the matrix, for the user's code. Sparse features have a method of this name, too."""
        return self.matrix

    def row(self, place: int) -> NDArray[Any]:
        """Return the features of one candidate, for the user's code; (1, d) if they are sparse."""
        return self.matrix[place]

    def rows(self, start: int, stop: int) -> Dense:
        """Return the candidates start..stop-1, without a copy."""
        return Dense(self.matrix[start:stop])

    def take(self, places: Ints) -> Dense:
        """Return a copy of the candidates at these places."""
        out = np.take(self.matrix, places, axis=0)
        out.flags.writeable = False
        return Dense(out)


@dataclass(frozen=True)
class Offered:
    """The candidates of consecutive events. Those of event i are at starts[i]..starts[i + 1] of all that is flat."""

    starts: Ints  # (n + 1); the first is 0
    features: Dense | Csr | None  # None if they are not read
    ids: pa.Array | None  # None if the log has none
    propensities: Floats | None = None  # of all candidates, if they are read

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """Number of candidates of all events together."""
        return int(self.starts[-1])

    @property
    def nbytes(self) -> int:
        parts: tuple[Any, ...] = (self.starts, self.features, self.ids, self.propensities)
        return sum(part.nbytes for part in parts if part is not None)

    def rows(self, start: int, stop: int) -> Offered:
        """Return those of the events start..stop-1. Features and ids are not copied."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        features = None if self.features is None else self.features.rows(first, last)
        ids = None if self.ids is None else self.ids.slice(first, last - first)
        propensities = None if self.propensities is None else self.propensities[first:last]
        return Offered(self.starts[start : stop + 1] - first, features, ids, propensities)

    def take(self, events: Ints) -> Offered:
        """Return a copy of those of some events."""
        starts, places = places_of(self.starts, events)
        features = None if self.features is None else self.features.take(places)
        ids = None if self.ids is None else self.ids.take(pa.array(places))
        propensities = None if self.propensities is None else self.propensities[places]
        return Offered(starts, features, ids, propensities)

    def shown(self, event: int, position: int) -> str:
        """Return a candidate for a message: its id or, if there is none, its position."""
        if self.ids is None:
            return f"candidate {position}"
        return f"candidate {self.ids[int(self.starts[event]) + position].as_py()!r}"


@dataclass(frozen=True)
class Offers:
    """How to read the candidates of a log. It can be pickled.

    columns   All columns of candidates. Without features, `counting` are enough to know their number.
    ids       Column and field of the ids.
    width     Number of features.
    kind      The type of features in memory.
    """

    columns: tuple[str, ...]
    counting: tuple[str, ...]
    ids: tuple[str, str | None] | None
    pieces: tuple[Piece, ...]
    items: Items | None
    sparse: Sparse | None
    width: int
    kind: np.dtype[Any]
    by_id: bool
    with_features: bool = True

    @classmethod
    def of(cls, schema: pa.Schema, candidates: Candidates, pieces: list[Piece]) -> Offers:
        ids = None if candidates.ids is None else split_path(schema, candidates.ids)
        items, sparse = candidates.items, candidates.sparse
        width = sum(piece.width for piece in pieces) if items is None else len(items.names)
        width = width if sparse is None else int(sparse.dim)
        columns = candidate_columns(schema, candidates)
        first = (columns[0],) if ids is None else (ids[0],)
        kind = feature_type(schema, candidates)
        return cls(columns, first, ids, tuple(pieces), items, sparse, width, kind, candidates.action_is == ID)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns to decode."""
        return self.columns if self.with_features else self.counting

    def read(self, batch: pa.RecordBatch, action: pa.Array) -> tuple[Offered, NDArray[np.int32]] | None:
        """Return candidates and the positions of the logged ones; None if some event is bad (see `problem`).

        action  Its column, without nulls.
        """
        starts = self._starts(batch)
        if starts is None:
            return None
        ids = None if self.ids is None else inside(batch, *self.ids)
        if ids is not None and has_nulls(ids):
            return None
        keys = None if ids is None else keys_of(ids)
        position = self._positions(starts, keys, action)
        if position is None or (self.by_id and not _same(ids, starts, position, action)):
            return None
        features = None
        if self.with_features and self.width:
            features = self._features(batch, keys)
            if features is None:
                return None
        return Offered(starts, features, ids), position

    def _starts(self, batch: pa.RecordBatch) -> Ints | None:
        """Where each event's candidates begin. None if lists are null or empty, or their lengths disagree."""
        found: Ints | None = None
        for name in self.needed:
            column = batch.column(name)
            if has_nulls(column):
                return None
            starts = flat_lists(column)[0]
            if found is not None and not np.array_equal(starts, found):
                return None
            found = starts
        assert found is not None
        return found if (found[1:] > found[:-1]).all() else None

    def _positions(self, starts: Ints, keys: NDArray[np.uint64] | None, action: pa.Array) -> NDArray[np.int32] | None:
        """The position of each logged candidate. None if one is not there, or candidates are there twice."""
        if keys is not None:
            out, bad = located(starts, keys, keys_of(action) if self.by_id else np.empty(0, np.uint64))
            if bad >= 0:
                return None
            if self.by_id:
                return out
        position = whole_numbers(action)
        if ((position < 0) | (position >= np.diff(starts))).any():
            return None
        return position.astype(np.int32)

    def _features(self, batch: pa.RecordBatch, keys: NDArray[np.uint64] | None) -> Dense | Csr | None:
        """The features of all candidates. None if some are missing, not finite, or of another number."""
        if self.sparse is not None:
            each = _each_candidate(batch, self.sparse.columns)
            return None if any(map(has_nulls, each.columns)) else read_sparse(each, self.sparse)
        if self.items is not None:
            assert keys is not None
            known, places = self.items.loaded, np.empty(len(keys), np.int64)
            if ragged.look_up(keys, known.keys, known.places, places) >= 0:
                return None
            return Dense(known.features).take(places)
        found = []
        for piece in self.pieces:
            values = _piece_values(batch, piece)
            if values is None or first_not_finite(values.reshape(-1)) >= 0:
                return None
            found.append(values)
        if len(found) == 1 and found[0].flags.c_contiguous:
            return Dense(found[0])
        columns = [values[:, j] for values in found for j in range(values.shape[1])]
        return Dense(side_by_side(columns))

    # What is wrong

    def bad_rows(self, batch: pa.RecordBatch, action: str) -> Iterator[tuple[str, str, Bools]]:
        """Yield each reason to leave rows out, with its column and those rows. A null action is no reason here."""
        rows = np.zeros(batch.num_rows, bool)
        sizes: Ints | None = None
        for name in self.needed:
            null = nulls(batch.column(name))
            yield NULL, name, null
            rows |= null
            own = lengths(batch.column(name))
            if sizes is not None:
                yield LENGTHS, name, (own != sizes) & ~rows
                rows |= own != sizes
            sizes = own if sizes is None else sizes
        assert sizes is not None
        yield EMPTY, self.needed[0], (sizes == 0) & ~rows
        rows |= sizes == 0
        good = np.flatnonzero(~rows)
        whole = batch.filter(pa.array(~rows))
        starts = flat_lists(whole.column(self.needed[0]))[0]

        def of_candidates(bad: Bools) -> Bools:
            found = np.zeros(batch.num_rows, bool)
            if len(good):
                found[good] = np.logical_or.reduceat(bad, starts[:-1])
            return found

        for reason, name, bad in self._bad_candidates(whole):
            yield reason, name, of_candidates(bad)
        yield from self._bad_actions(batch, whole, starts, good, action)

    def _bad_candidates(self, batch: pa.RecordBatch) -> Iterator[tuple[str, str, Bools]]:
        """Yield each reason that is about one candidate, with those candidates."""
        if self.ids is not None:
            ids = inside(batch, *self.ids)
            yield NULL_ID, self.ids[0], nulls(ids)
        if not self.with_features:
            return
        if self.items is not None and self.ids is not None:
            known, places = self.items.loaded, np.empty(len(ids), np.int64)
            ragged.look_up(keys_of(ids), known.keys, known.places, places)
            yield UNKNOWN, self.ids[0], (places < 0) & ~nulls(ids)
        if self.sparse is not None:
            each = _each_candidate(batch, self.sparse.columns)
            for reason, bad in bad_sparse_rows(each, self.sparse, SPARSE):
                yield reason, self.sparse.indices, bad
        for piece in self.pieces:
            values = inside(batch, piece.column, piece.field)
            null, strange = nulls(values), np.zeros(len(values), bool)
            fields = [values]
            if piece.fields:
                fields = [values.flatten()[values.type.get_field_index(name)] for name in piece.fields]
            elif is_list(piece.kind):
                other = (lengths(values) != piece.width) & ~null
                yield WIDTH, piece.column, other
                usable = ~(null | other)
                flat = values.filter(pa.array(usable)).flatten()
                of_width = [flat.take(pa.array(np.arange(j, len(flat), piece.width))) for j in range(piece.width)]
                for field in of_width:
                    null[usable] |= nulls(field)
                    strange[usable] |= ~np.isfinite(floats_or_nan(field))
                fields = []
            for field in fields:
                null |= nulls(field)
                strange |= ~np.isfinite(floats_or_nan(field))
            yield NULL_FEATURE, piece.column, null
            yield INFINITE, piece.column, strange & ~null

    def _bad_actions(
        self, batch: pa.RecordBatch, whole: pa.RecordBatch, starts: Ints, good: Ints, name: str
    ) -> Iterator[tuple[str, str, Bools]]:
        """Yield the reasons that are about the logged candidate, and candidates that are there twice."""
        twice, absent = np.zeros((2, batch.num_rows), bool)
        action = whole.column(name)
        known = ~nulls(action)
        if self.ids is not None:
            ids = inside(whole, *self.ids)
            keys = keys_of(ids)
            logged = keys_of(action) if self.by_id else np.empty(0, np.uint64)
            out, _ = located(starts, keys, logged)
            null = np.logical_or.reduceat(nulls(ids), starts[:-1]) if len(good) else np.zeros(0, bool)
            twice[good] = (out == ragged.TWICE) & ~null
            yield TWICE, self.ids[0], twice
            if self.by_id:
                same = _equal(ids, starts, np.maximum(out, 0), action)
                absent[good] = ((out == ragged.NOWHERE) | (~same & (out >= 0))) & known
                yield ABSENT, name, absent
        if not self.by_id:
            position = np.where(known, whole_numbers(action.fill_null(0)), 0)
            absent[good] = (position < 0) | (position >= np.diff(starts))
            yield OUTSIDE, name, absent

    def problem(self, batch: pa.RecordBatch, action: str) -> tuple[int, str, str, str]:
        """Return the first bad event, the reason with the value found, the column, and a hint. One exists."""
        found = [
            (int(np.argmax(bad)), k, reason, name)
            for k, (reason, name, bad) in enumerate(self.bad_rows(batch, action))
            if bad.any()
        ]
        row, _, reason, name = min(found)
        one = batch.slice(row, 1)
        hint = ""
        if self.ids is not None and reason in (ABSENT, OUTSIDE):
            meant = "positions" if self.by_id else "ids"
            hint = f"If actions are {meant}, say so with {ACTION_IS}. "
        return row, f"{reason}: {self._value(one, reason, name, action)}", name, hint

    def _value(self, one: pa.RecordBatch, reason: str, name: str, action: str) -> str:
        """What an event has that is bad, for a message."""
        if reason in (NULL, EMPTY):
            return "got null" if reason == NULL else "got an empty list"
        sizes = {column: int(lengths(one.column(column))[0]) for column in self.needed}
        if reason == LENGTHS:
            return "got " + ", ".join(f"{size} in {column!r}" for column, size in sizes.items())
        size = sizes[self.needed[0]]
        if reason == OUTSIDE:
            return f"got {one.column(action)[0].as_py()} where there are {size} candidates"
        ids = None if self.ids is None else inside(one, *self.ids)
        if reason == ABSENT:
            return f"got {one.column(action)[0].as_py()!r} where there are {_abridged(ids)}"
        if reason == TWICE:
            assert ids is not None
            counts = pc.value_counts(ids).to_pylist()
            return f"got {next(entry['values'] for entry in counts if entry['counts'] > 1)!r} in {_abridged(ids)}"
        place = next(
            int(np.argmax(bad)) for why, column, bad in self._bad_candidates(one) if (why, column) == (reason, name)
        )
        if reason == NULL_ID:
            return f"got null in place {place}"
        if reason == UNKNOWN:
            assert ids is not None
            return f"got {ids[place].as_py()!r}"
        who = f"candidate {place}" if ids is None else f"candidate {ids[place].as_py()!r}"
        values = flat_lists(one.column(name))[1][place].as_py()
        more = (
            f", where others have {next(p.width for p in self.pieces if p.column == name)}" if reason == WIDTH else ""
        )
        return f"{who} has {values}{more}"


def fit_both(batch: pa.RecordBatch, action: str, ids: tuple[str, str | None]) -> bool:
    """Whether all actions of some events are ids and positions as well, and not always of the same candidate."""
    usable = ~(nulls(batch.column(action)) | nulls(batch.column(ids[0])))
    batch = batch.filter(pa.array(usable))
    starts = flat_lists(batch.column(ids[0]))[0]
    position, sizes = whole_numbers(batch.column(action)), np.diff(starts)
    if len(position) < ENOUGH or not ((position >= 0) & (position < sizes)).all():
        return False
    values, first = whole_numbers(inside(batch, *ids).fill_null(-1)), starts[:-1] - starts[0]
    among = np.logical_or.reduceat(values == np.repeat(position, sizes), first)
    return bool(among.all() and (values[first + position] != position).any())


def _abridged(ids: Any) -> str:
    shown = [repr(id) for id in ids[:6].to_pylist()]
    return ", ".join([*shown, *(["..."] if len(ids) > 6 else [])])


def located(starts: Ints, keys: NDArray[np.uint64], logged: NDArray[np.uint64]) -> tuple[NDArray[np.int32], int]:
    out = np.empty(len(starts) - 1, np.int32)
    size = 1 << (2 * int(np.diff(starts).max(initial=1))).bit_length()
    bad = ragged.locate(starts, keys, logged, np.empty(size, np.uint64), np.full(size, -1, np.int64), out)
    return out, int(bad)


def _same(ids: pa.Array, starts: Ints, position: NDArray[np.int32], action: pa.Array) -> bool:
    """Whether logged ids are those of the candidates at these positions, not only their keys."""
    return pa.types.is_integer(ids.type) or bool(_equal(ids, starts, position, action).all())


def _equal(ids: pa.Array, starts: Ints, position: NDArray[np.int32], action: pa.Array) -> Bools:
    return equal_ids(ids, starts[:-1] + position, action)


def equal_ids(ids: pa.Array, places: Ints, items: pa.Array) -> Bools:
    """Whether the ids at these places are those of the items."""
    if not len(places):
        return np.zeros(0, bool)
    chosen = _decoded(ids.take(pa.array(places)))
    same = pc.equal(chosen, _decoded(items).cast(chosen.type, safe=False))
    return same.fill_null(False).to_numpy(zero_copy_only=False)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def whole_numbers(column: pa.Array) -> Ints:
    """Return integers as int64. Those that are too large for it become 2^62, which no list is as long as."""
    values = _decoded(column).to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64:
        return np.where(values > np.uint64(2**62), np.uint64(2**62), values).astype(np.int64)
    return values.astype(np.int64, copy=False)


def inside(batch: pa.RecordBatch, column: str, field: str | None) -> pa.Array:
    """Return what lists of a column hold for each candidate, or a field of it. Lists are not null."""
    return inside_lists(batch.column(column), field)


def inside_lists(column: pa.Array, field: str | None) -> pa.Array:
    """The same, given the column."""
    values = flat_lists(column)[1]
    if field is None:
        return values
    return values.flatten()[values.type.get_field_index(field)]  # unlike .field(), it respects structs that are null


def _each_candidate(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """Return what lists of columns hold, with a row for each candidate."""
    return pa.RecordBatch.from_arrays([inside(batch, name, None) for name in names], list(names))


def side_by_side(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return columns of numbers as a matrix, row by row."""
    stacked = np.empty((len(columns), len(columns[0])), np.result_type(*columns))
    np.concatenate(columns, out=stacked.reshape(-1))
    out = np.ascontiguousarray(stacked.T)  # a third of the time of one column after the other
    out.flags.writeable = False
    return out


def _piece_values(batch: pa.RecordBatch, piece: Piece) -> NDArray[Any] | None:
    """Return the features (M, width) of a piece. None if some are null or of another number."""
    values = inside(batch, piece.column, piece.field)
    if has_nulls(values):
        return None
    if piece.fields:
        fields = values.flatten()
        chosen = [fields[values.type.get_field_index(name)] for name in piece.fields]
        if any(has_nulls(field) for field in chosen):
            return None
        return side_by_side([numbers(field) for field in chosen])
    if is_list(piece.kind):
        fixed = pa.types.is_fixed_size_list(values.type) and values.type.list_size == piece.width
        if not fixed and (lengths(values) != piece.width).any():
            return None
        values = flat_lists(values)[1]
        if has_nulls(values):
            return None
    return numbers(values).reshape(-1, piece.width)


def with_widths(pieces: list[Piece], source: Source) -> list[Piece]:
    """Return the pieces with the number of features that most of the first candidates have, if types do not tell it."""
    return [piece if piece.width else replace(piece, width=_usual_width(piece, source)) for piece in pieces]


def _usual_width(piece: Piece, source: Source) -> int:
    for part in source.peek(PEEK_ROWS).parts([piece.column]):
        for batch in part.batches(PEEK_ROWS):
            lists = batch.filter(batch.column(0).is_valid())
            found = inside(lists, piece.column, piece.field)
            sizes = found.value_lengths().drop_null()
            if len(sizes):
                return int(np.bincount(sizes.to_numpy()).argmax())  # a bad first row must not make all others bad
    raise LogError("the log is empty, or no event has candidates")
