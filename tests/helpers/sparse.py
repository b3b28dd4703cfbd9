"""Logs with sparse contexts, beside the same logs made dense."""

import numpy as np
import pyarrow as pa

import drstream as drs

REWARDS = (0.0, 1.0, 0.4)
DIM = 40


def sparse_rows(rng, rows, dim, kind, most=9, repeats=False, ordered=True):
    """Lists of indices and values of up to `most` entries, some of them empty."""
    lengths = rng.integers(0, most + 1, rows)
    lengths[::7] = 0
    indices = [rng.choice(dim, n, replace=repeats).astype(np.int32) for n in lengths]
    if ordered:
        indices = [np.sort(i) for i in indices]
    return indices, [rng.standard_normal(n).astype(kind) for n in lengths]


def both_logs(seed=0, rows=400, actions=3, kind="float64", dim=DIM, values=True, rewards=REWARDS, **options):
    """The same events twice: with sparse contexts, and with dense ones; and X, and predictions."""
    rng = np.random.default_rng(seed)
    indices, numbers = sparse_rows(rng, rows, dim, kind, **options)
    if not values:
        numbers = [np.ones(len(i)) for i in indices]
    X = np.zeros((rows, dim))
    for i, (at, value) in enumerate(zip(indices, numbers, strict=True)):
        np.add.at(X[i], at, value)
    columns = {
        "action": rng.integers(0, actions, rows),
        "reward": rng.choice(rewards, rows),
        "propensity": rng.choice([1.0, 0.5, 0.25, 0.06, 0.9], rows),
        "rhat": pa.array(list(rng.random((rows, actions)))),
    }
    lists = {"at": pa.array(indices, pa.list_(pa.int32()))}
    if values:
        lists["value"] = pa.array(numbers, pa.list_(pa.from_numpy_dtype(kind)))
    table = pa.table({**columns, **lists})
    context = drs.Sparse("at", "value" if values else None, dim=dim)
    dense = pa.table({**columns, "x": pa.FixedSizeListArray.from_arrays(X.reshape(-1), dim)})
    return drs.Log(table, context=context, actions=actions), drs.Log(dense, context="x", actions=actions), X, table
