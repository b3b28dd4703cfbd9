"""The command line of `scripts/study`. A study is a module of this package with `PARTS` and `run(parts, setting)`.

A part of a study can be run alone. Rows go to build/studies/NAME, and what they say to results/NAME.json; results of
other parts stay as they are. The quick form leaves results alone: it writes to build/studies, too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from drstream.errors import DrstreamError
from drstream.running.executors import usable_cores
from scripts.studies import data
from scripts.studies.results import FOLDER, read
from scripts.studies.trials import ROOT, Setting

STUDIES = {
    "coverage": "How often do intervals contain the truth?",
    "paper": "Do the paper's tables and figures come out again?",
    "real_logs": "Are estimates right on real logs whose truth is known?",
    "replay": "How far is a replay from true online runs?",
    "reliability": "What comes of kills, broken files, lost workers, a full disk?",
    "precision": "How far are estimates in float32 from those in float64?",
    "conversions": "When does it pay to convert a log?",
    "executors": "What do threads, worker processes, Dask and Spark cost?",
}
SHOW = "show"
BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    width = max(map(len, STUDIES))
    parser = argparse.ArgumentParser(
        prog="scripts/study",
        usage="%(prog)s NAME [PART ...] [--quick] | show NAME",
        description="Run a study and keep its results, or show those of its last run.",
        epilog="studies:\n" + "\n".join(f"  {name:<{width}}  {question}" for name, question in STUDIES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*STUDIES, SHOW], metavar="NAME", help="the study to run, or show")
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small form, to try it; keeps no results")
    parser.add_argument("--data", type=Path, default=data.FOLDER, help="folder of real data (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=usable_cores(), help="number of processes (default: %(default)s)"
    )
    parser.add_argument("--logs", type=int, help="number of logs of each world of coverage")
    given = parser.parse_intermixed_args()
    if given.name == SHOW:
        known = sorted(path.stem for path in FOLDER.iterdir())
        if not given.parts or not set(given.parts) <= set(known):
            parser.error(f"show one of {', '.join(known)}")
        print("\n\n".join(read(FOLDER / f"{name}.json").shown() for name in given.parts))  # noqa: T201
        return 0
    study = importlib.import_module(f"scripts.studies.{given.name}")
    for part in given.parts:
        if part not in study.PARTS:
            parser.error(f"{given.name} has no part {part!r}: it has {', '.join(study.PARTS) or 'no parts'}")
    name = f"{given.name}-quick" if given.quick else given.name
    output = ROOT / "build" / "studies" / name
    output.mkdir(parents=True, exist_ok=True)
    setting = Setting(given.data, output, given.quick, given.seed, given.workers, given.logs)
    try:
        found = study.run(given.parts or list(study.PARTS), setting)
    except DrstreamError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    print(found.shown())  # noqa: T201
    path = output.with_suffix(".json") if given.quick else FOLDER / f"{name}.json"
    known = read(path)
    known.update(found)
    known.write(path)
    print(f"results: {path.relative_to(ROOT)}", file=sys.stderr)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
