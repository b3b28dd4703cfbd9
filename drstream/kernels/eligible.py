"""The loop of `replay.learn` for compiled policies on logs with eligible sets: the set of an event is an argument.

`eligible` is a mask of bytes (K): 1 for the actions that the event could choose. A policy must give the others 0. Few
policies need the set to learn from an event. The others have the update function that they have without sets.
"""

from drstream.kernels._jit import kernel
from drstream.kernels._types import (
    DOUBLE,
    F4_IN3,
    F8,
    F8_IN,
    F8_IN3,
    I4_IN,
    SINGLE,
    U1,
    U1_IN,
    float64,
    function,
    int64,
    named,
    none,
    void,
)
from drstream.kernels.lanes import LANE_TYPE
from drstream.kernels.replay import EVENTS_TYPE, LEARNER_TYPE, SPARSE_UPDATE, UPDATE, Rows, learn_with

ELIGIBLE_PROBABILITIES = void(F8, F8_IN, U1_IN, F8)  # state, x, eligible, out
ELIGIBLE_UPDATE = void(F8, F8_IN, U1_IN, int64, float64)  # state, x, eligible, action, reward
SPARSE_ELIGIBLE_PROBABILITIES = void(F8, I4_IN, F8_IN, U1_IN, F8)  # state, indices, values, eligible, out
# state, indices, values, eligible, action, reward
SPARSE_ELIGIBLE_UPDATE = void(F8, I4_IN, F8_IN, U1_IN, int64, float64)

_UPDATES = (function(UPDATE), none), (none, function(ELIGIBLE_UPDATE))
_SPARSE_UPDATES = (function(SPARSE_UPDATE), none), (none, function(SPARSE_ELIGIBLE_UPDATE))


def _types(contexts, probabilities, updates):
    return EVENTS_TYPE, contexts, U1, LANE_TYPE, LEARNER_TYPE, function(probabilities), *updates, int64, int64


@kernel(
    *(int64(*_types(x, ELIGIBLE_PROBABILITIES, updates)) for x in (F4_IN3, F8_IN3) for updates in _UPDATES),
    counted=False,
)
def learn_eligible(events, contexts, within, lane, learner, probabilities, update, update_within, first, last):
    """`learn` on a log with sets. `within` is space for one. One of the updates is None."""
    return learn_with(
        events, contexts, None, within, lane, learner, None, probabilities, update, update_within, first, last
    )


@kernel(
    *(
        int64(*_types(named(Rows, *x), SPARSE_ELIGIBLE_PROBABILITIES, updates))
        for x in (SINGLE, DOUBLE)
        for updates in _SPARSE_UPDATES
    ),
    counted=False,
)
def learn_sparse_eligible(events, rows, within, lane, learner, probabilities, update, update_within, first, last):
    """`learn_sparse` on a log with sets."""
    return learn_with(
        events, None, rows, within, lane, learner, None, probabilities, update, update_within, first, last
    )
