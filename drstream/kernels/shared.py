"""The compiled online policies on candidates: one model of the reward, whose features are those of x and z.

Without interactions, the features are φ = [x, 1, z]. With them, they are all products of [x, 1] and [1, z]:
φ = [x, 1, z_1 x, z_1, z_2 x, z_2, ...]. So weights are blocks: the first for [x, 1], then one for each feature of a
candidate, of d + 1 numbers with interactions and of one without.

The state is a header, as in `learners.py`, the weights, for LinUCB A⁻¹ (D, D), and space to compute in.
"""

import math

from drstream.kernels._jit import inlined, kernel
from drstream.kernels.learners import (
    BOLTZMANN,
    EPSILON_GREEDY,
    HEADER,
    KIND,
    PARAMETER,
    UPDATES,
    affine,
    boltzmann_from,
    epsilon_greedy_from,
    pace_of,
    square_cb_from,
    take_best,
)
from drstream.kernels.replay_ragged import SHARED_PROBABILITIES, SHARED_UPDATE
from drstream.kernels.sums import dot

INTERACTIONS = 0  # in the header: 1 if features are products of x and z. Candidates have no N_ACTIONS


@inlined
def _size(state, x, width):
    """The number of features of a block for a candidate's feature, and of all."""
    each = x.shape[0] + 1 if state[INTERACTIONS] == 1.0 else 1
    return each, x.shape[0] + 1 + width * each


@inlined
def _weigh(state, x, width, space):
    """What the context makes of the weights: the score of z = 0, and where weights of z begin."""
    base = affine(state, HEADER, x)
    own = HEADER + x.shape[0] + 1
    if state[INTERACTIONS] == 0.0:
        return base, own
    for j in range(width):
        state[space + j] = affine(state, own + j * (x.shape[0] + 1), x)
    return base, space


@inlined
def _score(state, x, Z, space, out):
    width = Z.shape[1]
    base, own = _weigh(state, x, width, space)
    for k in range(out.shape[0]):
        out[k] = base + dot(Z[k], state[own : own + width])


@kernel(SHARED_PROBABILITIES, counted=False)
def shared_linear(state, x, Z, out):
    """π of EpsilonGreedy, Boltzmann or SquareCB, whichever the state is of."""
    _score(state, x, Z, HEADER + _size(state, x, Z.shape[1])[1], out)
    if state[KIND] == EPSILON_GREEDY:
        epsilon_greedy_from(state, out, out.shape[0])
    elif state[KIND] == BOLTZMANN:
        boltzmann_from(state, out)
    else:
        square_cb_from(state, out, out.shape[0])


@inlined
def _add(state, start, x, factor):
    """state[start : start + d + 1] += factor * [x, 1]."""
    for i in range(x.shape[0]):
        state[start + i] += factor * x[i]
    state[start + x.shape[0]] += factor


@kernel(SHARED_UPDATE, counted=False)
def shared_descend(state, x, z, reward):
    """A step of gradient descent, as `learners.descend` takes it, on the weights that all candidates share."""
    width = z.shape[0]
    each, size = _size(state, x, width)
    base, own = _weigh(state, x, width, HEADER + size)
    squared = dot(x, x) + 1.0
    whole = squared * (dot(z, z) + 1.0) if each > 1 else squared + dot(z, z)
    pace = pace_of(state, base + dot(z, state[own : own + width]), whole, reward)
    _add(state, HEADER, x, pace)
    start = HEADER + x.shape[0] + 1
    for j in range(width):
        if state[INTERACTIONS] == 1.0:
            _add(state, start + j * each, x, pace * z[j])
        else:
            state[start + j] += pace * z[j]
    state[UPDATES] += 1.0


# LinUCB (Li, Chu, Langford, Schapire 2010) with one ridge regression. θ and A⁻¹ follow the formula of Sherman and
# Morrison. φ is linear in [1, z], so φ' A⁻¹ φ = [1, z]' G [1, z] with a small G that depends on the context only.


@inlined
def _along(state, start, x, crossed):
    """A block of weights times what the context says of it: [x, 1], or 1."""
    if crossed:
        return affine(state, start, x)
    return state[start]


@inlined
def _begin(x, p, each):
    """Where block p begins among the features."""
    return 0 if p == 0 else x.shape[0] + 1 + (p - 1) * each


@inlined
def _gather(state, x, width, inverse, each, size, space):
    """G (width + 1, width + 1) into the space."""
    crossed = state[INTERACTIONS] == 1.0
    for p in range(width + 1):
        first = _begin(x, p, each)
        rows = x.shape[0] + 1 if p == 0 or crossed else 1
        for q in range(width + 1):
            total = 0.0
            for i in range(rows):
                row = inverse + (first + i) * size + _begin(x, q, each)
                total += (x[i] if i < rows - 1 else 1.0) * _along(state, row, x, q == 0 or crossed)
            state[space + p * (width + 1) + q] = total


@kernel(SHARED_PROBABILITIES, counted=False)
def shared_lin_ucb(state, x, Z, out):
    width = Z.shape[1]
    each, size = _size(state, x, width)
    inverse = HEADER + size
    own = inverse + size * size
    space = own + width
    _score(state, x, Z, own, out)
    _gather(state, x, width, inverse, each, size, space)
    for k in range(out.shape[0]):
        variance = state[space]
        for j in range(width):
            row = space + (j + 1) * (width + 1)
            variance += Z[k, j] * (2.0 * state[row] + dot(Z[k], state[row + 1 : row + 1 + width]))
        out[k] += state[PARAMETER] * math.sqrt(max(variance, 0.0))
    take_best(out)


@inlined
def _feature(state, x, z, i, each):
    """φ_i."""
    block = i - x.shape[0] - 1
    if block < 0:
        return x[i] if block < -1 else 1.0
    place = block % each
    return z[block // each] * (x[place] if place < each - 1 else 1.0)


@kernel(SHARED_UPDATE, counted=False)
def shared_lin_ucb_update(state, x, z, reward):
    """g = A⁻¹ φ; θ += g (r - θ·φ) / (1 + φ·g), A⁻¹ -= g g' / (1 + φ·g)."""
    width = z.shape[0]
    each, size = _size(state, x, width)
    crossed = state[INTERACTIONS] == 1.0
    inverse = HEADER + size
    space = inverse + size * size
    base, own = _weigh(state, x, width, space)
    error = reward - base - dot(z, state[own : own + width])
    scale = 1.0
    for i in range(size):
        row = inverse + i * size
        total = affine(state, row, x)
        for j in range(width):
            total += z[j] * _along(state, row + _begin(x, j + 1, each), x, crossed)
        state[space + i] = total
        scale += total * _feature(state, x, z, i, each)
    for i in range(size):
        gain = state[space + i]
        state[HEADER + i] += gain * error / scale
        for j in range(size):
            state[inverse + i * size + j] -= gain * state[space + j] / scale
    state[UPDATES] += 1.0
