"""The cases of policy optimisation: learning, completing losses, and evaluating learned policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import SCAN
from bench.evaluation import cases as evaluation
from bench.replaying import cases as replaying
from drstream.optimize import DirectLossMinimizer, FilterTree, ProgressivePolicy, impute

LOG = logs.LogFile("wide", "snappy", min(1_000_000, logs.ROWS))  # its contexts stay in memory between epochs
NUMPY, NUMPY_BLOCKS = "NumPy in memory", "NumPy in memory, in blocks on two threads"


def open_log(source: Any) -> drs.Log:
    return drs.Log(source, actions=logs.ACTIONS)


# Direct loss minimisation

APPENDIX_D: dict[str, Any] = {"start": "random", "step": "decaying"}


@dataclass(frozen=True)
class Epochs:
    """Runs of appendix D side by side. The time is that of `more` epochs after the first."""

    runs: int
    more: int
    baseline: str
    pairs: int
    warm: bool = True
    log: logs.LogFile = LOG

    @property
    def task(self) -> str:
        return "1 run" if self.runs == 1 else f"{self.runs} runs side by side"

    def fit(self, epochs: int) -> DirectLossMinimizer:
        """Fits DR's losses. With tolerance=0 no run stops before the others."""
        learner = DirectLossMinimizer(**APPENDIX_D, restarts=self.runs, epochs=epochs, tolerance=0.0)
        return learner.fit(open_log(self.log.path), logs.model(), threads=racing.THREADS)

    def __str__(self) -> str:
        return f"epochs of direct loss minimisation, {self.task}, {self.log}, against {self.baseline}"


RUNS = 20  # the default of DirectLossMinimizer
EPOCHS = [
    Epochs(1, 10, SCAN, pairs=5),
    Epochs(RUNS, 5, SCAN, pairs=3),
    Epochs(1, 10, NUMPY, pairs=3, warm=False),
    Epochs(1, 10, NUMPY_BLOCKS, pairs=3, warm=False),
    Epochs(RUNS, 3, NUMPY, pairs=3, warm=False),  # an epoch in NumPy takes 5 s or more
    Epochs(RUNS, 3, NUMPY_BLOCKS, pairs=3, warm=False),
]

# Completed losses, and learned policies in `evaluate`

SNAPSHOTS = 256
STEPS = 8 * SNAPSHOTS  # a multiple of SNAPSHOTS; otherwise fewer snapshots are kept
EXPLORATION = 0.1


def complete(source: Any) -> int:
    """Completes the losses of all events, keeps none, and returns the number of events."""
    losses = impute(open_log(source), logs.model())
    return sum(len(batch.rows) for batch in losses.batches(threads=racing.THREADS))


@cache
def progressive() -> ProgressivePolicy:
    learner = drs.policies.EpsilonGreedy(EXPLORATION)
    policy = ProgressivePolicy(learner, horizon=STEPS, q=replaying.Q, snapshots=SNAPSHOTS)
    policy.fit(drs.Log(logs.world.table(30_000, seed=98)), logs.model())
    assert (policy.steps_, len(policy.weights_)) == (STEPS, SNAPSHOTS)
    return policy


@cache
def filter_tree() -> FilterTree:
    return FilterTree().fit(drs.Log(logs.world.table(10_000, seed=98)), logs.model())


def evaluate(policy: Any, source: Any, **options: Any) -> drs.Evaluation:
    return evaluation.Task("", {"learned": policy}).run(source, **options)


IMPUTE = "completed DR losses of all actions, streamed"
PROGRESSIVE = f"dm, ips, snips, dr of a ProgressivePolicy, {SNAPSHOTS} snapshots of an ε-greedy learner"
FILTER_TREE = "dm, ips, snips, dr of a FilterTree, scikit-learn's decision trees"
TASKS: dict[str, Callable[..., Any]] = {
    IMPUTE: complete,
    PROGRESSIVE: lambda source, **options: evaluate(progressive(), source, **options),
    FILTER_TREE: lambda source, **options: evaluate(filter_tree(), source, **options),
}
NUMPY_SCAN = "NumPy over a pyarrow scan"
BY_HAND = "scikit-learn and NumPy in memory"
ARGMAX = "drstream, an argmax policy"


@dataclass(frozen=True)
class Case:
    task: str
    baseline: str
    log: logs.LogFile = LOG
    pairs: int = 5
    baseline_rows: int | None = None  # the baseline gets only so many first events; None: all

    def __str__(self) -> str:
        return f"{self.task}, {self.log}, against {self.baseline}"


SHORT = logs.LogFile("wide", "snappy", min(200_000, logs.ROWS))  # 256 policies take half a minute for a million events
CASES = [
    Case(IMPUTE, SCAN, logs.WIDE),
    Case(IMPUTE, NUMPY_SCAN, logs.WIDE),
    Case(PROGRESSIVE, NUMPY, SHORT, pairs=3, baseline_rows=replaying.PEER_ROWS),
    Case(PROGRESSIVE, ARGMAX, SHORT, pairs=3),
    Case(FILTER_TREE, BY_HAND),
    Case(FILTER_TREE, ARGMAX),
]
NAMES = [*map(str, EPOCHS), *map(str, CASES)]
