"""Pages have no figure of a study that its results lack, and results are short."""

import math
import subprocess
import sys

import numpy as np
import pytest

from scripts.studies import coverage, replay
from scripts.studies.__main__ import STUDIES
from scripts.studies.coverage.measure import DEFAULT, Notes, measure
from scripts.studies.coverage.simulating import write as write_world
from scripts.studies.coverage.worlds import GROUPS
from scripts.studies.replay.simulating import AUTO, write
from scripts.studies.replay.worlds import Cell
from scripts.studies.results import FOLDER, Found, read
from tests.helpers.figures import regions, unknown
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ABOUT = [(page, name, text) for page in PAGES for name, text in regions(page.read_text())]


def test_every_study_has_results_and_a_page():
    assert {path.stem for path in FOLDER.iterdir()} == {name for _, name, _ in ABOUT} == {*STUDIES, "benchmarks"}
    for path in FOLDER.iterdir():
        assert path.stat().st_size <= 30_000, path


@pytest.mark.parametrize(("page", "name", "text"), ABOUT, ids=[f"{page.stem}-{name}" for page, name, _ in ABOUT])
def test_figures_on_pages_are_those_of_the_results(page, name, text):
    wrong = unknown(text, read(FOLDER / f"{name}.json"))
    assert not wrong, f"{page.name} has what `scripts/study show {name}` does not: {wrong}"


FOUND = Found(
    figures={"logs": "1,000 (seed 0)"}, tables={"A table": [["what", "a", "b", "c"], ["x 2", "1.5", "2.5", ""]]}
)
HEAD = "| what | a |\n|---|---|\n"


@pytest.mark.parametrize(
    "text",
    [
        "# 12 logs\n\nOf 1,000 logs, seed 0. See [Theorem 3.9](adr/0017.md), `n=12`, sections 4.1 and 5.",
        f"{HEAD}| x 2 | **1.5** |\n| of another name | 2.5 |\n",
    ],
)
def test_known_figures(text):
    assert unknown(text, FOUND) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Of 1,001 logs.", ["1,001"]),
        ("# A heading\n\nFigures are 0.5 and 1.5, `n=12`, and 2.", ["0.5", "1.5", "2"]),
        (f"{HEAD}| x 2 | 1.6 |\n", ["| x 2 | 1.6 |"]),
        (f"{HEAD}| x 2 | 2.5 | 1.5 |\n", ["| x 2 | 2.5 | 1.5 |"]),
        (f"{HEAD}| x 3 | 1.5 |\n", ["| x 3 | 1.5 |"]),
    ],
)
def test_unknown_figures(text, wrong):
    assert unknown(text, FOUND) == wrong


def test_results_are_read_as_they_were_written_and_later_parts_replace_earlier_ones(tmp_path):
    path = tmp_path / "results.json"
    FOUND.write(path)
    assert read(path) == FOUND
    assert read(tmp_path / "none.json") == Found()
    found = read(path)
    found.update(Found(figures={"logs": "2"}, tables={"Another": [["what"], ["y"]]}))
    assert found.figures == {"logs": "2"}
    assert list(found.tables) == ["A table", "Another"]


def test_results_are_shown():
    command = [sys.executable, "-m", "scripts.studies", "show", "precision"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert "- required: 1e-05" in shown
    assert "\n| 2 x 5 | 1 | 0 | ridge | 10 |" in shown


# Tables from rows


def notes_of(misses, level):
    """100 logs. The default misses above in some, which have findings of a level; the normal one misses in 20."""
    notes = Notes(logs=100)
    notes.levels.update({"look": misses, "ok": 100 - misses} if level else {"ok": 100})
    errors = np.random.default_rng(0).normal(size=100)
    errors = 0.05 * (errors - errors.mean()) / errors.std()
    for what in ("rare", "common"):
        for log, error in enumerate(errors):
            for method, missed, width in ((DEFAULT, misses, 0.392), ("normal", 20, 0.196)):
                low = 0.0 if log < missed else -width / 2
                about = {
                    "what": what,
                    "estimator": "ips",
                    "method": method,
                    "log": log,
                    "level": level * (log < misses),
                }
                numbers = {"truth": 0.0, "error": error, "stderr": 0.05, "low": low + 1e-9, "high": low + width}
                notes.rows.append({**about, **numbers, "width": width})
    return notes


def test_the_tables_of_coverage(tmp_path):
    write_world(tmp_path / "benign-2000.parquet", notes_of(3, 0), 0)
    write_world(tmp_path / "heavy-2000.parquet", notes_of(30, 1), 0)
    found = coverage.summary(tmp_path)
    assert found.figures["worlds"] == "2"
    assert found.figures["cells"] == "4"
    assert found.figures["coverage of the worst cell"].startswith("70.0 ")
    assert found.figures["coverage of the worst cell without findings in most logs"].startswith("70.0 ")
    assert found.figures["cells below it by three standard errors"] == "2"
    assert found.figures["those of them where most logs that miss have no finding"] == "0"
    worlds = found.tables["The default in each world"][1:]
    assert [row[1] for row in worlds] == ["97.0 ± 1.9", "70.0 ± 4.6"]
    assert [row[3] for row in worlds] == ["2.00", "2.00"]
    assert [row[5] for row in worlds] == ["0%", "100%"]
    assert [row[-1] for row in worlds] == ["80.0", "80.0"]
    (failing,) = found.tables["What the default does not cover, silent cells first"][1:]
    assert failing[1:3] == ["2 of 2", "0"]


def test_the_goal_of_coverage_is_judged(tmp_path):
    """Misses that no finding announces, wide intervals, and a finding about healthy logs: each line is missed."""
    write_world(tmp_path / "benign-2000.parquet", notes_of(30, 0), 0)
    found = coverage.summary(tmp_path).figures
    lines = ["misses are said", "coverage without findings", "middle width", "large widths"]
    assert all(found[f"goal: {line}"].startswith("MISSED") for line in lines)
    assert found["goal: healthy logs"].startswith("holds")
    write_world(tmp_path / "benign-2000.parquet", notes_of(6, 1), 0)
    found = coverage.summary(tmp_path).figures
    assert found["goal: misses are said"].startswith("holds")
    assert found["goal: healthy logs"].startswith("MISSED")


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in ("winners", "lifts")])
def test_the_true_values_of_worlds(group):
    """IPS has no bias: over 20 logs, its mean error is below 5 standard errors."""
    name, world = next(iter(GROUPS[group].items()))
    notes = measure(name, world, 21, 0, 20)
    errors = {}
    for row in notes.rows:
        if row["method"] == DEFAULT:
            errors.setdefault((row["what"], row["estimator"]), []).append(row["error"])
    for cell, found in errors.items():
        assert abs(np.mean(found)) <= 5 * np.std(found) / math.sqrt(20), cell


def test_the_tables_of_replay(tmp_path):
    """Ten logs of one cell: the default covers in nine, and is 10 % off."""
    cell = Cell(3, 100, "uniform")
    about = {"actions": 3, "horizon": 100, "learner": "LinUCB"}
    write([{**about, "truth": 0.5, "error": 0.01, "spread": 0.1}], tmp_path / "truths.parquet")
    rows = []
    for method, high in ((AUTO, 0.6), ("bias 0.01", 0.7), ("q 0, c_max 1", 0.7)):
        for log in range(10):
            found = {"value": 0.55, "by_step": 0.6, "low": 0.4 if log else 0.54, "high": high, "replicates": 4}
            rows.append({**about, "logger": cell.logger, "log": log, "method": method, **found})
    write(rows, tmp_path / "results.parquet")
    found = replay.summary(tmp_path)
    assert found.figures["coverage of the default, %"].startswith("90.0")
    row = found.tables["Each method over all cells, in % of the truth"][1]
    assert row[0] == AUTO
    assert row[3:] == ["20.0", "4", "0", "10.00", "10.00"]
    assert ["LinUCB", "100", "10.00", "20.00"] in found.tables["rmse of both averages, in % of the truth"]
