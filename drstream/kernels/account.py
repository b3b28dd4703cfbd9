"""From observations to sums: a program turns rows of numbers into variables, and tables by grouping gain them.

A tile is a matrix of rows, a column an event. Its first rows are the variables, and then come rows that only other
instructions read, and those that were observed. An instruction fills one row from others: `OUT` and `OP` say which row
and how, A to D are the rows that it reads, and it has up to three parameters.

A table has a record for each group of events. `MOMENTS` are the number of events, sums of the variables, what rounding
took from these, co-moments by group of variables (upper triangles), and `FACTS` about each weight. `SUMS` are the
number of events and sums of the variables. The record of all events gains a tile at a time, and other tables one event
after the other.

What most evaluations need is compiled first. The rest is in `More`: rare instructions, tables of moments, and counts of
weights by size. Without it, a kernel is given None, and no code is compiled for it.
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels._jit import kernel, uncounted, unordered_helper
from drstream.kernels._machine import memory, scratch
from drstream.kernels._types import F8, F8_2, F8_IN2, I4_IN2, I8, I8_2, I8_IN, int64, named, none, void
from drstream.kernels.moments import TILE, add_shift, chan_factor, update_tile
from drstream.kernels.sums import two_sum

OUT, OP, A, B, C, D = range(6)  # columns of `Code.code`
(
    COPY,  # a
    CONSTANT,  # the first parameter
    IMPORTANCE,  # a / b: ν(a_k|x_k) / p_k
    PRODUCT,  # a (b - shift)
    RESIDUAL,  # a (b - c): w (r - r̂(x, a))
    ROBUST,  # d + a (b - c): r̂(x, ν) + w (r - r̂(x, a)), eq. (3.1)
    CAPPED,  # min(cap, a / max(floor, c b)), c the inflation, as section 3.4's footnote inflates p
    SHRUNK,  # λ w / (w² + λ), w = a / b: the optimistic shrinkage of Su et al. (2020)
    SWITCHED,  # w where w <= λ, else 0: there the model alone counts (Wang et al. 2017)
    REDUCED,  # whether weight c is smaller than a / b
    DIFFERENCE,  # (a - b) (c - d - shift)
    ABSOLUTE,  # a |b - c|
    SQUARED,  # a (b - c)²
    OTHER,  # a / b (c / d), and the row in the first parameter where d is 0
    LOGARITHM,  # ln(1 + λ a (b - shift)), with λ the second parameter: logarithmic smoothing (Sakhi et al. 2024)
    EXPLORING,  # a / (b + γ): implicit exploration (Kocák et al. 2014; Gabbianelli, Neu and Papini 2024)
) = range(16)
RARE = CAPPED  # instructions from here on need `More`
MOMENTS, SUMS = 0, 1  # kinds of records
LARGEST = 0  # the largest weight
THIN = 1  # sum of the weights of events with a small propensity
REDUCTIONS = 2  # number of weights that are smaller than ν / p
FACTS = 3  # number of fields
SMALL = 0.01  # a propensity below it is small
ADDRESS, WIDTH = range(2)  # columns of tables: where the first record is, and the number of fields of each
BINS, LOWEST, HIGHEST = 26, -10, 14  # weights are counted by octave: 0, and from below 2^LOWEST to above 2^HIGHEST


class Code(NamedTuple):
    """What is computed and summed up."""

    code: Any  # instructions, in their order
    number: Any  # their parameters
    scales: Any  # two rows that the row of each instruction is multiplied with at the end, or -1
    members: Any  # groups of variables: see `moments.py`
    starts: Any
    weights: Any  # row of each weight, and the row that says whether it was reduced, or -1
    watched: Any  # rows whose extremes are wanted
    propensity: Any  # its row
    variables: Any  # their number


class Into(NamedTuple):
    """What gains events."""

    whole: Any  # the record of all events
    sums: Any  # tables of sums
    extremes: Any  # the smallest and the largest number of each watched row


class More(NamedTuple):
    """What few evaluations need."""

    moments: Any  # tables of moments
    octaves: Any  # the number of weights by size (weights, BINS); no rows if they are not counted


PROGRAM = named(Code, I8_2, F8_2, I8_2, I8, I8, I8_2, I8, int64, int64)
INTO = named(Into, F8, I8_2, F8_2)
MORE = named(More, I8_2, F8_2)


@uncounted
def _fill(program, space, m, more):
    """Fill in the rows of all instructions, for the first m events of a tile."""
    code, number = program.code, program.number
    for t in range(code.shape[0]):
        op, shift = code[t, OP], number[t, 0]
        out = space[code[t, OUT]][:m]
        a, b = space[code[t, A]][:m], space[code[t, B]][:m]
        c, d = space[code[t, C]][:m], space[code[t, D]][:m]
        if op == COPY:
            for i in range(m):
                out[i] = a[i]
        elif op == CONSTANT:
            for i in range(m):
                out[i] = shift
        elif op == IMPORTANCE:
            for i in range(m):
                out[i] = a[i] / b[i]
        elif op == PRODUCT:
            for i in range(m):
                out[i] = a[i] * (b[i] - shift)
        elif op == RESIDUAL:
            for i in range(m):
                out[i] = a[i] * (b[i] - c[i])
        elif op == ROBUST:
            for i in range(m):
                out[i] = d[i] + a[i] * (b[i] - c[i])
        if more is not None:
            _fill_rare(op, shift, number[t, 1], number[t, 2], space, a, b, c, d, out)
    for t in range(code.shape[0]):
        out = space[code[t, OUT]][:m]
        for k in range(2):
            if program.scales[t, k] >= 0:
                scale = space[program.scales[t, k]][:m]
                for i in range(m):
                    out[i] *= scale[i]


@uncounted
def _fill_rare(op, first, second, third, space, a, b, c, d, out):
    m = out.shape[0]
    if op == CAPPED:
        for i in range(m):
            out[i] = min(a[i] / max(b[i] * third, first), second)
    elif op == SHRUNK:
        for i in range(m):
            w = a[i] / b[i]
            out[i] = first * w / (w * w + first)
    elif op == SWITCHED:
        for i in range(m):
            w = a[i] / b[i]
            out[i] = w if w <= first else 0.0
    elif op == REDUCED:
        for i in range(m):
            out[i] = 1.0 if c[i] < a[i] / b[i] else 0.0
    elif op == DIFFERENCE:
        for i in range(m):
            out[i] = (a[i] - b[i]) * (c[i] - d[i] - first)
    elif op == ABSOLUTE:
        for i in range(m):
            out[i] = a[i] * abs(b[i] - c[i])
    elif op == SQUARED:
        for i in range(m):
            gap = b[i] - c[i]
            out[i] = a[i] * (gap * gap)
    elif op == OTHER:
        otherwise = space[int(first)]
        for i in range(m):
            out[i] = a[i] / b[i] * (c[i] / d[i]) if d[i] > 0.0 else otherwise[i]
    elif op == LOGARITHM:
        for i in range(m):
            out[i] = np.log1p(second * (a[i] * (b[i] - first)))
    elif op == EXPLORING:
        for i in range(m):
            out[i] = a[i] / (b[i] + first)


@unordered_helper
def _thin(w, p):
    small = 0.0
    for i in range(w.shape[0]):
        small += w[i] * (p[i] < SMALL)
    return small


@uncounted
def _largest(x):
    """The largest of x and 0, by its bits: comparing whole numbers vectorises."""
    bits, largest = x.view(np.int64), scratch(1, x)
    most = np.int64(0)
    for i in range(bits.shape[0]):
        most = max(most, bits[i])
    largest.view(np.int64)[0] = most
    return largest[0]


@uncounted
def _inspect(program, space, m, facts):
    """Add a tile to what is known about weights."""
    p = space[program.propensity][:m]
    for k in range(program.weights.shape[0]):
        w, reduced = space[program.weights[k, 0]][:m], program.weights[k, 1]
        facts[FACTS * k + LARGEST] = max(facts[FACTS * k + LARGEST], _largest(w))
        facts[FACTS * k + THIN] += _thin(w, p)
        if reduced >= 0:
            smaller = space[reduced][:m]
            for i in range(m):
                facts[FACTS * k + REDUCTIONS] += smaller[i]


@uncounted
def _watch(program, space, m, extremes):
    for k in range(program.watched.shape[0]):
        row, least, most = space[program.watched[k]][:m], extremes[k, 0], extremes[k, 1]
        for i in range(m):
            least, most = min(least, row[i]), max(most, row[i])
        extremes[k, 0], extremes[k, 1] = least, most


@uncounted
def _add_moments(program, space, m, index, first, address, width, shift):
    """Add a tile's events to the records of their groups."""
    variables, groups = program.variables, program.starts.shape[0] - 1
    gap, picked = shift[:variables], shift[variables:]
    p = space[program.propensity]
    for i in range(m):
        if index[first + i] < 0:
            continue
        record = memory(address + index[first + i] * width * 8, width, space)
        n = record[0]
        inverse = 1.0 / max(n, 1.0)
        for v in range(variables):
            x = space[v, i]
            gap[v] = x - (record[1 + v] + record[1 + variables + v]) * inverse
            record[1 + v], error = two_sum(record[1 + v], x)
            record[1 + variables + v] += error
        flat, share = 1 + 2 * variables, n / (n + 1.0)
        for g in range(groups):
            start, size = program.starts[g], program.starts[g + 1] - program.starts[g]
            for a in range(size):
                picked[a] = gap[program.members[start + a]]
            for a in range(size if n > 0.0 else 0):
                scaled = share * picked[a]
                for b in range(a, size):
                    record[flat + a * size + b] += scaled * picked[b]
            flat += size * size
        for k in range(program.weights.shape[0]):
            w, at = space[program.weights[k, 0], i], flat + FACTS * k
            record[at + LARGEST] = max(record[at + LARGEST], w)
            record[at + THIN] += w if p[i] < SMALL else 0.0
            if program.weights[k, 1] >= 0:
                record[at + REDUCTIONS] += space[program.weights[k, 1], i]
        record[0] = n + 1.0


@uncounted
def _add_sums(space, m, index, first, address, width):
    """Add the variables of a tile to the sums of their groups."""
    for i in range(m):
        if index[first + i] >= 0:
            record = memory(address + index[first + i] * width * 8, width, space)
            record[0] += 1.0
            for v in range(width - 1):
                record[1 + v] += space[v, i]


@uncounted
def _add_more(program, space, m, index, first, more, shift):
    for g in range(more.moments.shape[0]):
        _add_moments(program, space, m, index[g], first, more.moments[g, ADDRESS], more.moments[g, WIDTH], shift)
    for k in range(more.octaves.shape[0]):
        w = space[program.weights[k, 0]]
        bits = w.view(np.int64)
        for i in range(m):  # the exponent is the octave
            octave = min(max((bits[i] >> 52) - 1023, LOWEST), HIGHEST)
            more.octaves[k, octave - LOWEST + 1 if w[i] > 0.0 else 0] += 1.0


@uncounted
def _load(values, first, m, space):
    """Copy the observed rows of some events to the last rows of a tile."""
    before = space.shape[0] - values.shape[0]
    for row in range(values.shape[0]):
        found, out = values[row][first : first + m], space[before + row]
        for i in range(m):
            out[i] = found[i]


@kernel(
    void(PROGRAM, F8_IN2, I4_IN2, INTO, none, F8_2, F8),
    void(PROGRAM, F8_IN2, I4_IN2, INTO, MORE, F8_2, F8),
    counted=False,
)
def account(program, values, index, into, more, space, shift):
    """Add events to all that is summed up, given their observed rows (rows, events).

    index  By table and event, the number of its group, or -1 if it has none: first for tables of moments, then for
           those of sums.
    space  Memory for a tile.
    shift  Memory for two numbers for each variable.
    """
    whole, variables = into.whole, program.variables
    flat = whole.shape[0] - FACTS * program.weights.shape[0]
    before = index.shape[0] - into.sums.shape[0]
    for first in range(0, values.shape[1], TILE):
        m = min(TILE, values.shape[1] - first)
        _load(values, first, m, space)
        _fill(program, space, m, more)
        _inspect(program, space, m, whole[flat:])
        _watch(program, space, m, into.extremes)
        if more is not None:
            _add_more(program, space, m, index, first, more, shift)
        for g in range(into.sums.shape[0]):
            _add_sums(space, m, index[before + g], first, into.sums[g, ADDRESS], into.sums[g, WIDTH])
        update_tile(
            space,
            m,
            program.members,
            program.starts,
            whole[:1],
            whole[1 : 1 + variables],
            whole[1 + variables : 1 + 2 * variables],
            whole[1 + 2 * variables : flat],
            shift,
        )


@kernel(void(PROGRAM, F8_IN2, MORE, F8_2, F8_2), counted=False)
def compute(program, values, more, space, out):
    """out (variables, n) <- the variables of events."""
    for first in range(0, values.shape[1], TILE):
        m = min(TILE, values.shape[1] - first)
        _load(values, first, m, space)
        _fill(program, space, m, more)
        for v in range(out.shape[0]):
            row, found = out[v][first : first + m], space[v]
            for i in range(m):
                row[i] = found[i]


@kernel(void(int64, I8_IN, I8_IN, I8_IN, F8_2, F8_IN2, F8), counted=False)
def merge_moments(weights, place, members, starts, records, others, shift):
    """Add records of other events to those at these places. `shift` is memory for a number for each variable."""
    variables = shift.shape[0]
    for o in range(others.shape[0]):
        record, other = records[place[o]], others[o]
        n, m = record[0], other[0]
        if m == 0.0:
            continue
        for v in range(variables):
            mean = (other[1 + v] + other[1 + variables + v]) / m
            shift[v] = mean - (record[1 + v] + record[1 + variables + v]) / n if n > 0.0 else 0.0
            record[1 + v], error = two_sum(record[1 + v], other[1 + v])
            record[1 + variables + v] += error + other[1 + variables + v]
        flat = 1 + 2 * variables
        for g in range(starts.shape[0] - 1):
            size = starts[g + 1] - starts[g]
            products = record[flat : flat + size * size]
            for i in range(size * size):
                products[i] += other[flat + i]
            add_shift(shift, chan_factor(n, m), members[starts[g] : starts[g + 1]], products)
            flat += size * size
        for _ in range(weights):
            largest = max(record[flat], other[flat])
            for fact in range(FACTS):
                record[flat + fact] += other[flat + fact]
            record[flat + LARGEST] = largest
            flat += FACTS
        record[0] = n + m


@kernel(void(I8_IN, F8_2, F8_IN2), counted=False)
def merge_sums(place, records, others):
    """The same for records of sums."""
    for o in range(others.shape[0]):
        if others[o, 0] > 0.0:
            for v in range(others.shape[1]):
                records[place[o], v] += others[o, v]
