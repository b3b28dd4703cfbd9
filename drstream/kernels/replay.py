"""The two loops of DR-ns over the events of a chunk. `lanes.py` has Algorithm 1, which they follow event by event.

`learn` and `learn_sparse` ask a compiled policy for every event, and `eligible.py` has the same for logs with eligible
sets. `replay_given` reads probabilities that a Python policy or a fixed one gave beforehand for some events.
"""

from typing import Any, NamedTuple

import numpy as np

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
    void,
)
from drstream.kernels.lanes import LANE_TYPE, accept, consider, leave_trace
from drstream.kernels.observe import TOLERANCE
from drstream.kernels.tallies import Event
from drstream.kernels.tiles import TILE


class ReplayEvents(NamedTuple):
    """A chunk of the log, without the contexts."""

    action: Any
    reward: Any
    propensity: Any
    uniform: Any  # u_k
    row: Any  # numbers in the log
    prediction: Any  # r̂ in tiles; those of no action stand for r̂ = 0
    total: Any  # sum of r̂ over all actions
    gap: Any  # r - r̂ of the logged action
    eligible: Any  # in tiles, 1 for actions of an event's set; those of no action stand for no sets
    size: Any  # number of eligible actions; empty without sets


class Rows(NamedTuple):
    """Sparse contexts: row i has values[indptr[i] : indptr[i + 1]] at indices[indptr[i] : indptr[i + 1]]."""

    indptr: Any
    indices: Any
    values: Any


class Learner(NamedTuple):
    """A compiled policy at work."""

    state: Any
    initial: Any
    x: Any  # the context of the event; if it is sparse, space for its values
    pi: Any  # π_t(·|x)
    snapshots: Any  # (snapshot_space, S + 1): the state during a step, and the step's weight


EVENTS_TYPE = named(ReplayEvents, I4_IN, F8_IN, F8_IN, F8_IN, I8_IN, F8_IN3, F8_IN, F8_IN, U1_IN3, I8_IN)
LEARNER_TYPE = named(Learner, F8, F8_IN, F8, F8, F8_2)
PROBABILITIES = void(F8, F8_IN, F8)  # state, x, out
UPDATE = void(F8, F8_IN, int64, float64)  # state, x, action, reward
SPARSE_PROBABILITIES = void(F8, I4_IN, F8_IN, F8)  # state, indices, values, out
SPARSE_UPDATE = void(F8, I4_IN, F8_IN, int64, float64)  # state, indices, values, action, reward


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


@inlined
def keep_state(s, learner):
    """Copy the state of the policy before it learns, if copies are wanted."""
    if s.snapshot_space > 0:
        for j in range(learner.state.shape[0]):  # a slice's assignment takes 3 s longer to compile
            learner.snapshots[s.snapshots, j] = learner.state[j]


@inlined
def keep_weight(s, learner):
    """Add to the copy the weight of the step that the acceptance ended."""
    if s.snapshot_space > 0:
        learner.snapshots[s.snapshots, learner.state.shape[0]] = s.last_weight
        s.snapshots += 1


@inlined
def forget(learner):
    """At the start of a replicate, the state is the initial one."""
    for j in range(learner.state.shape[0]):
        learner.state[j] = learner.initial[j]


@inlined
def must_stop(s):
    """Whether all replicates are complete, or the space for copies of the state is full."""
    return s.replicates == s.most_replicates or (s.snapshot_space > 0 and s.snapshots == s.snapshot_space)


# The loop for compiled policies. Numba removes the code for an argument that is None, so one loop serves all logs,
# without a branch:
#
# contexts, rows         Contexts in tiles, or sparse rows; the other is None.
# within                 Space for the set of an event; None without sets.
# ask, ask_within        Without and with sets; the other is None.
# update, update_within  One of them, with sets; without them, `update`. The other is None.


@inlined
def _ask(events, contexts, rows, within, learner, ask, ask_within, i):
    """Ask the policy for its probabilities for event i. Returns whether they are valid."""
    x = learner.x
    pi = learner.pi
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
    if within is not None:
        return not (improper(pi) or outside(events.eligible, i, pi))
    return not improper(pi)


@inlined
def _teach(events, contexts, rows, within, learner, update, update_within, i):
    """Let the policy learn from event i, whose context `_ask` has left in learner.x."""
    x = learner.x
    a = np.int64(events.action[i])
    r = events.reward[i]
    if contexts is not None:
        if update is not None:
            update(learner.state, x, a, r)
        if update_within is not None:
            update_within(learner.state, x, within, a, r)
    if rows is not None:
        start = rows.indptr[i]
        end = rows.indptr[i + 1]
        if update is not None:
            update(learner.state, rows.indices[start:end], x[: end - start], a, r)
        if update_within is not None:
            update_within(learner.state, rows.indices[start:end], x[: end - start], within, a, r)


@helper
def learn_with(events, contexts, rows, within, lane, learner, ask, ask_within, update, update_within, first, last):
    s = lane.state[0]
    pi = learner.pi
    for i in range(first, last):
        if not _ask(events, contexts, rows, within, learner, ask, ask_within, i):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_of(events.prediction, i, a, pi)
        event = Event(pi[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            keep_state(s, learner)
            _teach(events, contexts, rows, within, learner, update, update_within, i)
            accept(lane, r, events.row[i])
            if s.t == 0:
                forget(learner)
            keep_weight(s, learner)
            if must_stop(s):
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
