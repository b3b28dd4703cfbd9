"""The candidates of a log, as far as its types and first rows tell: their features, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from drstream.errors import LogError
from drstream.log.columns import lengths
from drstream.log.context import Contexts
from drstream.log.facts import SourceFacts
from drstream.log.kinds.candidates.columns import (
    ID,
    FeatureColumn,
    Numbered,
    describe_features,
    inner_type,
    pieces_of,
    split_path,
)
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.kinds.candidates.reading import ACTION_IS, CandidateReader, fit_both, with_widths
from drstream.log.schema import Roles

BATCH_BYTES = 1 << 24  # of the features of candidates in a batch, about
SPARSE_WIDTH = 32  # numbers that sparse features of a candidate may take, about
MOST_ROWS, FEWEST_ROWS = 1 << 14, 1 << 10  # of a batch


class CandidateSets:
    """What is known of the candidates of a log."""

    def __init__(self, facts: SourceFacts, roles: Roles) -> None:
        assert roles.candidates is not None
        assert roles.action is not None
        self.facts, self.candidates, self.action = facts, roles.candidates, roles.action

    @property
    def schema(self) -> pa.Schema:
        return self.facts.source.schema

    def pairs(self, contexts: Contexts, interactions: bool) -> Pairs:
        """Return how contexts and features of candidates become one row, for models with shared weights."""
        names = self.features
        if not names:
            raise LogError("the candidates of this log have no features, so no model can tell them apart: name them")
        if interactions and (contexts.sparse or isinstance(names, Numbered)):
            whose = "contexts" if contexts.sparse else "features of candidates"
            raise LogError(
                f"interactions=True multiplies each feature of a context with each of a candidate, and {whose} of this "
                "log are sparse: leave it out, or name dense columns"
            )
        return Pairs(contexts.width, names if isinstance(names, Numbered) else tuple(names), interactions)

    @property
    def ids_type(self) -> pa.DataType | None:
        """The type of candidates' ids, without a dictionary; None if there are none."""
        if self.candidates.ids is None:
            return None
        kind = inner_type(self.schema, self.candidates.ids)
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    @cached_property
    def usual(self) -> float:
        """Number of candidates that the first events have, on average, and at least 1."""
        first = self.facts.first(self.offers(features=False).counting)
        return 1.0 if first is None else max(1.0, float(np.mean(lengths(first.column(0)))))

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a batch: fewer if the first events have very many candidates. So it depends on the log alone."""
        offers = self.offers(features=False)
        width = offers.width if offers.sparse is None else SPARSE_WIDTH
        rows = int(BATCH_BYTES / (self.usual * max(1, width) * offers.kind.itemsize))
        return 1 << (min(max(rows, FEWEST_ROWS), MOST_ROWS).bit_length() - 1)

    @cached_property
    def _pieces(self) -> list[FeatureColumn]:
        return with_widths(pieces_of(self.schema, self.candidates), self.facts)

    @property
    def features(self) -> Sequence[str]:
        """Names of the features of candidates, in their order: price, item.age, z[0]."""
        candidates = self.candidates
        if candidates.items is not None:
            return list(candidates.items.names)
        if candidates.sparse is not None:
            return Numbered(candidates.sparse.indices, int(candidates.sparse.dim))
        return [name for piece in self._pieces for name in piece.names]

    def offers(self, *, features: bool) -> CandidateReader:
        """How the candidates are read."""
        if self._fits_both:
            raise LogError(
                f"action column {self.action!r} could hold ids or positions of candidates: in the first rows, "
                f"each action is both, and not always of the same candidate. Say which it is: {ACTION_IS}"
            )
        found = CandidateReader.of(self.schema, self.candidates, self._pieces)
        return found if features else replace(found, with_features=False)

    @cached_property
    def _fits_both(self) -> bool:
        """Whether nobody said what actions are, and all of the first ones are ids and positions as well."""
        candidates, name, kind = self.candidates, self.action, self.ids_type
        if not candidates.guessed or kind is None or not pa.types.is_integer(kind):
            return False
        column, inner = split_path(self.schema, str(candidates.ids))
        first = self.facts.first([name, column])
        return first is not None and fit_both(first, name, (column, inner))

    def __str__(self) -> str:
        candidates = self.candidates
        lists = candidates.ids or (self._pieces[0].column if self._pieces else candidates.sparse.indices)
        names = self.features
        if candidates.items is not None:
            return (
                f"{lists}, looked up among {len(candidates.items.loaded.features):,} items: {describe_features(names)}"
            )
        return f"{lists}, with {describe_features(names)}"

    @property
    def choice(self) -> str:
        """What an action is, in words."""
        return "the id of a candidate" if self.candidates.action_is == ID else "the position of a candidate, from 0"
