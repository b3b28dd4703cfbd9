"""The study of reliability in small: each part loses nothing, and goes on where it stopped."""

import importlib.util
import tempfile
from pathlib import Path

import pytest

from scripts.studies.reliability import files, record, signals
from scripts.studies.reliability.parts import PARTS
from scripts.studies.reliability.running import run
from scripts.studies.reliability.summary import summary
from scripts.studies.results import FOLDER
from scripts.studies.results import read as results
from tests.helpers.broken import judge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of packages that drstream does not use itself
]


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
    count = part.quick
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

    part = record.Part("mine", "Mine", cases, cases=5, piece=2)
    run(part, 3, tmp_path)
    run(part, 5, tmp_path)
    assert asked == [(0, 2), (2, 3), (3, 5)]
    found = record.read("mine", tmp_path)
    assert found["rows"] == {"a": {"same": 4, "error": 0, "untold": 0, "lost": 1}}
    assert found["lost"] == ["a: case 3"]
    assert summary([part], tmp_path).tables["Mine"][1:] == [
        ["a", "5", "4", "0", "0", "1"],
        ["Mine", "5", "4", "0", "0", "1"],
    ]
    run(part, 1, tmp_path)  # it was complete, so it begins again
    assert record.read("mine", tmp_path)["cases"] == 1


def test_results_are_complete_and_nothing_was_lost():
    tables = results(FOLDER / "reliability.json").tables
    for part in PARTS.values():
        _, injected, *_, lost = tables[part.title][-1]
        assert int(injected.replace(",", "")) >= part.cases, f"scripts/study reliability {part.name} is not complete"
        assert lost == "0"
