"""The default interval of replay contains the truth of online runs: a fast part of `scripts/study replay`.

Shares are over logs with fixed seeds. A share of 0.95 over n independent runs has a standard error of sqrt(0.05 / n);
runs of several learners on one log are not independent, so the bounds leave three to four of these errors.
"""

import functools

import numpy as np
import pytest

from scripts.studies.replay.online import truths
from scripts.studies.replay.simulating import AUTO, measure
from scripts.studies.replay.worlds import Cell

pytestmark = pytest.mark.slow

LOGS = 20
EASY, HARD = Cell(10, 100, "softmax"), Cell(20, 100, "uniform")


@functools.cache
def rows(cell):
    return [row for log in range(LOGS) for row in measure(cell, 7, log, with_q=True)]


@functools.cache
def truth(actions, horizon, learner):
    (found,) = (row for row in truths(actions, learner) if row["horizon"] == horizon)
    assert found["error"] < 0.02 * found["truth"]
    return found["truth"]


def covered(cell, method, learner=None):
    """Whether each run's interval contains the truth."""
    some = [row for row in rows(cell) if row["method"] == method and learner in (None, row["learner"])]
    return np.array([r["low"] <= truth(cell.actions, cell.horizon, r["learner"]) <= r["high"] for r in some])


def errors(cell, method):
    """Root mean squared error of each learner."""
    found = {}
    for row in rows(cell):
        if row["method"] == method:
            found.setdefault(row["learner"], []).append(
                row["value"] - truth(cell.actions, cell.horizon, row["learner"])
            )
    return {learner: float(np.sqrt(np.mean(np.square(off)))) for learner, off in found.items()}


@pytest.mark.parametrize("cell", [EASY, HARD], ids=str)
def test_the_default_covers(cell):
    found = covered(cell, AUTO)
    assert len(found) == 5 * LOGS
    assert found.mean() >= 0.88  # 0.95 - 3.2 * sqrt(0.05 / 100)
    for learner in ("LinUCB", "EpsilonGreedy", "UCB1", "SquareCB", "Python"):
        assert covered(cell, AUTO, learner).mean() >= 0.8  # 0.95 - 3 * sqrt(0.05 / 20)


def test_the_former_default_does_not():
    """q counts events that the policy does not take. A q of all events is ten times as large for those that matter."""
    assert covered(EASY, "q 0.01, c_max 1", "LinUCB").mean() < 0.8
    assert covered(EASY, "q 0.05, c_max 1", "LinUCB").mean() < 0.6
    assert covered(EASY, AUTO, "LinUCB").mean() >= 0.9


@pytest.mark.parametrize("cell", [EASY, HARD], ids=str)
def test_pooled_simulations_are_no_worse_than_the_best_of_them(cell):
    pooled = errors(cell, AUTO)
    methods = [m for m in dict.fromkeys(row["method"] for row in rows(cell)) if m.startswith("bias")]
    best = {learner: min(errors(cell, m)[learner] for m in methods) for learner in pooled}
    assert np.mean([pooled[learner] / best[learner] for learner in pooled]) < 1.25
