"""The command line of `scripts/replays`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.studies.replay import page
from scripts.studies.replay.run import simulate

ROOT = Path(__file__).parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replays", description="Compare replay with true online runs.")
    parser.add_argument("--page", action="store_true", help="write the page from results, and simulate nothing")
    parser.add_argument("--logs", type=int, default=32, help="logs of each cell (default: %(default)s)")
    parser.add_argument("--q-logs", type=int, default=16, help="those that q is tried on, too (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/replay_study", help="folder of results")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="number of processes (default: %(default)s)")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if not given.page:
        simulate(given.output, given.seed, given.logs, given.q_logs, given.workers)
    page.write(given.output, given.output.with_suffix(".md"))
    print(f"page: {given.output.with_suffix('.md')}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
