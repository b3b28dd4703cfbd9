"""The page of all topics, in Markdown, from the JSON of pytest-benchmark.

usage: python -m bench.common.report RESULTS.json [MORE.json ...] [OUT.md]   (without OUT.md, it is printed)

Of several results, e.g. of a whole run and of a later one of some benchmarks, the later ones count.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.common.markdown import Info
from bench.evaluation import cases as evaluation_cases
from bench.evaluation import report as evaluation_report
from bench.models import cases as model_cases
from bench.models import report as model_report
from bench.optimize import cases as optimize_cases
from bench.optimize import report as optimize_report
from bench.process import cases as process_cases
from bench.process import report as process_report
from bench.replaying import cases as replay_cases
from bench.replaying import report as replay_report
from bench.sparse import cases as sparse_cases
from bench.sparse import report as sparse_report

TOPICS = [  # in the order of the page
    (evaluation_cases, evaluation_report),
    (replay_cases, replay_report),
    (model_cases, model_report),
    (optimize_cases, optimize_report),
    (sparse_cases, sparse_report),
    (process_cases, process_report),
]


def main() -> None:
    files, out = ([a for a in sys.argv[1:] if a.endswith(".json") == wanted] for wanted in (True, False))
    text = page(merged([json.loads(Path(file).read_text()) for file in files]))
    if out:
        Path(out[0]).parent.mkdir(parents=True, exist_ok=True)
        Path(out[0]).write_text(text)
    else:
        print(text, end="")  # noqa: T201


def merged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One run's results; those of a later run stand in for the same benchmarks, and the page says so."""
    first, *others = runs
    for run in others:
        names = {benchmark["fullname"] for benchmark in run["benchmarks"]}
        first["benchmarks"] = [b for b in first["benchmarks"] if b["fullname"] not in names] + run["benchmarks"]
        files = sorted({name.partition("::")[0] for name in names})
        about = f"{run['datetime'][:10]}, commit {run['commit_info']['id'][:10]}"
        first.setdefault("later", []).append(f"- of {', '.join(files)}: {about}")
    return first


def page(results: dict[str, Any]) -> str:
    kinds: dict[str, list[Info]] = defaultdict(list)
    for benchmark in results["benchmarks"]:
        info = benchmark["extra_info"]
        if "kind" in info:  # else it failed before it was measured: parity, or no log
            kinds[info["kind"]].append(info)
    machine = results["machine_info"]
    full = machine["full_size"]
    parts = ["# Benchmarks", about(results), missing(kinds)]
    if not full:
        parts.append(
            f"**A quick check with {machine['rows']:,} rows: what is required holds for 5,000,000 and is not judged.**"
        )
    for _, report in TOPICS:
        parts += report.sections(kinds, full)
    return "\n\n".join(part for part in parts if part) + "\n"


def about(results: dict[str, Any]) -> str:
    machine = results["machine_info"]
    versions = {"python": machine["python_version"], **machine["versions"]}
    commit = results["commit_info"].get("id") or "unknown"
    changed = " with uncommitted changes" if results["commit_info"].get("dirty") else ""
    return "\n".join(
        [
            "Written by `scripts/bench`; do not edit.",
            "",
            f"- {results['datetime'][:10]}, commit {commit[:10]}{changed}",
            *dict.fromkeys(results.get("later", [])),
            f"- {machine['cpu'].get('brand_raw', machine['machine'])}, {machine['usable_cores']} cores, "
            f"{machine['system']} {machine['release']}",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
        ]
    )


def missing(kinds: dict[str, list[Info]]) -> str:
    """A requirement that has no row must not look as if it were met."""
    found = {info["name"] for infos in kinds.values() for info in infos}
    absent = [name for cases, _ in TOPICS for name in cases.NAMES if name not in found]
    return "\n".join(["**Not measured in this run:**", "", *(f"- {name}" for name in absent)]) if absent else ""


if __name__ == "__main__":
    main()
