"""Every estimator against its naive reference."""

import math

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation.estimators import ALL
from tests.helpers import reference
from tests.helpers.evaluations import BALANCED, BY_TIME, MARGINAL, evaluate, limits
from tests.helpers.logs import MODEL_COLUMN, POLICY_COLUMN, arrays, as_table, events, world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers


def close(got, ref, scale):
    if math.isnan(ref):
        assert math.isnan(got)
    else:
        assert got == pytest.approx(ref, rel=1e-9, abs=1e-11 * scale)


def close_errors(got, ref, scale):
    """Standard errors, by their squares: these are sums of terms up to scale² that may cancel to the last digits."""
    if math.isnan(ref):
        assert math.isnan(got)
    else:
        assert got**2 == pytest.approx(ref**2, rel=1e-9, abs=1e-13 * scale**2)


def max_abs(*lists):
    return max([1.0, *(abs(v) for values in lists for v in values if not math.isnan(v))])


def size_of_terms(psi, w):
    """How large the terms are that a standard error combines: for a ratio, w r / mean(w), with r and r̂ up to 1e3."""
    return max(max_abs(psi), 2e3 * max(w) / np.mean(w) if max(w) else 0.0)


def size_of_value(estimator, psi, w, r):
    """How large the terms are that a value combines: a control variate takes w (r - a typical reward) from itself."""
    return max_abs(psi) if estimator != "ips-cv" else max(max_abs(psi), max(w) * max_abs(r))


ELSEWHERE = BY_TIME + BALANCED + MARGINAL  # test_adaptive.py, test_loggers.py, test_marginal.py
ONE_PASS = [name for name in ALL if name not in ELSEWHERE]


@pytest.mark.parametrize("estimator", ONE_PASS)
@given(log=events(), cuts=st.lists(st.integers(0, 40), max_size=3), limit=st.sampled_from([0.5, 3.0, 1e6]))
def test_estimator_equals_reference(estimator, log, cuts, limit):
    table = as_table(log, [c for c in cuts if c < len(log["reward"])])
    result = evaluate(
        drs.Log(table, actions=log["pi"].shape[1]),
        {"new": drs.policies.Column(POLICY_COLUMN)},
        model=drs.models.Column(MODEL_COLUMN),
        estimators=[estimator],
        **(given := limits(estimator, cap=limit, floor=0.25, lambda_=limit)),
    )
    got = result["new", estimator]
    value, stderr, psi = reference.estimate(
        estimator, log["reward"], log["propensity"], log["action"], log["pi"], log["rhat"], **given
    )
    w = log["pi"][np.arange(len(log["action"])), log["action"]] / log["propensity"]
    scale = max(size_of_terms(psi, w), size_of_value(estimator, psi, w, log["reward"]))
    close(got.value, value, size_of_value(estimator, psi, w, log["reward"]))
    close_errors(got.stderr, stderr, scale)
    assert got.n == len(log["reward"])

    baseline = log["reward"]
    close(result.baseline.value, reference.mean(baseline), 1e3)
    close_errors(result.baseline.stderr, reference.standard_error(baseline), 1e3)
    gain = result.difference("new", estimator=estimator)
    paired = [x - r for x, r in zip(psi, baseline, strict=True)]
    close(gain.value, reference.mean(paired), max(max_abs(log["reward"]), size_of_value(estimator, psi, w, baseline)))
    close_errors(gain.stderr, math.nan if math.isnan(stderr) else reference.standard_error(paired), scale)


@given(log=events())
def test_weight_statistics_equal_reference(log):
    """Of all estimators with weights in one pass; a weight that is the smaller counts as capped."""
    names = [name for name in ONE_PASS if ALL[name].weight]
    given = {"cap": 2.0, "floor": 0.3, "lambda_": 2.0}
    result = evaluate(
        drs.Log(as_table(log), actions=log["pi"].shape[1]),
        drs.policies.Column(POLICY_COLUMN),
        drs.models.Column(MODEL_COLUMN),
        names,
        **given,
    )
    args = log["propensity"], log["action"], log["pi"]
    w = np.array(reference.weights("ips", *args))
    for name in names:
        weights = np.array(reference.weights(name, *args, **given))
        assert result[name].max_weight == pytest.approx(weights.max(), rel=1e-15)
        close(result[name].ess, reference.effective_sample_size(weights), 1.0)
        assert result[name].capped == np.mean(weights < w)
    assert result["ips"].capped == 0


@given(log=events())
def test_difference_between_policies_is_paired(log):
    actions = log["pi"].shape[1]
    second = np.roll(log["pi"], 1, axis=1)
    table = as_table(log).append_column("pi2", [list(second)])
    result = evaluate(
        drs.Log(table, actions=actions),
        {"a": drs.policies.Column("pi"), "b": drs.policies.Column("pi2")},
        model=drs.models.Column(MODEL_COLUMN),
        estimators=["ips", "snips", "dr"],
    )

    for name in ("ips", "snips", "dr"):
        args = name, log["reward"], log["propensity"], log["action"]
        psi_a = reference.estimate(*args, log["pi"], log["rhat"])[2]
        psi_b = reference.estimate(*args, second, log["rhat"])[2]
        paired = [x - y for x, y in zip(psi_a, psi_b, strict=True)]
        scale = 1e4 / min(log["propensity"])  # of weights times rewards and predictions of up to 1e3
        got = result.difference("a", "b", name)
        close(got.value, reference.mean(paired), scale)
        close_errors(got.stderr, reference.standard_error(paired), scale)


def test_linear_policies_and_ridge_over_blocks():
    """More rows than a block and a batch, contexts that are multiplied by BLAS."""
    rows = 600 if PLAIN else 70_000
    w = world(kinds=None)
    train, test = w.table(500, seed=1), w.table(rows, seed=2)
    model = drs.models.Ridge().fit(drs.Log(train))
    policies = {"soft": drs.policies.Softmax(w.taste, w.appeal, temperature=2), "hard": drs.policies.Linear(w.habit)}
    given = limits(*ONE_PASS)
    results = [
        evaluate(drs.Log(w.table(rows, seed=2, layout=layout)), policies, model=model, estimators=ONE_PASS, **given)
        for layout in ("wide", "list")
    ]
    X, a, r, p = arrays(test, 3)
    pis = {"soft": reference.softmax(w.taste / 2, w.appeal / 2, X), "hard": reference.argmax(w.habit, 0, X)}
    for policy, pi in pis.items():
        for name in ONE_PASS if policy == "soft" else ["dr"]:  # the reference takes half a second for each
            value, stderr, _ = reference.estimate(name, r, p, a, pi, model.predict(X), **given)
            for result in results:
                assert result[policy, name].value == pytest.approx(value, rel=1e-10)
                assert result[policy, name].stderr == pytest.approx(stderr, rel=1e-9)


def test_interval_is_normal():
    log = drs.Log(world().table(500))
    got = evaluate(log, drs.policies.Uniform(), estimators="ips", confidence=0.9, interval="normal")["ips"]
    assert got.high - got.value == pytest.approx(1.6448536269514722 * got.stderr)
    assert got.value - got.low == pytest.approx(1.6448536269514722 * got.stderr)


def test_one_event_has_no_interval():
    got = evaluate(drs.Log(world().table(1)), drs.policies.Uniform(), estimators=["ips"])["ips"]
    assert math.isnan(got.stderr)
    assert math.isnan(got.low)
    assert not math.isnan(got.value)


def test_no_weight_at_all_is_undefined_not_zero():
    table = world().table(50)
    log = drs.Log(table.filter(table["action"].to_numpy() != 0), actions=4)
    weighted = [name for name in ONE_PASS if ALL[name].weight]
    result = evaluate(
        log, {"zero": drs.policies.Constant(0)}, drs.models.Constant(0.5), ["dm", *weighted], cap=10, lambda_=5.0
    )
    assert {"ips", "snips", "dr", "ips-capped", "switch-dr"} < set(weighted)
    for name in weighted:
        estimate, difference = result["zero", name], result.difference("zero", estimator=name)
        assert math.isnan(estimate.value), name
        assert all(map(math.isnan, (estimate.stderr, estimate.low, estimate.high, difference.value)))
    assert math.isnan(result["zero", "snips"].ess)
    assert result["zero", "dm"].value == 0.5
    assert "nan" in repr(result)


def test_a_limit_that_leaves_no_weight_is_not_a_lack_of_overlap():
    result = evaluate(world().table(50), drs.policies.Uniform(), drs.models.Constant(0.5), ["switch-dr"], lambda_=1e-9)
    assert result["switch-dr"].value == 0.5
    assert math.isnan(result["switch-dr"].stderr)


@pytest.mark.parametrize("reward", [0.0, 7.0])
def test_a_control_variate_that_does_not_vary_is_left_out(reward):
    """All weights are 0.5 / 0.8: IPS-CV is IPS, wherever the rewards are."""
    rng = np.random.default_rng(0)
    table = pa.table({"action": [0] * 50, "reward": reward + rng.random(50), "propensity": [0.8] * 50})
    names = ["ips", "ips-cv"]
    result = evaluate(drs.Log(table, actions=2), drs.policies.Uniform(), estimators=names)
    ips, cv = (result[name] for name in names)
    assert cv.value == pytest.approx(ips.value, rel=1e-12)
    assert cv.stderr == pytest.approx(ips.stderr, rel=1e-12)


def test_a_control_variate_takes_away_what_weights_explain():
    """Where the reward is the same for all, so is the estimate, whatever the weights."""
    table = world().table(200)
    constant = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(np.full(200, 3.25)))
    result = evaluate(constant, drs.policies.Softmax(world().taste), estimators=["ips", "ips-cv"])
    assert abs(result["ips"].value - 3.25) > 0.01
    assert result["ips-cv"].value == pytest.approx(3.25, rel=1e-12)
    assert result["ips-cv"].stderr < 1e-9
