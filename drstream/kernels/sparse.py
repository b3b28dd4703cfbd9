"""Products of sparse rows with weights, and sums of sparse rows.

Row i of a context has values[j] at indices[j] for j in indptr[i]..indptr[i + 1]. Weights are (d, K), feature by
feature: what one entry needs of them, the K actions', stands together in memory.
"""

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import F4_IN, F8, F8_2, F8_IN, F8_IN2, I4_IN, I8_IN, void

SINGLE, DOUBLE = (I8_IN, I4_IN, F4_IN), (I8_IN, I4_IN, F8_IN)  # indptr, indices, values


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
