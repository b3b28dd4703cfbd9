"""What policies and the model say about events: ν(a_k|x_k), r̂(x_k, a_k) and r̂(x_k, ν), as rows of observations.

`observe` does it for linear policies and models, in one call for many events: it loads their contexts, multiplies, and
turns scores into observations, a tile at a time, so that the numbers of a tile stay in cache. Other policies and models
are asked in Python, a block at a time. `first_improper`, `logged_probability`, `expect` and `predict` then take what is
needed from their matrices (K, n).

`bits` are the eligible sets of the events (see `sets.py`), or None if all events could choose any action. Policies act
on these actions only, and predictions for others do not matter.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels._jit import kernel, uncounted, unordered_helper
from drstream.kernels._machine import memory, scratch
from drstream.kernels._types import (
    F4,
    F4_2,
    F4_3,
    F8,
    F8_2,
    F8_3,
    F8_IN,
    F8_IN2,
    I4_IN,
    I8,
    I8_2,
    U4_2,
    U4_IN2,
    float64,
    int64,
    named,
    none,
    void,
)
from drstream.kernels.scores import TILE, choose_tile, exp_tile, logistic_row, word_of
from drstream.kernels.sets import BIT
from drstream.kernels.sums import plain_sum

SOFTMAX, ARGMAX = 1, 2  # what turns the scores of a policy into probabilities
IDENTITY, LOGISTIC, NOTHING = 0, 1, 2  # what turns the scores of a model into predictions; NOTHING: these are 0
TOLERANCE = 1e-5  # on the sum of a policy's probabilities: float32 softmax over 1,000 actions stays within 3e-6
PAD = 16  # more columns: rows of scores at a distance of 4,096 bytes would have the same places in the cache
STRIP = 256  # events that are multiplied at a time
ADDRESS, KIND = 0, 1  # of a column
KINDS = ("float32", "float64", "int32", "int64")  # types of columns, in the order of their codes


class LinearRules(NamedTuple):
    """Linear policies, K rows of weights for each, and below them those of a linear model."""

    weights: Any  # a matrix for each fold, or one, `padded`; float32 or float64, and so are the intercepts
    intercept: Any  # of all policies
    kinds: Any  # SOFTMAX or ARGMAX
    epsilons: Any  # with this probability, a policy takes a uniformly random action instead
    slots: Any  # which policies they are
    rows: Any  # the rows of ν(a_k|x_k) among observations
    expected: Any  # the rows of r̂(x_k, ν)
    model: Any  # intercepts of the model (folds, K); (folds, 0) if there is none
    links: Any  # by fold
    limits: Any  # the lowest and the highest prediction
    predicted: Any  # the row of r̂(x_k, a_k)


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
        if bits is not None:
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
        if bits is not None:
            words, place = word_of(bits, k, i, i + 1)
            wrong = wrong or ((words[0] >> place) & BIT == 0 and pi[base + k, i] != 0)
    return wrong


@uncounted
def _expect(pi, base, rhat, split, actions, first, last, out):
    """out = r̂(x, ν) = Σ_a ν(a|x) r̂(x, a), for the columns first..last; predictions are the rows from `split` on."""
    b = out[: last - first]
    b[:] = 0.0
    for k in range(actions):
        probability = pi[base + k][first:last]
        prediction = rhat[split + k][first:last]
        for i in range(b.shape[0]):
            b[i] += probability[i] * prediction[i]


@uncounted
def _expect_of_choice(choice, rhat, split, first, last, out):
    for i in range(last - first):
        out[i] = rhat[split + choice[i], first + i]


@uncounted
def _take_logged(pi, base, action, first, last, out):
    for i in range(first, last):
        out[i] = pi[base + action[i], i]


@uncounted
def _all_zero(poison, m):
    bad = 0
    for i in range(m):
        bad |= poison[i] != 0
    return bad == 0


@uncounted
def _follow_choice(choice, action, m, mass, out):
    """ν(a|x) of a policy that takes one action for sure."""
    for i in range(m):
        out[i] = 1.0 if choice[i] == action[i] else 0.0
        mass[choice[i]] += 1.0


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
def _mean_prediction(rhat, split, actions, bits, first, last, count, out):
    """r̂(x, ν) of the uniform policy."""
    b = out[: last - first]
    b[:] = 0.0
    for k in range(actions):
        prediction = rhat[split + k][first:last]
        if bits is not None:
            words, place = word_of(bits, k, first, last)
            for i in range(b.shape[0]):
                b[i] += prediction[i] if (words[i] >> place) & BIT != 0 else 0.0
        else:
            for i in range(b.shape[0]):
                b[i] += prediction[i]
    for i in range(b.shape[0]):
        b[i] /= count[i]


@uncounted
def _mix(logged, b, m, epsilon, count, average):
    """Mix what a policy does with a uniformly random action, which it takes with probability ε."""
    for i in range(m):
        logged[i] = (1.0 - epsilon) * logged[i] + epsilon * (1.0 / count[i])
        b[i] = (1.0 - epsilon) * b[i] + epsilon * average[i]


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
    """Softmax of a tile. Returns whether all scores are finite."""
    exp_tile(scores, base, intercept, bits, first, last, space)
    factor = space[1][: last - first]
    for k in range(mass.shape[0]):
        row = scores[base + k][first:last]
        if bits is not None:
            mass[k] += _scale_eligible(row, factor, *word_of(bits, k, first, last))
        else:
            mass[k] += _scale(row, factor)
    bad = 0
    for i in range(factor.shape[0]):
        bad |= not abs(factor[i]) < np.inf
    return bad == 0


@kernel(int64(F8_IN2, none, F8), int64(F8_IN2, U4_IN2, F8))
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


@uncounted
def _clip(row, low, high, bits, k):
    """Clip to [low, high], and return how many numbers changed, without events that could not choose the action."""
    count = 0
    if bits is not None:
        words, place = word_of(bits, k, 0, row.shape[0])
        for i in range(row.shape[0]):
            count += ((row[i] < low) | (row[i] > high)) & ((words[i] >> place) & BIT != 0)
            row[i] = min(max(row[i], low), high)
    else:
        for i in range(row.shape[0]):
            count += (row[i] < low) | (row[i] > high)
            row[i] = min(max(row[i], low), high)
    return count


@uncounted
def _shift_eligible(row, intercept, words, place):
    """Add an intercept to the scores of one action. For events that could not choose it, they become 0."""
    zero, bad = row.dtype.type(0), 0
    for i in range(row.shape[0]):
        row[i] = row[i] + intercept if (words[i] >> place) & BIT != 0 else zero
        bad |= not abs(row[i]) < np.inf
    return bad


@uncounted
def _predict(scores, base, actions, intercept, link, low, high, bits, m, clipped):
    """Turn the scores of a model, the rows from `base` on, into predictions within [low, high], for the first m events.

    clipped[0] gains the number of predictions outside of [low, high]. Without intercepts, they are predictions already.
    Predictions for actions that are not eligible become some finite numbers. Returns whether all scores are finite.
    """
    space = scratch(TILE, scores), scratch(TILE, scores), scratch(TILE, scores)
    bad = 0
    for k in range(actions):
        row = scores[base + k][:m]
        shift = intercept[k] if intercept.shape[0] > 0 else scores.dtype.type(0)
        if bits is not None:
            bad |= _shift_eligible(row, shift, *word_of(bits, k, 0, m))
        else:
            for i in range(m):
                row[i] += shift
                bad |= not abs(row[i]) < np.inf
    for k in range(actions if bad == 0 else 0):
        row = scores[base + k][:m]
        if link == LOGISTIC:
            for first in range(0, m, TILE):
                logistic_row(row[first : min(first + TILE, m)], space)
        elif link == NOTHING:
            row[:] = 0
        if low > -np.inf or high < np.inf:
            clipped[0] += _clip(row, low, high, bits, k)
    return bad == 0


@kernel(*(int64(F8_2, F8_IN, bits, I4_IN, F8, I8) for bits in (none, U4_IN2)))
def predict(rhat, limits, bits, action, out, clipped):
    """Hold predictions (K, n) within limits; out = r̂(x_k, a_k). Returns the first place that is not finite, or -1.

    clipped[0] gains the number of predictions outside of the limits.
    """
    actions, rows = rhat.shape
    if not _predict(rhat, 0, actions, out[:0], IDENTITY, limits[0], limits[1], bits, rows, clipped):
        place = 0
        while abs(rhat[place // rows, place % rows]) < np.inf:
            place += 1
        return place
    _take_logged(rhat, 0, action, 0, rows, out)
    return -1


@kernel(void(F8_IN2, F8_IN2, F8))
def expect(pi, rhat, out):
    """out = r̂(x, ν) = Σ_a ν(a|x) r̂(x, a)."""
    for first in range(0, out.shape[0], TILE):
        _expect(pi, 0, rhat, 0, pi.shape[0], first, min(first + TILE, out.shape[0]), out[first:])


@unordered_helper
def _take(column, order, first, x, m):
    """x <- the numbers of m events. Returns whether all are finite: x - x is NaN otherwise, and the sum vectorises."""
    poison = x.dtype.type(0)
    if order.shape[0] > 0:
        for i in range(m):
            x[i] = column[order[first + i]]
            poison += x[i] - x[i]
    else:
        found = column[first : first + m]  # column[first + i] would be gathered, at three times the time of a tile
        for i in range(m):
            x[i] = found[i]
            poison += x[i] - x[i]
    return poison == 0


@uncounted
def _take_rows(matrix, listed, order, first, x, m):
    """x (d, m) <- rows of a matrix (n, d), flat. Returns whether all are finite."""
    bad = 0
    for i in range(m):
        start = (order[first + i] if order.shape[0] > 0 else first + i) * listed
        for j in range(listed):
            number = matrix[start + j]
            x[j, i] = number
            bad |= not abs(number) < np.inf
    return bad == 0


@uncounted
def _load(columns, listed, order, first, stop, x, m):
    """x <- the contexts of m events, feature by feature. Returns whether all numbers are finite.

    listed  Number of features, if contexts are a matrix (n, listed) in the type of x; else 0.
    stop    Events after those that are loaded, or that `order` may name.
    """
    good = True
    if listed > 0:
        good = _take_rows(memory(columns[0, ADDRESS], stop * listed, x), listed, order, first, x, m)
    for j in range(columns.shape[0] if listed == 0 else 0):
        place, kind = columns[j, ADDRESS], columns[j, KIND]
        if kind == 0:
            good &= _take(memory(place, stop, np.float32), order, first, x[j], m)
        elif kind == 1:
            good &= _take(memory(place, stop, np.float64), order, first, x[j], m)
        elif kind == 2:
            good &= _take(memory(place, stop, np.int32), order, first, x[j], m)
        else:
            good &= _take(memory(place, stop, np.int64), order, first, x[j], m)
    return good


def padded(weights):
    """Weights with rows and columns of zeros, so that there are multiples of four of both."""
    rows, features = weights.shape[-2:]
    return np.pad(weights, [(0, 0)] * (weights.ndim - 2) + [(0, -rows % 4), (0, -features % 4)])


@uncounted
def _multiply(weights, x, m, out):
    """out <- weights @ x, for m events. Features are added in their order, so no bit depends on other events.

    Four rows share four features, a strip of events at a time, whose numbers stay in the first-level cache. For 20
    rows of 20 features, it takes half the time of BLAS, which first copies both sides.
    """
    a, b, c, d = scratch(STRIP, x), scratch(STRIP, x), scratch(STRIP, x), scratch(STRIP, x)
    zero = x.dtype.type(0)
    for first in range(0, m, STRIP):
        last = min(first + STRIP, m)
        for k in range(0, weights.shape[0], 4):
            p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            for i in range(STRIP):
                a[i], b[i], c[i], d[i] = zero, zero, zero, zero
            for j in range(0, weights.shape[1], 4):
                t, u = x[j][first:last], x[j + 1][first:last]
                v, w = x[j + 2][first:last], x[j + 3][first:last]
                for i in range(last - first):
                    a[i] = a[i] + p[j] * t[i] + p[j + 1] * u[i] + p[j + 2] * v[i] + p[j + 3] * w[i]
                    b[i] = b[i] + q[j] * t[i] + q[j + 1] * u[i] + q[j + 2] * v[i] + q[j + 3] * w[i]
                    c[i] = c[i] + r[j] * t[i] + r[j + 1] * u[i] + r[j + 2] * v[i] + r[j + 3] * w[i]
                    d[i] = d[i] + s[j] * t[i] + s[j + 1] * u[i] + s[j + 2] * v[i] + s[j + 3] * w[i]
            for h in range(4):
                row, found = out[k + h][first:last], a if h == 0 else b if h == 1 else c if h == 2 else d
                for i in range(last - first):
                    row[i] = found[i]


@uncounted
def _put(numbers, order, first, m, out):
    """Store the numbers of m events where they belong."""
    if order.shape[0] > 0:
        for i in range(m):
            out[order[first + i]] = numbers[i]
    else:
        here = out[first : first + m]
        for i in range(m):
            here[i] = numbers[i]


@uncounted
def _observe_policy(scores, j, linear, bits, action, m, space, choice, mass, logged):
    """ν of the logged actions, without random ones. Returns whether all scores are finite."""
    actions = mass.shape[0]
    base = j * actions
    shift = linear.intercept[base : base + actions]
    if linear.kinds[j] == ARGMAX:
        choose_tile(scores, base, shift, bits, 0, m, space, choice)
        if not _all_zero(space[1], m):
            return False
        _follow_choice(choice, action, m, mass, logged)
        return True
    if not _softmax(scores, base, shift, bits, 0, m, space, mass):
        return False
    _take_logged(scores, base, action, 0, m, logged)
    return True


@uncounted
def _add_random(epsilon, found, bits, count, mass):
    """mass <- mass + what a policy does that takes a random action now and then. `found` is what it does otherwise."""
    for k in range(mass.shape[0]):
        even = 0.0
        if bits is not None:
            words, place = word_of(bits, k, 0, count.shape[0])
            for i in range(count.shape[0]):
                even += (1.0 if (words[i] >> place) & BIT != 0 else 0.0) / count[i]
        else:
            even = count.shape[0] / mass.shape[0]
        mass[k] += (1.0 - epsilon) * found[k] + epsilon * even


@uncounted
def _any_positive(x):
    found = False
    for i in range(x.shape[0]):
        found = found or x[i] > 0.0
    return found


@uncounted
def _observe_tile(linear, scores, fold, bits, action, order, first, m, values, mass, clipped, found):
    """Observations of m events, given their scores without intercepts. Returns whether all scores are finite."""
    actions, split = mass.shape[1], linear.intercept.shape[0]
    space, choice = (scratch(TILE, scores), scratch(TILE, scores)), scratch(TILE, action)
    logged, b = scratch(TILE, mass), scratch(TILE, mass)
    count, average = scratch(TILE, mass), scratch(TILE, mass)
    with_model = linear.model.shape[1] > 0
    if with_model:
        low, high = linear.limits[0], linear.limits[1]
        about = linear.model[fold], linear.links[fold], low, high
        if not _predict(scores, split, actions, *about, bits, m, clipped):
            return False
        _take_logged(scores, split, action, 0, m, logged)
        _put(logged, order, first, m, values[linear.predicted])
    for i in range(m):
        count[i] = actions
    if bits is not None:
        _count_eligible(bits, actions, 0, m, count)
    if with_model and _any_positive(linear.epsilons):
        _mean_prediction(scores, split, actions, bits, 0, m, count, average)
    for j in range(linear.kinds.shape[0]):
        epsilon = linear.epsilons[j]
        gained = found if epsilon > 0.0 else mass[linear.slots[j]]
        found[:] = 0.0
        if not _observe_policy(scores, j, linear, bits, action, m, space, choice, gained, logged):
            return False
        if with_model and linear.kinds[j] == ARGMAX:
            _expect_of_choice(choice, scores, split, 0, m, b)
        elif with_model:
            _expect(scores, j * actions, scores, split, actions, 0, m, b)
        if epsilon > 0.0:
            _add_random(epsilon, found, bits, count[:m], mass[linear.slots[j]])
            _mix(logged, b, m, epsilon, count, average)
        _put(logged, order, first, m, values[linear.rows[j]])
        if with_model:
            _put(b, order, first, m, values[linear.expected[j]])
    return True


def _types(matrices: Any, matrix: Any, vector: Any) -> list[Any]:
    linear = named(LinearRules, matrices, vector, I8, F8, I8, I8, I8, matrix, I8, F8, int64)
    rest = linear, int64, I8_2, int64, I4_IN
    more = I8, int64, int64, F8_2, F8_2, I8, matrix, matrix, F8
    return [int64(*rest, none, none, *more), int64(*rest, U4_IN2, U4_2, *more)]


@kernel(*_types(F4_3, F4_2, F4), *_types(F8_3, F8_2, F8), counted=False)
def observe(
    linear, fold, columns, listed, action, bits, words, order, first, last, values, mass, clipped, x, scores, found
):
    """Fill in the observations of the events first..last, which have the models of one fold.

    columns       See `_load`.
    action        The logged actions, of all events of the batch.
    bits, words   Eligible sets of all events, and memory for those of a tile; None if there are no sets.
    order         If not empty, the events are order[first:last]. Observations are stored in the order of the batch.
    mass          Gains ν(a|x), by policy and action.
    clipped[0]    Gains the number of predictions outside of their limits.
    x, scores     Memory: contexts and scores of a tile, with PAD more columns. Rows of x after the features are zeros.
    found         Memory: a number for each action.

    Returns where a tile with an invalid number begins, or -1.
    """
    width = x.shape[1] - PAD
    chosen = scratch(TILE, action)
    for start in range(first, last, width):
        m = min(width, last - start)
        if not _load(columns, listed, order, start, action.shape[0], x, m):
            return start
        _multiply(linear.weights[fold], x, m, scores)
        for i in range(m):
            chosen[i] = action[order[start + i] if order.shape[0] > 0 else start + i]
        if bits is not None:
            for w in range(words.shape[0]):
                for i in range(m):
                    words[w, i] = bits[w, order[start + i] if order.shape[0] > 0 else start + i]
        if not _observe_tile(linear, scores, fold, words, chosen, order, start, m, values, mass, clipped, found):
            return start
    return -1


@kernel(void(F8_IN, I4_IN, I8, I8))
def note_events(r, action, others, counts):
    """others[0] gains the number of rewards that are neither 0 nor 1, and `counts` the actions."""
    count = 0
    for i in range(r.shape[0]):
        count += (r[i] != 0.0) & (r[i] != 1.0)
    others[0] += count
    if counts.shape[0] > 0:
        for i in range(action.shape[0]):
            counts[action[i]] += 1


@kernel(int64(F8, float64, float64))
def clamp(x, low, high):
    """Clip x to [low, high], in place, and return how many numbers changed. NaN stays."""
    count = 0
    for i in range(x.shape[0]):
        value = x[i]
        count += (value < low) | (value > high)
        x[i] = low if value < low else high if value > high else value
    return count


@kernel(int64(F8_IN2, F8_IN2, F8))
def inverse_overlap(pi, mu, out):
    """out = sum over a of ν(a|x)² / μ(a|x), the mean of w² given x. Returns the first event with ν > 0 = μ, or -1."""
    out[:] = 0.0
    for k in range(pi.shape[0]):
        for i in range(out.shape[0]):
            if pi[k, i] > 0.0:
                out[i] += pi[k, i] * pi[k, i] / mu[k, i] if mu[k, i] > 0.0 else np.inf
    for i in range(out.shape[0]):
        if not out[i] < np.inf:
            return i
    return -1
