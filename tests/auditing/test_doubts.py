"""What an audit says about rows, rewards and contexts that are wrong, and how quiet it is about logs that are right.

Detection is the share of simulated logs, with fixed seeds, less three standard errors.
"""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.auditing.shift import Told
from tests.helpers import healthy
from tests.helpers.audits import flagged
from tests.helpers.healthy import HEALTHY
from tests.helpers.logs import world
from tests.helpers.places import data


def at_least(found, logs, share):
    """Whether a share of logs is not below what is claimed, but for chance."""
    return found / logs >= share - 3 * math.sqrt(share * (1 - share) / logs)


def opened(kind, seed, change=None):
    table, options = HEALTHY[kind](seed)
    return drs.Log(table if change is None else change(table), **options)


def moved(rows):
    """Let the rewards stand so many rows later."""

    def change(table):
        return replaced(table, "reward", np.roll(table["reward"].to_numpy(), rows))

    return change


def replaced(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def clicks_twice(table):
    """The rows with a reward follow themselves."""
    rewarded = table["reward"].to_numpy() != 0
    return table.take(np.repeat(np.arange(table.num_rows), 1 + rewarded))


# Rewards of other rows

TOLD = ["few_kinds_of_users", "new_users", "experiment_with_rare_clicks", "words", "stock"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "level"),
    [*((kind, 1, "stop") for kind in TOLD), *((kind, -1, "look") for kind in TOLD[:3])],
)
def test_rewards_shifted_by_a_row_are_found(kind, rows, level, monkeypatch):
    """In 99 of 100 logs of 10,000 rows: where features matter; later rewards also where only actions do."""
    monkeypatch.setattr(healthy, "ROWS", (10_000,))
    found = sum(flagged(opened(kind, seed, moved(rows))).get("shifted_rewards") == level for seed in range(20))
    assert at_least(found, 20, 0.99), found


def history(seed):
    """Users come several times; contexts say whether they clicked last time, and how often in all."""
    rng, n = np.random.default_rng(seed), 4000
    user = np.repeat(np.arange(n), rng.geometric(0.05, n))[:n]
    mood, action, draw = rng.beta(1, 8, n)[user], rng.integers(0, 3, n), rng.random(n)
    reward = (draw < mood + 0.05 * action) * 1.0
    same = np.concatenate([[False], user[1:] == user[:-1]])
    last = np.where(same, np.concatenate([[0], reward[:-1]]), 0)
    table = {"last": last, "action": action, "reward": reward, "propensity": np.full(n, 1 / 3)}
    return drs.Log(pa.table(table), context=["last"])


def stays_where_it_won(seed):
    """A logging policy that repeats an action which was rewarded."""
    rng, rows, action, reward = np.random.default_rng(seed), [], 0, 1.0
    for draw, won, x in rng.random((3000, 3)):
        p = np.full(3, 1 / 3) if not reward else np.where(np.arange(3) == action, 0.8, 0.1)
        action = int((p.cumsum() > draw).argmax())
        reward = float(won < 0.3)
        rows.append({"action": action, "reward": reward, "propensity": p[action], "x": x})
    return drs.Log(pa.Table.from_pylist(rows), context=["x"])


@pytest.mark.parametrize("make", [history, stays_where_it_won])
def test_who_knows_the_reward_before_is_no_shift(make):
    """Contexts may say it, and logging policies may have learned from it."""
    for seed in range(5):
        assert flagged(make(seed)) == {}


def test_a_shift_says_whose_rewards_they_are():
    table = world(kinds=None).table(6000, seed=1)
    late = drs.Log(moved(1)(table)).audit()["shifted_rewards"]
    assert late.level == "stop"
    assert late.message.startswith("Contexts and actions tell more about the reward of the row after (z = ")
    early = drs.Log(moved(-1)(table)).audit()["shifted_rewards"]
    assert early.level == "look"
    assert "about the reward of the row before" in early.message
    assert "or contexts or the logging policy know" in early.message
    assert drs.Log(table).audit()["shifted_rewards"].level == "ok"
    cut = drs.Log(table).split(0.4)[0].audit()  # few rows stand beside their neighbours
    assert cut["shifted_rewards"].level == "ok"
    assert "shifted_rewards" not in {f.check for f in drs.Log(table.slice(0, 99)).audit().findings}


def test_a_session_is_no_shift_and_its_shift_is_one():
    """Neighbours have the same context, so that a row tells much about the reward of the next one, too."""
    for seed in range(5):
        assert flagged(opened("sessions", seed)) == {}


def test_scores_of_chi_square():
    """Against quantiles of chi-square: 18.307 of 10 and 124.34 of 100 are exceeded with 5 % probability."""
    assert Told(18.307 - 10, 10).z == pytest.approx(1.645, abs=0.02)
    assert Told(124.342 - 100, 100).z == pytest.approx(1.645, abs=0.01)
    assert Told(0.0, 0).z == 0


# Rows that stand in a log more than once


@pytest.mark.parametrize(
    "kind", ["few_kinds_of_users", "new_users", "sessions", "words", "experiment_with_rare_clicks"]
)
def test_a_log_that_was_doubled(kind):
    """By a copied file, also if contexts recur; shuffled or not."""
    for seed in range(4):
        table, options = HEALTHY[kind](seed)
        twice = pa.concat_tables([table, table])
        order = np.random.default_rng(seed).permutation(twice.num_rows)
        for copied in (twice, twice.take(order)):
            finding = drs.Log(copied, **options).audit()["duplicate_rows"]
            assert finding.level == "stop"
            assert "2 times" in finding.message
        assert drs.Log(pa.concat_tables([table] * 3), **options).audit()["duplicate_rows"].level == "stop"


@pytest.mark.parametrize("kind", ["few_kinds_of_users", "new_users", "sessions", "words", "stock"])
def test_clicks_that_were_written_twice(kind):
    for seed in range(4):
        finding = opened(kind, seed, clicks_twice).audit()["duplicate_rows"]
        assert finding.level == "stop"
        assert "rows with a reward" in finding.message


def test_some_events_were_written_twice():
    """One in five, where contexts recur: neighbours have the same action too often."""
    for seed in range(5):
        table, _ = HEALTHY["few_kinds_of_users"](seed)
        again = np.random.default_rng(seed).random(table.num_rows) < 0.2
        log = drs.Log(table.take(np.repeat(np.arange(table.num_rows), 1 + again)))
        assert "have the context of the row before" in log.audit()["duplicate_rows"].message
        assert flagged(log)["duplicate_rows"] == "look"


def test_parts_that_were_copied(tmp_path):
    """A row group that stands in another file, in a log whose other parts are right."""
    table = world(kinds=8).table(6000, seed=1)
    for name, rows in {"a": (0, 2000), "b": (2000, 4000), "c": (4000, 6000)}.items():
        pq.write_table(table.slice(rows[0], 2000), tmp_path / f"{name}.parquet", row_group_size=1000)
    log = drs.Log(str(tmp_path / "*.parquet"))
    assert log.audit()["duplicate_rows"].level == "ok"
    both = pa.concat_tables([table.slice(3000, 1000), table.slice(500, 500)])
    pq.write_table(both, tmp_path / "d.parquet", row_group_size=1000)
    finding = drs.Log(str(tmp_path / "*.parquet")).audit()["duplicate_rows"]
    assert finding.level == "stop"
    assert finding.value == 1000
    assert "row group 0 of" in finding.message
    assert "row group 1 of" in finding.message
    without = drs.Log(str(tmp_path / "*.parquet"), context=[])
    assert without.audit()["duplicate_rows"].level == "stop"  # also without contexts


def test_parts_that_are_the_same_by_chance(tmp_path):
    """Row groups of few rows, and a log in which hardly anything happens."""
    table = pa.table({"action": [0] * 400, "reward": [0.0] * 400, "propensity": [1.0] * 400})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    log = drs.Log(tmp_path / "log.parquet")
    assert log.audit()["duplicate_rows"].level == "ok"


# Ids


def test_ids_that_repeat():
    rng = np.random.default_rng(0)
    table, _ = HEALTHY["new_users"](1)
    n = table.num_rows
    users = table.append_column("user_id", pa.array(np.repeat(np.arange(n // 50), 50)[rng.permutation(n)]))
    finding = drs.Log(users).audit()["repeated_ids"]
    assert (finding.level, finding.value) == ("look", 50)
    assert "Rows of one user_id repeat 50 times on average" in finding.message
    assert "cluster='user_id'" in finding.message
    once = drs.Log(table.append_column("request_id", pa.array(np.arange(n)))).audit()
    assert once["repeated_ids"].level == "ok"
    assert "repeated_ids" not in {f.check for f in drs.Log(table).audit().findings}
    assert "repeated_ids" not in {f.check for f in drs.Log(users).audit(event_id="user_id").findings}


# Contexts


def test_outcomes_among_named_contexts_are_found_over_all_rows():
    """The first 16,384 rows have no sale; the audit looks at all."""
    rng = np.random.default_rng(1)
    n = 40_000
    action, late = rng.integers(0, 2, n), np.arange(n) > 20_000
    visit = (rng.random(n) < 0.1 + 0.1 * action) & late
    reward = np.where(visit & (rng.random(n) < 0.3), 1.0, 0.0)
    table = pa.table({"age": rng.random(n), "visit": visit, "action": action, "reward": reward})
    log = drs.Log(table, context="*", propensity=0.5)
    assert log.roles.context == ("age", "visit")
    assert not log.doubts
    finding = log.audit()["outcomes"]
    assert finding.level == "look"
    assert "The context holds what looks like an outcome: 'visit' (the reward is 0 wherever it is 0)" in finding.message
    seconds = np.where(late, rng.exponential(1 + action), rng.exponential(1.5, n))
    slow = drs.Log(replaced(table, "visit", seconds), context="*", propensity=0.5)
    assert "'visit' (it differs by action" in slow.audit()["outcomes"].message
    p = np.where(np.arange(n) == n - 1, 0.4, 0.5)  # propensities depend on something, so this may be a context
    changed = replaced(table, "visit", seconds).append_column("propensity", pa.array(p))
    assert drs.Log(changed, context="*").audit()["outcomes"].level == "ok"


def test_hillstrom():
    log = drs.Log(data("hillstrom.parquet"), context="*", reward="spend")
    message = log.audit()["outcomes"].message
    assert "has left out what looks like an outcome: 'visit' " in message
    assert "'conversion' " in message
    assert "outcomes" in {finding.check for finding in log.doubts}


def test_text_and_lists_among_contexts():
    rng = np.random.default_rng(2)
    n = 20_000
    reward = (rng.random(n) < 0.1) * 1.0
    late = np.arange(n) > 17_000
    state = np.where((reward > 0) & late, "paid", "open")
    x = np.column_stack([rng.random(n), (reward > 0) & late])
    columns = {"action": rng.integers(0, 2, n), "reward": reward * late, "propensity": np.full(n, 0.5)}
    text = drs.Log(pa.table({"state": state, **columns}), context=["state"]).audit()["outcomes"]
    assert "'state' (the reward is 0 wherever it is 'open')" in text.message
    lists = drs.Log(pa.table({"x": pa.array(list(x)), **columns}), context="x").audit()["outcomes"]
    assert "'x[1]' (the reward is 0 wherever it is 0)" in lists.message


def test_numbers_that_stand_for_missing_values_anywhere_in_the_log():
    rng = np.random.default_rng(3)
    table = world(kinds=None).table(40_000, seed=3)
    reward, x = table["reward"].to_numpy().copy(), table["x1"].to_numpy().copy()
    x[[30_000, 30_001]] = -999
    finding = drs.Log(replaced(table, "x1", x)).audit()["sentinels"]
    assert finding.level == "look"
    assert "'x1' is -999 in 2 rows" in finding.message
    reward[rng.integers(20_000, 40_000, 50)] = -9999
    finding = drs.Log(replaced(table, "reward", reward)).audit()["sentinels"]
    assert finding.level == "stop"
    assert "'reward' is -9999 in " in finding.message


def test_doubts_of_the_first_rows_stand_in_the_audit():
    rng = np.random.default_rng(4)
    table = world().table(3000, seed=4).append_column("zip_code", pa.array(rng.integers(0, 9, 3000)))
    table = replaced(table, "action", [str(x + 8) for x in table["action"].to_pylist()])
    audit = drs.Log(table, context=["zip_code"]).audit()
    assert audit["codes"].level == audit["label_order"].level == "look"


def test_propensities_in_percent():
    table = world().table(3000, seed=5)
    audit = drs.Log(replaced(table, "propensity", 100 * table["propensity"].to_numpy())).audit()
    assert audit["bad_values"].level == "stop"
    assert "of percentages, store p / 100" in audit["bad_values"].message


# What the user expects


def test_what_is_expected():
    table = world().table(5000, seed=6)
    mean = float(np.mean(table["reward"].to_numpy()))
    kept = (table["reward"].to_numpy() != 0) | (np.random.default_rng(6).random(5000) > 0.3)
    dropped = drs.Log(table.filter(pa.array(kept)))
    assert {"expected_rows", "expected_reward"}.isdisjoint(f.check for f in dropped.audit().findings)
    audit = dropped.audit(expected_rows=5000, expected_reward=mean)
    assert audit["expected_rows"].level == audit["expected_reward"].level == "stop"
    assert f"The log has {kept.sum():,} rows, and it should have 5,000" in audit["expected_rows"].message
    assert "are missing" in audit["expected_rows"].message
    assert "more" in audit["expected_reward"].message
    audit = drs.Log(table).audit(expected_rows=5000, expected_reward=round(mean, 3))
    assert audit["expected_rows"].level == audit["expected_reward"].level == "ok"
    assert drs.Log(table).audit(expected_rows=4980)["expected_rows"].level == "look"
    assert "too many" in drs.Log(table).audit(expected_rows=2500)["expected_rows"].message
    assert drs.Log(table).audit(expected_reward=mean * 1.03)["expected_reward"].level == "look"
    assert drs.Log(table).audit(expected_reward=0)["expected_reward"].level == "stop"
    costs = table.rename_columns(["cost" if name == "reward" else name for name in table.column_names])
    assert drs.Log(costs).audit(expected_reward=mean)["expected_reward"].level == "ok"
    with pytest.raises(drs.LogError, match="expected_rows='many': give a number"):
        drs.Log(table).audit(expected_rows="many")


# A log that is right


@pytest.mark.slow
def test_healthy_logs_stay_quiet():
    """400 logs of ten kinds, 2,000 to 5,000 rows: at most 1 % have a "stop", and 5 % a "look"."""
    levels, checks = Counter(), Counter()
    for kind in HEALTHY:
        for seed in range(40):
            found = flagged(opened(kind, seed))
            levels.update(set(found.values()))
            checks.update((kind, *item) for item in found.items())
    assert levels["stop"] <= 4, checks
    assert levels["look"] <= 20, checks


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_few_healthy_logs_of_each_kind_have_no_finding(kind):
    for seed in range(3):
        assert "stop" not in flagged(opened(kind, seed)).values()
