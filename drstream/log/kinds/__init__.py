"""Kinds of logs: what was chosen from what. Each folder says which columns hold that, and how they are read.

What a context is, which further columns there are and which rows belong to a log are no matter of its kind.
"""

from __future__ import annotations

from drstream.log.fields import Field
from drstream.log.kinds.candidates.reading import fields as of_candidates
from drstream.log.kinds.eligible.reading import fields as of_eligible
from drstream.log.kinds.rankings.reading import fields as of_rankings
from drstream.log.kinds.single.reading import fields as of_single
from drstream.log.spec import Needs, Spec


def fields(spec: Spec, needs: Needs) -> list[Field]:
    """How to read what was chosen in a log, with rewards and propensities."""
    roles = spec.roles
    if roles.ranking:
        return of_rankings(spec, needs)
    if roles.candidates is not None:
        return of_candidates(spec, needs)
    return of_single(spec, needs) if roles.eligible is None else of_eligible(spec, needs)
