"""Forecasts on candidates, from a sample, compared with what evaluate and replay find on the whole log."""

import numpy as np
import pytest

import drstream as drs
from tests.helpers.candidate_replays import open_log, small_log

P = drs.policies
ROWS = 60_000


@pytest.fixture(scope="module")
def log():
    """The logging policy is uniform."""
    table, Z = small_log(8, ROWS)
    even = [1 / len(z) for z in Z]
    return open_log(table.set_column(table.column_names.index("propensity"), "propensity", [even]))


def test_a_plan_of_everything(log):
    """The sample is the whole log, so widths are those of evaluate."""
    policies = {"fixed": P.Column("pi"), "greedy": P.EpsilonGreedy(0.3, interactions=True)}
    forecast = drs.plan(log, policies, drs.models.Column("rhat"), horizon=10, sample=1.0, bias=0.1)
    result = drs.evaluate(log, policies["fixed"], drs.models.Column("rhat"))
    for name in ("ips", "snips", "dr"):
        found, one = result[name], forecast["fixed", name]
        if one.error <= 0.2:
            assert one.width == pytest.approx(found.high - found.low, rel=1e-9)
    assert {one.policy for one in forecast.replays} == {"fixed", "greedy"}
    assert "greedy" in str(forecast)


def test_replicates_and_widths_are_about_right(log):
    forecast = drs.plan(log, {"fixed": P.Column("pi"), "greedy": P.EpsilonGreedy(0.3)}, horizon=50, sample=0.1)
    result = drs.evaluate(log, P.Column("pi"))["ips"]
    assert forecast["fixed", "ips"].width == pytest.approx(result.high - result.low, rel=0.2)
    grid = drs.replay(log, P.EpsilonGreedy(0.3), 50).grid.to_pylist()
    planned = [one for one in forecast.replays if one.policy == "greedy"]
    for one, row in zip(planned, grid, strict=True):
        assert one.replicates == pytest.approx(row["replicates"], rel=0.2)


def test_exploration_is_over_the_candidates_of_an_event(log):
    """With a uniform logging policy, any share of uniform exploration changes nothing."""
    forecast = drs.plan(log, P.Column("pi"), estimators="ips", sample=1.0)
    one = forecast["ips"]
    assert np.isnan(one.exploration)
    assert one.narrowest == pytest.approx(one.width, rel=1e-9)
