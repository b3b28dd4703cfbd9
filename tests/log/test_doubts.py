"""What the first rows of a log give reason to doubt: outcomes, codes, numbers for missing values, labels, ids.

All seeds are fixed. Shares of logs have their error bars beside them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.log.doubts import sentinel
from drstream.log.outcomes import differs, is_nested
from tests.helpers.healthy import HEALTHY
from tests.helpers.places import data

N = 4000


def shop(seed=0, n=N, actions=3, user=None):
    """A design with equal probabilities: what people are (age, loyal), and what they did (visit, basket, spend)."""
    rng = np.random.default_rng(seed)
    age, loyal = rng.integers(18, 80, n), (rng.random(n) < 0.3).astype(int)
    action = rng.integers(0, actions, n)
    visit = rng.random(n) < 0.1 + 0.06 * action + 0.05 * loyal
    spend = np.where(visit & (rng.random(n) < 0.3), np.round(rng.lognormal(3, 1, n), 2), 0.0)
    return {
        "age": age,
        "loyal": loyal,
        "visit": visit.astype(int),
        "step": np.where(spend > 0, "paid", np.where(visit, "seen", "none")),
        "action": action,
        "reward": spend,
        "propensity": np.full(n, 1 / actions),
    }


def found(log):
    return {finding.check: finding for finding in log.doubts}


def test_a_star_leaves_out_outcomes_and_names_them():
    log = drs.Log(pa.table(shop()), context="*")
    assert log.roles.context == ("age", "loyal")
    assert log.roles.left_out == ("visit", "step")
    assert "left out    visit, step: like outcomes. Name them to use them as contexts" in repr(log)
    assert log.describe()["left_out"] == ["visit", "step"]
    finding = found(log)["outcomes"]
    assert finding.level == "look"
    assert "'visit' (the reward is 0 wherever it is 0)" in finding.message
    assert "'step' (the reward is 0 wherever it is 'none')" in finding.message
    kept = drs.Log(pa.table(shop()), context=["*", "visit"])
    assert set(kept.roles.context) == {"age", "loyal", "visit"}
    message = found(kept)["outcomes"].message
    assert "has left out what looks like an outcome: 'step'" in message
    assert "The context holds what looks like an outcome: 'visit'" in message
    assert not found(drs.Log(pa.table(shop()), context=["age", "loyal"]))


def test_what_comes_after_the_reward_is_an_outcome_too():
    columns = shop()
    columns["reward"], columns["spend"] = columns["visit"].astype(float), columns["reward"]
    log = drs.Log(pa.table(columns), context=["age", "spend"])
    assert "'spend' (it is 0 wherever the reward is 0)" in found(log)["outcomes"].message


def test_what_differs_by_action_is_an_outcome_unless_propensities_depend_on_contexts():
    rng = np.random.default_rng(1)
    columns = shop(1, n=8000)
    columns["seconds"] = rng.exponential(1 + 0.5 * columns["action"])
    columns["reward"] = (rng.random(8000) < 0.5).astype(float)
    log = drs.Log(pa.table(columns), context="*")
    assert log.roles.left_out == ("visit", "step", "seconds")
    assert "it differs by action" in found(log)["outcomes"].message
    p = np.where(columns["age"] > 40, 0.7, 0.3)
    action = (rng.random(8000) < p).astype(int)
    columns |= {"action": action, "propensity": np.where(action == 1, p, 1 - p)}
    assert "seconds" in drs.Log(pa.table(columns), context="*").roles.context
    columns["propensity"] = np.full(8000, 0.5)  # they depend on the age, and do not say so
    names = ["age", "action", "reward", "propensity"]
    wrong = drs.Log(pa.table({name: columns[name] for name in names}), context=["age"])
    assert "it differs by action" in found(wrong)["outcomes"].message


def test_an_experiment_by_user_is_no_log_of_outcomes():
    """All that belongs to a user differs by action, as a user has one action: nothing is left out, and a doubt said."""
    rng = np.random.default_rng(2)
    user = rng.integers(0, 60, N)
    traits = {f"trait{j}": rng.standard_normal(60)[user] for j in range(5)}
    action = rng.integers(0, 2, 60)[user]
    table = pa.table({**traits, "action": action, "reward": rng.random(N), "propensity": np.full(N, 0.5)})
    log = drs.Log(table, context="*")
    assert len(log.roles.context) == 5
    assert "differ by action" in found(log)["outcomes"].message


def test_hillstrom():
    """DR was 1.028 and 1.023 where IPS said .652 and 1.421, with both columns as contexts of `spend`."""
    path = data("hillstrom.parquet")
    for reward, outcomes in {"spend": ["visit", "conversion"], "visit": ["conversion", "spend"]}.items():
        log = drs.Log(path, context="*", reward=reward)
        assert [outcome.column for outcome in log.roles.outcomes] == outcomes
        assert len(log.roles.context) == 8


def test_of_smaller_logs_nearly_all_are_found():
    """2,000 rows have 40 sales: 99 of 100 logs or more, less three standard errors of 1 %."""
    left_out = [drs.Log(pa.table(shop(seed, 2000)), context="*").roles.left_out for seed in range(100)]
    assert sum("visit" in names for names in left_out) >= 96


@pytest.mark.parametrize("kind", HEALTHY)
def test_ordinary_contexts_stay(kind):
    """In fewer than 1 % of logs of each of ten kinds: 0 of 40 each, and of 400 in all."""
    for seed in range(40):
        table, options = HEALTHY[kind](seed)
        log = drs.Log(table, **options)
        assert not found(log), (seed, log.doubts)
        if options.get("context") != "*" and not isinstance(options.get("context"), drs.Sparse):
            assert not drs.Log(table, **{**options, "context": "*"}).roles.outcomes, seed


def test_the_rules_of_outcomes():
    assert is_nested(900, 0, 100, 20, columns=10)
    assert not is_nested(900, 1, 100, 20, columns=10)  # one event without it
    assert not is_nested(900, 0, 100, 2, columns=10)  # too few to contradict a context that matters much
    assert not is_nested(100, 0, 900, 20, columns=1)  # chance: 0.9^20
    rng = np.random.default_rng(3)
    tables = [rng.multinomial(1000, [0.1, 0.2, 0.3, 0.2, 0.1, 0.1]).reshape(2, 3) for _ in range(200)]
    same = [np.outer([0.4, 0.6], [0.2, 0.3, 0.5]) * 1000 for _ in range(200)]
    assert sum(differs(table, 1) for table in tables) >= 198
    assert not any(differs(rng.poisson(table), 1) for table in same)


# Numbers


def columns(**changes):
    rng = np.random.default_rng(4)
    action = rng.integers(0, 2, N)
    plain = {"x": rng.standard_normal(N), "action": action, "reward": rng.random(N), "propensity": np.full(N, 0.5)}
    return pa.table(plain | changes)


def test_numbers_that_stand_for_missing_values():
    rng = np.random.default_rng(5)
    missing = rng.random(N) < 0.01
    age = np.where(missing, -999, rng.integers(18, 80, N))
    finding = found(drs.Log(columns(age=age), context=["x", "age"]))["sentinels"]
    assert finding.level == "look"
    assert f"'age' is -999 in {missing.sum()} rows" in finding.message
    assert "missing=" in finding.message
    reward = np.where(missing, -999, rng.random(N))
    finding = found(drs.Log(columns(reward=reward), context=["x"]))["sentinels"]
    assert finding.level == "stop"
    assert "with a filter" in finding.message


def test_numbers_that_are_what_they_say():
    counts = [0, 3] + [0] * 8
    none = [0] * 10
    assert sentinel(counts, none, 0, 500, True) == (-999, 3)
    assert sentinel(counts, [0, 1] + [0] * 8, 0, 500, True) is None  # a refund of 999
    assert sentinel(counts, none, -1500, 500, True) is None
    assert sentinel([0, 1] + [0] * 8, none, 0, 500, True) is None
    assert sentinel([3, 0] + [0] * 8, none, 0, 50, True) is None  # -99 may be a refund
    assert sentinel([3, 0] + [0] * 8, none, 0, 50, False) == (-99, 3)
    assert sentinel([0] * 6 + [3, 0, 0, 0], none, 0, 9000, False) is None  # 9,999 and 9,000 are near


@pytest.mark.parametrize(
    ("name", "values", "flagged"),
    [
        ("zip_code", [0, 1, 2], True),
        ("store", [101, 205, 431, 999], True),
        ("price", [999, 1999, 2999, 9999], False),
        ("age", list(range(18, 60)), False),
        ("visits", [0, 1, 2, 3, 50], False),
        ("country", [0, 1], False),
        ("region", list(range(200)), False),
    ],
)
def test_codes(name, values, flagged):
    log = drs.Log(columns(**{name: np.resize(values, N)}), context=["x", name])
    assert ("codes" in found(log)) == flagged
    if flagged:
        assert f"categorical=['{name}']" in found(log)["codes"].message
        assert not found(drs.Log(columns(**{name: np.resize(values, N)}), context=["x", name], categorical=[name]))


def test_labels_that_are_integers_as_text():
    table = columns(action=[str(x % 12 + 1) for x in range(N)], propensity=np.full(N, 1 / 12))
    log = drs.Log(table, context=["x"])
    assert not log.doubts  # they are not known before somebody needs them
    assert log.n_actions == 12
    message = found(log)["label_order"].message
    assert "'1', '10', '11', '12', '2', '3', ..." in message
    given = drs.Log(table, context=["x"], actions=[str(x) for x in range(1, 13)])
    assert not given.doubts
    few = drs.Log(columns(action=[str(x % 3) for x in range(N)]), context=["x"])
    assert few.n_actions == 3
    assert not few.doubts


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda p: 100 * p, "of percentages, store p / 100"),
        (np.log, "as logarithms are: store their exponentials"),
        (lambda p: 1 / p, "of inverse propensities, 1 / p"),
        (lambda p: 1000 / p, "as inverse propensities are: store 1 / p"),
    ],
)
def test_propensities_in_other_units(change, hint):
    p = np.where(np.arange(N) % 2, 0.3, 0.7)
    log = drs.Log(columns(propensity=change(p)), context=["x"])
    with pytest.raises(drs.LogError, match=r"propensity is not in \(0, 1\]: got") as caught:
        drs.evaluate(log, drs.policies.Uniform(), estimators="ips")
    assert hint in str(caught.value)


def test_one_bad_propensity_is_no_unit():
    p = np.full(N, 0.5)
    p[7] = 50.0
    with pytest.raises(drs.LogError, match=r"got 50\.0 at row 7") as caught:
        drs.evaluate(drs.Log(columns(propensity=p), context=["x"]), drs.policies.Uniform(), estimators="ips")
    assert "percent" not in str(caught.value)


# Ids


def test_ids_that_repeat(tmp_path):
    rng = np.random.default_rng(6)
    user = rng.integers(0, 100, N)
    table = columns(user_id=user, session=[f"s{x:09d}" for x in user * 3 + rng.integers(0, 3, N)], city=user % 30)
    pq.write_table(table.append_column("row_id", pa.array(np.arange(N))), tmp_path / "log.parquet")
    log = drs.Log(tmp_path / "log.parquet", context=["x"])
    first, second = log.ids()
    assert (first.column, first.rows, first.different) == ("user_id", N, 100)
    assert first.most == np.bincount(user).max()
    assert second.column == "session"
    assert "Rows of one user_id repeat 40 times on average" in first.message
    assert "cluster='user_id'" in first.message
    assert drs.Log(tmp_path / "log.parquet", context=["x", "user_id"]).ids() == [second]
    assert log.split(0.5, cluster="user_id")[0].ids() == [second]


# Copies


def test_events_that_were_written_twice_in_a_row():
    """Clicks, in a log of few contexts: their copies have the same action, and others should not."""
    for kind in ("few_kinds_of_users", "new_users", "learner"):
        table, options = HEALTHY[kind](1)
        clicked = table["reward"].to_numpy() != 0
        log = drs.Log(table.take(np.repeat(np.arange(table.num_rows), 1 + clicked)), **options)
        finding = found(log)["duplicate_rows"]
        assert finding.level == "look"
        assert "rows have the context of the row before" in finding.message
        policy = drs.policies.Uniform()
        checks = {finding.check for finding in drs.evaluate(log, policy, estimators="ips").findings}
        assert "duplicate_rows" in checks
    assert not found(drs.Log(table, **options))


def test_rows_of_one_draw_in_a_cluster():
    """A user has one action in all rows: without cluster=, that is said."""
    user = np.repeat(np.arange(400), 10)
    rng = np.random.default_rng(7)
    log = drs.Log(columns(x=rng.random(400)[user], action=rng.integers(0, 2, 400)[user], user_id=user), context=["x"])
    policy = drs.policies.Uniform()
    alone = {finding.check for finding in drs.evaluate(log, policy, estimators="ips").findings}
    assert {"duplicate_rows", "ids"} <= alone
    kept = {finding.check for finding in drs.evaluate(log, policy, estimators="ips", cluster="user_id").findings}
    assert kept.isdisjoint({"duplicate_rows", "ids"})
