"""Laws that hold for every estimator, bit for bit: batch size, thread count, executors, merging, pickling."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation.estimators import ALL
from drstream.evaluation.evaluate import consume
from drstream.evaluation.plan import count_loggers, make_plan
from drstream.evaluation.request import Request
from drstream.models.binding import ModelInputs
from drstream.moments import Layout
from drstream.policies.base import as_policies
from drstream.running.execution import Workers
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import BALANCED, BY_TIME, limits
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

ROWS = 900 if PLAIN else 300_000
POLICIES = {"soft": drs.policies.Softmax(world().taste), "epsilon": drs.policies.Epsilon(drs.policies.Uniform(), 0.5)}


@pytest.fixture(scope="module")
def table():
    found = world(kinds=None).table(ROWS, seed=3)
    X = np.column_stack([found[f"x{j}"].to_numpy() for j in range(3)])
    mu = pa.array(world(kinds=None).logging(X).reshape(-1))
    who, p = np.arange(ROWS) % 3 // 2, found["propensity"].to_numpy()
    found = found.append_column("who", pa.array(who)).append_column("p_0", pa.array(p))
    found = found.append_column("p_1", pa.array(np.where(who == 1, p, 0.25)))
    return found.append_column("mu", pa.FixedSizeListArray.from_arrays(mu, 4))


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("laws") / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 7)
    return path


@pytest.fixture(scope="module")
def short(table, tmp_path_factory):
    """Seven row groups for what is done with each estimator alone: of 14,285 rows, which are several blocks."""
    part = table.slice(0, ROWS // 3)
    path = tmp_path_factory.mktemp("short") / "log.parquet"
    pq.write_table(part, path, row_group_size=part.num_rows // 7)
    return path


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world(kinds=None).table(400, seed=4)))


def loggers_for(estimators):
    return {"logger": "who", "logger_propensities": ["p_0", "p_1"]} if set(estimators) & set(BALANCED) else {}


def run(source, model, estimators=tuple(ALL), log_options=None, **options):
    log = cut_log(source, propensities="mu", **loggers_for(estimators), **(log_options or {}))
    return drs.evaluate(log, POLICIES, model=model, estimators=list(estimators), **limits(*estimators), **options)


def bits(result):
    """Every number of a result, exactly."""
    rows = [{k: v for k, v in row.items() if not isinstance(v, str)} for row in result.rows()]
    return [[float(v).hex() for v in row.values()] for row in rows], float(result.baseline.stderr).hex()


def state(tally):
    """Every bit of a state."""
    arrays = tally.whole, *(table.records for table in tally.tables.values()), tally.mass, tally.logged
    return tuple(array.tobytes() for array in arrays)


@pytest.mark.parametrize("estimator", ALL)
def test_any_batch_size_gives_the_same_bits(short, model, estimator):
    wanted = bits(run(short, model, [estimator]))
    for size in (1, 1000, 4096, ROWS) if PLAIN else (77, 1000, 4096, 65_536, ROWS):
        assert bits(run(short, model, [estimator], {"batch_size": size})) == wanted


def test_any_number_of_threads_gives_the_same_bits(parquet, model):
    wanted = bits(run(parquet, model, threads=1))
    for threads in (2, 3, 8):
        assert bits(run(parquet, model, threads=threads)) == wanted


def test_an_executor_gives_the_same_bits(parquet, model):
    wanted = bits(run(parquet, model))
    with ThreadPoolExecutor(2) as threads:
        assert bits(run(parquet, model, executor=threads)) == wanted


def test_processes_give_the_same_bits(parquet, model, processes):
    assert bits(run(parquet, model, executor=processes)) == bits(run(parquet, model))


def test_chunks_of_a_table_do_not_matter(table, model):
    cuts = np.sort(np.random.default_rng(0).integers(0, ROWS, 50))
    pieces = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, ROWS], strict=True)]
    wanted = bits(run(table, model))
    assert bits(run(pa.concat_tables(pieces), model)) == wanted
    reader = pa.RecordBatchReader.from_batches(table.schema, [b for p in pieces for b in p.to_batches()])
    one_pass = [name for name in ALL if name not in BY_TIME + BALANCED]
    assert bits(run(reader, model, one_pass)) == bits(run(table, model, one_pass))


def test_filter_and_split_are_batch_size_invariant(parquet, model):
    import pyarrow.compute as pc

    def part(size):
        log = cut_log(parquet, filter=pc.field("x0") > 0.1, batch_size=size)
        return bits(drs.evaluate(log.split(0.3, seed=5)[1], POLICIES, model=model, estimators=["dr", "snips"]))

    assert part(100) == part(ROWS)


@pytest.mark.parametrize("estimator", ALL)
def test_merging_parts_is_evaluating_the_whole(short, model, estimator):
    """Merge with nothing changes nothing; parts merged one by one are what evaluate returns; a state pickles."""
    log = drs.Log(short, propensities="mu", **loggers_for([estimator]))
    chosen = [ALL[estimator]]
    given = limits(estimator)
    embedding = given.pop("embedding", None)
    models = {"reward": ModelInputs(model)}
    request = Request(as_policies(POLICIES), models, chosen, given, embedding=embedding)
    plan = make_plan(request, log, Workers(1))
    total = plan.create()
    reader = count_loggers(plan.reader, log, Workers(1))
    for part in log.parts(plan.reader.columns):
        tally = pickle.loads(pickle.dumps(consume([plan], reader, part)))[0]
        before = state(tally)
        tally.merge(plan.create())
        assert state(tally) == before
        alone = plan.create()
        alone.merge(tally)
        assert state(alone) == before
        total.merge(tally)
    result = run(short, model, [estimator])
    for columns in plan.groups:
        group = plan.form.group(columns)
        (found,) = result.statistics.groups[columns]
        assert (found.means == plan.form.layout.means(total.whole)[list(group)]).all()
        assert (found.comoment == plan.form.layout.comoment(total.whole, group)).all()
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.job.terms == plan.job.terms
    assert copy.request.chosen[0] is chosen[0]


def test_asking_for_more_does_not_change_what_was_asked_for(parquet, model):
    """One pass for all estimators and policies gives what each alone gives."""
    everything = run(parquet, model)
    for estimator in ALL:
        alone = drs.evaluate(
            drs.Log(parquet, propensities="mu", **loggers_for([estimator])),
            {"soft": POLICIES["soft"]},
            model=model,
            estimators=[estimator],
            **limits(estimator),
        )
        assert alone["soft", estimator] == everything["soft", estimator]


@given(data=st.data())
def test_moments_merge_like_the_whole(data):
    """Parts of any size, merged in order, equal NumPy's covariance of the whole."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10)))
    rows = data.draw(st.integers(2, 300 if PLAIN else 3000))
    x = rng.standard_normal((6, rows)) * 10.0 ** rng.integers(-3, 4, (6, 1)) + rng.integers(-100, 100, (6, 1))
    layout = Layout(6, ((0, 1, 2, 3, 4, 5), (5, 0), (2,)))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=3)))
    total = layout.create()
    for a, b in zip([0, *cuts], [*cuts, rows], strict=True):
        part = layout.create()
        layout.update(part, x[:, a:b].copy())
        layout.merge(total, part)
    assert layout.count(total) == rows
    np.testing.assert_allclose(layout.means(total), x.mean(axis=1), rtol=1e-12, atol=1e-12)
    for group in layout.groups:
        wanted = np.cov(x[list(group)]).reshape(len(group), -1) * (rows - 1)
        scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
        assert (abs(layout.comoment(total, group) - wanted) <= 1e-11 * scale).all()


def test_passes_may_overlap(parquet, model):
    """BLAS is held to one thread until the last of them ends, and is free again then."""
    from threadpoolctl import threadpool_info

    from drstream.running.execution import one_blas_thread

    def threads():
        return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

    before = threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert threads() == {1}
    second.__exit__()
    assert threads() == before
    wanted = bits(run(parquet, model))
    with ThreadPoolExecutor(4) as pool:
        assert all(bits(f.result()) == wanted for f in [pool.submit(run, parquet, model) for _ in range(4)])
