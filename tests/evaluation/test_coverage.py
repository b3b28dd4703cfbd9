"""Default intervals cover the truth, or the result says that they may not: a fast part of `scripts/study coverage`.

Seeds are fixed, and are not those of the study. A cell fails if its coverage is below 93 % by more than three standard
errors of that share: `Cell.fails`. By chance, this happens to one in 700 cells whose true coverage is 93 %.
"""

import math
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from drstream.findings import LOOK, STOP
from drstream.intervals.anytime import anytime_path
from scripts.studies.coverage.measure import DEFAULT, NORMAL, measure
from scripts.studies.coverage.summary import LOOKS, STOPS, cells_of
from scripts.studies.coverage.world import ALL_GAINS, ALL_VALUES, PLAIN_BEST
from scripts.studies.coverage.worlds import WORLDS

pytestmark = pytest.mark.slow

LOGS, SEED = 100, 20


@cache
def noted(name, logs=LOGS):
    return measure(name, WORLDS[name], SEED, 0, logs)


def cells(name, method=DEFAULT, logs=LOGS):
    table = pa.Table.from_pylist(noted(name, logs).rows)
    found = [cell for cell in cells_of(name, table) if cell.method == method and cell.what != PLAIN_BEST]
    assert found
    return found


def first_log(name):
    world = WORLDS[name]
    return world, next(iter(world.draw(np.random.default_rng([SEED, list(WORLDS).index(name)]), 1)))


COVERED = {  # world: the largest median width over its cells, relative to the oracle's
    # benign, and few rows
    "benign-2000": 1.2,
    "benign-200": 1.5,
    "heavy-2000": 2.0,
    # revenue, with and without a range
    "ln15-2000": 1.35,
    "ln15-20000": 1.2,
    "ln15-2000-range": 1.5,
    "ln15-20000-range": 1.2,
    "pareto22-2000-range": 1.5,
    "minimal-ln15-2000": 1.5,
    "minimal-ln15-10000": 1.35,
    # few clicks
    "clicks-3": 2.0,
    "clicks-10": 1.6,
    "non-clicks": 2.0,
    # users of unequal sizes
    "users-150": 1.5,
    "users-150-rare": 2.5,
    "users-1000": 1.35,
    "users-1000-revenue": 1.35,
    # logging policies that learn
    "linucb-300": 1.5,
    "greedy-500": 1.5,
}


@pytest.mark.parametrize("name", COVERED)
def test_the_default_covers_or_a_finding_says_that_it_may_not(name):
    found = cells(name)
    assert not [cell for cell in found if cell.silent or (cell.fails and cell.quiet)]
    assert np.median([cell.width for cell in found]) <= COVERED[name]


@pytest.mark.parametrize("name", ["ln15-2000", "clicks-3"])
def test_normal_intervals_do_not_cover(name):
    """That is why the default differs."""
    assert any(cell.fails for cell in cells(name, NORMAL))


def test_differences_with_few_clicks_are_covered_on_both_sides():
    """A share of 5 % on one side has a standard error of 2.2 %."""
    for name in ("clicks-3", "clicks-5", "clicks-10"):
        for cell in cells(name):
            if " - " in cell.what:
                assert max(cell.below, cell.above) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / LOGS), cell


def test_rows_of_users_without_a_cluster_are_a_finding():
    """150 users of unequal sizes, and a column `user_id`."""
    found = cells("users-150-unsaid")
    assert any(cell.fails for cell in found)
    assert not any(cell.silent for cell in found)


def test_a_wrong_propensity_model_stops():
    """It lacks a product of two covariates, which decides about actions and about rewards."""
    found = [cell for cell in cells("product-20000", logs=20) if cell.fails]
    assert found
    assert min(cell.stopped for cell in found) > 0.5


@pytest.mark.parametrize("name", ["winners-5", "winners-revenue"])
def test_the_best_of_equal_policies_is_covered_after_the_choice(name):
    found = {cell.what: cell for cell in cells(name)}
    assert {"best", "best - logging", ALL_VALUES, ALL_GAINS} <= set(found)
    assert not any(cell.fails for cell in found.values())


def test_lifts_are_covered():
    assert not any(cell.fails for name in ("lift-clicks", "lift-rare") for cell in cells(name))


def test_healthy_logs_stay_quiet():
    """Ten kinds of logs. Shares are those of the goal, and three standard errors of them."""
    healthy = [name for name, world in WORLDS.items() if world.healthy]
    levels = sum((noted(name, 40).levels for name in healthy[1:]), noted(healthy[0], 40).levels)
    logs = levels.total()
    assert logs >= 300
    for level, share in ((STOP, STOPS), (LOOK, LOOKS)):
        assert levels[level] / logs <= share + 3 * math.sqrt(share * (1 - share) / logs), level


@pytest.mark.parametrize("name", ["greedy-5000", "thompson-5000"])
def test_under_a_logging_policy_that_learns_anytime_intervals_cover_at_all_times_at_once(name):
    """The intersection of all intervals, after each stretch of the log."""
    world, logs = WORLDS[name], 50
    policy, truth = "always 0", WORLDS[name].truth["always 0"]
    always = dict.fromkeys(world.estimators, 0)
    for table in world.draw(np.random.default_rng([SEED, 1]), logs):
        result = world.evaluate(table, interval="anytime", reward_range=(0, 1), max_weight_bound=20)
        for e in world.estimators:
            statistic = result.statistics.value(result.policies.index(policy), result._form(e))
            events, low, high = anytime_path(statistic, result._limits)
            assert len(events) > 10
            always[e] += bool((low <= truth).all() and (truth <= high).all())
    assert min(always.values()) / logs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / logs), always


def test_few_clusters_are_a_finding():
    world, table = first_log("users-few")
    assert "clusters" in {f.check for f in world.evaluate(table).findings if f.level != "ok"}
