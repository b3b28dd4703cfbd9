"""The command line of `scripts/conversions`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.studies.conversions import page
from scripts.studies.conversions.measure import measure

ROOT = Path(__file__).parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/conversions", description="Measure when drstream convert pays.")
    parser.add_argument("--rows", type=int, default=2_500_000, help="rows of the log (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="timings of each kind (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where logs are written, 6 GB (default: a temporary folder)")
    parser.add_argument("--print", action="store_true", help="print the tables, and leave the page as it is")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drstream-", dir=given.folder) as folder:
        tables = page.tables(measure(Path(folder), given.rows, given.rounds))
    if given.print:
        print(tables)  # noqa: T201
    else:
        page.write(tables, ROOT / "docs" / "convert.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
