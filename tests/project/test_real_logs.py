"""The page about real logs: it is made of its results, and its quick form runs where the data is at hand."""

import json
import shutil

import numpy as np
import pytest

import drstream as drs
from scripts.studies.real_logs import arms, open_bandit, page
from scripts.studies.real_logs.contents import LOGS
from scripts.studies.real_logs.results import beside, write
from scripts.studies.trials import Setting
from tests.helpers.places import DATA, ROOT, data

pytestmark = pytest.mark.jit_only  # experiments, not kernels
COMMITTED = ROOT / "docs" / "real_logs"
FILES = ("obd_all.parquet", "obd_men.parquet", "hillstrom.parquet", "gotv_social.parquet")


def test_the_page_is_made_of_the_results(tmp_path):
    """That of the committed results is the committed one: no number on it was written by hand."""
    for name in LOGS:
        shutil.copy(COMMITTED / f"{name}.json", tmp_path)
    page.write(tmp_path, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == COMMITTED.with_suffix(".md").read_text()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The results of the quick form, and of the committed one, by log."""
    for name in FILES:
        data(name)
    setting = Setting(DATA, tmp_path_factory.mktemp("real_logs"), quick=True)
    made = {name: json.loads(write(name, log.run, setting).read_text()) for name, log in LOGS.items()}
    page.write(setting.output, setting.output / "page.md")
    assert "quick form" in (setting.output / "page.md").read_text()
    return made, {name: json.loads((COMMITTED / f"{name}.json").read_text()) for name in LOGS}


@pytest.mark.parametrize("name", LOGS)
def test_estimates_are_those_of_the_page(quick, name):
    """The quick form has fewer random halves, and else the same numbers. Intervals may not change unnoticed."""
    made, committed = (results[name] for results in quick)
    assert len(made["estimates"]) == len(committed["estimates"])
    for mine, theirs in zip(made["estimates"], committed["estimates"], strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            expected = pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value
            assert mine[key] == expected, (key, mine)
    levels = [[(f["policy"], f["level"], f["check"]) for f in results["findings"]] for results in (made, committed)]
    assert levels[0] == levels[1]


def test_truths_on_open_bandit(quick):
    """The other policy's own click rate is inside, and the policy that is none is stopped."""
    found = quick[0]["open_bandit"]
    for row in found["estimates"]:
        if row["policy"] != open_bandit.MISTAKEN and row["estimator"] != "dm":
            assert row["inside"]
            assert row["agrees"]
    stopped = {f["policy"] for f in found["findings"] if f["level"] == "stop"}
    assert stopped == {open_bandit.MISTAKEN}


@pytest.mark.parametrize("name", ["hillstrom", "gotv"])
def test_arms_of_real_experiments(quick, name):
    """Every arm's mean is inside, SNIPS is that mean, and no check raises an alarm on a sound experiment."""
    found = quick[0][name]
    assert found["findings"] == []
    for row in [*found["estimates"], *found.get("segments", [])]:
        assert row["inside"]
        if row["estimator"] == "snips":
            assert row["value"] == pytest.approx(row["truth"], rel=1e-6)  # spend has 32 bits


def test_intervals_cover_on_the_committed_page():
    """Over random halves, default intervals agree in about 95 %, and those of rows in a household in fewer."""
    results = {name: json.loads((COMMITTED / f"{name}.json").read_text()) for name in ("hillstrom", "gotv")}
    share = {
        (row.get("unit"), row["reward"], row["estimator"]): row["agree"] / row["cases"]
        for found in results.values()
        for row in found["halves"]
    }
    for (unit, *_), agree in share.items():
        assert (agree > 0.93) == (unit != "rows")


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
