"""Baselines for sparse contexts, and the check that both sides compute the same numbers."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import scipy.sparse

import drstream as drs
from bench.common import racing
from bench.common.baselines import PARITY, SCAN, Estimates, agree, estimates, scan, softmax, textbook
from bench.replaying import cases as replaying
from bench.replaying.baselines import averages
from bench.sparse import cases
from bench.sparse.log import DIM, model


def prepare(case: cases.Case) -> Callable[[], Any]:
    """Does what needs no timing, and returns the run that is timed."""
    if case.baseline == cases.SCIPY:
        return lambda: evaluate_scipy(case)
    if case.baseline == cases.LOOP:
        head = first_events(case)
        return lambda: replay_by_hand(head)
    assert case.baseline == SCAN
    return lambda: scan(case.log)


def first_events(case: cases.Case) -> pa.Table:
    return ds.dataset(case.log.path).head(case.baseline_rows).combine_chunks()


def check_parity(case: cases.Case, baseline: Callable[[], Any]) -> None:
    """Runs before the clock starts. Against the bare scan, it only counts events; other cases check the numbers."""
    theirs = baseline()
    if case.baseline == cases.SCIPY:
        agree(estimates(cases.evaluate(case.log.path)), theirs)
    elif case.baseline == cases.LOOP:
        ours = averages(cases.replay(first_events(case)))
        assert len(ours) == len(theirs) > 0
        np.testing.assert_allclose(ours, theirs, rtol=PARITY)
    else:
        result = cases.TASKS[case.task](case.log.path)
        seen = result.n if isinstance(result, drs.Evaluation) else result.events
        assert seen == theirs == case.log.rows


def evaluate_scipy(case: cases.Case) -> Estimates:
    """Reads the whole log into a csr_array, takes two products, and applies the textbook's formulas."""
    pa.set_cpu_count(racing.THREADS)
    table = pq.read_table(case.log.path, columns=case.log.columns).combine_chunks()
    X, events = as_csr(table), (table[name].to_numpy() for name in ("action", "reward", "propensity"))
    policy = cases.policy()
    pi = softmax(X @ policy.weights.T + policy.intercept)
    rhat = X @ model().coef_.T + model().intercept_
    values = textbook(pi, rhat, *events)
    return {("softmax", estimator): values[estimator] for estimator in cases.ESTIMATORS}


def as_csr(table: pa.Table) -> scipy.sparse.csr_array:
    indices, values = (table[name].combine_chunks() for name in ("indices", "values"))
    parts = values.flatten().to_numpy(), indices.flatten().to_numpy(), indices.offsets.to_numpy()
    return scipy.sparse.csr_array(parts, shape=(len(table), DIM))


def replay_by_hand(table: pa.Table) -> list[float]:
    """DR-ns of the ε-greedy learner, event by event, with the log in memory. Returns the average of each replicate."""
    X = as_csr(table)
    starts, at, values = X.indptr.tolist(), X.indices, X.data.astype(np.float64)
    events = zip(*(table[name].to_pylist() for name in ("action", "reward", "propensity")), strict=True)
    uniforms = drs.uniforms(0, 0, len(table)).tolist()
    coef, intercept = np.ascontiguousarray(model().coef_.T), model().intercept_
    epsilon, rate = cases.LEARNER.epsilon, cases.LEARNER.learning_rate
    weights, biases = np.zeros_like(coef), np.zeros_like(intercept)
    ratios: list[float] = []  # Q, sorted
    t, c, value, weight = 0, 1.0, 0.0, 0.0
    found = []
    for i, (a, r, p) in enumerate(events):
        places = at[starts[i] : starts[i + 1]]
        x = values[starts[i] : starts[i + 1]]
        scores, rhat = x @ weights[places] + biases, x @ coef[places] + intercept
        best = scores == scores.max()
        pi = epsilon / len(scores) + (1 - epsilon) / best.sum() * best
        value += c * (pi @ rhat + pi[a] / p * (r - rhat[a]))
        weight += c
        insort(ratios, p / pi[a])
        if uniforms[i] <= c * pi[a] / p:
            pace = rate * (r - scores[a]) / (1 + rate * (1 + x @ x))
            weights[places, a] += pace * x
            biases[a] += pace
            t += 1
            c = min(1.0, ratios[max(1, math.ceil(replaying.Q * len(ratios))) - 1])
            if t == replaying.HORIZON:
                found.append(value / weight)
                weights[:], biases[:] = 0.0, 0.0
                t, c, value, weight = 0, 1.0, 0.0, 0.0
                ratios = []
    return found
