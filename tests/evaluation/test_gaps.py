"""DR against IPS: they estimate the same, unless a context is an outcome or propensities are wrong."""

import math
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

ROWS, D, K = 4_000, 3, 4
P = drs.policies


def columns(seed=0, rows=ROWS, sharp=0.5):
    """Contexts, actions by a softmax, clicks, and propensities."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    scores = sharp * X @ rng.normal(size=(D, K))
    p = np.exp(scores - scores.max(1, keepdims=True))
    p = 0.95 * p / p.sum(1, keepdims=True) + 0.05 / K
    action = (p.cumsum(1) > rng.random((rows, 1))).argmax(1)
    means = 1 / (1 + np.exp(1.5 - X @ rng.normal(size=(D, K))))
    reward = (rng.random(rows) < means[np.arange(rows), action]).astype(float)
    found = {f"x{j}": X[:, j] for j in range(D)}
    return {**found, "action": action, "reward": reward, "propensity": p[np.arange(rows), action]}


def policies(seed=0, features=D):
    rng = np.random.default_rng(seed)
    return {"soft": P.Softmax(rng.normal(size=(K, features))), "one": P.Constant(0)}


def evaluate(found, estimators=("ips", "dr"), names=None, **options):
    log = drs.Log(pa.table(found), context="x*", actions=K)
    names = policies(features=sum(name.startswith("x") for name in found)) if names is None else names
    return drs.evaluate(log, names, drs.models.Ridge(), list(estimators), crossfit=3, **options)


def gaps(result):
    return {one.policy: one for one in result.findings if one.check == "gap"}


def test_the_gap_is_that_of_a_naive_computation():
    found = columns()
    log = drs.Log(pa.table(found), context="x*", actions=K)
    train, test = log.split(0.5, seed=1)
    model = drs.models.Ridge().fit(train)
    result = drs.evaluate(test, policies(), model, ["dr"])  # IPS need not be asked for
    table = test.to_arrow()
    X = np.stack([table[f"x{j}"].to_numpy() for j in range(D)], axis=1)
    action, p = table["action"].to_numpy(), table["propensity"].to_numpy()
    rhat, rows = model.predict(X), np.arange(len(X))
    centre = table["reward"].to_numpy().mean()
    for name, policy in policies().items():
        pi = policy.probabilities(X) if name == "soft" else np.eye(K)[np.zeros(len(X), int)]
        w = pi[rows, action] / p
        terms = (pi * rhat).sum(1) - centre - w * (rhat[rows, action] - centre)
        gap = result.facts(name, "dr").gap
        assert gap.value == pytest.approx(terms.mean(), rel=1e-9)
        assert gap.stderr == pytest.approx(terms.std(ddof=1) / math.sqrt(len(X)), rel=1e-3)
        assert gap.far > -NormalDist().inv_cdf((1 - NormalDist().cdf(4)) / 2)  # two policies, and heavy weights


@pytest.mark.parametrize("estimators", [["dr"], ["ips", "dr"], ["snips", "dr", "dm"]])
def test_an_outcome_among_the_contexts_stops(estimators):
    """As in a log in which "visit" is a context of "spend": actions change visits, and visits predict spend."""
    found, rng = columns(), np.random.default_rng(1)
    visit = rng.random(ROWS) < np.array([0.5, 0.2, 0.2, 0.2])[found["action"]]
    found["reward"] = visit * (rng.random(ROWS) < 0.5) * 1.0
    good = gaps(evaluate(found, estimators))
    assert {one.level for one in good.values()} == {"ok"}
    result = evaluate({**found, "x_visit": visit * 1.0}, estimators, {"one": P.Constant(0)})
    one = gaps(result)["one"]
    assert one.level == "stop"
    assert "a context is an outcome" in one.message
    assert one in result.stops("one", "dr")


def test_propensities_that_are_wrong_by_context_stop():
    """Mean weights of a policy that ignores contexts may be 1 all the same."""
    found = columns(sharp=0.0)
    first = found["x0"] > 0
    rng = np.random.default_rng(2)
    found["action"] = np.where(rng.random(ROWS) < np.where(first, 0.4, 0.1), 0, rng.integers(1, K, ROWS))
    found["propensity"] = np.full(ROWS, 0.25)
    found["reward"] = (rng.random(ROWS) < np.where(first, 0.8, 0.1)) * 1.0
    result = evaluate(found, names={"one": P.Constant(0)})
    one = gaps(result)["one"]
    assert one.level == "stop"


@pytest.mark.parametrize(("sharp", "rows"), [(0.0, 2_000), (0.5, 2_000), (1.5, 2_000), (3.0, 2_000), (3.0, 20_000)])
def test_healthy_logs_stay_quiet(sharp, rows):
    """200 policies in all. With a false alarm in a hundred, one or more would have a probability of 87 %."""
    for seed in range(20):
        found = gaps(evaluate(columns(seed, rows, sharp), names=policies(seed)))
        assert {one.level for one in found.values()} <= {"ok"}


def test_without_a_model_there_is_no_gap():
    log = drs.Log(pa.table(columns()), context="x*", actions=K)
    assert not gaps(drs.evaluate(log, policies(), estimators=["ips", "snips"]))
    assert not gaps(drs.evaluate(log, P.Uniform(), drs.models.Constant(0.2), ["dm"]))
