"""Row groups that go from their pages to sums without Python have the results of batches, and their errors."""

import os
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError, PolicyError
from drstream.evaluation import evaluate as evaluate_module
from drstream.evaluation import fused
from drstream.log import Reader, arrow, pages
from drstream.log import parquet as parquet_files
from drstream.log.batch import ROWS as ROWS_OF_A_BATCH
from drstream.log.memory import kept
from tests.helpers.evaluations import M
from tests.helpers.fused import ESTIMATORS, POLICIES, table_of
from tests.helpers.passes import not_plain

ROWS = 3_500
GROUP = 1_500  # rows of a row group, which is no multiple of a tile
MIXED = {"linear": POLICIES["best"], "soft": POLICIES["soft"], "mixed": POLICIES["mixed"]}


@pytest.fixture
def whole(monkeypatch):
    """Whether each part went from the file to the kernel as it was."""
    calls = []
    add = fused.Fused.add_part

    def noted(*args):
        calls.append(add(*args))
        return calls[-1]

    monkeypatch.setattr(fused.Fused, "add_part", noted)
    return calls


def with_types(table, action="int64", reward="float64", propensity="float64"):
    for name, kind in (("action", action), ("reward", reward), ("propensity", propensity)):
        values = table[name].cast(pa.type_for_alias(kind), safe=False)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def write(tmp_path, table, **options):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    pq.write_table(table, path, **{"row_group_size": GROUP, **options})
    return path


def write_arrow(tmp_path, table, rows=None):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=rows)
    return path


def by_batches(run):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "hand_to", lambda *args: False)
        return run()


def everything(result):
    return repr(result.to_dict())


@pytest.mark.parametrize("kind", [pytest.param("float32", marks=not_plain), "float64"])
@pytest.mark.parametrize("listed", [False, True], ids=["columns", "lists"])
@pytest.mark.parametrize(
    "types",
    [{}, {"action": "int32", "reward": "int32"}, {"reward": "float32", "propensity": "float32"}, {"reward": "int64"}],
    ids=["as pandas has them", "clicks", "float32", "int64"],
)
def test_results_are_those_of_batches(tmp_path, whole, kind, listed, types):
    table, context = table_of(kind, listed, ROWS)
    log = drs.Log(write(tmp_path, with_types(table, **types)), context=context)
    model = M.Ridge().fit(drs.Log(table_of(kind, listed, 500)[0], context=context))
    run = partial(drs.evaluate, log, MIXED, model, ESTIMATORS, cap=3.0, clamp=(0.2, 0.6))
    found = run()
    assert whole == [True] * 3
    assert everything(found) == everything(by_batches(run))
    whole.clear()
    assert everything(run(threads=1)) == everything(found)
    assert whole == [True] * 3


@not_plain
@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"use_dictionary": False}], ids=str)
@pytest.mark.parametrize("repeated", [False, True], ids=["random", "repeated"])
def test_rows_that_flow_have_the_results_of_batches(tmp_path, whole, repeated, options, monkeypatch):
    """In chunks of any size; where Snappy repeats bytes that are no longer there, all rows go by batches."""
    table, context = table_of("float32", False, 40_000)
    table = pa.concat_tables([table.slice(0, 700)] * 57) if repeated else table
    log = drs.Log(write(tmp_path, table, row_group_size=len(table), **options), context=context)
    run = partial(drs.evaluate, log, MIXED, None, ["ips", "snips"], threads=1)
    found = everything(by_batches(run))
    whole.clear()
    for chunk in (1 << 14, 1 << 15):
        monkeypatch.setattr(pages, "CHUNK", chunk)
        assert everything(run()) == found
    assert whole == [True, True]
    monkeypatch.setattr(pages, "CHUNK", 1 << 10)
    assert everything(run()) == found


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_chunks_of_a_tile_have_the_results_of_batches(tmp_path, whole, compression, monkeypatch):
    """Also if a call ends after each of them. Zstandard has no chunks."""
    monkeypatch.setattr(pages, "CHUNK", 1_024)
    monkeypatch.setattr(fused, "WORK", 1)
    table, context = table_of("float64", False, ROWS)
    log = drs.Log(write(tmp_path, table, compression=compression, use_dictionary=False), context=context)
    run = partial(drs.evaluate, log, MIXED, None, ["ips", "snips"])
    found = everything(run())
    assert whole == [True] * 3
    assert everything(by_batches(run)) == found


@pytest.mark.parametrize("kind", [pytest.param("float32", marks=not_plain), "float64"])
@pytest.mark.parametrize(
    "types",
    [{}, {"action": "int32", "reward": "int32"}, {"reward": "float32", "propensity": "float32"}, {"reward": "int64"}],
    ids=["as pandas has them", "clicks", "float32", "int64"],
)
def test_folds_have_the_results_of_batches(tmp_path, whole, kind, types):
    table, context = table_of(kind, False, ROWS)
    policies = {**MIXED, "given": drs.policies.Epsilon(drs.policies.Linear(np.ones((4, 3))), 0.3)}
    table = with_types(table, **types)
    arrow_files = write_arrow(tmp_path, table), write_arrow(tmp_path, table, 800)  # the last one is in pieces
    for path in (write(tmp_path, table), write(tmp_path, table, compression="zstd"), *arrow_files):
        log = drs.Log(path, context=context)
        run = partial(drs.evaluate, log, policies, M.Ridge(), ESTIMATORS, crossfit=3, fold_seed=5, cap=3.0)
        whole.clear()
        found = everything(run())
        assert all(whole)
        assert len(whole) == (1 if path.suffix == ".arrow" else 3)
        assert everything(by_batches(run)) == found
        assert everything(run(threads=1)) == found


@not_plain
def test_folds_of_many_rows_have_the_results_of_batches(tmp_path, whole, monkeypatch):
    """Rows are put in order 65,536 at a time, as many as a batch has. A call pauses after each of them."""
    assert fused.kernels.FOLDED == ROWS_OF_A_BATCH
    monkeypatch.setattr(fused, "WORK", 1)
    table, context = table_of("float32", False, 150_000)
    path = write(tmp_path, table, row_group_size=len(table), use_dictionary=False)
    zstd = write(tmp_path, table, row_group_size=len(table), compression="zstd")
    found = []
    for file in (path, zstd, write_arrow(tmp_path, table)):
        run = partial(drs.evaluate, drs.Log(file, context=context), MIXED, M.Ridge(), ["dm", "dr"], crossfit=4)
        whole.clear()
        found.append(everything(by_batches(run)))
        whole.clear()
        assert everything(run()) == found[-1]
        assert all(whole)


def test_bad_rows_of_folds_are_errors_that_name_them(tmp_path, whole):
    table, context = table_of("float64", False, ROWS)
    for column, value, message in (
        ("reward", np.nan, "reward must be finite"),
        ("action", 2**32, "is not among"),
        ("propensity", 0.0, "propensity must be in"),
    ):
        values = with_types(table)[column].to_numpy().copy()
        values[1_700] = value
        bad = with_types(table).set_column(table.schema.get_field_index(column), column, pa.array(values))
        bad_contexts = drs.Log(write(tmp_path, bad), context=context, actions=4)
        with pytest.raises(LogError, match=f"{message}.*row 1700"):
            drs.evaluate(bad_contexts, MIXED, M.Ridge().fit(drs.Log(table, context=context)), ["dr"], threads=1)
        with pytest.raises(LogError, match=f"{message}.*row 1700"):
            drs.evaluate(bad_contexts, MIXED, M.Ridge(), ["dr"], crossfit=2, threads=1)


def test_scores_in_folds_that_are_not_finite_are_errors(tmp_path, whole):
    table, context = table_of("float64", False, ROWS)
    huge = drs.policies.Softmax(np.full((4, 3), 1e308))
    log = drs.Log(write(tmp_path, table), context=context)
    with pytest.raises(PolicyError, match="row"):
        drs.evaluate(log, {"huge": huge}, M.Ridge(), ["dr"], crossfit=2, threads=1)
    assert whole == [False]


def test_lists_in_folds_go_by_batches(tmp_path, whole):
    table, context = table_of("float64", True, ROWS)
    run = partial(drs.evaluate, drs.Log(write(tmp_path, table), context=context), MIXED, M.Ridge(), ["dr"], crossfit=2)
    assert everything(run()) == everything(by_batches(run))
    assert not any(whole)


def test_errors_of_the_kernel_are_not_hidden(tmp_path, monkeypatch):
    table, context = table_of("float64", False, ROWS)
    log = drs.Log(write(tmp_path, table), context=context)

    def broken(*args):
        raise IndexError("outside of an array")

    monkeypatch.setattr(fused.kernels, "add_events", broken)
    with pytest.raises(IndexError, match="outside of an array"):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)


def test_what_the_kernel_cannot_take_goes_by_batches(tmp_path, whole):
    table, context = table_of("float64", False, ROWS)
    cost = table.rename_columns([{"reward": "cost"}.get(name, name) for name in table.column_names])
    labels = with_types(table).set_column(0, "action", pa.array(table["action"].to_numpy() + 10))
    assert table.column_names[0] == "action"
    open_log = partial(drs.Log, context=context)
    for log in (
        open_log(write(tmp_path, cost)),
        open_log(write(tmp_path, table.drop(["propensity"])), propensity=0.25),
        open_log(write(tmp_path, labels)),
    ):
        run = partial(drs.evaluate, log, MIXED, None, ["ips"])
        whole.clear()
        found = run()
        assert whole == [False] * 3
        assert everything(found) == everything(by_batches(run))
    path = write(tmp_path, table)
    for run in (
        partial(drs.evaluate, open_log(path, filter="x0 > 0"), MIXED, None, ["ips"]),
        partial(drs.evaluate, open_log(path, on_bad_row="skip"), MIXED, None, ["ips"]),
        partial(drs.evaluate, open_log(path), MIXED, M.Ridge(), ["dr"], crossfit="forward"),
        partial(
            drs.evaluate, open_log(path), MIXED, M.Ridge(), ["dr"], crossfit=2, cluster="action", interval="normal"
        ),
        partial(drs.evaluate, open_log(table), MIXED, None, ["ips"]),
    ):
        whole.clear()
        run()
        assert not any(whole)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("reward", np.nan, "reward must be finite: got nan at row 1700 \\(row 200 of row group 1 of"),
        ("propensity", 0.0, "propensity must be in \\(0, 1\\]: got 0.0 at row 1700"),
        ("action", 4, "action 4 is not among the 4 actions 0, 1, 2, 3: at row 1700"),
        ("action", 2**32, "action 4294967296 is not among the 4 actions 0, 1, 2, 3: at row 1700"),
        ("action", -1, "action -1 is not among"),
        ("x1", np.inf, "context 'x1' must be finite: got inf at row 1700"),
    ],
)
def test_bad_rows_are_errors_that_name_them(tmp_path, whole, column, value, message):
    table, context = table_of("float64", False, ROWS)
    table = with_types(table)
    values = table[column].to_numpy().copy()
    values[1_700] = value
    table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    log = drs.Log(write(tmp_path, table), context=context, actions=4)
    with pytest.raises(LogError, match=message):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)
    assert whole == [True, False]  # the second row group has the error, and batches name it


def test_rows_that_are_unusual_or_too_many_at_once_are_read_in_batches(tmp_path, whole, monkeypatch):
    table, context = table_of("float64", False, ROWS)
    late = table["x0"].to_numpy().tolist()
    late[-1] = None
    nulls = table.set_column(table.schema.get_field_index("x0"), "x0", pa.array(late, pa.float64()))
    log = drs.Log(write(tmp_path, nulls), context=context)
    with pytest.raises(LogError, match="context is null at row 3499"):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)
    assert whole == [True, True, False]
    log = drs.Log(write(tmp_path, table, compression="zstd"), context=context)
    found = everything(drs.evaluate(log, MIXED, None, ["ips"]))
    whole.clear()
    monkeypatch.setattr(parquet_files, "DECODE_BYTES", 1 << 14)
    assert everything(drs.evaluate(log, MIXED, None, ["ips"])) == found
    assert not any(whole)


def test_a_file_that_changes_is_an_error(tmp_path, monkeypatch):
    table, context = table_of("float64", False, ROWS)
    path = write(tmp_path, table)
    log = drs.Log(path, context=context)
    hand_to = pages.Columns.hand_to

    def changing(*args):
        with open(path, "ab") as file:
            file.write(b"x")
        hand_to(*args)

    monkeypatch.setattr(pages.Columns, "hand_to", changing)
    with pytest.raises(LogError, match="changed while it was read"):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)


def test_a_file_that_is_gone_is_an_error(tmp_path):
    table, context = table_of("float64", False, ROWS)
    path = write(tmp_path, table)
    log = drs.Log(path, context=context)
    log.labels  # noqa: B018  # reads the footer
    path.unlink()
    with pytest.raises(LogError, match="cannot read"):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_columns_that_are_policies_are_taken_as_they_are(tmp_path, whole, kind):
    table, context = table_of("float64", False, ROWS)
    given = table["given"].cast(pa.type_for_alias(kind))
    table = table.set_column(table.schema.get_field_index("given"), "given", given)
    log = drs.Log(write(tmp_path, table), context=context)
    column = drs.policies.Column("given")
    for policies in ({"given": column}, {"a": column, **MIXED, "b": column}):
        run = partial(drs.evaluate, log, policies, None, ["ips", "snips"])
        whole.clear()
        found = run()
        assert whole == [True] * 3
        assert everything(found) == everything(by_batches(run))
    run = partial(drs.evaluate, log, {"mixed": drs.policies.Epsilon(column, 0.1)}, None, ["ips"])
    whole.clear()
    found = run()
    assert whole == [False] * 3
    assert everything(found) == everything(by_batches(run))
    values = given.to_numpy().copy()
    values[1_700] = 1.25
    bad = table.set_column(table.schema.get_field_index("given"), "given", pa.array(values))
    log = drs.Log(write(tmp_path, bad), context=context)
    with pytest.raises(PolicyError, match=r"holds the probability 1\.25 at row 1700"):
        drs.evaluate(log, {"given": column}, None, ["ips"])


@pytest.mark.parametrize("listed", [False, True], ids=["columns", "lists"])
def test_arrow_files_are_read_at_once(tmp_path, whole, listed, monkeypatch):
    monkeypatch.setattr(arrow, "PIECE", 1_100)  # of parts, which begin and end within record batches
    table, context = table_of("float64", listed, ROWS)

    def written(table, rows, compression=None):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(path, table.schema, options=options) as file:
            file.write_table(table, max_chunksize=rows)
        return drs.Log(path, context=context)

    run = partial(drs.evaluate, written(table, 800), MIXED, None, ["ips", "snips"])
    found = run()
    assert whole == [True] * 4
    assert everything(found) == everything(by_batches(run))
    whole.clear()
    packed = partial(drs.evaluate, written(table, 800, "zstd"), MIXED, None, ["ips", "snips"])
    assert repr(packed().rows()) == repr(found.rows())
    reward = [*table["reward"].to_pylist()[:-1], None]
    nulls = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(reward))
    with pytest.raises(LogError, match="reward is null at row 3499"):
        drs.evaluate(written(nulls, ROWS), MIXED, None, ["ips"], threads=1)
    assert not any(whole)
    log = written(table, 800)
    path = next(iter(log.source.keys))
    os.truncate(path, os.stat(path).st_size // 2)
    with pytest.raises(LogError, match="changed while it was read"):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)


def test_a_file_stays_open_where_rows_are_not_numbers_alone(tmp_path, whole, monkeypatch):
    """However many row groups it has."""
    table, context = table_of("float64", False, ROWS)
    labels = pa.array([f"item {action}" for action in table["action"].to_pylist()])
    opened, counts = [], []
    real = pages.opened
    monkeypatch.setattr(pages, "opened", lambda path: opened.append(path) or real(path))
    for groups in (2, 8):
        path = tmp_path / f"{groups}.parquet"
        pq.write_table(table.set_column(0, "action", labels), path, row_group_size=-(-ROWS // groups))
        log = drs.Log(path, context=context, actions=sorted(set(labels.to_pylist())))
        opened.clear()
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)
        counts.append(len(opened))
    assert not any(whole)
    assert counts[0] == counts[1]


def test_a_pass_that_was_stopped_adds_no_more_rows(tmp_path, whole, monkeypatch):
    table, context = table_of("float64", False, ROWS)
    log = drs.Log(write(tmp_path, table), context=context)

    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate_module.execution, "raise_if_stopped", stopped)
    with pytest.raises(KeyboardInterrupt):
        drs.evaluate(log, MIXED, None, ["ips"], threads=1)
    assert not whole


@pytest.mark.skipif(not os.path.isfile("/proc/self/maps"), reason="nothing tells which files are mapped")
def test_compressed_arrow_files_stay_mapped(tmp_path):
    """Otherwise what takes their place in memory would be read from them."""
    table, context = table_of("float64", False, 100)
    for i in range(2):
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(tmp_path / f"{i}.arrow", table.schema, options=options) as file:
            file.write_table(table)
    log = drs.Log(tmp_path, context=context)
    with open("/proc/self/maps") as file:
        maps = file.read()
    assert all(str(tmp_path / f"{i}.arrow") in maps for i in range(2))
    assert drs.evaluate(log, MIXED, None, ["ips"]).n == 200


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nothing tells which files are open")
def test_a_thread_keeps_the_file_of_its_last_part_open_and_no_other(tmp_path, monkeypatch):
    table, context = table_of("float64", False, 100)
    for i in range(5):
        with pa.ipc.new_file(tmp_path / f"{i}.arrow", table.schema) as file:
            file.write_table(table)
    monkeypatch.setattr(arrow, "PIECE", 100)
    log, counts = drs.Log(tmp_path, context=context), []
    add = fused.Fused.add_part

    def noted(*args):
        found = add(*args)
        links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        counts.append(sum(link.startswith(str(tmp_path)) for link in links))
        return found

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fused.Fused, "add_part", noted)
    drs.evaluate(log, MIXED, None, ["ips"], threads=1)
    assert counts == [counts[0]] * 5
    assert len(os.listdir("/proc/self/fd")) == before


def test_logs_without_propensities_have_dm(tmp_path, whole):
    table, context = table_of("float64", False, ROWS)
    model = M.Ridge().fit(drs.Log(table_of("float64", False, 500)[0], context=context))
    log = drs.Log(write(tmp_path, table.drop(["propensity"])), context=context, propensity=None)
    run = partial(drs.evaluate, log, MIXED, model)
    found = run()
    assert whole == [True] * 3
    assert {row["estimator"] for row in found.rows()} == {"dm"}
    assert everything(found) == everything(by_batches(run))


@pytest.mark.parametrize("open_still", [True, False])
def test_a_file_that_vanishes_on_the_way_is_an_error(tmp_path, monkeypatch, open_still):
    table, context = table_of("float64", False, ROWS)
    path = write(tmp_path, table)
    add = fused.Fused.add_part

    def vanishing(*args):
        found = add(*args)
        path.unlink(missing_ok=True)
        if not open_still:
            kept.forget()
        return found

    monkeypatch.setattr(fused.Fused, "add_part", vanishing)
    with pytest.raises(LogError, match=r"cannot read row group 1 of .*: the file is gone"):
        drs.evaluate(drs.Log(path, context=context), MIXED, None, ["ips"], threads=1)
