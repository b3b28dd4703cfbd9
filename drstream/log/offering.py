"""The candidates of a log: how many features they have, what these are called, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.log.columns import lengths
from drstream.log.contexts import Contexts
from drstream.log.kinds.candidates.columns import (
    ID,
    Numbered,
    Piece,
    describe_features,
    inner_type,
    no_labels,
    pieces_of,
    split_path,
)
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.kinds.candidates.reading import ACTION_IS, Offers, fit_both, with_widths
from drstream.log.spec import ROWS

BATCH_BYTES = 1 << 24  # of the features of candidates in a batch, about
SPARSE_WIDTH = 32  # numbers that sparse features of a candidate may take, about
MOST_ROWS, FEWEST_ROWS = 1 << 14, 1 << 10  # of a batch
PAIR = "the logged candidate"  # the one action of a log of pairs


class Offering(Contexts):
    """The part of a `Log` that is about candidates of its events."""

    @property
    def has_candidates(self) -> bool:
        """Whether each event has candidates of its own. Such a log has no labels of actions."""
        return self.roles.candidates is not None and self.spec.pairs is None

    def pairs(self, interactions: bool = False) -> Self:
        """Return the same log as one with a single action, whose contexts are pairs: [x, z] of the logged candidate.

        Models with shared weights are fitted on it.
        """
        names = self.candidate_features
        if not names:
            raise LogError("the candidates of this log have no features, so no model can tell them apart: name them")
        if interactions and (self.is_sparse or isinstance(names, Numbered)):
            whose = "contexts" if self.is_sparse else "features of candidates"
            raise LogError(
                f"interactions=True multiplies each feature of a context with each of a candidate, and {whose} of this "
                "log are sparse: leave it out, or name dense columns"
            )
        found = Pairs(self.n_features, names if isinstance(names, Numbered) else tuple(names), interactions)
        return self.copy(pairs=found, labels=[PAIR])

    @property
    def is_sparse(self) -> bool:
        """Whether contexts are sparse. Those of pairs are if the features of candidates are."""
        return super().is_sparse or (self.as_pairs is not None and isinstance(self.as_pairs.items, Numbered))

    @property
    def as_pairs(self) -> Pairs | None:
        """How pairs become contexts, if the log is one of pairs."""
        return self.spec.pairs

    @property
    def candidate_ids_type(self) -> pa.DataType | None:
        """The type of candidates' ids, without a dictionary; None if there are none."""
        candidates = self.roles.candidates
        if candidates is None or candidates.ids is None:
            return None
        kind = inner_type(self.source.schema, candidates.ids)
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    @property
    def n_features(self) -> int:
        """Number of features of a context, d, be it that of a pair."""
        return self.context_width if self.as_pairs is None else self.as_pairs.width

    @cached_property
    def usual_candidates(self) -> float:
        """Number of candidates that the first events have, on average, and at least 1."""
        offers = self.offers(features=False)
        assert offers is not None
        first = self.facts.first(offers.counting)
        return 1.0 if first is None else max(1.0, float(np.mean(lengths(first.column(0)))))

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a batch: fewer if the first events have very many candidates. So it depends on the log alone."""
        offers = self.offers(features=False)
        if offers is None:
            return ROWS
        width = offers.width if offers.sparse is None else SPARSE_WIDTH
        rows = int(BATCH_BYTES / (self.usual_candidates * max(1, width) * offers.kind.itemsize))
        return 1 << (min(max(rows, FEWEST_ROWS), MOST_ROWS).bit_length() - 1)

    @cached_property
    def _pieces(self) -> list[Piece]:
        assert self.roles.candidates is not None
        return with_widths(pieces_of(self.source.schema, self.roles.candidates), self.facts)

    @property
    def candidate_features(self) -> Sequence[str]:
        """Names of the features of candidates, in their order: price, item.age, z[0]. None without candidates."""
        candidates = self.roles.candidates
        if candidates is None:
            return []
        if candidates.items is not None:
            return list(candidates.items.names)
        if candidates.sparse is not None:
            return Numbered(candidates.sparse.indices, int(candidates.sparse.dim))
        return [name for piece in self._pieces for name in piece.names]

    def offers(self, *, features: bool) -> Offers | None:
        """How the candidates are read; None if the log has none."""
        candidates = self.roles.candidates
        if candidates is None:
            return None
        self._check_choice()
        found = Offers.of(self.source.schema, candidates, self._pieces)
        return found if features else replace(found, with_features=False)

    def _check_choice(self) -> None:
        """Raise an error if nobody said what actions are, and all of the first ones are ids and positions as well."""
        if self._fits_both:
            raise LogError(
                f"action column {self.roles.action!r} could hold ids or positions of candidates: in the first rows, "
                f"each action is both, and not always of the same candidate. Say which it is: {ACTION_IS}"
            )

    @cached_property
    def _fits_both(self) -> bool:
        candidates, name, kind = self.roles.candidates, self.roles.action, self.candidate_ids_type
        assert candidates is not None
        assert name is not None
        if not candidates.guessed or kind is None or not pa.types.is_integer(kind):
            return False
        column, inner = split_path(self.source.schema, candidates.ids)
        first = self.facts.first([name, column])
        return first is not None and fit_both(first, name, (column, inner))

    def refuse_candidates(self, who: str, instead: str = "") -> None:
        """Raise an error if this is a log of candidates, for who needs one set of actions for all events."""
        if self.has_candidates:
            raise LogError(
                f"{who} needs one set of actions for all events, and this log has {parameter('candidates')}, "
                f"a set for each{instead and '. '}{instead}"
            )

    def _check_labels(self) -> None:
        if self.has_candidates:
            raise no_labels()

    def _shown_candidates(self) -> str:
        candidates = self.roles.candidates
        assert candidates is not None
        lists = candidates.ids or (self._pieces[0].column if self._pieces else candidates.sparse.indices)
        names = self.candidate_features
        if candidates.items is not None:
            return (
                f"{lists}, looked up among {len(candidates.items.loaded.features):,} items: {describe_features(names)}"
            )
        return f"{lists}, with {describe_features(names)}"

    def _shown_choice(self) -> str:
        candidates = self.roles.candidates
        assert candidates is not None
        return "the id of a candidate" if candidates.action_is == ID else "the position of a candidate, from 0"
