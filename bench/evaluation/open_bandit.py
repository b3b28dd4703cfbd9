"""Open Bandit Pipeline, in a process of its own: its four estimators on arrays in memory.

It pins old versions of its dependencies, so it may need another Python: DRSTREAM_BENCH_OBP names one that can import
obp. As a program, `python open_bandit.py EVENTS.npz` reads the arrays, then estimates once for each line it gets.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

PYTHON = os.environ.get("DRSTREAM_BENCH_OBP") or sys.executable


def missing():
    """Why it cannot be measured, or an empty string."""
    done = subprocess.run([PYTHON, "-c", "import obp.ope"], capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def command(events: Path):
    return [PYTHON, __file__, str(events)]


def main():
    import numpy as np

    warnings.simplefilter("ignore")
    from obp import ope

    events = np.load(sys.argv[1])
    names = {"dm": ope.DirectMethod, "ips": ope.InverseProbabilityWeighting}
    names |= {"snips": ope.SelfNormalizedInverseProbabilityWeighting, "dr": ope.DoublyRobust}
    n = len(events["action"])
    feedback = {name: events[name] for name in ("action", "reward", "pscore")}
    feedback |= {"n_rounds": n, "n_actions": events["pi"].shape[1], "position": np.zeros(n, int)}
    feedback["context"] = np.zeros((n, 1))  # it asks for contexts, and does not use them
    pi, rhat = (events[name][:, :, np.newaxis] for name in ("pi", "rhat"))
    estimators = [estimator(estimator_name=name) for name, estimator in names.items()]
    evaluation = ope.OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=estimators)
    print(json.dumps({"rows": n}), flush=True)  # noqa: T201
    for _ in sys.stdin:
        values = evaluation.estimate_policy_values(action_dist=pi, estimated_rewards_by_reg_model=rhat)
        print(json.dumps({name: float(value) for name, value in values.items()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
