"""The loop of `replay.learn` for ε-greedy policies with linear scores: everything but the decision is vectorised.

It loads and scores AHEAD events, because an update changes the weights of one action only: after an acceptance, only
that action is scored again. Then it finds the best actions and the terms of WINDOW events. Those stay true until the
next acceptance, and then the next window begins there. A wider window would be found for nothing more often: on common
logs, every tenth event is accepted.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._machine import prefetch, scratch
from drstream.kernels._types import F4_IN3, F8, F8_2, F8_3, F8_IN, F8_IN3, int64, named
from drstream.kernels.lanes import LANE_TYPE, accept, leave_trace
from drstream.kernels.learners import HEADER, HIDDEN, decayed, descend_with, epsilon_greedy_from
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
from drstream.kernels.tallies import DOUBLY_ROBUST, Event, Terms, accepts, add, load, store, terms_of, track
from drstream.kernels.tiles import TILE, add_products, add_products_of_two

AHEAD = 32  # events that are scored ahead: a part of a tile
WINDOW = 8  # events whose best actions are found at once: a vector of the processor
GROUP = 4  # actions that are compared in one step
LINE = 64  # bytes that the processor fetches at once


class GreedyLearner(NamedTuple):
    """An ε-greedy policy at work."""

    state: Any
    initial: Any
    x: Any  # context of an accepted event
    pi: Any  # π_t(·|x)
    snapshots: Any  # (snapshot_space, S + 1): the state during a step, and the step's weight
    contexts: Any  # in float64, (1, d, AHEAD)
    scores: Any  # (a multiple of GROUP, AHEAD); rows after the last action are NaN, which is never the best
    nothing: Any  # predictions if there is no model: zeros (1, K, TILE)
    window: Any  # WINDOW. The compiler would unroll loops of a constant length, and not vectorise them.


GREEDY_LEARNER = named(GreedyLearner, F8, F8_IN, F8, F8, F8_2, F8_3, F8_2, F8_IN3, int64)


class Best(NamedTuple):
    """What a policy that takes the best actions does with the events of a window."""

    top: Any  # the largest score
    ties: Any  # number of actions that have it; 0 if it is NaN or HIDDEN
    chosen: Any  # sum of their r̂


def learner_for(learner: Learner) -> GreedyLearner:
    """The learner of this loop, made from a `replay.Learner`."""
    actions, features = len(learner.pi), len(learner.x)
    scores = np.full((-(-actions // GROUP) * GROUP, AHEAD), np.nan)
    nothing = np.zeros((1, actions, TILE))
    nothing.flags.writeable = False
    contexts = np.empty((1, features, AHEAD))
    return GreedyLearner(**learner._asdict(), contexts=contexts, scores=scores, nothing=nothing, window=WINDOW)


@inlined
def _fetch(x, event, count):
    """Fetch the share of the next tile that so many events have: who comes to it finds it in the cache."""
    size = x.shape[1] * x.itemsize
    for offset in range((event + TILE) * size, (event + TILE + count) * size, LINE):
        prefetch(x, offset)


@inlined
def _fetch_until(contexts, predictions, fetched, end):
    """Fetch for events fetched, ..., end - 1. Returns the first event for which nothing is fetched."""
    while fetched < end:
        _fetch(contexts, fetched, WINDOW)
        _fetch(predictions, fetched, WINDOW)
        fetched += WINDOW
    return fetched


@inlined
def _load(contexts, tile, place, out):
    for j in range(out.shape[1]):
        x = contexts[tile, j]
        for i in range(out.shape[2]):
            out[0, j, i] = x[place + np.uint64(i)]


@inlined
def _score_all(learner, one, two):
    """Scores of all actions, two at a time. `one` and `two` are scratch."""
    state, scores = learner.state, learner.scores
    actions = learner.pi.shape[0]
    features = learner.contexts.shape[1]
    for k in range(0, actions, 2):
        other = min(k + 1, actions - 1)
        start = HEADER + k * (features + 1)
        second = HEADER + other * (features + 1)
        for i in range(scores.shape[1]):
            one[i] = state[start + features]
            two[i] = state[second + features]
        add_products_of_two(state, start, second, learner.contexts, 0, one, two)
        for i in range(scores.shape[1]):
            scores[k, i] = one[i]
        for i in range(scores.shape[1]):
            scores[other, i] = two[i]


@inlined
def _score(state, contexts, action, scores, one):
    features = contexts.shape[1]
    start = HEADER + action * (features + 1)
    for i in range(scores.shape[1]):
        one[i] = state[start + features]
    add_products(state, start, contexts, 0, 0, contexts.shape[2], one)
    for i in range(scores.shape[1]):
        scores[action, i] = one[i]


@inlined
def _hide(eligible, tile, place, first_action, last_action, scores):
    """Hide the scores of some actions for the events ahead that could not choose them."""
    for k in range(first_action, last_action):
        mine = eligible[tile, k]
        for i in range(scores.shape[1]):
            scores[k, i] = scores[k, i] if mine[place + np.uint64(i)] != 0 else HIDDEN


@inlined
def _better(top, ties, chosen, score, r):
    """The best actions, when one more is looked at."""
    above = score > top
    level = score == top
    ties = 1.0 if above else (ties + 1.0 if level else ties)
    chosen = r if above else (chosen + r if level else chosen)
    return max(top, score), ties, chosen


@inlined
def _choose(scores, predictions, tile, place, start, window, best):
    """Find the best actions of a window that starts at a place of the tile; its scores are at `start`."""
    last = predictions.shape[1] - 1
    for i in range(window):
        best.top[i] = scores[0, start + np.uint64(i)]
        best.ties[i] = 0.0
        best.chosen[i] = 0.0
    for k in range(0, scores.shape[0], GROUP):
        a, b, c, d = scores[k], scores[k + 1], scores[k + 2], scores[k + 3]
        r, s = predictions[tile, k], predictions[tile, min(k + 1, last)]
        t, u = predictions[tile, min(k + 2, last)], predictions[tile, min(k + 3, last)]
        for i in range(window):
            x = start + np.uint64(i)
            y = place + np.uint64(i)
            top, ties, chosen = _better(best.top[i], best.ties[i], best.chosen[i], a[x], r[y])
            top, ties, chosen = _better(top, ties, chosen, b[x], s[y])
            top, ties, chosen = _better(top, ties, chosen, c[x], t[y])
            top, ties, chosen = _better(top, ties, chosen, d[x], u[y])
            best.top[i] = top
            best.ties[i] = ties
            best.chosen[i] = chosen
    for i in range(window):
        best.ties[i] = best.ties[i] if best.top[i] != HIDDEN else 0.0


@inlined
def _find_terms(s, events, eligible, learner, first, start, best, terms):
    """`tallies.terms_of` for a window. Its first event is `first` in the chunk and `start` in the scores."""
    epsilon = decayed(learner.state)
    scores = learner.scores
    c = s.c
    robust = s.kind == DOUBLY_ROBUST
    last = first + learner.window
    action, propensity = events.action[first:last], events.propensity[first:last]
    total, gap = events.total[first:last], events.gap[first:last]
    least = epsilon / learner.pi.shape[0]
    for i in range(action.shape[0]):
        place = start + np.uint64(i)
        if eligible is not None:
            least = epsilon / events.size[first + i]
        share = (1.0 - epsilon) / best.ties[i]
        pi = least + (scores[np.uint64(action[i]), place] == best.top[i]) * share
        p = propensity[i]
        w = pi / p
        value = least * total[i] + share * best.chosen[i]
        if robust:
            value += w * gap[i]
        terms.value[i] = value
        terms.weight[i] = w
        terms.chance[i] = c * pi / p
        terms.ratio[i] = p / pi


@inlined
def _without_scores(s, events, eligible, learner, place, i):
    """The terms of event i, whose scores are NaN, and whether its probabilities are valid: with ε = 1 they are."""
    a = events.action[i]
    pi = learner.pi
    size = pi.shape[0]
    if eligible is not None:
        size = events.size[i]
    for k in range(pi.shape[0]):
        pi[k] = learner.scores[k, place]
    epsilon_greedy_from(learner.state, pi, size)
    expected, logged = predictions_of(events.prediction, i, a, pi)
    r, uniform = events.reward[i], events.uniform[i]
    event = Event(pi[a], events.propensity[i], expected, logged, r, uniform, events.row[i])
    return terms_of(s.kind, s.c, event), not improper(pi)


@inlined
def _take(events, eligible, i, base, begin, end, lane, learner, best, terms):
    """Take events i, ..., end - 1 of the window that starts at `begin`, up to the first that is accepted.

    Returns the event after the last one taken, and whether that one was accepted. It stops at invalid probabilities.
    """
    s = lane.state[0]
    if s.events == 0:
        s.first_row = events.row[i]
    tally = load(s)
    accepted = False
    while i < end and not accepted:
        at = i - begin
        now, valid = Terms(terms.value[at], terms.weight[at], terms.chance[at], terms.ratio[at]), True
        if best.ties[at] == 0.0:
            now, valid = _without_scores(s, events, eligible, learner, i - base, i)
        if not valid:
            s.improper = 1
            break
        tally = add(tally, now, events.reward[i])
        track(s.tracking, lane.tracker[0], lane.mass[0], lane.low, lane.high, now)
        accepted = accepts(events.uniform[i], now)
        leave_trace(lane.trace, i, s, now.value, accepted)
        i += 1
    store(s, tally)
    return i, accepted


@inlined
def _learn_from(events, eligible, i, base, lane, learner, one):
    """Learn from the accepted event i, and score its action again. At the start of a replicate, no score is right."""
    s = lane.state[0]
    a = events.action[i]
    place = i - base
    keep_state(s, learner)
    for j in range(learner.x.shape[0]):
        learner.x[j] = learner.contexts[0, j, place]
    descend_with(learner.state, learner.x, np.int64(a), events.reward[i])
    accept(lane, events.reward[i], events.row[i])
    if s.t == 0:
        forget(learner)
    else:
        _score(learner.state, learner.contexts, a, learner.scores, one)
        if eligible is not None:
            _hide(eligible, base // TILE, np.uint64(base % TILE), a, a + 1, learner.scores)
    keep_weight(s, learner)


@helper
def learn_with(events, contexts, eligible, lane, learner, first, last):
    """The loop without or with eligible sets in tiles. If they are None, Numba removes the code for them."""
    s = lane.state[0]
    x = learner.x
    predictions = events.prediction if events.prediction.shape[1] > 0 else learner.nothing
    one, two = scratch(AHEAD, x), scratch(AHEAD, x)
    best = Best(scratch(WINDOW, x), scratch(WINDOW, x), scratch(WINDOW, x))
    terms = Terms(scratch(WINDOW, x), scratch(WINDOW, x), scratch(WINDOW, x), scratch(WINDOW, x))
    scored = -1  # the first event that has scores
    fetched = first
    i = first
    while i < last:
        base = i // AHEAD * AHEAD
        tile = base // TILE if events.prediction.shape[1] > 0 else 0
        place = np.uint64(base % TILE)
        if base != scored:
            scored = base
            _load(contexts, base // TILE, place, learner.contexts)
            _score_all(learner, one, two)
            if eligible is not None:
                _hide(eligible, base // TILE, place, 0, learner.pi.shape[0], learner.scores)
        start = min(i - base, AHEAD - learner.window)
        begin = base + start
        end = min(last, begin + learner.window)
        _choose(learner.scores, predictions, tile, place + np.uint64(start), np.uint64(start), learner.window, best)
        _find_terms(s, events, eligible, learner, begin, np.uint64(start), best, terms)
        fetched = _fetch_until(contexts, events.prediction, fetched, end)
        i, accepted = _take(events, eligible, i, base, begin, end, lane, learner, best, terms)
        if s.improper == 1:
            return i
        if accepted:
            _learn_from(events, eligible, i - 1, base, lane, learner, one)
            scored = -1 if s.t == 0 else scored
            if must_stop(s):
                return i
    return last


_TYPES = [(EVENTS_TYPE, x, LANE_TYPE, GREEDY_LEARNER, int64, int64) for x in (F4_IN3, F8_IN3)]


@kernel(*(int64(*types) for types in _TYPES), counted=False)
def learn_greedy(events, contexts, lane, learner, first, last):
    """Replay events first, ..., last - 1. Returns the event after the last one taken, as `replay.learn` does."""
    return learn_with(events, contexts, None, lane, learner, first, last)


@kernel(*(int64(*types) for types in _TYPES), counted=False)
def learn_greedy_eligible(events, contexts, lane, learner, first, last):
    """The same on a log with eligible sets."""
    return learn_with(events, contexts, events.eligible, lane, learner, first, last)
