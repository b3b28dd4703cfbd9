"""The study of real logs: its quick form runs where the data is at hand, and has the committed results."""

import numpy as np
import pytest

import drstream as drs
from scripts.studies.real_logs import PARTS, arms, open_bandit
from scripts.studies.real_logs.rows import beside
from scripts.studies.results import FOLDER, Found, read
from scripts.studies.trials import Setting
from tests.helpers.places import DATA, data

pytestmark = pytest.mark.slow
COMMITTED = read(FOLDER / "real_logs.json")
HALVES = "intervals that agree with the other half"
FILES = ("obd_all.parquet", "obd_men.parquet", "hillstrom.parquet", "gotv_social.parquet")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The rows of the quick form, by log."""
    for name in FILES:
        data(name)
    setting = Setting(DATA, tmp_path_factory.mktemp("real_logs"), quick=True)
    return {name: log.run(setting) for name, log in PARTS.items()}


@pytest.mark.parametrize("name", PARTS)
def test_estimates_are_those_of_the_results(quick, name):
    """The quick form has fewer random halves, and else the same numbers. Intervals may not change unnoticed."""
    found = Found()
    PARTS[name].add(quick[name], found)
    for title, rows in found.tables.items():
        if HALVES not in title:
            assert rows == COMMITTED.tables[title], title


def test_truths_on_open_bandit(quick):
    """The other policy's own click rate is inside, and the policy that is none is stopped."""
    found = quick["open_bandit"]
    for row in found["estimates"]:
        if row["policy"] != open_bandit.MISTAKEN and row["estimator"] != "dm":
            assert row["inside"]
            assert row["agrees"]
    stopped = {(f["policy"], f["check"]) for f in found["findings"] if f["level"] == "stop"}
    assert stopped == {(open_bandit.MISTAKEN, "mean weight"), ("uniform random", "carriers")}


@pytest.mark.parametrize("name", ["hillstrom", "gotv"])
def test_arms_of_real_experiments(quick, name):
    """Every arm's mean is inside, SNIPS is that mean, and no check raises an alarm on a sound experiment."""
    found = quick[name]
    assert {f["check"] for f in found["findings"]} <= {"codes"}  # of zip codes that are used as numbers
    for row in [*found["estimates"], *found.get("segments", [])]:
        assert row["inside"]
        if row["estimator"] == "snips":
            assert row["value"] == pytest.approx(row["truth"], rel=1e-6)  # spend has 32 bits


def test_intervals_cover_in_the_results():
    """Over random halves, default intervals agree in about 95 %, and those of rows in a household in fewer."""
    shares = {row[0]: row[1:] for title, rows in COMMITTED.tables.items() if HALVES in title for row in rows[1:]}
    assert {"visit", "rows", "households"} <= set(shares)
    for name, found in shares.items():
        assert all((float(share) > 93) == (name != "rows") for share in found)


def test_households_are_cut_from_runs():
    size, action = np.array([2, 2, 2, 2, 1, 1, 3, 3, 3]), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert arms.households(size, action).tolist() == [0, 0, 1, 1, 2, 3, 4, 4, 4]


def test_an_estimate_beside_a_measured_truth():
    """Both errors count; without an interval there is no answer."""
    truth = drs.Estimate(0.0, 1.0, -2.0, 2.0, 10)
    assert beside(drs.Estimate(2.7, 1.0, 0.7, 4.7, 10), truth)["agrees"]
    assert not beside(drs.Estimate(2.7, 1.0, 0.7, 4.7, 10), truth)["inside"]
    assert not beside(drs.Estimate(2.9, 1.0, 0.9, 4.9, 10), truth)["agrees"]
    for outside in (drs.Estimate(1.0, 1.0, np.nan, np.nan, 10), drs.Estimate(9.0, 1.0, -1.0, 1.0, 10)):
        assert beside(outside, truth)["agrees"] is None


def test_data_that_is_not_there(tmp_path):
    with pytest.raises(drs.DrstreamError, match=r"hillstrom.parquet is not in .*--data FOLDER.*DRSTREAM_DATA"):
        arms.hillstrom(Setting(tmp_path, tmp_path))
