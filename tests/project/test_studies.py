"""Pages have no figure of a study that its results lack, and results are short."""

import json
import subprocess
import sys

import pytest

from scripts.studies import coverage, replay
from scripts.studies.__main__ import STUDIES
from scripts.studies.coverage.measure import DEFAULT, ESTIMATORS, GIVEN, Counts
from scripts.studies.coverage.simulating import as_json
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


def test_the_tables_of_coverage(tmp_path):
    """100 logs of one world. The default covers in 97, the normal interval in 80; it is half as wide."""
    counts = Counts(logs=100)
    for what in ("rare", "common", "rare - common"):
        for estimator in ESTIMATORS:
            for method, covered, width in ((DEFAULT, 97, 0.2), ("normal", 80, 0.1), (GIVEN, 100, 0.4)):
                count = counts.intervals[what, estimator, 0.95, method]
                for log in range(100):
                    count.add(0.0, width, 0.0 if log < covered else 1.0)
            counts.chosen[what, estimator, "gamma"] = 100
    counts.findings["rare", "look"] = 100
    (tmp_path / "heavy-2000.json").write_text(as_json("heavy-2000", 0, counts))
    (tmp_path / "thresholds.json").write_text(json.dumps({"weights": [], "clicks": []}))
    found = coverage.summary(tmp_path)
    assert found.figures["cells"] == "9"
    assert found.figures["coverage of the worst cell"] == "97.0"
    assert found.tables["The default at 95 %, in the worst cell of each world"][1][1::2] == ["97.0 ± 1.9", "80.0"]
    methods = found.tables["Each method at 95 % over all cells; width relative to normal intervals"][1:]
    assert [(row[0], row[2], row[-1]) for row in methods] == [
        (DEFAULT, "97.0", "2.00"),
        ("normal", "80.0", "1.00"),
        (GIVEN, "100.0", "4.00"),
    ]


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
