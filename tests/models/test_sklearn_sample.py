"""Models of scikit-learn on logs larger than memory: the sample of events, and fits in parts."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import drstream as drs
from drstream.models import from_sklearn
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.sklearn_models import (
    ROWS,
    SGD,
    SGD_CLASSES,
    D,
    K,
    coefficients,
    contexts,
    expected,
    one_hot,
    roles,
    sparse_contexts,
    sparse_log,
    sparse_table,
)

GROUP = ROWS // 5


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


# The sample


def lots(count, seed):
    from drstream.models.sample import SAMPLE_SEED

    return drs.sampling.at_rows(seed + SAMPLE_SEED, np.arange(count, dtype=np.uint64))


@pytest.mark.parametrize("sample", [1, 150, ROWS - 1, ROWS, ROWS + 1])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_sample_is_of_the_smallest_random_numbers(table, sample, sparse):
    log = sparse_log(table) if sparse else drs.Log(table)
    X = sparse_contexts(table) if sparse else contexts(table)
    a, r = roles(table)
    got = from_sklearn(DecisionTreeRegressor(random_state=0), action="feature", sample=sample, seed=5).fit(log)
    drawn = np.sort(np.argsort(lots(ROWS, 5))[:sample])
    assert got.n_events_ == len(drawn) == min(sample, ROWS)
    ref = DecisionTreeRegressor(random_state=0).fit(one_hot(X[drawn], a[drawn]), r[drawn])
    for k in np.unique(a[drawn]):
        wanted = ref.predict(one_hot(X[:50], np.full(50, k)))
        np.testing.assert_array_equal(got.predict(X[:50])[:, k], wanted)
    whole = sample >= ROWS
    assert got.fitted_rows_ == (f"all {ROWS:,} events" if whole else f"a sample of {sample:,} of {ROWS:,} events")
    about = f"action='feature'), fitted on table: {got.fitted_rows_}"
    assert repr(got) == f"from_sklearn(DecisionTreeRegressor(random_state=0), {about}"


@pytest.mark.parametrize("partial", [False, True])
def test_does_not_depend_on_batches_threads_or_executor(table, tmp_path, partial):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=GROUP)
    settings = {"sample": ROWS // 8, "partial": partial}
    wanted = from_sklearn(SGD, **settings).fit(drs.Log(path), threads=1)
    assert wanted.n_events_ == (ROWS if partial else ROWS // 8)
    for threads, size in ((1, 7), (2, 100), (4, ROWS)):
        got = from_sklearn(SGD, **settings).fit(cut_log(path, batch_size=size), threads=threads)
        np.testing.assert_array_equal(coefficients(got), coefficients(wanted))
    with ThreadPoolExecutor(2) as executor:
        got = from_sklearn(SGD, **settings).fit(drs.Log(path), executor=executor)
    np.testing.assert_array_equal(coefficients(got), coefficients(wanted))
    if not partial:
        other = from_sklearn(SGD, **settings, seed=1).fit(drs.Log(path))
        assert (coefficients(other) != coefficients(wanted)).any()
        assert other.n_events_ == ROWS // 8


def test_the_sample_can_be_drawn_in_other_processes(table, tmp_path, processes):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=GROUP)
    wanted = from_sklearn(Ridge(), sample=100).fit(drs.Log(path))
    got = from_sklearn(Ridge(), sample=100).fit(drs.Log(path), executor=processes)
    np.testing.assert_array_equal(coefficients(got), coefficients(wanted))


def test_the_sample_is_of_the_events_that_are_meant(table):
    """Of a part of a log, or a filtered one, as many events as fit, and those of the part only."""
    part = drs.Log(table).split(0.5)[0]
    inside = from_sklearn(Ridge(), sample=ROWS).fit(part)
    assert 0.4 * ROWS < inside.n_events_ < 0.6 * ROWS
    assert inside.fitted_rows_.startswith("all ")
    few = from_sklearn(Ridge(), sample=inside.n_events_ - 1).fit(part)
    assert few.fitted_rows_ == f"a sample of {inside.n_events_ - 1:,} of {inside.n_events_:,} events"
    some = from_sklearn(Ridge(), action="feature").fit(drs.Log(table, filter=pc.field("action") < 2))
    a, r = roles(table)
    assert some.n_events_ == (a < 2).sum()
    assert some.models_[2:] == [pytest.approx(r[a < 2].mean())] * 2


def test_the_sample_of_a_stream_that_is_read_once(table):
    got = from_sklearn(Ridge(), sample=100).fit(drs.Log(table.to_reader(50), actions=K))
    wanted = from_sklearn(Ridge(), sample=100).fit(table)
    np.testing.assert_array_equal(coefficients(got), coefficients(wanted))
    got = from_sklearn(SGD, partial=True).fit(drs.Log(table.to_reader(50), actions=K))
    np.testing.assert_array_equal(coefficients(got), coefficients(from_sklearn(SGD, partial=True).fit(table)))
    with pytest.raises(drs.LogError, match="can be read only once"):
        from_sklearn(SGD_CLASSES, partial=True).fit(drs.Log(table.to_reader(50), actions=K))


def test_the_sample_is_uniform(table):
    """Each of the events is drawn with the same chance."""
    times = np.zeros(100)
    for seed in range(60):
        times[np.argsort(lots(100, seed))[:50]] += 1
    assert abs(times.mean() - 30) < 1e-9
    assert times.std() < 2 * np.sqrt(60 * 0.25)


# partial_fit


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("action", ["separate", "feature"])
@pytest.mark.parametrize("estimator", [SGD, SGD_CLASSES], ids=["regressor", "classifier"])
def test_partial_fit_equals_a_loop_by_hand(table, tmp_path, estimator, action, sparse):
    path = tmp_path / "log.parquet"
    pq.write_table(sparse_table(table) if sparse else table, path, row_group_size=GROUP)
    log = drs.Log(path, context=drs.Sparse("i", "v", dim=D) if sparse else "x?")
    X = sparse_contexts(table) if sparse else contexts(table)
    a, r = roles(table)
    more = {"classes": [0.0, 1.0]} if estimator is SGD_CLASSES else {}
    models = [clone(estimator) for _ in range(K)]
    for start in range(0, ROWS, GROUP):
        rows = slice(start, start + GROUP)
        if action == "feature":
            models[0].partial_fit(one_hot(X[rows], a[rows]), r[rows], **more)
            continue
        for k in range(K):
            models[k].partial_fit(X[rows][a[rows] == k], r[rows][a[rows] == k], **more)
    got = from_sklearn(estimator, action=action, partial=True).fit(log)
    for k in range(K):
        model, at = models[k], X[:50]
        if action == "feature":
            model, at = models[0], one_hot(X[:50], np.full(50, k))
        np.testing.assert_allclose(got.predict(X[:50])[:, k], expected(model, at), rtol=1e-5, atol=1e-6)
    assert got.n_events_ == ROWS
    assert got.fitted_rows_ == f"all {ROWS:,} events, with partial_fit"
    assert got.reward_range_ == (0, 1)


@pytest.mark.parametrize(
    ("estimator", "sample", "partial", "rows"),
    [
        (SGD, ROWS, None, f"all {ROWS:,} events"),
        (SGD, 100, None, f"all {ROWS:,} events, with partial_fit"),
        (SGD_CLASSES, 100, None, f"all {ROWS:,} events, with partial_fit"),
        (SGD, 100, False, f"a sample of 100 of {ROWS:,} events"),
        (SGD, ROWS, True, f"all {ROWS:,} events, with partial_fit"),
        (Ridge(), 100, None, f"a sample of 100 of {ROWS:,} events"),
    ],
)
def test_what_partial_means(table, estimator, sample, partial, rows):
    got = from_sklearn(estimator, sample=sample, partial=partial, action="feature").fit(table)
    assert got.fitted_rows_ == rows
    assert rows in repr(got)


def test_a_part_that_fits_is_fitted_in_memory(table):
    """Though the rows of the file are more than the sample."""
    train, _ = drs.Log(table).split(0.2)
    got = from_sklearn(SGD, sample=ROWS // 2).fit(train)
    assert got.fitted_rows_ == f"all {got.n_events_:,} events"
    assert got.n_events_ < ROWS // 2
