"""Writes the page of all topics, in Markdown, from the JSON of pytest-benchmark.

usage: python -m bench.common.report RESULTS.json [MORE.json ...] [OUT.md]   (without OUT.md, prints it)

With several files, a later file replaces the results of the benchmarks that it contains. So some benchmarks can be
measured again after a whole run.
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
    """The first run's results, with those of later runs in place of the same benchmarks; the page names these."""
    first, *others = runs
    for run in others:
        names = {benchmark["fullname"] for benchmark in run["benchmarks"]}
        first["benchmarks"] = [b for b in first["benchmarks"] if b["fullname"] not in names] + run["benchmarks"]
        files = sorted({name.partition("::")[0] for name in names})
        about = f"{run['datetime'][:10]}, commit {run['commit_info']['id'][:10]}"
        first.setdefault("later", []).append(f"- measured later ({about}): {', '.join(files)}")
    return first


def page(results: dict[str, Any]) -> str:
    kinds: dict[str, list[Info]] = defaultdict(list)
    for benchmark in results["benchmarks"]:
        info = benchmark["extra_info"]
        if "kind" in info:  # without it, the benchmark failed before its measurement: no parity, or no log
            kinds[info["kind"]].append(info)
    machine = results["machine_info"]
    full = machine["full_size"]
    parts = ["# Benchmarks", about(results), missing(kinds)]
    if not full:
        rows = f"{machine['rows']:,} rows"
        parts.append(f"**This is a quick check with {rows}. Requirements are about 5,000,000 and are not judged.**")
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
            "`scripts/bench` writes this page; do not edit it.",
            "",
            f"- {results['datetime'][:10]}, commit {commit[:10]}{changed}",
            *dict.fromkeys(results.get("later", [])),
            f"- {machine['cpu'].get('brand_raw', machine['machine'])}, {machine['usable_cores']} cores, "
            f"{machine['system']} {machine['release']}",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
        ]
    )


def missing(kinds: dict[str, list[Info]]) -> str:
    """Lists the benchmarks without a row. Otherwise a requirement that was not measured would look met."""
    found = {info["name"] for infos in kinds.values() for info in infos}
    absent = [name for cases, _ in TOPICS for name in cases.NAMES if name not in found]
    return "\n".join(["**Not measured in this run:**", "", *(f"- {name}" for name in absent)]) if absent else ""


if __name__ == "__main__":
    main()
