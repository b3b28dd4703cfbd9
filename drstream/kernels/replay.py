"""DR-ns, Algorithm 1 of the paper (section 5.3): what it does with one event, and the two loops over events.

`learn` and `learn_sparse` ask a compiled policy for every event, and `eligible.py` has the same for logs with eligible
sets. `replay_given` reads probabilities that a Python policy or a fixed one gave beforehand for some events.

Step t of the simulation ends with the t-th acceptance. The events since the acceptance before it are the paper's B(t).
Here they are called the events of step t. Comments such as "(4)" number the lines of Algorithm 1.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels import masses, quantiles
from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import (
    DOUBLE,
    F4_IN3,
    F8,
    F8_2,
    F8_IN,
    F8_IN2,
    F8_IN3,
    I4_IN,
    I8_IN,
    SINGLE,
    U1_IN3,
    float64,
    function,
    int64,
    named,
    record,
    void,
)
from drstream.kernels.policies import TOLERANCE
from drstream.kernels.sums import two_sum
from drstream.kernels.tallies import EXACT, MASS, REJECTION, SKETCH, Event, accepts, add, load, store, terms_of, track
from drstream.kernels.tiles import TILE

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


class Events(NamedTuple):
    """A chunk of the log, without the contexts."""

    action: Any
    reward: Any
    propensity: Any
    uniform: Any  # u_k
    row: Any  # numbers in the log
    prediction: Any  # r̂ in tiles; those of no action stand for r̂ = 0
    eligible: Any  # in tiles, 1 for actions of an event's set; those of no action stand for no sets
    size: Any  # number of eligible actions; empty without sets


class Rows(NamedTuple):
    """Sparse contexts: row i has values[indptr[i] : indptr[i + 1]] at indices[indptr[i] : indptr[i + 1]]."""

    indptr: Any
    indices: Any
    values: Any


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


class Learner(NamedTuple):
    """A compiled policy at work."""

    state: Any
    initial: Any
    x: Any  # the context of the event; if it is sparse, space for its values
    pi: Any  # π_t(·|x)
    snapshots: Any  # (snapshot_space, S + 1): the state during a step, and the step's weight


EVENTS_TYPE = named(Events, I4_IN, F8_IN, F8_IN, F8_IN, I8_IN, F8_IN3, U1_IN3, I8_IN)
LANE_TYPE = named(
    LaneArrays, record(LANE), quantiles.TRACKER, masses.TRACKER, F8, F8, record(CURVE), record(REPLICATE), F8_2
)
LEARNER_TYPE = named(Learner, F8, F8_IN, F8, F8, F8_2)
PROBABILITIES = void(F8, F8_IN, F8)  # state, x, out
UPDATE = void(F8, F8_IN, int64, float64)  # state, x, action, reward
SPARSE_PROBABILITIES = void(F8, I4_IN, F8_IN, F8)  # state, indices, values, out
SPARSE_UPDATE = void(F8, I4_IN, F8_IN, int64, float64)  # state, indices, values, action, reward


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
def improper(pi):
    total = 0.0
    least = 0.0
    for k in range(pi.shape[0]):
        total += pi[k]
        least = min(least, pi[k])
    return not abs(total - 1.0) <= TOLERANCE or least < 0.0


@inlined
def outside(eligible, i, pi):
    """Whether an action that event i could not choose has a probability."""
    found = False
    if eligible.shape[1] > 0:
        for k in range(pi.shape[0]):
            found |= pi[k] != 0.0 and eligible[i // TILE, k, i % TILE] == 0
    return found


@inlined
def leave_trace(trace, i, s, value, accepted):
    """Write what a grid of simulations wants to know about event i, if there is one and the pilot is over."""
    if trace.shape[0] > 0 and s.pilot == 0:
        trace[i, 0] = s.c
        trace[i, 1] = s.c * value
        trace[i, 2] = accepted


@inlined
def predictions_of(predictions, i, a, pi):
    """r̂(x_i, π) and r̂(x_i, a); 0 without a model."""
    if predictions.shape[1] == 0:
        return 0.0, 0.0
    tile = i // TILE
    place = i % TILE
    expected = 0.0
    for k in range(pi.shape[0]):
        expected += pi[k] * predictions[tile, k, place]
    return expected, predictions[tile, a, place]


@helper
def learn_with(events, contexts, rows, within, lane, learner, ask, ask_within, update, update_within, first, last):
    """The loop for either contexts in tiles or sparse rows; the other is None.

    within  Space for the set of an event; None without sets. Then ask and update, which do not take it, are given, else
            ask_within, and one of update and update_within. The others are None.

    Numba removes the code for an argument that is None, so one loop serves all, without a branch.
    """
    s = lane.state[0]
    x = learner.x
    pi = learner.pi
    for i in range(first, last):
        if within is not None:
            for k in range(pi.shape[0]):
                within[k] = events.eligible[i // TILE, k, i % TILE]
        if contexts is not None:
            for j in range(x.shape[0]):
                x[j] = contexts[i // TILE, j, i % TILE]
            if ask is not None:
                ask(learner.state, x, pi)
            if ask_within is not None:
                ask_within(learner.state, x, within, pi)
        if rows is not None:
            start = rows.indptr[i]
            end = rows.indptr[i + 1]
            for j in range(end - start):
                x[j] = rows.values[start + j]
            if ask is not None:
                ask(learner.state, rows.indices[start:end], x[: end - start], pi)
            if ask_within is not None:
                ask_within(learner.state, rows.indices[start:end], x[: end - start], within, pi)
        invalid = improper(pi)
        if within is not None:
            invalid |= outside(events.eligible, i, pi)
        if invalid:
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_of(events.prediction, i, a, pi)
        event = Event(pi[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            if s.snapshot_space > 0:
                for j in range(learner.state.shape[0]):  # a slice's assignment takes 3 s longer to compile
                    learner.snapshots[s.snapshots, j] = learner.state[j]
            if contexts is not None:
                if update is not None:
                    update(learner.state, x, np.int64(a), r)
                if update_within is not None:
                    update_within(learner.state, x, within, np.int64(a), r)
            if rows is not None:
                start = rows.indptr[i]
                end = rows.indptr[i + 1]
                if update is not None:
                    update(learner.state, rows.indices[start:end], x[: end - start], np.int64(a), r)
                if update_within is not None:
                    update_within(learner.state, rows.indices[start:end], x[: end - start], within, np.int64(a), r)
            accept(lane, r, events.row[i])
            if s.t == 0:
                for j in range(learner.state.shape[0]):
                    learner.state[j] = learner.initial[j]
            if s.snapshot_space > 0:
                learner.snapshots[s.snapshots, learner.state.shape[0]] = s.last_weight
                s.snapshots += 1
            if s.replicates == s.most_replicates or (s.snapshot_space > 0 and s.snapshots == s.snapshot_space):
                return i + 1
    return last


_LEARNER = LEARNER_TYPE, function(PROBABILITIES), function(UPDATE), int64, int64


@kernel(
    int64(EVENTS_TYPE, F4_IN3, LANE_TYPE, *_LEARNER),
    int64(EVENTS_TYPE, F8_IN3, LANE_TYPE, *_LEARNER),
    counted=False,
)
def learn(events, contexts, lane, learner, probabilities, update, first, last):
    """Replay events first, ..., last - 1 with a compiled policy. Returns the event after the last one taken.

    It stops early when all replicates are complete, at invalid probabilities, and when `snapshots` is full.
    """
    return learn_with(events, contexts, None, None, lane, learner, probabilities, None, update, None, first, last)


_SPARSE_LEARNER = LEARNER_TYPE, function(SPARSE_PROBABILITIES), function(SPARSE_UPDATE), int64, int64


@kernel(
    int64(EVENTS_TYPE, named(Rows, *SINGLE), LANE_TYPE, *_SPARSE_LEARNER),
    int64(EVENTS_TYPE, named(Rows, *DOUBLE), LANE_TYPE, *_SPARSE_LEARNER),
    counted=False,
)
def learn_sparse(events, rows, lane, learner, probabilities, update, first, last):
    """`learn` for sparse contexts. learner.x has space for the values of any row."""
    return learn_with(events, None, rows, None, lane, learner, probabilities, None, update, None, first, last)


@kernel(int64(EVENTS_TYPE, LANE_TYPE, F8_IN2, int64, int64), counted=False)
def replay_given(events, lane, pi, first, learning):
    """Replay events first, first + 1, ... with probabilities pi (n, K); returns the event after the last one taken.

    With learning = 1 it stops after an acceptance, so that the policy can learn. Then lane.state.step_events is 0.
    """
    s = lane.state[0]
    for j in range(pi.shape[0]):
        i = first + j
        if improper(pi[j]) or outside(events.eligible, i, pi[j]):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_of(events.prediction, i, a, pi[j])
        event = Event(pi[j, a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            accept(lane, r, events.row[i])
            if learning == 1 or s.replicates == s.most_replicates:
                return i + 1
    return first + pi.shape[0]
