"""Forecasts from 2 % of the rows, compared with the run on the whole log: widths and replicates within 20 %."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import drstream as drs
from scripts.studies.coverage.worlds.revenue import WORLDS as REVENUE
from tests.helpers.places import data

pytestmark = pytest.mark.slow
SHARE, WITHIN = 0.02, 0.2
FARTHEST = (
    0.25  # one of the four targets of a log may be this far off: rare events that set c are missing in the sample
)
WORLDS = [  # actions, features, floor, kinds, rows
    (2, 1, None, 256, 100_000),
    (3, 2, 0.05, 256, 150_000),
    (4, 6, None, 64, 200_000),
    (5, 4, 0.1, 256, 400_000),
    (6, 3, 0.02, 256, 250_000),
    (8, 10, None, 256, 300_000),
    (10, 20, None, 256, 400_000),
    (10, 5, 0.05, None, 200_000),
    (15, 8, None, 128, 400_000),
    (20, 4, 0.02, 256, 300_000),
]


def check_widths(log, policies, model=None):
    forecast, result = drs.plan(log, policies, model, sample=SHARE), drs.evaluate(log, policies, model)
    for one in forecast.widths:
        found = result[one.policy, one.estimator]
        assert one.width == pytest.approx(found.high - found.low, rel=WITHIN, nan_ok=True), one
        assert one.method == found.method


def check_replicates(log, learner, horizon, model=None):
    forecast = drs.plan(log, learner, model, horizon=horizon, sample=SHARE)
    grid = drs.replay(log, learner, horizon, model).grid.to_pylist()
    off = []
    for one, row in zip(forecast.replays, grid, strict=True):
        error = abs(one.replicates - row["replicates"])
        off.append(0.0 if error <= 1.0 else error / row["replicates"])
    assert sorted(off)[-2] <= WITHIN, (forecast, grid)
    assert max(off) <= FARTHEST, (forecast, grid)


@pytest.mark.parametrize("number", range(10))
def test_synthetic_logs(number):
    actions, features, floor, kinds, rows = WORLDS[number]
    seed = number + 1
    world = drs.synth.World(actions, features, kinds=kinds, floor=floor, seed=seed)
    table, rng = world.table(rows, seed=seed + 100), np.random.default_rng(seed)
    if seed % 3 == 0:  # money instead of clicks
        table = table.set_column(1, "reward", [table["reward"].to_numpy() * rng.gamma(2, 5, rows)])
    train, test = drs.Log(table).split(0.2)
    model = drs.models.Ridge().fit(train)
    policies = {
        "uniform": drs.policies.Uniform(),
        "softmax": drs.policies.Softmax(rng.normal(size=(actions, features))),
    }
    check_widths(test, policies, model)
    learner = drs.policies.EpsilonGreedy(0.2) if seed % 2 else drs.policies.UCB1(0.3)
    check_replicates(test, learner, 300 if actions > 6 else 500, model)


def test_hillstrom():
    log = drs.Log(data("hillstrom.parquet"), context=["recency", "history", "mens", "womens", "newbie"], reward="visit")
    check_widths(log, {"men's": drs.policies.Constant(1), "uniform": drs.policies.Uniform()})
    check_replicates(log, drs.policies.UCB1(0.2), 200)


def test_gotv():
    log = drs.Log(data("gotv_social.parquet"), reward="primary2006")
    check_widths(log, {"neighbours": drs.policies.Constant(3), "uniform": drs.policies.Uniform()})
    check_replicates(log, drs.policies.EpsilonGreedy(0.1), 300)


def test_open_bandit():
    """2 % are 200 events with a click or so: replicates are right, widths are unknown. Half of the log tells them."""
    log = drs.Log(data("obd_men.parquet"), filter=pc.field("policy") == 0)
    check_replicates(log, drs.policies.Exp3(), 50)
    uniform = drs.policies.Uniform()
    assert all(math.isnan(one.width) for one in drs.plan(log, uniform, sample=SHARE).widths)
    forecast, result = drs.plan(log, uniform), drs.evaluate(log, uniform)
    for one in forecast.widths:
        found = result["policy", one.estimator]
        assert one.width == pytest.approx(found.high - found.low, rel=WITHIN)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_revenue_whose_large_amounts_a_sample_may_lack(share):
    """5 % buy, for lognormal(3, 1.5). A width is about right, or is not told, or a note says that few events decide."""
    shop, told = REVENUE["ln15-20000"], 0
    for seed in range(3):
        table = pa.concat_tables(shop.draw(np.random.default_rng(seed), 5))
        log, policies = drs.Log(table, **shop.roles), dict(shop.policies)
        forecast = drs.plan(log, policies, estimators=["ips", "snips"], sample=share)
        result = drs.evaluate(log, policies, estimators=["ips", "snips"])
        for one in forecast.widths:
            found = result[one.policy, one.estimator]
            off = abs(one.width / (found.high - found.low) - 1)
            assert off <= WITHIN or any(f"{one.policy} by {one.estimator}" in note for note in forecast.notes), one
            told += off <= WITHIN
    assert told > 0 or share < 0.5
