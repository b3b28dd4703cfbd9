"""The command line of `scripts/precision`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from drstream.storage import atomic_path
from scripts.studies.paper.rows import table
from scripts.studies.precision.measure import CASES, ESTIMATORS, REQUIRED, ROWS, Found, measure

PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"
BEGIN, END = "<!-- scripts/precision writes this table -->", "<!-- end of the table -->"


def main() -> int:
    argparse.ArgumentParser(prog="scripts/precision", description="Compare float32 with float64.").parse_args()
    found = [measure(case) for case in CASES]
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    page = f"{head}{BEGIN}\n\n{shown(found)}\n\n{END}{rest.split(END)[1]}"
    with atomic_path(PAGE) as unfinished:
        unfinished.write_text(page)
    worst = max(value for one in found for value in one.values.values())
    print(f"page: {PAGE}; the largest difference is {worst:.1g}, required is {REQUIRED:g}")  # noqa: T201
    return int(worst > REQUIRED)


def shown(found: list[Found]) -> str:
    rows = [
        [
            f"{case.actions:,} x {case.features}",
            f"{case.scores:g}",
            f"{case.offset:g}",
            case.link,
            f"{one.weight:,.0f}",
            *(f"{one.values[name]:.0e}" for name in ESTIMATORS),
            f"{one.stderr:.0e}",
        ]
        for case, one in zip(CASES, found, strict=True)
    ]
    head = ["K x d", "spread of scores", "mean of features", "model", "largest weight", *ESTIMATORS, "standard errors"]
    rows_of = f"Logs of {ROWS:,} rows, fewer for K above 10; the largest relative difference over three policies."
    return f"{rows_of}\n\n{table(head, rows)}"


if __name__ == "__main__":
    sys.exit(main())
