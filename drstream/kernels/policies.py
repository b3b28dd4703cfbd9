"""What policies and the model say about a block of events: from scores to ν(a_k|x_k), r̂(x_k, a_k) and r̂(x_k, ν).

A matrix of scores or probabilities has K rows for each policy, one below the other, and a column for each event. It is
float32 or float64, and so are the numbers of an action. The numbers of an event are float64. The work goes tile by
tile, so that the rows of a policy, and of the model, stay in the first-level cache. A block takes few calls, because
each call releases the interpreter's lock and must get it back from other threads.

`bits` are the eligible sets of the events (see `sets.py`), without rows if all events could choose any action. Policies
act on these actions only, and predictions for others do not matter.
"""

import numpy as np

from drstream.kernels._jit import kernel, scratch, uncounted, unordered_helper
from drstream.kernels._types import (
    F4_2,
    F4_IN,
    F4_IN2,
    F8,
    F8_2,
    F8_IN,
    F8_IN2,
    I4_IN,
    I8,
    I8_IN,
    U4_IN2,
    float64,
    int64,
    void,
)
from drstream.kernels.scores import THREE, TILE, choose_tile, exp_tile, logistic_row, word_of
from drstream.kernels.sets import BIT
from drstream.kernels.sums import plain_sum

READY, SOFTMAX, ARGMAX = 0, 1, 2  # what a policy's rows are: probabilities, or scores of a softmax or an argmax
IDENTITY, LOGISTIC = 0, 1  # what turns the scores of a model into predictions
FEW = 32  # actions: for more, it takes longer to look for each
TOLERANCE = 1e-5  # on the sum of a policy's probabilities: float32 softmax over 1,000 actions stays within 3e-6


@uncounted
def _first_invalid(pi, base, actions, bits, first, last, total, mass):
    """The first of the columns first..last whose numbers are no probabilities, or -1. `mass` gains the sums of rows."""
    sums = total[: last - first]
    sums[:] = 0.0
    bad = 0
    for k in range(actions):
        row = pi[base + k][first:last]
        for i in range(row.shape[0]):
            sums[i] += row[i]
            bad |= row[i] < 0
        if bits.shape[0] > 0:
            words, place = word_of(bits, k, first, last)
            for i in range(row.shape[0]):
                bad |= ((words[i] >> place) & BIT == 0) & (row[i] != 0)
        mass[k] += plain_sum(row)
    for i in range(sums.shape[0]):
        bad |= not abs(sums[i] - 1.0) <= TOLERANCE
    if bad == 0:
        return -1
    i = 0
    while abs(sums[i] - 1.0) <= TOLERANCE and not _any_wrong(pi, base, actions, bits, first + i):
        i += 1
    return first + i


@uncounted
def _any_wrong(pi, base, actions, bits, i):
    """Whether a probability of event i is negative, or is not 0 although the action is not eligible."""
    wrong = False
    for k in range(actions):
        wrong = wrong or pi[base + k, i] < 0
        if bits.shape[0] > 0:
            words, place = word_of(bits, k, i, i + 1)
            wrong = wrong or ((words[0] >> place) & BIT == 0 and pi[base + k, i] != 0)
    return wrong


@uncounted
def _expect(pi, base, rhat, first, last, out):
    """out = r̂(x, ν) = sum over a of ν(a|x) r̂(x, a), for the columns first..last."""
    b = out[first:last]
    b[:] = 0.0
    for k in range(rhat.shape[0]):
        probability = pi[base + k][first:last]
        prediction = rhat[k][first:last]
        for i in range(b.shape[0]):
            b[i] += probability[i] * prediction[i]


@uncounted
def _expect_of_choice(choice, rhat, first, last, out):
    chosen, b = choice[: last - first], out[first:last]
    for i in range(b.shape[0]):
        b[i] = rhat[chosen[i], first + i]


@uncounted
def _take_logged(pi, base, action, first, last, out):
    for i in range(first, last):
        out[i] = pi[base + action[i], i]


@uncounted
def _first_poisoned(poison, first, last):
    bad = 0
    for i in range(last - first):
        bad |= poison[i] != 0
    if bad == 0:
        return -1
    i = 0
    while poison[i] == 0:
        i += 1
    return first + i


@uncounted
def _follow_choice(choice, action, first, last, mass, out):
    """ν(a|x) of a policy that takes one action for sure."""
    chosen, logged, found = choice[: last - first], action[first:last], out[first:last]
    for i in range(found.shape[0]):
        found[i] = 1.0 if chosen[i] == logged[i] else 0.0
    if mass.shape[0] > FEW:
        for i in range(chosen.shape[0]):
            mass[chosen[i]] += 1.0
        return
    for k in range(mass.shape[0]):  # vectorises, where counting one after the other waits for the last count
        mass[k] += _count(chosen, np.int32(k))


@uncounted
def _count(chosen, action):
    count = np.int32(0)
    for i in range(chosen.shape[0]):
        count += np.int32(chosen[i] == action)
    return count


@uncounted
def _count_eligible(bits, actions, first, last, out):
    """out = the number of actions that an event could choose."""
    count = out[: last - first]
    count[:] = 0.0
    for k in range(actions):
        words, place = word_of(bits, k, first, last)
        for i in range(count.shape[0]):
            count[i] += np.float64((words[i] >> place) & BIT)


@uncounted
def _mean_prediction(rhat, bits, first, last, count, out):
    """r̂(x, ν) of the uniform policy."""
    b = out[: last - first]
    b[:] = 0.0
    for k in range(rhat.shape[0]):
        prediction = rhat[k][first:last]
        if bits.shape[0] > 0:
            words, place = word_of(bits, k, first, last)
            for i in range(b.shape[0]):
                b[i] += prediction[i] if (words[i] >> place) & BIT != 0 else 0.0
            continue
        for i in range(b.shape[0]):
            b[i] += prediction[i]
    for i in range(b.shape[0]):
        b[i] /= count[i]


@uncounted
def _mix(x, first, last, epsilon, uniform):
    """x <- (1 - ε) x + ε times what the uniform policy has."""
    for i in range(first, last):
        x[i] = (1.0 - epsilon) * x[i] + epsilon * uniform[i - first]


@uncounted
def _mix_even(x, first, last, epsilon, count):
    """The same for probabilities."""
    for i in range(first, last):
        x[i] = (1.0 - epsilon) * x[i] + epsilon * (1.0 / count[i - first])


@unordered_helper
def _scale(row, factor):
    """Multiply by the factors, and return the sum."""
    total = 0.0
    for i in range(row.shape[0]):
        scaled = row[i] * factor[i]
        row[i] = scaled
        total += scaled
    return total


@unordered_helper
def _scale_eligible(row, factor, words, place):
    """The same for an action, with 0 for events that could not choose it."""
    total, zero = 0.0, row.dtype.type(0)
    for i in range(row.shape[0]):
        scaled = row[i] * factor[i] if (words[i] >> place) & BIT != 0 else zero
        row[i] = scaled
        total += scaled
    return total


@uncounted
def _softmax(scores, base, intercept, bits, first, last, space, mass):
    """Softmax of a tile. Returns the first event with a score that is not finite, or -1."""
    exp_tile(scores, base, intercept, bits, first, last, space)
    factor = space[1][: last - first]
    for k in range(mass.shape[0]):
        row = scores[base + k][first:last]
        if bits.shape[0] > 0:
            mass[k] += _scale_eligible(row, factor, *word_of(bits, k, first, last))
        else:
            mass[k] += _scale(row, factor)
    poison = space[0][: last - first]
    for i in range(factor.shape[0]):
        poison[i] = factor[i] - factor[i]
    return _first_poisoned(poison, first, last)


@uncounted
def _observe_scores(scores, base, intercept, softmax, bits, action, first, last, space, sums, mass, logged):
    """Softmax, or probabilities as they are. Returns the first invalid event, or -1."""
    if softmax:
        bad = _softmax(scores, base, intercept, bits, first, last, space, mass)
    else:
        bad = _first_invalid(scores, base, mass.shape[0], bits, first, last, sums, mass)
    if bad < 0:
        _take_logged(scores, base, action, first, last, logged)
    return bad


@uncounted
def _observe_choice(scores, base, intercept, bits, action, first, last, space, choice, mass, logged):
    """Argmax. Returns the first invalid event, or -1."""
    choose_tile(scores, base, intercept, bits, first, last, space, choice)
    bad = _first_poisoned(space[1], first, last)
    if bad < 0:
        _follow_choice(choice, action, first, last, mass, logged)
    return bad


@kernel(int64(F8_IN2, U4_IN2, F8))
def first_improper(pi, bits, mass):
    """The first event whose probabilities (K, n) are invalid: negative, NaN, outside of its set, not 1 in sum. Or -1.

    mass[k] gains the probabilities of action k.
    """
    sums = np.empty(TILE)
    for first in range(0, pi.shape[1], TILE):
        bad = _first_invalid(pi, 0, pi.shape[0], bits, first, min(first + TILE, pi.shape[1]), sums, mass)
        if bad >= 0:
            return bad
    return -1


@kernel(void(F8_IN2, I4_IN, F8))
def logged_probability(pi, action, out):
    """out = ν(a_k|x_k) of the logged action, given probabilities (K, n)."""
    _take_logged(pi, 0, action, 0, out.shape[0], out)


_PAIRS = [(p, i, r) for p, i in ((F4_2, F4_IN), (F8_2, F8_IN)) for r in (F4_IN2, F8_IN2)]


@uncounted
def _any_positive(x):
    found = False
    for i in range(x.shape[0]):
        found = found or x[i] > 0.0
    return found


@uncounted
def observe_block(scores, intercept, kinds, epsilons, slots, places, rhat, bits, action, mass, logged, terms):
    """Fill in ν(a_k|x_k) and r̂(x_k, ν) for policies whose rows are in `scores`; `mass` gains ν(a|x_k).

    Policy j has row slots[j] of `logged` and `mass`, and row places[j] of `terms`. Softmax scores become probabilities.
    rhat has no rows if there is no model. Returns the flat index (policy, event) of the first event whose probabilities
    are invalid, or -1.
    """
    rows, actions = logged.shape[1], mass.shape[1]
    space = scratch(THREE, scores).reshape(3, TILE)
    sums, count, average = scratch(TILE, mass), scratch(TILE, mass), scratch(TILE, mass)
    choice = scratch(TILE, action)
    count[:] = actions
    with_model, with_epsilon = rhat.shape[0] > 0, _any_positive(epsilons)
    for first in range(0, rows, TILE):
        last = min(first + TILE, rows)
        if with_epsilon and bits.shape[0] > 0:
            _count_eligible(bits, actions, first, last, count)
        if with_model and with_epsilon:
            _mean_prediction(rhat, bits, first, last, count, average)
        for j in range(kinds.shape[0]):
            base, slot = j * actions, slots[j]
            shift = intercept[base : base + actions]
            if kinds[j] == ARGMAX:
                bad = _observe_choice(
                    scores, base, shift, bits, action, first, last, space, choice, mass[slot], logged[slot]
                )
            else:
                softmax = kinds[j] == SOFTMAX
                bad = _observe_scores(
                    scores, base, shift, softmax, bits, action, first, last, space, sums, mass[slot], logged[slot]
                )
            if bad >= 0:
                return j * rows + bad
            if with_model:
                if kinds[j] == ARGMAX:
                    _expect_of_choice(choice, rhat, first, last, terms[places[j]])
                else:
                    _expect(scores, base, rhat, first, last, terms[places[j]])
            if epsilons[j] > 0.0:
                _mix_even(logged[slot], first, last, epsilons[j], count)
                if with_model:
                    _mix(terms[places[j]], first, last, epsilons[j], average)
    return -1


@kernel(*(int64(p, i, I8_IN, F8_IN, I8_IN, I8_IN, r, U4_IN2, I4_IN, F8_2, F8_2, F8_2) for p, i, r in _PAIRS))
def observe(scores, intercept, kinds, epsilons, slots, places, rhat, bits, action, mass, logged, terms):
    """The same, for a block."""
    return observe_block(scores, intercept, kinds, epsilons, slots, places, rhat, bits, action, mass, logged, terms)


@uncounted
def _clip(row, low, high):
    """Clip to [low, high], and return how many numbers changed."""
    count = 0
    for i in range(row.shape[0]):
        count += (row[i] < low) | (row[i] > high)
    if count > 0:
        for i in range(row.shape[0]):
            row[i] = min(max(row[i], low), high)
    return count


@uncounted
def _clip_eligible(row, low, high, words, place):
    """The same for an action. Events that could not choose it do not count."""
    count = 0
    for i in range(row.shape[0]):
        count += ((row[i] < low) | (row[i] > high)) & ((words[i] >> place) & BIT != 0)
        row[i] = min(max(row[i], low), high)
    return count


@uncounted
def _shift_eligible(row, intercept, words, place):
    """Add an intercept to the scores of one action. For events that could not choose it, they become 0."""
    zero = row.dtype.type(0)
    for i in range(row.shape[0]):
        row[i] = row[i] + intercept if (words[i] >> place) & BIT != 0 else zero


@uncounted
def _first_not_finite(rhat):
    place = 0
    while abs(rhat[place // rhat.shape[1], place % rhat.shape[1]]) < np.inf:
        place += 1
    return place


@uncounted
def predict_block(rhat, intercept, link, low, high, bits, action, out, clipped):
    """Turn the scores of a model into predictions, in place, within [low, high]; out = r̂(x_k, a_k).

    clipped[0] gains the number of predictions outside of [low, high]. Without intercepts, rhat has predictions already.
    Predictions for actions that are not eligible become some finite numbers.
    Returns the flat index (action, event) of the first score that is not finite, or -1.
    """
    rows = out.shape[0]
    space = scratch(THREE, rhat).reshape(3, TILE)
    bad = 0
    for k in range(rhat.shape[0]):
        row = rhat[k][:rows]
        if bits.shape[0] > 0:
            shift = intercept[k] if intercept.shape[0] > 0 else rhat.dtype.type(0)
            _shift_eligible(row, shift, *word_of(bits, k, 0, rows))
        elif intercept.shape[0] > 0:
            for i in range(rows):
                row[i] += intercept[k]
        for i in range(rows):
            bad |= not abs(row[i]) < np.inf
    if bad != 0:
        return _first_not_finite(rhat)
    for k in range(rhat.shape[0]):
        row = rhat[k][:rows]
        if link == LOGISTIC:
            for first in range(0, rows, TILE):
                logistic_row(row[first : min(first + TILE, rows)], space)
        if low > -np.inf or high < np.inf:
            if bits.shape[0] > 0:
                clipped[0] += _clip_eligible(row, low, high, *word_of(bits, k, 0, rows))
            else:
                clipped[0] += _clip(row, low, high)
    for i in range(rows):
        out[i] = rhat[action[i], i]
    return -1


@kernel(*(int64(r, i, int64, float64, float64, U4_IN2, I4_IN, F8, I8) for r, i in ((F4_2, F4_IN), (F8_2, F8_IN))))
def predict(rhat, intercept, link, low, high, bits, action, out, clipped):
    """The same, for a block."""
    return predict_block(rhat, intercept, link, low, high, bits, action, out, clipped)
