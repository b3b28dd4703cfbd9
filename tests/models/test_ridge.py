"""Ridge regressions: weights of events, shared weights, sparse contexts, folds, and real data; against scikit-learn."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.linear_model import Ridge as SklearnRidge
from threadpoolctl import threadpool_limits

import drstream as drs
from drstream.models import passes, ridge
from drstream.running.execution import Workers
from tests.helpers import reference
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.logs import log_of
from tests.helpers.passes import PLAIN
from tests.helpers.places import data

K, D = 3, 6
ROWS = 300 if PLAIN else 3_000
FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
Ridge = drs.models.Ridge


@pytest.fixture(scope="module")
def events():
    """X of which half is 0, a, r, p."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, D)) * (rng.random((ROWS, D)) < 0.5)
    a = rng.integers(0, K, ROWS)
    return X, a, X @ rng.standard_normal(D) * (a + 1) + rng.standard_normal(ROWS), rng.uniform(0.1, 0.9, ROWS)


def by_action(X, a, r, at, alpha, weight=None, fit_intercept=True, actions=K):
    """(n, K) by scikit-learn, action by action."""
    weight = np.ones(len(r)) if weight is None else weight
    models = [SklearnRidge(alpha=alpha, fit_intercept=fit_intercept, solver="svd") for _ in range(actions)]
    for k, model in enumerate(models):
        model.fit(X[a == k], r[a == k], weight[a == k])
    return np.column_stack([model.predict(at) for model in models])


def close(got, ref, sparse, relative=1e-8):
    np.testing.assert_allclose(got, ref, rtol=0, atol=(1e-6 if sparse else relative) * np.abs(ref).max())


POLICY = drs.policies.Softmax(np.random.default_rng(1).standard_normal((K, D)))


@meeting(2, alpha=[1e-6, 1.0, 50.0], weights=[None, "1/p", "mrdr"], fit_intercept=[True, False], sparse=[False, True])
def test_weights_equal_those_of_scikit_learn(events, alpha, weights, fit_intercept, sparse):
    X, a, r, p = events
    policy = POLICY if weights == "mrdr" else None
    weight = {None: None, "1/p": 1 / p, "mrdr": reference.mrdr_weights(POLICY.probabilities(X), a, p)}[weights]
    model = Ridge(alpha, fit_intercept, weights=weights, policy=policy).fit(log_of(X, a, r, p, sparse=sparse))
    close(model.predict(X), by_action(X, a, r, X, alpha, weight, fit_intercept), sparse)
    assert model.reward_range_ == (r.min(), r.max())
    assert model.n_events_ == ROWS


@FORMS
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weights", [None, "1/p"])
def test_shared_weights_equal_a_design_matrix(events, weights, fit_intercept, sparse):
    X, a, r, p = events
    weight = None if weights is None else 1 / p
    model = Ridge(2.0, fit_intercept, shared=True, weights=weights).fit(
        log_of(X, a, r, p, sparse=sparse, actions=K + 1)
    )
    coef, intercept = reference.shared_ridge(X, a, r, K + 1, 2.0, fit_intercept, weight)
    close(model.coef_, coef, sparse)
    close(model.intercept_, intercept, sparse)
    close(model.predict(X), X @ coef.T + intercept, sparse)


def test_a_policy_of_logged_probabilities_is_enough_for_mrdr(events):
    """As a column of numbers, of lists, or as the policy itself."""
    X, a, r, p = events
    pi = POLICY.probabilities(X)
    table = log_of(X, a, r, p).source.table
    table = table.append_column("pi", pa.array(pi[np.arange(ROWS), a])).append_column("all", pa.array(list(pi)))
    log = drs.Log(table, context="x")
    found = [
        Ridge(weights="mrdr", policy=policy).fit(log).coef_
        for policy in (POLICY, drs.policies.Column("pi"), drs.policies.Column("all"), POLICY.probabilities)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-9)
    epsilon = drs.policies.Epsilon(POLICY, 0.2), drs.policies.Epsilon(drs.policies.Column("all"), 0.2)
    one, two = (Ridge(weights="mrdr", policy=policy).fit(log).coef_ for policy in epsilon)
    np.testing.assert_allclose(one, two, rtol=1e-9)


@FORMS
@pytest.mark.parametrize("shared", [False, True])
def test_an_action_never_logged_is_predicted_at_the_mean_reward(events, sparse, shared):
    X, a, r, p = events
    model = Ridge(shared=shared).fit(log_of(X, a, r, p, sparse=sparse, actions=K + 2))
    np.testing.assert_allclose(model.predict(X[:5])[:, K:], r.mean(), rtol=1e-12)
    assert np.isfinite(model.predict(X)).all()


@FORMS
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_one_event(sparse, shared, alpha):
    model = Ridge(alpha, shared=shared).fit(log_of(np.array([[1.0, 0.0]]), [0], [0.25], sparse=sparse, actions=2))
    np.testing.assert_allclose(model.predict(np.array([[1.0, 0.0], [5.0, 7.0]])), 0.25, atol=1e-12)


@FORMS
def test_events_that_do_not_count(events, sparse):
    """Of weight 0, as p = 1 makes them for "mrdr": all of them, or all of one action's."""
    X, a, r, p = events
    weights = {"weights": "mrdr", "policy": drs.policies.Uniform()}
    none = Ridge(**weights).fit(log_of(X, a, r, np.ones(ROWS), sparse=sparse))
    assert (none.predict(X) == 0).all()  # and DR is IPS
    assert none.n_events_ == ROWS
    some = np.where(a == 1, 1.0, p)
    model = Ridge(**weights).fit(log_of(X, a, r, some, sparse=sparse))
    weight = (1 - some) / some**2
    np.testing.assert_allclose(model.predict(X)[:, 1], np.average(r, weights=weight), rtol=1e-9)
    assert (model.coef_[1] == 0).all()
    ref = SklearnRidge(alpha=9.0).fit(X[a == 2], r[a == 2], weight[a == 2]).predict(X)  # weights are π² = 1/9 of these
    close(model.predict(X)[:, 2], ref, sparse)


@FORMS
def test_rewards_that_are_all_the_same(events, sparse):
    X, a, _, _ = events
    for reward in (0.0, 0.1, 1 / 3):
        for alpha in (0.0, 1.0):
            model = Ridge(alpha).fit(log_of(X, a, np.full(ROWS, reward), sparse=sparse))
            np.testing.assert_allclose(model.predict(X), reward, atol=1e-12)


def test_weights_need_propensities(events):
    X, a, r, _ = events
    table = log_of(X, a, r).source.table.drop_columns(["propensity"])
    with pytest.raises(drs.ModelError, match="weights='1/p' needs propensities in a column"):
        Ridge(weights="1/p").fit(drs.Log(table, context="x", propensity=None))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": "1"}, "alpha='1' must be a number at least 0"),
        ({"alpha": None}, "alpha=None must be"),
        ({"alpha": np.nan}, "alpha=nan must be"),
        ({"alpha": np.inf}, "alpha=inf must be"),
        ({"weights": "p"}, "weights='p'"),
        ({"weights": "mrdr"}, "goes with policy="),
        ({"policy": POLICY}, "goes with policy="),
        ({"weights": "1/p", "policy": POLICY}, "goes with policy="),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(drs.ModelError, match=message):
        Ridge(**parameters)


# The same bits


@FORMS
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"weights": "1/p"}, {"weights": "mrdr", "policy": POLICY}])
def test_batches_threads_and_memory_change_no_bit(events, tmp_path, monkeypatch, sparse, options):
    path = tmp_path / "log.parquet"
    log = log_of(*events, sparse=sparse, path=path)
    wanted = Ridge(**options).fit(log, threads=1)

    def same(got):
        assert (got.coef_ == wanted.coef_).all()
        assert (got.intercept_ == wanted.intercept_).all()

    for threads, size in ((2, 7), (4, 100)):
        same(Ridge(**options).fit(cut_log(path, context=log.roles.sparse or "x", batch_size=size), threads=threads))
    with ThreadPoolExecutor(2) as executor:
        same(Ridge(**options).fit(log, executor=executor))
    monkeypatch.setattr(passes, "HOLD_BYTES", 0)
    same(Ridge(**options).fit(log))
    assert pickle.loads(pickle.dumps(wanted)).predict(events[0]).tolist() == wanted.predict(events[0]).tolist()


@FORMS
def test_other_processes_change_no_bit(events, tmp_path, sparse, processes):
    log = log_of(*events, sparse=sparse, path=tmp_path / "log.parquet")
    wanted = Ridge(weights="mrdr", policy=POLICY).fit(log)
    got = Ridge(weights="mrdr", policy=POLICY).fit(log, executor=processes)
    assert (got.coef_ == wanted.coef_).all()
    assert (got.intercept_ == wanted.intercept_).all()


# Folds


@FORMS
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"weights": "mrdr", "policy": drs.policies.Uniform()}])
@pytest.mark.parametrize("cluster", [None, "user"])
def test_folds_equal_fits_on_the_other_folds(events, options, cluster, sparse):
    X, a, r, p = events
    log = log_of(X, a, r, p, sparse=sparse)
    table = log.source.table.append_column("user", pa.array(np.arange(ROWS) // 7))
    log = drs.Log(table, context=log.roles.sparse or "x", actions=K + 1)
    folds = log.folds(3, seed=4, cluster=cluster)
    models = Ridge(**options).fit_folds(log, folds, Workers(2))
    assert len(models) == 3
    numbers = np.arange(ROWS) // 7 if cluster else np.arange(ROWS)
    fold = np.array([reference.fold(int(n), 3, 4) for n in numbers])
    for f, model in enumerate(models):
        part = Ridge(**options).fit(log.part_of(folds.all_but(f)))
        np.testing.assert_allclose(model.coef_, part.coef_, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(model.intercept_, part.intercept_, rtol=1e-10, atol=1e-12)
        assert model.n_events_ == part.n_events_ == (fold != f).sum()
        assert model.fitted_on == part.fitted_on
        chosen = fold != f
        by_hand = Ridge(**options).fit(log_of(X[chosen], a[chosen], r[chosen], p[chosen], actions=K + 1))
        close(model.predict(X), by_hand.predict(X), sparse)


# Conjugate gradients


@pytest.mark.parametrize("alpha", [1e-6, 1.0])
def test_an_action_with_few_events_is_as_precise_as_the_others(alpha):
    """What is enough of a residual is said for each action, not for all of them together."""
    rng = np.random.default_rng(2)
    rows, d = 30 * ROWS // (10 if PLAIN else 3), 40
    X = rng.standard_normal((rows, d)) * (rng.random((rows, d)) < 0.2)
    a = (np.arange(rows) < 60).astype(int)
    r = 100 * (a == 0) * rng.standard_normal(rows) + X @ rng.standard_normal(d)
    got = Ridge(alpha).fit(log_of(X, a, r, sparse=True))
    ref = by_action(X, a, r, X, alpha, actions=2)
    for k in range(2):
        close(got.predict(X)[:, k], ref[:, k], sparse=True)


@pytest.mark.parametrize("alpha", [0.0, 1e-8, 1e-3, 1.0])
def test_features_of_very_different_scales(events, alpha):
    X, a, _, _ = events
    rng = np.random.default_rng(3)
    r = X @ rng.standard_normal(D) + 0.1 * rng.standard_normal(ROWS)
    X = X * 10.0 ** np.linspace(-4, 4, D)
    got = Ridge(alpha).fit(log_of(X, a, r, sparse=True)).predict(X)
    close(got, by_action(X, a, r, X, alpha), sparse=True)


@pytest.mark.parametrize("alpha", [0.0, 1e-9, 1.0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_feature_that_is_always_the_same(events, alpha, kind):
    """As a constant that stands for the intercept: its spread is rounding, which must not become its unit."""
    X, a, r, p = events
    X = np.column_stack([X, np.full(ROWS, 0.1)])
    log = log_of(X, a, r, p, sparse=True)
    table = log.source.table
    table = table.set_column(4, "value", table["value"].cast(pa.list_(pa.from_numpy_dtype(kind))))
    got = Ridge(alpha).fit(drs.Log(table, context=log.roles.sparse)).predict(X.astype(kind))
    ref = by_action(X.astype(kind).astype(float), a, r, X, alpha)
    close(got, ref, sparse=True)


def test_no_convergence_is_an_error_and_no_model(events, monkeypatch):
    X, a, r, p = events
    monkeypatch.setattr(ridge, "MOST_STEPS", 2)
    model = Ridge(1e-6)
    message = rf"did not converge in 2 passes over {ROWS:,} events: a larger alpha than 1e-06"
    with pytest.raises(drs.ModelError, match=message):
        model.fit(log_of(X, a, r, p, sparse=True))
    assert not model.fitted
    with pytest.raises(drs.ModelError, match="is not fitted"):
        model.predict(X)


def test_contexts_in_all_forms_are_predicted_alike(events):
    X, a, r, p = events
    model = Ridge().fit(log_of(X, a, r, p, sparse=True))
    wanted = model.predict(X)
    for form in (scipy.sparse.csr_array(X), scipy.sparse.csc_array(X), np.asfortranarray(X), X.tolist()):
        np.testing.assert_allclose(model.predict(form), wanted, rtol=1e-12, atol=1e-12)


@FORMS
def test_bad_rows_and_empty_logs(events, sparse):
    X, a, r, p = events
    X, r = X[:50].copy(), r[:50].copy()
    X[3, 0], r[4] = np.inf, np.nan
    log = log_of(X, a[:50], r, p[:50], sparse=sparse)
    with pytest.raises(drs.LogError, match="finite"):
        Ridge().fit(log)
    model = Ridge().fit(log.with_bad_rows("skip"))
    assert model.n_events_ == 48
    assert sum(model.skipped_.values()) == 2
    good = [k for k in range(50) if k not in (3, 4)]
    wanted = Ridge().fit(log_of(X[good], a[good], r[good], p[good], sparse=sparse))
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-7, atol=1e-9)
    with pytest.raises(drs.LogError, match="there is no event to fit the reward model on"):
        Ridge().fit(log_of(X, a[:50], np.full(50, np.nan), sparse=sparse, actions=K, on_bad_row="skip"))


# Real data


@pytest.mark.slow
@pytest.mark.parametrize("name", ["letter", "optdigits"])
@pytest.mark.parametrize("weights", [None, "1/p"])
def test_dense_real_data(name, weights):
    """A bandit's log: an action at random, and whether it is the label."""
    table = pq.read_table(data(f"uci_{name}.parquet"))
    X = table["x"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1).astype(float)
    y = table["y"].to_numpy()
    actions, rng = int(y.max()) + 1, np.random.default_rng(0)
    p = rng.dirichlet(np.full(actions, 3.0), len(y))
    a = (p.cumsum(axis=1) < rng.random((len(y), 1))).sum(axis=1).clip(0, actions - 1)
    logged, r = p[np.arange(len(y)), a], (a == y).astype(float)
    model = Ridge(weights=weights).fit(log_of(X, a, r, logged, actions=actions))
    with threadpool_limits(1):  # two threads, where another process has a core, take ten times as long
        ref = by_action(X, a, r, X, 1.0, 1 / logged if weights else None, actions=actions)
    np.testing.assert_allclose(model.predict(X), ref, rtol=0, atol=1e-8 * np.abs(ref).max())


@pytest.mark.slow
def test_sparse_real_data():
    table = pq.read_table(data("rcv1_top4.parquet"))
    rows, rng = table.num_rows, np.random.default_rng(0)
    a = rng.integers(0, 4, rows).astype(np.int32)
    r = (table["label_mask"].to_numpy() >> a & 1).astype(float)
    columns = {"action": a, "reward": r, "propensity": np.full(rows, 0.25)}
    lists = {"indices": table["indices"], "values": table["values"]}
    log = drs.Log(pa.table({**columns, **lists}), context=drs.Sparse("indices", "values", dim=47_236))
    indices, values = (table[name].combine_chunks() for name in lists)
    starts = np.append(0, np.cumsum(indices.value_lengths().to_numpy()))
    parts = values.flatten().to_numpy().astype(float), indices.flatten().to_numpy(), starts
    X = scipy.sparse.csr_array(parts, shape=(rows, 47_236))
    got = Ridge().fit(log).predict(X)
    for k in range(4):
        ref = SklearnRidge(solver="sparse_cg", tol=1e-12, max_iter=5000).fit(X[a == k], r[a == k]).predict(X)
        np.testing.assert_allclose(got[:, k], ref, rtol=0, atol=1e-5 * np.abs(ref).max())
