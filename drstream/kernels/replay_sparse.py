"""DR-ns with a compiled policy on sparse contexts; a file of its own, compiled only where contexts are sparse."""

from drstream.kernels._jit import kernel
from drstream.kernels._types import DOUBLE, SINGLE, function, int64, named
from drstream.kernels.replay import (
    EVENTS_TYPE,
    LANE_TYPE,
    LEARNER_TYPE,
    SPARSE_PROBABILITIES,
    SPARSE_UPDATE,
    Rows,
    learn_with,
)

_SPARSE_LEARNER = LEARNER_TYPE, function(SPARSE_PROBABILITIES), function(SPARSE_UPDATE)


@kernel(
    int64(EVENTS_TYPE, named(Rows, *SINGLE), LANE_TYPE, *_SPARSE_LEARNER),
    int64(EVENTS_TYPE, named(Rows, *DOUBLE), LANE_TYPE, *_SPARSE_LEARNER),
)
def learn_sparse(events, rows, lane, learner, probabilities, update):
    """The same for sparse contexts; learner.x has room for the values of any row."""
    return learn_with(events, None, rows, lane, learner, probabilities, update)
