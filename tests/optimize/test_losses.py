"""Completed losses: the formula, whatever the form of log and model, and what is refused."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import drstream as drs
from drstream.optimize import Losses, impute
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.reference import completed_costs

pytestmark = pytest.mark.covers

ROWS = 300 if PLAIN else 5000
K = 4


@pytest.fixture(scope="module")
def table():
    return world().table(ROWS, seed=3)


def columns(table):
    return [table[name].to_numpy() for name in ("action", "reward", "propensity")]


@pytest.mark.parametrize("estimator", ["ips", "dm", "dr"])
def test_losses_are_those_of_the_formula(table, estimator):
    train, test = drs.Log(table), drs.Log(world().table(ROWS, seed=4))
    model = drs.models.Ridge().fit(train)
    found = impute(test, model, estimator=estimator).collect()
    a, r, p = columns(world().table(ROWS, seed=4))
    rhat = model.predict(found.X) if estimator != "ips" else np.zeros((ROWS, K))
    wanted = completed_costs(a, r, p, rhat) if estimator != "dm" else -rhat
    np.testing.assert_allclose(found.losses, wanted, rtol=1e-10, atol=1e-12)
    assert (found.rows == np.arange(ROWS)).all()
    rewards = impute(test, model, estimator=estimator, losses="rewards").collect().losses
    assert (rewards == -found.losses).all()


def test_the_model_decides_between_ips_and_dr(table):
    model = drs.models.Constant(0.5)
    assert impute(table).completion.estimator == "ips"
    assert impute(table, model).completion.estimator == "dr"
    assert impute(table, model, estimator="ips").completion.models.model is None


def test_a_column_of_costs_is_taken_as_it_is():
    """The paper's formula in losses: l̂ + (l - l̂) / p."""
    log = pa.table({"action": [1, 0], "cost": [1.0, 0.25], "propensity": [0.5, 0.25], "x": [1.0, 2.0]})
    lhat = np.array([[0.1, 0.2], [0.3, 0.4]])
    model = drs.models.from_function(lambda X: -lhat)
    wanted = [[0.1, 0.2 + (1 - 0.2) / 0.5], [0.3 + (0.25 - 0.3) / 0.25, 0.4]]
    np.testing.assert_allclose(impute(log, model).collect().losses, wanted, rtol=1e-14)


def test_an_unfitted_model_is_cross_fitted(table):
    log = drs.Log(table)
    found = impute(log, drs.models.Ridge(), crossfit=3).collect()
    a, r, p = columns(table)
    folds = log.folds(3)
    keys = folds.of(np.arange(ROWS, dtype=np.uint64))
    rhat = np.empty((ROWS, K))
    for fold in range(3):
        model = drs.models.Ridge().fit(log.part_of(folds.all_but(fold)))
        rhat[keys == fold] = model.predict(found.X[keys == fold])
    np.testing.assert_allclose(found.losses, completed_costs(a, r, p, rhat), rtol=1e-9, atol=1e-11)


def test_a_model_of_the_same_events_draws_a_warning(table):
    log = drs.Log(table)
    with pytest.warns(UserWarning, match="completing the rewards of.*pass an unfitted one"):
        impute(log, drs.models.Ridge().fit(log))
    train, test = log.split(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        impute(test, drs.models.Ridge().fit(train))


def test_propensities_may_come_from_a_policy_or_not_be_needed(table):
    bare = table.drop_columns(["propensity"])
    a, r, _ = columns(table)
    found = impute(bare, propensity=drs.policies.Uniform()).collect().losses
    uniform, nothing = np.full(ROWS, 1 / K), np.zeros((ROWS, K))
    np.testing.assert_allclose(found, completed_costs(a, r, uniform, nothing), rtol=1e-12)
    with pytest.raises(drs.LogError, match="ips needs propensities"):
        impute(drs.Log(bare, propensity=None))
    assert impute(bare, drs.models.Constant(0.5), estimator="dm").collect().losses[0, 0] == -0.5


def test_predictions_can_be_clamped(table):
    model = drs.models.Constant([2.0, -1.0, 0.25, 0.5])
    found = impute(table, model, estimator="dm", clamp=(0, 1), losses="rewards").collect().losses
    assert (found == [1.0, 0.0, 0.25, 0.5]).all()


def test_losses_as_a_table_and_as_a_file(table, tmp_path):
    losses = impute(table)
    found = losses.to_arrow()
    assert found.column_names == ["row", "losses"]
    values = found["losses"].combine_chunks().flatten().to_numpy().reshape(-1, K)
    assert (values == losses.collect().losses).all()
    losses.write(tmp_path / "losses.parquet")
    assert pq.read_table(tmp_path / "losses.parquet")["losses"].combine_chunks().flatten().to_numpy().tolist() == (
        values.reshape(-1).tolist()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["losses.parquet"]
    assert repr(losses) == "Losses, costs of 4 actions by ips: table"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_filtered_split_log_in_row_groups(table, tmp_path, threads):
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 7)
    train, _ = drs.Log(tmp_path / "log.parquet").split(0.4)
    rows = np.concatenate([batch.rows for batch in impute(train).batches(threads)])
    assert 0 < len(rows) < ROWS
    assert (np.diff(rows) > 0).all()
    whole = impute(table).collect()
    assert (impute(train).collect().losses == whole.losses[rows]).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_known_losses(sparse):
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(20, 4)) * (rng.random((20, 4)) < 0.5), rng.random((20, 3))
    losses = Losses.known(scipy.sparse.csr_array(X) if sparse else X, costs)
    found = losses.collect()
    assert (found.losses == costs).all()
    assert ((found.X.toarray() if sparse else found.X) == X).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"losses": "cost"}, "losses='cost': did you mean 'costs'"),
        ({"estimator": "drr"}, "estimator='drr': did you mean 'dr'"),
        ({"estimator": "dr"}, 'estimator="dr" needs a reward model'),
        ({"model": drs.models.Ridge(), "crossfit": None}, "is not fitted"),
    ],
)
def test_what_is_refused(table, words, message):
    with pytest.raises(drs.DrstreamError, match=message):
        impute(table, **words)


@pytest.mark.parametrize(
    ("X", "costs", "message"),
    [
        (np.zeros((3, 2)), np.zeros((2, 4)), r"contexts of shape \(3, 2\), costs of shape \(2, 4\)"),
        (np.zeros(3), np.zeros((3, 4)), r"contexts of shape \(3,\)"),
        ([[1.0], [2.0]], np.zeros((2, 0)), r"costs of shape \(2, 0\)"),
        ([[1.0], [2.0]], [[0, 1], [1, np.nan]], "the cost of action 1 in row 1 is nan"),
    ],
)
def test_known_losses_are_checked(X, costs, message):
    with pytest.raises(drs.LogError, match=message):
        Losses.known(X, costs)


def test_bad_rows_are_counted(table):
    broken = table.set_column(1, "reward", pa.array([None, np.nan, *table["reward"].to_pylist()[2:]]))
    losses = impute(drs.Log(broken, on_bad_row="skip"))
    assert len(losses.collect().rows) == ROWS - 2
    assert losses.skipped_ == {"reward is null": 1, "reward is not finite": 1}


def test_the_log_is_not_overwritten(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(drs.LogError, match="is a file of the log itself"):
        impute(tmp_path / "log.parquet").write(tmp_path / "log.parquet")
    with pytest.raises(drs.LogError, match="there is no folder"):
        impute(table).write(tmp_path / "no" / "losses.parquet")
    assert pq.read_table(tmp_path / "log.parquet").equals(table)


def test_a_prediction_that_is_none_is_named(table):
    model = drs.models.from_function(lambda X: np.where(np.arange(len(X))[:, None] == 7, np.nan, np.zeros((1, K))))
    with pytest.raises(drs.ModelError, match=r"nan.*row 7"):
        impute(table, model).collect()


def test_an_empty_log_has_no_losses(table):
    with pytest.raises(drs.LogError, match="the log is empty"):
        impute(drs.Log(table.slice(0, 0), actions=K)).collect()
