"""Small logs for tests: drawn by hypothesis, or from a seed."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import drstream as drs

MODEL_COLUMN, POLICY_COLUMN = "rhat", "pi"


@st.composite
def events(draw, max_rows=40):
    """Arrays of a log, probabilities and predictions: one row, ties, huge weights and K = 1 included."""
    rows = draw(st.integers(1, max_rows))
    actions = draw(st.integers(1, 5))
    finite = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 3))
    reward = draw(st.lists(st.one_of(st.sampled_from([0.0, 1.0]), finite), min_size=rows, max_size=rows))
    propensity = draw(
        st.lists(st.one_of(st.sampled_from([1.0, 0.5, 1e-9]), st.floats(1e-3, 1.0)), min_size=rows, max_size=rows)
    )
    action = draw(st.lists(st.integers(0, actions - 1), min_size=rows, max_size=rows))
    raw = draw(st.lists(st.lists(st.integers(0, 9), min_size=actions, max_size=actions), min_size=rows, max_size=rows))
    pi = np.array(raw, float)
    pi[pi.sum(axis=1) == 0, 0] = 1
    pi /= pi.sum(axis=1, keepdims=True)
    rhat = np.array(draw(st.lists(finite, min_size=rows * actions, max_size=rows * actions))).reshape(rows, actions)
    return {
        "reward": np.array(reward),
        "propensity": np.array(propensity),
        "action": np.array(action, np.int32),
        "pi": pi,
        "rhat": rhat,
    }


def as_table(log, chunks=()):
    """The events as a table whose policy and model stand in columns, cut into chunks after these rows."""
    table = pa.table(
        {
            "action": log["action"],
            "reward": log["reward"],
            "propensity": log["propensity"],
            POLICY_COLUMN: list(log["pi"]),
            MODEL_COLUMN: list(log["rhat"]),
        }
    )
    cuts = [0, *sorted(chunks), table.num_rows]
    return pa.concat_tables(table.slice(a, b - a) for a, b in itertools.pairwise(cuts))


def world(seed=0, **options):
    return drs.synth.World(**{"n_actions": 4, "n_features": 3, "seed": seed, **options})


def arrays(table, features):
    """X, a, r, p of a table with columns x0, x1, ..."""
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(features)]).astype(float)
    return X, *(table[name].to_numpy() for name in ("action", "reward", "propensity"))


def log_of(X, action, reward, propensity=None, *, sparse=False, path=None, **options):
    """A log of these contexts (n, d): a column of lists, or, sparse, of indices and values of what is not 0.

    With a path, it is a Parquet file of five row groups.
    """
    n, d = X.shape
    columns = {
        "action": np.asarray(action),
        "reward": np.asarray(reward, float),
        "propensity": np.full(n, 0.5) if propensity is None else np.asarray(propensity),
    }
    if sparse:
        places = [np.flatnonzero(x).astype(np.int32) for x in X]
        columns["at"] = pa.array(places, pa.list_(pa.int32()))
        columns["value"] = pa.array([x[at] for x, at in zip(X, places, strict=True)], pa.list_(pa.float64()))
    else:
        columns["x"] = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(X, float).reshape(-1), d)
    table = pa.table(columns)
    context = drs.Sparse("at", "value", dim=d) if sparse else "x"
    if path is not None:
        pq.write_table(table, path, row_group_size=max(1, n // 5))
    return drs.Log(table if path is None else path, context=context, **options)


def clustered(cluster, rows=None):
    """A log of two actions with a column of users."""
    rows = len(cluster) if rows is None else rows
    return pa.table(
        {
            "action": np.arange(rows) % 2,
            "reward": np.arange(rows) / rows,
            "propensity": np.full(rows, 0.5),
            "x0": np.arange(rows) * 1.0,
            "user": cluster,
        }
    )
