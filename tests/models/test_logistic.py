"""Logistic regressions of rewards and of actions: against scikit-learn's, which holds all events in memory."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import drstream as drs
from drstream.models import logistic_fit as regression
from drstream.models import passes
from drstream.running.execution import Workers
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.logs import log_of
from tests.helpers.passes import PLAIN, not_plain

D = 5
ROWS = 240 if PLAIN else 3_000
NEAR = 1e-4 if PLAIN else 2e-5  # of predictions: 1e-3 of their standard error
FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
Logistic, Propensity = drs.models.Logistic, drs.models.Propensity


@pytest.fixture
def precise(monkeypatch):
    """For problems of which the usual tolerance leaves more than 1e-4 in predictions."""
    monkeypatch.setattr(regression, "TOLERANCE", 1e-6)


def draw(K, rows=ROWS, seed=0, separable=False):
    """X of which a third is 0, actions by softmax, rewards of 0 and 1 by logistic functions."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, D)) * (rng.random((rows, D)) < 0.7)
    W = rng.standard_normal((K, D))
    a = (0.7 * X @ W.T + rng.gumbel(size=(rows, K)) * (not separable)).argmax(axis=1)
    scores = (X @ W[::-1].T)[np.arange(rows), a]
    q = scores > 0 if separable else 1 / (1 + np.exp(-scores))
    return X, a, (rng.random(rows) < q).astype(float)


def exact(C, fit_intercept=True):
    return LogisticRegression(C=C, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-10, max_iter=10_000)


def rewards(X, a, r, K, C, fit_intercept=True):
    """(n, K) by scikit-learn, action by action."""
    models = [exact(C, fit_intercept).fit(X[a == k], r[a == k]) for k in range(K)]
    return np.column_stack([model.predict_proba(X)[:, 1] for model in models])


def actions(X, a, C, fit_intercept=True):
    return exact(C, fit_intercept).fit(X, a).predict_proba(X)


def close(got, ref, tolerance=NEAR):
    np.testing.assert_allclose(got, ref, rtol=0, atol=tolerance)


@meeting(2, K=[2, 3, 10], C=[1e-3, 1.0, 1e4], fit_intercept=[True, False], sparse=[False, True])
def test_equal_scikit_learn(K, C, fit_intercept, sparse):
    X, a, r = draw(K)
    log = log_of(X, a, r, sparse=sparse)
    model = Propensity(C, fit_intercept).fit(log)
    close(model.predict(X), actions(X, a, C, fit_intercept))
    np.testing.assert_allclose(model.predict(X).sum(axis=1), 1, rtol=1e-12)
    assert (model.n_events_, model.n_actions) == (len(X), K)
    if K == 10:
        r[:30], a[:30] = np.arange(30) // 10 % 2, np.arange(30) % 10  # both rewards of each action
        log = log_of(X, a, r, sparse=sparse)
    model = Logistic(C, fit_intercept).fit(log)
    close(model.predict(X), rewards(X, a, r, K, C, fit_intercept), 5 * NEAR)
    assert model.reward_range_ == (0, 1)
    if not fit_intercept:
        assert (model.intercept_ == 0).all()


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("scale", [1.0, np.array([1e-4, 1e-2, 1.0, 1e2, 1e4])], ids=["alike", "scaled"])
@pytest.mark.parametrize("shift", [0.0, np.array([1e2, 0.0, -1e4, 1e6, 1e8])], ids=["centred", "shifted"])
def test_units_and_offsets(C, scale, shift):
    """An offset is the intercept's business, so that scikit-learn's reference is about the mean."""
    K = 3
    X, a, r = draw(K)
    X = X * scale
    moved = X + np.minimum(np.abs(shift), 1e6 * np.asarray(scale)) * np.sign(shift)
    log = log_of(moved, a, r)
    close(Propensity(C).fit(log).predict(moved), actions(moved - moved.mean(axis=0), a, C), 1e-4)
    close(Logistic(C).fit(log).predict(moved), rewards(moved - moved.mean(axis=0), a, r, K, C), 1e-4)


def test_seconds_since_1970():
    rng = np.random.default_rng(0)
    X, a, r = draw(2)
    X[:, 0] = 1.7e9 + 2.6e6 * rng.random(ROWS)
    close(Logistic().fit(log_of(X, a, r)).predict(X), rewards(X - X.mean(axis=0), a, r, 2, 1.0))


@FORMS
@pytest.mark.usefixtures("precise")
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_separable_rewards_and_actions(C, sparse):
    X, a, r = draw(3, separable=True)
    log = log_of(X, a, r, sparse=sparse)
    close(Propensity(C).fit(log).predict(X), actions(X, a, C), 1e-4)
    close(Logistic(C).fit(log).predict(X), rewards(X, a, r, 3, C), 1e-4)


@FORMS
def test_hardly_any_penalty_on_what_is_separable(sparse):
    """Weights have no end but the penalty: what counts is that the fit ends, and is right about the events."""
    X, a, r = draw(3, separable=True)
    log = log_of(X, a, r, sparse=sparse)
    assert (Propensity(1e9).fit(log).predict(X)[np.arange(ROWS), a] > 0.9).all()
    events = X.any(axis=1)  # without features, both rewards are as good
    assert (np.abs(Logistic(1e7).fit(log).predict(X)[np.arange(ROWS), a] - r) < 0.1)[events].all()


@FORMS
@pytest.mark.usefixtures("precise")
def test_outliers(sparse):
    X, a, r = draw(3)
    X[0] *= 1e3
    log = log_of(X, a, r, sparse=sparse)
    close(Propensity().fit(log).predict(X), actions(X, a, 1.0), 1e-4)
    close(Logistic().fit(log).predict(X), rewards(X, a, r, 3, 1.0), 1e-4)


@pytest.mark.usefixtures("precise")
def test_collinear_features():
    X, a, r = draw(3)
    X = np.column_stack([X, 2 * X[:, 0], np.full(ROWS, 3.0), X[:, 1] + X[:, 2]])
    for C in (1.0, 1e8):
        log = log_of(X, a, r)
        close(Propensity(C).fit(log).predict(X), actions(X - X.mean(axis=0), a, C), 1e-4)
        close(Logistic(C).fit(log).predict(X), rewards(X - X.mean(axis=0), a, r, 3, C), 1e-4)


def test_diagonals_have_to_do_for_many_features(monkeypatch):
    monkeypatch.setattr(regression, "MOST_CURVATURE", 0)
    X, a, r = draw(3)
    log = log_of(X, a, r)
    close(Propensity().fit(log).predict(X), actions(X, a, 1.0))
    close(Logistic().fit(log).predict(X), rewards(X, a, r, 3, 1.0))


# What little there is


@FORMS
def test_an_action_never_logged(sparse):
    """It has the mean reward, and probability 0; the others are as if it were not there."""
    X, a, r = draw(2)
    a = np.array([0, 2])[a]
    log = log_of(X, a, r, sparse=sparse, actions=4)
    model = Logistic().fit(log)
    np.testing.assert_allclose(model.predict(X)[:, [1, 3]], r.mean(), rtol=1e-9)
    assert (model.coef_[[1, 3]] == 0).all()
    chosen = Propensity().fit(log).predict(X)
    assert (chosen[:, [1, 3]] == 0).all()
    close(chosen[:, [0, 2]], actions(X, a, 1.0))
    three = np.array([0, 1, 3])[draw(3)[1]]
    close(
        Propensity().fit(log_of(X, three, r, sparse=sparse, actions=4)).predict(X)[:, [0, 1, 3]], actions(X, three, 1.0)
    )


@FORMS
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_an_action_with_one_reward(sparse, reward):
    X, a, r = draw(3)
    r[a == 1] = reward
    got = Logistic().fit(log_of(X, a, r, sparse=sparse)).predict(X)
    close(got[:, 1], reward, 1e-6)
    r[a == 1] = np.arange((a == 1).sum()) % 2  # for scikit-learn, which does not look at others
    close(got[:, [0, 2]], rewards(X, a, r, 3, 1.0)[:, [0, 2]])


@FORMS
def test_one_event_one_action_and_no_features(sparse):
    X, a, r = draw(2)
    assert (Propensity().fit(log_of(X, a * 0, r, sparse=sparse)).predict(X) == 1).all()
    one = log_of(X[:1], a[:1] * 0 + 1, r[:1] * 0 + 1, sparse=sparse, actions=3)
    assert Propensity().fit(one).predict(X[:2]).tolist() == [[0, 1, 0]] * 2
    close(Logistic().fit(one).predict(X[:1]), 1, 1e-4)
    if not sparse:
        log = drs.Log(log_of(X, a, r).source.table, context=[])
        means = [[r[a == 0].mean(), r[a == 1].mean()]]
        close(Logistic().fit(log).predict(np.zeros((1, 0))), means)
        close(Propensity().fit(log).predict(np.zeros((1, 0))), [[(a == 0).mean(), (a == 1).mean()]])


def test_rewards_between_0_and_1():
    """A reward of 0.3 is 0.3 of an event with reward 1, and 0.7 of one with 0."""
    X, a, _ = draw(2)
    r = np.random.default_rng(1).integers(0, 11, ROWS) / 10
    got = Logistic(2.0).fit(log_of(X, a, r)).predict(X)
    for k in range(2):
        mine, share = X[a == k], r[a == k]
        twice, weight = np.vstack([mine, mine]), np.append(share, 1 - share)
        labels = np.append(np.ones(len(share)), np.zeros(len(share)))
        ref = exact(2.0).fit(twice[weight > 0], labels[weight > 0], weight[weight > 0])
        close(got[:, k], ref.predict_proba(X)[:, 1])


@pytest.mark.parametrize("reward", [-0.1, 1.5])
def test_rewards_outside_of_0_and_1(reward):
    X, a, r = draw(2)
    r[7] = reward
    low, high = min(r), max(r)
    with pytest.raises(
        drs.ModelError, match=rf"rewards in \[0, 1\]; the log's run from {low:g} to {high:g}: use Ridge"
    ):
        Logistic().fit(log_of(X, a, r))
    assert Propensity().fit(log_of(X, a, r)).reward_range_ == (low, high)


# A log larger than the sample


@FORMS
@pytest.mark.parametrize("C", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("K", [2, 3])
def test_from_a_sample_to_the_log(monkeypatch, K, C, sparse):
    monkeypatch.setattr(regression, "SAMPLE_ROWS", ROWS // 5)
    X, a, r = draw(K)
    log = log_of(X, a, r, sparse=sparse)
    close(Propensity(C).fit(log).predict(X), actions(X, a, C))
    close(Logistic(C).fit(log).predict(X), rewards(X, a, r, K, C), 1e-4)


@pytest.mark.parametrize("C", [1.0, 1e4, 1e8])
def test_actions_and_rewards_that_the_sample_lacks(monkeypatch, C):
    """Few clicks, and an action that is rare: in the sample there may be none of either."""
    monkeypatch.setattr(regression, "SAMPLE_ROWS", ROWS // 10)
    rng = np.random.default_rng(0)
    X, a, _ = draw(3)
    a = np.where(rng.random(ROWS) < 24 / ROWS, 2, a % 2)
    a[:4] = 2
    r = (rng.random(ROWS) < 60 / ROWS).astype(float)
    r[a == 2] = np.arange((a == 2).sum()) % 2
    log = log_of(X, a, r)
    chosen = Propensity(C).fit(log)
    close(chosen.predict(X), actions(X, a, C))
    clicked = Logistic(C).fit(log)
    close(clicked.predict(X), rewards(X, a, r, 3, C), 2e-4)
    assert max(chosen.n_passes_, clicked.n_passes_) < 300


@FORMS
@pytest.mark.parametrize("rows", [1, 8])
def test_a_sample_that_is_much_too_small(monkeypatch, rows, sparse):
    monkeypatch.setattr(regression, "SAMPLE_ROWS", rows)
    X, a, r = draw(3)
    log = log_of(X, a, r, sparse=sparse)
    close(Propensity(10.0).fit(log).predict(X), actions(X, a, 10.0))
    close(Logistic(10.0).fit(log).predict(X), rewards(X, a, r, 3, 10.0), 1e-4)


def test_no_convergence_is_an_error_and_no_model(monkeypatch):
    monkeypatch.setattr(regression, "PATIENCE", 1)
    monkeypatch.setattr(regression, "MOST_PASSES", 1)
    X, a, r = draw(2)
    for model in (Logistic(1e8), Propensity(1e8)):
        name = type(model).__name__
        with pytest.raises(drs.ModelError, match=rf"{name} did not converge in 1 passes over {ROWS:,} events"):
            model.fit(log_of(X, a, r))
        assert not model.fitted


# The same bits


@not_plain
@FORMS
@pytest.mark.parametrize("sample", [1 << 16, ROWS // 4])
@pytest.mark.parametrize("kind", [Logistic, Propensity])
def test_batches_threads_and_memory_change_no_bit(tmp_path, monkeypatch, kind, sample, sparse):
    monkeypatch.setattr(regression, "SAMPLE_ROWS", sample)
    X, a, r = draw(3)
    path = tmp_path / "log.parquet"
    log = log_of(X, a, r, sparse=sparse, path=path)
    wanted = kind().fit(log, threads=1)

    def same(got):
        assert (got.coef_ == wanted.coef_).all()
        assert (got.intercept_ == wanted.intercept_).all()
        assert got.n_passes_ == wanted.n_passes_

    for threads, size in ((2, 7), (4, 100)):
        same(kind().fit(cut_log(path, context=log.roles.sparse or "x", batch_size=size), threads=threads))
    with ThreadPoolExecutor(2) as executor:
        same(kind().fit(log, executor=executor))
    monkeypatch.setattr(passes, "HOLD_BYTES", 0)
    same(kind().fit(log))
    monkeypatch.setattr(passes, "HOLD_BYTES", 20_000)  # of some parts only
    same(kind().fit(log))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(wanted)).predict(X), wanted.predict(X))


def test_other_processes_change_no_bit(tmp_path, processes):
    X, a, r = draw(3)
    log = log_of(X, a, r, path=tmp_path / "log.parquet")
    wanted = Propensity().fit(log)
    got = Propensity().fit(log, executor=processes)
    assert (got.coef_ == wanted.coef_).all()


# Rows


@FORMS
@pytest.mark.parametrize("kind", [Logistic, Propensity])
def test_bad_rows_are_skipped_and_counted(kind, sparse):
    """A row whose context is bad counts for nothing: neither its reward of 7, nor its action, which no other has."""
    X, a, r = draw(2)
    X[3, 0], r[3], a[3] = np.inf, 7.0, 3
    r[4] = np.nan
    log = log_of(X, a, r, sparse=sparse, actions=4)
    with pytest.raises(drs.LogError, match="finite"):
        kind().fit(log)
    model = kind().fit(log.with_bad_rows("skip"))
    assert model.n_events_ == ROWS - 2
    assert sum(model.skipped_.values()) == 2
    assert model.reward_range_ == (0, 1)
    good = np.setdiff1d(np.arange(ROWS), [3, 4])
    wanted = kind().fit(log_of(X[good], a[good], r[good], sparse=sparse, actions=4))
    close(model.predict(X[good]), wanted.predict(X[good]), 1e-9)


@pytest.mark.parametrize("kind", [Logistic, Propensity])
def test_logs_that_cannot_be_fitted_on(kind):
    X, a, r = draw(2)
    with pytest.raises(drs.LogError, match=f"there is no event to fit {kind.__name__} on"):
        kind().fit(log_of(X, a, r * np.nan, actions=2, on_bad_row="skip"))
    table = log_of(X, a, r).source.table
    with pytest.raises(drs.LogError, match="can be read only once"):
        kind().fit(drs.Log(table.to_reader(50), context="x", actions=2))
    assert kind().fit(drs.Log(table, context="x").split(0.5)[0]).n_events_ < ROWS


def test_propensities_are_not_looked_at():
    """A log without them, or with others."""
    X, a, r = draw(2)
    table = log_of(X, a, r).source.table
    wanted = Propensity().fit(table).predict(X)
    without = drs.Log(table.drop_columns(["propensity"]), context="x", propensity=None)
    assert (Propensity().fit(without).predict(X) == wanted).all()
    assert (Logistic().fit(without).predict(X) == Logistic().fit(table).predict(X)).all()


@pytest.mark.parametrize("C", [0, -1, np.nan, np.inf, "1", None])
@pytest.mark.parametrize("kind", [Logistic, Propensity])
def test_bad_parameters(kind, C):
    with pytest.raises(drs.ModelError, match=f"{kind.__name__}: C={C!r} must be a (finite )?number above 0"):
        kind(C)


def test_contexts_in_all_forms_are_predicted_alike():
    import scipy.sparse

    X, a, r = draw(3)
    for kind in (Logistic, Propensity):
        model = kind().fit(log_of(X, a, r, sparse=True))
        wanted = model.predict(X)
        for form in (scipy.sparse.csr_array(X), scipy.sparse.csc_array(X), np.asfortranarray(X), X.tolist()):
            np.testing.assert_allclose(model.predict(form), wanted, rtol=1e-12)
        assert model.predict(np.zeros((0, D))).shape == (0, 3)


def test_a_fitted_propensity_model_is_a_policy():
    """Its value, with itself as propensities, is the log's mean reward."""
    X, a, r = draw(3)
    model = Propensity().fit(log_of(X, a, r))
    model.fitted_on = None
    result = drs.evaluate(log_of(X, a, r), model, estimators=["ips", "snips"], propensity=model)
    assert result["ips"].value == pytest.approx(r.mean(), rel=1e-12)
    assert result["snips"].value == pytest.approx(r.mean(), rel=1e-12)


def test_empty_row_groups_and_files(tmp_path):
    import pyarrow.parquet as pq

    X, a, r = draw(2)
    table = log_of(X, a, r).source.table
    with pq.ParquetWriter(tmp_path / "0.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 100), table.slice(0, 0), table.slice(100)):
            writer.write_table(part)
    pq.write_table(table.slice(0, 0), tmp_path / "1.parquet")
    model = Logistic().fit(drs.Log(tmp_path, context="x"))
    assert model.n_events_ == ROWS
    close(model.predict(X), Logistic().fit(table).predict(X), 1e-9)


def test_no_more_is_held_in_memory_than_was_said(monkeypatch, tmp_path):
    """Of ten row groups, those that fit; the others are read again in every pass."""
    X, a, r = draw(3)
    pq.write_table(log_of(X, a, r).source.table, tmp_path / "log.parquet", row_group_size=-(-len(r) // 10))
    log = drs.Log(tmp_path / "log.parquet")
    reader = log.reader(context=True, action=True)
    for limit, held in ((0, 0), (1 << 30, 10)):
        monkeypatch.setattr(passes, "HOLD_BYTES", limit)
        several = passes.Passes(log, reader, Workers(2))
        assert sum(several.sum_up(lambda batches: sum(map(len, batches)), [], list.append)) == len(r)
        assert len(several._held) == held
    size = sum(passes._bytes(batch) for part in several._held.values() for batch in part)
    monkeypatch.setattr(passes, "HOLD_BYTES", size // 2)
    several = passes.Passes(log, reader, Workers(2))
    for _ in range(2):
        assert sum(several.sum_up(lambda batches: sum(map(len, batches)), [], list.append)) == len(r)
        assert 3 <= len(several._held) <= 5
        assert sum(passes._bytes(batch) for part in several._held.values() for batch in part) <= size // 2
