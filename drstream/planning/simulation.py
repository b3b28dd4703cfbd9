"""How many replicates a replay will complete on the whole log, measured by replaying a sample over and over.

A sample rarely holds the events of a whole replicate. So lanes go through it several times, each time with other random
numbers, as if it were the log. They have the whole log's limit of the pilot.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from drstream import sampling
from drstream.intervals import t_score, z_score
from drstream.models.binding import ModelInputs
from drstream.planning.result import Simulation
from drstream.planning.sample import Sample, take_sample
from drstream.policies.online import AnyCompiled, Fixed
from drstream.replaying.chunks import Chunk, Spaces
from drstream.replaying.lanes import Lane
from drstream.replaying.needed import FAILURE, events_needed, longest_horizon, replicates_expected
from drstream.replaying.options import ReplayOptions
from drstream.replaying.plan import PILOT_SHARE, Plan, make_plan
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.types import Floats

PRECISE = 0.02  # standard error of the events of a replicate, relative to their mean, at which a lane may stop
LEAST_REPLICATES, MOST_REPLICATES = 20, 100  # a lane stops at the most if it has not gone through the log's events yet
MOST_PASSES = 400
MOST_EVENTS = 8_000_000  # that a lane goes through
MOST_EVENTS_PYTHON = 400_000  # the same if the policy is Python code
CHUNKS_BYTES = 1 << 28  # of all prepared events of a sample
PASS_SEED = 0x9E3779B97F4A7C15  # gives each pass its own random numbers
SPREAD_REPLICATES = 5  # on different events, from which a width is forecast


def simulate(
    sample: Sample, policies: dict[str, Any], inputs: ModelInputs, options: ReplayOptions, workers: Workers, conf: float
) -> tuple[list[Simulation], int]:
    """Forecast the replay of each policy at each level of c. Also return the number of events in the sample."""
    plan = make_plan(sample.log, policies, inputs, options, workers, False)
    sample = _that_fits(sample, plan)
    with execution.one_blas_thread():
        runs = [
            [c for c in plan.chunks(Spaces(), part) if isinstance(c, Chunk)]
            for part in sample.log.parts(plan.reader.columns)
        ]
        chunks = [chunk for run in runs for chunk in run]
        halves = [[chunk for run in runs[half::2] for chunk in run] for half in (0, 1)]
        events = _size(chunks)
        whole = sample.whole_events(events)
        rows = max(round(whole / sample.log.share), 1)  # of a log that has so many events
        lanes, *others = (plan.lanes(threading.Event(), 0, rows) for _ in (chunks, *halves))
        found = []
        for i, lane in enumerate(lanes):
            passes, limited = _measure(lane, chunks, whole)
            for other, half in zip(others, halves, strict=True):
                _measure(other[i], half, whole / 2)
            rates = [_acceptance(one) for one in (lane, *(other[i] for other in others))]
            error = max(_differing(*rates), _missing(lane))
            found.append(_forecast(lane, error, passes, limited, events, whole, conf))
    return found, events


def _size(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk.rows) for chunk in chunks)


def _that_fits(sample: Sample, plan: Plan) -> Sample:
    """A smaller sample, if the events of this one would take too much memory."""
    most = CHUNKS_BYTES // plan.preparation.usual_bytes
    if sample.rows * sample.log.share <= most:
        return sample
    inner = sample.log.source
    whole = sample.log.copy(source=inner.source)  # type: ignore[attr-defined]
    return take_sample(whole, most / sample.log.share / sample.whole_rows)


def _measure(lane: Lane, chunks: Sequence[Chunk], whole: float) -> tuple[float, bool]:
    """Replay the sample until the events of a replicate are known well, or a limit is reached.

    c depends on all events before. So a lane takes as many events as the whole log has, unless these are many.

    Return how often the sample was gone through, and whether the limit was reached.
    """
    compiled = isinstance(lane.policy, AnyCompiled | Fixed)
    most = MOST_EVENTS if compiled else MOST_EVENTS_PYTHON
    taken, number, events = 0, 0, _size(chunks)
    while events:
        for chunk in chunks:
            seed = lane.options.seed
            shifted = sampling.at_rows((seed + PASS_SEED * number) % sampling.SEEDS, chunk.rows.view(np.uint64))
            lane.take(replace(chunk, uniforms={seed: shifted}))
            taken += len(chunk.rows)
            if _precise(lane, taken >= whole):
                return taken / events, False
            if taken >= most or (number + 1 >= MOST_PASSES and chunk is chunks[-1]):
                return taken / events, True
        number += 1
    return 0.0, True


def _events(lane: Lane) -> Floats:
    """Number of events of each complete replicate."""
    return np.concatenate([np.empty(0), *(np.asarray(found["events"], float) for found in lane.complete)])


def _precise(lane: Lane, to_the_end: bool) -> bool:
    if sum(map(len, lane.complete)) < (LEAST_REPLICATES if to_the_end else MOST_REPLICATES):
        return False
    events = _events(lane)
    return bool(events.std(ddof=1) <= PRECISE * events.mean() * math.sqrt(len(events)))


def _acceptance(lane: Lane) -> float:
    """The rate at which events of complete replicates were accepted or, if there are none, all events so far."""
    each, state = _events(lane), lane.state[0]
    if len(each):
        return lane.options.horizon / float(each.mean())
    accepted, events = state.all_accepted, state.all_events
    if events > state.pilot_events:
        accepted, events = accepted - state.pilot_accepted, events - state.pilot_events
    return float(accepted) / float(events) if events else math.nan


def _differing(whole: float, first: float, second: float) -> float:
    """How far the rates on the halves of the sample are from each other, or both from that on all of it."""
    if not whole > 0:
        return math.inf
    return max(abs(first - second) / 2, abs((first + second) / 2 - whole)) / whole


def _missing(lane: Lane) -> float:
    """How far the mean weight is from 1, which it is on the whole log.

    It is smaller if the sample lacks rare events with large weights. These lower c.
    """
    weights = [float(found["weight"].sum()) for found in lane.complete]
    return abs(float(lane.curve.all_importance.sum()) / math.fsum(weights) - 1) if weights else 0.0


def _forecast(
    lane: Lane, error: float, passes: float, limited: bool, sampled: int, whole: float, conf: float
) -> Simulation:
    options, outcome = lane.options, lane.outcome(0, False)
    horizon, each, state = options.horizon, _events(lane), lane.state[0]
    acceptance = _acceptance(lane)
    has_pilot = options.bias is not None
    pilot = float(outcome.pilot_events) if has_pilot and not state.pilot else math.nan if has_pilot else 0.0
    if math.isnan(pilot):  # it is still under way
        pilot = min(horizon / acceptance, whole / PILOT_SHARE) if acceptance > 0 else whole / PILOT_SHARE
    replicates = replicates_expected(max(whole - pilot, 0.0), horizon, acceptance)
    rates = {m: _lower_rate(acceptance, each, horizon, m) for m in (1, 10)}
    one, ten = (_needed(m, horizon, rate, pilot if has_pilot else 0.0) for m, rate in rates.items())
    left = whole * (1 - 1 / PILOT_SHARE) if has_pilot else whole
    return Simulation(
        policy=options.policy,
        bias=math.nan if options.bias is None else options.bias,
        q=options.q,
        seed=options.seed,
        horizon=horizon,
        acceptance=acceptance,
        error=error,
        pilot_events=pilot,
        replicates=replicates,
        events_for_one=one,
        events_for_ten=ten,
        longest_for_one=longest_horizon(1, left, rates[1]),
        longest_for_ten=longest_horizon(10, left, rates[10]),
        width=_width(lane, each, sampled, replicates, conf),
        measured=len(each),
        passes=passes,
        limited=limited,
    )


def _lower_rate(acceptance: float, each: Floats, horizon: int, replicates: int) -> float:
    """A rate that so many replicates reach together with probability 95 %.

    The bound on the number of events takes all replicates to have one rate. But what a policy learns differs, and so
    does its rate: the spread that is left without that of a negative binomial number of events.
    """
    if len(each) < 2:
        return acceptance
    alone = float(each.var(ddof=1)) / float(each.mean()) ** 2
    between = max(alone - (1 - acceptance) / horizon, 0.0)
    return acceptance / (1 + z_score(1 - 2 * FAILURE) * math.sqrt(between / replicates))


def _needed(replicates: int, horizon: int, acceptance: float, pilot: float) -> float:
    """Events that complete so many replicates, with those of a pilot that is not cut off."""
    return events_needed(replicates, horizon, acceptance) + math.ceil(pilot) if acceptance > 0 else math.inf


def _width(lane: Lane, each: Floats, sampled: int, replicates: float, conf: float) -> float:
    """The width of the replay's t interval, if the sample holds enough replicates that share no event; else NaN."""
    apart = int(np.searchsorted(each.cumsum(), sampled, side="right"))
    count = min(round(replicates), sys.maxsize)
    if apart < SPREAD_REPLICATES or count < 2:
        return math.nan
    averages = np.concatenate([found["average"] for found in lane.complete])[:apart]
    return 2 * t_score(conf, count - 1) * float(averages.std(ddof=1)) / math.sqrt(count)
