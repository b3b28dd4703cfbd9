"""Simulated truth with eligible sets: estimates lie within 4 standard errors of values that are known exactly."""

import numpy as np
import pytest

import drstream as drs
from tests.helpers.logs import world

pytestmark = pytest.mark.slow
P, M = drs.policies, drs.models
LOGS, ROWS = 200, 400


@pytest.fixture(scope="module")
def setting():
    w = world(seed=3, n_actions=6, kinds=32, eligible=0.5)
    policies = {
        "soft": P.Softmax(w.taste, w.appeal, temperature=0.7),
        "even": P.Uniform(),
        "best": P.Epsilon(P.Linear(w.taste, w.appeal), 0.2),
        "first": P.Constant(0, otherwise=P.Uniform()),
    }
    return w, policies, {name: w.value(policy) for name, policy in policies.items()}


def test_estimates_are_unbiased(setting):
    w, policies, truth = setting
    names = ["dm", "ips", "snips", "dr"]
    found = {(policy, name): [] for policy in policies for name in names}
    for seed in range(LOGS):
        log = drs.Log(w.table(ROWS, seed=seed), actions=6, eligible="items")
        result = drs.evaluate(log, policies, M.from_function(w.reward), names, threads=1)
        for key in found:
            found[key].append(result[key].value)
    for (policy, name), values in found.items():
        error = np.std(values, ddof=1) / np.sqrt(LOGS)
        assert error < 0.02 * truth[policy]
        assert abs(np.mean(values) - truth[policy]) < 4 * error, (policy, name)


def test_the_exact_variance_is_that_of_estimates(setting):
    w, policies, _ = setting
    model = M.from_function(lambda X: 0.4 * w.reward(X) + 0.1)
    log = drs.Log(w.table(100_000, seed=5), actions=6, eligible="items")
    for name in ("soft", "even", "first"):
        result = drs.evaluate(log, policies[name], model, ["ips", "dr"])
        for estimator, known in (("ips", None), ("dr", model)):
            exact = w.variance(policies[name], known).total
            assert result[estimator].stderr ** 2 * 100_000 == pytest.approx(exact, rel=0.05)
            assert abs(w.bias(policies[name], known)) < 1e-12


def test_propensities_that_are_estimated_over_the_sets(setting):
    """The logging policy is a softmax over the set, so the model is right."""
    w = world(seed=3, n_actions=6, kinds=None, eligible=0.5, floor=0.0)
    table = w.table(60_000, seed=1)
    policies = {"soft": P.Softmax(0.5 * w.taste), "even": P.Uniform()}
    options = {"crossfit": 2, "estimators": ["ips", "snips", "dr"], "model": M.Ridge()}
    known = drs.evaluate(drs.Log(table, actions=6, eligible="items"), policies, M.Ridge(), ["dr"], crossfit=2)
    estimated = drs.evaluate(
        drs.Log(table, propensity=None, actions=6, eligible="items"), policies, propensity=M.Propensity(), **options
    )
    for policy in policies:
        for name in ("ips", "snips", "dr"):
            one = estimated[policy, name]
            assert abs(one.value - known[policy, "dr"].value) < 4 * np.hypot(one.stderr, known[policy, "dr"].stderr)


def test_uniform_is_uniform_over_the_eligible():
    """A policy that shows ineligible items has never been seen doing so: it seems to earn a quarter of what it does."""
    w = world(seed=5, n_actions=20, kinds=32, eligible=0.2)
    table = w.table(100_000, seed=2)
    truth = w.value(P.Uniform())
    right = drs.evaluate(drs.Log(table, eligible="items", actions=20), P.Uniform(), estimators="ips")["ips"]
    wrong = drs.evaluate(drs.Log(table, actions=20), P.Uniform(), estimators="ips")["ips"]
    assert abs(right.value - truth) < 4 * right.stderr
    assert wrong.value < 0.4 * truth
    uniform = drs.Log(table, propensity="uniform", eligible="items", actions=20)
    assert drs.evaluate(uniform, P.Uniform(), estimators="ips")["ips"].value == pytest.approx(
        table["reward"].to_numpy().mean()
    )
