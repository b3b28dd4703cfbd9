"""The study of reliability in small: each part loses nothing, and goes on where it stopped. Its page is current."""

import importlib.util
import tempfile
from pathlib import Path

import pytest

from scripts.studies.reliability import files, record, signals
from scripts.studies.reliability.__main__ import run
from scripts.studies.reliability.page import page
from scripts.studies.reliability.parts import PARTS
from tests.helpers.broken import judge
from tests.helpers.places import ROOT

pytestmark = [
    pytest.mark.jit_only,  # in processes
    pytest.mark.filterwarnings("ignore"),  # those of packages that drstream does not use itself
]
FEW = {"files": 12, "changes": 8, "processes": 1, "dask": 1, "spark": 1, "signals": 1, "disk": 10, "open_files": 4}


def judge_here(cases, workers):
    """Without processes of their own, which tests/project/test_broken.py has."""
    with tempfile.TemporaryDirectory() as folder:
        yield from ((kind, seed, *judge(kind, seed, Path(folder))) for kind, seed in cases)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_in_small(name, tmp_path, monkeypatch):
    part = PARTS[name]
    if any(importlib.util.find_spec(needed) is None for needed in part.needs):
        pytest.skip(f"{part.needs} are not installed")
    monkeypatch.setattr(files, "judge_all", judge_here)
    monkeypatch.setattr(signals, "RUNS", 1)
    count = FEW.get(name, 2)
    run(part, count, tmp_path)
    found = record.read(name, tmp_path)
    assert found["cases"] == count
    assert sum(row[outcome] for row in found["rows"].values() for outcome in record.OUTCOMES) == count
    assert "lost" not in found


def test_a_part_goes_on_where_it_stopped(tmp_path):
    asked = []

    def cases(first, last, folder):
        asked.append((first, last))
        return (record.Case("a", record.LOST if n == 3 else record.SAME, f"case {n}") for n in range(first, last))

    part = record.Part("mine", "Mine", "", cases, cases=5, piece=2)
    run(part, 3, tmp_path)
    run(part, None, tmp_path)
    run(part, None, tmp_path)
    assert asked == [(0, 2), (2, 3), (3, 5)]
    found = record.read("mine", tmp_path)
    assert found["rows"] == {"a": {"same": 4, "error": 0, "untold": 0, "lost": 1}}
    assert found["lost"] == ["a: case 3"]
    run(part, 1, tmp_path, again=True)
    assert record.read("mine", tmp_path)["cases"] == 1


def test_the_page_is_what_the_script_makes_of_the_results():
    folder = ROOT / "docs" / "reliability"
    assert (ROOT / "docs" / "reliability.md").read_text() == page(folder)
    for name, part in PARTS.items():
        found = record.read(name, folder)
        assert not found or found["cases"] >= part.cases, f"scripts/reliability {name} is not complete"
        assert not found.get("lost")


def test_a_page_without_results_says_nothing_was_injected(tmp_path):
    assert "what came of 0 faults" in page(tmp_path)


def test_kills_stand_on_the_page_once_they_were_counted(tmp_path):
    rows = [{"work": "evaluate", "points": 50, "killed": 48, "same": 50, "lost": 0, "left": 0}]
    record.write({"rows": rows, "commit": "abc", "versions": {"python": "3.11"}}, "kills", tmp_path)
    found = page(tmp_path)
    assert "| evaluate | 50 | 50 | 0 | 0 | 0 |" in found
    assert "Made by commit abc, with python 3.11." in found
