"""The command line of `scripts/real_logs`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from drstream.errors import DrstreamError
from scripts.studies import data
from scripts.studies.real_logs import page
from scripts.studies.real_logs.contents import LOGS
from scripts.studies.real_logs.results import write
from scripts.studies.trials import Setting

ROOT = Path(__file__).parents[3]
BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/real_logs", description="Evaluate policies on real logs whose truth is known."
    )
    parser.add_argument(
        "log",
        nargs="?",
        default="all",
        choices=[*LOGS, "all", "page"],
        help="the log to evaluate on; page: write the page from results, and run nothing (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="use fewer random halves; takes seconds")
    parser.add_argument("--data", type=Path, default=data.FOLDER, help="folder of the data sets (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, help="folder for results (default: docs/real_logs; with --quick: build/real_logs)"
    )
    given = parser.parse_args()
    output = given.output or ROOT / ("build/real_logs" if given.quick else "docs/real_logs")
    setting = Setting(given.data, output, given.quick)
    try:
        for name, log in LOGS.items():
            if given.log in (name, "all"):
                print(f"{name}: {write(name, log.run, setting)}")  # noqa: T201
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
