"""Kills runs with SIGKILL, starts them again, and compares the bits with those of a run without a kill.

The process forks a child for each run, before it has read any log, so that a run costs no imports. Half of the kills
come at any moment of the run, the others at one of its steps: before or after a chunk, or while a file is written,
synced or renamed.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import drstream as drs
from drstream.converting import writing
from drstream.replaying import plan as planning
from drstream.replaying.keeping import Keeper
from drstream.states import files
from tests.helpers.days import CONTEXT, SOFT, day, write

FILES, ROWS, GROUP = 4, 1500, 500
ALWAYS = {"threads": 1, "checkpoint_every": 0}  # the checkpoint is written after each part or chunk
TRIES = 40  # moments that are drawn until a kill hits
OLD = 7200.0  # seconds: what is left behind seems to be so old


def open_log(folder):
    return drs.Log(sorted(folder.glob("*.parquet")), **CONTEXT, actions=4)


def evaluate(folder):
    options = {"by": "country", "cluster": "user", "model": drs.models.Constant(0.3), "state": folder / "out.state"}
    found = drs.evaluate(open_log(folder), {"soft": SOFT}, **options, **ALWAYS, checkpoint=folder / "run.ckpt")
    return json.dumps(found.to_dict()).encode() + (folder / "out.state").read_bytes()


def fit(folder):
    model = drs.models.Logistic().fit(open_log(folder), **ALWAYS, checkpoint=folder / "run.ckpt")
    return model.coef_.tobytes() + model.intercept_.tobytes() + repr((model.n_passes_, model.n_events_)).encode()


def replay(folder):
    policies = {"greedy": drs.policies.EpsilonGreedy(0.1), "ucb": drs.policies.LinUCB(0.5), "soft": SOFT}
    found = drs.replay(open_log(folder), policies, 40, **ALWAYS, checkpoint=folder / "run.ckpt")
    return repr([(run.row(), run.replicates.to_pydict(), run.curve.to_pydict()) for run in found]).encode()


def convert(folder):
    drs.convert(open_log(folder), folder / "out.arrow", row_group_rows=GROUP, threads=1)
    return (folder / "out.arrow").read_bytes()


WORK = {"evaluate": evaluate, "logistic fit": fit, "replay": replay, "convert": convert}


class Steps:
    """Counts the steps of a run, and kills the process at one of them."""

    def __init__(self, fatal=None):
        self.fatal, self.count = fatal, 0

    def step(self):
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def watch(self, place, name):
        usual = getattr(place, name)

        def watched(*args, **options):
            self.step()
            found = usual(*args, **options)
            self.step()
            return found

        setattr(place, name, watched)


def child(folder, name, fatal):
    """Do the work in this process, which ends."""
    code = 1
    try:
        planning.CHUNK_BYTES = 1  # chunks of 256 rows
        steps = Steps(fatal)
        for place, function in ((files, "_sync"), (files.os, "replace"), (Keeper, "note")):
            steps.watch(place, function)
        steps.watch(writing._Arrow, "write")
        found = WORK[name](folder)
        (folder / "result").write_bytes(steps.count.to_bytes(8, "little") + found)
        code = 0
    finally:
        os._exit(code)


def run(folder, name, fatal=None, delay=None):
    """Work in a child. Return whether it came to its end. It is killed at a step, or after so many seconds."""
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        child(folder, name, fatal)
    if delay is not None:
        time.sleep(delay)
        os.kill(number, signal.SIGKILL)
    _, status = os.waitpid(number, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError(f"{name} failed")
    return os.WIFEXITED(status)


def outcome(folder):
    """The number of steps, and all bits of the last run. Nothing else is left but the log."""
    found = (folder / "result").read_bytes()
    for path in (folder / "result", *folder.glob("out.*")):
        path.unlink()
    left = [path.name for path in folder.iterdir() if path.suffix != ".parquet"]
    assert not left, f"left behind: {left}"
    return int.from_bytes(found[:8], "little"), found[8:]


def kill(folder, name, rng, count, seconds, moment):
    """Kill a run at a step or at any moment. Return whether a kill hit."""
    for _ in range(TRIES):
        how = {"delay": rng.random() * seconds} if moment else {"fatal": rng.randrange(count)}
        if not run(folder, name, **how):
            return True
        outcome(folder)  # it was too late
    return False


def half_written(folder, wanted):
    """Whether a file that is published is not whole."""
    path = folder / "out.arrow"
    return path.exists() and path.read_bytes() != wanted


def study(folder, name, points, rng):
    """Kill runs at so many points. Return the numbers of points, kills, runs with the same bits, and others."""
    begun = time.perf_counter()
    assert run(folder, name)
    seconds, (count, wanted) = time.perf_counter() - begun, outcome(folder)
    row = {"work": name, "points": 0, "killed": 0, "same": 0, "lost": 0, "left": 0}
    for point in range(points):
        hit = kill(folder, name, rng, count, seconds, moment=point % 2 == 1)
        if hit and point % 4 == 2:  # once more, before it goes on; it may be at its end before
            row["killed"] += not run(folder, name, fatal=rng.randrange(max(count // 4, 1)))
        broken = half_written(folder, wanted)
        for path in folder.glob(".*.part"):  # of a write that was killed: the next write deletes it
            os.utime(path, (time.time() - OLD,) * 2)
            row["left"] += 1
        try:
            if not (folder / "result").exists():
                run(folder, name)
            same = outcome(folder)[1] == wanted and not broken
        except AssertionError as error:
            sys.stderr.write(f"{name}, point {point}: {error}\n")
            same = False
            for path in folder.iterdir():
                path.unlink() if path.suffix != ".parquet" else None
        row["points"] += 1
        row["killed"] += hit
        row["same" if same else "lost"] += 1
    return row


def main(folder, points, seed=0, names=tuple(WORK)):
    """Kill runs of each kind of work at so many points, and return what came of them."""
    write(folder, [day(number, ROWS) for number in range(FILES)], GROUP)
    rng = random.Random(seed)
    return [study(folder, name, points, rng) for name in names]


def table(found):
    columns = ("work", "points", "killed", "same", "lost")
    rows = [columns, *([str(row[name]) for name in columns] for row in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("points", type=int)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", type=Path)
    options.add_argument("--work", action="append", choices=WORK)
    given = options.parse_args()
    result = main(given.folder, given.points, given.seed, given.work or tuple(WORK))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.stdout.write(f"{table(result)}\n")
    sys.exit(any(row["lost"] for row in result))
