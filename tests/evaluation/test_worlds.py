"""The exact bias and variance of DR in a synthetic world, against the enumeration of all of its events."""

import math

import numpy as np
import pytest

import drstream as drs
from tests.helpers import naive_parts as naive
from tests.helpers.logs import world

WORLDS = [
    drs.synth.World(n_actions=2, n_features=2, kinds=1, seed=1),
    drs.synth.World(n_actions=3, n_features=2, kinds=4, seed=2),
    drs.synth.World(n_actions=5, n_features=3, kinds=7, floor=0.01, seed=3),
]
EXACT = {"rel": 1e-12, "abs": 1e-12}


def policies(w):
    return [drs.policies.Uniform(), drs.policies.Constant(1), drs.policies.Softmax(w.taste * 2)]


def cases():
    return [(w, policy) for w in WORLDS for policy in policies(w)]


def shapes(w, seed=0):
    """A wrong model and wrong propensities (kinds, K)."""
    rng = np.random.default_rng(seed)
    size = len(w.kinds), w.n_actions
    mu = w.logging(w.kinds)
    return rng.random(size), mu, mu * rng.uniform(0.5, 2.0, size)


def check(w, policy, rhat, used, **limits):
    """Compare with the enumeration, and return the parts."""
    _, nu, mu, _ = naive.matrices(w, policy)
    mu_hat = used * mu if np.ndim(used) == 0 else used
    weights = naive.weights(nu, mu_hat, **limits)
    mean, variance = naive.moments(naive.enumerate_scores(w, policy, rhat, weights))
    found = w.variance(policy, rhat, used, **limits)
    assert found.total == pytest.approx(variance, **EXACT)
    assert found.contexts + found.importance == pytest.approx(variance, **EXACT)
    assert w.bias(policy, rhat, used, **limits) == pytest.approx(mean - w.value(policy), **EXACT)
    return found


@pytest.mark.parametrize(("w", "policy"), cases())
def test_any_model_and_any_propensities(w, policy):
    rhat, _, used = shapes(w)
    found = check(w, policy, rhat, used)
    wanted = naive.definitions(w, policy, rhat, used)
    assert (found.t1, found.t2, found.t3, found.t4) == pytest.approx(wanted, **EXACT)
    _, nu, mu, r_star = naive.matrices(w, policy)
    bias = w.frequency @ (nu * (1 - mu / used) * (rhat - r_star)).sum(axis=1)  # Theorem 3.4
    assert w.bias(policy, rhat, used) == pytest.approx(bias, **EXACT)


@pytest.mark.parametrize(("w", "policy"), cases())
def test_perfect_logging(w, policy):
    rhat, mu, _ = shapes(w)
    found = check(w, policy, rhat, 1.0)
    frequency, nu, _, r_star = naive.matrices(w, policy)
    value = (nu * r_star).sum(axis=1)
    delta, noise = rhat - r_star, r_star * (1 - r_star)
    wanted = frequency @ (value - frequency @ value) ** 2 - frequency @ (nu * delta).sum(axis=1) ** 2
    wanted += frequency @ (nu * nu / mu * (noise + delta**2)).sum(axis=1)
    assert found.total == pytest.approx(wanted, **EXACT)
    assert w.bias(policy, rhat) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("w", "policy"), cases())
def test_a_perfect_model_is_without_bias_for_any_propensities(w, policy):
    _, mu, used = shapes(w)
    frequency, nu, _, r_star = naive.matrices(w, policy)
    found = check(w, policy, r_star, used)
    value = (nu * r_star).sum(axis=1)
    noise = nu * nu / used * (mu / used) * r_star * (1 - r_star)
    assert found.t1 == pytest.approx(frequency @ (value - frequency @ value) ** 2, **EXACT)
    assert (found.t2, found.t4) == (0, 0)
    assert found.t3 == pytest.approx(frequency @ noise.sum(axis=1), **EXACT)
    assert w.bias(policy, r_star, used) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("w", "policy"), cases())
def test_dm_is_dr_with_infinite_propensities(w, policy):
    rhat, _, _ = shapes(w)
    frequency, nu, _, r_star = naive.matrices(w, policy)
    found = check(w, policy, rhat, math.inf)
    predicted = (nu * rhat).sum(axis=1)
    assert found.total == pytest.approx(frequency @ (predicted - frequency @ predicted) ** 2, **EXACT)
    assert found.importance == 0
    assert w.bias(policy, rhat, math.inf) == pytest.approx(frequency @ (nu * (rhat - r_star)).sum(axis=1), **EXACT)


@pytest.mark.parametrize(("w", "policy"), cases())
def test_ips_is_dr_with_a_model_of_0(w, policy):
    """Δ = -r*, not r*."""
    _, mu, used = shapes(w)
    frequency, nu, _, r_star = naive.matrices(w, policy)
    rho = mu / used
    found = check(w, policy, np.zeros_like(mu), used)
    assert found == w.variance(policy, None, used)
    second = frequency @ (nu * nu / used * rho * r_star).sum(axis=1)  # E[r²] = r* for clicks
    mean = frequency @ (nu * rho * r_star).sum(axis=1)
    assert found.total == pytest.approx(second - mean**2, **EXACT)
    assert w.bias(policy, None, used) == pytest.approx(frequency @ (nu * (rho - 1) * r_star).sum(axis=1), **EXACT)


@pytest.mark.parametrize("limits", [{"cap": 1.5}, {"floor": 0.3}, {"cap": 2.0, "floor": 0.2}], ids=str)
@pytest.mark.parametrize(("w", "policy"), cases())
def test_caps_and_floors(w, policy, limits):
    """ϱ = w_c / w, and the bias is E_μ[(w - w_c)(r̂ - r)], at most E_μ[w - w_c]."""
    rhat, mu, _ = shapes(w)
    frequency, nu, _, r_star = naive.matrices(w, policy)
    check(w, policy, rhat, 1.0, **limits)
    whole, less = nu / mu, np.array(naive.weights(nu, mu, **limits))
    bias = frequency @ (mu * (whole - less) * (rhat - r_star)).sum(axis=1)
    assert w.bias(policy, rhat, **limits) == pytest.approx(bias, **EXACT)
    assert abs(bias) <= frequency @ (mu * (whole - less)).sum(axis=1) + 1e-15


def test_models_come_as_arrays_numbers_functions_and_objects():
    w = WORLDS[1]
    policy = drs.policies.Uniform()
    wanted = w.variance(policy, np.full((4, 3), 0.25))
    assert w.variance(policy, 0.25) == wanted
    assert w.variance(policy, lambda X: np.full((len(X), 3), 0.25)) == wanted
    model = drs.models.Ridge().fit(drs.Log(w.table(500)))
    assert w.variance(policy, model) == w.variance(policy, model.predict(w.kinds))


def test_what_cannot_be_known_is_refused():
    policy = drs.policies.Uniform()
    with pytest.raises(drs.DrstreamError, match="kinds= only"):
        world(kinds=None).variance(policy)
    with pytest.raises(drs.DrstreamError, match="kinds= only"):
        world(kinds=None).bias(policy)
    with pytest.raises(drs.DrstreamError, match="must be above 0, or have a floor"):
        WORLDS[0].variance(policy, None, 0.0)
    assert WORLDS[0].variance(policy, None, 0.0, floor=0.1).t3 > 0
