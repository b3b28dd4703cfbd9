"""From the JSON of pytest-benchmark to a page of Markdown.

usage: python -m bench.common.report RESULTS.json [MORE.json ...] [OUT.md]   (without OUT.md, it is printed)

Of several results, e.g. of a whole run and of a later one of some benchmarks, the later ones count.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.common.markdown import millions, seconds, spread, table, verdict
from bench.evaluation import cases
from bench.models import cases as model_cases
from bench.models import report as model_report
from bench.optimize import cases as optimize_cases
from bench.optimize import report as optimize_report
from bench.replaying import cases as replay_cases
from bench.replaying import report as replay_report
from bench.sparse import cases as sparse_cases
from bench.sparse import report as sparse_report

STEPS = {
    "interpreter": "interpreter starts",
    "imports": "imports of numpy, scipy, pyarrow, numba",
    "kernels": "drstream and its kernels",
    "fit": "reward model fitted on 10,000 rows",
    "task": "evaluation",
    "exit": "exit",
}
REPLAY_KINDS = ("replay", "share", "tracker", "replay memory")
MODEL_KINDS = ("fit", "fit memory", "crossfit")
KINDS = ("throughput", "memory", "start", *REPLAY_KINDS, *MODEL_KINDS, "dlm", "optimize", "sparse")
NAMES = [*cases.NAMES, *replay_cases.NAMES, *model_cases.NAMES, *optimize_cases.NAMES, *sparse_cases.NAMES]


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
    kinds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
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
    if kinds["throughput"]:
        parts += ["## Throughput", THROUGHPUT, throughput(kinds["throughput"], full)]
    if kinds["memory"]:
        parts += ["## Peak memory", MEMORY, memory(kinds["memory"], full)]
    parts += replay_report.sections(kinds, full)
    parts += model_report.sections(kinds, full)
    parts += optimize_report.sections(kinds)
    parts += sparse_report.sections(kinds["sparse"])
    if kinds["start"]:
        parts += ["## A fresh process", START]
        for info in kinds["start"]:
            parts += [STARTS[info["task"]], start(info, full)]
    return "\n\n".join(part for part in parts if part) + "\n"


THROUGHPUT = (
    "K = 10 actions, d = 20 continuous float32 features, 2 threads on each side. Runs alternate; the ratio is the "
    "median over pairs of drstream's throughput to the baseline's, with the smallest and the largest pair beside it."
)
MEMORY = "Of the process that evaluates dm, ips, snips and dr of a softmax policy; median of three each."
START = "Reads a Parquet log of 1,000 rows; median of five."
STARTS = {
    "evaluate": "Evaluates dm, ips, snips and dr of a softmax policy:",
    "replay": "Replays an ε-greedy learner:",
}


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


def missing(kinds: dict[str, list[dict[str, Any]]]) -> str:
    """A requirement that has no row must not look as if it were met."""
    found = {info["name"] for infos in kinds.values() for info in infos}
    absent = [name for name in NAMES if name not in found]
    return "\n".join(["**Not measured in this run:**", "", *(f"- {name}" for name in absent)]) if absent else ""


def throughput(found: list[dict[str, Any]], full: bool) -> str:
    head = ("what", "log", "events/s", "against", "events/s", "ratio", "required", "met")
    return table(
        head,
        (
            (
                info["task"],
                f"{info['log']}, {millions(info['rows'])} rows",
                millions(info["events_per_second"]),
                info["baseline"],
                millions(info["baseline_events_per_second"]),
                spread(info["ratio"], info["ratios"]),
                "" if info["required"] is None else f"{info['required']:.2f}",
                verdict(info, full),
            )
            for info in found
        ),
    )


def memory(found: list[dict[str, Any]], full: bool) -> str:
    rows = (
        (
            info["log"],
            *(
                f"{peak:.0f} MB at {millions(count)} rows"
                for count, peak in zip(info["rows"], info["peak_mb"], strict=True)
            ),
            f"{info['growth']:.2f}",
            f"{info['required_growth']:.2f}, below {info['required_mb']} MB",
            verdict(info, full),
        )
        for info in found
    )
    return table(("log", "peak", "peak", "ratio", "required: at most", "met"), rows)


def start(info: dict[str, Any], full: bool) -> str:
    labels = {**STEPS, "task": "replay"} if info["task"] == "replay" else STEPS
    rows = [(label, seconds(info["times"][step]), seconds(info["cold_times"][step])) for step, label in labels.items()]
    rows.append(("**all**", f"**{seconds(info['seconds'])}**", seconds(info["cold_seconds"])))
    if info["required"] is not None:
        rows.append((f"required: below {info['required']} s", verdict(info, full), ""))
    return table(("step", "kernels in the cache", f"empty cache, {info['kernels']} kernels compiled"), rows)


if __name__ == "__main__":
    main()
