"""The logging policy of candidates as a conditional logit: against a plain minimiser, by fold, and in estimates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.optimize

import drstream as drs
from drstream.models import choice_fit
from drstream.running.execution import Workers
from tests.helpers import naive_candidates as naive
from tests.helpers import reference
from tests.helpers.candidate_logs import DZ, NAMES, D, events, log_of, table_of
from tests.helpers.cut import cut_log
from tests.helpers.passes import PLAIN, not_plain

pytestmark = pytest.mark.covers

P, M = drs.policies, drs.models
FOUND = events(rows=250, seed=8)


def minimised(rows, position, C):
    """Weights of rows [z, x z] that minimise C Σ -log softmax + |w|² / 2."""

    def loss(w):
        total, slope = w @ w / 2, w.copy()
        for one, taken in zip(rows, position, strict=True):
            scores = one @ w
            exps = np.exp(scores - scores.max())
            total -= C * np.log(exps[taken] / exps.sum())
            slope += C * (exps / exps.sum() @ one - one[taken])
        return total, slope

    return scipy.optimize.minimize(loss, np.zeros(rows[0].shape[1]), jac=True, tol=1e-12).x


def choosing(found, interactions):
    """The rows of candidates without the context alone, which changes no choice."""
    return [one[:, D:] for one in naive.pairs(found, interactions)]


@pytest.mark.parametrize("interactions", [False, True])
@pytest.mark.parametrize("C", [1.0, 0.1])
def test_it_is_the_conditional_logit(interactions, C):
    rows = choosing(FOUND, interactions)
    wanted = minimised(rows, FOUND["position"], C)
    model = M.Propensity(C, interactions=interactions).fit(log_of(FOUND))
    assert model.coef_[0, :D].tolist() == [0, 0]
    assert model.coef_[0, D:] == pytest.approx(wanted, abs=1e-5)
    assert model.feature_names_[: D + DZ] == ["x0", "x1", "z[0]", "z[1]", "z[2]"]
    assert model.n_passes_ < 10


def test_estimates_with_it_by_fold():
    table, candidates = table_of(FOUND)
    log = drs.Log(table, context="x?", candidates=candidates, propensity=None)
    rows, fold = choosing(FOUND, False), log.folds(3).of(np.arange(250).view(np.uint64))
    p = np.empty(250)
    for f in range(3):
        others = [i for i in range(250) if fold[i] != f]
        w = minimised([rows[i] for i in others], [FOUND["position"][i] for i in others], 1.0)
        for i in np.flatnonzero(fold == f):
            p[i] = naive.softmax([(rows[i] @ w).tolist()])[0][FOUND["position"][i]]
    result = drs.evaluate(log, P.Uniform(), propensity=M.Propensity(), crossfit=3, estimators=["ips"])
    wanted = reference.estimate("ips", FOUND["reward"], p, FOUND["position"], naive.uniform(FOUND))
    assert result["ips"].value == pytest.approx(wanted[0], rel=1e-5)
    assert result.estimated_propensities
    assert result.crossfit == 3
    assert result.models.crossfitted == (False, True)
    both = drs.evaluate(log, P.Uniform(), M.Ridge(), propensity=M.Propensity(interactions=True), crossfit=3)
    assert both.models.crossfitted == (True, True)
    floored = drs.evaluate(log, P.Uniform(), propensity=M.Propensity(floor=0.5), crossfit=3, estimators=["ips"])
    wanted = reference.estimate("ips", FOUND["reward"], np.maximum(p, 0.5), FOUND["position"], naive.uniform(FOUND))
    assert floored["ips"].value == pytest.approx(wanted[0], rel=1e-5)


def test_on_earlier_rows_only():
    table, candidates = table_of(FOUND)
    log = drs.Log(table, context="x?", candidates=candidates, propensity=None)
    result = drs.evaluate(log, P.Uniform(), propensity=M.Propensity(), crossfit="forward:100", estimators=["ips"])
    assert result.n == 150
    assert result.skipped == {"before the first propensity model": 100}


def test_it_is_a_policy_and_is_saved(tmp_path):
    model = M.Propensity(interactions=True).fit(log_of(FOUND))
    model.save(tmp_path / "model")
    again = M.load(tmp_path / "model")
    other = log_of(events(rows=100, seed=9))
    values = [drs.evaluate(other, m, estimators=["ips"])["ips"].value for m in (model, again)]
    assert values[0] == values[1]
    weights = P.Softmax(model.coef_[0, : D + DZ], interactions=model.coef_[0, D + DZ :].reshape(D, DZ))
    assert values[0] == pytest.approx(drs.evaluate(other, weights, estimators=["ips"])["ips"].value, rel=1e-12)
    with pytest.raises(drs.ModelError, match="gives probabilities on a log only"):
        model.probabilities(np.zeros((1, D)))
    plain = drs.Log(
        pa.table({"action": [0, 1], "reward": [0.0, 1.0], "x0": [0.0, 1.0], "x1": [1.0, 0.0]}), propensity=None
    )
    with pytest.raises(drs.ModelError, match="was fitted on a log with candidates="):
        drs.evaluate(plain, P.Uniform(), propensity=model)


def test_steps_that_are_too_long_are_halved(monkeypatch):
    """Newton's first step overshoots if features are large and choices nearly certain."""
    rng = np.random.default_rng(0)
    found = events(rows=60, seed=3)
    found["features"] = (found["features"] * 30).astype(np.float32)
    best = naive.argmax(naive.scores(found, [0, 0, 1, 0, 0]))
    found["position"] = [p.index(1.0) if rng.uniform() < 0.9 else 0 for p in best]
    wanted = minimised(choosing(found, False), found["position"], 1.0)
    assert M.Propensity().fit(log_of(found)).coef_[0, D:] == pytest.approx(wanted, abs=1e-4)
    monkeypatch.setattr(choice_fit, "MOST_STEPS", 1)
    with pytest.raises(drs.ModelError, match="did not converge in 1 passes over 60 events"):
        M.Propensity().fit(log_of(found))
    monkeypatch.setattr(choice_fit, "MOST_WEIGHTS", 4)
    with pytest.raises(drs.ModelError, match="9 weights are too many, at most 4"):
        M.Propensity(interactions=True).fit(log_of(found))


def test_a_step_that_makes_the_loss_larger_is_halved():
    problem = choice_fit.Problem(log_of(FOUND), 1.0, False, None, Workers.of())
    fit = problem.solve()
    asked = next(fit)
    sums = asked.task.start()
    reader = log_of(FOUND).reader(action=True, candidates=True)
    (batch,) = [b for part in log_of(FOUND).parts(reader.columns) for b in reader.batches(part, Counter())]
    asked.task.add(sums, batch)
    first = fit.send(sums).task.theta
    worse = asked.task.start()
    choice_fit.SumsTask(first * np.inf).add(worse, batch)
    assert worse.loss == np.inf
    assert (fit.send(worse).task.theta == first / 2).all()
    huge = events(rows=20, kind=np.float64)
    huge["features"] = huge["features"] * 1e200
    with pytest.raises(drs.ModelError, match="products of features of candidates are not finite"):
        M.Propensity().fit(log_of(huge))


def test_an_empty_log():
    table, candidates = table_of(FOUND)
    with pytest.raises(drs.LogError, match="there is no event to fit Propensity on"):
        M.Propensity().fit(drs.Log(table, context="x?", candidates=candidates, filter="reward > 5"))


def test_threads_and_batches_give_the_same_bits(tmp_path):
    table, candidates = table_of(events(rows=200 if PLAIN else 20_000, seed=2))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=table.num_rows // 3)

    def fit(batch_size, threads):
        log = cut_log(tmp_path / "log.parquet", candidates=candidates, batch_size=batch_size)
        return M.Propensity(interactions=True).fit(log, threads=threads).coef_.tobytes()

    assert fit(None, 1) == fit(77, 2) == fit(5000, 2)


@not_plain
def test_weights_with_estimated_propensities_find_the_truth():
    rng = np.random.default_rng(4)
    found = events(rows=30_000, seed=4, most=6)
    w = rng.normal(size=D + DZ)
    mu = naive.softmax(naive.scores(found, w))
    found["position"] = [int(rng.choice(len(p), p=p)) for p in mu]
    likes = found["features"] @ rng.normal(size=DZ)
    chance = 1 / (1 + np.exp(-likes))
    found["reward"] = np.array(
        [float(rng.uniform() < chance[s[a]]) for s, a in zip(found["sets"], found["position"], strict=True)]
    )
    truth = np.mean([chance[s].mean() for s in found["sets"]])
    table, candidates = table_of(found, "items")
    log = drs.Log(table, context="x?", candidates=candidates, propensity=None)
    result = drs.evaluate(log, P.Uniform(), M.Ridge(), propensity=M.Propensity(), crossfit=2)
    for name in ("ips", "snips", "dr"):
        assert abs(result[name].value - truth) < 4 * result[name].stderr, name
    assert abs(result.baseline.value - truth) > 10 * result["dr"].stderr
    assert candidates.items.names == tuple(NAMES)
