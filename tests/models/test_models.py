"""Reward models."""

import pickle
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import Ridge as SklearnRidge

import drstream as drs
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS = 400 if PLAIN else 40_000


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
def test_ridge_equals_scikit_learn_and_the_reference(table, alpha, fit_intercept):
    X, a, r, _ = arrays(table, 3)
    got = drs.models.Ridge(alpha=alpha, fit_intercept=fit_intercept).fit(drs.Log(table))
    coef, intercept = reference.ridge(X, a, r, 4, alpha, fit_intercept)
    np.testing.assert_allclose(got.coef_, coef, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got.intercept_, intercept, rtol=1e-8, atol=1e-10)
    for action in range(4):
        ref = SklearnRidge(alpha=alpha, fit_intercept=fit_intercept).fit(X[a == action], r[a == action])
        np.testing.assert_allclose(got.predict(X)[:, action], ref.predict(X), rtol=1e-8, atol=1e-10)


def test_ridge_does_not_depend_on_batches_or_threads(table, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 5)
    wanted = drs.models.Ridge().fit(drs.Log(path), threads=1)
    for threads, size in ((2, 100), (4, 7000)):
        got = drs.models.Ridge().fit(cut_log(path, batch_size=size), threads=threads)
        assert (got.coef_ == wanted.coef_).all()
        assert (got.intercept_ == wanted.intercept_).all()


@pytest.mark.parametrize("alpha", [0.0, 1e-10, 1.0])
def test_ridge_with_collinear_columns(alpha):
    """x1 = 2 x0 and a constant column: predictions stay finite and right."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(400)
    columns = {"x0": x, "x1": 2 * x, "x2": np.full(400, 5.0)}
    table = pa.table({**columns, "action": [0] * 400, "reward": 3 * x + 1, "propensity": [1.0] * 400})
    got = drs.models.Ridge(alpha=alpha).fit(drs.Log(table)).predict(np.column_stack(list(columns.values())))[:, 0]
    np.testing.assert_allclose(got, 3 * x + 1, atol=1e-6 + 0.02 * alpha)


def test_ridge_far_from_the_origin():
    """Contexts around 1e6: centred sums keep the digits that the raw normal equations lose."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, 2))
    r = x @ [1.0, -2.0] + 0.1 * rng.standard_normal(500)
    table = pa.table({"x0": x[:, 0] + 1e6, "x1": x[:, 1], "action": [0] * 500, "reward": r, "propensity": [1.0] * 500})
    got = drs.models.Ridge(alpha=1e-6).fit(drs.Log(table))
    ref = SklearnRidge(alpha=1e-6).fit(np.column_stack([x[:, 0] + 1e6, x[:, 1]]), r)
    np.testing.assert_allclose(got.coef_[0], ref.coef_, rtol=1e-6)


def test_ridge_with_an_action_never_logged_and_one_logged_once():
    table = pa.table(
        {"x0": [1.0, 2.0, 3.0], "action": [0, 0, 2], "reward": [1.0, 2.0, 9.0], "propensity": [0.5] * 3},
    )
    got = drs.models.Ridge(alpha=0.0).fit(drs.Log(table, actions=4)).predict(np.array([[1.0], [10.0]]))
    np.testing.assert_allclose(got, [[1, 4, 9, 4], [10, 4, 9, 4]], atol=1e-12)


def test_ridge_without_features():
    table = pa.table({"action": [0, 0, 1], "reward": [1.0, 2.0, 9.0], "propensity": [0.5] * 3})
    got = drs.models.Ridge().fit(drs.Log(table, context=[]))
    assert got.predict(np.zeros((1, 0))).tolist() == [[1.5, 9.0]]


def test_ridge_skips_bad_rows_if_told(table):
    broken = table.set_column(1, "reward", pa.array([np.nan, *table["reward"].to_pylist()[1:]]))
    with pytest.raises(drs.LogError, match="reward is not finite"):
        drs.models.Ridge().fit(drs.Log(broken))
    got = drs.models.Ridge().fit(drs.Log(broken, on_bad_row="skip"))
    np.testing.assert_allclose(got.coef_, drs.models.Ridge().fit(drs.Log(table.slice(1))).coef_, rtol=1e-9)


def test_other_models_agree(table):
    """The same predictions as constants, columns, lists and a function."""
    rhat = np.array([0.1, 0.2, 0.3, 0.4])
    n = table.num_rows
    more = table.append_column("rhat", pa.array([rhat] * n))
    for j in range(4):
        more = more.append_column(f"r{j}", pa.array(np.full(n, rhat[j])))
    models = [
        drs.models.Constant(rhat),
        drs.models.Column("rhat"),
        drs.models.Column("r0", "r1", "r2", "r3"),
        drs.models.from_function(lambda X: np.tile(rhat, (len(X), 1))),
    ]
    policy = drs.policies.Softmax(world().taste)
    values = [drs.evaluate(drs.Log(more, context="x?"), policy, m, ["dm", "dr"])["dr"].value for m in models]
    assert len(set(values)) == 1


def test_zero_model_makes_dr_ips_and_perfect_weights_make_no_difference(table):
    policy = drs.policies.Softmax(world().taste)
    result = drs.evaluate(table, policy, drs.models.Constant(0.0), ["ips", "dr", "dm"])
    assert result["dr"].value == pytest.approx(result["ips"].value, rel=1e-13)
    assert result["dm"].value == 0


def test_fitting_on_evaluated_rows_is_warned_about(table):
    log = drs.Log(table)
    train, test = log.split(0.5)
    policy = drs.policies.Uniform()
    with pytest.warns(UserWarning, match=r"fitted on events that it is now evaluated on.*split"):
        drs.evaluate(log, policy, drs.models.Ridge().fit(log))
    with pytest.warns(UserWarning, match="evaluated on"):
        drs.evaluate(train.split(0.5)[0], policy, drs.models.Ridge().fit(train))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drs.evaluate(test, policy, drs.models.Ridge().fit(train))
        drs.evaluate(test.split(0.5)[1], policy, drs.models.Ridge().fit(test.split(0.5)[0]))
        drs.evaluate(log, policy, drs.models.Ridge().fit(train), estimators="ips")


def test_bad_parameters(table):
    with pytest.raises(drs.ModelError, match="alpha=-1"):
        drs.models.Ridge(alpha=-1)
    with pytest.raises(drs.ModelError, match="finite number"):
        drs.models.Constant(np.nan)
    with pytest.raises(drs.ModelError, match="name one column"):
        drs.models.Column()
    model = drs.models.Ridge().fit(drs.Log(table, context=["x0"]))
    with pytest.raises(drs.ModelError, match="fitted on 1 features; the log has 3"):
        drs.evaluate(world(kinds=None).table(50), drs.policies.Uniform(), model)


def test_ridge_with_columns_of_very_different_scale():
    """Seconds since 1970 next to a flag: what is collinear must not depend on units."""
    rng = np.random.default_rng(0)
    seconds, price = 1.7e9 + rng.random(500) * 2.6e6, np.exp(3 * rng.standard_normal(500))
    X = np.column_stack([seconds, rng.integers(0, 2, 500), price])
    r = 0.3 * X[:, 1] + 0.1 * rng.standard_normal(500)
    roles = {"action": [0] * 500, "reward": r, "propensity": [1.0] * 500}
    log = drs.Log(pa.table({**roles, "x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2]}))
    for fit_intercept in (True, False):
        got = drs.models.Ridge(fit_intercept=fit_intercept).fit(log).predict(X)[:, 0]
        ref = SklearnRidge(fit_intercept=fit_intercept, solver="svd").fit(X, r).predict(X)
        np.testing.assert_allclose(got, ref, rtol=1e-5, atol=1e-5)


def test_a_model_does_not_serve_other_labels_or_features(table):
    names = np.array(["w", "x", "y", "z"])
    text = table.set_column(0, "action", pa.array(names[table["action"].to_numpy()]))
    model = drs.models.Ridge().fit(drs.Log(text, actions=["z", "y", "x", "w"]).split(0.5)[0])
    with pytest.raises(drs.ModelError, match="fitted on 4 actions 'z', 'y', 'x', 'w'; the log has 4 actions 'w'"):
        drs.evaluate(drs.Log(text).split(0.5)[1], drs.policies.Uniform(), model)
    model = drs.models.Ridge().fit(drs.Log(table, context=["x2", "x1", "x0"]).split(0.5)[0])
    other = drs.Log(table.append_column("y", table["x0"]), context=["y", "x1", "x2"])
    with pytest.raises(drs.ModelError, match="fitted on the context x2, x1, x0; the log's is y, x1, x2"):
        drs.evaluate(other.split(0.5)[1], drs.policies.Uniform(), model)


def test_the_same_rows_opened_twice_are_the_same_rows(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    for source in (tmp_path / "log.parquet", table.to_pandas(), table):
        model = drs.models.Ridge().fit(drs.Log(source).split(0.5)[0])
        with pytest.warns(UserWarning, match="evaluated on"):
            drs.evaluate(drs.Log(source), drs.policies.Uniform(), model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drs.evaluate(drs.Log(source).split(0.5)[1], drs.policies.Uniform(), model)
        kept = pickle.dumps(model)
        assert len(kept) < 20_000
        assert (pickle.loads(kept).coef_ == model.coef_).all()


def test_fit_counts_what_it_skips(table):
    broken = table.set_column(1, "reward", pa.array([np.nan, *table["reward"].to_pylist()[1:]]))
    assert drs.models.Ridge().fit(drs.Log(broken, on_bad_row="skip")).skipped_ == {"reward is not finite": 1}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"r": [[1.0], [1.0, 2.0, 3.0], [0.0, 0.0]]}, r"holds 1 numbers at row 0; there are 2 actions"),
        ({"r": [[1.0, 2.0], [1.0, None], [0.0, 0.0]]}, r"holds a null at row 1"),
        ({"r": ["1", "2", "3"], "s": ["1", "2", "3"]}, r"'r' has type string: it must hold numbers"),
        ({"r": [["1", "2"]] * 3}, r"it must hold numbers"),
    ],
)
def test_columns_of_predictions_are_checked(columns, message):
    roles = {"action": [0, 1, 0], "reward": [1.0, 0.0, 1.0], "propensity": [0.5] * 3}
    with pytest.raises(drs.ModelError, match=message):
        drs.evaluate(pa.table({**roles, **columns}), drs.policies.Uniform(), drs.models.Column(*columns))
