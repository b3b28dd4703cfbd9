"""Every form in which a log can hold sparse contexts."""

from collections import Counter

import numpy as np
import pyarrow as pa

import drstream as drs
from drstream.log import Csr
from tests.helpers import reference
from tests.helpers.passes import PLAIN

DIM, ACTIONS, ROWS = 11, 3, 120 if PLAIN else 600
CONTEXT = drs.Sparse("indices", "values", dim=DIM)


def pairs(seed=0, rows=ROWS, length=None):
    """Rows of (index, value): empty ones, an index twice, and in no order. Sums of such values are exact."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 6, rows) if length is None else np.full(rows, length)
    return [[(int(random.integers(DIM)), int(random.integers(1, 9))) for _ in range(size)] for size in sizes]


def roles(rows, seed=1):
    random = np.random.default_rng(seed)
    return {
        "action": pa.array(random.integers(0, ACTIONS, rows)),
        "reward": pa.array(random.normal(size=rows)),
        "propensity": pa.array(random.uniform(0.1, 1, rows)),
    }


def array(rows, kind):
    """Arrow makes no halves of Python's integers."""
    if pa.types.is_float16(kind.value_type):
        return pa.array([row and [np.float16(v) for v in row] for row in rows], kind)
    return pa.array(rows, kind)


def columns(rows, form, index=pa.int32(), value=pa.float32()):  # noqa: B008  # types do not change
    """The contexts' columns in this form, and how to read them; indices alone stand for values of 1."""
    indices, values = [[i for i, _ in row] for row in rows], [[v for _, v in row] for row in rows]
    half = np.float16 if pa.types.is_float16(value) else lambda v: v
    if form in ("two lists", "large lists", "fixed lists", "indices"):
        size = len(rows[0]) if form == "fixed lists" else -1
        make = pa.large_list if form == "large lists" else lambda kind: pa.list_(kind, size)
        found = {"indices": pa.array(indices, make(index)), "values": array(values, make(value))}
        if form == "indices":
            return {"indices": found["indices"]}, drs.Sparse("indices", dim=DIM)
        return found, CONTEXT
    if form == "map":
        return {"f": pa.array([[(i, half(v)) for i, v in row] for row in rows], pa.map_(index, value))}, one_column()
    names = {"other structs": ("Weight", "note", "ID")}.get(form, ("index", "value"))
    of = {"index": index, "value": value, "ID": index, "Weight": value, "note": pa.string()}
    entry = {"index": lambda i, v: i, "ID": lambda i, v: i, "note": lambda i, v: "?"}
    structs = [[{n: entry.get(n, lambda i, v: half(v))(i, v) for n in names} for i, v in row] for row in rows]
    kind = pa.struct([(n, of[n]) for n in names])
    make = {"large structs": pa.large_list, "fixed structs": lambda k: pa.list_(k, len(rows[0]))}.get(form, pa.list_)
    return {"f": pa.array(structs, make(kind))}, one_column()


def one_column(dim=DIM):
    return drs.Sparse("f", dim=dim)


def sparse_table(rows, form="two lists", **types):
    found, context = columns(rows, form, **types)
    return pa.table({**found, **roles(len(rows))}), context


def policies(seed=2):
    W = np.random.default_rng(seed).integers(-8, 9, (ACTIONS, DIM)) / 8  # exact sums, in whatever order
    b = np.array([0.0, 0.125, -0.25])

    def soft(X):
        return reference.softmax(W, b, X)

    return {
        "softmax": drs.policies.Softmax(W, b, temperature=2),
        "linear": drs.policies.Linear(W),
        "linear with an intercept": drs.policies.Linear(W, b),
        "epsilon": drs.policies.Epsilon(drs.policies.Softmax(W), 0.25),
        "epsilon of a function": drs.policies.Epsilon(soft, 0.25),
        "function": soft,
    }


def values(log, **options):
    """What must be the same to the last bit."""
    chosen = policies()
    result = drs.evaluate(log, chosen, estimators=["ips", "snips"], **options)
    return [(result[name, e].value, result[name, e].stderr) for name in chosen for e in ("ips", "snips")]


def batches(log, skipped=None, **needs):
    reader = log.reader(context=True, **needs)
    skipped = Counter() if skipped is None else skipped
    return [batch for part in log.parts(reader.columns) for batch in reader.batches(part, skipped)]


def contexts(log, skipped=None):
    """The contexts as read, entry by entry, in plain Python."""
    X = []
    for batch in batches(log, skipped):
        assert isinstance(batch.context, Csr)
        assert len(batch.context) == len(batch)
        for i in range(len(batch)):
            first, last = batch.context.indptr[i : i + 2]
            entries = batch.context.indices[first:last].tolist(), batch.context.values[first:last].tolist()
            X.append(list(zip(*entries, strict=True)))
    return X
