"""What `drstream demo` does: a log with known truth, and three policies evaluated on it."""

from __future__ import annotations

from pathlib import Path

from drstream import synth
from drstream.evaluation import evaluate as evaluate_policies
from drstream.log import Log
from drstream.models import Ridge
from drstream.policies import Epsilon, Linear, Softmax, Uniform
from drstream.results import Evaluation


def write_log(path: Path, rows: int, seed: int) -> synth.World:
    world = synth.World(seed=seed)
    world.write(path, rows, seed=seed + 1)
    return world


def evaluate(world: synth.World, path: Path, threads: int | None) -> tuple[Evaluation, dict[str, float]]:
    """Estimates, and the true values beside them."""
    policies = {
        "uniform": Uniform(n_actions=world.n_actions),
        "softmax": Softmax(world.taste, world.appeal, temperature=0.5),
        "greedy": Epsilon(Linear(world.taste, world.appeal), 0.1),
    }
    train, test = Log(path).split(0.5, seed=0)
    model = Ridge().fit(train, threads=threads)
    result = evaluate_policies(test, policies, model, ["dm", "ips", "snips", "dr"], threads=threads, progress=True)
    return result, {name: world.value(policy) for name, policy in policies.items()}


def missed(result: Evaluation, truth: dict[str, float]) -> int:
    """How many intervals do not hold the truth; DM's do not claim to."""
    return sum(
        not result[policy, estimator].low <= truth[policy] <= result[policy, estimator].high
        for policy in result.policies
        for estimator in result.estimators
        if estimator != "dm"
    )
