"""The command line of `scripts/coverage`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.studies.coverage import page
from scripts.studies.coverage.run import simulate, simulate_thresholds
from scripts.studies.coverage.worlds import WORLDS

ROOT = Path(__file__).parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/coverage", description="Measure how often intervals cover.")
    parser.add_argument("worlds", nargs="*", help=f"the worlds to simulate (default: all): {', '.join(WORLDS)}")
    parser.add_argument("--page", action="store_true", help="write the page from counts, and simulate nothing")
    parser.add_argument("--quick", action="store_true", help="simulate a tenth of the logs")
    parser.add_argument("--output", type=Path, help="folder of counts (default: docs/coverage, or build/coverage)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="number of processes (default: %(default)s)")
    given = parser.parse_args()
    for name in given.worlds:
        if name not in WORLDS:
            parser.error(f"no world {name!r}: one of {', '.join(WORLDS)}")
    folder = given.output or ROOT / ("build/coverage" if given.quick else "docs/coverage")
    folder.mkdir(parents=True, exist_ok=True)
    if not given.page:
        simulate_thresholds(folder, given.seed, quick=given.quick)
        simulate(given.worlds or list(WORLDS), folder, given.seed, given.workers, quick=given.quick)
    page.write(folder, folder.with_suffix(".md"))
    print(f"page: {folder.with_suffix('.md')}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
