"""From contexts to sums in one call: products, probabilities, terms and moments, a tile of events after the other.

A tile is so small that its numbers stay in cache. One call does a whole batch, so that the interpreter's lock is free
in the meantime. If columns are still to be decoded, the same call begins with that. The steps are helpers of the other
kernels.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels._jit import call, counted, inlined, kernel, memory, uncounted
from drstream.kernels._types import F4, F4_2, F4_3, F8, F8_2, F8_3, I4, I4_IN, I8, I8_2, I8_IN, U4, U8_IN, int64, named
from drstream.kernels.calibration import add_to_table
from drstream.kernels.checks import all_usable
from drstream.kernels.moments import update_tile
from drstream.kernels.order import sort_events, transpose_rows
from drstream.kernels.pages import ADDED, AT_ONCE, CHUNK, DONE, PAUSED, RESULT, Pages, turn
from drstream.kernels.pages import TYPES as PAGES
from drstream.kernels.policies import observe_block, predict_block
from drstream.kernels.random import fold_of, key_of
from drstream.kernels.sets import fill_words, split_words
from drstream.kernels.terms import fill_terms, inspect_weights, note_rewards, number_reduced

TILE = 1024  # events: with 20 features and 20 scores in float32 they take a sixth of the second-level cache
FOLDED = 65_536  # rows that are put in the order of their folds at a time, as many as a batch has
SMALL = 1_000_000  # a product of three sizes: see `buffers.SMALL`
ACTION, REWARD, PROPENSITY, CONTEXT = 0, 1, 2, 3  # columns; from the last one on those of contexts, or their matrix
PLACE, KIND = 0, 1  # of a column: where it begins, after the base of all; -1 if nothing needs it
KINDS = ("float32", "float64", "int32", "int64")  # types of columns, in the order of their codes
SINGLE, DOUBLE, INT, LONG = 0, 1, 2, 3
LARGEST = 2**31 - 1  # of int32
PAD = 16  # columns of zeros: rows of scores at a distance of 4,096 bytes would have the same places in the cache


class Events(NamedTuple):
    """What the log says about a batch. Columns are given by their addresses, as an array takes longer to pass on."""

    base: Any  # an address
    columns: Any  # PLACE and KIND of each: see ACTION; and last ν(a_k|x_k) of policies that tell no more than that
    listed: Any  # whether contexts are a matrix (n, d)
    actions: Any  # number of actions, to check events with; -1 if they were checked before
    starts: Any  # of the eligible sets (see `sets.py`); empty if all events could choose any action
    eligible: Any
    words: Any  # the same as bits, if there are at most 64 actions
    order: Any  # places of the events in the columns; empty if they are in their order
    rows: Any  # of the columns that `order` may name


class Folding(NamedTuple):
    """How rows are divided into folds, with a model for each, and memory for that."""

    count: Any  # of folds; 0 if all rows have one model, or are in the order of their folds
    seed: Any  # an array of one
    first: Any  # number of the first row
    fold: Any  # FOLDED numbers
    order: Any  # FOLDED numbers
    starts: Any  # where the events of each fold begin, and where the last ones end


class Linear(NamedTuple):
    """Linear policies, and a linear model below them. `policies.observe` and `policies.predict` say what fields are."""

    weights: Any  # a matrix for each fold, or one; float32 or float64, as the contexts; so are the intercepts
    intercept: Any
    kinds: Any
    epsilons: Any
    slots: Any
    places: Any
    model_intercept: Any  # a row for each fold, or one; without numbers if there is no model
    link: Any
    limits: Any  # low and high, of predictions


class Weighing(NamedTuple):
    """What to compute: a row for each kind of weight, as `terms.weigh` takes it, and the groups of `moments`."""

    kinds: Any  # codes of the weights
    parameters: Any
    codes: Any
    sizes: Any  # number of terms, by kind
    places: Any
    reduced: Any  # whether weights of a kind can be smaller than ν / p
    predicted: Any
    given: Any  # which policies have a column of their own
    inspected: Any  # rows of all weights
    members: Any
    starts: Any
    constants: Any  # the pivot, the limit of a small propensity, a typical reward


class Found(NamedTuple):
    """What gains the numbers of a batch: moments, and what is known about weights, actions, rewards and predictions."""

    count: Any
    sums: Any
    carries: Any
    comoments: Any
    inspected: Any
    reduced: Any
    mass: Any
    logged: Any
    others: Any  # number of rewards that are neither 0 nor 1, and of predictions outside of the limits
    table: Any
    calibration: Any


class Space(NamedTuple):
    """Memory for a tile."""

    features: Any
    scores: Any
    terms: Any
    logged: Any
    rhat: Any
    bits: Any  # empty without eligible sets
    columns: Any  # rewards and propensities
    action: Any
    shift: Any  # a number for each variable


@inlined
def _part(events, column, first, last, width, like):
    """Numbers of a column, which has the type of `like`, of so many bytes."""
    return memory(events.base + events.columns[column, PLACE] + first * width, last - first, like)


@uncounted
def _copy(numbers, out):
    for i in range(numbers.shape[0]):
        out[i] = numbers[i]


@uncounted
def _pick(numbers, order, out):
    for i in range(order.shape[0]):
        out[i] = numbers[order[i]]


@uncounted
def _pick_floats(events, column, order, space):
    """space <- numbers of a column."""
    kind, rows = events.columns[column, KIND], events.rows
    if kind == DOUBLE:
        _pick(_part(events, column, 0, rows, 8, np.float64), order, space)
    elif kind == SINGLE:
        _pick(_part(events, column, 0, rows, 4, np.float32), order, space)
    elif kind == INT:
        _pick(_part(events, column, 0, rows, 4, np.int32), order, space)
    else:
        _pick(_part(events, column, 0, rows, 8, np.int64), order, space)


@inlined
def _floats(events, column, first, last, space):
    """A column in float64, in `space` if it is stored in another type, or order."""
    if events.columns[column, PLACE] < 0:
        return space[:0]
    if events.order.shape[0] > 0:
        _pick_floats(events, column, events.order[first:last], space)
        return space[: last - first]
    kind = events.columns[column, KIND]
    if kind == DOUBLE:
        return _part(events, column, first, last, 8, np.float64)
    if kind == SINGLE:
        _copy(_part(events, column, first, last, 4, np.float32), space)
    elif kind == INT:
        _copy(_part(events, column, first, last, 4, np.int32), space)
    else:
        _copy(_part(events, column, first, last, 8, np.int64), space)
    return space[: last - first]


@uncounted
def _pick_actions(events, order, space):
    """space <- actions."""
    if events.columns[ACTION, KIND] == INT:
        _pick(_part(events, ACTION, 0, events.rows, 4, np.int32), order, space)
        return
    column = _part(events, ACTION, 0, events.rows, 8, np.int64)
    for i in range(order.shape[0]):
        action = column[order[i]]
        space[i] = action if 0 <= action <= LARGEST else -1


@inlined
def _actions(events, first, last, space):
    """Actions in int32, in `space` unless they are stored so, in their order. Those that are no int32 become -1."""
    if events.columns[ACTION, PLACE] < 0:
        return space[:0]
    if events.order.shape[0] > 0:
        _pick_actions(events, events.order[first:last], space)
        return space[: last - first]
    if events.columns[ACTION, KIND] == INT:
        return _part(events, ACTION, first, last, 4, np.int32)
    column = _part(events, ACTION, first, last, 8, np.int64)
    for i in range(last - first):
        space[i] = column[i] if 0 <= column[i] <= LARGEST else -1
    return space[: last - first]


@inlined
def _rows_of(events, first, last, features, like):
    """Contexts (m, d) of a log whose context is a matrix."""
    start = events.base + events.columns[CONTEXT, PLACE] + first * features * like.itemsize
    return memory(start, (last - first) * features, like).reshape(last - first, features)


@uncounted
def _gather(events, first, last, out):
    """out (d, m + PAD) <- contexts, feature by feature, and zeros."""
    features, m = out.shape[0], last - first
    if events.listed != 0:
        transpose_rows(_rows_of(events, first, last, features, out), out)
    elif events.order.shape[0] > 0:
        for j in range(features):
            _pick(_part(events, CONTEXT + j, 0, events.rows, out.itemsize, out), events.order[first:last], out[j])
    else:
        for j in range(features):
            column, row = _part(events, CONTEXT + j, first, last, out.itemsize, out), out[j]
            for i in range(m):
                row[i] = column[i]
    for j in range(features):
        for i in range(m, out.shape[1]):
            out[j, i] = 0


@counted
def _dot(a, b, out):
    """out <- a @ b. Numba calls BLAS only where references to arrays are counted."""
    np.dot(a, b, out)


@inlined
def _multiply(events, first, last, weights, space):
    """Scores without intercepts (rows, m), perhaps with PAD more columns.

    BLAS multiplies small matrices faster if the second one is not transposed, and large ones as fast.
    """
    (rows, features), m = weights.shape, last - first
    if events.listed != 0 and rows * features * m > SMALL:
        scores = space.scores[: rows * m].reshape(rows, m)
        _dot(weights, _rows_of(events, first, last, features, scores).T, scores)
        return scores
    width = m + PAD
    scores = space.scores[: rows * width].reshape(rows, width)
    x = space.features[: features * width].reshape(features, width)
    _gather(events, first, last, x)
    _dot(weights, x, scores)
    return scores


@uncounted
def _score(events, first, last, fold, action, linear, found, space, logged, terms):
    """Fill in ν(a_k|x_k) and r̂(x_k, ν) of linear policies, and r̂(x_k, a_k). Returns whether all numbers are valid."""
    scores = _multiply(events, first, last, linear.weights[fold], space)
    (rows, width), split = scores.shape, linear.intercept.shape[0]
    words = space.bits.shape[0] // TILE
    bits = space.bits[: words * (last - first)].reshape(words, last - first)
    if words > 0 and events.words.shape[0] > 0:
        split_words(events.words, first, last, bits)
    elif words > 0:
        fill_words(events.starts, events.eligible, first, last, bits)
    rhat = space.scores[split * width : rows * width].reshape(rows - split, width)
    if rows > split:
        clipped = found.others[1:]
        bad = predict_block(
            rhat,
            linear.model_intercept[fold],
            linear.link,
            linear.limits[0],
            linear.limits[1],
            bits,
            action,
            space.rhat[: last - first],
            clipped,
        )
        if bad >= 0:
            return False
    policies = space.scores[: split * width].reshape(split, width)
    places = linear.kinds, linear.epsilons, linear.slots, linear.places
    return observe_block(policies, linear.intercept, *places, rhat, bits, action, found.mass, logged, terms) < 0


@uncounted
def _weigh(r, p, weighing, found, space, logged, terms):
    """Fill in the terms of all kinds of weights."""
    rhat = space.rhat[: r.shape[0]]
    for k in range(weighing.kinds.shape[0]):
        places = weighing.places[k]
        fill_terms(
            weighing.kinds[k],
            weighing.parameters[k],
            weighing.codes[k][: weighing.sizes[k]],
            places,
            weighing.predicted,
            logged,
            p,
            r,
            rhat,
            weighing.constants[0],
            terms,
        )
        if weighing.reduced[k] != 0:
            for j in range(places.shape[0]):
                found.reduced[j, k] += number_reduced(terms[places[j]], logged[j], p)
    if weighing.inspected.shape[0] > 0:
        inspect_weights(terms, weighing.inspected, p, weighing.constants[1], found.inspected)


@uncounted
def _add_tile(events, first, last, fold, linear, weighing, found, space):
    """Add the events first..last. Returns whether all numbers are valid."""
    m = last - first
    action = _actions(events, first, last, space.action)
    reward = _floats(events, REWARD, first, last, space.columns[:TILE])
    p = _floats(events, PROPENSITY, first, last, space.columns[TILE:])
    if events.actions >= 0 and not all_usable(action, events.actions, reward, p):
        return False
    logged = space.logged[: space.logged.shape[0] // TILE * m].reshape(-1, m)
    terms = space.terms[: space.terms.shape[0] // TILE * m].reshape(-1, m)
    row = terms[0]
    for i in range(m):
        row[i] = reward[i]
    scored = linear.weights.shape[1] > 0
    if scored and not _score(events, first, last, fold, action, linear, found, space, logged, terms):
        return False
    for g in range(weighing.given.shape[0]):
        row, place = logged[weighing.given[g]], events.columns.shape[0] - weighing.given.shape[0] + g
        given, bad = _floats(events, place, first, last, row), 0
        for i in range(m):
            bad |= not (given[i] >= 0.0 and given[i] <= 1.0)
            row[i] = given[i]
        if bad != 0 and events.actions >= 0:
            return False
    _weigh(reward, p, weighing, found, space, logged, terms)
    note_rewards(reward, action, found.others, found.logged)
    if linear.model_intercept.shape[1] > 0:
        add_to_table(space.rhat[:m], reward, weighing.constants[2], found.table, found.calibration)
    state = found.count, found.sums, found.carries, found.comoments
    update_tile(terms, 0, m, weighing.members, weighing.starts, *state, space.shift)
    return True


@uncounted
def _add_tiles(events, first, last, fold, linear, weighing, found, space):
    """Add the events first..last, of one fold. Returns where the first tile with an invalid number begins, or -1."""
    for start in range(first, last, TILE):
        if not _add_tile(events, start, min(start + TILE, last), fold, linear, weighing, found, space):
            return start
    return -1


@uncounted
def _divide(folding, start, stop, done):
    """Put the rows start..stop, after `done` other ones, in the order of their folds."""
    key, fold = key_of(folding.seed[0]), folding.fold[: stop - start]
    for i in range(fold.shape[0]):
        fold[i] = fold_of(key, np.uint64(folding.first + done + start + i), folding.count)
    sort_events(fold, start, folding.starts, folding.order)


@uncounted
def _add_rows(events, rows, done, folding, linear, weighing, found, space):
    """Add so many rows, after `done` other ones. Returns where the first tile with an invalid number begins, or -1."""
    if folding.count == 0:
        return _add_tiles(events, 0, rows, 0, linear, weighing, found, space)
    for start in range(0, rows, FOLDED):
        stop = min(start + FOLDED, rows)
        _divide(folding, start, stop, done)
        divided = _with_order(events, folding.order[: stop - start], stop)
        for f in range(folding.count):
            last = folding.starts[f + 1]
            bad = _add_tiles(divided, folding.starts[f], last, f, linear, weighing, found, space)
            if bad >= 0:
                return start + bad
    return -1


@inlined
def _with_rows(pages, rows):
    """The same pages, for so many rows."""
    memory_of = pages.window, pages.pages, pages.dictionaries, pages.given, pages.levels, pages.state
    return Pages(pages.handle, pages.columns, rows, *memory_of)


@inlined
def _moved(events, shift):
    """The same, so many bytes later."""
    rest = events.starts, events.eligible, events.words, events.order, events.rows
    return Events(events.base + shift, events.columns, events.listed, events.actions, *rest)


@inlined
def _with_order(events, order, rows):
    """The same, in an order of so many rows."""
    about = events.base, events.columns, events.listed, events.actions
    return Events(*about, events.starts, events.eligible, events.words, order, rows)


# Numba does not convert what is in a tuple
_EVENTS = named(Events, int64, I8_2, int64, int64, I8_IN, I4_IN, U8_IN, I8, int64)
_FOLDING = named(Folding, int64, U8_IN, int64, I4, I8, I8)
_WEIGHING = named(Weighing, I8, F8_2, I8_2, I8, I8_2, I8, I8, I8, I8, I8, I8, F8)
_FOUND = named(Found, I8, F8, F8, F8, F8_2, I8_2, F8_2, I8, I8, F8_2, F8)


def _types(matrices: Any, matrix: Any, vector: Any) -> tuple[Any, ...]:
    linear = named(Linear, matrices, vector, I8, F8, I8, I8, matrix, int64, F8)
    space = named(Space, vector, vector, F8, F8, F8, U4, F8, I4, F8)
    pages = named(Pages, *PAGES)
    return int64, pages, _FOLDING, _EVENTS, int64, int64, int64, linear, _WEIGHING, _FOUND, space


@kernel(int64(*_types(F4_3, F4_2, F4)), int64(*_types(F8_3, F8_2, F8)), counted=False)
def add_events(decode, pages, folding, events, first, last, fold, linear, weighing, found, space):
    """Add the events first..last of a batch. Returns where the first tile with an invalid number begins, or -1.

    They are of one fold, unless `folding` divides rows; then, and if there are pages, the first event is 0.

    If pages have columns, the kernel at the address `decode` decodes them, a chunk after the other, to the same memory,
    which stays in cache. If `decode` needs something to go on, or after many chunks,
    pages.state[RESULT] is not DONE, and the next call with these pages goes on from there. The code of `decode` is
    called, because it would be compiled twice more.
    """
    state, until = pages.state, pages.state[ADDED] + pages.state[CHUNK] * pages.state[AT_ONCE]
    while pages.columns.shape[0] > 0 and state[ADDED] < last:
        if state[ADDED] >= until:
            state[RESULT] = PAUSED
            return -1
        shift, some = turn(pages.columns, state), min(state[CHUNK], last - state[ADDED])
        state[RESULT] = call(decode, _with_rows(pages, some))
        if state[RESULT] != DONE:
            return -1
        bad = _add_rows(_moved(events, shift), some, state[ADDED], folding, linear, weighing, found, space)
        if bad >= 0:
            return state[ADDED] + bad
        state[ADDED] += some
    if pages.columns.shape[0] > 0:
        return -1
    if folding.count > 0:
        return _add_rows(events, last, 0, folding, linear, weighing, found, space)
    return _add_tiles(events, first, last, fold, linear, weighing, found, space)
