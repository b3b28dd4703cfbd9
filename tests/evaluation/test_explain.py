"""Where the variance of estimates comes from: naive forms, exact values, bits, notes and errors."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_parts as naive
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS = 300 if PLAIN else 3_000
WORLD = world(kinds=40)
POLICY = drs.policies.Softmax(WORLD.taste * 2)
LIMITS = {"cap": 1.5, "floor": 0.1, "lambda_": 3.0}
EXACT = {"rel": 1e-11, "abs": 1e-13}
ESTIMATORS = ["ips", "dr", "ips-capped", "dr-capped", "dros", "switch-dr", "dm"]


def model_of(seed):
    return drs.models.Ridge().fit(drs.Log(WORLD.table(300, seed=seed)))


FIRST, SECOND = model_of(1), model_of(2)


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=3)


@pytest.fixture(scope="module")
def result(table):
    told = drs.Explain(second_model=SECOND)
    return evaluate(drs.Log(table), POLICY, FIRST, ESTIMATORS, **LIMITS, explain=told)


def events(table, name):
    """b, z, w, w₀ and the errors r - r̂ and r̃ - r̂ of single events; for IPS, r̂ = 0."""
    X, a, r, p = arrays(table, 3)
    pi = POLICY.probabilities(X)
    rows = range(len(r))
    rhat, second = FIRST.predict(X), SECOND.predict(X)
    if name.startswith("ips"):
        rhat = np.zeros_like(rhat)
    given = {k: v for k, v in LIMITS.items() if k in (("cap", "floor") if "capped" in name else ("lambda_",))}
    w = [0.0] * len(r) if name == "dm" else reference.weights(name, p, a, pi, **given)
    whole = reference.weights("ips", p, a, pi)
    b = [math.fsum(pi[k] * rhat[k]) for k in rows]
    miss = [r[k] - rhat[k][a[k]] for k in rows]
    gap = [second[k][a[k]] - rhat[k][a[k]] for k in rows]
    return b, [w[k] * miss[k] for k in rows], w, whole, miss, gap


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parts_are_those_of_single_events(result, table, name):
    b, z, w, whole, miss, gap = events(table, name)
    contexts, importance = naive.measured(b, z)
    found = result.explain(estimator=name)
    score = [x + y for x, y in zip(b, z, strict=True)]
    assert found.variance == pytest.approx(reference.standard_error(score) ** 2 * (ROWS - 1), **EXACT)
    assert (found.contexts, found.importance) == pytest.approx((contexts, importance), **EXACT)
    assert found.contexts + found.importance == pytest.approx(found.variance, **EXACT)
    error = math.fsum(v * v * m * g for v, m, g in zip(w, miss, gap, strict=True)) / ROWS
    assert (found.reward_noise, found.model_error) == pytest.approx((importance - error, error), **EXACT)
    if name in ("ips", "dr", "dm"):
        assert (found.bias, found.bias_stderr) == (0, 0)
    else:
        cut = [(v - v0) * m for v, v0, m in zip(w, whole, miss, strict=True)]
        assert found.bias == pytest.approx(reference.mean(cut), **EXACT)
        assert found.bias_stderr == pytest.approx(reference.standard_error(cut), **EXACT)
        twin = result["ips" if name == "ips-capped" else "dr"].value
        assert result[name].value - twin == pytest.approx(found.bias, **EXACT)


def test_shares_sum_to_one_and_widths_add_in_squares(result):
    found = result.explain(estimator="dr")
    assert found.share("contexts") + found.share("importance") == pytest.approx(1)
    assert found.share("reward_noise") + found.share("model_error") == pytest.approx(found.share("importance"))
    assert found.width == result["dr"].high - result["dr"].low
    assert math.hypot(found.part_width("contexts"), found.part_width("importance")) == pytest.approx(found.width)
    assert result["dr"].stderr == pytest.approx(math.sqrt(found.variance / (ROWS - 1)))


def test_the_users_word_tells_noise_from_error(table):
    result = evaluate(drs.Log(table), POLICY, FIRST, ["dr", "ips"], explain=True)
    for name in ("dr", "ips"):
        found = result.explain(estimator=name)
        assert math.isnan(found.reward_noise)
        assert math.isnan(found.model_error)
        told = result.explain(estimator=name, deterministic_rewards=True)
        assert (told.reward_noise, told.model_error) == (0, told.importance)
    told = evaluate(drs.Log(table), POLICY, FIRST, ["dr"], explain=drs.Explain(deterministic_rewards=True))
    assert told.explain().reward_noise == 0
    assert math.isnan(told.explain(deterministic_rewards=False).reward_noise)


def test_ips_and_dm_and_dr_beside_sndr_cost_nothing(table):
    """DR alone has no parts, and says what to do."""
    plain = evaluate(drs.Log(table), POLICY, FIRST, ["ips", "dm", "dr"])
    assert plain.explain(estimator="ips").importance > 0
    assert plain.explain(estimator="dm").importance == 0
    assert plain.explanations == []
    assert "explanations" not in plain.to_dict()
    with pytest.raises(drs.DrstreamError, match=r"did not gather .* 'dr' .*: pass explain=True to evaluate"):
        plain.explain(estimator="dr")
    beside = evaluate(drs.Log(table), POLICY, FIRST, ["dr", "sndr"])
    asked = evaluate(drs.Log(table), POLICY, FIRST, ["dr"], explain=True)
    assert repr(beside.explain(estimator="dr")) == repr(asked.explain(estimator="dr"))  # NaN is not equal to itself
    assert asked["dr"] == plain["dr"]


def test_threads_and_batch_sizes_do_not_change_a_bit(result, table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 5)
    told = drs.Explain(second_model=SECOND)
    found = [
        evaluate(
            cut_log(tmp_path / "log.parquet", batch_size=size),
            POLICY,
            FIRST,
            ESTIMATORS,
            **LIMITS,
            explain=told,
            threads=threads,
        ).to_dict()["explanations"]
        for threads, size in ((1, 65_536), (3, 65_536), (2, 77))
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(ESTIMATORS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_measured_parts_agree_with_exact_ones(seed):
    """Means over 60 logs of 4,000 events, within 4 standard errors, with a wrong model and with a cap."""
    w = drs.synth.World(n_actions=4, n_features=3, kinds=30, seed=seed)
    policy = drs.policies.Softmax(w.taste * 2)
    model = drs.models.from_function(lambda X: 0.5 * w.reward(X) + 0.1)
    truth = drs.models.from_function(w.reward)
    rows, logs = 4_000, 60
    limits = {"cap": 2.0, "floor": 0.1}
    rhat = 0.5 * w.reward(w.kinds) + 0.1
    exact = {
        "dr": (w.variance(policy, rhat), w.bias(policy, rhat)),
        "ips": (w.variance(policy), w.bias(policy)),
        "dr-capped": (w.variance(policy, rhat, **limits), w.bias(policy, rhat, **limits)),
        "ips-capped": (w.variance(policy, **limits), w.bias(policy, **limits)),
        "dm": (w.variance(policy, rhat, math.inf), 0.0),
    }
    found = {name: [] for name in exact}
    for log in range(logs):
        table = w.table(rows, seed=1_000 * seed + log)
        told = drs.Explain(second_model=truth)
        result = evaluate(drs.Log(table), policy, model, list(exact), **limits, explain=told, threads=1)
        for name, seen in found.items():
            e = result.explain(estimator=name)
            seen.append([e.variance, e.contexts, e.importance, e.reward_noise, e.model_error, e.bias])
    for name, (parts, bias) in exact.items():
        wanted = [parts.total, parts.contexts, parts.importance, parts.t3, parts.t4, bias]
        mean = np.mean(found[name], axis=0)
        error = np.std(found[name], axis=0, ddof=1) / math.sqrt(logs)
        assert (abs(mean - wanted) <= 4 * error + 1e-3 * np.abs(wanted) + 1e-12).all(), (name, mean, wanted, error)


@pytest.mark.slow
def test_the_variance_is_that_of_the_estimate_over_logs():
    """300 logs: the variance of the estimate is 1/n of the exact one, within 4 standard errors of a variance."""
    w = drs.synth.World(n_actions=3, n_features=2, kinds=10, seed=5)
    policy, rows, logs = drs.policies.Softmax(w.taste), 500, 300
    model = drs.models.from_function(lambda X: 0.5 * w.reward(X) + 0.1)
    values = [
        evaluate(drs.Log(w.table(rows, seed=s)), policy, model, ["dr"], threads=1)["dr"].value for s in range(logs)
    ]
    wanted = w.variance(policy, 0.5 * w.reward(w.kinds) + 0.1).total / rows
    assert np.var(values, ddof=1) == pytest.approx(wanted, rel=4 * math.sqrt(2 / logs))


def test_with_estimated_propensities_a_note_says_when_the_parts_hold(table):
    result = evaluate(
        drs.Log(table), POLICY, drs.models.Ridge(), ["dr"], propensity=drs.models.Propensity(), crossfit=2, explain=True
    )
    assert "only if the logging policy did not learn" in result.explain().notes[0]
    other = evaluate(drs.Log(table), POLICY, FIRST, ["dm"], explain=True)
    assert other.explain().notes == ()  # DM needs no propensities


def test_second_models_are_cross_fitted_too(table):
    told = drs.Explain(second_model=drs.models.Constant(0.2))
    result = evaluate(drs.Log(table), POLICY, drs.models.Ridge(), ["dr"], crossfit=2, explain=told)
    assert math.isfinite(result.explain().model_error)
    told = drs.Explain(second_model=drs.models.Ridge(alpha=10))
    result = evaluate(drs.Log(table), POLICY, FIRST, ["dr"], crossfit=2, explain=told)
    assert math.isfinite(result.explain().model_error)
    known = drs.models.Ridge().fit(log := drs.Log(table))
    with pytest.warns(drs.DrstreamWarning, match="second reward model was fitted on events"):
        evaluate(log, POLICY, FIRST, ["dr"], explain=drs.Explain(second_model=known))


def test_a_second_model_of_ips_alone_and_one_that_predicts_nonsense(table):
    told = drs.Explain(second_model=SECOND)
    result = evaluate(drs.Log(table), POLICY, None, ["ips"], explain=told)
    assert math.isfinite(result.explain(estimator="ips").model_error)
    wrong = drs.models.from_function(lambda X: np.full((len(X), 4), np.nan))
    with pytest.raises(drs.ModelError, match="nan"):
        evaluate(drs.Log(table), POLICY, FIRST, ["dr"], explain=drs.Explain(second_model=wrong))
    clamped = evaluate(drs.Log(table), POLICY, FIRST, ["dr"], clamp=(0, 1), explain=told)
    assert math.isfinite(clamped.explain().model_error)


def test_segments_and_pickles_have_explanations_of_their_own(table):
    named = table.append_column("country", pa.array(np.where(np.arange(ROWS) % 3, "DE", "FR")))
    result = evaluate(drs.Log(named), POLICY, FIRST, ["dr"], by="country", explain=True)
    one = result.segment(country="FR").explain()
    assert one.n == ROWS // 3
    rows = np.flatnonzero(np.arange(ROWS) % 3 == 0)
    alone = evaluate(drs.Log(table.take(rows)), POLICY, FIRST, ["dr"], explain=True).explain()
    assert one.importance == pytest.approx(alone.importance, rel=1e-10)
    assert repr(pickle.loads(pickle.dumps(result)).explain()) == repr(result.explain())


def test_notes_on_clusters_and_grids(table):
    named = table.append_column("user", pa.array(np.arange(ROWS) // 10))
    found = evaluate(drs.Log(named), POLICY, FIRST, ["dr"], cluster="user", explain=True).explain()
    assert "about single events" in found.notes[0]
    found = evaluate(drs.Log(table), POLICY, FIRST, ["dros"], lambda_="auto", explain=True).explain()
    assert "the choice of the limit from a grid" in found.notes[0]


def test_where_only_contexts_vary_importance_is_0():
    """Rewards are what the context says, and the model knows it: only contexts vary."""
    rng = np.random.default_rng(0)
    x = rng.random(ROWS)
    table = pa.table({"x0": x, "action": rng.integers(0, 2, ROWS), "reward": x, "propensity": np.full(ROWS, 0.5)})
    model = drs.models.from_function(lambda X: np.repeat(np.asarray(X, float)[:, :1], 2, axis=1))
    found = evaluate(drs.Log(table), drs.policies.Constant(1), model, ["dr"], explain=True).explain()
    assert found.importance == pytest.approx(0, abs=1e-12)


def test_text_and_json(result):
    text = str(result.explain(estimator="dr-capped"))
    for word in ("contexts", "importance", "reward noise", "model error", "bias of the limit", "nan"):
        assert (word in text) == (word != "nan")
    assert "width" in str(result.explain(estimator="dm"))
    rows = result.to_dict()["explanations"]
    assert [row["estimator"] for row in rows] == ESTIMATORS
    assert rows[1]["parts"][0]["part"] == "contexts"
    assert "reward_noise" in result.to_json()


def test_errors(table, result):
    log = drs.Log(table)
    with pytest.raises(drs.DrstreamError, match=r"explain='yes': it must be True or False, or drs.Explain\(...\)"):
        evaluate(log, POLICY, explain="yes")
    snips = evaluate(log, POLICY, estimators=["snips", "ips"], explain=True)
    with pytest.raises(drs.DrstreamError, match="parts of 'snips' are not known: it is not a mean of scores"):
        snips.explain(estimator="snips")
    assert [e.estimator for e in snips.explanations] == ["ips"]
    rated = drs.Log(table.append_column("rate", pa.array(np.full(ROWS, 0.5))), sample_rate="rate")
    sampled = evaluate(rated, POLICY, estimators=["ips"], explain=True)
    with pytest.raises(drs.DrstreamError, match="not known for a down-sampled log"):
        sampled.explain(estimator="ips")
    assert sampled.explanations == []
    two = evaluate(log, {"a": POLICY, "b": drs.policies.Uniform()}, estimators=["ips"])
    with pytest.raises(KeyError, match="name a policy: 'a', 'b'"):
        two.explain()
    with pytest.raises(KeyError, match="no estimator 'x'"):
        result.explain(estimator="x")
