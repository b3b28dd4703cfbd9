"""Products of sparse rows with weights, sums of sparse rows, and rows without repeated indices.

Row i of a context has values[j] at indices[j] for j in indptr[i]..indptr[i + 1]. Weights are (d, K), so
that the K weights that one entry needs are contiguous.
"""

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import (
    DOUBLE,
    F8,
    F8_2,
    F8_IN,
    F8_IN2,
    F8_IN3,
    I4,
    I4_IN,
    I8,
    I8_IN,
    SINGLE,
    int64,
    void,
)


@inlined
def multiply_row(weights, first, last, indices, values, out):
    """out (K) += the row's product with the weights."""
    for j in range(first, last):
        w = weights[indices[j]]
        v = values[j]
        for k in range(out.shape[0]):
            out[k] += v * w[k]


@kernel(void(F8_IN2, F8_IN, *SINGLE, F8_2), void(F8_IN2, F8_IN, *DOUBLE, F8_2))
def affine(weights, intercept, indptr, indices, values, out):
    """out (n, K) = x @ weights + intercept."""
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = intercept
        multiply_row(weights, indptr[i], indptr[i + 1], indices, values, row)


@kernel(void(F8_IN2, I4_IN, *SINGLE, F8), void(F8_IN2, I4_IN, *DOUBLE, F8))
def logged_products(weights, action, indptr, indices, values, out):
    """out[i] = x_i . weights[:, a_i]."""
    for i in range(out.shape[0]):
        a = action[i]
        total = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            total += values[j] * weights[indices[j], a]
        out[i] = total


@kernel(void(F8_IN, I4_IN, *SINGLE, F8_2), void(F8_IN, I4_IN, *DOUBLE, F8_2))
def add_logged(factor, action, indptr, indices, values, out):
    """out[:, a_i] += factor_i x_i; out is (d, K)."""
    for i in range(factor.shape[0]):
        a = action[i]
        for j in range(indptr[i], indptr[i + 1]):
            out[indices[j], a] += factor[i] * values[j]


@kernel(void(F8_IN2, *SINGLE, F8_2), void(F8_IN2, *DOUBLE, F8_2))
def add_outer(factor, indptr, indices, values, out):
    """out (d, K) += x_i outer factor_i, for every row i of factor (n, K)."""
    for i in range(factor.shape[0]):
        row = factor[i]
        for j in range(indptr[i], indptr[i + 1]):
            total = out[indices[j]]
            for k in range(row.shape[0]):
                total[k] += values[j] * row[k]


_SCORED = I8_IN, F8_IN2, F8_IN2, F8_IN, F8  # fold, by_event, weights, intercepts, out


@kernel(void(I8_IN, *SINGLE, *_SCORED), void(I8_IN, *DOUBLE, *_SCORED))
def score(starts, indptr, indices, values, fold, by_event, weights, intercepts, out):
    """out[c] <- intercept + w . z_c, plus what the context of its event adds, for candidates with sparse features.

    starts    Those of event i are the rows starts[i]..starts[i + 1].
    fold      Which weights (folds, d) and intercepts (folds) an event has.
    by_event  What contexts add (folds, n); no rows if they add nothing.
    """
    for i in range(starts.shape[0] - 1):
        base = intercepts[fold[i]]
        if by_event.shape[0] > 0:
            base += by_event[fold[i], i]
        w = weights[fold[i]]
        for c in range(starts[i], starts[i + 1]):
            total = base
            for j in range(indptr[c], indptr[c + 1]):
                total += values[j] * w[indices[j]]
            out[c] = total


@kernel(void(I8_IN, *SINGLE, *DOUBLE, I8_IN, F8_IN3, F8), void(I8_IN, *DOUBLE, *DOUBLE, I8_IN, F8_IN3, F8))
def add_products(starts, indptr, indices, values, x_indptr, x_indices, x_values, fold, weights, out):
    """out[c] += x' W z_c, for candidates with sparse features, and the contexts x of their events as sparse rows.

    weights  W (folds, contexts' features, candidates' features)
    """
    for i in range(starts.shape[0] - 1):
        w = weights[fold[i]]
        for c in range(starts[i], starts[i + 1]):
            total = 0.0
            for k in range(x_indptr[i], x_indptr[i + 1]):
                row = w[x_indices[k]]
                for j in range(indptr[c], indptr[c + 1]):
                    total += x_values[k] * values[j] * row[indices[j]]
            out[c] += total


@kernel(int64(I8_IN, I4_IN))
def first_unsorted(indptr, indices):
    """The first row whose indices do not increase. -1: they increase in all rows, so no index is repeated."""
    for i in range(indptr.shape[0] - 1):
        row = indices[indptr[i] : indptr[i + 1]]
        falls = 0
        for j in range(1, row.shape[0]):
            falls += row[j] <= row[j - 1]
        if falls > 0:
            return i
    return -1


_ONCE = I8, I8, I4, F8  # places, starts, at, sums


@kernel(int64(*SINGLE, *_ONCE), int64(*DOUBLE, *_ONCE))
def add_up(indptr, indices, values, places, starts, at, sums):
    """Add up the values of repeated indices of a row, at the first of them. Returns how many entries are left.

    places (d) begins as zeros. For each index, it is one more than its last place in `sums`.
    """
    n = 0
    for i in range(indptr.shape[0] - 1):
        starts[i] = n
        for j in range(indptr[i], indptr[i + 1]):
            place = places[indices[j]] - 1
            if place >= starts[i]:
                sums[place] += values[j]
            else:
                at[n] = indices[j]
                sums[n] = values[j]
                n += 1
                places[indices[j]] = n
    starts[indptr.shape[0] - 1] = n
    return n
