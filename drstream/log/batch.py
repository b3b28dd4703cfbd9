"""Events as read-only NumPy views: batches of so many rows of a part, and blocks of them that fit into cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
from drstream.log.kinds.candidates.reading import Offered
from drstream.log.kinds.eligible.reading import Sets
from drstream.log.kinds.rankings.reading import Lists
from drstream.log.sparse import Csr
from drstream.sources.base import Place
from drstream.types import Bools, Floats, Ints

Context = list[NDArray[Any]] | NDArray[Any] | Coded | Csr


@dataclass
class Batch:
    """Consecutive events of one part, as arrays. They are read-only views where Arrow's memory allows it."""

    place: Place  # where the part is stored
    rows: Ints | int  # row number of each event, or of the first if no row was left out
    action: NDArray[np.int32]  # the index of its label; in a log of candidates, its position among them
    reward: Floats  # of a ranking: the sum over its list
    propensity: Floats  # empty if the log has none; of a ranking: the smallest one of its list
    context: Context  # d columns, one (n, d) array, columns with categories, or sparse rows
    n_features: int
    columns: pa.RecordBatch  # columns that policies and models read
    fold: Ints | None = None  # fold of each event, if models are fitted by fold
    keys: NDArray[np.uint64] | None = None  # key of each event's cluster, if events are clustered
    row_weight: Floats | None = None  # number of rows that each row stands for, in a down-sampled log
    more_rewards: dict[str, Floats] = field(default_factory=dict)  # by column, for a log with several rewards
    propensities: Floats | None = None  # of all actions (n, K), if they are read
    mixture: Floats | None = None  # propensities of all loggers together, if they are read
    candidates: Offered | None = None  # what each event could choose from, if it has candidates of its own
    lists: Lists | None = None  # of a log of rankings
    eligible: Sets | None = None  # the actions that each event could choose from, in a log with eligible sets
    fold_starts: Ints | None = None  # after by_fold(): where the events of each fold begin, and the number of events
    scratch: dict[Any, Any] = field(default_factory=dict, repr=False)  # for features of a block, by type
    seen: dict[int, tuple[Encoding, Context]] = field(default_factory=dict, repr=False)  # in other encodings, by id

    def __len__(self) -> int:
        return len(self.reward)

    def for_reward(self, name: str) -> Batch:
        """Return the same events with another reward of the log."""
        if name not in self.more_rewards:
            return self
        return replace(
            self, reward=self.more_rewards[name], lists=None if self.lists is None else self.lists.for_reward(name)
        )

    @property
    def numbers(self) -> Ints:
        """The row numbers of the events in the log."""
        return np.arange(self.rows, self.rows + len(self)) if isinstance(self.rows, int) else self.rows

    @property
    def in_file(self) -> NDArray[np.uint64]:
        """The row numbers of the events in their file."""
        return (self.numbers - self.place.file_row).astype(np.uint64)

    def row_number(self, i: int) -> int:
        """Return the row number of event i in the log."""
        return int(self.rows + i if isinstance(self.rows, int) else self.rows[i])

    def where(self, i: int) -> str:
        return self.place.of_row(self.row_number(i))

    def blocks(self, rows: int, candidates: int | None = None) -> Iterator[Block]:
        """Yield blocks of at most so many rows. After by_fold(), the events of a block are of one fold.

        candidates  The most that the events of a block may have together, unless one alone has more.
        """
        bounds = [0, len(self)] if self.fold_starts is None else self.fold_starts.tolist()
        starts = None if candidates is None or self.candidates is None else self.candidates.starts
        for first, last in itertools.pairwise(bounds):
            while first < last:
                stop = min(first + rows, last)
                if starts is not None and starts[stop] - starts[first] > candidates:
                    stop = max(first + 1, int(np.searchsorted(starts, starts[first] + candidates, side="right")) - 1)
                yield Block(self, first, stop)
                first = stop

    def by_fold(self) -> Batch:
        """Return the events in the order of their folds, and within a fold in the order of the log.

        It is a copy, unless they are in this order already, as with blocks of rows.
        """
        fold = self.fold
        assert fold is not None
        starts, places = np.empty(int(fold.max(initial=0)) + 2, np.int64), np.empty(len(fold), np.int64)
        order.sort_by_group(fold, starts, places)
        if (fold[:-1] <= fold[1:]).all():
            return replace(self, fold_starts=starts)
        return replace(self.take(places), fold_starts=starts)

    def take(self, places: Ints) -> Batch:
        """Return a copy of the events at these places."""
        assert self.lists is None  # nothing takes rankings apart
        context = self.context
        return replace(
            self,
            rows=places + self.rows if isinstance(self.rows, int) else gathered(self.rows, places),
            action=gathered(self.action, places),
            reward=gathered(self.reward, places),
            propensity=gathered(self.propensity, places),
            context=context.take(places) if isinstance(context, Csr | Coded) else _gathered_context(context, places),
            columns=self.columns.take(pa.array(places)) if self.columns.num_columns else self.columns,
            fold=None if self.fold is None else gathered(self.fold, places),
            keys=None if self.keys is None else gathered(self.keys, places),
            row_weight=None if self.row_weight is None else gathered(self.row_weight, places),
            more_rewards={name: gathered(reward, places) for name, reward in self.more_rewards.items()},
            propensities=None if self.propensities is None else gathered(self.propensities, places),
            mixture=None if self.mixture is None else gathered(self.mixture, places),
            candidates=None if self.candidates is None else self.candidates.take(places),
            eligible=None if self.eligible is None else self.eligible.take(places),
            fold_starts=None,
            scratch={},
            seen={},
        )


def gathered(values: NDArray[Any], places: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return a read-only copy of the values, or rows of values, at these places. An array that is empty stays so."""
    if not len(values):
        return values
    out = np.empty((len(places), *values.shape[1:]), values.dtype) if out is None else out
    if values.ndim == 1:
        order.gather(np.ascontiguousarray(values), places, out)
    else:
        np.take(values, places, axis=0, out=out, mode="clip")  # mode="raise" would copy `out`
    out.flags.writeable = False  # several policies see it
    return out


def _gathered_context(context: list[NDArray[Any]] | NDArray[Any], places: Ints) -> list[NDArray[Any]] | NDArray[Any]:
    if not isinstance(context, list):
        return gathered(context, places)
    sizes = [-(-column.itemsize * len(places) // 8) * 8 for column in context]  # whole words, for aligned columns
    space = np.empty(sum(sizes), np.uint8)  # malloc keeps one large piece for the next batch; small ones it gives back
    found, first = [], 0
    for column, size in zip(context, sizes, strict=True):
        piece = space[first : first + column.itemsize * len(places)]
        found.append(gathered(column, places, piece.view(column.dtype)))
        first += size
    return found


def _encoded(batch: Batch, encoding: Encoding) -> Context:
    try:
        return encoding.read(batch.columns)
    except BadRowsError as bad:
        raise bad.error(batch.columns, batch.where) from None


@dataclass
class Block:
    """Consecutive events of a batch, so few that the arrays computed for them stay in cache."""

    batch: Batch
    start: int
    stop: int
    _features: dict[Any, NDArray[Any]] = field(default_factory=dict, repr=False)  # by type
    _matrix: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.stop - self.start

    @cached_property
    def action(self) -> NDArray[np.int32]:
        return self.batch.action[self.start : self.stop]

    @cached_property
    def reward(self) -> Floats:
        return self.batch.reward[self.start : self.stop]

    @cached_property
    def propensity(self) -> Floats:
        return self.batch.propensity[self.start : self.stop]

    @property
    def propensities(self) -> Floats:
        """The propensities (n, K) of all actions. The pass must read them."""
        assert self.batch.propensities is not None
        return self.batch.propensities[self.start : self.stop]

    @property
    def mixture(self) -> Floats:
        """Propensities of all loggers together. The pass must read them."""
        assert self.batch.mixture is not None
        return self.batch.mixture[self.start : self.stop]

    @cached_property
    def candidates(self) -> Offered:
        """What each event could choose from. The pass must read it."""
        assert self.batch.candidates is not None
        return self.batch.candidates.rows(self.start, self.stop)

    @property
    def lists(self) -> Lists:
        """The lists of rankings. The log must be one of rankings."""
        assert self.batch.lists is not None
        return self.batch.lists.events(self.start, self.stop)

    @cached_property
    def eligible(self) -> Sets | None:
        """The actions that each event could choose from; None if all could choose any."""
        return None if self.batch.eligible is None else self.batch.eligible.rows(self.start, self.stop)

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

    @property
    def row_weight(self) -> Floats:
        """The number of rows that each row stands for. The log must be down-sampled."""
        assert self.batch.row_weight is not None
        return self.batch.row_weight[self.start : self.stop]

    @property
    def fold(self) -> Ints:
        """The fold of each event. The pass must have folds."""
        assert self.batch.fold is not None
        return self.batch.fold[self.start : self.stop]

    @property
    def rows(self) -> Ints:
        """The row numbers of the events in the log."""
        return self.batch.numbers[self.start : self.stop]

    def pieces(self, rows: int) -> Iterator[Block]:
        for start in range(self.start, self.stop, rows):
            yield Block(self.batch, start, min(start + rows, self.stop))

    def take(self, events: Ints) -> Block:
        """Return a copy of these events."""
        return Block(self.batch.take(events + self.start), 0, len(events))

    def column(self, name: str) -> pa.Array:
        return self.batch.columns.column(name).slice(self.start, len(self))

    def where(self, i: int) -> str:
        """Return where event i is stored, for messages."""
        return self.batch.where(self.start + i)

    def seen_by(self, encoding: Encoding) -> Block:
        """Return the same events with contexts in this encoding. The batch must have the columns that it names."""
        batch, key = self.batch, id(encoding)
        if key not in batch.seen:
            batch.seen[key] = encoding, _encoded(batch, encoding)
        scratch = batch.scratch.setdefault(("seen", key), {})
        there = replace(batch, context=batch.seen[key][1], n_features=encoding.n_features, scratch=scratch)
        return Block(there, self.start, self.stop)

    @property
    def sparse(self) -> Csr | None:
        """Sparse contexts; None if contexts are dense. `features` is for dense contexts only."""
        context = self.batch.context
        return context.rows(self.start, self.stop) if isinstance(context, Csr) else None

    @property
    def matrix(self) -> Any:
        """Contexts (n, d) for a policy's code, in the log's type. Sparse contexts are a csr_array."""
        if self._matrix is None:
            context = self.batch.context
            if isinstance(context, Csr):
                self._matrix = context.rows(self.start, self.stop).array()
            elif isinstance(context, np.ndarray):
                self._matrix = context[self.start : self.stop]
            elif isinstance(context, Coded):
                matrix = context.matrix(self.start, self.stop)
                matrix.flags.writeable = False
                self._matrix = matrix
            else:
                kind = np.result_type(*context) if context else np.float64
                matrix = np.empty((len(context), len(self)), kind).T
                for j, column in enumerate(context):
                    matrix[:, j] = column[self.start : self.stop]
                matrix.flags.writeable = False  # other policies see it too
                self._matrix = matrix  # set when complete: another thread may look
        return self._matrix

    @property
    def features(self) -> Floats:
        """Contexts (d, n) in float64, feature by feature, for BLAS. The next block of the batch overwrites them."""
        return self.features_as(np.dtype(np.float64))

    def features_as(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return contexts (d, n) in float32 or float64. The next block of the batch overwrites them."""
        if kind not in self._features:
            context, scratch = self.batch.context, self.batch.scratch
            assert not isinstance(context, Csr)
            size = self.batch.n_features * len(self)
            if kind not in scratch or len(scratch[kind]) < size:
                scratch[kind] = np.empty(size, kind)  # once per batch: for each block it would cost 10 ns an event
            found = scratch[kind][:size].reshape(-1, len(self))
            if isinstance(context, np.ndarray):
                order.transpose(np.ascontiguousarray(context[self.start : self.stop]), found)
            elif isinstance(context, Coded):
                context.fill(self.start, self.stop, found)
            elif context:
                columns = [column[self.start : self.stop] for column in context]
                np.concatenate(columns, out=scratch[kind][:size])  # one call, half the time of one for each column
            self._features[kind] = found
        return self._features[kind]
