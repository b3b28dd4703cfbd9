"""Measures how long states of many days take to become a result, and what checkpoints cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest

import drstream as drs
from bench.common import logs
from bench.common.racing import PAIRS, compare, race
from bench.common.selecting import params
from bench.states import cases
from drstream.replaying.keeping import Keeper
from drstream.states.checkpoint import Checkpoint


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_states(benchmark: Any, case: cases.Case) -> None:
    states = case.states()
    assert drs.merge(states).n == cases.DAYS * cases.ROWS
    found: list[float] = []

    def merge() -> None:
        begun = perf_counter()
        drs.merge(states).rows()
        found.append(perf_counter() - begun)

    benchmark.pedantic(merge, rounds=cases.ROUNDS)
    benchmark.extra_info |= {
        "kind": "states",
        "name": str(case),
        "what": case.what,
        "bytes": max(map(len, states)),
        "seconds": median(found),
        "all_seconds": found,
        "required": case.required,
        "passed": case.required is None or median(found) <= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert median(found) <= case.required, f"{median(found):.2f} s: {case.required:g} s at most"


@pytest.mark.parametrize("case", params(cases.KEPT))
def bench_checkpoints(benchmark: Any, case: cases.Kept, tmp_path: Path) -> None:
    """Both sides in turns. What the code of checkpoints takes is also measured directly, as pairs of runs are noisy."""
    files, shares, writes = case.files(tmp_path), [], []

    def timed() -> Any:
        begun = perf_counter()
        with spent_in_checkpoints() as spent:
            found = case.run(files, checkpoint=tmp_path / "run.ckpt", checkpoint_every=cases.EVERY)
        shares.append(spent.seconds / (perf_counter() - begun))
        writes.append(spent.writes)
        return found

    assert repr(timed()) == repr(case.run(files))
    seconds, others = race(benchmark, timed, lambda: case.run(files), PAIRS, warm=False)
    benchmark.extra_info |= {
        "kind": "checkpoints",
        "name": str(case),
        "what": case.what,
        **compare(seconds, others, cases.COPIES * logs.ROWS),
        "share": median(shares),
        "all_shares": shares,
        "writes": median(writes),
        "required": case.required,
        "passed": median(shares) <= case.required,
    }
    if logs.FULL_SIZE:
        assert median(shares) <= case.required, f"{median(shares):.1%}: {case.required:.0%} at most"


@dataclass
class Spent:
    seconds: float = 0.0
    writes: int = 0


@contextmanager
def spent_in_checkpoints() -> Iterator[Spent]:
    """Measure the seconds that a run spends on checkpoints in the thread that waits for all others."""
    spent, depth = Spent(), [0]

    def watched(usual: Any, count: bool) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            depth[0] += 1
            begun = perf_counter()
            try:
                return usual(*args, **options)
            finally:
                depth[0] -= 1
                spent.seconds += perf_counter() - begun if depth[0] == 0 else 0.0
                spent.writes += count

        return call

    places: list[tuple[Any, str]] = [(Checkpoint, name) for name in ("__init__", "note", "write", "remove")]
    places += [(Keeper, name) for name in ("__init__", "note", "end")]
    with pytest.MonkeyPatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, watched(getattr(place, name), name == "write"))
        yield spent
