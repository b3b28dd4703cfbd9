"""Some hundred broken files and odd schemas: a sentence or the right number. Slow tests have more."""

from __future__ import annotations

import resource
from collections import Counter

import pytest

from tests.helpers.broken import MADE_UP, judge_all

FILES = {"parquet": 60, "ipc": 60, "npz": 40, "skops": 20, "state": 40, "checkpoint": 40, "schema": 120}
MANY = {"state": 1000, "checkpoint": 1000, "npz": 500}
MAY_DIFFER = {"ipc", "parquet"}  # no checksum of its contents, or one that audits compare
MOST_MEMORY = 2 << 30  # bytes of a worker


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_broken_files_and_odd_schemas(share: int) -> None:
    found = judge({kind: range(count // share) for kind, count in FILES.items()})
    for kind in FILES:
        assert found[kind, "error"] > 0, kind  # else nothing is broken
    assert found["parquet", "right"] > 0
    assert found["schema", "right"] > 0


@pytest.mark.slow
def test_many_broken_states_checkpoints_and_models() -> None:
    judge({kind: range(10_000, 10_000 + count) for kind, count in MANY.items()})
    assert 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < MOST_MEMORY


def judge(files: dict[str, range]) -> Counter[tuple[str, str]]:
    """Count outcomes by kind. Raise an error for those that may not be."""
    cases = [(kind, seed) for kind, seeds in files.items() for seed in seeds]
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    for kind, seed, outcome, words in judge_all(cases):
        found[kind, outcome] += 1
        if (
            outcome == "DEFECT"
            or (outcome == "other" and kind not in MAY_DIFFER and not words.startswith(MADE_UP))
            or (outcome == "vague" and kind != "schema")
        ):
            wrong.append(f"{kind} {seed}: {outcome}: {words}")
    assert not wrong, "\n".join(wrong)
    return found
