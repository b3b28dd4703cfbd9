"""Other libraries that replay learning policies: Vowpal Wabbit and coba, on the first events of a log.

They get the same task: an ε-greedy policy with a linear score for each action, which learns from accepted events. They
differ from the paper's algorithm in several places, so their values differ from drstream's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from bench.common import logs
from bench.replaying import cases


@dataclass(frozen=True)
class Outcome:
    """What a library reports about its events."""

    events: int
    accepted: int
    value: float  # reward per event


Prepared = Callable[[], Outcome]  # the run that is timed; all preparation is done before


def need(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of other libraries
        pytest.importorskip(module, reason=f"{module} is not installed; drstream[bench] has it", exc_type=ImportError)


@cache
def events(log: logs.LogFile, rows: int) -> list[tuple[list[float], int, float, float]]:
    """Context, action, reward and propensity of the first rows."""
    head = ds.dataset(log.path, format="arrow" if log.path.suffix == ".arrow" else "parquet").head(rows)
    columns = (head[name].to_pylist() for name in ("x", "action", "reward", "propensity"))
    return list(zip(*columns, strict=True))


# Vowpal Wabbit reads text. The line of an action has its number; -q then gives each action its own linear score


def write_text(path: Path, log: logs.LogFile, rows: int) -> None:
    with path.open("w") as out:
        for x, action, reward, propensity in events(log, rows):
            features = " ".join(f"{j}:{value:.7g}" for j, value in enumerate(x))
            lines = [f"|a {k}" for k in range(logs.ACTIONS)]
            lines[action] = f"{action}:{-reward:g}:{propensity:.7g} {lines[action]}"
            out.write(f"shared |x {features}\n" + "\n".join(lines) + "\n\n")


def vowpal(log: logs.LogFile, rows: int, folder: Path) -> Prepared:
    need("vowpalwabbit")
    from vowpalwabbit import Workspace

    text = folder / f"{rows}.txt"
    write_text(text, log, rows)
    learner = f"--cb_explore_adf --epsilon {cases.EPSILON} -q xa --ignore_linear x --noconstant"
    command = f"--explore_eval {learner} --quiet --extra_metrics {folder / 'metrics.json'} -d {text}"

    def run() -> Outcome:
        workspace = Workspace(command)  # reads the file and learns
        accepted = int(workspace.get_learner_metrics()["explore_eval"]["weighted_update_count"])
        workspace.finish()
        seen = int(workspace.get_weighted_examples())
        return Outcome(seen, accepted, -workspace.get_sum_loss() / seen)

    return run


# coba takes a dictionary for each event


class Interactions:
    """An environment of coba, in memory."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self.found = found
        self.params: dict[str, Any] = {}

    def read(self) -> Any:
        return iter(self.found)


class NumpyGreedy:
    """drstream's EpsilonGreedy as a learner of coba. One product for all actions makes it as fast as Python allows."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.policy = cases.GREEDY.policies
        self.weights = np.zeros((logs.ACTIONS, logs.FEATURES + 1))

    def score(self, context: list[float], actions: list[str], action: str) -> float:
        best = (self.weights[:, :-1] @ np.array(context) + self.weights[:, -1]).argmax()
        epsilon = self.policy.epsilon
        return epsilon / len(actions) + (1 - epsilon) * (actions.index(action) == best)

    def learn(self, context: list[float], action: str, reward: float, probability: float) -> None:
        x = np.array([*context, 1.0])
        weights, rate = self.weights[int(action)], self.policy.learning_rate
        weights += rate * (reward - weights @ x) / (1 + rate * (x @ x)) * x


def coba(log: logs.LogFile, rows: int, learner: Callable[[], Any]) -> Prepared:
    from coba.evaluators import RejectionCB

    actions = [str(k) for k in range(logs.ACTIONS)]
    found = [
        {"context": x, "actions": actions, "action": actions[a], "reward": r, "probability": p}
        for x, a, r, p in events(log, rows)
    ]

    def run() -> Outcome:
        evaluator = RejectionCB(cpct=cases.Q, seed=1)  # ope=None is the fastest: it uses accepted rewards only
        rewards = [record["reward"] for record in evaluator.evaluate(Interactions(found), learner())]
        return Outcome(len(found), len(rewards), mean(rewards))

    return run


def coba_vowpal(log: logs.LogFile, rows: int, folder: Path) -> Prepared:
    """Runs coba's own ε-greedy learner, which is Vowpal Wabbit's.

    Without action features (--cb_explore 10) it would be four times as fast. But RejectionCB (8.1) does not pass the
    actions on, so it would learn that every action is the first.
    """
    need("vowpalwabbit")
    need("coba")
    from coba.learners import VowpalEpsilonLearner

    return coba(log, rows, lambda: VowpalEpsilonLearner(epsilon=cases.EPSILON, features=["a", "ax"]))


def coba_numpy(log: logs.LogFile, rows: int, folder: Path) -> Prepared:
    need("coba")
    return coba(log, rows, NumpyGreedy)


PEERS: dict[str, Callable[[logs.LogFile, int, Path], Prepared]] = {
    cases.VOWPAL: vowpal,
    cases.COBA: coba_vowpal,
    cases.COBA_NUMPY: coba_numpy,
}
