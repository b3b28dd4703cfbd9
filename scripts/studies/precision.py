"""Evaluates the same policies in float32 and in float64. Cases differ in actions, features, scores and weights."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies import trials
from scripts.studies.results import Found
from scripts.studies.trials import Setting

PARTS = ()
ESTIMATORS = ("dm", "ips", "snips", "dr")
REQUIRED = 1e-5  # relative, on estimates, for weights up to 1e4
ROWS, QUICK_ROWS, FIT_ROWS = 200_000, 20_000, 20_000


class Case(NamedTuple):
    """A world, and policies whose scores have this standard deviation."""

    actions: int
    features: int
    scores: float
    least: float  # the smallest propensity: no weight is larger than 1 / least
    link: str = "ridge"
    offset: float = 0.0  # added to each feature, whose standard deviation is 1


CASES = (
    Case(2, 5, 1, 0.1),
    Case(10, 20, 1, 0.02),
    Case(10, 20, 1, 0.02, "logistic"),
    Case(10, 20, 10, 0.02),
    Case(10, 200, 1, 0.02),
    Case(10, 20, 1, 1e-4),
    Case(10, 20, 10, 1e-4),
    Case(100, 20, 1, 1e-4),
    Case(1000, 20, 1, 1e-4),
    Case(10, 20, 1, 0.02, offset=10),
    Case(10, 20, 1, 0.02, offset=15),
)


class Differences(NamedTuple):
    """The largest relative differences of estimates and of standard errors, and the largest weight."""

    values: dict[str, float]  # by estimator
    stderr: float
    weight: float


def run(parts: list[str], setting: Setting) -> Found:
    started = time.perf_counter()
    rows = setting.repetitions(ROWS, QUICK_ROWS)
    measured = [measure(case, rows, setting.seed) for case in CASES]
    worst = max(value for one in measured for value in one.values.values())
    found = Found({"precision": trials.made(setting, started)})
    found.figures = {"rows of a log": f"{rows:,}", "largest difference": f"{worst:.0e}", "required": f"{REQUIRED:.0e}"}
    head = ["K x d", "spread of scores", "mean of features", "model", "largest weight", *ESTIMATORS, "standard errors"]
    found.table(
        "The largest relative differences over three policies",
        head,
        [
            [
                f"{case.actions:,} x {case.features}",
                *(f"{case.scores:g}", f"{case.offset:g}", case.link, f"{one.weight:,.0f}"),
                *(f"{one.values[name]:.0e}" for name in ESTIMATORS),
                f"{one.stderr:.0e}",
            ]
            for case, one in zip(CASES, measured, strict=True)
        ],
    )
    return found


def measure(case: Case, rows: int = ROWS, seed: int = 0) -> Differences:
    world = drs.synth.World(case.actions, case.features, kinds=None, seed=seed)
    rows = max(1_000, rows * 10 // max(10, case.actions))
    table, fit = (_shifted(world.table(n, seed=seed + i), case.offset) for i, n in ((1, rows), (2, FIT_ROWS)))
    other = drs.Log(fit, actions=case.actions)
    drawn = case.least ** np.random.default_rng(seed).random(rows)  # only rounding matters here, not what is true
    place = table.schema.get_field_index("propensity")
    log = drs.Log(table.set_column(place, "propensity", pa.array(drawn)), actions=case.actions)
    model = (drs.models.Ridge() if case.link == "ridge" else drs.models.Logistic()).fit(other)
    policies = some_policies(world.taste, case.scores)
    single, double = (drs.evaluate(log, policies, model, list(ESTIMATORS), precision=p) for p in (None, "float64"))
    assert (single.precision, double.precision) == ("float32", "float64")
    values: dict[str, float] = {}
    stderr = 0.0
    for policy in policies:
        for name in ESTIMATORS:
            one, other_one = single[policy, name], double[policy, name]
            values[name] = max(values.get(name, 0.0), _apart(one.value, other_one.value))
            stderr = max(stderr, _apart(one.stderr, other_one.stderr))
    return Differences(values, stderr, max(double[policy, "ips"].max_weight for policy in policies))


def _shifted(table: pa.Table, offset: float) -> pa.Table:
    for i, name in enumerate(table.column_names):
        if name.startswith("x"):
            table = table.set_column(i, name, pa.array(table[name].to_numpy() + np.float32(offset)))
    return table


def some_policies(taste: Any, scores: float) -> dict[str, Any]:
    """Linear policies of every kind. A score w_a·x has the standard deviation |w_a|."""
    weights = scores * taste / np.linalg.norm(taste, axis=1, keepdims=True)
    return {
        "softmax": drs.policies.Softmax(weights),
        "argmax": drs.policies.Linear(weights),
        "ε": drs.policies.Epsilon(drs.policies.Linear(weights), 0.1),
    }


def _apart(one: float, other: float) -> float:
    return abs(one - other) / abs(other)
