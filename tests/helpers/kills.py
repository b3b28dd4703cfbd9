"""Kills runs of `evaluate` with SIGKILL, starts them again, and compares the bits with those of a run without a kill.

The process forks a child for each run, before it has read any log, so that a run costs no imports.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import drstream as drs
from tests.helpers.days import CONTEXT, SOFT, day, write


class Fatal:
    """A policy that kills its process at one of its calls, the first being number 0."""

    def __init__(self, fatal=None):
        self.fatal, self.calls = fatal, 0

    def probabilities(self, X):
        if self.calls == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        return np.tile([0.1, 0.2, 0.3, 0.4], (len(X), 1))


def evaluate(folder, fatal=None):
    """A pass that writes its checkpoint after each part."""
    policies = {"own": drs.policies.named("v1", Fatal(fatal)), "soft": SOFT}
    log = drs.Log(sorted(folder.glob("*.parquet")), **CONTEXT, actions=4)
    options = {"by": "country", "cluster": "user", "model": drs.models.Constant(0.3), "state": folder / "run.state"}
    return drs.evaluate(log, policies, threads=1, **options, checkpoint=folder / "run.ckpt", checkpoint_every=0)


def run(folder, fatal=None, delay=None):
    """Evaluate in a child. Return whether it came to its end. It is killed at a call, or after so many seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = evaluate(folder, fatal).to_dict()
            (folder / "result.json").write_text(json.dumps(found))
            code = 0
        finally:
            os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "the run failed"
    return os.WIFEXITED(status)


def outcome(folder):
    """All bits of the last run: its result, and its state."""
    found = (folder / "result.json").read_text(), (folder / "run.state").read_bytes()
    for name in ("result.json", "run.state"):
        (folder / name).unlink()
    left = [path.name for path in folder.iterdir() if path.suffix != ".parquet"]
    assert not left, f"left behind: {left}"
    return found


def main(folder, points, files=4):
    """Kill runs at this many points, half of them at any moment, and print how many went on to the same bits."""
    write(folder, [day(seed) for seed in range(files)])
    begun = time.perf_counter()
    assert run(folder)
    seconds, wanted = time.perf_counter() - begun, outcome(folder)
    rng, same, killed = random.Random(0), 0, 0
    calls = 3 * files  # each file has three row groups
    for point in range(points):
        moment = {"fatal": rng.randrange(calls)} if point % 2 == 0 else {"delay": rng.random() * seconds}
        killed += not run(folder, **moment)
        if (folder / "run.ckpt").exists() and point % 4 == 0:  # once more, before it goes on
            killed += not run(folder, fatal=0)
        if not (folder / "result.json").exists():
            (folder / "run.state").unlink(missing_ok=True)
            assert run(folder)
        for unfinished in folder.glob("*.part*"):  # of a write that was killed
            unfinished.unlink()
        same += outcome(folder) == wanted
    return {"points": points, "killed": killed, "same": same}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
