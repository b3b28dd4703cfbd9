"""Writes the page of all topics, in Markdown, from the JSON of pytest-benchmark.

usage: python -m bench.common.report RESULTS.json [MORE.json ...] [OUT.md]   (without OUT.md, prints it)

With several files, a benchmark's result is that of the latest run that has it. So some benchmarks can be measured again
after a whole run.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from bench.candidates import cases as candidate_cases
from bench.candidates import report as candidate_report
from bench.categories import cases as category_cases
from bench.categories import report as category_report
from bench.common import front, history, main_table, plots
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

PAGE = front.README.parent / "docs" / "benchmarks.md"  # with it, the table of the README is written
TOPICS = [  # in the order of the page
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
    files, out = ([Path(a) for a in sys.argv[1:] if a.endswith(".json") == wanted] for wanted in (True, False))
    results = history.merged([history.read(file) for file in files])
    runs = history.saved(history.FOLDER, like=results)
    if not out:
        print(page(results, runs), end="")  # noqa: T201
        return
    write(results, runs, out[0])
    if out[0].resolve() == PAGE:
        front.write(results)


def write(results: history.Run, runs: list[history.Run], out: Path) -> None:
    """The page, and its plots in a folder beside it."""
    folder = out.with_name(plots.FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    out.write_text(page(results, runs))
    main_table.draw(TOPICS, runs, folder)
    for _, report in TOPICS:
        if hasattr(report, "draw"):
            report.draw(by_kind(results), folder)


def page(results: history.Run, runs: list[history.Run]) -> str:
    """The page of these results. The course of the main ratios is that of the saved runs."""
    kinds = by_kind(results)
    machine = results["machine_info"]
    full = machine["full_size"]
    found = {info["name"]: info for infos in kinds.values() for info in infos}
    parts = ["# Benchmarks", about(results)]
    if not full:
        rows = f"{machine['rows']:,} rows"
        parts.append(f"**This is a quick check with {rows}. Requirements are about 5,000,000 and are not judged.**")
    parts += [*main_table.sections(found, TOPICS, full, runs), missing(found, machine.get("quick", False))]
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


def about(results: history.Run) -> str:
    machine = results["machine_info"]
    versions = {"python": machine["python_version"], **machine["versions"]}
    return "\n".join(
        [
            "`scripts/bench` writes this page; do not edit it.",
            "",
            f"- {results['datetime'][:10]}, commit {history.commit(results)}",
            *results.get("earlier", []),
            f"- {history.machine(results)}",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
        ]
    )


def missing(found: dict[str, Info], quick: bool) -> str:
    """Lists the benchmarks without a row. Otherwise a requirement that was not measured would look met."""
    names = [name for cases, _ in TOPICS for name in (getattr(cases, "MAIN", ()) if quick else cases.NAMES)]
    absent = [name for name in names if name not in found]
    return "\n".join(["**Not measured in this run:**", "", *(f"- {name}" for name in absent)]) if absent else ""


if __name__ == "__main__":
    main()
