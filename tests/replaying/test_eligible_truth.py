"""Replay on logs with eligible sets agrees with true online runs in the same world, where sets are random.

Unbiased is: within 4 standard errors, both the replays and the true runs being uncertain, and these are at most 2 % of
the truth. Replay within all actions instead of the sets is far off.
"""

import numpy as np
import pytest

import drstream as drs
from tests.helpers.shop import FLOOR, Shop

pytestmark = pytest.mark.slow

HORIZON, LOGS, ROWS, EACH, RUNS = 25, 100, 4000, 15, 4000
LEARNERS = {
    "epsilon-greedy": drs.policies.EpsilonGreedy(0.2, learning_rate=0.3),
    "linucb": drs.policies.LinUCB(0.5),
    "exp3": drs.policies.Exp3(0.3),
}


@pytest.fixture(scope="module")
def shop():
    return Shop()


@pytest.fixture(scope="module")
def logs(shop):
    return [drs.Log(shop.table(ROWS, seed=1000 + i), eligible="items") for i in range(LOGS)]


def mean_and_error(values):
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))


@pytest.mark.parametrize("name", list(LEARNERS))
def test_replay_is_within_error_of_true_runs(shop, logs, name):
    policy = LEARNERS[name]
    truth, truth_error = mean_and_error(shop.online(policy, HORIZON, RUNS))
    wrong = drs.models.from_function(lambda X: 0.5 * shop.reward(X) + 0.2)  # need not be right
    for options in ({"model": wrong}, {"method": "rs"}, {"method": "dr-ns-wc", "model": wrong}):
        options = {"replicates": EACH, "q": 0.0, "c_max": FLOOR, "threads": 1, **options}
        runs = [drs.replay(log, policy, HORIZON, seed=i, **options) for i, log in enumerate(logs)]
        assert min(run.complete for run in runs) == EACH
        value, error = mean_and_error([run.cumulative for run in runs])
        combined = np.hypot(error, truth_error)
        assert combined < 0.02 * truth
        assert abs(value - truth) < 4 * combined, (options, value, truth, combined)


def test_a_fixed_policy_agrees_with_evaluate_and_with_the_truth(shop):
    log = drs.Log(shop.table(100_000, seed=9), eligible="items")
    policy = drs.policies.Epsilon(drs.policies.Softmax(6 * shop.taste, 6 * shop.appeal), 0.1)
    model = drs.models.from_function(lambda X: 0.5 * shop.reward(X) + 0.2)
    run = drs.replay(log, policy, 50, model, q=0.0, c_max=FLOOR)
    truth = shop.value(policy.probabilities)
    assert run.stderr < 0.01 * truth
    assert abs(run.value - truth) < 4 * run.stderr
    assert abs(run.value - drs.evaluate(log, policy, model, ["dr"])["dr"].value) < 4 * run.stderr


def test_sets_matter(shop):
    """A policy that may take anything from the whole catalogue earns more than the shelves allow."""
    table = shop.table(40_000, seed=2)
    policy, options = LEARNERS["epsilon-greedy"], {"horizon": 500, "bias": 0.05, "threads": 1}
    within = drs.replay(drs.Log(table, eligible="items"), policy, **options)
    anything = drs.replay(drs.Log(table), policy, **options)
    assert within.high < shop.best
    assert abs(anything.value - within.value) > 4 * np.hypot(anything.stderr, within.stderr)
