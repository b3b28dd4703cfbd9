"""Rankings of candidates: the shown items are among the candidates of their event, by id or by position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from drstream.kernels import ragged
from drstream.kernels import rankings as kernels
from drstream.log.columns import has_nulls, nulls
from drstream.log.offered import ABSENT, OUTSIDE, TWICE, Offered, Offers, equal_ids, inside, located, whole_numbers
from drstream.log.ragged import flat_lists
from drstream.log.rows import keys_of
from drstream.types import Bools, Ints


@dataclass(frozen=True)
class ShownOffers(Offers):
    """How to read the candidates of a log of rankings. It can be pickled."""

    def read_shown(self, batch: pa.RecordBatch, action: pa.Array) -> tuple[Offered, Ints] | None:
        """Return candidates and the positions of the shown items among them; None if some event is bad.

        action  Its column of lists, without nulls.
        """
        starts = self._starts(batch)
        ids = None if self.ids is None or starts is None else inside(batch, *self.ids)
        if starts is None or (ids is not None and has_nulls(ids)):
            return None
        if ids is not None and located(starts, keys_of(ids), np.empty(0, np.uint64))[1] >= 0:
            return None
        positions, absent = self._shown(starts, ids, *flat_lists(action))
        if absent.any():
            return None
        features = None
        if self.with_features and self.width:
            features = self._features(batch, None if ids is None else keys_of(ids))
            if features is None:
                return None
        return Offered(starts, features, ids), positions

    def _shown(self, starts: Ints, ids: pa.Array | None, of_lists: Ints, items: pa.Array) -> tuple[Ints, Bools]:
        """Return the position of each shown item among the candidates of its event, and which ones have none."""
        if not self.by_id:
            positions = whole_numbers(items)
            sizes = np.repeat(np.diff(starts), np.diff(of_lists))
            return positions, (positions < 0) | (positions >= sizes)
        assert ids is not None
        positions = np.empty(len(items), np.int64)
        kernels.find(starts, keys_of(ids), of_lists, keys_of(items), positions)
        first = np.repeat(starts[:-1], np.diff(of_lists))
        same = equal_ids(ids, first + np.maximum(positions, 0), items)
        return positions, (positions < 0) | ~same

    def _bad_actions(
        self, batch: pa.RecordBatch, whole: pa.RecordBatch, starts: Ints, good: Ints, name: str
    ) -> Iterator[tuple[str, str, Bools]]:
        """Yield the reasons that are about shown items, and candidates that are there twice."""
        twice, absent = np.zeros((2, batch.num_rows), bool)
        ids = None if self.ids is None else inside(whole, *self.ids)
        usable = np.ones(len(good), bool)
        if ids is not None and self.ids is not None:
            null = np.logical_or.reduceat(nulls(ids), starts[:-1]) if len(good) else np.zeros(0, bool)
            out, _ = located(starts, keys_of(ids), np.empty(0, np.uint64))
            usable = ~null & (out != ragged.TWICE)
            twice[good] = ~usable & ~null
            yield TWICE, self.ids[0], twice
        for i in np.flatnonzero(usable & ~nulls(whole.column(name))):  # one by one: this way is for bad rows only
            of_lists, items = flat_lists(whole.column(name).slice(i, 1))
            if items.null_count:
                continue
            own = None if ids is None else ids.slice(starts[i], starts[i + 1] - starts[i])
            _, missing = self._shown(starts[i : i + 2] - starts[i], own, of_lists, items)
            absent[good[i]] = missing.any()
        yield ABSENT if self.by_id else OUTSIDE, name, absent
