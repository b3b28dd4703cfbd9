"""The command line of the study: scripts/reliability PART ... runs parts, and writes the page."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from scripts.studies.reliability import record
from scripts.studies.reliability.page import write_page
from scripts.studies.reliability.parts import PARTS
from tests.helpers.places import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/reliability", description="Inject faults, and count what is lost.")
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "all", "page"], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--cases", type=int, help="Number of cases in all. By default that of the study.")
    parser.add_argument("--again", action="store_true", help="Begin again. Otherwise, a part goes on where it stopped.")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/reliability", help="Folder of results.")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/reliability.md")
    options = parser.parse_args()
    names = list(PARTS) if "all" in options.parts else [name for name in options.parts if name != "page"]
    for name in names:
        run(PARTS[name], options.cases, options.output, again=options.again)
    write_page(options.output, options.page)
    lost = [text for name in PARTS for text in record.read(name, options.output).get("lost", [])]
    sys.stdout.write("".join(f"LOST: {text}\n" for text in lost))
    return bool(lost)


def run(part: record.Part, cases: int | None, output: Path, *, again: bool = False) -> None:
    """Run the cases of a part that were not run yet, and save what was found after each piece."""
    lacking = [name for name in part.needs if importlib.util.find_spec(name) is None]
    if lacking:
        sys.stdout.write(f"{part.name}: left out, because {', '.join(lacking)} is not installed\n")
        return
    found = {} if again else record.read(part.name, output)
    wanted = part.cases if cases is None else cases
    with tempfile.TemporaryDirectory(prefix="drstream-") as folder:
        while (first := found.get("cases", 0)) < wanted:
            last = min(first + part.piece, wanted)
            record.add(found, list(part.run(first, last, Path(folder))), part.needs)
            record.write(found, part.name, output)
            sys.stdout.write(f"{part.name}: {last} of {wanted}, lost {len(found.get('lost', []))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
