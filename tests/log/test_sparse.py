"""Sparse contexts: every form that a log can hold them in, against the same log made dense."""

import itertools
import pickle

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
from drstream.buffers import Weights
from drstream.kernels.tiles import TILE
from drstream.log.sparse import STORED
from drstream.replaying.chunks import by_event
from tests.helpers import reference
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.passes import not_plain
from tests.helpers.sparse_forms import (
    ACTIONS,
    CONTEXT,
    DIM,
    ROWS,
    batches,
    contexts,
    one_column,
    pairs,
    roles,
    sparse_table,
    values,
)

INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
NUMBERS = [pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()]
FORMS = ["two lists", "structs", "other structs", "map", "indices", "large lists", "large structs"]
ENTRY = st.tuples(st.integers(0, DIM - 1), st.integers(-100, 100))


def dense(rows, dim=DIM):
    X = np.zeros((len(rows), dim))
    for x, row in zip(X, rows, strict=True):
        for index, value in row:
            x[index] += value
    return X


def dense_log(rows, form="two lists"):
    rows = [[(i, 1) for i, _ in row] for row in rows] if form == "indices" else rows
    X = dense(rows)
    context = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), DIM)
    return drs.Log(pa.table({"x": context, **roles(len(rows))}), actions=ACTIONS)


def same(found, wanted):
    """Compiled code mixes random actions in another order of operations than Python. NaN is equal to itself."""
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


# the same as the dense log


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_the_dense_log(form):
    rows = pairs()
    table, context = sparse_table(rows, form)
    log = drs.Log(table, context=context)
    assert log.n_features == DIM
    same(values(log), values(dense_log(rows, form)))


@pytest.mark.parametrize("form", ["fixed lists", "fixed structs"])
@pytest.mark.parametrize("length", [1, 4])
def test_fixed_size_lists_equal_the_dense_log(form, length):
    rows = pairs(length=length)
    table, context = sparse_table(rows, form)
    assert pa.types.is_fixed_size_list(table.schema.field(context.indices).type)
    same(values(drs.Log(table, context=context)), values(dense_log(rows)))
    assert contexts(drs.Log(table.slice(7, 20), context=context)) == rows[7:27]


@meeting(1, kind=INTEGERS, form=["two lists", "structs", "map"])
def test_indices_of_every_integer_type(kind, form):
    rows = pairs()
    table, context = sparse_table(rows, form, index=kind)
    assert contexts(drs.Log(table, context=context)) == rows
    wide = drs.Sparse(context.indices, context.values, dim=2**31 - 1)
    batch = batches(drs.Log(table, context=wide))[0]
    assert batch.context.indices.dtype == np.int32
    assert batch.context.dim == 2**31 - 1


@meeting(1, kind=NUMBERS, form=["two lists", "structs", "map"])
def test_values_of_every_number_type(kind, form):
    rows = pairs()
    table, context = sparse_table(rows, form, value=kind)
    assert contexts(drs.Log(table, context=context)) == rows
    got = batches(drs.Log(table, context=context))[0].context.values.dtype
    assert got == (np.float32 if kind.bit_width <= 16 or kind == pa.float32() else np.float64)
    same(values(drs.Log(table, context=context)), values(dense_log(rows)))


@pytest.mark.parametrize("stored", [b"", b"indices", b"indices\nvalues\nmany", b"indices\nother\n9", b"\xff\n\n"])
def test_metadata_that_names_no_sparse_context(stored):
    table = pa.table(
        {"action": [0], "reward": [1.0], "propensity": [0.5], "indices": [[1]], "values": [[2.0]], "x0": [1]}
    )
    named = table.replace_schema_metadata({STORED: b"indices\nvalues\n9"})
    assert drs.Log(named).roles.sparse == drs.Sparse("indices", "values", 9)
    assert drs.Log(named, context=["x0"]).roles.sparse is None
    assert drs.Log(table.replace_schema_metadata({STORED: stored})).roles.context == ("x0",)


def test_values_keep_their_precision():
    table = pa.table({"indices": [[0, 1]], "values": pa.array([[1e300, 1 / 3]]), **roles(1)})
    assert contexts(drs.Log(table, context=CONTEXT)) == [[(0, 1e300), (1, 1 / 3)]]
    table = pa.table(
        {"indices": [[0, 1]], "values": pa.array([[2**24 + 1, -(2**31)]], pa.list_(pa.int32())), **roles(1)}
    )
    assert contexts(drs.Log(table, context=CONTEXT)) == [[(0, 2**24 + 1), (1, -(2**31))]]


@given(st.lists(st.lists(ENTRY, max_size=5), min_size=1, max_size=15), st.sampled_from(FORMS), st.data())
def test_any_log_equals_the_dense_one(rows, form, data):
    table, context = sparse_table(rows, form)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    table = pa.concat_tables(table.slice(a, b - a) for a, b in itertools.pairwise(edges))
    log = cut_log(table, context=context, actions=ACTIONS, batch_size=data.draw(st.integers(1, 9)))
    same(values(log), values(dense_log(rows, form)))  # NaN in both, for one row


# sources, batches, threads


@not_plain
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
            assert values(cut_log(table, **options), threads=threads) == wanted
            assert values(cut_log(chunks, **options), threads=threads) == wanted
            assert values(cut_log(tmp_path / "log.parquet", **options), threads=threads) == stored


@pytest.mark.parametrize("form", [*FORMS, "fixed lists", "fixed structs"])
def test_batches_that_do_not_fit_their_chunks(form, monkeypatch):
    rows = pairs(length=3 if form.startswith("fixed") else None, rows=100)
    table, context = sparse_table(rows, form)
    wanted = [[(i, 1) for i, _ in row] for row in rows] if form == "indices" else rows
    monkeypatch.setattr("drstream.log.log.ROWS", 8)
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
        same(values(drs.Log(source, context=how, actions=ACTIONS)), wanted)


def test_filter_split_and_pickle(tmp_path):
    rows = pairs()
    table, context = sparse_table(rows)
    table = table.append_column("row", pa.array(np.arange(ROWS)))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=33)
    for source in (table, tmp_path / "log.parquet"):
        log = cut_log(source, context=context, batch_size=10, filter=pc.list_value_length(pc.field("indices")) > 2)
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
    block = batch[1 : ROWS - 1]
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
    same(values(log), values(dense_log([[]] * 20)))
    skipping = drs.Log(table, context=context, actions=ACTIONS, on_bad_row="skip")
    assert values(skipping) == values(log)


@given(st.lists(st.lists(ENTRY, max_size=4), min_size=1, max_size=12), st.data())
def test_take_of_rows_and_of_blocks(rows, data):
    table, context = sparse_table(rows)
    table = table.append_column("row", pa.array(np.arange(len(rows))))
    batch = batches(drs.Log(table, context=context, actions=ACTIONS), action=True, columns=["row"])[0]
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    chosen = np.array(data.draw(st.lists(st.integers(0, stop - start - 1), max_size=8)), np.int64)
    X = dense(rows)[start:stop]
    taken = batch.context[start:stop].take(chosen)
    assert (taken.array().toarray() == X[chosen]).all()
    assert taken.indptr.dtype == np.int64
    assert taken.indices.dtype == np.int32
    block = batch[start:stop].take(chosen)
    assert (block.matrix.toarray() == X[chosen]).all()
    assert block.matrix.shape == (len(chosen), DIM)
    assert block.numbers.tolist() == (chosen + start).tolist()
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
    out = np.full((-(-len(block) // TILE), ACTIONS, TILE), np.nan)
    weights.fill_tiles(block.sparse, b, out, True)
    np.testing.assert_allclose(by_event(out)[: len(block)], X @ W.T + b, atol=1e-12)
    assert (by_event(out)[len(block) :] == 0).all()


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
