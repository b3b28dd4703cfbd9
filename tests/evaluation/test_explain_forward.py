"""Logs whose logging policy learned, together with explanations, wrong propensities, limits and Freedman's bound."""

import math

import numpy as np
import pytest

import drstream as drs
from tests.helpers import naive_parts, reference
from tests.helpers.adaptive import narrowing_log
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, K, M, evaluate, open_log
from tests.helpers.logs import arrays

FIRST = ROWS // 8
FORWARD = f"forward:{FIRST}"
BY_TIME = ["dr-stablevar", "dr-minvar"]
EXACT = {"rel": 1e-10, "abs": 1e-12}


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1)


@pytest.fixture(scope="module")
def narrowing():
    table, _ = narrowing_log(ROWS, seed=0)
    return drs.Log(table, context="x0", actions=2, propensities="mu")


def forward(alpha, table):
    """(n, K): predictions of a ridge regression of all blocks before that of an event, and 0 in the first block."""
    X, out, block = arrays(table, D)[0], np.zeros((ROWS, K)), np.array(reference.blocks(ROWS, FIRST))
    for b in range(1, block.max() + 1):
        rows = block == b
        out[rows] = M.Ridge(alpha).fit(open_log(table.filter(block < b), actions=K)).predict(X[rows])
    return out


@pytest.mark.parametrize("name", ["ips", "dr", "dr-capped"])
def test_parts_with_models_of_earlier_rows(table, name):
    told = drs.Explain(second_model=M.Ridge(10.0))
    result = evaluate(open_log(table), POLICY, M.Ridge(), [name], crossfit=FORWARD, cap=2, explain=told)
    X, a, r, p = arrays(table, D)
    pi, rows = POLICY.probabilities(X), range(ROWS)
    rhat = np.zeros((ROWS, K)) if name == "ips" else forward(1.0, table)
    second = forward(10.0, table)
    w = reference.weights(name, p, a, pi, cap=2)
    z = [w[k] * (r[k] - rhat[k][a[k]]) for k in rows]
    contexts, importance = naive_parts.measured([math.fsum(pi[k] * rhat[k]) for k in rows], z)
    error = math.fsum(w[k] * z[k] * (second[k][a[k]] - rhat[k][a[k]]) for k in rows) / ROWS
    found = result.explain()
    assert (found.contexts, found.importance) == pytest.approx((contexts, importance), **EXACT)
    assert (found.reward_noise, found.model_error) == pytest.approx((importance - error, error), **EXACT)
    assert found.notes[0].startswith("The second model is fitted on earlier events only, and predicts 0")
    known = result.explain(deterministic_rewards=True)
    assert known.notes == ()  # the second model is not asked


def test_with_estimated_propensities_a_note_says_when_the_parts_hold(table):
    told = drs.Explain(second_model=M.Ridge(10.0))
    options = {"propensity": M.Propensity(floor=0.01), "crossfit": FORWARD}
    result = evaluate(open_log(table), POLICY, M.Ridge(), ["ips", "dr"], explain=told, **options)
    for name in ("ips", "dr"):
        shown = result.explain(estimator=name)
        assert shown.contexts + shown.importance == pytest.approx(shown.variance)
        (note,) = shown.notes  # the second model knows all events: the first block is left out
        assert "only if the logging policy did not learn" in note
    assert [one.estimator for one in result.explanations] == ["ips", "dr"]


def test_with_logged_propensities_the_parts_are_shown(table):
    result = evaluate(open_log(table), POLICY, M.Ridge(), ["dr"], crossfit=FORWARD, explain=True)
    assert result.explain().importance > 0
    assert result.explain().notes == ()


# Estimators that weigh stretches of time


def run(log, estimators, **options):
    return evaluate(log, drs.policies.Constant(0), M.Ridge(), estimators, crossfit=FORWARD, **options)


def test_they_keep_their_bits_beside_all_else(narrowing):
    alone = run(narrowing, BY_TIME)
    options = {"interval": ["normal", "freedman"], "reward_range": (0, 1), "max_weight_bound": 1_000, "clamp": (0, 1)}
    for more in (
        {"explain": drs.Explain(second_model=M.Ridge(10.0))},
        {"propensity_error": 0.1},
        {"cap": "auto"},
        {"floor": "auto"},
        {"inflation": 1.2, "cap": 3},
    ):
        chosen = ["dr", *BY_TIME, *(["dr-capped"] if {"cap", "floor"} & set(more) else [])]
        result = run(narrowing, chosen, **more)
        for name in BY_TIME:
            assert (result[name].value, result[name].stderr) == (alone[name].value, alone[name].stderr)
    clamped = run(narrowing, ["dr", *BY_TIME], **options)
    assert (
        clamped["dr-minvar"].intervals["normal"]
        == run(narrowing, BY_TIME, interval="normal", clamp=(0, 1))["dr-minvar"].intervals["normal"]
    )


def test_limits_are_chosen_as_without_them(narrowing):
    for limit in ("cap", "floor"):
        beside = run(narrowing, ["dr-capped", *BY_TIME], **{limit: "auto"})
        alone = run(narrowing, ["dr-capped"], **{limit: "auto"})
        assert beside.limits == alone.limits
        assert beside["dr-capped"] == alone["dr-capped"]


def test_their_parts_are_not_known(narrowing):
    result = run(narrowing, ["dr", *BY_TIME], explain=True)
    assert [one.estimator for one in result.explanations] == ["dr"]
    assert result.unexplained == BY_TIME
    with pytest.raises(drs.DrstreamError, match="parts of 'dr-stablevar' are not known: it is not a mean of scores"):
        result.explain(estimator="dr-stablevar")


@pytest.mark.parametrize("beside", [[], ["dr"]])
def test_what_wrong_propensities_do_to_them_is_not_known(narrowing, beside):
    result = run(narrowing, [*beside, *BY_TIME], propensity_error=0.1)
    for name in BY_TIME:
        assert math.isfinite(result[name].value)
        assert math.isnan(result[name].low)
    (found,) = (f for f in result.findings if f.check == "propensity error")
    assert "What this does to dr-stablevar, dr-minvar is not known, so there is no interval." in found.message


def test_findings_on_propensities_do_not_need_the_weights_of_ips(table):
    """Capped estimators alone gather no weights ν / p, but their intervals are wider, too."""
    result = evaluate(open_log(table), POLICY, estimators="ips-capped", cap=2, propensity_error=0.1)
    (found,) = (f for f in result.findings if f.check == "propensity error")
    assert "wider on each side by" in found.message
    model = {"propensity": M.Propensity(), "crossfit": 2}
    result = evaluate(open_log(table), POLICY, estimators="ips-capped", cap=2, **model)
    assert "estimated propensities" in [f.check for f in result.findings]


def test_freedman_is_known_for_dr_and_not_for_them(narrowing):
    options = {"reward_range": (0, 1), "max_weight_bound": 1_000, "clamp": (0, 1)}
    result = run(narrowing, ["dr", *BY_TIME], interval=["freedman", "normal"], **options)
    assert math.isfinite(result["dr"].low)
    assert result["dr"].method == "freedman, constants measured"
    for name in BY_TIME:
        assert all(map(math.isnan, result[name].intervals["freedman"]))
        assert all(map(math.isfinite, result[name].intervals["normal"]))
    (found,) = (f for f in result.findings if f.check == "interval")
    assert found.message.startswith(
        "There are no freedman intervals of dr-stablevar, dr-minvar: such intervals are about"
    )
    assert found.message.endswith("choose another method: tails, normal, bootstrap, cluster.")
    for names, interval in ((["dr"], "freedman"), (BY_TIME, "normal")):
        assert "interval" not in [f.check for f in run(narrowing, names, interval=interval, **options).findings]


def test_freedman_with_models_of_earlier_rows_and_estimated_propensities(table):
    options = {"reward_range": (0, 1), "max_weight_bound": 1_000, "clamp": (0, 1), "crossfit": FORWARD}
    options |= {"propensity": M.Propensity(floor=0.01), "interval": "freedman"}
    with pytest.raises(drs.DrstreamError, match="needs a bound on the error of estimated propensities"):
        evaluate(open_log(table), POLICY, M.Ridge(), "dr", **options)
    result = evaluate(open_log(table), POLICY, M.Ridge(), "dr", propensity_error=0.2, **options)
    assert math.isfinite(result["dr"].low)
