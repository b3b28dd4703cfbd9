"""Direct loss minimisation: each epoch as appendix D has it, the same bits for any number of threads, real progress."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import drstream as drs
from drstream.optimize import DirectLossMinimizer, Losses, impute
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.reference import toward_better

ROWS = 200 if PLAIN else 4000


def problem(n=60, d=3, actions=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, actions))


def start(actions, d, **options):
    """The weights and intercepts at which the first run starts."""
    policy = DirectLossMinimizer(**options)
    return np.random.default_rng(policy.seed).normal(scale=policy.perturbation, size=(policy.restarts, actions, d + 1))


def walk(X, costs, theta, epochs, epsilon, rate=0.5, decay=0.3):
    """The naive run: the weights with the least loss, and that loss; the last column of X is 1, or 0 without it."""
    best, least = theta, np.inf
    for t in range(1, epochs + 1):
        moved, loss = toward_better(X, costs, theta, epsilon, rate * t**-decay)
        if loss < least:
            best, least = theta, loss
        theta = moved
    _, loss = toward_better(X, costs, theta, epsilon, 0.0)
    return (theta, loss) if loss < least else (best, least)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
def test_epochs_are_those_of_the_definition(sparse, intercept):
    X, costs = problem()
    costs /= np.ptp(costs)  # range 1, for which epsilon is meant
    options = {"restarts": 3, "epochs": 5, "perturbation": 0.3, "epsilon": 0.7, "seed": 4}
    known = Losses.known(scipy.sparse.csr_array(X) if sparse else X, costs)
    policy = DirectLossMinimizer(**options, fit_intercept=intercept, standardize=False).fit(known)
    Z = np.column_stack([X, np.full(len(X), float(intercept))])
    theta = start(4, 3, **options)
    theta[:, :, -1] *= intercept
    runs = [walk(Z, costs, one, 5, 0.7) for one in theta]
    np.testing.assert_allclose(policy.run_losses_, [loss for _, loss in runs], rtol=1e-12, atol=1e-14)
    best = min(range(3), key=lambda r: runs[r][1])
    np.testing.assert_allclose(policy.coef_, runs[best][0][:, :-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(policy.intercept_, runs[best][0][:, -1], rtol=1e-9, atol=1e-12)
    assert policy.loss_ == policy.run_losses_.min()


def test_standardized_features_give_weights_of_the_features_as_they_are():
    X, costs = problem()
    X = X * [1.0, 100.0, 0.001] + [0.0, 5000.0, 3.0]
    options = {"restarts": 2, "epochs": 8, "perturbation": 0.1}
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    one = DirectLossMinimizer(**options).fit(Losses.known(X, costs))
    other = DirectLossMinimizer(**options, standardize=False).fit(Losses.known(Z, costs))
    np.testing.assert_allclose(one.run_losses_, other.run_losses_, rtol=1e-9)
    assert (one.probabilities(X) == other.probabilities(Z)).all()


def test_without_an_intercept_there_is_none():
    X, costs = problem()
    policy = DirectLossMinimizer(restarts=2, epochs=8, fit_intercept=False).fit(Losses.known(X + 50, costs))
    assert (policy.intercept_ == 0).all()
    scaled = DirectLossMinimizer(restarts=2, epochs=8, fit_intercept=False, standardize=False)
    scaled.fit(Losses.known((X + 50) / X.std(axis=0), costs))
    np.testing.assert_allclose(policy.run_losses_, scaled.run_losses_, rtol=1e-9)


def test_the_weights_after_the_last_epoch_count_too():
    X = np.array([[-1.0], [1.0]])
    known = Losses.known(X, [[0.0, 1.0], [1.0, 0.0]])
    for seed in range(20):  # some starts are wrong, and one step mends them
        assert DirectLossMinimizer(restarts=1, epochs=1, seed=seed, perturbation=1e-6).fit(known).loss_ == 0


@pytest.mark.parametrize("model", [None, drs.models.Ridge()])
def test_actions_that_were_never_logged_are_not_taken(model):
    """Of a log with costs, an action that was not logged seems to cost nothing."""
    table = world().table(ROWS, seed=9)
    cost = pa.array(1 - table["reward"].to_numpy())
    table = table.drop_columns(["reward"]).append_column("cost", cost).filter(pc.field("action") < 2)
    policy = DirectLossMinimizer(restarts=2, epochs=10).fit(drs.Log(table, actions=4), model)
    chosen = policy.probabilities(np.random.default_rng(0).normal(size=(200, 3))).argmax(axis=1)
    assert set(chosen.tolist()) <= {0, 1}


def test_a_constant_feature_changes_nothing():
    X, costs = problem()
    wide = np.column_stack([X, np.full(len(X), 7.5)])
    policy = DirectLossMinimizer(restarts=2, epochs=5).fit(Losses.known(wide, costs))
    assert (policy.coef_[:, -1] == 0).all()


def test_the_scale_of_losses_does_not_matter():
    X, costs = problem()
    one, other = (DirectLossMinimizer(restarts=3, epochs=20).fit(Losses.known(X, costs * f)) for f in (1.0, 1024.0))
    assert (one.coef_ == other.coef_).all()
    assert one.loss_ * 1024 == pytest.approx(other.loss_, rel=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_run_that_has_converged_takes_no_more_epochs(sparse):
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    costs = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    X = scipy.sparse.csr_array(X) if sparse else X
    policy = DirectLossMinimizer(restarts=4).fit(Losses.known(X, costs))
    assert policy.loss_ == 0
    assert policy.n_epochs_ < policy.epochs
    assert policy.converged_


def test_more_runs_than_fit_side_by_side(monkeypatch):
    X, costs = problem()
    options = {"restarts": 5, "epochs": 4, "perturbation": 0.1}
    whole = DirectLossMinimizer(**options).fit(Losses.known(X, costs))
    monkeypatch.setattr("drstream.optimize.dlm.TOGETHER", 2 * 4 * 4)
    parts = DirectLossMinimizer(**options).fit(Losses.known(X, costs))
    np.testing.assert_allclose(parts.run_losses_, whole.run_losses_, rtol=1e-12)


def test_the_same_bits_for_any_threads_and_batch_size(tmp_path):
    pq.write_table(world().table(ROWS, seed=5), tmp_path / "log.parquet", row_group_size=ROWS // 5)
    found = []
    for threads, batch_size in ((1, None), (2, 37), (3, 1000)):
        log = drs.Log(tmp_path / "log.parquet", batch_size=batch_size)
        policy = DirectLossMinimizer(restarts=3, epochs=4).fit(log, drs.models.Ridge(), threads=threads)
        found.append((policy.coef_.tolist(), policy.intercept_.tolist(), policy.run_losses_.tolist()))
    assert found[0] == found[1] == found[2]


def test_contexts_that_do_not_fit_into_memory_give_the_same(tmp_path, monkeypatch):
    pq.write_table(world().table(ROWS, seed=5), tmp_path / "log.parquet", row_group_size=ROWS // 5)
    log = drs.Log(tmp_path / "log.parquet")
    one = DirectLossMinimizer(restarts=2, epochs=3).fit(log)
    monkeypatch.setattr("drstream.models.passes.HOLD_BYTES", 0)
    other = DirectLossMinimizer(restarts=2, epochs=3).fit(log)
    assert (one.coef_ == other.coef_).all()


def test_it_learns_a_better_policy_than_the_logging_one():
    kinds = world(kinds=50)
    log = drs.Log(kinds.table(10 * ROWS, seed=6))
    policy = DirectLossMinimizer(restarts=3, epochs=60).fit(log, drs.models.Ridge())
    best = float(kinds.frequency @ kinds.reward(kinds.kinds).max(axis=1))
    logged = float(kinds.frequency @ (kinds.logging(kinds.kinds) * kinds.reward(kinds.kinds)).sum(axis=1))
    assert logged < kinds.value(policy) <= best + 1e-12
    if not PLAIN:
        assert kinds.value(policy) > best - 0.25 * (best - logged)


def test_it_is_an_ordinary_policy(tmp_path):
    train, test = drs.Log(world().table(ROWS, seed=7)).split(0.5)
    policy = DirectLossMinimizer(restarts=2, epochs=5).fit(train, drs.models.Ridge())
    result = drs.evaluate(test, {"learned": policy, "softer": drs.policies.Epsilon(policy, 0.2)})
    linear = drs.evaluate(test, {"learned": drs.policies.Linear(policy.coef_, policy.intercept_)})
    assert result["learned", "ips"].value == linear["learned", "ips"].value
    policy.save(tmp_path / "policy.npz")
    again = drs.optimize.load(tmp_path / "policy.npz")
    assert repr(again) == repr(policy)
    assert drs.evaluate(test, {"learned": again})["learned", "ips"].value == linear["learned", "ips"].value


@pytest.mark.parametrize("softer", [False, True])
def test_evaluating_it_on_the_events_that_it_was_learned_from_draws_a_warning(softer):
    log = drs.Log(world().table(ROWS, seed=7))
    train, test = log.split(0.5)
    policy = DirectLossMinimizer(restarts=1, epochs=2).fit(train)
    policy = drs.policies.Epsilon(policy, 0.5) if softer else policy
    for seen in (train, log):
        with pytest.warns(UserWarning, match=r"'new' was learned from events.*which flatters it.*split\(0.7\)"):
            drs.evaluate(seen, {"new": policy})
    with pytest.warns(UserWarning, match="was learned from events"):
        drs.replay(log, policy, horizon=5)
    drs.evaluate(test, {"new": policy})


@pytest.mark.parametrize("saved", [False, True])
def test_what_a_policy_knows_through_its_model_counts_too(tmp_path, saved):
    """The rewards are noise: a policy that a model of the test events taught looks good on these."""
    rng = np.random.default_rng(0)
    n = 600
    columns = {"action": rng.integers(0, 2, n), "reward": rng.integers(0, 2, n).astype(float)}
    features = {f"x{j}": rng.normal(size=n) for j in range(100)}
    pq.write_table(pa.table({**columns, "propensity": np.full(n, 0.5), **features}), tmp_path / "noise.parquet")
    train, test = drs.Log(tmp_path / "noise.parquet").split(0.5)
    model = drs.models.Ridge().fit(test)
    policy = DirectLossMinimizer(restarts=2, epochs=60).fit(impute(train, model, estimator="dm"))
    if saved:
        policy.save(tmp_path / "policy.npz")
        policy = drs.optimize.load(tmp_path / "policy.npz")
    with pytest.warns(UserWarning, match="was learned with a model of events that it is now evaluated on"):
        found = drs.evaluate(test, policy)["policy", "snips"]
    assert found.low > 0.55  # flattered: the truth is 0.5


def test_it_fits_the_log_that_it_is_used_on():
    policy = DirectLossMinimizer(restarts=1, epochs=1).fit(world().table(ROWS, seed=7))
    with pytest.raises(drs.PolicyError, match="was fitted on 3 features; the log has 2"):
        drs.evaluate(drs.Log(world().table(20), context=["x0", "x1"]), policy)
    with pytest.raises(drs.PolicyError, match=r"is not fitted: call \.fit"):
        drs.evaluate(world().table(20), DirectLossMinimizer())
    with pytest.raises(drs.PolicyError, match=r"contexts of shape \(2, 7\): the policy was fitted on 3 features"):
        policy.probabilities(np.zeros((2, 7)))


def test_rewards_are_turned_into_costs():
    table = world().table(ROWS, seed=8)
    one = DirectLossMinimizer(restarts=2, epochs=3).fit(impute(table))
    other = DirectLossMinimizer(restarts=2, epochs=3).fit(impute(table, losses="rewards"))
    assert (one.coef_ == other.coef_).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon=0 must be a number above 0"),
        ({"restarts": 0}, "restarts=0 must be a whole number of at least 1"),
        ({"restarts": 2.5}, r"restarts=2\.5 must be a whole number"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a number"),
        ({"decay": -1}, "decay=-1 must be a number at least 0"),
        ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(drs.PolicyError, match=f"DirectLossMinimizer: {message}"):
        DirectLossMinimizer(**options)


def test_nothing_to_learn_from():
    log = drs.Log(world().table(5).slice(0, 0), actions=4)
    with pytest.raises(drs.LogError, match="there is no event to learn a policy from"):
        DirectLossMinimizer().fit(log)
    with pytest.raises(drs.DrstreamError, match="were completed already"):
        DirectLossMinimizer().fit(impute(world().table(5)), drs.models.Ridge())


def test_warnings_point_to_the_line_that_they_are_about():
    log = drs.Log(world().table(ROWS, seed=7))
    model = drs.models.Ridge().fit(log)
    policy = DirectLossMinimizer(restarts=1, epochs=1)
    for use in (lambda: policy.fit(log, model), lambda: impute(log, model), lambda: drs.evaluate(log, policy)):
        with pytest.warns(UserWarning, match="events that it is now") as found:
            use()
        assert {warning.filename for warning in found} == {__file__}
