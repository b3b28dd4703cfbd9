"""The candidates of a log: how many features they have, what these are called, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from drstream.errors import LogError, parameter
from drstream.log.candidates import ID, Piece, describe_features, no_labels, pieces_of
from drstream.log.offered import Offers, with_widths
from drstream.log.schema import Roles
from drstream.log.source import Source


class Offering:
    """The part of a `Log` that is about candidates of its events."""

    source: Source
    roles: Roles

    @property
    def has_candidates(self) -> bool:
        """Whether each event has candidates of its own. Such a log has no labels of actions."""
        return self.roles.candidates is not None

    @cached_property
    def _pieces(self) -> list[Piece]:
        assert self.roles.candidates is not None
        return with_widths(pieces_of(self.source.schema, self.roles.candidates), self.source)

    @property
    def candidate_features(self) -> list[str]:
        """Names of the features of candidates, in their order: price, item.age, z[0]. None without candidates."""
        candidates = self.roles.candidates
        if candidates is None:
            return []
        if candidates.items is not None:
            return list(candidates.items.names)
        return [name for piece in self._pieces for name in piece.names]

    def offers(self, *, features: bool) -> Offers | None:
        """How the candidates are read; None if the log has none."""
        candidates = self.roles.candidates
        if candidates is None:
            return None
        found = Offers.of(self.source.schema, candidates, self._pieces)
        return found if features else replace(found, with_features=False)

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
        lists = candidates.ids or self._pieces[0].column
        names = self.candidate_features
        if candidates.items is not None:
            return (
                f"{lists}, looked up among {len(candidates.items.loaded.features):,} items: {describe_features(names)}"
            )
        return f"{lists}, with {describe_features(names)}"

    def _shown_choice(self) -> str:
        candidates = self.roles.candidates
        assert candidates is not None
        if candidates.action_is == ID:
            return "the id of a candidate"
        return "the position of a candidate, from 0"
