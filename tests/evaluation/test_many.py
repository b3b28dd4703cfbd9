"""Many policies, many actions, wide contexts: what a pass leaves out, how large its blocks are, what it refuses."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation import form
from drstream.evaluation import plan as plans
from drstream.evaluation.form import MOST_PAIRED
from tests.helpers.evaluations import POLICY, WORLD, M, open_log
from tests.helpers.passes import PLAIN

ESTIMATORS = ["dm", "ips", "snips", "dr"]
TABLE = WORLD.table(300 if PLAIN else 3_000, seed=3)


def some(count):
    rng = np.random.default_rng(0)
    return {f"p{i}": drs.policies.Linear(WORLD.taste + rng.normal(size=WORLD.taste.shape)) for i in range(count)}


def run(policies, **options):
    return drs.evaluate(open_log(TABLE), policies, M.Constant([0.1, 0.2, 0.3, 0.4]), ESTIMATORS, **options)


def without_pairs(monkeypatch):
    """As if there were too many policies."""
    monkeypatch.setattr(form, "MOST_PAIRED", 2)


@pytest.mark.parametrize("interval", [None, "anytime", "bootstrap"])
def test_without_pairs_all_else_is_the_same(interval, monkeypatch, tmp_path):
    more = {"interval": interval, "reward_range": (0, 1), "max_weight_bound": 1e4} if interval else {}
    paired = run(some(3), **more)
    without_pairs(monkeypatch)
    state = None if interval == "anytime" else tmp_path / "a.state"
    alone = run(some(3), **more, state=state)
    for policy in paired.policies:
        for estimator in ESTIMATORS:
            one, other = paired[policy, estimator], alone[policy, estimator]
            assert one.value == other.value
            assert one.ess == pytest.approx(other.ess, nan_ok=True)
            assert (other.stderr, other.low, other.high) == pytest.approx(
                (one.stderr, one.low, one.high), rel=1e-12, nan_ok=True
            )
            one, other = (r.difference(policy, estimator=estimator) for r in (paired, alone))
            assert (other.value, other.low) == pytest.approx((one.value, one.low), rel=1e-12, nan_ok=True)
    merged = alone if state is None else drs.merge([state])
    assert [merged[key].low for key in keys(merged)] == pytest.approx([alone[key].low for key in keys(alone)])
    for result in (alone, merged):
        with pytest.raises(drs.DrstreamError, match=r"covariances.* for up to 32 policies: evaluate these two alone"):
            result.difference("p0", "p1")


def keys(result):
    return [(policy, "dr") for policy in result.policies]


def test_pairs_are_there_up_to_a_number():
    some_pairs, none = run(some(MOST_PAIRED)), run(some(MOST_PAIRED + 1))
    assert some_pairs.difference("p0", "p1").stderr > 0
    with pytest.raises(drs.DrstreamError, match="evaluate these two alone"):
        none.difference("p0", "p1")
    assert none["p5", "dr"].value == some_pairs["p5", "dr"].value


@pytest.mark.parametrize(("actions", "features"), [(2, 1), (10, 20), (1_000, 3), (10_000, 2), (3, 2_000)])
def test_blocks_are_bounded(actions, features):
    rng = np.random.default_rng(1)
    rows = 40
    columns = {"action": rng.integers(0, actions, rows), "reward": rng.random(rows), "propensity": np.full(rows, 0.5)}
    x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * features).astype(np.float32)), features)
    log = drs.Log(pa.table({**columns, "x": x}), actions=actions)
    seen = []
    known = plans.Plan.block_rows.fget
    policy = drs.policies.Softmax(rng.normal(size=(actions, features)) / features)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans.Plan, "block_rows", property(lambda plan: seen.append(plan) or known(plan)))
        result = drs.evaluate(log, policy, drs.models.Constant(0.5), ESTIMATORS)
    plan = seen[0]
    assert known(plan) * plan.job.bytes_an_event <= plans.MOST
    assert known(plan) & (known(plan) - 1) == 0
    assert result["dm"].value == pytest.approx(0.5, rel=1e-6)


def test_what_does_not_fit_into_memory_is_refused_before_the_pass(monkeypatch):
    monkeypatch.setattr(plans, "physical_memory", lambda: 1e4)
    with pytest.raises(drs.DrstreamError, match=r"4 actions and 1 policies need about .* GB .* events on .* threads"):
        run(POLICY)


def test_another_precision():
    for wrong in ("float16", "double", 64, np.float64):
        with pytest.raises(drs.DrstreamError, match=r"precision=.*\"float64\""):
            run(POLICY, precision=wrong)
