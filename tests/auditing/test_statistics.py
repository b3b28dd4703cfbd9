"""What an audit finds in logs that are wrong, and how seldom it finds anything in logs that are right.

All seeds are fixed. Bounds of the power are what was measured, less a little.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.auditing.view import evidence
from tests.helpers.audits import flagged

pytestmark = pytest.mark.slow
WORLDS = {
    "users of few kinds": {"n_actions": 4, "n_features": 3},
    "new users": {"n_actions": 4, "n_features": 3, "kinds": None},
    "ten actions": {"n_actions": 10, "n_features": 20, "kinds": None},
    "fifty actions": {"n_actions": 50, "n_features": 5, "kinds": None},
    "rare actions": {"n_actions": 3, "n_features": 4, "kinds": None, "floor": 0.001},
}


def log(world, rows, seed, change=None):
    """A log of a world, whose propensities may be changed, with all possible actions given."""
    world = drs.synth.World(**world, seed=seed)
    table = world.table(rows, seed=1000 + seed)
    p = table["propensity"].to_numpy()
    p = p if change is None else change(p)
    names = ["action", "reward", "propensity"]
    table = pa.table({**{name: table[name] for name in table.column_names if name not in names[2:]}, "propensity": p})
    return drs.Log(table, actions=world.n_actions)


@pytest.mark.parametrize("name", WORLDS)
def test_propensities_replaced_by_one_over_the_number_of_actions(name):
    k = WORLDS[name]["n_actions"]
    found = [flagged(log(WORLDS[name], 5000, seed, lambda p: np.full(len(p), 1 / k))) for seed in range(20)]
    assert all(checks.get("guessed_action") == "stop" for checks in found)


@pytest.mark.parametrize("name", WORLDS)
def test_propensities_rounded_to_two_digits(name):
    found = [flagged(log(WORLDS[name], 5000, seed, lambda p: np.round(p, 2))) for seed in range(20)]
    assert all(checks.get("rounded_propensities") == "look" for checks in found)


@pytest.mark.parametrize("rows", [-1, 1])
@pytest.mark.parametrize("name", WORLDS)
def test_propensities_shifted_by_a_row(name, rows):
    """A shift is found if actions depend on the contexts, or some are taken more often than others."""
    found = [flagged(log(WORLDS[name], 5000, seed, lambda p: np.roll(p, rows))) for seed in range(20)]
    assert all(checks.get("guessed_action") == "stop" for checks in found)


def without_context(weights, rows, seed):
    """A log of a policy that does not look at contexts, and its propensities."""
    rng = np.random.default_rng(seed)
    p = np.asarray(weights) / np.sum(weights)
    action = rng.choice(len(p), rows, p=p)
    return action, rng.random(rows) < 0.1, p[action]


def opened(action, reward, p, actions=None, **columns):
    table = pa.table({"action": action, "reward": reward.astype(float), "propensity": p, **columns})
    return drs.Log(table, actions=actions)


def test_a_shift_without_contexts_is_found_by_the_frequencies():
    for seed in range(20):
        action, reward, p = without_context([4, 3, 2, 1], 5000, seed)
        assert "stop" in flagged(opened(action, reward, np.roll(p, 1))).values()
        assert flagged(opened(action, reward, p)) == {}


def test_a_shift_of_equal_propensities_changes_nothing():
    action, reward, p = without_context([1, 1, 1, 1], 5000, 1)
    assert flagged(opened(action, reward, np.roll(p, 1))) == {}


def test_three_digits():
    found = flagged(log(WORLDS["new users"], 5000, 1, lambda p: np.round(p, 3)))
    assert found == {"rounded_propensities": "look"}
    assert flagged(log(WORLDS["new users"], 5000, 1, lambda p: np.round(p, 4))) == {}
    narrow = log(WORLDS["new users"], 5000, 1, lambda p: np.round(p, 2).astype(np.float32))
    assert flagged(narrow)["rounded_propensities"] == "look"


def test_a_design_of_few_round_numbers_is_not_rounded():
    for weights in ([0.5, 0.3, 0.2], [1, 1, 1], [0.91, *[0.01] * 9], [0.2] * 5):
        action, reward, p = without_context(weights, 5000, 2)
        assert flagged(opened(action, reward, p)) == {}


def test_all_propensities_are_one():
    action, reward, p = without_context([1, 1], 1000, 3)
    assert flagged(opened(action, reward, np.ones(1000)))["exploration"] == "stop"
    mostly = np.where(np.arange(1000) % 4 == 0, p, 1.0)
    assert flagged(opened(action, reward, mostly))["exploration"] == "look"
    assert flagged(opened(np.zeros(1000, int), reward, np.ones(1000))) == {}


def test_propensities_that_are_too_large():
    """0.7 written for 0.5; and 0.4 for 0.2, which no probability above 1/2 betrays."""
    action, reward, _ = without_context([1, 1], 2000, 4)
    found = flagged(opened(action, reward, np.full(2000, 0.7)))
    assert found["large_propensities"] == found["distinct_propensities"] == "stop"
    mixed = np.where(np.arange(2000) % 3 == 0, 0.5, 0.7)
    assert flagged(opened(action, reward, mixed))["large_propensities"] == "stop"
    action, reward, _ = without_context([1] * 5, 2000, 4)
    found = flagged(opened(action, reward, np.full(2000, 0.4)))
    assert found["distinct_propensities"] == "stop"
    assert found["inverse_propensity"] == found["inverse_over_all"] == "look"


def test_propensities_that_are_too_small():
    action, reward, p = without_context([5, 3, 2], 5000, 5)
    found = flagged(opened(action, reward, p / 2))
    assert found == {"inverse_propensity": "stop", "guessed_action": "stop", "inverse_over_all": "look"}
    table = pa.table({"action": action, "reward": reward.astype(float), "propensity": p / 2})
    assert flagged(drs.Log(table, actions=3))["inverse_over_all"] == "stop"


def test_actions_that_are_not_always_possible_are_no_stop():
    """Three of ten actions are possible in each event: the mean of 1{a}/p is 0.3 for each."""
    rng = np.random.default_rng(6)
    possible = rng.permuted(np.tile(np.arange(10), (20_000, 1)), axis=1)[:, :3]
    action = possible[np.arange(20_000), rng.choice(3, 20_000, p=[0.5, 0.3, 0.2])]
    p = np.array([0.5, 0.3, 0.2])[(possible == action[:, None]).argmax(axis=1)]
    audit = opened(action, rng.random(20_000), p).audit()
    assert {f.check for f in audit.findings if f.level != "ok"} == {"inverse_propensity", "inverse_over_all"}
    assert audit.level == "look"
    assert "was not possible" in audit["inverse_propensity"].message


def test_unlogged_actions_and_more_possible_actions_than_labels():
    action, reward, p = without_context([1] * 20, 3000, 7)
    kept = action != 7
    audit = opened(action[kept], reward[kept], p[kept], actions=20).audit()
    assert audit["unlogged_actions"].message.startswith("1 of 20 actions was never logged: 7.")
    kept = action < 10
    assert flagged(opened(action[kept], reward[kept], p[kept]))["inverse_over_all"] == "look"


def test_one_event_that_decides():
    action, reward, p = without_context([1, 1], 1000, 8)
    p[77] = 1e-4
    audit = opened(action, reward, p).audit()
    assert audit["smallest_propensity"].level == "look"
    assert "at row 77." in audit["smallest_propensity"].message


def test_copies():
    source = log(WORLDS["new users"], 3000, 1).source.table
    rng = np.random.default_rng(9)
    some = source.take(rng.choice(3000, 60, replace=False))
    assert flagged(drs.Log(pa.concat_tables([source, some])))["duplicate_rows"] == "look"
    ids = pa.array([*range(3000), 17])
    repeated = pa.concat_tables([source, source.slice(17, 1)]).append_column("id", ids)
    assert flagged(drs.Log(repeated), event_id="id") == {"duplicate_event_ids": "stop"}
    assert flagged(log(WORLDS["users of few kinds"], 20_000, 1)) == {}  # most rows repeat an earlier one


def test_drift():
    rng = np.random.default_rng(10)
    n = 10_000
    action, _, p = without_context([5, 3, 2], n, 10)
    at = pa.array(np.arange(n))
    late = np.arange(n) > 0.85 * n
    reward = (rng.random(n) < np.where(late, 0.3, 0.1)).astype(float)
    assert flagged(opened(action, reward, p, at=at), time="at") == {"drift_reward": "look"}
    reward = rng.random(n)
    assert flagged(opened(action, reward, p, at=at), time="at") == {}
    found = flagged(opened(action, reward, np.where(late, 1.0, p), at=at), time="at")
    assert found["drift_mean_inverse"] == "look"
    broken = reward.copy()
    broken[-60::2] = np.nan
    assert flagged(opened(action, broken, p, at=at), time="at") == {"bad_values": "look", "drift_bad_share": "look"}


CLEAN = [
    {"n_actions": 2, "n_features": 2, "kinds": 8},
    {"n_actions": 4, "n_features": 3},
    {"n_actions": 10, "n_features": 5, "kinds": None},
    {"n_actions": 30, "n_features": 4, "kinds": None},
    {"n_actions": 3, "n_features": 4, "kinds": None, "floor": 0.002},
]


def of_a_world(seed):
    source = log(CLEAN[seed % len(CLEAN)], 500 + 500 * (seed % 4), seed)
    return source.source.table, source.n_actions


def of_frequencies(seed):
    """Up to 40 actions, some of them with a probability of 0.001, and rare clicks."""
    rng = np.random.default_rng(seed)
    actions, rows = int(rng.integers(2, 40)), int(rng.integers(200, 4000))
    weights = np.maximum(rng.dirichlet(np.full(actions, rng.choice([0.3, 1, 5]))), 1e-3)
    action, _, p = without_context(weights, rows, seed)
    return pa.table({"action": action, "reward": (rng.random(rows) < 0.02) * 1.0, "propensity": p}), actions


def of_epsilon_greedy(seed):
    """Of some actions, only the exploration is seen, or not even that."""
    rng = np.random.default_rng(seed)
    actions, rows, epsilon = int(rng.integers(2, 12)), int(rng.integers(500, 4000)), rng.choice([0.02, 0.1, 0.3])
    X = rng.standard_normal((rows, 3))
    best = (X @ rng.standard_normal((3, actions))).argmax(axis=1)
    action = np.where(rng.random(rows) < epsilon, rng.integers(0, actions, rows), best)
    p = epsilon / actions + (1 - epsilon) * (action == best)
    columns = {"action": action, "reward": (rng.random(rows) < 0.05) * 1.0, "propensity": p}
    return pa.table({**columns, **{f"x{j}": X[:, j] for j in range(3)}}), actions


def of_a_learner(seed):
    """The logging policy learns, so its propensities depend on earlier rewards."""
    rng = np.random.default_rng(seed)
    clicks, shown, chances = np.ones(5), np.full(5, 2.0), rng.random(5) * 0.3
    rows = []
    for u, v, other in zip(rng.random(1000), rng.random(1000), rng.integers(0, 5, 1000), strict=True):
        best = int((clicks / shown).argmax())
        action = best if u < 0.8 else int(other)
        reward = float(v < chances[action])
        rows.append({"action": action, "reward": reward, "propensity": 0.04 + 0.8 * (action == best)})
        clicks[action] += reward
        shown[action] += 1
    return pa.Table.from_pylist(rows), 5


MAKERS = [of_a_world] * 5 + [of_frequencies] * 2 + [of_epsilon_greedy] * 2 + [of_a_learner]


def test_false_alarms_in_a_thousand_clean_logs():
    """Of any level and any check. That an action has no event in a log is no false alarm, but true."""
    alarms = Counter()
    for seed in range(1000):
        table, actions = MAKERS[seed % 10](seed)
        table = table.append_column("at", pa.array(np.arange(table.num_rows)))
        found = flagged(drs.Log(table, actions=actions), time="at")
        found.pop("unlogged_actions", None)
        alarms.update(found.keys())
        alarms["any"] += bool(found)
    assert alarms["any"] < 10, alarms


def test_evidence_is_a_bet_that_honest_propensities_win():
    """P(evidence >= log(1/α)) <= α, at α = 5 %, for y with heavy tails, both forms of the bound."""
    rng = np.random.default_rng(11)
    q = 1 / (1 + rng.pareto(1.5, size=(4000, 200)))
    inverse = (rng.random(q.shape) < q) / q  # mean 1
    counts, y = (inverse > 0).sum(axis=1), np.where(inverse > 0, inverse - 1, 0)
    tight = evidence(y.sum(axis=1), (y**2).sum(axis=1), 200 - counts)
    loose = evidence((inverse - 1).sum(axis=1), ((inverse - 1) ** 2).sum(axis=1))
    assert (tight >= loose - 1e-9).all()
    for found in (tight, loose):
        assert (found >= np.log(1 / 0.05)).mean() < 0.05
    assert evidence(0.0, 0.0) == pytest.approx(0)
