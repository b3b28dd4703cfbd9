"""Action labels: the values in the action column, and their indices 0..K-1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError, parameter, phrase
from drstream.kernels.distinct import fill_places, find_places
from drstream.log.bad_rows import SKIP
from drstream.log.columns import floats_or_nan
from drstream.log.distinct import find_distinct
from drstream.log.propensities import width
from drstream.log.ragged import flat_lists
from drstream.log.schema import Roles, is_string
from drstream.log.spec import Spec
from drstream.sources.base import Part, Source
from drstream.sources.parquet import ParquetSource

MOST = 1_000_000  # a column with more values is an identifier, not a set of actions
SCAN_ROWS = 1 << 16  # at a time, if rewards and propensities are looked at, too
TABLE = 1 << 22  # integers within such a range are encoded with a table, of 16 MB at most


class Labels(list[Any]):
    """Labels that are not simply 0..K-1. The index of a label is found without a search through all of them."""

    def __init__(self, labels: Iterable[Any]) -> None:
        super().__init__(labels)
        self._lookup: Lookup | None = None

    @property
    def lookup(self) -> Lookup:
        if self._lookup is None:
            self._lookup = Lookup(self)
        return self._lookup

    def __contains__(self, label: object) -> bool:
        try:
            return label in self.lookup.places
        except TypeError:  # it cannot be hashed
            return False

    def index(self, label: Any, *range: Any) -> int:
        return super().index(label, *range) if range else self.lookup.places[label]

    def __reduce__(self) -> tuple[type[Labels], tuple[list[Any]]]:
        return Labels, (list(self),)


class Lookup:
    """From the values of a column to indices of labels, which stay as they are."""

    def __init__(self, labels: Sequence[Any]) -> None:
        self.labels = list(labels)

    @cached_property
    def places(self) -> dict[Any, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def text(self) -> pa.Array:
        return pa.array([label if isinstance(label, str) else None for label in self.labels], pa.large_string())

    @cached_property
    def whole(self) -> bool:
        """Whether the labels are integers."""
        return all(isinstance(label, Integral) for label in self.labels)

    @cached_property
    def ordered(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The labels, which are integers, from the smallest to the largest, and their indices."""
        kind = np.uint64 if max(self.labels) >= 2**63 else np.int64
        values = np.array(self.labels, kind)
        order = np.argsort(values, kind="stable")
        return values[order], order.astype(np.int32)

    @cached_property
    def table(self) -> tuple[Any, NDArray[np.int32]] | None:
        """The smallest label, and the index of each integer from it on, -1 for one that is no label. None if large."""
        values, order = self.ordered
        size = int(values[-1]) - int(values[0]) + 1
        if size > TABLE:
            return None
        out = np.full(size, -1, np.int32)
        out[values - values[0]] = order
        return values[0], out

    @cached_property
    def hashed(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """A hash table of the labels, which are integers, and the index of each, plus 1."""
        values, order = self.ordered
        size = 1 << (4 * len(values) - 1).bit_length()
        labels = np.empty(len(values), values.dtype)
        labels[order] = values
        table, places = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        fill_places(labels.view(np.uint64), table, places)
        return table, places

    def integers(self, values: NDArray[Any]) -> NDArray[np.int32]:
        """Return the index of each integer, -1 for one that is no label."""
        if not self.whole:
            return np.full(len(values), -1, np.int32)
        known, _ = self.ordered
        strange = np.zeros(len(values), bool)
        if known.dtype == np.int64 and values.dtype == np.uint64:
            strange = values > np.uint64(2**63 - 1)
        elif known.dtype == np.uint64 and values.dtype.kind == "i":
            strange = values < 0
        values = values.astype(known.dtype, copy=False)
        strange = strange | (values < known[0]) | (values > known[-1])
        if strange.any():
            values = np.where(strange, known[0], values)
        if self.table is not None:
            low, places = self.table
            found = places[values - low]
        else:
            found = np.empty(len(values), np.int32)
            find_places(np.ascontiguousarray(values).view(np.uint64), *self.hashed, found)
        found[strange] = -1
        return found


def given_labels(actions: Any, kind: pa.DataType | None) -> Sequence[Any]:
    """Check `actions=` of a log, a number K or the labels, and return the labels. kind: that of the action column."""
    text = kind is not None and is_string(_values(kind))
    if isinstance(actions, str):
        raise LogError(f"{parameter('actions', actions)}: pass a list of labels, or their number")
    if isinstance(actions, Integral):
        if actions < 1 or text:
            why = "the actions are text: pass their labels" if text else "there must be at least one"
            raise LogError(f"{parameter('actions', actions)}: {why}")
        return range(int(actions))
    labels = [str(x) if text else x for x in actions]
    wrong = next((x for x in labels if not text and kind is not None and not isinstance(x, Integral)), None)
    if wrong is not None:
        raise LogError(f"{parameter('actions')} holds {wrong!r}, but the action column holds {kind}")
    if not labels or len(set(labels)) < len(labels):
        twice = next((x for x, count in Counter(labels).items() if count > 1), None)
        raise LogError(f"{parameter('actions')} holds {'no label' if not labels else f'{twice!r} more than once'}")
    if kind is not None and not text:
        numbers = [int(x) for x in labels]
        if min(numbers) < -(2**63) or max(numbers) >= 2**64 or (min(numbers) < 0 and max(numbers) >= 2**63):
            raise LogError(
                f"{parameter('actions')} runs from {min(numbers)} to {max(numbers)}: no column can hold both"
            )
        return Labels(numbers)
    return Labels(labels)


def find_labels(source: Source, roles: Roles, skip_bad_rows: bool, hints: bool = True) -> Sequence[Any]:
    """Return the distinct labels of a log: those of its actions, and of its eligible sets.

    hints  Whether statistics of files may tell that a part has no new label. The pass must then read all rows, as it
           raises an error at a label that is not known.

    Labels are sorted, except those of an ordered dictionary, which keep its order. Rows that will be skipped for a bad
    reward or propensity do not count.
    """
    if roles.action is None:
        raise no_actions()
    kind = source.schema.field(roles.action).type
    if not is_string(_values(kind)):
        return _find_integers(source, roles, skip_bad_rows, hints and not skip_bad_rows)
    found: dict[Any, None] = {}
    text = [roles.action, *([] if roles.eligible is None else [roles.eligible])]
    for part in source.peek().parts(_names(roles, skip_bad_rows), text=text):
        for column in _columns(part, roles, skip_bad_rows):
            found |= dict.fromkeys(_distinct(column))
            if len(found) > MOST:
                raise _too_many(roles.action)
    if not found:
        raise _empty(skip_bad_rows)
    return Labels(found if pa.types.is_dictionary(kind) and kind.ordered else sorted(found))


def as_labels(labels: Sequence[Any], like: Sequence[Any] = ()) -> Sequence[Any]:
    """Return labels in the form that a log has: whole numbers as integers, beside labels that are."""
    if like and all(isinstance(label, Integral) for label in like):
        labels = [int(label) if isinstance(label, float) and label.is_integer() else label for label in labels]
    return range(len(labels)) if list(labels) == list(range(len(labels))) else Labels(labels)


def widened(labels: Sequence[Any], n_actions: int) -> Sequence[Any]:
    """Return 0..n_actions-1 if the labels are some of these integers, else the labels themselves."""
    if n_actions <= len(labels) or not all(isinstance(label, Integral) for label in labels):
        return labels
    return range(n_actions) if min(labels) >= 0 and max(labels) < n_actions else labels


def key_of(spec: Spec) -> Any:
    """What the labels of a log depend on: skipped rows have no say in them."""
    roles = spec.roles
    of_skipped = (roles.reward, roles.propensity) if spec.skip_bad_rows else None
    return "labels", roles.action, roles.eligible, roles.propensities, of_skipped, spec.filter is None


def labels_of(source: Source, spec: Spec) -> Sequence[Any]:
    """Find the labels of a log's actions. Propensities of more actions than were logged tell that there are more."""
    found = find_labels(source, spec.roles, spec.skip_bad_rows, hints=spec.filter is None)
    return widened(found, width(source.schema, spec.roles.propensities))


def known_to(users: Sequence[Any], labels: Sequence[Any]) -> Sequence[Any]:
    """Return the labels that one of these policies and models knows, if it knows more than these; else these."""
    for user in users:
        known = getattr(user, "known_labels", None)
        if isinstance(known, Sequence) and len(known) > len(labels) and set(known).issuperset(labels):
            return as_labels(known, like=labels)
    return widened(labels, max((getattr(user, "n_actions", None) or 0 for user in users), default=0))


def no_actions() -> LogError:
    return LogError(
        f"the log was opened with {parameter('action', None)}, and this needs the actions. Without them, only "
        "estimators without a reward model can be used, for policies that are a column with the probability of the "
        f"logged action. Name the column of actions with {parameter('action')}"
    )


def _find_integers(source: Source, roles: Roles, skip_bad_rows: bool, hints: bool) -> Sequence[Any]:
    assert roles.action is not None
    parquet = isinstance(source, ParquetSource)
    ranges = _ranges(source, roles) if isinstance(source, ParquetSource) and hints else {}
    values = find_distinct(
        source.peek().parts(_names(roles, skip_bad_rows)),
        lambda part: _columns(part, roles, skip_bad_rows),
        lambda part: ranges.get(part.first_row),
        _values(source.schema.field(roles.action).type),
        MOST,
        threads=parquet,
    )
    if not len(values):
        raise _empty(skip_bad_rows)
    if len(values) > MOST:
        raise _too_many(roles.action)
    if len(values) > 1 and values[0] < 0 <= values[1]:
        if not skip_bad_rows:
            raise LogError(
                f"action column {roles.action!r} runs from {values[0]} to {values[-1]}: does {values[0]} mean that "
                f"there was no action? Then remove such rows, or pass {SKIP}. If it is an action, pass all labels with "
                f"{phrase('actions=[...]', '--actions LABEL,LABEL,...')}"
            )
        values = values[1:]  # rows with the label of no action will be skipped, and counted
    if values[0] == 0 and int(values[-1]) == len(values) - 1:
        return range(len(values))
    return Labels(values.tolist())


def _ranges(source: ParquetSource, roles: Roles) -> dict[int, tuple[int, int]]:
    """Return the range of the labels in each row group, by the group's first row, where it is known."""
    assert roles.action is not None
    found = source.ranges(roles.action)
    if roles.eligible is None:
        return found
    sets = source.ranges(roles.eligible)
    both = found.keys() & sets.keys()
    return {row: (min(found[row][0], sets[row][0]), max(found[row][1], sets[row][1])) for row in both}


def _too_many(action: str) -> LogError:
    return LogError(f"action column {action!r} holds over {MOST} different values: is it an identifier?")


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _names(roles: Roles, skip_bad_rows: bool) -> list[str]:
    """The columns that decide on the labels."""
    wanted = [roles.action, roles.eligible, *([roles.reward, roles.propensity] if skip_bad_rows else [])]
    return [name for name in wanted if name is not None]


def _columns(part: Part, roles: Roles, skip_bad_rows: bool) -> Iterator[pa.Array]:
    """Yield columns of labels, batch by batch, less rows with a bad reward or propensity if these are skipped."""
    for batch in part.batches(SCAN_ROWS if skip_bad_rows else None):
        if skip_bad_rows:
            good = np.isfinite(floats_or_nan(batch.column(roles.reward)))
            if roles.propensity is not None:
                p = floats_or_nan(batch.column(roles.propensity))
                good &= (p > 0) & (p <= 1)
            batch = batch.filter(pa.array(good))
        yield batch.column(roles.action)
        if roles.eligible is not None:
            yield flat_lists(batch.column(roles.eligible).drop_null())[1]


def _distinct(column: pa.Array) -> list[Any]:
    values = column.unique()
    if isinstance(values, pa.DictionaryArray):
        used = set(values.indices.to_pylist())  # by index, as Arrow cannot decode a dictionary of string views
        return [v for i, v in enumerate(values.dictionary.to_pylist()) if v is not None and i in used]
    return [v for v in values.to_pylist() if v is not None]


def _empty(skip_bad_rows: bool) -> LogError:
    return LogError("the log is empty" + (", or no row of it can be used" if skip_bad_rows else ""))


def encode(column: pa.Array, labels: Sequence[Any]) -> NDArray[np.int32]:
    """Return the index of each label. An unknown label gets -1, or K or more. The column has no nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        text = is_string(kind.value_type)
        values = column.dictionary.cast(pa.large_string()) if text else column.dictionary  # views have no fill_null
        of_dictionary = encode(values.fill_null("" if text else 0), labels)
        return of_dictionary[column.indices.to_numpy(zero_copy_only=False)]
    if isinstance(labels, range) and not is_string(kind):
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype == np.int32:
            return values
        if values.dtype.itemsize > 4 or values.dtype == np.uint32:
            values = np.clip(values, -1 if values.dtype.kind == "i" else 0, len(labels))
        return values.astype(np.int32)
    lookup = labels.lookup if isinstance(labels, Labels) else Lookup(labels)
    if is_string(kind):
        index = pc.index_in(column.cast(pa.large_string()), value_set=lookup.text)
        return pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
    return lookup.integers(column.to_numpy(zero_copy_only=False))


def describe_labels(labels: Sequence[Any]) -> str:
    shown = [repr(x) for x in (list(labels) if len(labels) <= 6 else [*labels[:3], *labels[-1:]])]
    if len(labels) > 6:
        shown.insert(3, "...")
    return f"{len(labels)} action{'s' * (len(labels) != 1)} {', '.join(shown)}"
