"""Fixed logs of every kind, made with NumPy alone, so that nothing in drstream can change them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frozen import calls

ROWS, ACTIONS, FEATURES = 6_000, 4, 5
CONTEXT = [f"x{j}" for j in range(FEATURES)]
USUAL = {"action": "action", "reward": "reward", "propensity": "propensity"}


def probabilities(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def draw(rng, p):
    return (rng.random(len(p))[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


def lists(values, kind=None):
    return pa.array([np.asarray(v) for v in values], None if kind is None else pa.list_(kind))


def events(rows=ROWS, seed=7):
    """Contexts, and every other column that an evaluation of events with one action can use."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, FEATURES)).astype(np.float32).astype(float)
    tastes = np.random.default_rng(1).normal(size=(2, ACTIONS, FEATURES))
    a, b = probabilities(0.7 * X @ tastes[0].T), np.full((rows, ACTIONS), 1 / ACTIONS)
    by_b = rng.random(rows) < 0.3
    p = np.where(by_b[:, None], b, a)
    action, every = draw(rng, p), np.arange(rows)
    reward = (rng.random(rows) < 1 / (1 + np.exp(-(X * tastes[1][action]).sum(axis=1)))).astype(float)
    columns = {
        "action": action,
        "reward": reward,
        "propensity": p[every, action],
        "spend": np.round(reward * rng.gamma(2.0, 20.0, rows), 2),
        "rate": np.where(reward > 0, 1.0, 0.5),
        "logger": np.where(by_b, "b", "a"),
        "of_a": a[every, action],
        "of_b": b[every, action],
        "all": lists(p),
        "group": action % 2,
        "user": rng.integers(0, 700, rows),
        "country": np.array(["DE", "FR", "US", "JP", "BR"])[rng.integers(0, 5, rows)],
        "mobile": rng.random(rows) < 0.6,
        "target": (X @ tastes[1].T).argmax(axis=1),
        "new": lists(probabilities(X @ tastes[1].T)),
        "guess": lists(1 / (1 + np.exp(-X @ tastes[1].T))),
    }
    return X, pa.table(columns)


def with_columns(table, columns):
    for name, column in columns.items():
        table = table.append_column(name, column if isinstance(column, pa.Array) else pa.array(column))
    return table


def wide(X, kind=float):
    return {f"x{j}": X[:, j].astype(kind) for j in range(X.shape[1])}


def days(folder, kind):
    """Files of two days."""
    paths = [folder / f"day{seed}-{kind.__name__}.parquet" for seed in (21, 22)]
    for seed, path in zip((21, 22), paths, strict=True):
        X, table = events(3_000, seed)
        pq.write_table(with_columns(table, wide(X, kind)), path, row_group_size=1_100)
    return paths


def opened(source):
    return calls.log(source, context=CONTEXT, **USUAL)


def single(folder):
    """Logs of events with one action, by name: a function of further options for `calls.log`."""
    X, table = events()
    rng = np.random.default_rng(3)
    double = with_columns(table, wide(X))
    pq.write_table(with_columns(table, wide(X, np.float32)), folder / "wide.parquet", row_group_size=1_500)
    pq.write_table(double, folder / "double.parquet", row_group_size=1_700)
    with pa.OSFile(str(folder / "double.arrow"), "wb") as file, pa.ipc.new_file(file, double.schema) as writer:
        writer.write_table(double, max_chunksize=1_300)
    whole = with_columns(table, wide(np.round(X * 10), np.int32))
    mixed = {"x0": (X[:, 0] * 9).astype(np.int8), "x1": X[:, 1] > 0, "x2": X[:, 2].astype(np.float32), "x3": X[:, 3]}
    mixed = with_columns(table, {**mixed, "x4": (X[:, 4] * 1e3).astype(np.int64)})
    listed = pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float32).reshape(-1)), FEATURES)
    dense = (rng.random((ROWS, 40)) < 0.1) * rng.normal(size=(ROWS, 40))
    at = [np.flatnonzero(x).astype(np.int32) for x in dense]
    values = lists([x[i].astype(np.float32) for x, i in zip(dense, at, strict=True)], pa.float32())
    sparse = with_columns(table, {"at": lists(at, pa.int32()), "is": values})
    gaps = with_columns(table, {**wide(X[:, 1:]), "x9": pa.array(X[:, 0], mask=np.arange(ROWS) % 9 == 0)})
    cities = np.array([f"c{c}" for c in rng.integers(0, 9, ROWS)])
    encoded = with_columns(table, {"x0": X[:, 0], "city": cities, "x1": X[:, 1], "level": rng.integers(0, 3, ROWS)})
    bad = np.array(double["propensity"].to_numpy())
    bad[::97] = -1.0
    labels = np.array(["web", "news", "film", "song"])[table["action"].to_numpy()]
    costs = double.drop_columns(["propensity", "reward", "action"])
    costs = with_columns(costs, {"propensity": bad, "cost": -table["reward"].to_numpy(), "action": labels})
    x = CONTEXT
    X, table = events(200_000, 8)
    large = with_columns(table, wide(X))
    pq.write_table(large, folder / "large.parquet", row_group_size=150_000)

    def of(source, context, **fixed):
        return lambda **more: calls.log(source, context=context, **{**USUAL, **fixed, **more})

    return {
        "wide": of(folder / "wide.parquet", x),
        "double": of(folder / "double.parquet", x),
        "arrow": of(folder / "double.arrow", x),
        "memory": of(double, x),
        "integers": of(whole, x),
        "mixed": of(mixed, x),
        "gaps": of(gaps, ["x0", "x1", "x2", "x9"], missing=0.5),
        "listed": of(with_columns(events()[1], {"x": listed}), "x"),
        "sparse": of(sparse, calls.sparse("at", "is", 40)),
        "encoded": of(encoded, ["x0", "city", "x1", "level"], categorical="level"),
        "hashed": of(encoded, ["x0", calls.hashed("city", 6), "x1"]),
        "bad rows": of(costs, x, reward="cost", on_bad_row="skip"),
        "stream": lambda **more: of(double.to_reader(max_chunksize=1_000), x)(actions=ACTIONS, **more),
        "large": of(folder / "large.parquet", x),
        "large memory": of(large, x),
    }
