"""The candidates of a batch's events: read from columns of lists, checked, and put into flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError, phrase
from drstream.kernels import ragged
from drstream.kernels.checks import first_not_finite
from drstream.log.bad_rows import BadRowsError, refuse, refuse_items, whole
from drstream.log.columns import has_nulls, lengths, nulls, numbers
from drstream.log.facts import SourceFacts
from drstream.log.fields import Field, rewards
from drstream.log.kinds.candidates.columns import (
    ID,
    Candidates,
    FeatureColumn,
    Items,
    candidate_columns,
    feature_type,
    split_path,
)
from drstream.log.propensities import DIFFERENT, IMPROPER, LENGTH, NULL, SUM, beside, far_apart, numbers_of_lists
from drstream.log.ragged import flat_lists, places_of, repeats
from drstream.log.rows import Keys, keys_of
from drstream.log.schema import UNIFORM, is_list
from drstream.log.sparse import Csr, Sparse, read_sparse
from drstream.log.spec import Needs, Spec
from drstream.types import Bools, Floats, Ints

ENOUGH = 20  # events: if all of their actions could be positions, it is no accident
ACTION_IS = phrase('drs.Candidates(..., action_is="id") or "position"', "--action-is id or --action-is position")
WIDTH, HOLDS_NULL = "a candidate has another number of features", "a candidate's features hold a null"
INFINITE, TWICE = "a candidate's features are not finite", "a candidate is there twice"
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

    def __getitem__(self, candidates: slice) -> Dense:
        """Return consecutive candidates, without a copy."""
        return Dense(self.matrix[candidates])

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

    def __getitem__(self, events: slice) -> Offered:
        """Return those of consecutive events. Features and ids are not copied."""
        start, stop, _ = events.indices(len(self))
        first, last = int(self.starts[start]), int(self.starts[stop])
        features = None if self.features is None else self.features[first:last]
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


NOT_OFFERED = Offered(np.zeros(1, np.int64), None, None)


@dataclass(frozen=True)
class CandidateReader:
    """How to read the candidates of a log. It can be pickled.

    columns   All columns of candidates. Without features, `counting` are enough to know their number.
    ids       Column and field of the ids.
    width     Number of features.
    kind      The type of features in memory.
    """

    columns: tuple[str, ...]
    counting: tuple[str, ...]
    ids: tuple[str, str | None] | None
    pieces: tuple[FeatureColumn, ...]
    items: Items | None
    sparse: Sparse | None
    width: int
    kind: np.dtype[Any]
    by_id: bool
    with_features: bool = True

    @classmethod
    def of(cls, schema: pa.Schema, candidates: Candidates, pieces: list[FeatureColumn]) -> CandidateReader:
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

    def read(self, batch: pa.RecordBatch) -> tuple[Offered, Keys | None]:
        """Return the candidates of events, and the keys of their ids, if they have any."""
        starts, ids, keys = self._starts(batch), None, None
        if self.ids is not None:
            ids = inside(batch, *self.ids)
            if has_nulls(ids):
                refuse_items(nulls(ids), starts, "a candidate has no id", self.ids[0])
            keys = keys_of(ids)
        features = self._features(batch, starts, keys) if self.with_features and self.width else None
        return Offered(starts, features, ids), keys

    def _starts(self, batch: pa.RecordBatch) -> Ints:
        """Where each event's candidates begin."""
        first, found = self.needed[0], np.empty(0, np.int64)
        for name in self.needed:
            starts = flat_lists(whole(batch, name, "candidates are null"))[0]
            found = starts if name == first else found
            if not np.array_equal(starts, found):
                refuse(np.diff(starts) != np.diff(found), "candidates have lists of different lengths", first, name)
        refuse(np.diff(found) == 0, "there are no candidates", first)
        return found

    def _features(self, batch: pa.RecordBatch, starts: Ints, keys: Keys | None) -> Dense | Csr:
        """The features of all candidates."""
        if self.sparse is not None:
            each = [inside(batch, name, None) for name in self.sparse.columns]
            try:
                return read_sparse(pa.RecordBatch.from_arrays(each, list(self.sparse.columns)), self.sparse, SPARSE)
            except BadRowsError as bad:  # these rows are candidates
                refuse_items(bad.rows, starts, bad.reason, *bad.columns)
                raise AssertionError from None
        if self.items is not None and self.ids is not None:
            assert keys is not None
            known, places = self.items.loaded, np.empty(len(keys), np.int64)
            if ragged.look_up(keys, known.keys, known.places, places) >= 0:
                refuse_items(places < 0, starts, "a candidate is not among the items", self.ids[0])
            return Dense(known.features).take(places)
        found = []
        for piece in self.pieces:
            found.append(_piece_values(batch, piece, starts))
            if first_not_finite(found[-1].reshape(-1)) >= 0:
                refuse_items(~np.isfinite(found[-1]).all(axis=1), starts, INFINITE, piece.column)
        if len(found) == 1 and found[0].flags.c_contiguous:
            return Dense(found[0])
        return Dense(side_by_side([values[:, j] for values in found for j in range(values.shape[1])]))

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns that a message about an action shows, too."""
        return self.needed[:1] if self.ids is None else self.ids[:1]

    @property
    def hint(self) -> str:
        """What to do if an action is not among its candidates."""
        meant = "positions" if self.by_id else "ids"
        return "" if self.ids is None else f"If actions are {meant}, say so with {ACTION_IS}. "


@dataclass(frozen=True)
class LoggedCandidate:
    """The candidates of an event, and the position of the logged one.

    uniform  Whether the propensity of an event is 1 / the number of its candidates.
    """

    offers: CandidateReader
    action: str
    uniform: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return self.action, *self.offers.needed

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        action = whole(batch, self.action, "action is null")
        offered, keys = self.offers.read(batch)
        found = {"candidates": offered, "action": self._positions(offered, keys, action)}
        return found | ({"propensity": 1 / np.diff(offered.starts)} if self.uniform else {})

    def _positions(self, offered: Offered, keys: Keys | None, action: pa.Array) -> NDArray[np.int32]:
        offers, starts = self.offers, offered.starts
        about = self.action, *offers.shown
        if keys is not None:
            logged = keys_of(action) if offers.by_id else np.empty(0, np.uint64)
            out, bad = located(starts, keys, logged)
            if bad >= 0:
                if (out == ragged.TWICE).any():
                    refuse_items(repeats(starts, keys), starts, TWICE, *offers.shown)
                refuse(out == ragged.NOWHERE, ABSENT, *about, hint=offers.hint)
            if offers.by_id:
                assert offered.ids is not None
                if not pa.types.is_integer(offered.ids.type):  # two texts may have the same key
                    refuse(~equal_ids(offered.ids, starts[:-1] + out, action), ABSENT, *about, hint=offers.hint)
                return out
        position = whole_numbers(action)
        refuse((position < 0) | (position >= np.diff(starts)), OUTSIDE, *about, hint=offers.hint)
        return position.astype(np.int32)


@dataclass(frozen=True)
class OfAll:
    """The propensities of all candidates: lists in a column, as long as the candidates of each event.

    logged  The column of the logged propensity, if there is one.
    """

    column: str
    logged: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        offered, propensity = known["candidates"], known["propensity"]
        column, starts = whole(batch, self.column, NULL), offered.starts
        hint = "It must hold one for each candidate. "
        refuse(lengths(column) != np.diff(starts), LENGTH, self.column, hint=hint)
        values = numbers_of_lists(column, self.column)[1]
        with np.errstate(invalid="ignore"):
            proper = np.minimum.reduceat(values, starts[:-1]) >= 0
            proper &= np.abs(np.add.reduceat(values, starts[:-1]) - 1) <= SUM
        refuse(~proper, IMPROPER, self.column)
        if len(propensity):
            of_logged = values[starts[:-1] + known["action"]]
            refuse(far_apart(of_logged, propensity), DIFFERENT, self.column, *beside(self.logged))
        return {"candidates": replace(offered, propensities=values)}


def fields(spec: Spec, needs: Needs) -> list[Field]:
    """How to read the events of a log whose events have candidates."""
    roles, found = spec.roles, list[Field]()
    if needs.action and spec.offers is not None:
        assert roles.action is not None
        found = [LoggedCandidate(spec.offers, roles.action, roles.constant == UNIFORM)]
    if needs.propensities:
        found.append(OfAll(roles.propensities[0], roles.propensity))
    return [*rewards(spec), *found]


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


def located(starts: Ints, keys: NDArray[np.uint64], logged: NDArray[np.uint64]) -> tuple[NDArray[np.int32], int]:
    out = np.empty(len(starts) - 1, np.int32)
    size = 1 << (2 * int(np.diff(starts).max(initial=1))).bit_length()
    bad = ragged.locate(starts, keys, logged, np.empty(size, np.uint64), np.full(size, -1, np.int64), out)
    return out, int(bad)


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


def side_by_side(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return columns of numbers as a matrix, row by row."""
    stacked = np.empty((len(columns), len(columns[0])), np.result_type(*columns))
    np.concatenate(columns, out=stacked.reshape(-1))
    out = np.ascontiguousarray(stacked.T)  # a third of the time of one column after the other
    out.flags.writeable = False
    return out


def _piece_values(batch: pa.RecordBatch, piece: FeatureColumn, starts: Ints) -> NDArray[Any]:
    """Return the features (M, width) of a piece."""
    values, name = inside(batch, piece.column, piece.field), piece.column
    if has_nulls(values):
        refuse_items(nulls(values), starts, HOLDS_NULL, name)
    if piece.fields:
        chosen = [values.flatten()[values.type.get_field_index(field)] for field in piece.fields]
        for field in chosen:
            if has_nulls(field):
                refuse_items(nulls(field), starts, HOLDS_NULL, name)
        return side_by_side([numbers(field) for field in chosen])
    if is_list(piece.kind):
        fixed = pa.types.is_fixed_size_list(values.type) and values.type.list_size == piece.width
        if not fixed:
            hint = f"Other candidates have {piece.width}. "
            refuse_items(lengths(values) != piece.width, starts, WIDTH, name, hint=hint)
        values = flat_lists(values)[1]
        if has_nulls(values):
            missing = np.logical_or.reduce(nulls(values).reshape(-1, piece.width), axis=1)
            refuse_items(missing, starts, HOLDS_NULL, name)
    return numbers(values).reshape(-1, piece.width)


def with_widths(pieces: list[FeatureColumn], facts: SourceFacts) -> list[FeatureColumn]:
    """Return the pieces with the number of features that most of the first candidates have, if types do not tell it."""
    return [piece if piece.width else replace(piece, width=_usual_width(piece, facts)) for piece in pieces]


def _usual_width(piece: FeatureColumn, facts: SourceFacts) -> int:
    first = facts.first([piece.column])
    if first is not None:
        lists = first.filter(first.column(0).is_valid())
        sizes = inside(lists, piece.column, piece.field).value_lengths().drop_null()
        if len(sizes):
            return int(np.bincount(sizes.to_numpy()).argmax())  # a bad first row must not make all others bad
    raise LogError("the log is empty, or no event has candidates")
