"""Ctrl-C and SIGTERM at any moment of a command: while modules and kernels load, in the pass, and while it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from scripts.studies.reliability.record import ERROR, LOST, SAME, Case
from tests.helpers.logs import world

PROGRAM = [sys.executable, "-c", "from drstream.cli import main; main()"]
SOON = 10.0  # seconds that a command may take to end, on a busy machine
ROWS = 20_000
RUNS = 2  # without a signal, before others: the first one may compile kernels
COMMANDS = {
    "evaluate": "evaluate {log} --policy uniform --output {out}.csv --state {out}.state",
    "replay": "replay {log} --policy epsilon-greedy --horizon 100 --output {out}.csv",
    "convert": "convert {log} {out}.arrow",
    "fit": "fit {log} --model logistic --output {out}.npz",
    "evaluate --workers 2": "evaluate {log} --policy uniform --workers 2 --output {out}.csv",
}
ENDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_whole: dict[str, tuple[float, dict[str, bytes]]] = {}  # by command: seconds, and the files that it writes


def run(first: int, last: int, folder: Path) -> Iterator[Case]:
    log = folder / "log.parquet"
    if not log.exists():
        pq.write_table(world(kinds=None).table(ROWS), log, row_group_size=ROWS // 8)
    for number in range(first, last):
        yield one(number, log, folder)


def one(number: int, log: Path, folder: Path) -> Case:
    name = list(COMMANDS)[number % len(COMMANDS)]
    kind = list(ENDS)[number // len(COMMANDS) % 2]
    seconds, wanted = whole(name, log, folder)
    row = f"{kind.name}, `{name}`"
    moment = random.Random(number).random() * seconds
    out = folder / f"case{number}"
    out.mkdir()
    started = time.monotonic()
    process = start(name, log, out / "out")
    time.sleep(max(0.0, started + moment - time.monotonic()))
    os.kill(process.pid, kind)
    try:
        _, error = process.communicate(timeout=SOON)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, error = process.communicate()
        return Case(row, LOST, f"after {moment:.2f} s: it went on for more than {SOON} s. {error}")
    found = {path.name: path.read_bytes() for path in out.iterdir()}
    said = [line for line in error.splitlines() if not line.startswith(("warning:", "no shard", "before"))]
    where = f"after {moment:.2f} of {seconds:.2f} s: exit code {process.returncode}, {error!r}, {sorted(found)}"
    if left(process.pid):
        return Case(row, LOST, f"{where}: processes are left")
    if process.returncode in (0, -kind) and found == wanted:
        return Case(row, SAME)  # it came too late: at most, the interpreter was about to end
    whole_files = all(wanted.get(name) == data for name, data in found.items())
    if process.returncode == 128 + kind and ENDS[kind] in said[-1:] and "Traceback" not in error:
        partial = name == "replay"  # which shows what was complete
        return Case(row, ERROR) if whole_files or partial else Case(row, LOST, f"{where}: half-written")
    if process.returncode in (1, -kind) and not found and "drstream" not in error.partition("Traceback")[2]:
        return Case(row, ERROR)  # before any line of drstream ran: Python's own answer
    return Case(row, LOST, where)


def start(name: str, log: Path, out: Path) -> subprocess.Popen[str]:
    words = COMMANDS[name].format(log=log, out=out).split()
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROGRAM, *words], text=True, start_new_session=True, preexec_fn=heed, **pipes)


def heed() -> None:
    """Let signals be heard, also if this study runs in the background of a shell, where Ctrl-C is ignored."""
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)


def whole(name: str, log: Path, folder: Path) -> tuple[float, dict[str, bytes]]:
    """How long a command takes, and the files that it writes: the last of some runs."""
    if name not in _whole:
        for attempt in range(RUNS):
            out = folder / f"whole{attempt}"
            out.mkdir(exist_ok=True)
            started = time.monotonic()
            process = start(name, log, out / "out")
            _, error = process.communicate()
            assert process.returncode == 0, error
            _whole[name] = time.monotonic() - started, {path.name: path.read_bytes() for path in out.iterdir()}
            for path in out.iterdir():
                path.unlink()
    return _whole[name]


def left(group: int) -> bool:
    """Whether processes of a group are there, a moment after its leader has ended."""
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
