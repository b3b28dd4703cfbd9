"""Measures how long `evaluate` holds the interpreter's lock."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import pytest

from bench.common import logs
from bench.common.selecting import params
from bench.lock import cases, sampler
from bench.profile.steps import steps


@contextmanager
def frozen() -> Iterator[None]:
    """Without this, the collector looks through all that tests and libraries have made, with the lock held."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_lock(benchmark: Any, case: cases.Case) -> None:
    if reason := sampler.missing():
        pytest.skip(reason)
    path, small = case.log.make(), case.small.make()
    rate = sampler.check()
    assert case.alone.run(path).n == case.log.rows
    assert case.alone.run(small).n == case.small.rows
    found: list[sampler.Held] = []
    fewer: list[sampler.Held] = []

    def both() -> None:
        fewer.append(sampler.held(lambda: case.alone.run(small)))
        found.append(sampler.held(lambda: case.alone.run(path)))

    with frozen():
        benchmark.pedantic(both, rounds=cases.ROUNDS)
        if median(held.rate for held in found) < cases.LEAST_RATE * rate:
            pytest.skip("the machine is busy: the sampling thread has no core of its own")
        parts: list[dict[str, float]] = []
        for _ in range(cases.ROUNDS):
            samples: list[tuple[float, dict[str, float]]] = []
            rate = sampler.held(lambda: samples.append(steps(lambda: case.alone.run(path), sampler.clock))).rate  # noqa: B023
            whole, found_steps = samples[0]
            found_steps[cases.REST] = whole - sum(found_steps.values())
            parts.append({step: 1e9 * count / rate / case.log.rows for step, count in found_steps.items()})
    more = case.log.rows - case.small.rows
    seconds = [(one.seconds * one.share, two.seconds * two.share) for one, two in zip(fewer, found, strict=True)]
    all_ns = [1e9 * (large - few) / more for few, large in seconds]
    ns = median(all_ns)
    benchmark.extra_info |= {
        "kind": "lock",
        "name": str(case),
        "task": case.task.name,
        "log": str(case.log),
        "rows": case.log.rows,
        "ns": ns,
        "all_ns": all_ns,
        "call_ms": 1e3 * median(few for few, _ in seconds) - 1e-6 * ns * case.small.rows,
        "ns_with_call": 1e9 * median(large for _, large in seconds) / case.log.rows,
        "steps": {step: median(part[step] for part in parts) for step in parts[0]},
        "share": median(held.share for held in found),
        "events_per_second": case.log.rows / median(held.seconds for held in found),
        "required": case.required,
        "passed": case.required is None or ns <= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert ns <= case.required, f"{ns:.1f} ns an event: {case.required:g} ns at most"
