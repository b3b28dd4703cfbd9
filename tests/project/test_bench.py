"""The benchmarks' memory: what a saved run keeps, when a ratio has fallen, and what the page says. No timings here."""

import json
import subprocess
import sys

import pytest

from bench.common import comparing, front, history, logs, report
from bench.evaluation import cases
from bench.profile import cases as profile
from bench.profile.steps import DECODING, EVENTS, VIEWS
from scripts.studies.results import read
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow
CASE = next(case for case in cases.CASES if case.main)
PAIRS = [0.50, 0.52, 0.48, 0.51, 0.49]


def run(*benchmarks, date="2026-01-01", commit="a" * 40, rows=5_000_000, quick=False):
    """A run as pytest-benchmark writes it, with one benchmark for each (name, ratios)."""
    return {
        "datetime": f"{date}T10:20:30.123456",
        "commit_info": {"id": commit, "time": date, "dirty": False, "branch": "main"},
        "machine_info": {
            "node": "secret-host",
            "machine": "x86_64",
            "system": "Linux",
            "release": "6",
            "python_version": "3.11.7",
            "cpu": {"brand_raw": "A processor", "flags": ["many"] * 100},
            "usable_cores": 2,
            "versions": {"drstream": "0.1.0"},
            "rows": rows,
            "full_size": rows >= 5_000_000,
            "quick": quick,
        },
        "benchmarks": [benchmark(*each) for each in benchmarks],
    }


def benchmark(name, ratios):
    ratio = sorted(ratios)[len(ratios) // 2]
    info = {
        "kind": "throughput",
        "name": name,
        "task": "a task",
        "log": "wide snappy",
        "rows": 5_000_000,
        "baseline": "a baseline",
        "baseline_rows": 5_000_000,
        "events_per_second": 1e7 / 3,
        "baseline_events_per_second": 2e7,
        "ratio": ratio,
        "ratios": ratios,
        "required": 0.5,
        "passed": ratio >= 0.5,
    }
    stats = {"data": [0.1] * 9, "min": 0.1, "max": 0.1}
    return {"fullname": f"bench_evaluation.py::{name}", "extra_info": info, "stats": stats, "options": {}}


def times(ratios, factor):
    return [factor * ratio for ratio in ratios]


# Saved runs


def test_a_saved_run_reads_as_pytest_benchmarks_and_has_no_rounds(tmp_path):
    made = run(("one", PAIRS), ("two", PAIRS))
    path = history.save(made, tmp_path)
    assert path.name == "2026-01-01-1020-aaaaaaaaaa.json"
    text = path.read_text()
    assert "secret-host" not in text
    assert "stats" not in text
    assert "flags" not in text
    back = history.read(path)
    assert [b["extra_info"]["ratios"] for b in back["benchmarks"]] == [PAIRS, PAIRS]
    assert back["benchmarks"][0]["extra_info"]["events_per_second"] == 3333330.0  # six digits
    assert report.page(back) == report.page(history.stripped(made))


def test_a_benchmark_that_failed_before_its_measurement_is_not_saved(tmp_path):
    made = run(("one", PAIRS))
    made["benchmarks"].append({"fullname": "broken", "extra_info": {}, "stats": {}})
    assert len(history.read(history.save(made, tmp_path))["benchmarks"]) == 1


def test_a_saved_run_takes_the_place_of_the_one_before_of_its_size(tmp_path):
    for date in ("2026-01-01", "2026-02-01"):
        history.save(run(("one", PAIRS), date=date), tmp_path)
    history.save(run(("one", PAIRS), date="2026-05-01", rows=1_000_000, quick=True), tmp_path)
    assert history.saved(tmp_path, like=run())["datetime"][:10] == "2026-02-01"
    assert history.saved(tmp_path, like=run(rows=1_000_000, quick=True))["datetime"][:10] == "2026-05-01"
    assert history.saved(tmp_path, like=run(rows=1_000_000)) is None
    assert len(list(tmp_path.iterdir())) == 2


def test_later_results_replace_earlier_ones_and_the_page_says_what_is_earlier():
    first = run(("one", PAIRS), ("two", PAIRS))
    again = run(("two", times(PAIRS, 2)), date="2026-01-02", commit="b" * 40)
    both = history.merged([first, again])
    assert both["datetime"] == again["datetime"]
    assert comparing.ratios(both) == {"one": PAIRS, "two": times(PAIRS, 2)}
    assert "measured earlier (2026-01-01, commit aaaaaaaaaa): bench_evaluation.py" in report.page(both)
    same = run(("two", times(PAIRS, 2)), date="2026-01-02")
    assert "measured earlier" not in report.page(history.merged([first, same]))
    elsewhere = run(("two", times(PAIRS, 2)), date="2026-01-02")
    elsewhere["machine_info"]["cpu"] = {"brand_raw": "Other"}
    assert "commit aaaaaaaaaa, on another machine, " in report.page(history.merged([first, elsewhere]))


# Comparing


def fallen(before, now):
    return [c.name for c in comparing.changes(run(("row", before)), run(("row", now))) if c.fell]


def test_a_ratio_falls_by_more_than_its_noise():
    assert fallen(PAIRS, times(PAIRS, 0.8)) == ["row"]
    assert fallen(PAIRS, times(PAIRS, 0.97)) == []
    assert fallen(PAIRS, times(PAIRS, 1.5)) == []
    (change,) = comparing.changes(run(("row", PAIRS)), run(("row", times(PAIRS, 1.5))))
    assert change.rose


def test_noise_is_three_errors_of_the_difference():
    """ln of 1/g, 1, g has the deviation ln g."""
    g = 1.1
    width = 3 * 1.25 * (2 / 3) ** 0.5 * 0.09531017980432493
    pairs = [1 / g, 1.0, g]
    assert comparing.noise(pairs, pairs) == pytest.approx(1 - 2.718281828459045**-width)


def test_pairs_that_agree_still_have_five_percent():
    same = [0.5] * 9
    assert comparing.noise(same, same) == 0.05
    assert fallen(same, [0.476] * 9) == []
    assert fallen(same, [0.474] * 9) == ["row"]


def test_a_wide_spread_hides_a_small_fall():
    wide = [0.3, 0.5, 0.8]
    assert fallen(wide, times(wide, 0.7)) == []
    assert fallen([0.5] * 9, [0.3, 0.35, 0.6]) == []


def test_one_pair_is_no_evidence_of_a_small_fall():
    assert fallen([0.5], [0.4]) == []


def test_rows_of_one_run_only_are_not_compared():
    assert comparing.changes(run(("old", PAIRS)), run(("new", PAIRS))) == []


def test_the_exit_code_is_1_if_a_ratio_fell(tmp_path):
    history.save(run(("row", PAIRS)), tmp_path)
    for factor, code in ((1.0, 0), (0.5, 1)):
        now = tmp_path / "now" / "latest.json"
        now.parent.mkdir(exist_ok=True)
        now.write_text(json.dumps(run(("row", times(PAIRS, factor)), date="2026-01-02")))
        program = "import sys; from pathlib import Path; from bench.common import comparing, history; "
        program += f"history.FOLDER = Path({str(tmp_path)!r}); sys.argv[1:] = [{str(now)!r}]; comparing.main()"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert f"{code} of 1 ratios fell" in done.stdout


def test_a_report_of_changes_starts_with_the_largest_fall_and_names_another_machine():
    before = run(("up", PAIRS), ("down", PAIRS))
    now = run(("up", times(PAIRS, 2)), ("down", times(PAIRS, 0.5)))
    now["machine_info"]["usable_cores"] = 4
    text = comparing.report(before, now, comparing.changes(before, now))
    assert text.index("| down |") < text.index("| up |")
    assert "**fell**" in text
    assert comparing.DIFFERENT_MACHINE in text


# The page


def test_the_main_table_has_met_missed_and_unmeasured_rows():
    met, missed, absent = list(cases.MAIN)[:3]
    page = report.page(run((met, PAIRS), (missed, times(PAIRS, 0.5))))
    assert f"| {cases.MAIN[met]} | 0.50 (0.48 to 0.52) | 0.5 | yes |" in page
    assert f"| {cases.MAIN[missed]} | 0.25 (0.24 to 0.26) | 0.5 | **no** |" in page
    assert f"- **{cases.MAIN[missed]}**: 0.25 of 0.5, 50% too little." in page
    assert f"- **{cases.MAIN[met]}**" not in page
    assert f"| {cases.MAIN[absent]} | not measured |  | **no** |" in page
    assert f"- {absent}\n" in page  # also in the list of what was not measured


def test_a_missed_row_has_its_reason_from_the_profile():
    (case,) = (case for case in cases.CASES if case.task is cases.MANY and case.main)
    made = run((str(case), times(PAIRS, 0.5)))
    info = {"kind": "profile", "name": str(profile.Case(cases.FOUR, logs.LIST)), "task": "", "log": "", "whole": 75.0}
    made["benchmarks"].append({"extra_info": info | {"steps": {DECODING: 25, VIEWS: 2, EVENTS: 40}}})
    assert "mostly decoding, 25 of 75 ns for one softmax policy" in report.page(made)


def test_text_in_place_of_a_verdict_is_no_yes():
    """JSON of a NumPy bool is text."""
    made = run((str(CASE), PAIRS))
    made["benchmarks"][0]["extra_info"]["passed"] = "UNSERIALIZABLE[np.False_]"
    assert f"| {CASE.main} | 0.50 (0.48 to 0.52) | 0.5 | **no** |" in report.page(made)


def test_a_quick_page_lists_only_main_rows_as_not_measured():
    page = report.page(run((str(CASE), PAIRS), rows=1_000_000, quick=True))
    listed = page.partition("**Not measured in this run:**")[2].partition("\n## ")[0]
    assert str(CASE) not in listed
    mains = {name for topic, _ in report.TOPICS for name in getattr(topic, "MAIN", {})}
    assert {line[2:] for line in listed.splitlines() if line} == mains - {str(CASE)}


def test_main_rows_are_rows_with_a_requirement():
    for topic, _ in report.TOPICS:
        assert set(getattr(topic, "MAIN", {})) <= set(topic.NAMES)
    assert all(case.required is not None for case in cases.CASES if case.main)


def test_names_of_rows_are_different():
    names = [name for topic, _ in report.TOPICS for name in topic.NAMES]
    assert len(set(names)) == len(names)


def test_the_kept_results_are_those_of_the_last_saved_run():
    assert read(report.RESULTS) == report.kept(history.last())


def test_the_table_of_the_readme_is_made_of_the_last_saved_run(tmp_path):
    text = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(text.replace("against Polars by hand", "against another"))
    front.write(history.last(), tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == text
    assert all(f"| {label} |" in text for topic, _ in front.TOPICS for label in topic.MAIN.values())
