"""The command line of `scripts/paper`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from drstream.errors import DrstreamError
from scripts.studies import data
from scripts.studies.paper import page
from scripts.studies.paper.contents import EXPERIMENTS
from scripts.studies.trials import Setting

ROOT = Path(__file__).parents[3]
BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/paper", description="Run the paper's experiments on real data.")
    parser.add_argument(
        "experiment",
        choices=[*EXPERIMENTS, "all", "page"],
        help="the experiment to run; page: write the page from results, and run nothing",
    )
    parser.add_argument(
        "--quick", action="store_true", help="run fewer repetitions on fewer data sets; takes seconds to minutes"
    )
    parser.add_argument("--data", type=Path, default=data.FOLDER, help="folder of the data sets (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, help="folder for results (default: docs/paper; with --quick: build/paper)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    given = parser.parse_args()
    output = given.output or ROOT / ("build/paper" if given.quick else "docs/paper")
    setting = Setting(given.data, output, given.quick, given.seed)
    chosen = [name for name in EXPERIMENTS if given.experiment in (name, "all")]
    try:
        for name in chosen:
            started = time.perf_counter()
            path = EXPERIMENTS[name].run(setting)
            print(f"{name}: {path} in {time.perf_counter() - started:.0f} s")  # noqa: T201
        page.write(output, output.with_suffix(".md"))
        print(f"page: {output.with_suffix('.md')}")  # noqa: T201
    except DrstreamError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
