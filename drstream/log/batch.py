"""Events as read-only NumPy views: batches of exactly 65,536 rows of a part, and blocks of them that fit into cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.log.source import Place
from drstream.log.sparse import Csr
from drstream.types import Floats, Ints

ROWS = 65_536


@dataclass
class Batch:
    """Consecutive events of one part, as arrays. They are read-only views where Arrow's memory allows it."""

    place: Place  # where the part is stored
    rows: Ints | int  # row number of each event, or of the first if no row was left out
    action: NDArray[np.int32]
    reward: Floats
    propensity: Floats  # empty if the log has none
    context: list[NDArray[Any]] | NDArray[Any] | Csr  # d columns, one (n, d) array, or sparse rows
    n_features: int
    columns: pa.RecordBatch  # columns that policies and models read
    fold: Ints | None = None  # fold of each event, if models are fitted by fold
    keys: NDArray[np.uint64] | None = None  # key of each event's cluster, if events are clustered
    row_weight: Floats | None = None  # number of rows that each row stands for, in a down-sampled log
    more_rewards: dict[str, Floats] = field(default_factory=dict)  # by column, for a log with several rewards
    propensities: Floats | None = None  # of all actions (n, K), if they are read
    scratch: Floats = field(default_factory=lambda: np.empty(0), repr=False)  # space for the features of a block

    def __len__(self) -> int:
        return len(self.reward)

    def for_reward(self, name: str) -> Batch:
        """Return the same events with another reward of the log."""
        return replace(self, reward=self.more_rewards[name]) if name in self.more_rewards else self

    def row_number(self, i: int) -> int:
        """Return the row number of event i in the log."""
        return int(self.rows + i if isinstance(self.rows, int) else self.rows[i])

    def where(self, i: int) -> str:
        return self.place.of_row(self.row_number(i))

    def blocks(self, rows: int) -> Iterator[Block]:
        for start in range(0, len(self), rows):
            yield Block(self, start, min(start + rows, len(self)))


@dataclass
class Block:
    """Consecutive events of a batch, so few that the arrays computed for them stay in cache."""

    batch: Batch
    start: int
    stop: int
    _features: Floats | None = field(default=None, repr=False)
    _matrix: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def action(self) -> NDArray[np.int32]:
        return self.batch.action[self.start : self.stop]

    @property
    def reward(self) -> Floats:
        return self.batch.reward[self.start : self.stop]

    @property
    def propensity(self) -> Floats:
        return self.batch.propensity[self.start : self.stop]

    @property
    def propensities(self) -> Floats:
        """The propensities (n, K) of all actions. The pass must read them."""
        assert self.batch.propensities is not None
        return self.batch.propensities[self.start : self.stop]

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
        numbers = self.batch.rows
        if isinstance(numbers, int):
            return np.arange(numbers + self.start, numbers + self.stop)
        return numbers[self.start : self.stop]

    def pieces(self, rows: int) -> Iterator[Block]:
        for start in range(self.start, self.stop, rows):
            yield Block(self.batch, start, min(start + rows, self.stop))

    def take(self, events: Ints) -> Block:
        """Return a copy of these events."""
        places = events + self.start
        batch, context = self.batch, self.batch.context
        if isinstance(context, list):
            context = [column[places] for column in context]
        else:
            context = context.take(places) if isinstance(context, Csr) else context[places]
        taken = replace(
            batch,
            rows=self.rows[events],
            action=batch.action[places] if len(batch.action) else batch.action,
            reward=batch.reward[places],
            propensity=batch.propensity[places] if len(batch.propensity) else batch.propensity,
            context=context,
            columns=batch.columns.take(pa.array(places)) if batch.columns.num_columns else batch.columns,
            fold=None if batch.fold is None else batch.fold[places],
            keys=None,
            row_weight=None,
            more_rewards={},
            propensities=None,
            scratch=np.empty(0),
        )
        return Block(taken, 0, len(events))

    def column(self, name: str) -> pa.Array:
        return self.batch.columns.column(name).slice(self.start, len(self))

    def where(self, i: int) -> str:
        """Return where event i is stored, for messages."""
        return self.batch.where(self.start + i)

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
        if self._features is None:
            context = self.batch.context
            assert not isinstance(context, Csr)
            size = self.batch.n_features * len(self)
            if len(self.batch.scratch) < size:  # once per batch: fresh memory for each block would cost 10 ns per event
                self.batch.scratch = np.empty(size)
            self._features = self.batch.scratch[:size].reshape(-1, len(self))
            if isinstance(context, np.ndarray):
                np.copyto(self._features, context[self.start : self.stop].T)
            elif context:
                columns = [column[self.start : self.stop] for column in context]
                np.concatenate(columns, out=self.batch.scratch[:size])  # one call, half the time of one for each column
        return self._features
