"""DR-ns, Algorithm 1 of the paper (section 5.3): the state of one simulation, and what one event does to it.

Step t of the simulation ends with the t-th acceptance. The events since the acceptance before it are the paper's B(t).
Here they are called the events of step t. Comments such as "(4)" number the lines of Algorithm 1. `tallies.py` has the
terms of one event.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels import masses, quantiles
from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import F8, F8_2, named, record, void
from drstream.kernels.sums import two_sum
from drstream.kernels.tallies import EXACT, MASS, REJECTION, SKETCH, accepts, add, load, store, terms_of, track

LANE = np.dtype(
    [
        # options
        ("horizon", "i8"),  # T
        ("c_max", "f8"),  # c_1, and the upper limit of c
        ("kind", "i8"),  # DOUBLY_ROBUST, DIRECT or REJECTION
        ("tracking", "i8"),  # CONSTANT, EXACT, SKETCH or MASS
        ("carry", "i8"),  # 1: Q is kept when a replicate ends
        ("most_replicates", "i8"),  # the lane is done after these; -1: no limit
        ("bin_steps", "i8"),  # steps of simulated time that a point of the curve covers
        ("snapshot_space", "i8"),  # states of the policy that `learn` may copy before it returns; 0: it copies none
        # the replicate under way
        ("t", "i8"),  # events accepted
        ("c", "f8"),
        ("events", "i8"),  # seen
        ("first_row", "i8"),
        ("value", "f8"),  # V; for rejection sampling, the sum of accepted rewards
        ("value_carry", "f8"),  # what rounding took from `value`
        ("weight", "f8"),  # C
        ("weight_carry", "f8"),
        ("step_value", "f8"),  # sum of V_k since the last acceptance
        ("step_value_carry", "f8"),
        ("step_events", "i8"),  # |B|
        ("step_mass", "f8"),  # sum of (c w - 1)+ since the last acceptance
        ("step_importance", "f8"),  # sum of c w since the last acceptance
        ("last_value", "f8"),  # V_k of the last event
        ("last_weight", "f8"),  # c |B| of the step that the last acceptance ended
        ("snapshots", "i8"),  # states copied in this call
        # the pilot, which is the first replicate and does not count
        ("pilot", "i8"),  # 1: it is under way
        ("pilot_horizon", "i8"),  # steps after which it ends
        ("pilot_events", "i8"),
        ("pilot_accepted", "i8"),
        ("pilot_violations", "i8"),
        # over all replicates; events, acceptances and violations include those of the pilot
        ("replicates", "i8"),  # complete
        ("reported", "i8"),  # complete replicates of earlier calls
        ("all_events", "i8"),
        ("all_accepted", "i8"),
        ("all_violations", "i8"),  # events with c w > 1
        ("least_reward", "f8"),
        ("largest_reward", "f8"),
        ("largest_weight", "f8"),
        ("improper", "i8"),  # 1: the loop stopped at invalid probabilities
    ],
    align=True,
)

REPLICATE = np.dtype(
    [
        ("cumulative", "f8"),  # V
        ("average", "f8"),  # V / C
        ("weight", "f8"),  # C
        ("steps", "i8"),  # T
        ("events", "i8"),
        ("first_row", "i8"),
        ("last_row", "i8"),
    ],
    align=True,
)

CURVE = np.dtype(  # a bin of simulated time: `bin_steps` steps
    [
        # the replicate under way
        ("reward", "f8"),  # Σ c V_k
        ("multiplier", "f8"),  # sum of c over the steps
        ("mass", "f8"),  # sum of (c w - 1)+
        ("importance", "f8"),  # sum of c w
        ("weight", "f8"),  # Σ c
        # all complete replicates: means and co-moments of a bin's reward and weight, and of the average so far
        ("mean_reward", "f8"),
        ("mean_weight", "f8"),
        ("m2_reward", "f8"),
        ("m2_weight", "f8"),
        ("co_moment", "f8"),
        ("mean_average", "f8"),
        ("m2_average", "f8"),
        ("mean_c", "f8"),
        ("least_c", "f8"),
        ("largest_c", "f8"),
        ("all_mass", "f8"),
        ("all_importance", "f8"),
    ],
    align=True,
)


class LaneArrays(NamedTuple):
    """The state of a lane: one simulation, with a policy, a q and a seed."""

    state: Any  # LANE
    tracker: Any  # Q: quantiles.STATE
    mass: Any  # masses.STATE
    low: Any  # space of the tracker in use
    high: Any
    curve: Any  # CURVE, for each bin
    replicates: Any  # REPLICATE, with space for those that end in this chunk
    trace: Any  # (n, 3): c, c V_k and 1 if it was accepted, of each event, if someone wants them; else (0, 3)


LANE_TYPE = named(
    LaneArrays, record(LANE), quantiles.TRACKER, masses.TRACKER, F8, F8, record(CURVE), record(REPLICATE), F8_2
)


@inlined
def consider(s, q, mass, low, high, event):
    """Algorithm 1 for one event. Returns whether it was accepted. s is LANE, q and mass are the states of trackers.

    It takes records and single arrays, because a call with LaneArrays would count references to all its arrays.
    """
    if s.events == 0:
        s.first_row = event.row
    terms = terms_of(s.kind, s.c, event)
    store(s, add(load(s), terms, event.reward))
    track(s.tracking, q, mass, low, high, terms)
    return accepts(event.uniform, terms)


@helper
def accept(lane, r, row):
    """Update the sums, the clock t and the multiplier after an acceptance."""
    s = lane.state[0]
    weight = s.c * s.step_events
    reward = r if s.kind == REJECTION else s.c * (s.step_value + s.step_value_carry)
    s.value, error = two_sum(s.value, reward)  # (2), for all events since the last acceptance
    s.value_carry += error
    s.weight, error = two_sum(s.weight, weight)  # (3)
    s.weight_carry += error
    bin = lane.curve[s.t // s.bin_steps]
    bin.reward += reward
    bin.multiplier += s.c
    bin.mass += s.step_mass
    bin.importance += s.step_importance
    bin.weight += weight
    s.last_weight = weight
    _begin_step(s)
    s.all_accepted += 1
    s.t += 1
    if s.tracking == MASS:
        s.c = masses.multiplier(lane.mass[0], lane.low, lane.high)
    if s.pilot == 1:
        if s.t == s.pilot_horizon:
            _end_pilot(lane)
    elif s.t == s.horizon:
        _complete(lane, row)
    elif s.tracking == EXACT:  # (6)(d)
        s.c = quantiles.exact_quantile(lane.tracker[0], lane.low)
    elif s.tracking == SKETCH:
        s.c = quantiles.rough_quantile(lane.tracker[0], lane.low)


@helper
def _begin_step(s):
    s.step_value = 0.0
    s.step_value_carry = 0.0
    s.step_events = 0
    s.step_mass = 0.0
    s.step_importance = 0.0


@helper
def _average(s):
    if s.kind == REJECTION:
        return (s.value + s.value_carry) / s.t
    return (s.value + s.value_carry) / (s.weight + s.weight_carry)


@helper
def _complete(lane, row):
    """Keep the complete replicate, and begin the next."""
    s = lane.state[0]
    out = lane.replicates[s.replicates - s.reported]
    out.cumulative = s.value + s.value_carry
    out.average = _average(s)
    out.weight = s.weight + s.weight_carry
    out.steps = s.t
    out.events = s.events
    out.first_row = s.first_row
    out.last_row = row
    s.replicates += 1
    _add_to_curve(s, lane.curve)
    _begin(lane)


@helper
def _begin(lane):
    """Begin a replicate. With a target of the bias mass, c is the one that was found so far, and Q is not used."""
    s = lane.state[0]
    s.t = 0
    s.events = 0
    s.value = 0.0
    s.value_carry = 0.0
    s.weight = 0.0
    s.weight_carry = 0.0
    for b in range(lane.curve.shape[0]):
        bin = lane.curve[b]
        bin.reward = 0.0
        bin.multiplier = 0.0
        bin.mass = 0.0
        bin.importance = 0.0
        bin.weight = 0.0
    if s.tracking == MASS:
        return
    s.c = s.c_max
    if s.carry == 0:
        if s.tracking == SKETCH:
            quantiles.clear(lane.tracker[0], lane.low)
        quantiles.start(lane.tracker[0])


@helper
def _end_pilot(lane):
    s = lane.state[0]
    s.pilot = 0
    s.pilot_events = s.all_events
    s.pilot_accepted = s.all_accepted
    s.pilot_violations = s.all_violations
    _begin(lane)


@kernel(void(LANE_TYPE), counted=False)
def end_pilot(lane):
    """End the pilot before its T steps are complete. The next event begins the first replicate."""
    s = lane.state[0]
    _begin_step(s)
    s.c = masses.multiplier(lane.mass[0], lane.low, lane.high)
    _end_pilot(lane)


@helper
def _add_to_curve(s, curve):
    """Add the replicate to the means and co-moments of the curve (Welford 1962)."""
    n = s.replicates
    total = 0.0
    total_weight = 0.0
    for b in range(curve.shape[0]):
        bin = curve[b]
        steps = min(s.bin_steps, s.horizon - b * s.bin_steps)
        reward = bin.reward
        weight = 1.0 * steps if s.kind == REJECTION else bin.weight
        total += reward
        total_weight += weight
        from_reward = reward - bin.mean_reward
        from_weight = weight - bin.mean_weight
        bin.mean_reward += from_reward / n
        bin.mean_weight += from_weight / n
        bin.m2_reward += from_reward * (reward - bin.mean_reward)
        bin.m2_weight += from_weight * (weight - bin.mean_weight)
        bin.co_moment += from_reward * (weight - bin.mean_weight)
        from_average = total / total_weight - bin.mean_average
        bin.mean_average += from_average / n
        bin.m2_average += from_average * (total / total_weight - bin.mean_average)
        c = bin.multiplier / steps
        bin.mean_c += (c - bin.mean_c) / n
        bin.least_c = min(bin.least_c, c)
        bin.largest_c = max(bin.largest_c, c)
        bin.all_mass += bin.mass
        bin.all_importance += bin.importance


@inlined
def leave_trace(trace, i, s, value, accepted):
    """Write what a grid of simulations wants to know about event i, if there is one and the pilot is over."""
    if trace.shape[0] > 0 and s.pilot == 0:
        trace[i, 0] = s.c
        trace[i, 1] = s.c * value
        trace[i, 2] = accepted
