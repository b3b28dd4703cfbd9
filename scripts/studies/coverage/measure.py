"""Evaluates simulated logs, and counts how often each interval covers the truth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import drstream as drs
from drstream.evaluation.result import Evaluation
from drstream.evaluation.settings import Settings
from drstream.findings import worst
from drstream.intervals import methods, t_score
from drstream.intervals.anytime import anytime_path
from drstream.intervals.statistic import Constants
from scripts.studies.coverage.worlds import CLICKS, World
from scripts.studies.trials import generator

ESTIMATORS = ("ips", "snips", "dr")
LEVELS, USUAL = (0.9, 0.95, 0.99), 0.95
QUICK = ("normal", "cluster", "likelihood", "gamma")  # methods that take little time
DEFAULT, ALWAYS = "default", "anytime, at all times"
LARGEST = "freedman, largest"  # its constants are the largest possible ones, and not measured
GIVEN = "freedman, given"  # its constants are the true ones
COUNTED = "cluster, each counts"  # degrees of freedom: the number of clusters, not their effective number
Key = tuple[str, str, float, str]  # what is estimated, estimator, level, method


@dataclass
class Count:
    """What happened to one interval over all logs."""

    logs: int = 0  # where the interval is defined
    covered: int = 0
    below: int = 0  # the truth lies below the interval
    width: float = 0.0  # sum over logs
    undefined: int = 0

    def add(self, low: float, high: float, truth: float) -> None:
        if math.isnan(low) or math.isnan(high):
            self.undefined += 1
            return
        self.logs += 1
        self.covered += low <= truth <= high
        self.below += truth < low
        self.width += high - low

    def merge(self, other: Count) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Counts:
    """The counts of a world."""

    logs: int = 0
    intervals: dict[Key, Count] = field(default_factory=lambda: defaultdict(Count))
    chosen: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # of what, estimator, method by default
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)  # policy, worst level

    def merge(self, other: Counts) -> None:
        self.logs += other.logs
        for key, count in other.intervals.items():
            self.intervals[key].merge(count)
        self.chosen.update(other.chosen)
        self.findings.update(other.findings)


def measure(world: World, seed: int, chunk: int, size: int, *, full: bool = True) -> Counts:
    """Draw some logs of a world, evaluate them, and count: all methods at all levels, or the quick ones at 95 %."""
    counts = Counts()
    for table in world.tables(generator(seed, chunk), size):
        count_log(world, table, counts, full=full)
    return counts


def evaluate(world: World, table: pa.Table, **more: Any) -> Evaluation:
    return drs.evaluate(
        world.log(table),
        world.named_policies,
        world.model,
        list(ESTIMATORS),
        cluster=world.cluster,
        threads=1,
        **more,
    )


def count_log(world: World, table: pa.Table, counts: Counts, *, full: bool = True) -> None:
    names = [name for name in (methods.ALL if full else QUICK) if name != "cluster" or world.cluster is not None]
    result = evaluate(world, table, interval=names, reward_range=CLICKS, max_weight_bound=world.max_weight)
    counts.logs += 1
    told = CLICKS if world.range_told else None
    for level in LEVELS if full else (USUAL,):
        named = _with(result, replace(result._settings, confidence=level))
        default = _with(result, Settings((), level, told, None, world.cluster))
        usual = _with(result, replace(named._settings, names=tuple(n for n in names if n in QUICK)))
        for what, estimator, truth, pick in _cases(world):
            if level != USUAL and what not in _some(world):
                continue
            found = pick(named if what in _some(world) else usual, estimator)
            for name, (low, high) in found.intervals.items():
                counts.intervals[what, estimator, level, name].add(low, high, truth)
            if full and what in _some(world) and world.cluster is None:
                for name, constants in _guarantees(world, what, estimator).items():
                    settings = replace(named._settings, names=("freedman",), constants=constants)
                    sure = pick(_with(result, settings), estimator)
                    counts.intervals[what, estimator, level, name].add(sure.low, sure.high, truth)
            if world.cluster is not None:
                half = t_score(level, _filled_buckets(result) - 1) * found.stderr
                counts.intervals[what, estimator, level, COUNTED].add(found.value - half, found.value + half, truth)
            shown = pick(default, estimator)
            counts.intervals[what, estimator, level, DEFAULT].add(shown.low, shown.high, truth)
            if level == USUAL:
                counts.chosen[what, estimator, shown.method] += 1
        if level == USUAL:
            for policy in world.policies:
                about = [f for f in default.findings if f.policy in (policy, None)]
                counts.findings[policy, worst(about)] += 1
        if world.adaptive and full:
            _count_paths(world, named, level, counts)


def _filled_buckets(result: Evaluation) -> int:
    buckets = next(iter(result.statistics.groups.values()))[0].buckets
    assert buckets is not None
    return int((buckets.count > 0).sum())


def _some(world: World) -> tuple[str, str]:
    """What all methods and levels are measured for. The rest is measured at 95 %, for methods that take little time."""
    first, second = list(world.policies)[:2]
    return first, f"{first} - {second}"


def _guarantees(world: World, what: str, estimator: str) -> dict[str, Constants]:
    """Return constants of Theorem 3.9 that hold, and so guarantee the coverage."""
    return {GIVEN: world.constants(what.split(" - "), estimator), LARGEST: Constants(measured=False)}


def _with(result: Evaluation, settings: Settings) -> Evaluation:
    """The same sums with other settings: as if the log had been evaluated with these."""
    header = result._about.header
    request = replace(header.request, settings=settings)
    return Evaluation(replace(result._about, header=replace(header, request=request)), result.statistics)


def _cases(world: World) -> Iterator[tuple[str, str, float, Any]]:
    """What is estimated, the estimator, the truth, and how to get the estimate from a result."""
    truth = world.truth
    first, second = list(world.policies)[:2]
    for estimator in ESTIMATORS:
        for policy in world.policies:
            yield policy, estimator, truth[policy], lambda r, e, p=policy: r[p, e]
        if None in truth:
            gain = truth[first] - truth[None]
            yield f"{first} - logging", estimator, gain, lambda r, e: r.difference(first, estimator=e)
        gap = truth[first] - truth[second]
        yield f"{first} - {second}", estimator, gap, lambda r, e: r.difference(first, second, e)


def _count_paths(world: World, result: Evaluation, level: float, counts: Counts) -> None:
    """Count logs in which the anytime interval covers after every stretch."""
    limits = result._settings.limits
    first, second = list(world.policies)[:2]
    for estimator in ESTIMATORS:
        form = result._form(estimator)
        sums = result.statistics
        paths = {policy: (sums.value(j, form), world.truth[policy]) for j, policy in enumerate(world.policies)}
        paths[f"{first} - {second}"] = sums.difference(0, 1, form), world.truth[first] - world.truth[second]
        for what, (statistic, truth) in paths.items():
            _, low, high = anytime_path(statistic, limits)
            counts.intervals[what, estimator, level, ALWAYS].add(float(low.max()), float(high.min()), truth)
