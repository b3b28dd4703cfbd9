"""Sparse contexts: every form that a log can hold them in, against the same log made dense."""

import itertools
import pickle
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.log import Block, Csr
from drstream.products import Weights
from tests.helpers import reference
from tests.helpers.passes import PLAIN

DIM, ACTIONS, ROWS = 11, 3, 120 if PLAIN else 600
INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
NUMBERS = [pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()]
FORMS = ["two lists", "structs", "other structs", "map", "indices", "large lists", "large structs"]
CONTEXT = drs.Sparse("indices", "values", dim=DIM)


def pairs(seed=0, rows=ROWS, length=None):
    """Rows of (index, value): empty ones, an index twice, and in no order. Sums of such values are exact."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 6, rows) if length is None else np.full(rows, length)
    return [[(int(random.integers(DIM)), int(random.integers(1, 9))) for _ in range(size)] for size in sizes]


def dense(rows, dim=DIM):
    X = np.zeros((len(rows), dim))
    for x, row in zip(X, rows, strict=True):
        for index, value in row:
            x[index] += value
    return X


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


def dense_log(rows, form="two lists"):
    rows = [[(i, 1) for i, _ in row] for row in rows] if form == "indices" else rows
    X = dense(rows)
    context = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), DIM)
    return drs.Log(pa.table({"x": context, **roles(len(rows))}), actions=ACTIONS)


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


# the same as the dense log


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_the_dense_log(form):
    rows = pairs()
    table, context = sparse_table(rows, form)
    log = drs.Log(table, context=context)
    assert log.n_features == DIM
    assert values(log) == values(dense_log(rows, form))


@pytest.mark.parametrize("form", ["fixed lists", "fixed structs"])
@pytest.mark.parametrize("length", [1, 4])
def test_fixed_size_lists_equal_the_dense_log(form, length):
    rows = pairs(length=length)
    table, context = sparse_table(rows, form)
    assert pa.types.is_fixed_size_list(table.schema.field(context.indices).type)
    assert values(drs.Log(table, context=context)) == values(dense_log(rows))
    assert contexts(drs.Log(table.slice(7, 20), context=context)) == rows[7:27]


@pytest.mark.parametrize("form", ["two lists", "structs", "map"])
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_indices_of_every_integer_type(kind, form):
    rows = pairs()
    table, context = sparse_table(rows, form, index=kind)
    assert contexts(drs.Log(table, context=context)) == rows
    wide = drs.Sparse(context.indices, context.values, dim=2**31 - 1)
    batch = batches(drs.Log(table, context=wide))[0]
    assert batch.context.indices.dtype == np.int32
    assert batch.context.dim == 2**31 - 1


@pytest.mark.parametrize("form", ["two lists", "structs", "map"])
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_values_of_every_number_type(kind, form):
    rows = pairs()
    table, context = sparse_table(rows, form, value=kind)
    assert contexts(drs.Log(table, context=context)) == rows
    got = batches(drs.Log(table, context=context))[0].context.values.dtype
    assert got == (np.float32 if kind.bit_width <= 16 or kind == pa.float32() else np.float64)
    assert values(drs.Log(table, context=context)) == values(dense_log(rows))


def test_values_keep_their_precision():
    table = pa.table({"indices": [[0, 1]], "values": pa.array([[1e300, 1 / 3]]), **roles(1)})
    assert contexts(drs.Log(table, context=CONTEXT)) == [[(0, 1e300), (1, 1 / 3)]]
    table = pa.table(
        {"indices": [[0, 1]], "values": pa.array([[2**24 + 1, -(2**31)]], pa.list_(pa.int32())), **roles(1)}
    )
    assert contexts(drs.Log(table, context=CONTEXT)) == [[(0, 2**24 + 1), (1, -(2**31))]]


entry = st.tuples(st.integers(0, DIM - 1), st.integers(-100, 100))


@given(st.lists(st.lists(entry, max_size=5), min_size=1, max_size=15), st.sampled_from(FORMS), st.data())
def test_any_log_equals_the_dense_one(rows, form, data):
    table, context = sparse_table(rows, form)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    table = pa.concat_tables(table.slice(a, b - a) for a, b in itertools.pairwise(edges))
    log = drs.Log(table, context=context, actions=ACTIONS, batch_size=data.draw(st.integers(1, 9)))
    np.testing.assert_array_equal(values(log), values(dense_log(rows, form)))  # NaN in both, for one row


# sources, batches, threads


@pytest.mark.parametrize("form", FORMS)
def test_same_bits_for_every_batch_size_and_thread(form, tmp_path):
    table, context = sparse_table(pairs(), form)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=50)
    chunks = pa.concat_tables(table.slice(i, 3) for i in range(0, ROWS, 3))
    wanted = values(drs.Log(table, context=context))
    stored = values(drs.Log(tmp_path / "log.parquet", context=context))
    np.testing.assert_allclose(stored, wanted, rtol=1e-12)  # row groups are merged in another order
    for size in (1, 7, 1000):
        for threads in (1, 3):
            options = {"context": context, "batch_size": size}
            assert values(drs.Log(table, **options), threads=threads) == wanted
            assert values(drs.Log(chunks, **options), threads=threads) == wanted
            assert values(drs.Log(tmp_path / "log.parquet", **options), threads=threads) == stored


@pytest.mark.parametrize("form", [*FORMS, "fixed lists", "fixed structs"])
def test_batches_that_do_not_fit_their_chunks(form, monkeypatch):
    rows = pairs(length=3 if form.startswith("fixed") else None, rows=100)
    table, context = sparse_table(rows, form)
    wanted = [[(i, 1) for i, _ in row] for row in rows] if form == "indices" else rows
    monkeypatch.setattr("drstream.log.batch.ROWS", 8)
    for source in (table, pa.concat_tables([table.slice(0, 3), table.slice(3, 40), table.slice(43)])):
        log = drs.Log(source, context=context)
        assert [len(batch) for batch in batches(log)] == [8] * 12 + [4]
        assert contexts(log) == wanted
        assert contexts(drs.Log(source.slice(5, 61), context=context)) == wanted[5:66]


def test_lists_whose_columns_are_cut_differently():
    """Each column's offsets count from another place of its own memory."""
    rows = pairs()
    table, context = sparse_table([[(3, 3)] * 9, *rows, [(4, 4)]])
    cut = table.slice(1, ROWS)
    whole, _ = sparse_table(rows)
    mixed = pa.table({**{n: cut[n] for n in cut.column_names}, "values": whole["values"]})
    assert contexts(drs.Log(mixed, context=context)) == rows


def test_frames_and_streams():
    rows = pairs()
    table, context = sparse_table(rows, index=pa.int64(), value=pa.float64())
    wanted = values(dense_log(rows))
    structs, pair = sparse_table(rows, "structs", index=pa.int64(), value=pa.float64())
    for source, how in (
        (pl.from_arrow(table), context),
        (pl.from_arrow(structs), pair),
        (table.to_pandas(), context),
        (table.to_reader(max_chunksize=11), context),
        (structs.to_reader(max_chunksize=11), pair),
    ):
        assert values(drs.Log(source, context=how, actions=ACTIONS)) == wanted


def test_filter_split_and_pickle(tmp_path):
    rows = pairs()
    table, context = sparse_table(rows)
    table = table.append_column("row", pa.array(np.arange(ROWS)))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=33)
    for source in (table, tmp_path / "log.parquet"):
        log = drs.Log(source, context=context, batch_size=10, filter=pc.list_value_length(pc.field("indices")) > 2)
        left, right = log.split(0.5)
        for side in (left, right):
            numbers = side.head(ROWS)["row"].to_pylist()
            assert 0 < len(numbers) < ROWS
            assert contexts(side) == [rows[k] for k in numbers]
        both = left.head(ROWS)["row"].to_pylist() + right.head(ROWS)["row"].to_pylist()
        assert sorted(both) == [k for k in range(ROWS) if len(rows[k]) > 2]
    log = drs.Log(tmp_path / "log.parquet", context=context)
    assert pickle.loads(pickle.dumps(log.reader(context=True))).roles == log.roles


def test_contexts_are_read_only_when_needed():
    table, context = sparse_table(pairs())
    log = drs.Log(table, context=context)
    assert {"indices", "values"}.isdisjoint(log.reader(action=True).columns)
    assert {"indices", "values"} <= set(log.reader(context=True).columns)
    broken = drs.Log(table.set_column(0, "indices", pa.array([[99]] * ROWS)), context=context)
    assert drs.evaluate(broken, drs.policies.Uniform(), estimators="ips").n == ROWS


def test_repr():
    table, _ = sparse_table(pairs(), "structs")
    text = repr(drs.Log(table, context=drs.Sparse("f", dim=47236)))
    assert "context     sparse, 47,236 features: f" in text
    table, _ = sparse_table(pairs())
    assert "sparse, 11 features: indices, values" in repr(drs.Log(table, context=CONTEXT))


# memory


@pytest.mark.parametrize("value", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("form", ["two lists", "structs", "map", "large lists", "fixed lists", "fixed structs"])
def test_views_without_copies(form, value):
    rows = pairs(length=3 if form.startswith("fixed") else None)
    table, context = sparse_table(rows, form, value=value)
    if context.values is None:
        inside = table["f"].chunk(0).values
        flat = inside.field(0), inside.field(1)
    else:
        flat = table["indices"].chunk(0).values, table["values"].chunk(0).values
    indices = np.frombuffer(flat[0].buffers()[1], np.int32)
    numbers = np.frombuffer(flat[1].buffers()[1], value.to_pandas_dtype())
    for start in (0, 5):
        batch = batches(drs.Log(table.slice(start), context=context))[0]
        assert np.shares_memory(batch.context.indices, indices)
        assert np.shares_memory(batch.context.values, numbers)
        piece = next(batch.blocks(50)).sparse
        assert np.shares_memory(piece.indices, indices)
        assert np.shares_memory(piece.indptr, batch.context.indptr)


def test_matrix_is_a_view_where_rows_are_in_order_and_nobody_can_write_to_it():
    ordered = [sorted(dict(row).items()) for row in pairs()]
    table, context = sparse_table(ordered)
    batch = batches(drs.Log(table, context=context))[0]
    block = Block(batch, 1, ROWS - 1)
    assert np.shares_memory(block.matrix.data, batch.context.values)
    assert np.shares_memory(block.matrix.indices, batch.context.indices)
    for form in ("two lists", "indices"):
        for kind in (pa.int32(), pa.int64()):
            for rows in (ordered, pairs()):
                table, context = sparse_table(rows, form, index=kind)
                X = next(batches(drs.Log(table, context=context))[0].blocks(50)).matrix
                for part in (X.data, X.indices, X.indptr):
                    with pytest.raises(ValueError, match="read-only"):
                        part[:] = 0


# blocks


@pytest.mark.parametrize("form", ["two lists", "map", "indices"])
def test_matrix_of_a_block(form):
    rows = pairs()
    table, context = sparse_table(rows, form)
    X = dense([[(i, 1) for i, _ in row] for row in rows] if form == "indices" else rows)
    batch = batches(drs.Log(table, context=context))[0]
    start = 0
    for block in batch.blocks(37):
        assert isinstance(block.matrix, scipy.sparse.csr_array)
        assert block.matrix.shape == (len(block), DIM)
        assert block.matrix.dtype == np.float32
        wanted = X[start : start + len(block)]
        assert (block.matrix.toarray() == wanted).all()
        assert block.matrix.max() == wanted.max()  # SciPy puts rows in order for it: in memory that it may not touch
        assert (block.matrix.max(axis=0).toarray() == wanted.max(axis=0)).all()
        assert (block.matrix[1:3].toarray() == wanted[1:3]).all()
        start += len(block)
    assert start == ROWS
    assert contexts(drs.Log(table, context=context))[0] == (
        [(i, 1) for i, _ in rows[0]] if form == "indices" else rows[0]
    )


def test_matrix_of_empty_rows():
    table, context = sparse_table([[]] * 20)
    log = drs.Log(table, context=context, actions=ACTIONS)
    block = next(batches(log)[0].blocks(20))
    assert block.matrix.shape == (20, DIM)
    assert block.matrix.nnz == 0
    assert values(log) == values(dense_log([[]] * 20))
    skipping = drs.Log(table, context=context, actions=ACTIONS, on_bad_row="skip")
    assert values(skipping) == values(log)


@given(st.lists(st.lists(entry, max_size=4), min_size=1, max_size=12), st.data())
def test_take_of_rows_and_of_blocks(rows, data):
    table, context = sparse_table(rows)
    table = table.append_column("row", pa.array(np.arange(len(rows))))
    batch = batches(drs.Log(table, context=context, actions=ACTIONS), action=True, columns=["row"])[0]
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    chosen = np.array(data.draw(st.lists(st.integers(0, stop - start - 1), max_size=8)), np.int64)
    X = dense(rows)[start:stop]
    taken = batch.context.rows(start, stop).take(chosen)
    assert (taken.array().toarray() == X[chosen]).all()
    assert taken.indptr.dtype == np.int64
    assert taken.indices.dtype == np.int32
    block = Block(batch, start, stop).take(chosen)
    assert (block.matrix.toarray() == X[chosen]).all()
    assert block.matrix.shape == (len(chosen), DIM)
    assert block.rows.tolist() == (chosen + start).tolist()
    assert block.column("row").to_pylist() == (chosen + start).tolist()
    for name in ("action", "reward", "propensity"):
        assert getattr(block, name).tolist() == table[name].to_numpy()[chosen + start].tolist()


def test_products_of_users_matrices_and_of_blocks():
    rows = pairs()
    W = np.random.default_rng(5).normal(size=(ACTIONS, DIM))
    b = np.array([1.0, -2.0, 0.5])
    X = dense(rows)
    table, context = sparse_table(rows, value=pa.float64())
    block = list(batches(drs.Log(table, context=context))[0].blocks(70))[1]
    X = X[70 : 70 + len(block)]
    weights = pickle.loads(pickle.dumps(Weights(W)))
    for users in (X, X.tolist(), scipy.sparse.csr_array(X), scipy.sparse.coo_matrix(X), block.matrix):
        np.testing.assert_allclose(weights.of(users), X @ W.T, atol=1e-12)
        got = drs.policies.Softmax(W, b).probabilities(users)
        np.testing.assert_allclose(got, reference.softmax(W, b, X), atol=1e-12)
    out = np.full((ACTIONS, len(block)), np.nan)
    weights.fill(block, out)
    np.testing.assert_allclose(out, W @ X.T, atol=1e-12)
    out = np.full((len(block), ACTIONS), np.nan)
    weights.fill_rows(block, b, out)
    np.testing.assert_allclose(out, X @ W.T + b, atol=1e-12)


# fields


def test_fields_are_found_by_the_most_usual_name():
    whole = pa.int64()
    for names, row in (
        (("value", "index"), (5, 1)),
        (("id", "index", "value"), (9, 1, 5)),
        (("weight", "index", "value"), (9, 1, 5)),
        (("Key", "Val"), (1, 5)),
        (("feature", "count"), (1, 5)),
    ):
        kind = pa.list_(pa.struct([(n, whole) for n in names]))
        table = pa.table({"f": pa.array([[dict(zip(names, row, strict=True))]], kind), **roles(1)})
        assert contexts(drs.Log(table, context=one_column())) == [[(1, 5)]], names
    kind = pa.map_(pa.field("k", pa.int16(), nullable=False), pa.field("item", pa.int64()))
    table = pa.table({"f": pa.array([[(1, 5), (2, 6)]], kind), **roles(1)})
    assert contexts(drs.Log(table, context=one_column())) == [[(1, 5), (2, 6)]]


# errors


def bad(indices, values, index=pa.int64(), value=pa.float64(), make=pa.list_):  # noqa: B008  # types do not change
    """A log whose rows 0, 1, 4 and 5 are fine, and 2 and 3 hold these lists."""
    found = {
        "indices": pa.array([[0], [], *indices, [], [3]], make(index)),
        "values": pa.array([[1.0], [], *values, [], [4.0]], make(value)),
    }
    return pa.table({**found, **roles(6)})


BAD = {
    "negative": (
        ([[1], [2, -1]], [[2.0], [3.0, 5.0]]),
        3,
        r"an index that is not in 0..10: got index -1, value 5.0 in",
    ),
    "dim itself": (([[1], [11]], [[2.0], [3.0]]), 3, r"not in 0..10: got index 11, value 3.0 in place 0"),
    "huge": (([[1, 2**62], [1]], [[2.0, 1.0], [3.0]]), 2, r"not in 0..10: got index 4611686018427387904"),
    "wraps to 0": (([[1, 2**32], [1]], [[2.0, 1.0], [3.0]]), 2, r"not in 0..10: got index 4294967296"),
    "null list of indices": (([[1], None], [[2.0], [3.0]]), 3, r"context is null"),
    "null list of values": (([[1], [2]], [[2.0], None]), 3, r"context is null"),
    "null index": (([[1], [2, None]], [[2.0], [3.0, 1.0]]), 3, r"holds a null: got index None, value 1.0 in place 1"),
    "null value": (([[1], [2]], [[2.0], [None]]), 3, r"context holds a null: got index 2, value None in place 0"),
    "more values": (([[1], [2]], [[2.0], [3.0, 4.0]]), 3, r"other numbers of indices and values: got 1 ind.* 2 values"),
    "no values": (([[1], [2]], [[2.0], []]), 3, r"other numbers of indices and values: got 1 indices and 0 values"),
    "same sum": (([[1, 2], [2]], [[2.0], [3.0, 4.0]]), 2, r"other numbers of indices and values: got 2 ind.* 1 values"),
    "NaN": (([[1, 2], [2]], [[2.0, np.nan], [3.0]]), 2, r"context is not finite: got index 2, value nan in place 1"),
    "infinite": (([[1], [2]], [[2.0], [-np.inf]]), 3, r"context is not finite: got index 2, value -inf in place 0"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_bad_rows_name_place_value_and_remedy(case, make, tmp_path):
    lists, row, message = BAD[case]
    table = bad(*lists, make=make)
    with pytest.raises(drs.LogError, match=rf'{message}.* at row {row}, column .*on_bad_row="skip"'):
        contexts(drs.Log(table, context=CONTEXT))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=2)
    place = rf" at row {row} \(row {row - 2} of row group 1 of .*log.parquet\), column .*on_bad_row="
    with pytest.raises(drs.LogError, match=message + ".*" + place):
        contexts(drs.Log(tmp_path / "log.parquet", context=CONTEXT))


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_bad_rows_are_skipped_and_counted(case, make, tmp_path):
    lists, row, message = BAD[case]
    table = bad(*lists, make=make)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=2)
    others = [k for k in range(6) if k != row and (case != "same sum" or k != 3)]
    wanted = contexts(drs.Log(table.take(others), context=CONTEXT))
    for source in (table, tmp_path / "log.parquet"):
        for size in (1, 4, None):
            skipped = Counter()
            log = drs.Log(source, context=CONTEXT, on_bad_row="skip", batch_size=size)
            assert contexts(log, skipped) == wanted
            assert [batch.row(i) for batch in batches(log) for i in range(len(batch))] == others
            ((reason, count),) = skipped.items()
            assert count == 6 - len(others)
            assert message.partition(":")[0] in reason


def test_every_reason_is_counted_once():
    indices = [[0], None, [1], [1, 2], [None, 99], [99], [3], [4]]
    numbers = [[1.0], [1.0], None, [1.0], [1.0, 1.0], [np.nan], [np.inf], [4.0]]
    table = pa.table({"indices": indices, "values": numbers, **roles(8)})
    log = drs.Log(table, context=CONTEXT, actions=ACTIONS, on_bad_row="skip")
    result = drs.evaluate(log, policies(), estimators=["ips", "snips"])
    assert result.n == 2
    assert result.skipped == {
        "context is null": 2,
        "context has other numbers of indices and values": 1,
        "context holds a null": 1,
        "context has an index that is not in 0..10": 1,
        "context is not finite": 1,
    }
    good = drs.Log(table.take([0, 7]), context=CONTEXT, actions=ACTIONS)
    np.testing.assert_allclose(values(log), values(good), atol=1e-7)  # sums are taken about the first rewards of all


def test_the_first_bad_row_is_named():
    """Not the first that one check finds, while another's stands before it."""
    table = bad([[99], [None]], [[1.0], [1.0]])
    with pytest.raises(drs.LogError, match=r"got index 99, value 1.0 in place 0 at row 2"):
        contexts(drs.Log(table, context=CONTEXT))


@pytest.mark.parametrize(
    ("kind", "index"), [(pa.uint64(), 2**64 - 1), (pa.uint64(), 2**63), (pa.uint8(), 255), (pa.int8(), -128)], ids=str
)
def test_indices_outside_of_every_type(kind, index):
    table = bad([[1], [index]], [[1.0], [1.0]], index=kind)
    with pytest.raises(drs.LogError, match=rf"not in 0..10: got index {index}, value 1.0 in place 0 at row 3"):
        contexts(drs.Log(table, context=CONTEXT))
    skipped = Counter()
    assert len(contexts(drs.Log(table, context=CONTEXT, on_bad_row="skip"), skipped)) == 5
    assert skipped == {"context has an index that is not in 0..10": 1}


@pytest.mark.parametrize("form", ["structs", "map", "indices", "fixed structs", "fixed lists"])
def test_bad_rows_of_other_forms(form):
    rows = [[(1, 2.0), (2, 3.0)] for _ in range(6)]
    rows[3][1] = (DIM, 3.0)
    table, context = sparse_table(rows, form)
    shown = "" if form == "indices" else ", value 3.0"
    with pytest.raises(drs.LogError, match=rf"not in 0..10: got index 11{shown} in place 1 at row 3, .*on_bad_row="):
        contexts(drs.Log(table, context=context))
    cleared = columns(rows, form)[0]
    name = context.indices
    masked = [None if k == 4 else x for k, x in enumerate(cleared[name].to_pylist())]
    table = pa.table({**cleared, name: pa.array(masked, cleared[name].type), **roles(6)})
    skipped = Counter()
    got = contexts(drs.Log(table, context=context, on_bad_row="skip"), skipped)
    assert got == [[(1, 1.0), (2, 1.0)] if form == "indices" else [(1, 2.0), (2, 3.0)]] * 4
    assert skipped == {"context is null": 1, "context has an index that is not in 0..10": 1}
    with pytest.raises(drs.LogError, match=rf"context is null at row 4, column '{name}'"):
        contexts(drs.Log(table, context=context))


@pytest.mark.parametrize("make", [pa.ListArray.from_arrays, pa.FixedSizeListArray.from_arrays])
def test_structs_that_are_null(make):
    """What stands under a null struct is anything, here an entry that looks well."""
    fields = [pa.array([0, 1, 2, 3], pa.int32()), pa.array([1.0, 2.0, 3.0, 4.0])]
    structs = pa.StructArray.from_arrays(fields, ["index", "value"], mask=pa.array([False, False, True, False]))
    lists = make([0, 2, 4], structs) if make is pa.ListArray.from_arrays else make(structs, 2)
    table = pa.table({"f": lists, **roles(2)})
    with pytest.raises(drs.LogError, match=r"context holds a null: got index None, value None in place 0 at row 1"):
        contexts(drs.Log(table, context=one_column()))
    skipped = Counter()
    assert contexts(drs.Log(table, context=one_column(), on_bad_row="skip"), skipped) == [[(0, 1.0), (1, 2.0)]]
    assert skipped == {"context holds a null": 1}


def test_lists_that_are_null_over_entries():
    """A null list may have entries in its memory."""

    def lists(flat, kind):
        mask = pa.array([False, True, False])
        return pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array(flat, kind), mask=mask)

    found = {"indices": lists([0, 99, 98, 1], pa.int32()), "values": lists([1, np.nan, 9, 2], pa.float32())}
    table = pa.table({**found, **roles(3)})
    skipped = Counter()
    assert contexts(drs.Log(table, context=CONTEXT, on_bad_row="skip"), skipped) == [[(0, 1)], [(1, 2)]]
    assert skipped == {"context is null": 1}
    assert contexts(drs.Log(table.take([0, 2]), context=CONTEXT)) == [[(0, 1)], [(1, 2)]]


def test_no_row_that_can_be_used():
    table = bad([[1], [2]], [[1.0], [2.0]]).slice(2, 2)
    for change in ([None, None], [[99], [-1]], [[], []]):
        changed = table.set_column(0, "indices", pa.array(change, pa.list_(pa.int64())))
        skipped = Counter()
        assert contexts(drs.Log(changed, context=CONTEXT, on_bad_row="skip"), skipped) == []
        assert skipped.total() == 2
    assert contexts(drs.Log(table.slice(0, 0), context=CONTEXT, actions=2)) == []


@pytest.mark.parametrize("dim", [0, -1, 2**31, 1.5, 10.0, "10", None])
def test_dim_must_be_a_number_of_features(dim):
    with pytest.raises(drs.LogError, match=r"dim=.*say how many features there are, from 1 to 2,147,483,647"):
        drs.Sparse("indices", dim=dim)
    with pytest.raises(drs.LogError, match=r"dim=0: say how many"):
        drs.Sparse("indices", "values")


ENTRY = {"index": 1, "value": 2.0}


@pytest.mark.parametrize(
    ("changes", "context", "message"),
    [
        ({}, drs.Sparse("indces", "values", dim=5), r"no column 'indces' for the context: did you mean 'indices'\?"),
        ({}, drs.Sparse("indices", "value", dim=5), r"no column 'value' for the context: did you mean 'values'\?"),
        ({}, drs.Sparse("values", "indices", dim=5), r"'values' has type list<.*double>: the indices .* integers"),
        ({}, drs.Sparse("action", dim=5), r"'action' has type int64: the indices of sparse contexts are lists"),
        ({}, drs.Sparse("indices", "reward", dim=5), r"'reward' has type double: the values .* lists of numbers"),
        ({"values": [["a"]] * 4}, CONTEXT, r"'values' has type list<.*string>: the values .* lists of numbers"),
        ({"values": [[[1.0]]] * 4}, CONTEXT, r"'values' has type list<.*list<.*: the values .* lists of numbers"),
        ({"indices": [[True]] * 4}, CONTEXT, r"'indices' has type list<.*bool>: the indices"),
        ({"indices": [1] * 4}, CONTEXT, r"'indices' has type int64: the indices"),
        ({"indices": [[ENTRY]] * 4}, CONTEXT, r"'indices' holds indices and values: leave out values='values'"),
        ({"indices": [[{"a": 1, "b": 2}]] * 4}, drs.Sparse("indices", dim=5), r"not plain\. Call them index and value"),
        ({"indices": [[{"index": 1}]] * 4}, drs.Sparse("indices", dim=5), r"not plain.*there are: index|did you mean"),
        (
            {"indices": pa.array([[("a", 1.0)]] * 4, pa.map_(pa.string(), pa.float64()))},
            drs.Sparse("indices", dim=5),
            r"map<string, double>.*the index \(an integer\)",
        ),
    ],
)
def test_columns_that_cannot_be_sparse_contexts(changes, context, message):
    table = pa.table({"indices": [[1]] * 4, "values": [[1.0]] * 4, **roles(4), **changes})
    with pytest.raises(drs.LogError, match=message):
        drs.Log(table, context=context)


def test_policies_of_another_size_are_refused():
    table, context = sparse_table(pairs())
    with pytest.raises(drs.PolicyError, match=r"shape \(3, 4\).*3 actions and 11 features"):
        drs.evaluate(drs.Log(table, context=context), drs.policies.Linear(np.zeros((ACTIONS, 4))))


def test_log_without_propensities_can_be_read():
    rows = pairs()
    table, context = sparse_table(rows)
    table = table.drop_columns(["propensity"])
    with pytest.raises(drs.LogError, match=r"usual name for the propensity.*propensity=None"):
        drs.Log(table, context=context)
    log = drs.Log(table, context=context, propensity=None)
    assert "propensity  none" in repr(log)
    assert contexts(log) == rows
    assert log.n_actions == ACTIONS
    batch = batches(log, action=True)[0]
    assert len(batch.propensity) == 0
    block = next(batch.blocks(10)).take(np.array([3, 1]))
    assert len(block.propensity) == 0
    assert block.action.tolist() == table["action"].to_numpy()[[3, 1]].tolist()
    i = table.schema.get_field_index("reward")
    rewards = table["reward"].to_pylist()
    rewards[7] = None
    gap = table.set_column(i, "reward", pa.array(rewards))
    with pytest.raises(drs.LogError, match="reward is null at row 7"):
        contexts(drs.Log(gap, context=context, propensity=None))
    skipped = Counter()
    skipping = drs.Log(gap, context=context, propensity=None, on_bad_row="skip")
    assert contexts(skipping, skipped) == [*rows[:7], *rows[8:]]
    assert skipped == {"reward is null": 1}
    rewards[7] = np.nan
    gap = table.set_column(i, "reward", pa.array(rewards))
    for action in (False, True):
        with pytest.raises(drs.LogError, match="reward must be finite: got nan at row 7"):
            batches(drs.Log(gap, context=context, propensity=None), action=action)
