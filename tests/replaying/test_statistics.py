"""Statistical claims of section 5 about replay, simulated with fixed seeds.

"Unbiased" is: the mean over simulated logs lies within 4 standard errors of the truth, both being uncertain, and the
standard error is at most 2 % of the truth. The truth is the mean over true online runs of the same policy: contexts are
drawn from the world, the policy chooses, the world rewards.
"""

import functools

import numpy as np
import pytest

import drstream as drs
from tests.helpers.logs import world

pytestmark = pytest.mark.slow

HORIZON, LOGS, ROWS, EACH, RUNS = 25, 150, 4000, 15, 6000
FLOOR = 0.15
LEARNERS = {
    "epsilon-greedy": drs.policies.EpsilonGreedy(0.2, learning_rate=0.3),
    "boltzmann": drs.policies.Boltzmann(0.2, learning_rate=0.3),
    "square-cb": drs.policies.SquareCB(20.0, learning_rate=0.3),
    "linucb": drs.policies.LinUCB(0.5),
    "ucb1": drs.policies.UCB1(),
    "exp3": drs.policies.Exp3(0.3),
}


@pytest.fixture(scope="module")
def place():
    return world(seed=5, n_actions=3, n_features=2, kinds=16, floor=FLOOR)


@pytest.fixture(scope="module")
def logs(place):
    return [drs.Log(place.table(ROWS, seed=1000 + i)) for i in range(LOGS)]


@functools.cache
def online(place, policy, horizon, runs, seed=0):
    """Cumulative rewards of true runs; several tests ask for the same."""
    rng = np.random.default_rng(seed)
    probabilities, update = policy.functions("policy")
    initial = policy.initial_state(3, 2 if policy.uses_context else 0)
    kinds = place.kinds.astype(np.float64)
    reward = place.reward(kinds)
    out, totals = np.empty(3), []
    for _ in range(runs):
        state, total = initial.copy(), 0.0
        users = rng.choice(len(kinds), size=horizon, p=place.frequency)
        draws = rng.random((horizon, 2))
        for user, (one, two) in zip(users, draws, strict=True):
            x = kinds[user] if policy.uses_context else np.empty(0)
            probabilities(state, x, out)
            action = min(int(np.searchsorted(out.cumsum(), one, side="right")), 2)
            r = float(two < reward[user, action])
            update(state, x, action, r)
            total += r
        totals.append(total)
    return np.array(totals)


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def cumulatives(logs, policy, horizon, each, **options):
    found = []
    for log in logs:
        run = drs.replay(log, policy, horizon, replicates=each, threads=1, **options)
        assert run.complete == each, "a log that is too short would leave out the long replicates"
        found.append(run.cumulative)
    return np.array(found)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_with_q_0_and_a_small_c_replay_is_unbiased(place, logs, name):
    policy = LEARNERS[name]
    truth, truth_error = mean_and_error(online(place, policy, HORIZON, RUNS))
    wrong = drs.models.from_function(lambda X: 0.5 * place.reward(X) + 0.2)  # need not be right
    for options in ({"model": wrong}, {"model": None}, {"method": "rs"}, {"method": "dr-ns-wc", "model": wrong}):
        value, error = mean_and_error(cumulatives(logs, policy, HORIZON, EACH, q=0.0, c_max=FLOOR, **options))
        combined = np.hypot(error, truth_error)
        assert combined < 0.02 * truth
        assert abs(value - truth) < 4 * combined, (options, value, truth, combined)


def test_the_direct_method_is_as_biased_as_its_model(place, logs):
    policy = LEARNERS["epsilon-greedy"]
    truth, truth_error = mean_and_error(online(place, policy, HORIZON, RUNS))
    wrong = drs.models.from_function(lambda X: 0.5 * place.reward(X) + 0.2)
    value, error = mean_and_error(
        cumulatives(logs, policy, HORIZON, EACH, q=0.0, c_max=FLOOR, model=wrong, method="dm")
    )
    assert value == pytest.approx(0.5 * truth + 0.2 * HORIZON, abs=4 * np.hypot(error, truth_error))
    assert abs(value - truth) > 10 * np.hypot(error, truth_error)


def test_the_curve_is_the_learning_curve(place, logs):
    """The rewards of early and late steps agree with those of true runs, and the policy learns."""
    policy = LEARNERS["square-cb"]
    model = drs.models.from_function(place.reward)
    early, late = [], []
    for log in logs:
        run = drs.replay(log, policy, HORIZON, model, q=0.0, c_max=FLOOR, replicates=EACH)
        early.append(run.curve["reward"].to_numpy()[:5].sum())
        late.append(run.curve["reward"].to_numpy()[5:].sum())
    first, first_error = mean_and_error(online(place, policy, 5, RUNS, seed=1))
    whole, whole_error = mean_and_error(online(place, policy, HORIZON, RUNS))
    value, error = mean_and_error(np.array(early))
    assert abs(value - first) < 4 * np.hypot(error, first_error)
    value, error = mean_and_error(np.array(late))
    assert abs(value - (whole - first)) < 4 * np.hypot(error, np.hypot(whole_error, first_error))
    assert np.mean(late) / (HORIZON - 5) > 1.1 * np.mean(early) / 5


@pytest.mark.parametrize("name", ["epsilon-greedy", "linucb", "ucb1"])
def test_with_q_above_0_the_bias_stays_under_the_bound_of_theorem_5_1(place, logs, name):
    """At a horizon short enough, and a c close enough to the safe one, that the bound says something: less than the
    range of the rewards."""
    policy, horizon = LEARNERS[name], 4
    truth, truth_error = mean_and_error(online(place, policy, horizon, 4 * RUNS))
    model = drs.models.from_function(lambda X: 0.5 * place.reward(X) + 0.2)
    runs = [drs.replay(log, policy, horizon, model, q=0.05, c_max=0.25, replicates=60, threads=1) for log in logs]
    assert min(run.complete for run in runs) == 60
    value, error = mean_and_error(np.array([run.cumulative for run in runs]))
    bound = np.mean([run.bias_bound for run in runs]) * horizon
    assert np.mean([run.violations for run in runs]) > 0.001
    assert 0 < bound < horizon
    assert abs(value - truth) < bound + 4 * np.hypot(error, truth_error)


def test_the_measured_bias_mass_is_that_of_its_definition(place):
    """With c at 0.5 (the largest of Q is infinite after a few events), ε = Σ (π - μ/c)+ is known in this world; and C,
    a sum of c over the events that simulate T steps, is T / (1 - ε) on average."""
    weights = 8 * place.taste
    c, horizon = 0.5, 10
    choice = (place.kinds @ weights.T).argmax(axis=1)
    pi = np.eye(3)[choice]
    epsilon = place.frequency @ np.maximum(pi - place.logging(place.kinds) / c, 0).sum(axis=1)
    run = drs.replay(place.table(300_000, seed=3), drs.policies.Linear(weights), horizon, q=1.0, c_max=c, carry=True)
    assert run.curve["c"].to_numpy() == pytest.approx(c, rel=1e-4)
    value, error = mean_and_error(run.replicates["weight"].to_numpy())
    assert 0.1 < epsilon < 0.9
    assert abs(value - horizon / (1 - epsilon)) < 4 * error
    assert run.bias_mass == pytest.approx(epsilon, abs=0.01)
    assert run.bias_bound == pytest.approx((horizon + 1) / 2 * epsilon / (1 - epsilon), rel=0.05)


def test_a_fixed_policy_agrees_with_evaluate(place):
    table = place.table(200_000, seed=9)
    policy = drs.policies.Softmax(place.taste, place.appeal, temperature=0.7)
    model = drs.models.from_function(lambda X: 0.5 * place.reward(X) + 0.2)
    dr = drs.evaluate(table, policy, model, ["dr"])["dr"]
    run = drs.replay(table, policy, 50, model, q=0.0, c_max=FLOOR)
    truth = place.value(policy)
    assert run.stderr < 0.01 * truth
    assert abs(run.value - dr.value) < 4 * run.stderr
    assert abs(run.value - truth) < 4 * run.stderr


def test_intervals_cover(place):
    """Of 200 logs' 90 % intervals for the value of a learner, about 90 % hold it: 3.5 standard errors of that share."""
    policy = LEARNERS["exp3"]
    truth, error = mean_and_error(online(place, policy, HORIZON, 4 * RUNS))
    model = drs.models.from_function(place.reward)
    hits = []
    for i in range(200):
        log = drs.Log(place.table(ROWS, seed=50_000 + i))
        run = drs.replay(log, policy, HORIZON, model, q=0.0, c_max=FLOOR, replicates=EACH, confidence=0.9, threads=1)
        hits.append(run.cumulative_low <= truth <= run.cumulative_high)
    assert error < 0.005 * truth
    assert abs(np.mean(hits) - 0.9) < 3.5 * np.sqrt(0.09 / 200)
