"""Whether fitted propensities agree with the logged actions: a wrong model stops, a right one is quiet."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation.calibrated import ALPHA, FirstRows, misses

ROWS, D, K = 8_000, 3, 3
M, P = drs.models, drs.policies


def log_of(kind="right", seed=0, rows=ROWS, **more):
    """Actions by a softmax of contexts, or of what a model without products and steps cannot know."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    scores = 0.7 * X @ rng.normal(size=(D, K))
    scores += {
        "right": np.zeros(K),
        "squares": (X**2 - 1) @ rng.normal(size=(D, K)),
        "products": np.outer(X[:, 0] * X[:, 1], [1, -1, 0]),
        "steps": np.outer(X[:, 0] > 0.5, [2, -2, 0]),
        "waves": np.outer(np.sin(2.5 * X[:, 0]), [2, -2, 0]),
        "mixed": 2 * scores,
    }[kind]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p = 0.9 * p + 0.1 / K if kind == "mixed" else p
    action = (p.cumsum(1) > rng.random((rows, 1))).argmax(1)
    reward = (rng.random(rows) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    columns = {**{f"x{j}": X[:, j] for j in range(D)}, "action": action, "reward": reward, **more}
    return drs.Log(pa.table(columns), context="x*", actions=K, propensity=None)


def about(log, propensity=None, crossfit=3, **options):
    model = M.Propensity() if propensity is None else propensity
    result = drs.evaluate(log, P.Uniform(), None, ["ips"], propensity=model, crossfit=crossfit, **options)
    (found,) = [one for one in result.findings if one.check == "propensity model"]
    return found


@pytest.mark.parametrize("kind", ["squares", "products", "steps", "waves", "mixed"])
def test_a_wrong_model_stops(kind):
    found = about(log_of(kind))
    assert found.level == "stop"
    assert "The propensity model is wrong" in found.message
    assert found.value > 0.1


def test_a_model_that_learned_nothing_stops():
    assert about(log_of(), M.Propensity(C=1e-9)).level == "stop"


@pytest.mark.parametrize("crossfit", [3, "forward", None])
@pytest.mark.parametrize("rows", [1_000, ROWS])
def test_a_right_model_is_quiet(crossfit, rows):
    for seed in range(8):
        log = log_of(seed=seed, rows=2 * rows)
        train, test = log.split(0.5)
        model = M.Propensity() if crossfit else M.Propensity().fit(train)
        assert about(test, model, crossfit).level == "ok"


def test_logged_propensities_are_not_tested():
    table = log_of().source.table.append_column("propensity", pa.array(np.full(ROWS, 1 / K)))
    result = drs.evaluate(drs.Log(table, context="x*"), P.Uniform())
    assert not [one for one in result.findings if one.check == "propensity model"]
    given = drs.evaluate(log_of(), P.Uniform(), propensity=P.Uniform(), estimators=["ips"])
    assert not [one for one in given.findings if one.check == "propensity model"]


def test_streams_categories_and_states(tmp_path):
    log = log_of("steps")
    table = log.source.table.append_column(
        "land", pa.array(np.where(log.source.table["x0"].to_numpy() > 0.5, "a", "b"))
    )
    options = {"actions": K, "propensity": None}
    assert about(drs.Log(table, context=["x1", "land"], **options)).level == "ok"
    stream = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=900)))
    train = drs.Log(table.slice(0, 4_000), context="x*", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = about(drs.Log(stream, context="x*", **options), M.Propensity().fit(train), None, state=tmp_path / "a")
    assert found.level == "stop"
    assert found in drs.merge(tmp_path / "a").findings


def test_the_score_of_a_naive_computation():
    rng = np.random.default_rng(0)
    X, action = rng.normal(size=(5_000, 2)), rng.integers(0, 3, 5_000)
    fitted = rng.dirichlet([2, 2, 2], 5_000)
    seen = FirstRows(X, action, fitted[:, [2, 0]], [2, 0])
    known = {(one.action, one.function): one for one in misses(seen, ["a", "b"])}
    one = known[2, "with the product of a and b"]
    Z = np.clip((X - X.mean(0)) / X.std(0), -3, 3)
    phi, p = Z[:, 0] * Z[:, 1], fitted[:, 2]
    score, variance = (((action == 2) - p) * phi).sum(), (p * (1 - p) * phi**2).sum()
    assert one.z == pytest.approx(score / np.sqrt(variance + abs(score) * abs(phi).max() / 3))
    assert one.share == pytest.approx(score / (p * abs(phi)).sum())
    few = known[0, "among the 1% smallest of its propensities"]
    low = fitted[:, 0] <= np.quantile(fitted[:, 0], 0.01)
    assert few.share == pytest.approx((action[low] == 0).sum() / fitted[low, 0].sum() - 1)


def test_false_alarms_of_the_test_alone():
    """Heavy tails and tiny probabilities. With an alarm in 10,000 logs, two in 300 have a probability of 0.0005."""
    alarms = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X = np.exp(1.5 * rng.normal(size=(400, 2)))
        p = np.clip(rng.beta(0.3, 3, 400), 1e-4, 0.9)
        action = (rng.random(400) < p).astype(int)
        found = misses(FirstRows(X, action, np.stack([1 - p, p], axis=1), [0, 1]), ["a", "b"])
        alarms += max(abs(one.z) for one in found) > np.sqrt(2 * np.log(2 * len(found) / ALPHA))
    assert alarms <= 1
