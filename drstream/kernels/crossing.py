"""What several simulations of the same events have in common: co-moments of their terms and of their acceptances."""

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8_2, F8_3, F8_IN3, void


@kernel(void(F8_IN3, F8_2, F8_3))
def add(traces, totals, products):
    """Add events to sums over all pairs of simulations.

    traces    (L, n, 3): for each simulation and event the multiplier c, the term c V_k, and 1 if it was accepted. Zeros
              in a pilot.
    totals    (L, 3): their sums.
    products  (L, L, 4): Σ c c', Σ c V_k c' V_k', the number of events that both accepted, and Σ c V_k c'. The first
              three only for l' <= l.
    """
    for k in range(traces.shape[1]):
        for i in range(traces.shape[0]):
            value = traces[i, k, 1]
            for m in range(3):
                totals[i, m] += traces[i, k, m]
            for j in range(i + 1):
                for m in range(3):
                    products[i, j, m] += traces[i, k, m] * traces[j, k, m]
            for j in range(traces.shape[0]):
                products[i, j, 3] += value * traces[j, k, 0]
