"""DR-ns over events that have candidates of their own: the two loops of `replay.py`, for rows of different lengths.

The candidates of event i are at starts[i]..starts[i + 1] of all that is flat. What happens with one event, `consider`
and `accept`, is the same.
"""

from typing import Any, NamedTuple

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import F4_IN2, F8, F8_2, F8_IN, F8_IN2, I4_IN, I8_IN, float64, function, int64, named, void
from drstream.kernels.lanes import LANE_TYPE, accept, consider, leave_trace
from drstream.kernels.replay import forget, improper
from drstream.kernels.tallies import Event


class RaggedEvents(NamedTuple):
    """A chunk of the log, without features."""

    action: Any  # the position of the logged candidate
    reward: Any
    propensity: Any
    uniform: Any  # u_k
    row: Any  # numbers in the log
    starts: Any  # (n + 1)
    prediction: Any  # r̂ of all candidates, flat; none stands for r̂ = 0


class SharedLearner(NamedTuple):
    """A compiled policy at work that scores candidates by their features."""

    state: Any
    initial: Any
    z: Any  # features of an event's candidates, with space for those of any event
    pi: Any  # π_t(·|x), likewise


RAGGED_EVENTS = named(RaggedEvents, I4_IN, F8_IN, F8_IN, F8_IN, I8_IN, I8_IN, F8_IN)
SHARED_LEARNER = named(SharedLearner, F8, F8_IN, F8_2, F8)
SHARED_PROBABILITIES = void(F8, F8_IN, F8_IN2, F8)  # state, x, Z, out
SHARED_UPDATE = void(F8, F8_IN, F8_IN, float64)  # state, x, z, reward


@inlined
def predictions_within(predictions, start, a, pi):
    """r̂(x, π) and r̂(x, a) of the event whose candidates begin at `start`; 0 without a model."""
    if predictions.shape[0] == 0:
        return 0.0, 0.0
    expected = 0.0
    for k in range(pi.shape[0]):
        expected += pi[k] * predictions[start + k]
    return expected, predictions[start + a]


_LEARNER = LANE_TYPE, SHARED_LEARNER, function(SHARED_PROBABILITIES), function(SHARED_UPDATE), int64, int64


@kernel(
    int64(RAGGED_EVENTS, F8_IN2, F4_IN2, *_LEARNER),
    int64(RAGGED_EVENTS, F8_IN2, F8_IN2, *_LEARNER),
    counted=False,
)
def learn_ragged(events, contexts, features, lane, learner, probabilities, update, first, last):
    """Replay events first, ..., last - 1 with a compiled policy. Returns the event after the last one taken.

    contexts  (n, d), in float64.
    features  (M, d) of all candidates.

    It stops early when all replicates are complete, and at invalid probabilities.
    """
    s = lane.state[0]
    state = learner.state
    for i in range(first, last):
        start = events.starts[i]
        count = events.starts[i + 1] - start
        for k in range(count):
            for j in range(features.shape[1]):
                learner.z[k, j] = features[start + k, j]
        x = contexts[i]
        pi = learner.pi[:count]
        probabilities(state, x, learner.z[:count], pi)
        if improper(pi):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_within(events.prediction, start, a, pi)
        event = Event(pi[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            update(state, x, learner.z[a], r)
            accept(lane, r, events.row[i])
            if s.t == 0:
                forget(learner)
            if s.replicates == s.most_replicates:
                return i + 1
    return last


@kernel(int64(RAGGED_EVENTS, LANE_TYPE, F8_IN, int64, int64, int64), counted=False)
def replay_given_ragged(events, lane, pi, first, last, learning):
    """Replay events first, ..., last - 1 with their probabilities pi, flat; returns the event after the last one taken.

    With learning = 1 it stops after an acceptance, so that the policy can learn. Then lane.state.step_events is 0.
    """
    s = lane.state[0]
    base = events.starts[first]
    for i in range(first, last):
        start = events.starts[i]
        mine = pi[start - base : events.starts[i + 1] - base]
        if improper(mine):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_within(events.prediction, start, a, mine)
        event = Event(mine[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            accept(lane, r, events.row[i])
            if learning == 1 or s.replicates == s.most_replicates:
                return i + 1
    return last
