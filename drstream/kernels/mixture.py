"""Probabilities of a mixture of one compiled policy's states, Σ_m weight_m π(a|x, state_m)."""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import DOUBLE, F8_2, F8_IN, F8_IN2, U1_IN2, function, named, void
from drstream.kernels.eligible import ELIGIBLE_PROBABILITIES, SPARSE_ELIGIBLE_PROBABILITIES
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, Rows

TILE = 512  # events for which a state is used before the next one is fetched: 1.3 times as fast as one event


@helper
def mix_with(states, weights, contexts, rows, eligible, ask, ask_within, out):
    """The loop for either contexts (n, d) or sparse rows, without or with eligible sets (n, K); the others are None."""
    events, actions = out.shape
    pi = np.empty(actions)
    out[:] = 0.0
    for start in range(0, events, TILE):
        for m in range(states.shape[0]):
            state = states[m]
            weight = weights[m]
            for i in range(start, min(start + TILE, events)):
                if contexts is not None:
                    if ask is not None:
                        ask(state, contexts[i], pi)
                    if ask_within is not None:
                        ask_within(state, contexts[i], eligible[i], pi)
                if rows is not None:
                    first = rows.indptr[i]
                    last = rows.indptr[i + 1]
                    if ask is not None:
                        ask(state, rows.indices[first:last], rows.values[first:last], pi)
                    if ask_within is not None:
                        ask_within(state, rows.indices[first:last], rows.values[first:last], eligible[i], pi)
                for k in range(actions):
                    out[i, k] += weight * pi[k]


@kernel(void(F8_2, F8_IN, F8_IN2, function(PROBABILITIES), F8_2))
def mix(states, weights, contexts, probabilities, out):
    """out (n, K) <- the mixture of states (M, S) with weights (M), for contexts (n, d)."""
    mix_with(states, weights, contexts, None, None, probabilities, None, out)


@kernel(void(F8_2, F8_IN, named(Rows, *DOUBLE), function(SPARSE_PROBABILITIES), F8_2))
def mix_sparse(states, weights, rows, probabilities, out):
    """`mix` for sparse contexts."""
    mix_with(states, weights, None, rows, None, probabilities, None, out)


@kernel(void(F8_2, F8_IN, F8_IN2, U1_IN2, function(ELIGIBLE_PROBABILITIES), F8_2))
def mix_eligible(states, weights, contexts, eligible, probabilities, out):
    """`mix` with eligible sets: 1 for the actions that an event could choose."""
    mix_with(states, weights, contexts, None, eligible, None, probabilities, out)


@kernel(void(F8_2, F8_IN, named(Rows, *DOUBLE), U1_IN2, function(SPARSE_ELIGIBLE_PROBABILITIES), F8_2))
def mix_sparse_eligible(states, weights, rows, eligible, probabilities, out):
    mix_with(states, weights, None, rows, eligible, None, probabilities, out)
