"""Events as read-only NumPy views. A slice of events is events, too: so are the blocks that fit into cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.kernels import order
from drstream.kernels.scores import hide
from drstream.log.bad_rows import BadRowsError
from drstream.log.encoding import Coded, Encoding
from drstream.log.kinds.candidates.reading import NOT_OFFERED, Offered
from drstream.log.kinds.eligible.reading import Sets
from drstream.log.kinds.rankings.reading import NO_LISTS, Lists
from drstream.log.sparse import Csr
from drstream.sources.base import Place
from drstream.types import Bools, Floats, Ints

Context = list[NDArray[Any]] | NDArray[Any] | Coded | Csr

PER_EVENT = (  # attributes with something for each event, if they were read
    *("rows", "action", "reward", "propensity", "fold", "keys", "row_weight", "propensities", "mixture"),
    *("candidates", "lists", "eligible"),
)


def _unread() -> Any:
    return np.empty(0)


@dataclass(eq=False)
class Events:
    """Consecutive events of one part, as arrays: a batch, or a slice of it. Arrays that were not read are empty."""

    place: Place  # where the part is stored
    rows: Ints | range  # row numbers in the log; a range if no row was left out
    action: NDArray[np.int32]  # the index of its label; in a log of candidates, its position among them
    reward: Floats  # of a ranking: the sum over its list
    propensity: Floats  # of a ranking: the smallest one of its list
    context: Context  # d columns, one (n, d) array, columns with categories, or sparse rows
    n_features: int
    columns: pa.RecordBatch  # columns that policies and models read
    fold: Ints = field(default_factory=_unread)  # if models are fitted by fold
    keys: NDArray[np.uint64] = field(default_factory=_unread)  # of each event's cluster, if events are clustered
    row_weight: Floats = field(default_factory=_unread)  # number of rows that a row of a down-sampled log stands for
    more_rewards: dict[str, Floats] = field(default_factory=dict)  # by column, for a log with several rewards
    propensities: Floats = field(default_factory=_unread)  # of all actions (n, K)
    mixture: Floats = field(default_factory=_unread)  # propensities of all loggers together
    candidates: Offered = NOT_OFFERED  # what each event could choose from, if it has candidates of its own
    lists: Lists = NO_LISTS  # of a log of rankings
    eligible: Sets | None = None  # the actions that each event could choose from, in a log with eligible sets
    fold_starts: Ints | None = None  # after by_fold(): where the events of each fold begin, and the number of events
    whole: Events | None = None  # the batch that this is a slice of
    start: int = 0  # place of the first event in that batch
    scratch: dict[Any, Any] = field(default_factory=dict, repr=False)  # of a batch, for features of a slice, by type
    seen: dict[int, tuple[Encoding, Events]] = field(default_factory=dict, repr=False)  # in other encodings, by id
    _features: dict[Any, NDArray[Any]] = field(default_factory=dict, init=False, repr=False)  # by type

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, events: slice) -> Events:
        """Return consecutive events, without a copy."""
        start, stop, _ = events.indices(len(self))
        return self._each(
            lambda values: [x[start:stop] for x in values] if isinstance(values, list) else values[start:stop],
            columns=self.columns.slice(start, stop - start),
            fold_starts=None,
            whole=self if self.whole is None else self.whole,
            start=self.start + start,
        )

    def take(self, places: Ints) -> Events:
        """Return a copy of the events at these places: a batch of its own."""
        assert not len(self.lists)  # nothing takes rankings apart
        return self._each(
            lambda values: _taken(values, places),
            columns=self.columns.take(pa.array(places)) if self.columns.num_columns else self.columns,
            fold_starts=None,
            whole=None,
            start=0,
            scratch={},
            seen={},
        )

    def _each(self, pick: Callable[[Any], Any], **changes: Any) -> Events:
        """Return events whose attributes are what `pick` returns for them, but for the changes."""
        found = {name: value for name in PER_EVENT if (value := getattr(self, name)) is not None and len(value)}
        return replace(
            self,
            context=pick(self.context),
            more_rewards={name: pick(reward) for name, reward in self.more_rewards.items()},
            **{name: pick(value) for name, value in found.items()},
            **changes,
        )

    @property
    def stop(self) -> int:
        """Place after the last event in the batch."""
        return self.start + len(self)

    @property
    def numbers(self) -> Ints:
        """The row numbers of the events in the log, as an array."""
        return as_array(self.rows)

    @property
    def in_file(self) -> NDArray[np.uint64]:
        """The row numbers of the events in their file."""
        return (self.numbers - self.place.file_row).view(np.uint64)

    def where(self, i: int) -> str:
        """Return where event i is stored, for messages."""
        return self.place.of_row(int(self.rows[i]))

    def column(self, name: str) -> pa.Array:
        return self.columns.column(name)

    def for_reward(self, name: str) -> Events:
        """Return the same events with another reward of the log."""
        if name not in self.more_rewards:
            return self
        lists = self.lists.for_reward(name) if len(self.lists) else self.lists
        return replace(self, reward=self.more_rewards[name], lists=lists)

    def blocks(self, rows: int, candidates: int | None = None) -> Iterator[Events]:
        """Yield slices of at most so many rows. After by_fold(), the events of each are of one fold.

        candidates  The most that the events of a slice may have together, unless one alone has more.
        """
        bounds = [0, len(self)] if self.fold_starts is None else self.fold_starts.tolist()
        starts = self.candidates.starts if candidates is not None and len(self.candidates) else None
        for first, last in itertools.pairwise(bounds):
            while first < last:
                stop = min(first + rows, last)
                if starts is not None and starts[stop] - starts[first] > candidates:
                    stop = max(first + 1, int(np.searchsorted(starts, starts[first] + candidates, side="right")) - 1)
                yield self[first:stop]
                first = stop

    def by_fold(self) -> Events:
        """Return the events in the order of their folds, and within a fold in the order of the log.

        It is a copy, unless they are in this order already, as with blocks of rows.
        """
        fold = self.fold
        starts, places = np.empty(int(fold.max(initial=0)) + 2, np.int64), np.empty(len(fold), np.int64)
        order.sort_by_group(fold, starts, places)
        if (fold[:-1] <= fold[1:]).all():
            return replace(self, fold_starts=starts)
        return replace(self.take(places), fold_starts=starts)

    # Eligible sets

    @cached_property
    def eligible_bits(self) -> NDArray[np.uint32] | None:
        """The eligible sets as words (W, n), for kernels; None if all events could choose any action."""
        return None if self.eligible is None else self.eligible.bits()

    @cached_property
    def eligible_mask(self) -> Bools | None:
        """The eligible sets as a matrix (n, K), for the user's code; None if all events could choose any action."""
        return None if self.eligible is None else self.eligible.mask()

    def hide(self, values: Floats) -> None:
        """values (K, n) <- 0 for actions that are not eligible."""
        if self.eligible_bits is not None:
            hide(values, self.eligible_bits)

    # Contexts

    def seen_by(self, encoding: Encoding) -> Events:
        """Return the same events with contexts in this encoding. The batch must have the columns that it names."""
        batch = self if self.whole is None else self.whole
        if id(encoding) not in batch.seen:
            try:
                context = encoding.read(batch.columns)
            except BadRowsError as bad:
                raise bad.error(batch.columns, batch.where) from None
            there = replace(batch, context=context, n_features=encoding.n_features, scratch={}, seen={})
            batch.seen[id(encoding)] = encoding, there
        there = batch.seen[id(encoding)][1]
        return there if self is batch else there[self.start : self.stop]

    @property
    def sparse(self) -> Csr | None:
        """Sparse contexts; None if contexts are dense. `features` is for dense contexts only."""
        return self.context if isinstance(self.context, Csr) else None

    @cached_property
    def matrix(self) -> Any:
        """Contexts (n, d) for a policy's code, in the log's type. Sparse contexts are a csr_array."""
        context = self.context
        if isinstance(context, Csr):
            return context.array()
        if isinstance(context, np.ndarray):
            return context
        if isinstance(context, Coded):
            matrix = context.matrix()
        else:
            kind = np.result_type(*context) if context else np.float64
            matrix = np.empty((len(context), len(self)), kind).T
            for j, column in enumerate(context):
                matrix[:, j] = column
        matrix.flags.writeable = False  # other policies see it too
        return matrix

    @property
    def features(self) -> Floats:
        """Contexts (d, n) in float64, feature by feature, for BLAS. The next slice of the batch overwrites them."""
        return self.features_as(np.dtype(np.float64))

    def features_as(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return contexts (d, n) in float32 or float64. The next slice of the batch overwrites them."""
        if kind not in self._features:
            context, scratch = self.context, self.scratch
            assert not isinstance(context, Csr)
            size = self.n_features * len(self)
            if kind not in scratch or len(scratch[kind]) < size:
                scratch[kind] = np.empty(size, kind)  # once per batch: for each slice it would cost 10 ns an event
            found = scratch[kind][:size].reshape(-1, len(self))
            if isinstance(context, np.ndarray):
                order.transpose(np.ascontiguousarray(context), found)
            elif isinstance(context, Coded):
                context.fill(found)
            elif context:
                np.concatenate(context, out=scratch[kind][:size])  # one call, half the time of one for each column
            self._features[kind] = found
        return self._features[kind]


def as_array(rows: Ints | range) -> Ints:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def gathered(values: NDArray[Any], places: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return a read-only copy of the values, or rows of values, at these places."""
    out = np.empty((len(places), *values.shape[1:]), values.dtype) if out is None else out
    if values.ndim == 1:
        order.gather(np.ascontiguousarray(values), places, out)
    else:
        np.take(values, places, axis=0, out=out, mode="clip")  # mode="raise" would copy `out`
    out.flags.writeable = False  # several policies see it
    return out


def _taken(values: Any, places: Ints) -> Any:
    if isinstance(values, range):
        return places + values.start
    if isinstance(values, list):
        return _gathered_columns(values, places)
    return gathered(values, places) if isinstance(values, np.ndarray) else values.take(places)


def _gathered_columns(context: list[NDArray[Any]], places: Ints) -> list[NDArray[Any]]:
    sizes = [-(-column.itemsize * len(places) // 8) * 8 for column in context]  # whole words, for aligned columns
    space = np.empty(sum(sizes), np.uint8)  # malloc keeps one large piece for the next batch; small ones it gives back
    found, first = [], 0
    for column, size in zip(context, sizes, strict=True):
        piece = space[first : first + column.itemsize * len(places)]
        found.append(gathered(column, places, piece.view(column.dtype)))
        first += size
    return found
