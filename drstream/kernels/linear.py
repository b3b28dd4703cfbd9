"""The loop of `replay.learn` for built-in policies with linear scores: it computes scores a tile of events ahead.

An update changes the weights of one action. So after an acceptance, only its scores are computed again. A tile's scores
take half the time of scores event by event, and there is no call for each event.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import F4_IN3, F8, F8_2, F8_3, F8_IN, F8_IN3, int64, named
from drstream.kernels.lanes import LANE_TYPE, accept, consider, leave_trace
from drstream.kernels.learners import HEADER, HIDDEN, descend_with, from_scores
from drstream.kernels.replay import (
    EVENTS_TYPE,
    Learner,
    forget,
    improper,
    keep_state,
    keep_weight,
    must_stop,
    predictions_of,
)
from drstream.kernels.tallies import Event
from drstream.kernels.tiles import TILE, add_products

STEP = 32  # scores are computed again from a multiple of this on: vectorised loops take so many at a time


class LinearLearner(NamedTuple):
    """A policy with linear scores at work."""

    state: Any
    initial: Any
    x: Any  # context of an accepted event
    pi: Any  # π_t(·|x)
    snapshots: Any  # (snapshot_space, S + 1): the state during a step, and the step's weight
    tile: Any  # contexts in float64, (1, d, TILE)
    scores: Any  # (K, TILE)


def learner_for(learner: Learner) -> LinearLearner:
    """The learner of this loop, made from a `replay.Learner`."""
    ahead = {"tile": np.empty((1, len(learner.x), TILE)), "scores": np.empty((len(learner.pi), TILE))}
    return LinearLearner(**learner._asdict(), **ahead)


LINEAR_LEARNER = named(LinearLearner, F8, F8_IN, F8, F8, F8_2, F8_3, F8_2)


@inlined
def _load(contexts, t, tile):
    for j in range(tile.shape[1]):
        for i in range(TILE):
            tile[0, j, i] = contexts[t, j, i]


@inlined
def _score(state, tile, first_action, last_action, first, scores):
    """Scores of some actions, for the events of the tile from `first` on."""
    features = tile.shape[1]
    for k in range(first_action, last_action):
        start = HEADER + k * (features + 1)
        out = scores[k]
        for i in range(first, TILE):
            out[i] = state[start + features]
        add_products(state, start, tile, 0, first, TILE, out)


@helper
def _hide(eligible, t, first_action, last_action, first, scores):
    """Hide the scores of some actions for the events of the tile, number t, that could not choose them."""
    for k in range(first_action, last_action):
        out = scores[k]
        for i in range(first, TILE):
            out[i] = out[i] if eligible[t, k, i] != 0 else HIDDEN


@inlined
def _prepare(eligible, contexts, t, learner):
    """Scores of all actions for the events of tile t."""
    _load(contexts, t, learner.tile)
    _score(learner.state, learner.tile, 0, learner.scores.shape[0], 0, learner.scores)
    if eligible is not None:
        _hide(eligible, t, 0, learner.scores.shape[0], 0, learner.scores)


@inlined
def _probabilities(state, scores, place, size, pi):
    for k in range(pi.shape[0]):
        pi[k] = scores[k, place]
    from_scores(state, pi, size)


@inlined
def _learn_from(events, eligible, i, lane, learner):
    """Learn from the accepted event i, and score its action again or, at the start of a replicate, all of them."""
    s = lane.state[0]
    a = events.action[i]
    actions = learner.scores.shape[0]
    place = i % TILE
    first = place // STEP * STEP
    keep_state(s, learner)
    for j in range(learner.x.shape[0]):
        learner.x[j] = learner.tile[0, j, place]
    descend_with(learner.state, learner.x, np.int64(a), events.reward[i])
    accept(lane, events.reward[i], events.row[i])
    if s.t == 0:
        forget(learner)
        _score(learner.state, learner.tile, 0, actions, first, learner.scores)
    else:
        _score(learner.state, learner.tile, a, a + 1, first, learner.scores)
    if eligible is not None:
        _hide(eligible, i // TILE, 0 if s.t == 0 else a, actions if s.t == 0 else a + 1, place, learner.scores)
    keep_weight(s, learner)


@helper
def learn_with(events, contexts, eligible, lane, learner, first, last):
    """The loop without or with eligible sets in tiles. If they are None, Numba removes the code for them."""
    s = lane.state[0]
    pi = learner.pi
    scored = -1  # the tile that has scores
    for i in range(first, last):
        if i // TILE != scored:
            scored = i // TILE
            _prepare(eligible, contexts, scored, learner)
        size = pi.shape[0]
        if eligible is not None:
            size = events.size[i]
        _probabilities(learner.state, learner.scores, i % TILE, size, pi)
        if improper(pi):
            s.improper = 1
            return i
        a = events.action[i]
        r = events.reward[i]
        expected, logged = predictions_of(events.prediction, i, a, pi)
        event = Event(pi[a], events.propensity[i], expected, logged, r, events.uniform[i], events.row[i])
        accepted = consider(s, lane.tracker[0], lane.mass[0], lane.low, lane.high, event)
        leave_trace(lane.trace, i, s, s.last_value, accepted)
        if accepted:
            _learn_from(events, eligible, i, lane, learner)
            if must_stop(s):
                return i + 1
    return last


@kernel(
    int64(EVENTS_TYPE, F4_IN3, LANE_TYPE, LINEAR_LEARNER, int64, int64),
    int64(EVENTS_TYPE, F8_IN3, LANE_TYPE, LINEAR_LEARNER, int64, int64),
    counted=False,
)
def learn_linear(events, contexts, lane, learner, first, last):
    """Replay events first, ..., last - 1. Returns the event after the last one taken, as `replay.learn` does."""
    return learn_with(events, contexts, None, lane, learner, first, last)


@kernel(
    int64(EVENTS_TYPE, F4_IN3, LANE_TYPE, LINEAR_LEARNER, int64, int64),
    int64(EVENTS_TYPE, F8_IN3, LANE_TYPE, LINEAR_LEARNER, int64, int64),
    counted=False,
)
def learn_linear_eligible(events, contexts, lane, learner, first, last):
    """The same on a log with eligible sets."""
    return learn_with(events, contexts, events.eligible, lane, learner, first, last)
