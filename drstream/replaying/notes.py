"""Remarks on the result of a replay: what its reader should know before he uses the number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from drstream.errors import NotEnoughEventsError
from drstream.findings import STOP, Finding
from drstream.replaying.options import LaneOptions
from drstream.replaying.outcome import Outcome
from drstream.results import Note

INFLATION = 1.1  # of C over T, which is 1 / (1 - ε) on average; above this a note is made
CUT_OFF = 1 / 3  # share of the replicates that were begun and not completed, above which a note is made


class Run(Protocol):
    """What notes look at in a result of replay."""

    policy: str
    method: str
    horizon: int
    doubts: Sequence[Finding]
    bias: float | str | None
    events: int
    cut_off: int
    pilot_events: int
    pilot_cut: bool
    interrupted: bool
    skipped: dict[str, int]
    _options: LaneOptions
    _outcome: Outcome

    @property
    def complete(self) -> int: ...

    @property
    def stderr(self) -> float: ...

    @property
    def failure(self) -> NotEnoughEventsError: ...

    @property
    def estimated_propensities(self) -> bool: ...


def notes_on(run: Run) -> list[Note]:
    """Warnings and remarks about a result. Each note has a kind."""
    found = [] if run.complete else [Note(str(run.failure), "incomplete", STOP)]
    found += [Note.of(doubt) for doubt in run.doubts if doubt.policy in (None, run.policy)]
    for check in (
        _interrupted,
        _spread,
        _pilot,
        _selection,
        _inflation,
        _smallest,
        _estimated,
        _rewards,
        _sketch,
        _skipped,
    ):
        found += check(run)
    return found


def _interrupted(run: Run) -> Iterator[Note]:
    if run.interrupted:
        yield Note(f"interrupted after {run.events:,} events: only complete replicates are counted", "interrupted")


def _spread(run: Run) -> Iterator[Note]:
    if run.complete == 1:
        yield Note("one replicate only: there is no interval", "one replicate")
    if run.complete > 1 and run.stderr == 0:
        text = "all replicates have the same value: an interval without width does not mean certainty"
        yield Note(text, "no width")


def _pilot(run: Run) -> Iterator[Note]:
    if run.complete and run.pilot_cut:
        yield Note(
            f"the pilot, which sets c, was cut off after {run.pilot_events:,} events, a tenth of the log, before its "
            "steps were complete. So c may still change in the first replicates. Give more events or a shorter horizon",
            "pilot",
        )


def _selection(run: Run) -> Iterator[Note]:
    cut = run.cut_off
    if run.complete and cut > CUT_OFF * (run.complete + cut):
        yield Note(
            f"{run.complete:,} of {run.complete + cut:,} replicates that were begun are complete. Those that end early "
            "are more often complete, so the result may not be typical. Give more events or a shorter horizon",
            "selection",
        )


def _inflation(run: Run) -> Iterator[Note]:
    if not run.complete or run.method == "rs" or run.bias is not None:
        return
    inflation = math.fsum(run._outcome.replicates["weight"]) / run.complete / run.horizon
    if inflation > INFLATION:
        yield Note(
            f"c is too large for this policy: replicates weigh {inflation:.3g} T instead of T, so `cumulative` is "
            "about as much too large, and `value` leans on the first steps: use bias=, a smaller q, or dr-ns-wc",
            "inflation",
        )


def _estimated(run: Run) -> Iterator[Note]:
    if run.estimated_propensities:
        yield Note(
            "the propensities are estimated, but the analysis of replay (section 5 of the paper) assumes exact ones. "
            "Neither the interval nor the bias that is shown allows for their error. Use logged propensities if there "
            "are any",
            "estimated propensities",
        )


def _smallest(run: Run) -> Iterator[Note]:
    if run._options.smallest_logged:
        yield Note(
            f"c is the smallest propensity of the logged events, {run._options.c_max:.4g}. The smallest of all actions "
            "may be smaller, and then some events are accepted too rarely. If you know it, give it as c",
            "smallest propensity",
        )


def _rewards(run: Run) -> Iterator[Note]:
    low, high = run._outcome.rewards
    if run._options.unit_rewards and run.events and not 0 <= low <= high <= 1:
        text = f"the policy takes rewards to lie in [0, 1]; here they lie in [{low:g}, {high:g}]"
        yield Note(text, "reward range")


def _sketch(run: Run) -> Iterator[Note]:
    if run._outcome.sketch_from is not None:
        yield Note(
            f"from row {run._outcome.sketch_from:,} on, c is a sketch's quantile, up to 0.8 % too small: "
            'tracker="exact" keeps all values',
            "sketch",
        )


def _skipped(run: Run) -> Iterator[Note]:
    if run.skipped:
        reasons = ", ".join(f"{n:,} ({why})" for why, n in run.skipped.items())
        yield Note(f"rows skipped: {reasons}", "skipped")
