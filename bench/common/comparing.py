"""Compares the ratios of a run with those of the last saved run of the same size.

usage: python -m bench.common.comparing RESULTS.json   (exit code 1: a ratio fell by more than its noise)

The noise of a row is three standard errors of the difference of the two medians, and at least 5%. The standard error of
a median is 1.25 s / √n, where n is the number of pairs and s the standard deviation of their ratios' logarithms. The
error of the difference has both runs in it: √(e² + e'²). So with nine pairs that differ by 10%, a ratio must fall by
about 16% to count, and a row whose pairs agree must fall by 5%.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

from bench.common import history
from bench.common.markdown import Info, table

MEDIAN = 1.25  # a median's standard error over a mean's, √(π/2)
ERRORS = 3
LEAST = 0.05  # machines are not the same from one day to the next

DIFFERENT_MACHINE = "The saved run is of another machine, so ratios may differ without a change of the code."


@dataclass(frozen=True)
class Change:
    name: str
    before: float
    now: float
    noise: float  # relative

    @property
    def fell(self) -> bool:
        return self.now < self.before * (1 - self.noise)

    @property
    def rose(self) -> bool:
        return self.before < self.now * (1 - self.noise)


def main() -> None:
    run = history.read(Path(sys.argv[1]))
    before = history.saved(history.FOLDER, like=run)
    if before is None:
        print("No run of this size is saved, so there is nothing to compare with.")  # noqa: T201
        return
    found = changes(before, run)
    print(report(before, run, found))  # noqa: T201
    sys.exit(any(change.fell for change in found))


def changes(before: history.Run, now: history.Run) -> list[Change]:
    """One for each row that both runs have."""
    old, new = ratios(before), ratios(now)
    return [
        Change(name, median(old[name]), median(new[name]), noise(old[name], new[name])) for name in new if name in old
    ]


def ratios(run: history.Run) -> dict[str, list[float]]:
    """The ratios of all pairs, by the row's name."""
    infos: list[Info] = [benchmark["extra_info"] for benchmark in run["benchmarks"]]
    return {info["name"]: info["ratios"] for info in infos if info.get("ratios")}


def noise(before: list[float], now: list[float]) -> float:
    """As a share of the ratio. One pair has no spread, so it counts as one that differs by a third."""
    width = ERRORS * math.hypot(error(before), error(now))
    return max(LEAST, 1 - math.exp(-width))


def error(pairs: list[float]) -> float:
    """The standard error of the median's logarithm."""
    if len(pairs) < 2:
        return math.log(4 / 3)
    return MEDIAN * stdev(map(math.log, pairs)) / math.sqrt(len(pairs))


def report(before: history.Run, now: history.Run, found: list[Change]) -> str:
    rows = (
        (change.name, f"{change.before:.3g}", f"{change.now:.3g}", f"{change.noise:.0%}", judged(change))
        for change in sorted(found, key=lambda change: change.now / change.before)
    )
    fallen = sum(change.fell for change in found)
    parts = [
        f"# Against {before['datetime'][:10]}, commit {history.commit(before)}",
        "" if history.machine(before) == history.machine(now) else DIFFERENT_MACHINE,
        table(("row", "ratio then", "ratio now", "noise", ""), rows),
        f"{fallen} of {len(found)} ratios fell by more than their noise.",
    ]
    return "\n\n".join(part for part in parts if part)


def judged(change: Change) -> str:
    return "**fell**" if change.fell else "rose" if change.rose else ""


if __name__ == "__main__":
    main()
