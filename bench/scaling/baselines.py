"""The work of a point, the bare scan beside it, and the check that the work gives the textbook's numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import drstream as drs
from bench.common.baselines import PARITY_FLOAT32, agree, contexts, estimates, softmax, textbook
from bench.common.logs import LogFile
from bench.evaluation.baselines import head
from bench.scaling.cases import Point

ESTIMATORS = ("dm", "ips", "snips", "dr")
CHECKED_ROWS = 2_000
FITTED_ROWS = 20_000


@cache
def world(actions: int, features: int) -> drs.synth.World:
    return drs.synth.World(actions, features, kinds=None)  # make_log draws from the same world


@cache
def model(actions: int, features: int) -> drs.models.Ridge:
    return drs.models.Ridge().fit(drs.Log(world(actions, features).table(FITTED_ROWS, seed=99), actions=actions))


@cache
def policies(actions: int, features: int, count: int) -> dict[str, drs.policies.Softmax]:
    """The first is the world's; others have random weights."""
    this = world(actions, features)
    weights = np.random.default_rng(0).standard_normal((count, actions, features)) / np.sqrt(features)
    found = {f"softmax {i}": drs.policies.Softmax(weights[i]) for i in range(1, count)}
    return {"softmax 0": drs.policies.Softmax(this.taste, this.appeal), **found}


def run(point: Point, source: Any) -> drs.Evaluation:
    sizes = point.log.actions, point.log.features
    log = drs.Log(source, actions=point.log.actions)
    options = {"interval": "normal", "threads": point.threads}
    return drs.evaluate(log, policies(*sizes, point.policies), model(*sizes), ESTIMATORS, **options)


def check_parity(point: Point) -> None:
    log: LogFile = point.log
    first = head(log, CHECKED_ROWS)
    X = contexts(first)
    events = tuple(first[name].to_numpy() for name in ("action", "reward", "propensity"))
    fitted = model(log.actions, log.features)
    rhat = X @ fitted.coef_.T + fitted.intercept_
    found = {}
    for name, policy in policies(log.actions, log.features, point.policies).items():
        values = textbook(softmax(X @ policy.weights.T + policy.intercept), rhat, *events)
        found |= {(name, estimator): values[estimator] for estimator in ESTIMATORS}
    agree(estimates(run(point, first)), found, PARITY_FLOAT32)
    assert run(point, log.path).n == log.rows
