"""DR-ns, Algorithm 1 of the paper (section 5.3): one step, and the two loops that call it.

`learn` and `learn_sparse` ask a compiled policy for every event; `replay_block` reads probabilities that a Python
policy, or a fixed one, gave for a block of events.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels import quantiles
from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import (
    F4_IN2,
    F8,
    F8_2,
    F8_IN,
    F8_IN2,
    I4_IN,
    I8_IN,
    float64,
    function,
    int64,
    named,
    record,
    void,
)
from drstream.kernels.sums import two_sum
from drstream.kernels.terms import TOLERANCE

ROUNDING = 1e-12  # where c was found, c w is 1 up to rounding: that is no violation
DOUBLY_ROBUST, DIRECT, REJECTION = 0, 1, 2  # how the value of an event is estimated

LANE = np.dtype(
    [
        # what was asked for
        ("horizon", "i8"),  # T
        ("c_max", "f8"),  # c_1, and never exceeded
        ("kind", "i8"),  # DOUBLY_ROBUST, DIRECT or REJECTION
        ("adaptive", "i8"),  # 1: c is a quantile of Q; 0: it stays at c_max
        ("sketch", "i8"),  # 1: Q is a sketch
        ("carry", "i8"),  # 1: Q is kept when a replicate ends
        ("most_replicates", "i8"),  # then the lane is done; -1: as many as there are
        ("bin_steps", "i8"),  # steps of simulated time to a point of the curve
        ("room", "i8"),  # blocks that `learn` may take down before it returns; 0: it takes none down
        # the replicate under way
        ("t", "i8"),  # events accepted
        ("c", "f8"),
        ("events", "i8"),  # seen
        ("first_row", "i8"),
        ("value", "f8"),  # V; of rejection sampling, the sum of accepted rewards
        ("value_carry", "f8"),  # what rounding took from it
        ("weight", "f8"),  # C
        ("weight_carry", "f8"),
        ("block", "f8"),  # sum of V_k since the last acceptance
        ("block_carry", "f8"),
        ("block_events", "i8"),
        ("block_mass", "f8"),  # sum of (c w - 1)+ since then
        ("last_weight", "f8"),  # c |B| of the block that the last acceptance ended
        ("noted", "i8"),  # blocks taken down in this call
        # over all replicates
        ("replicates", "i8"),  # complete
        ("reported", "i8"),  # of these, in earlier calls
        ("all_events", "i8"),
        ("all_accepted", "i8"),
        ("all_violations", "i8"),  # events with c w > 1
        ("least_reward", "f8"),
        ("largest_reward", "f8"),
        ("largest_weight", "f8"),
        ("improper", "i8"),  # 1: the loop stopped at probabilities that are none
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

# Rows of a lane's curve. First the replicate under way, for each bin of simulated time ...
REWARD, MULTIPLIER, MASS, WEIGHT = range(4)
# ... then all complete replicates: means and co-moments of a bin's reward Σ c V_k, weight Σ c, and average so far.
(
    MEAN_REWARD, MEAN_WEIGHT, M2_REWARD, M2_WEIGHT, CO_MOMENT, MEAN_AVERAGE, M2_AVERAGE, MEAN_C, LEAST_C, LARGEST_C,
    ALL_MASS,
) = range(4, 15)  # fmt: skip
CURVE_ROWS = 15


class Events(NamedTuple):
    """A chunk of the log, row by row; the contexts apart."""

    action: Any
    reward: Any
    propensity: Any
    uniform: Any  # u_k
    row: Any  # numbers in the log
    prediction: Any  # r̂, (n, K); (n, 0) stands for r̂ = 0


class Rows(NamedTuple):
    """Sparse contexts: row i has values[indptr[i] : indptr[i + 1]] at indices[indptr[i] : indptr[i + 1]]."""

    indptr: Any
    indices: Any
    values: Any


class Event(NamedTuple):
    """What the step needs to know of one of them."""

    pi: Any  # π_t(a_k|x_k)
    propensity: Any
    expected: Any  # r̂(x_k, π_t)
    prediction: Any  # r̂(x_k, a_k)
    reward: Any
    uniform: Any
    row: Any


class Lane(NamedTuple):
    """The state of one simulation: a policy, a q and a seed."""

    state: Any  # LANE
    tracker: Any  # Q: quantiles.STATE
    low: Any
    high: Any
    curve: Any  # (CURVE_ROWS, bins)
    replicates: Any  # room for those that end in this chunk: REPLICATE


class Learner(NamedTuple):
    """A compiled policy at work."""

    state: Any
    initial: Any
    x: Any  # the context of the event; where it is sparse, room for its values
    pi: Any  # π_t(·|x)
    notes: Any  # (room, S + 1): the state that a block found, and the block's weight


EVENTS_TYPE = named(Events, I4_IN, F8_IN, F8_IN, F8_IN, I8_IN, F8_IN2)
LANE_TYPE = named(Lane, record(LANE), quantiles.TRACKER, F8, F8, F8_2, record(REPLICATE))
LEARNER_TYPE = named(Learner, F8, F8_IN, F8, F8, F8_2)
PROBABILITIES = void(F8, F8_IN, F8)  # state, x, out
UPDATE = void(F8, F8_IN, int64, float64)  # state, x, action, reward
SPARSE_PROBABILITIES = void(F8, I4_IN, F8_IN, F8)  # state, indices, values, out
SPARSE_UPDATE = void(F8, I4_IN, F8_IN, int64, float64)  # state, indices, values, action, reward


@inlined
def step(s, q, low, high, event):
    """Algorithm 1 for one event: whether it was accepted. s is LANE, q the state of the quantile tracker.

    Records and single arrays, not a Lane: each call with a tuple of arrays counts references to all of them.
    """
    pi = event.pi
    p = event.propensity
    r = event.reward
    if s.events == 0:
        s.first_row = event.row
    s.events += 1
    s.all_events += 1
    w = pi / p
    chance = s.c * pi / p
    value = event.expected
    if s.kind == DOUBLY_ROBUST:
        value += w * (r - event.prediction)  # step (1)
    s.block, error = two_sum(s.block, value)
    s.block_carry += error
    s.block_events += 1
    s.block_mass += max(chance - 1.0, 0.0)
    s.all_violations += chance > 1.0 + ROUNDING
    s.least_reward = min(s.least_reward, r)
    s.largest_reward = max(s.largest_reward, r)
    s.largest_weight = max(s.largest_weight, w)
    if s.adaptive == 1:  # step (4)
        if s.sketch == 1:
            quantiles.insert_roughly(q, low, p / pi)
        else:
            quantiles.insert_exactly(q, low, high, p / pi)
    return event.uniform <= chance and pi > 0.0  # steps (5) and (6)


@helper
def accept(lane, r, row):
    """What follows an acceptance: the sums, the clock, the next multiplier."""
    s = lane.state[0]
    weight = s.c * s.block_events
    reward = r if s.kind == REJECTION else s.c * (s.block + s.block_carry)
    s.value, error = two_sum(s.value, reward)  # step (2), for all events since the last acceptance
    s.value_carry += error
    s.weight, error = two_sum(s.weight, weight)  # step (3)
    s.weight_carry += error
    _note(lane, reward, weight)
    s.last_weight = weight
    s.block = 0.0
    s.block_carry = 0.0
    s.block_events = 0
    s.block_mass = 0.0
    s.all_accepted += 1
    s.t += 1
    if s.t == s.horizon:
        _complete(lane, row)
    elif s.adaptive == 1:  # step (6)(d)
        if s.sketch == 1:
            s.c = quantiles.rough_quantile(lane.tracker[0], lane.low)
        else:
            s.c = quantiles.exact_quantile(lane.tracker[0], lane.low)


@helper
def _average(s):
    if s.kind == REJECTION:
        return (s.value + s.value_carry) / s.t
    return (s.value + s.value_carry) / (s.weight + s.weight_carry)


@helper
def _note(lane, reward, weight):
    """Put step t of the replicate into its curve."""
    s = lane.state[0]
    curve = lane.curve
    b = s.t // s.bin_steps
    curve[REWARD, b] += reward
    curve[MULTIPLIER, b] += s.c
    curve[MASS, b] += s.block_mass
    curve[WEIGHT, b] += weight


@helper
def _complete(lane, row):
    """The replicate is complete: keep it, and begin the next."""
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
    _add_to_curve(lane)
    s.t = 0
    s.c = s.c_max
    s.events = 0
    s.value = 0.0
    s.value_carry = 0.0
    s.weight = 0.0
    s.weight_carry = 0.0
    if s.carry == 0:
        if s.sketch == 1:
            quantiles.clear(lane.tracker[0], lane.low)
        quantiles.start(lane.tracker[0])


@helper
def _add_to_curve(lane):
    """Merge the replicate's curve into those of all (Welford 1962)."""
    s = lane.state[0]
    curve = lane.curve
    n = s.replicates
    total = 0.0
    total_weight = 0.0
    for b in range(curve.shape[1]):
        steps = min(s.bin_steps, s.horizon - b * s.bin_steps)
        reward = curve[REWARD, b]
        weight = 1.0 * steps if s.kind == REJECTION else curve[WEIGHT, b]
        total += reward
        total_weight += weight
        from_reward = reward - curve[MEAN_REWARD, b]
        from_weight = weight - curve[MEAN_WEIGHT, b]
        curve[MEAN_REWARD, b] += from_reward / n
        curve[MEAN_WEIGHT, b] += from_weight / n
        curve[M2_REWARD, b] += from_reward * (reward - curve[MEAN_REWARD, b])
        curve[M2_WEIGHT, b] += from_weight * (weight - curve[MEAN_WEIGHT, b])
        curve[CO_MOMENT, b] += from_reward * (weight - curve[MEAN_WEIGHT, b])
        from_average = total / total_weight - curve[MEAN_AVERAGE, b]
        curve[MEAN_AVERAGE, b] += from_average / n
        curve[M2_AVERAGE, b] += from_average * (total / total_weight - curve[MEAN_AVERAGE, b])
        c = curve[MULTIPLIER, b] / steps
        curve[MEAN_C, b] += (c - curve[MEAN_C, b]) / n
        curve[LEAST_C, b] = min(curve[LEAST_C, b], c)
        curve[LARGEST_C, b] = max(curve[LARGEST_C, b], c)
        curve[ALL_MASS, b] += curve[MASS, b]
        for row in range(MEAN_REWARD):
            curve[row, b] = 0.0


@inlined
def _improper(pi):
    total = 0.0
    least = 0.0
    for k in range(pi.shape[0]):
        total += pi[k]
        least = min(least, pi[k])
    return not abs(total - 1.0) <= TOLERANCE or least < 0.0


@inlined
def _predictions(predictions, i, a, pi):
    """r̂(x_i, π) and r̂(x_i, a); 0 without a model."""
    if predictions.shape[1] == 0:
        return 0.0, 0.0
    expected = 0.0
    for k in range(pi.shape[0]):
        expected += pi[k] * predictions[i, k]
    return expected, predictions[i, a]


@helper
def learn_with(events, contexts, rows, lane, learner, probabilities, update):
    """The loop for contexts (n, d), without rows, or for sparse rows, without contexts.

    Numba leaves out what stands under the test of an argument that is None: there is one loop, and no branch in it.
    """
    s = lane.state[0]
    x = learner.x
    pi = learner.pi
    for i in range(events.action.shape[0]):
        if contexts is not None:
            for j in range(x.shape[0]):
                x[j] = contexts[i, j]
            probabilities(learner.state, x, pi)
        if rows is not None:
            first = rows.indptr[i]
            last = rows.indptr[i + 1]
            values = rows.values[first:last]
            for j in range(values.shape[0]):
                x[j] = values[j]
            probabilities(learner.state, rows.indices[first:last], x[: last - first], pi)
        if _improper(pi):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = _predictions(events.prediction, i, a, pi)
        event = Event(pi[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        if step(s, lane.tracker[0], lane.low, lane.high, event):
            if s.room > 0:
                learner.notes[s.noted, :-1] = learner.state
            if contexts is not None:
                update(learner.state, x, np.int64(a), r)
            if rows is not None:
                first = rows.indptr[i]
                last = rows.indptr[i + 1]
                update(learner.state, rows.indices[first:last], x[: last - first], np.int64(a), r)
            accept(lane, r, events.row[i])
            if s.t == 0:
                learner.state[:] = learner.initial
            if s.room > 0:
                learner.notes[s.noted, -1] = s.last_weight
                s.noted += 1
            if s.replicates == s.most_replicates or (s.room > 0 and s.noted == s.room):
                return i + 1
    return events.action.shape[0]


_LEARNER = LEARNER_TYPE, function(PROBABILITIES), function(UPDATE)


@kernel(
    int64(EVENTS_TYPE, F4_IN2, LANE_TYPE, *_LEARNER),
    int64(EVENTS_TYPE, F8_IN2, LANE_TYPE, *_LEARNER),
)
def learn(events, contexts, lane, learner, probabilities, update):
    """Replay a chunk with a compiled policy; returns how many events were taken before all was done, or one was bad,
    or, where blocks are taken down, there was no more room.
    """
    return learn_with(events, contexts, None, lane, learner, probabilities, update)


@kernel(int64(EVENTS_TYPE, LANE_TYPE, F8_IN2, int64, int64))
def replay_block(events, lane, pi, first, learning):
    """Replay events first, first + 1, ... with probabilities pi (n, K); returns the event after the last one taken.

    With learning = 1 it stops after an acceptance, so that the policy can learn: lane.state.block_events is 0 then.
    """
    s = lane.state[0]
    for j in range(pi.shape[0]):
        i = first + j
        if _improper(pi[j]):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = _predictions(events.prediction, i, a, pi[j])
        event = Event(pi[j, a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        if step(s, lane.tracker[0], lane.low, lane.high, event):
            accept(lane, r, events.row[i])
            if learning == 1 or s.replicates == s.most_replicates:
                return i + 1
    return first + pi.shape[0]
