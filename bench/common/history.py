"""Keeps runs: reads pytest-benchmark's JSON, strips it to what pages and comparisons need, and saves it.

usage: python -m bench.common.history RESULTS.json [MORE.json ...]   (saves into bench/history, prints the file's name)

A saved run has the same shape as pytest-benchmark's JSON, so that all readers take either.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from drstream.states.files import atomic_path

FOLDER = Path(__file__).parents[1] / "history"
MACHINE = ("machine", "system", "release", "python_version", "usable_cores", "versions", "rows", "full_size", "quick")
COMMIT = ("id", "time", "dirty")
DIGITS = 6  # significant ones of every figure

Run = dict[str, Any]


def main() -> None:
    print(save(merged([read(Path(file)) for file in sys.argv[1:]]), FOLDER))  # noqa: T201


def read(path: Path) -> Run:
    return json.loads(path.read_text())


def merged(runs: list[Run]) -> Run:
    """The latest run's results, and what only earlier runs have measured. The page names other commits and machines."""
    latest, *others = sorted(runs, key=lambda run: run["datetime"], reverse=True)
    earlier: dict[str, set[str]] = {}  # files, by when they were measured
    known = {benchmark["fullname"] for benchmark in latest["benchmarks"]}
    for run in others:
        more = [benchmark for benchmark in run["benchmarks"] if benchmark["fullname"] not in known]
        if not more:
            continue
        latest["benchmarks"] += more
        known |= {benchmark["fullname"] for benchmark in more}
        if (commit(run), machine(run)) == (commit(latest), machine(latest)):
            continue
        elsewhere = "" if machine(run) == machine(latest) else f", on another machine, {machine(run)}"
        about = f"{run['datetime'][:10]}, commit {commit(run)}{elsewhere}"
        earlier.setdefault(about, set()).update(benchmark["fullname"].partition("::")[0] for benchmark in more)
    lines = [f"- measured earlier ({about}): {', '.join(sorted(files))}" for about, files in earlier.items()]
    lines += [line for run in others for line in run.get("earlier", [])]
    if lines:
        latest["earlier"] = [*latest.get("earlier", []), *lines]
    return latest


def save(run: Run, folder: Path) -> Path:
    """Save a run in the place of the one before. One line holds one benchmark.

    The file's name has the date, the commit and, for a quick run, the word.
    """
    run = stripped(run)
    benchmarks = run.pop("benchmarks")
    moment = run["datetime"][:16].replace(":", "").replace("T", "-")
    commit = (run["commit_info"]["id"] or "unknown")[:10]
    path = folder / f"{moment}-{commit}{'-quick' if run['machine_info']['quick'] else ''}.json"
    former = _paths(folder, like=run)
    head = json.dumps(run, indent=1)[:-2]
    lines = ",\n".join(f"  {json.dumps(benchmark, ensure_ascii=False)}" for benchmark in benchmarks)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as unfinished:
        unfinished.write_text(f'{head},\n "benchmarks": [\n{lines}\n ]\n}}\n')
    for other in former:
        if other != path:
            other.unlink()
    return path


def stripped(run: Run) -> Run:
    """Without the times of single rounds, the machine's name, and what pytest-benchmark computes of them."""
    machine, commit = run["machine_info"], run["commit_info"]
    cpu = {"brand_raw": machine["cpu"].get("brand_raw", machine["machine"])}
    return {
        "datetime": run["datetime"],
        "commit_info": {key: commit.get(key) for key in COMMIT},
        "machine_info": {"cpu": cpu, **{key: machine.get(key) for key in MACHINE}},
        **({"earlier": run["earlier"]} if "earlier" in run else {}),
        "benchmarks": [
            {"fullname": b["fullname"], "extra_info": rounded(b["extra_info"])}
            for b in run["benchmarks"]
            if "kind" in b["extra_info"]  # without it, the benchmark failed before its measurement
        ],
    }


def rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.{DIGITS}g}") if isinstance(found, float) else found


def saved(folder: Path, like: Run) -> Run | None:
    """The saved run of the same size as `like`, and quick if it is."""
    runs = [read(path) for path in _paths(folder, like)]
    return max(runs, key=lambda run: run["datetime"], default=None)


def last() -> Run:
    """The saved run of all benchmarks."""
    return next(run for run in map(read, FOLDER.glob("*.json")) if not run["machine_info"]["quick"])


def _paths(folder: Path, like: Run) -> list[Path]:
    return [path for path in folder.glob("*.json") if _form(read(path)) == _form(like)]


def _form(run: Run) -> tuple[Any, ...]:
    return run["machine_info"]["rows"], bool(run["machine_info"]["quick"])


def processor(run: Run) -> str:
    info = run["machine_info"]
    return str(info["cpu"].get("brand_raw", info["machine"]))


def machine(run: Run) -> str:
    info = run["machine_info"]
    return f"{processor(run)}, {info['usable_cores']} cores, {info['system']} {info['release']}"


def commit(run: Run) -> str:
    changed = " with uncommitted changes" if run["commit_info"].get("dirty") else ""
    return f"{(run['commit_info'].get('id') or 'unknown')[:10]}{changed}"


if __name__ == "__main__":
    main()
