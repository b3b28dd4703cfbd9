"""Missing values in contexts: an error, kept as NaN, or replaced by a number; and null as a category."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers.categories import features

NAN = float("nan")
AGES = [1.0, None, NAN, 4.0]
ROLES = {"action": [0, 1, 0, 1], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4}
KINDS = {
    "float": pa.array(AGES, pa.float64()),
    "single": pa.array(AGES, pa.float32()),
    "integer": pa.array([1, None, None, 4], pa.int64()),
    "small": pa.array([1, None, None, 4], pa.int8()),
    "boolean": pa.array([True, None, None, False]),
}


def log(column, **options):
    return drs.Log(pa.table({**ROLES, "x0": column}), context=["x0"], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_or_replaced(kind):
    first, last = (1.0, 0.0) if kind == "boolean" else (1.0, 4.0)
    np.testing.assert_array_equal(features(log(KINDS[kind], missing="keep")), [[first], [NAN], [NAN], [last]])
    np.testing.assert_array_equal(features(log(KINDS[kind], missing=-9)), [[first], [-9], [-9], [last]])


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_by_default(kind):
    with pytest.raises(drs.LogError, match=r"null at row 1, column 'x0'.*missing="):
        features(log(KINDS[kind]))
    assert features(log(KINDS[kind], on_bad_row="skip")).shape == (2, 1)
    assert (
        drs.evaluate(
            log(KINDS[kind], on_bad_row="skip"), lambda X: np.full((len(X), 2), 0.5), estimators="ips"
        ).skipped.get("context is null", 0)
        == KINDS[kind].null_count
    )


def test_nan_alone_is_an_error_by_default():
    with pytest.raises(drs.LogError, match=r"is not finite: got nan at row 2.*missing="):
        features(log(pa.array([1.0, 2.0, NAN, 4.0])))


def test_infinity_is_always_an_error():
    column = pa.array([1.0, None, float("inf"), 4.0])
    for missing in ("keep", 0):
        with pytest.raises(drs.LogError, match="is not finite: got inf at row 2"):
            features(log(column, missing=missing))
        skipping = log(column, missing=missing, on_bad_row="skip")
        assert drs.evaluate(skipping, lambda X: np.full((len(X), 2), 0.5), estimators="ips").skipped == {
            "context is not finite": 1
        }


def test_missing_values_in_lists():
    lists = pa.array([[1.0, None], [NAN, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = features(log(lists, missing="keep"))
    np.testing.assert_array_equal(found, [[1, NAN], [NAN, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(features(log(lists, missing=0)), [[1, 0], [0, 2], [3, 4], [5, 6]])
    whole = pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]])
    with pytest.raises(drs.LogError, match="context is null at row 1"):
        features(log(whole, missing="keep"))
    assert len(features(log(whole, missing=0, on_bad_row="skip"))) == 3


def test_null_is_a_category_unless_it_is_an_error():
    column = pa.array(["a", None, "b", None])
    with pytest.raises(drs.LogError, match="context is null at row 1, column 'x0'"):
        features(log(column))
    skipping = log(column, on_bad_row="skip")
    np.testing.assert_array_equal(features(skipping), np.eye(2))
    for missing in ("keep", 7):
        kept = log(column, missing=missing)
        assert kept.feature_names == ["x0=a", "x0=b", "x0 is missing"]
        np.testing.assert_array_equal(features(kept), np.eye(3)[[0, 2, 1, 2]])


def test_a_null_in_a_dictionary_is_a_null():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), pa.array(["b", None, "a"]))
    np.testing.assert_array_equal(features(log(column, missing="keep")), np.eye(3)[[1, 2, 0, 2]])


@pytest.mark.parametrize("missing", ["kep", NAN, True, None, [0]])
def test_what_missing_can_be(missing):
    with pytest.raises(drs.LogError, match=r'missing=.*it must be "error", "keep", or a number'):
        log(KINDS["float"], missing=missing)


def test_sparse_columns_have_nothing_missing():
    data = pa.table({**ROLES, "at": [[0], [1], [0], [1]]})
    with pytest.raises(drs.LogError, match="missing='keep': a sparse context lists what is there"):
        drs.Log(data, context=drs.Sparse("at", dim=2), missing="keep")


# Who takes NaN


def kept():
    rng = np.random.default_rng(0)
    x = np.where(rng.random(200) < 0.3, np.nan, rng.standard_normal(200))
    reward, action = (rng.random(200) < 0.5).astype(float), rng.integers(0, 2, 200)
    data = pa.table({"action": action, "reward": reward, "propensity": [0.5] * 200, "x0": x, "c": ["a", "b"] * 100})
    return drs.Log(data, context=["x0", "c"], missing="keep")


@pytest.mark.parametrize(
    "use",
    [
        lambda log: drs.models.Ridge().fit(log),
        lambda log: drs.models.Logistic().fit(log),
        lambda log: drs.models.Propensity().fit(log),
        lambda log: drs.evaluate(log, drs.policies.Uniform(), drs.models.Ridge(), crossfit=2),
        lambda log: drs.evaluate(log, drs.policies.Softmax(np.zeros((2, 3)))),
        lambda log: drs.evaluate(log, drs.policies.Linear(np.zeros((2, 3)))),
        lambda log: drs.replay(log, drs.policies.EpsilonGreedy(), 3),
        lambda log: drs.optimize.DirectLossMinimizer().fit(log),
    ],
)
def test_linear_ones_refuse_nan(use):
    with pytest.raises(drs.DrstreamError, match=r"takes no NaN, and the log keeps missing values.*missing=0"):
        use(kept())


def test_a_linear_model_that_was_fitted_on_replaced_values_brings_its_number():
    log = kept()
    filled = drs.Log(log.source.table, context=["x0", "c"], missing=0.5)
    model = drs.models.Ridge().fit(filled.split(0.5)[0])
    one = drs.evaluate(filled.split(0.5)[1], drs.policies.Uniform(), model)
    two = drs.evaluate(log.split(0.5)[1], drs.policies.Uniform(), model)
    assert one["dr"].value == two["dr"].value


def test_functions_trees_and_context_free_learners_take_nan():
    from sklearn.ensemble import HistGradientBoostingRegressor

    log, seen = kept(), []

    def policy(X):
        seen.append(np.isnan(X[:, 0]).mean())
        return np.full((len(X), 2), 0.5)

    train, test = log.split(0.5)
    model = drs.models.from_sklearn(HistGradientBoostingRegressor(max_iter=5)).fit(train)
    result = drs.evaluate(test, policy, model)
    assert 0.1 < max(seen) < 0.5
    assert np.isfinite(result["dr"].value)
    assert drs.replay(test, drs.policies.UCB1(), 3, model).complete > 0


def test_null_categories_alone_are_no_nan():
    data = pa.table({**ROLES, "c": ["a", None, "b", "a"]})
    log = drs.Log(data, context=["c"], missing="keep")
    assert drs.models.Ridge().fit(log).feature_names_ == ["c=a", "c=b", "c is missing"]
