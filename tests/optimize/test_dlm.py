"""Direct loss minimisation: each epoch as appendix D has it, the same bits for any number of threads, real progress."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import drstream as drs
from drstream.optimize import DirectLossMinimizer, Losses, impute
from drstream.running.execution import Workers
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.reference import backtracking, completed_costs, completed_ridge, toward_better
from tests.helpers.sparse import both_logs

pytestmark = pytest.mark.covers

ROWS = 200 if PLAIN else 4000
APPENDIX_D = {"start": "random", "step": "decaying"}


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
    options = {**APPENDIX_D, "restarts": 3, "epochs": 5, "perturbation": 0.3, "epsilon": 0.7, "seed": 4}
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
    assert np.isnan(policy.start_loss_)


# The warm start, and backtracking


def completed(sparse=False, seed=0, rows=120):
    """A log, a linear model of other events, contexts, events, and the costs that the model completes."""
    sizes = {"rows": rows, "actions": 4, "dim": 6, "most": 6}
    made = both_logs(seed, **sizes)
    model = drs.models.Ridge().fit(both_logs(seed + 100, **sizes)[1])
    X, events = made[2], [made[3][name].to_numpy() for name in ("action", "reward", "propensity")]
    return made[0 if sparse else 1], model, X, events, completed_costs(*events, model.predict(X))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_backtracking_is_that_of_the_definition(sparse, seed):
    log, model, X, _, costs = completed(sparse, seed)
    policy = DirectLossMinimizer(restarts=1, standardize=False).fit(log, model)
    theta = np.column_stack([model.coef_, model.intercept_])
    found = backtracking(np.column_stack([X, np.ones(len(X))]), costs, theta, 200, 1e-4)
    assert policy.start_loss_ == pytest.approx(found["losses"][0], rel=1e-12)
    assert policy.loss_ == pytest.approx(found["losses"][-1], rel=1e-12)
    np.testing.assert_allclose(policy.coef_, found["theta"][:, :-1], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(policy.intercept_, found["theta"][:, -1], rtol=1e-8, atol=1e-10)
    assert (policy.n_epochs_, policy.converged_) == (found["passes"], True)
    assert len(found["losses"]) >= 3  # it went somewhere,
    assert (np.diff(found["losses"]) < 0).all()  # and always down


def test_a_linear_model_is_the_start_of_the_first_run():
    log, model, X, _, costs = completed()
    policy = DirectLossMinimizer(restarts=1, epochs=1).fit(log, model)  # the one epoch scores the start
    chosen = policy.probabilities(X).argmax(axis=1)
    assert (chosen == model.predict(X).argmax(axis=1)).all()
    assert policy.loss_ == policy.start_loss_ == pytest.approx(costs[np.arange(len(X)), chosen].mean(), rel=1e-12)
    assert not policy.converged_
    many = DirectLossMinimizer(restarts=5).fit(log, model)
    assert many.start_loss_ == pytest.approx(policy.loss_, rel=1e-12)
    assert many.loss_ < many.start_loss_


def test_a_cross_fitted_model_starts_at_the_mean_of_its_folds():
    log = drs.Log(world().table(ROWS, seed=3))
    policy = DirectLossMinimizer(restarts=1, epochs=1).fit(log, drs.models.Ridge())
    models = drs.models.Ridge().fit_folds(log, log.folds(5, 0), Workers.of(1))
    wanted = drs.policies.Linear(*(np.mean([getattr(m, n) for m in models], axis=0) for n in ("coef_", "intercept_")))
    X = np.random.default_rng(0).normal(size=(300, 3))
    assert (policy.probabilities(X) == wanted.probabilities(X)).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", ["no model", "not linear"])
def test_without_a_linear_model_ridge_regressions_of_the_completed_rewards_are_the_start(kind, intercept, sparse):
    log, model, X, events, _ = completed(sparse)
    rhat = np.zeros((len(X), 4)) if kind == "no model" else model.predict(X)
    given = None if kind == "no model" else drs.models.from_function(model.predict)
    Z = np.column_stack([X, np.full(len(X), float(intercept))])
    wanted = completed_ridge(Z, completed_costs(*events, rhat))
    wanted -= wanted.mean(axis=0)
    options = {"restarts": 1, "epochs": 1, "fit_intercept": intercept, "standardize": False}
    policy = DirectLossMinimizer(**options).fit(log, given)
    np.testing.assert_allclose(policy.coef_, wanted[:, :-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.intercept_, wanted[:, -1], rtol=1e-4, atol=1e-5)


def test_a_policy_without_intercepts_does_not_start_at_a_model_with_some():
    log, model, *_ = completed()
    options = {"restarts": 1, "epochs": 1, "fit_intercept": False}
    with_model = DirectLossMinimizer(**options).fit(log, model)
    assert (with_model.intercept_ == 0).all()
    assert not np.allclose(with_model.coef_ * model.coef_[0, 0], model.coef_ * with_model.coef_[0, 0])
    model.intercept_[:] = 0.25  # the same for all actions
    again = DirectLossMinimizer(**options).fit(log, model)
    chosen = (again.probabilities(np.eye(6)).argmax(axis=1), (model.coef_.T).argmax(axis=1))
    assert chosen[0].tolist() == chosen[1].tolist()


def test_a_model_that_prefers_no_action_is_no_start():
    log, *_ = completed()
    policy = DirectLossMinimizer(restarts=3).fit(impute(log, drs.models.Ridge(alpha=1e300), crossfit=2))
    assert policy.loss_ <= policy.start_loss_
    log = drs.Log(pa.table({"action": [0, 1] * 8, "reward": [0.5] * 16, "propensity": [0.5] * 16, "x0": [1.0] * 16}))
    policy = DirectLossMinimizer(restarts=2).fit(impute(log, drs.models.Constant(0.5)))
    assert np.isnan(policy.start_loss_)  # all actions tie
    assert policy.converged_


def test_one_action_to_choose_from():
    table = world().table(ROWS, seed=9).filter(pc.field("action") == 2)
    policy = DirectLossMinimizer(restarts=2, epochs=10).fit(drs.Log(table, actions=4))
    assert policy.converged_
    assert set(policy.probabilities(np.random.default_rng(0).normal(size=(200, 3))).argmax(axis=1).tolist()) == {2}


def test_steps_that_decay_may_start_warm_too():
    log, model, *_ = completed()
    policy = DirectLossMinimizer(step="decaying", restarts=2, epochs=20).fit(log, model)
    assert policy.loss_ < policy.start_loss_


def test_the_result_is_never_worse_than_the_start_and_each_run_ends():
    for seed in range(3):
        log, model, *_ = completed(seed=seed)
        policy = DirectLossMinimizer(restarts=6, seed=seed).fit(log, model)
        assert policy.loss_ == policy.run_losses_.min() < policy.start_loss_
        assert policy.converged_
        assert policy.n_epochs_ < policy.epochs


# What holds for all forms


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


@pytest.mark.parametrize("model", [None, drs.models.Ridge()])
@pytest.mark.parametrize("options", [{"restarts": 3, "epochs": 12}, {**APPENDIX_D, "restarts": 3, "epochs": 4}])
def test_the_same_bits_for_any_threads_and_batch_size(tmp_path, options, model):
    pq.write_table(world().table(ROWS, seed=5), tmp_path / "log.parquet", row_group_size=ROWS // 5)
    found = []
    for threads, batch_size in ((1, None), (2, 37), (3, 1000)):
        log = cut_log(tmp_path / "log.parquet", batch_size=batch_size)
        policy = DirectLossMinimizer(**options).fit(log, model, threads=threads)
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
        ({"start": "worm"}, "start='worm': did you mean 'warm'"),
        ({"step": 0.5}, r"step=0\.5: there are: backtracking, decaying"),
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
