"""Prints the page of all topics, in Markdown, from the JSON of pytest-benchmark.

usage: python -m bench.common.report [--keep] [RESULTS.json ...]   (without a file, of the last saved run)

With several files, a benchmark's result is that of the latest run that has it. So some benchmarks can be measured again
after a whole run. --keep writes the main rows to scripts/studies/results/benchmarks.json, and the table of the README.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from bench.candidates import cases as candidate_cases
from bench.candidates import report as candidate_report
from bench.categories import cases as category_cases
from bench.categories import report as category_report
from bench.common import front, history, main_table
from bench.common.markdown import Info
from bench.eligible import cases as eligible_cases
from bench.eligible import report as eligible_report
from bench.evaluation import cases as evaluation_cases
from bench.evaluation import report as evaluation_report
from bench.labels import cases as label_cases
from bench.labels import report as label_report
from bench.lock import cases as lock_cases
from bench.lock import report as lock_report
from bench.models import cases as model_cases
from bench.models import report as model_report
from bench.optimize import cases as optimize_cases
from bench.optimize import report as optimize_report
from bench.others import cases as other_cases
from bench.others import report as other_report
from bench.process import cases as process_cases
from bench.process import report as process_report
from bench.profile import cases as profile_cases
from bench.profile import report as profile_report
from bench.rankings import cases as ranking_cases
from bench.rankings import report as ranking_report
from bench.replaying import cases as replay_cases
from bench.replaying import report as replay_report
from bench.scaling import cases as scaling_cases
from bench.scaling import report as scaling_report
from bench.sparse import cases as sparse_cases
from bench.sparse import report as sparse_report
from bench.states import cases as state_cases
from bench.states import report as state_report
from scripts.studies.results import FOLDER, Found

RESULTS = FOLDER / "benchmarks.json"
TOPICS = [  # in the order of the page
    (other_cases, other_report),
    (evaluation_cases, evaluation_report),
    (replay_cases, replay_report),
    (model_cases, model_report),
    (optimize_cases, optimize_report),
    (sparse_cases, sparse_report),
    (candidate_cases, candidate_report),
    (category_cases, category_report),
    (ranking_cases, ranking_report),
    (eligible_cases, eligible_report),
    (label_cases, label_report),
    (state_cases, state_report),
    (profile_cases, profile_report),
    (lock_cases, lock_report),
    (process_cases, process_report),
    (scaling_cases, scaling_report),
]


def main() -> None:
    files = [Path(word) for word in sys.argv[1:] if word.endswith(".json")]
    results = history.merged([history.read(file) for file in files]) if files else history.last()
    print(page(results), end="")  # noqa: T201
    if "--keep" in sys.argv:
        kept(results).write(RESULTS)
        front.write(results)


def kept(results: history.Run) -> Found:
    """The main rows, all rows that miss a requirement, and a fresh process."""
    machine = results["machine_info"]
    shown = {info["name"]: info for infos in by_kind(results).values() for info in infos}
    rows = main_table.rows(shown, TOPICS, machine["full_size"])
    found = Found({"benchmarks": "; ".join(line.removeprefix("- ") for line in made(results))})
    found.figures = {
        "rows of a log": f"{machine['rows']:,}",
        "main rows": f"{len(rows)}",
        "main rows that meet their requirement": f"{sum(row[-1] == 'yes' for row in rows)}",
    }
    found.table("Main rows", main_table.HEAD, rows)
    missed = [info for info in shown.values() if info.get("required") is not None and info["passed"] is not True]
    cells = [[info["name"], f"{_figure(info):.3g}", f"{info['required']:.3g}"] for info in missed]
    found.table("Requirements that are missed", ["what", "figure", "required"], cells)
    starts = [
        [info["name"], f"{info['seconds']:.1f}", f"{info['cold_seconds']:.0f}", str(info["kernels"])]
        for info in by_kind(results)["start"]
    ]
    head = ["what", "kernels in the cache, s", "empty cache, s", "kernels compiled"]
    found.table("A fresh process", head, starts)
    return found


def _figure(info: Info) -> float:
    return next(info[name] for name in ("ratio", "ns", "growth", "seconds", "share") if name in info)


def page(results: history.Run) -> str:
    """The page of these results."""
    kinds = by_kind(results)
    machine = results["machine_info"]
    full = machine["full_size"]
    found = {info["name"]: info for infos in kinds.values() for info in infos}
    parts = ["# Benchmarks", "\n".join(made(results))]
    if not full:
        rows = f"{machine['rows']:,} rows"
        parts.append(f"**This is a quick check with {rows}. Requirements are about 5,000,000 and are not judged.**")
    parts += [*main_table.sections(found, TOPICS, full), missing(found, machine.get("quick", False))]
    for _, report in TOPICS:
        parts += report.sections(kinds, full)
    return "\n\n".join(part for part in parts if part) + "\n"


def by_kind(results: history.Run) -> dict[str, list[Info]]:
    kinds: dict[str, list[Info]] = defaultdict(list)
    for benchmark in results["benchmarks"]:
        info = benchmark["extra_info"]
        if "kind" in info:  # without it, the benchmark failed before its measurement: no parity, or no log
            kinds[info["kind"]].append(info)
    return kinds


def made(results: history.Run) -> list[str]:
    machine = results["machine_info"]
    versions = {"python": machine["python_version"], **machine["versions"]}
    return [
        f"- {results['datetime'][:10]}, commit {history.commit(results)}",
        *results.get("earlier", []),
        f"- {history.machine(results)}",
        f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
    ]


def missing(found: dict[str, Info], quick: bool) -> str:
    """Lists the benchmarks without a row. Otherwise a requirement that was not measured would look met."""
    names = [name for cases, _ in TOPICS for name in (getattr(cases, "MAIN", ()) if quick else cases.NAMES)]
    absent = [name for name in names if name not in found]
    return "\n".join(["**Not measured in this run:**", "", *(f"- {name}" for name in absent)]) if absent else ""


if __name__ == "__main__":
    main()
