"""How a batch becomes observations: rows of numbers by name, which `kernels/account.py` sums up.

A worker has one observer for each part: `actions` (with `linear`, which is compiled, and `categories`), `candidates` or
`rankings`.
"""

from __future__ import annotations

from drstream.evaluation.observe.actions import ActionObserver
from drstream.evaluation.observe.base import Observer
from drstream.evaluation.observe.candidates import CandidateObserver
from drstream.evaluation.observe.rankings import RankingObserver
from drstream.evaluation.plan import Plan


def observer_of(plan: Plan) -> Observer:
    """Return what observes the batches of a plan."""
    if plan.job.ranking:
        return RankingObserver(plan)
    return (CandidateObserver if plan.job.candidates else ActionObserver)(plan)
