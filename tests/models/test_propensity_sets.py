"""Propensity models over eligible sets: the likelihood of a softmax over each event's own set."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import minimize

import drstream as drs
from tests.helpers import eligible as naive
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS, K, D = (60 if PLAIN else 400), 4, 2
M, P = drs.models, drs.policies


def made(seed=0, rows=ROWS):
    """A log of a softmax over eligible sets: table, contexts, mask and actions."""
    rng = np.random.default_rng(seed)
    X, mask = rng.standard_normal((rows, D)), naive.random_mask(rng, rows, K, 0.6)
    mu = naive.softmax(X @ rng.standard_normal((K, D)).T, mask)
    action = np.array([rng.choice(K, p=row) for row in mu])
    columns = {"action": action, "reward": rng.random(rows), "items": naive.lists_of(mask, rng=rng)}
    return pa.table({**columns, **{f"x{j}": X[:, j] for j in range(D)}}), X, mask, action


def opened(table, **options):
    return drs.Log(table, propensity=None, actions=K, **{"eligible": "items", **options})


def naive_fit(X, mask, action, C):
    """Minimise C Σ log-loss + |w|² / 2, one event at a time."""

    def loss(theta):
        theta = theta.reshape(K, D + 1)
        pi = naive.softmax(X @ theta[:, :D].T + theta[:, D], mask)
        return -C * np.log(pi[np.arange(len(X)), action]).sum() + (theta[:, :D] ** 2).sum() / 2

    return minimize(loss, np.zeros(K * (D + 1)), method="BFGS", options={"gtol": 1e-7}).x.reshape(K, D + 1)


@pytest.mark.parametrize("C", [0.1, 1.0])
def test_the_fit_is_that_of_a_softmax_over_the_sets(C):
    table, X, mask, action = made()
    theta = naive_fit(X, mask, action, C)
    model = M.Propensity(C).fit(opened(table))
    wanted = naive.softmax(X @ theta[:, :D].T + theta[:, D], mask)
    found = model.probabilities(X, mask)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert (found[~mask] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_full_sets_fit_as_none():
    table, _, _, _ = made()
    full = table.set_column(2, "items", pa.array([list(range(K))] * ROWS))
    one, two = M.Propensity().fit(opened(full)), M.Propensity().fit(opened(full, eligible=None))
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert one.intercept_.tobytes() == two.intercept_.tobytes()


def test_folds_and_files(tmp_path):
    table, X, mask, action = made()
    log = opened(table)
    model = M.Propensity().fit(log)
    model.save(tmp_path / "p.npz")
    loaded = M.load(tmp_path / "p.npz")
    assert loaded.probabilities(X, mask).tobytes() == model.probabilities(X, mask).tobytes()
    other = opened(made(1)[0])
    values = [drs.evaluate(other, P.Uniform(), propensity=m, estimators=["ips"])["ips"].value for m in (model, loaded)]
    assert values[0] == values[1]
    folds = log.folds(2)
    fold = folds.of(np.arange(ROWS, dtype=np.uint64))
    alone = [M.Propensity().fit(log.part_of(folds.all_but(f))) for f in range(2)]
    pi = np.where((fold == 0)[:, None], alone[0].probabilities(X, mask), alone[1].probabilities(X, mask))
    w = naive.uniform(mask)[np.arange(ROWS), action] / pi[np.arange(ROWS), action]
    result = drs.evaluate(log, P.Uniform(), propensity=M.Propensity(), crossfit=2, estimators=["ips"])
    assert result["ips"].value == pytest.approx((w * table["reward"].to_numpy()).mean(), rel=1e-4)


def test_an_action_that_is_alone_in_its_set_has_probability_1():
    """Also if it was never logged where the model was fitted."""
    table, X, _, _ = made()
    table = table.filter(pa.array(table["action"].to_numpy() != 3))
    model = M.Propensity().fit(opened(table))
    alone = np.eye(K, dtype=bool)[[3, 1]]
    assert model.probabilities(X[:2], alone).tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    both = np.array([[False, True, False, True]])
    assert model.probabilities(X[:1], both).tolist() == [[0, 1, 0, 0]]
    one = pa.table({"action": [3], "reward": [1.0], "items": [[3]], "x0": [0.0], "x1": [0.0]})
    assert drs.evaluate(opened(one), P.Uniform(), propensity=model, estimators=["ips"])["ips"].value == 1.0


def test_sets_of_one_action_say_nothing():
    """They have no loss, whatever the scores, and the fit still ends."""
    table, X, mask, action = made()
    alone = table.set_column(2, "items", pa.array([[int(a)] for a in action]))
    model = M.Propensity().fit(opened(alone))
    assert np.abs(model.coef_).max() < 1e-6
    mixed = pa.concat_tables([table, alone])
    np.testing.assert_allclose(
        M.Propensity().fit(opened(mixed)).probabilities(X, mask),
        M.Propensity().fit(opened(table)).probabilities(X, mask),
        atol=1e-4,
    )
