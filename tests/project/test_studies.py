"""Pages have no figure of a study that its results lack, and results are short."""

import subprocess
import sys

import pytest

from scripts.studies.__main__ import STUDIES
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
