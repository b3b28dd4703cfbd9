"""A log of clusters, a policy to evaluate on it, its value by the naive reference, and limits for every estimator."""

from functools import partial

import pytest

import drstream as drs
from drstream.evaluation.estimators import ALL
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

K, D = 4, 3
ROWS = 400 if PLAIN else 4_000
WORLD = world(kinds=None)
POLICY = drs.policies.Softmax(WORLD.taste)
M = drs.models
BY_TIME = [name for name, e in ALL.items() if e.weight and e.weight.power]  # need the propensities of all actions
BALANCED = [name for name, e in ALL.items() if e.weight and e.weight.balanced]  # need those of all loggers
MARGINAL = [name for name, e in ALL.items() if e.weight and e.weight.marginal]  # and these need categories, too
CATEGORIES = {0: "even", 1: "odd", 2: "even", 3: "odd"}
LIMITS = {  # a value for each parameter of `evaluate` that a weight takes
    "cap": 5.0,
    "floor": 0.05,
    "inflation": 1.1,
    "lambda_": 3.0,
}


evaluate = partial(drs.evaluate, precision="float64")  # as exact as the naive reference, on contexts in float32


def limits(*names, **changes):
    """Those of LIMITS that these estimators take, and perhaps categories of four actions."""
    taken = {p for name in names if ALL[name].weight for p, _ in ALL[name].weight.parameters}
    found = {name: value for name, value in {**LIMITS, **changes}.items() if name in taken}
    return {**found, "embedding": CATEGORIES} if set(names) & set(MARGINAL) else found


def open_log(table, **options):
    return cut_log(table, context="x?", **options)


def values(table, rhat, p=None, names=("dm", "ips", "snips", "dr")):
    X, a, r, logged = arrays(table, D)
    pi = POLICY.probabilities(X)
    return {name: reference.estimate(name, r, logged if p is None else p, a, pi, rhat)[0] for name in names}


def agree(result, wanted, relative=1e-10):
    for name, value in wanted.items():
        assert result[name].value == pytest.approx(value, rel=relative)
