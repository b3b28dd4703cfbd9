"""What `evaluate` does for states that last: checks before the pass, and what the pass is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drstream.checkpoints import check_folder
from drstream.digests import Digest
from drstream.errors import without_secrets
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.folding import Fold
from drstream.evaluation.identity import identity_of, refuse_unlasting
from drstream.evaluation.outline import Outline
from drstream.evaluation.plan import Gather, Plan
from drstream.evaluation.state import State, normal
from drstream.log import Log, Reader
from drstream.models.binding import ModelInputs
from drstream.policies.base import FixedPolicy


class Kept:
    """Takes the state of a pass that is not written to a file."""

    state: State | None = None


def keeping(
    state: Any, log: Log, chosen: Sequence[Estimator], gather: Gather, inputs: Mapping[str, ModelInputs]
) -> bool:
    """Return whether a state is wanted. Raise an error if the pass has none that lasts."""
    if state is None:
        return False
    if not isinstance(state, Kept):
        check_folder(state, "state", log)
    weighted, modelled = any(e.weight for e in chosen), any(e.needs_model for e in chosen)
    needed = [one.needed(model=modelled, propensity=weighted) for one in inputs.values()]
    refuse_unlasting(log, chosen, gather, needed, ranking=bool(log.roles.ranking))
    return True


def state_of(
    given: Mapping[str, Any],
    log: Log,
    policies: Mapping[str, FixedPolicy],
    inputs: Mapping[str, ModelInputs],
    plans: Sequence[Plan],
    outlines: Sequence[Outline],
    reader: Reader,
) -> State:
    """Return a state without sums, of a pass that is about to begin."""
    from drstream import __version__

    identity = identity_of(given, log, policies, inputs, plans, outlines)
    if any(one.waits for one in inputs.values()) or reader.loggers is not None:  # they depend on the whole log
        found = [[plan.job.models, plan.job.overlaps] for plan in plans]
        identity["fitted"] = Digest.of([found, None if reader.loggers is None else reader.loggers.shares])["sha256"]
    others = {outline.reward: outline.others for outline in outlines}
    about = without_secrets(log.source.name), log.source_rows, others, __version__
    return State(normal(identity), Fold(), *about)
