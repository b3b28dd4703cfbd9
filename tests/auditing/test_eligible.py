"""Audits and descriptions of logs with eligible sets: definitions, false alarms, and how wrong propensities look."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import eligible as naive
from tests.helpers.cut import cut_log
from tests.helpers.passes import PLAIN, not_plain

pytestmark = pytest.mark.covers

ROWS = 400 if PLAIN else 4_000
K = 6


def made(seed=0, rows=ROWS, **world):
    return drs.synth.World(K, 3, kinds=None, eligible=0.5, seed=seed, **world).table(rows, seed=1000 + seed)


def opened(table, **options):
    return cut_log(table, actions=K, **{"eligible": "items", **options})


def with_propensities(table, p):
    return table.set_column(table.schema.get_field_index("propensity"), "propensity", pa.array(p))


def flagged(table):
    return {f.check: f.level for f in opened(table).audit(threads=1).findings if f.level != "ok"}


def test_means_are_over_the_events_that_could_choose_the_action():
    table = made()
    mask, a, p = naive.mask_of(table, K), table["action"].to_numpy(), table["propensity"].to_numpy()
    audit = opened(table).audit()
    assert audit.actions.column_names == ["action", "count", "share", "eligible", "mean_inverse", "stderr", "z"]
    for k, row in enumerate(audit.actions.to_pylist()):
        inverse = np.where(a == k, 1 / p, 0)[mask[:, k]]
        error = inverse.std(ddof=1) / np.sqrt(len(inverse))
        wanted = [k, (a == k).sum(), (a == k).mean(), mask[:, k].sum(), inverse.mean(), error]
        np.testing.assert_allclose([*row.values()], [*wanted, (inverse.mean() - 1) / error], rtol=1e-9)
    assert audit["inverse_over_sets"].value == pytest.approx((1 / (p * mask.sum(axis=1))).mean(), rel=1e-12)
    sure = (p == 1) & (mask.sum(axis=1) > 1)
    assert audit["exploration"].value == sure.sum() / (mask.sum(axis=1) > 1).sum()
    assert audit.level == "ok"
    with pytest.raises(KeyError):
        audit["inverse_over_all"]


@not_plain
def test_without_the_sets_the_same_log_is_looked_at():
    """Every action seems to be possible in some events only, which is what the sets say."""
    found = opened(made(), eligible=None).audit()
    assert found["inverse_propensity"].level == "look"


@pytest.mark.slow
def test_no_false_alarms():
    counts = Counter(check for seed in range(60) for check in flagged(made(seed, 2000)))
    assert counts.total() <= 1


def over_all(table, p):
    """Propensities among all actions, not among the eligible ones."""
    w = drs.synth.World(K, 3, kinds=None, eligible=0.5, seed=0)
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    return w.logging(X)[np.arange(len(p)), table["action"].to_numpy()]


WRONG = {
    "among all actions": (over_all, "inverse_over_sets"),
    "the number of all actions": (lambda table, p: np.full(len(p), 1 / K), "inverse_over_sets"),
    "shifted": (lambda table, p: np.roll(p, 1), "inverse_over_sets"),
    "the same for all": (lambda table, p: np.full(len(p), 0.4), "inverse_over_sets"),
    "too large": (lambda table, p: np.minimum(1.5 * p, 1), "inverse_over_sets"),
    "all 1": (lambda table, p: np.ones(len(p)), "exploration"),
}


@pytest.mark.parametrize("case", WRONG)
@not_plain
def test_wrong_propensities_are_found(case):
    change, check = WRONG[case]
    table = made(rows=8000)
    found = flagged(with_propensities(table, change(table, table["propensity"].to_numpy())))
    assert found.get(check) == ("look" if case == "too large" else "stop"), found


def test_where_one_action_is_eligible_its_propensity_is_1():
    rng = np.random.default_rng(0)
    action = rng.integers(0, 3, ROWS)
    sets = [[int(a)] if i % 2 else [0, 1, 2] for i, a in enumerate(action)]
    p = np.where(np.arange(ROWS) % 2, 1.0, 1 / 3)
    table = pa.table({"action": action, "reward": rng.random(ROWS), "propensity": p, "items": sets})
    assert drs.Log(table, eligible="items").audit().level == "ok"
    wrong = drs.Log(with_propensities(table, np.full(ROWS, 1 / 3)), eligible="items").audit()["inverse_over_sets"]
    assert wrong.level == "stop"
    assert "with 1 eligible action, but it cannot be above 1" in wrong.message
    alone = table.filter(pa.array(np.arange(ROWS) % 2 == 1))
    assert drs.Log(alone, eligible="items").audit()["exploration"].level == "stop"


def test_actions_that_are_never_taken_where_they_are_eligible():
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, ROWS)
    table = pa.table({"action": action, "reward": rng.random(ROWS), "propensity": np.full(ROWS, 0.5)})
    table = table.append_column("items", pa.array([[0, 1, 2]] * ROWS))
    found = drs.Log(table, eligible="items").audit()
    assert found["inverse_over_sets"].level == "look"
    assert "never takes some eligible actions" in found["inverse_over_sets"].message
    assert found["unlogged_actions"].value == 1


def test_the_same_context_with_another_set_is_another_context():
    table = pa.table({"action": [0] * 60, "reward": [1.0] * 60, "propensity": [0.5] * 60, "x0": [1.0] * 60})
    table = table.append_column("items", pa.array([[0, 1 + i % 30] for i in range(60)]))
    assert drs.Log(table, eligible="items").audit()["duplicate_rows"].value == 30


def test_bad_sets_are_counted_and_the_rest_is_audited():
    table = made()
    lists = table["items"].to_pylist()
    lists[5], lists[6] = [], [99]
    bad = table.set_column(table.schema.get_field_index("items"), "items", pa.array(lists))
    audit = opened(bad).audit()
    assert audit.bad["eligible set is empty"]["count"] == 1
    assert audit.bad["eligible set holds an action that is not among the labels"]["row"] == 6
    described = opened(bad).describe()
    assert sum(described["bad_rows"].values()) == 2


def test_the_same_for_any_batches_and_threads(tmp_path):
    pq.write_table(made(), tmp_path / "log.parquet", row_group_size=ROWS // 4)
    wanted = opened(tmp_path / "log.parquet").audit(threads=1)
    for options in ({"batch_size": 77}, {}):
        other = opened(tmp_path / "log.parquet", **options).audit(threads=3)
        assert other.actions.equals(wanted.actions)
        assert other.findings == wanted.findings


def test_a_description_has_the_sizes_of_the_sets(tmp_path):
    table = made()
    sizes = naive.mask_of(table, K).sum(axis=1)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 4)
    found = opened(tmp_path / "log.parquet").describe()
    assert found["eligible"] == "items"
    assert found["eligible_sizes"] == (sizes.min(), pytest.approx(sizes.mean()), sizes.max())
    assert f"  set sizes   mean {sizes.mean():.4g}, from {sizes.min()} to {sizes.max()}" in str(found)
    assert "items" not in found["unused"]
    assert opened(table, eligible=None).describe()["eligible_sizes"] is None
