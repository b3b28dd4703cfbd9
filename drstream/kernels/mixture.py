"""Probabilities of a mixture of one compiled policy's states, Σ_m weight_m π(a|x, state_m)."""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import DOUBLE, F8_2, F8_IN, F8_IN2, function, named, void
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, Rows

TILE = 512  # events for which a state is used before the next one is fetched: 1.3 times as fast as one event


@helper
def mix_with(states, weights, contexts, rows, probabilities, out):
    """The loop for either contexts (n, d) or sparse rows; the other is None."""
    events, actions = out.shape
    pi = np.empty(actions)
    out[:] = 0.0
    for start in range(0, events, TILE):
        for m in range(states.shape[0]):
            state = states[m]
            weight = weights[m]
            for i in range(start, min(start + TILE, events)):
                if contexts is not None:
                    probabilities(state, contexts[i], pi)
                if rows is not None:
                    first = rows.indptr[i]
                    last = rows.indptr[i + 1]
                    probabilities(state, rows.indices[first:last], rows.values[first:last], pi)
                for k in range(actions):
                    out[i, k] += weight * pi[k]


@kernel(void(F8_2, F8_IN, F8_IN2, function(PROBABILITIES), F8_2))
def mix(states, weights, contexts, probabilities, out):
    """out (n, K) <- the mixture of states (M, S) with weights (M), for contexts (n, d)."""
    mix_with(states, weights, contexts, None, probabilities, out)


@kernel(void(F8_2, F8_IN, named(Rows, *DOUBLE), function(SPARSE_PROBABILITIES), F8_2))
def mix_sparse(states, weights, rows, probabilities, out):
    """`mix` for sparse contexts."""
    mix_with(states, weights, None, rows, probabilities, out)
