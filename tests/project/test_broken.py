"""Some hundred broken files and odd schemas: a sentence or the right number. `scripts/study reliability` has more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.helpers.broken import judge_all

FILES = {"parquet": 60, "ipc": 60, "npz": 40, "skops": 20, "state": 40, "schema": 120}
MAY_DIFFER = {"ipc", "npz", "skops"}  # no checksum of their contents, or one that was written anew


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_broken_files_and_odd_schemas(share: int) -> None:
    cases = [(kind, seed) for kind, count in FILES.items() for seed in range(count // share)]
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    for kind, seed, outcome, words in judge_all(cases):
        found[kind, outcome] += 1
        if (
            outcome == "DEFECT"
            or (outcome == "other" and kind not in MAY_DIFFER)
            or (outcome == "vague" and kind != "schema")
        ):
            wrong.append(f"{kind} {seed}: {outcome}: {words}")
    assert not wrong, "\n".join(wrong)
    for kind in FILES:
        assert found[kind, "error"] > 0, kind  # else nothing is broken
    assert found["parquet", "right"] > 0
    assert found["schema", "right"] > 0
