"""Real logs of randomised experiments, where they are at hand: set DRSTREAM_DATA, or have ../shared/data."""

import os
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs

DATA = Path(os.environ.get("DRSTREAM_DATA", Path(__file__).parents[2] / "shared" / "data"))

pytestmark = pytest.mark.jit_only


def data(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set DRSTREAM_DATA to the folder that holds it")
    return path


@pytest.mark.parametrize(
    ("name", "reward", "published"),
    [
        ("hillstrom.parquet", "visit", [0.106, 0.183, 0.151]),
        ("gotv_social.parquet", "primary2006", [0.297, 0.315, 0.322, 0.378]),
    ],
)
def test_arms_of_a_randomised_experiment(name, reward, published):
    """Always one arm: SNIPS is that arm's mean to the last digits, and both are the published rate."""
    path = data(name)
    table = pq.read_table(path)
    log = drs.Log(path, reward=reward)
    policies = {str(a): drs.policies.Constant(a) for a in range(len(published))}
    result = drs.evaluate(log, policies, estimators=["ips", "snips"])
    for a, rate in enumerate(published):
        arm = table.filter(pc.field("action") == a)[reward].to_numpy()
        assert result[str(a), "snips"].value == pytest.approx(arm.mean(), rel=1e-12)
        assert result[str(a), "snips"].value == pytest.approx(rate, abs=0.0006)
        assert result[str(a), "ips"].low <= arm.mean() <= result[str(a), "ips"].high
        naive = arm.std(ddof=1) / np.sqrt(len(arm))
        assert result[str(a), "snips"].stderr == pytest.approx(naive, rel=0.01)


def test_doubly_robust_on_hillstrom():
    """DR with ridge on the covariates agrees with the arms' means and is no less precise than IPS."""
    path = data("hillstrom.parquet")
    columns = ["recency", "history", "mens", "womens", "newbie"]
    train, test = drs.Log(path, context=columns, reward="visit").split(0.5, seed=1)
    model = drs.models.Ridge().fit(train)
    result = drs.evaluate(test, drs.policies.Constant(1), model, ["ips", "snips", "dr", "sndr"])
    for name in ("dr", "sndr"):
        assert result[name].low <= result["snips"].value <= result[name].high
        assert result[name].stderr < result["ips"].stderr


@pytest.mark.parametrize("name", ["obd_all.parquet", "obd_men.parquet"])
def test_uniform_policy_from_a_bandit_log(name):
    """Open Bandit data: the click rate of the uniform policy, as measured and as estimated from the other log."""
    path = data(name)
    measured = drs.evaluate(drs.Log(path, filter=pc.field("policy") == 0), drs.policies.Uniform(), estimators="ips")
    assert measured["ips"].value == pytest.approx(measured.baseline.value, rel=1e-4)  # propensities are rounded
    estimated = drs.evaluate(
        drs.Log(path, filter=pc.field("policy") == 1), drs.policies.Uniform(), estimators=["ips", "snips"]
    )
    gap = estimated["snips"].value - measured.baseline.value
    assert abs(gap) < 3 * np.hypot(estimated["snips"].stderr, measured.baseline.stderr)
