"""drstream of an earlier commit, or of this one, in a process of its own: DR-ns of an ε-greedy learner.

DRSTREAM_BENCH_BEFORE names a folder with its code. Without it, git writes the commit's code into a temporary folder.
As a program, `python before.py FOLDER LOG HORIZON Q EPSILON SHARDS THREADS` replays once for each line it gets. It
imports drstream from the folder, and nothing from the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

COMMIT = "c9c6c46"
ROOT = Path(__file__).parents[2]


def code(folder: Path) -> Path | str:
    """The folder with the earlier code, or the reason why there is none."""
    if given := os.environ.get("DRSTREAM_BENCH_BEFORE"):
        found = Path(given)
        return found if (found / "drstream").is_dir() else f"DRSTREAM_BENCH_BEFORE={given} has no folder drstream"
    archive = ["git", "-C", str(ROOT), "archive", COMMIT, "drstream"]
    try:
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return f"the repository has no commit {COMMIT}; set DRSTREAM_BENCH_BEFORE to a folder with its code"
    with tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return folder


def command(folder: Path, log: Path, settings: list[Any]) -> list[str]:
    return [sys.executable, __file__, *map(str, (folder, log, *settings))]


def environment(folder: Path, kernels: Path) -> dict[str, str]:
    """Kernels have their own cache: both commits would otherwise write into the same files."""
    return {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(kernels)}


def main() -> None:
    import drstream as drs

    folder, path = Path(sys.argv[1]), sys.argv[2]
    assert Path(drs.__file__).resolve().is_relative_to(folder.resolve()), f"drstream is that of {drs.__file__}"
    horizon, q, epsilon, shards, threads = map(json.loads, sys.argv[3:])
    world = drs.synth.World(10, 20, kinds=None)
    model = drs.models.Ridge().fit(drs.Log(world.table(10_000, seed=99)))  # as logs.model()
    print(json.dumps({"version": drs.__version__}), flush=True)  # noqa: T201
    for _ in sys.stdin:
        policy = drs.policies.EpsilonGreedy(epsilon)
        run = drs.replay(drs.Log(path, actions=10), policy, horizon, model, q=q, shards=shards, threads=threads)
        print(json.dumps({"events": run.events, "averages": run.replicates["average"].to_pylist()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
