"""Statistical claims of sections 3.2 to 3.4, simulated with fixed seeds.

A claim "unbiased" is: the mean over the simulated logs lies within 4 standard errors of the truth, and the standard
error is small enough (at most 2 % of the truth) that a bias worth speaking of would show. "Biased" is: 10 standard
errors away.
"""

import functools

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers.logs import world

pytestmark = pytest.mark.slow

LOGS, ROWS = 300, 400


@pytest.fixture(scope="module")
def setting():
    w = world(seed=11, kinds=32)
    policy = drs.policies.Softmax(w.taste, w.appeal, temperature=0.7)
    return w, policy, w.value(policy)


@functools.cache
def tables(w):
    return [w.table(ROWS, seed=seed) for seed in range(LOGS)]


def estimates(setting, model, distort=None, names=("dm", "ips", "dr"), reward=None, **limits):
    w, policy, _ = setting
    found = {name: [] for name in names}
    for table in tables(w):
        if distort is not None:
            p = distort(table["propensity"].to_numpy(), table["action"].to_numpy())
            table = table.set_column(table.schema.get_field_index("propensity"), "propensity", pa.array(p))
        if reward is not None:
            changed = pa.array(reward(table["reward"].to_numpy()))
            table = table.set_column(table.schema.get_field_index("reward"), "reward", changed)
        result = drs.evaluate(table, policy, model, list(names), threads=1, **limits)
        for name in names:
            found[name].append(result[name].value)
    return {name: np.array(values) for name, values in found.items()}


def bias(values, truth):
    """In standard errors, and the standard error as a share of the truth."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return (values.mean() - truth) / error, error / truth


def right_model(w):
    return drs.models.from_function(w.reward)


def wrong_model(w):
    return drs.models.from_function(lambda X: 0.4 * w.reward(X) + 0.35)


def wrong_propensities(p, action):
    return np.clip(p * np.where(action % 2, 0.9, 0.6), 0, 1)


def unbiased(values, truth):
    z, error = bias(values, truth)
    assert error < 0.02
    assert abs(z) < 4, z


def biased(values, truth):
    z, _ = bias(values, truth)
    assert abs(z) > 10, z


def test_right_propensities_wrong_model(setting):
    found = estimates(setting, wrong_model(setting[0]), names=("dm", "ips", "dr", "ips-cv"))
    unbiased(found["ips"], setting[2])
    unbiased(found["ips-cv"], setting[2])
    unbiased(found["dr"], setting[2])
    biased(found["dm"], setting[2])


def test_wrong_propensities_right_model(setting):
    found = estimates(setting, right_model(setting[0]), wrong_propensities)
    biased(found["ips"], setting[2])
    unbiased(found["dr"], setting[2])
    unbiased(found["dm"], setting[2])


def test_both_wrong_bias_is_that_of_theorem_3_4(setting):
    """|E[V_DR] - V| = |E_ν[(1 - ϱ) Δ]|, with ϱ = μ / μ̂ and Δ = r̂ - r*."""
    w, policy, truth = setting
    found = estimates(setting, wrong_model(w), wrong_propensities)
    biased(found["dr"], truth)
    mu, pi = w.logging(w.kinds), policy.probabilities(w.kinds)
    rho = mu / np.column_stack([wrong_propensities(mu[:, a], np.full(len(mu), a)) for a in range(4)])
    delta = 0.4 * w.reward(w.kinds) + 0.35 - w.reward(w.kinds)
    theory = float(w.frequency @ (pi * (1 - rho) * delta).sum(axis=1))
    unbiased(found["dr"], truth + theory)


def test_dr_has_less_variance_than_ips_where_the_model_is_right(setting):
    """Theorem 3.5 against the variance of IPS: with rewards 5 + click, r* in IPS's last term outweighs DR's Δ = 0."""
    w = setting[0]
    model = drs.models.from_function(lambda X: 5 + w.reward(X))
    found = estimates(setting, model, reward=lambda r: 5 + r)
    assert found["dr"].std() < 0.5 * found["ips"].std()


def test_a_control_variate_takes_variance_away(setting):
    """With rewards 5 + click, nearly all of the variance of IPS is that of the weights."""
    w = setting[0]
    found = estimates(setting, right_model(w), names=("ips", "snips", "ips-cv"), reward=lambda r: 5 + r)
    unbiased(found["ips-cv"], 5 + setting[2])
    assert found["ips-cv"].std() < 0.5 * found["ips"].std()
    assert found["ips-cv"].std() < 1.05 * found["snips"].std()


LAMBDA = 0.9
CHANGED_WEIGHTS = {
    "dros": lambda w: LAMBDA * w / (w**2 + LAMBDA),
    "switch-dr": lambda w: np.where(w <= LAMBDA, w, 0.0),
}


@pytest.fixture(scope="module")
def smaller(setting):
    """Estimates with smaller weights and with all of them, by how much the model is too high."""
    w = setting[0]
    return {
        shift: estimates(
            setting,
            drs.models.from_function(lambda X, s=shift: w.reward(X) + s),
            names=("dr", *CHANGED_WEIGHTS),
            lambda_=LAMBDA,
        )
        for shift in (-0.3, 0.0, 0.3)
    }


@pytest.mark.parametrize("name", CHANGED_WEIGHTS)
def test_bias_of_smaller_weights_is_what_they_leave_of_the_models_error(setting, smaller, name):
    """E[V] - V = E_μ[(ŵ - w) (r* - r̂)], for a model that is too low and for one that is too high."""
    w, policy, truth = setting
    mu, pi, best = w.logging(w.kinds), policy.probabilities(w.kinds), w.reward(w.kinds)
    ratio = pi / mu
    for shift in (-0.3, 0.3):
        found = smaller[shift]
        rhat = best + shift
        theory = float(w.frequency @ (mu * (CHANGED_WEIGHTS[name](ratio) - ratio) * (best - rhat)).sum(axis=1))
        assert np.sign(theory) == np.sign(shift)  # what is left of the error is the model's
        biased(found[name], truth)
        unbiased(found[name], truth + theory)
        unbiased(found["dr"], truth)
    unbiased(smaller[0.0][name], truth)


@pytest.mark.parametrize("name", CHANGED_WEIGHTS)
def test_a_large_lambda_is_dr(setting, name):
    """DRos and SWITCH-DR go to DR as λ grows, and to DM as it vanishes."""
    w, policy, _ = setting
    table, model = w.table(2_000, seed=5), wrong_model(w)

    def at(lambda_):
        return drs.evaluate(table, policy, model, ["dm", "dr", name], lambda_=lambda_)

    largest = at(1.0)["dr"].max_weight
    away = [abs(at(s * largest)[name].value - at(1.0)["dr"].value) for s in (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)]
    assert away == sorted(away, reverse=True)
    assert away[0] > 100 * away[-1]
    huge = at(1e250)
    tiny = at(1e-250)
    assert tiny[name].value == pytest.approx(tiny["dm"].value, rel=1e-12)
    if name == "dros":
        assert huge[name].value == pytest.approx(huge["dr"].value, rel=1e-13)
        assert huge[name].stderr == pytest.approx(huge["dr"].stderr, rel=1e-12)
        return
    for result in (huge, at(largest)):
        assert result[name] == result["dr"]
        assert result.difference("policy", estimator=name) == result.difference("policy", estimator="dr")
    below = at(np.nextafter(largest, 0))
    assert below[name] != below["dr"]
    assert below[name].capped > 0


def test_intervals_cover_the_truth(setting):
    """2,000 logs: 95 % intervals of IPS, SNIPS, DR, SNDR and IPS-CV, and of paired differences, cover 93.5 to 96.5 %.

    Were the coverage exactly 95 %, a share outside that range would be 3 standard errors away.
    """
    w, policy, truth = setting
    logging_value = w.value(w.logging)
    uniform = drs.policies.Uniform(n_actions=4)
    names = ["ips", "snips", "dr", "sndr", "ips-cv"]
    hits = dict.fromkeys((*names, "baseline", *(("log", n) for n in names), *(("pair", n) for n in names)), 0)
    logs = 2_000
    for seed in range(logs):
        table = w.table(1_000, seed=100_000 + seed)
        result = drs.evaluate(table, {"new": policy, "old": uniform}, wrong_model(w), names, threads=1)
        hits["baseline"] += result.baseline.low <= logging_value <= result.baseline.high
        for name in names:
            e = result["new", name]
            hits[name] += e.low <= truth <= e.high
            d = result.difference("new", estimator=name)
            hits["log", name] += d.low <= truth - logging_value <= d.high
            d = result.difference("new", "old", name)
            hits["pair", name] += d.low <= truth - w.value(uniform) <= d.high
    shares = {key: count / logs for key, count in hits.items()}
    assert all(0.935 <= share <= 0.965 for share in shares.values()), shares


def test_paired_differences_are_narrower_than_two_intervals(setting):
    w, policy, _ = setting
    other = drs.policies.Softmax(w.taste, w.appeal, temperature=0.8)
    result = drs.evaluate(w.table(5_000), {"a": policy, "b": other}, right_model(w), ["ips"])
    separate = np.hypot(result["a", "ips"].stderr, result["b", "ips"].stderr)
    assert result.difference("a", "b", "ips").stderr < 0.3 * separate
