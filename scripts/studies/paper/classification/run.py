"""Section 4.1: classification as a bandit problem. Figure 1 compares estimators of the error, figure 2 learners.

A third experiment compares the forms of direct loss minimisation.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import drstream as drs
from scripts.studies import data, trials
from scripts.studies.trials import Row, Setting

FIGURE1, FIGURE2, SPLIT = 1, 2, 4  # keys of random numbers
TRAIN = 0.7  # of a set, in figure 2
SMALL = ("ecoli", "glass", "vehicle", "yeast")  # the sets of --quick
CHUNK = 25  # repetitions of figure 1 in a task
APPENDIX_D = {"start": "random", "step": "decaying"}  # direct loss minimisation of the paper, but for intercepts


@cache
def _load(name: str, folder: Path) -> data.Classes:
    return data.uci(name, folder)


def bandit(X: NDArray[Any], y: NDArray[np.int64], n_classes: int, rng: np.random.Generator) -> pa.Table:
    """Section 4.1.1: each example reveals the loss 1[a != y] of one action, which is drawn uniformly."""
    action = rng.integers(0, n_classes, len(y))
    cost = (action != y).astype(float)
    columns = {"action": action, "cost": cost, "reward": 1 - cost, "propensity": np.full(len(y), 1 / n_classes)}
    return pa.table({**columns, "x": data.rows(X)})


def as_log(table: pa.Table, outcome: str, n_classes: int) -> drs.Log:
    """A log of losses ("cost") or of rewards, 1 - loss. DR and DM give the same for both; IPS does not."""
    other = "reward" if outcome == "cost" else "cost"  # Log uses the one that is left; it negates costs
    return drs.Log(table.drop_columns([other]), context="x", actions=n_classes)


def costs(y: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """The loss of each class for each example, (n, K)."""
    return (np.arange(n_classes) != y[:, None]).astype(float)


def full_feedback(X: NDArray[Any], y: NDArray[np.int64], n_classes: int) -> drs.Log:
    """Full feedback as a log, with all actions for each example."""
    columns = {"action": np.tile(np.arange(n_classes), len(y)), "reward": 1 - costs(y, n_classes).reshape(-1)}
    context = data.rows(np.repeat(X, n_classes, axis=0))
    return drs.Log(pa.table({**columns, "x": context}), context="x", propensity=None, actions=n_classes)


# Figure 1


def figure1(setting: Setting) -> Path:
    started = time.perf_counter()
    names = SMALL if setting.quick else tuple(data.UCI)
    count = setting.repetitions(500, 100)
    chunks = [(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    cases = [(name, setting.data, setting.seed, *chunk, setting.quick) for name in names for chunk in chunks]
    rows = trials.run(estimates, cases, setting, "Figure 1")
    return trials.write("figure1", rows, setting, started)


@cache
def _policies(name: str, folder: Path, seed: int, quick: bool) -> tuple[dict[str, Any], Any, data.Classes]:
    """Steps 1 and 2 of section 4.1.2: classifiers, the loss model, and the evaluation set.

    One classifier is drstream's default: it has intercepts and standardised features, and converges. The other has
    neither, and takes the steps of appendix D.
    """
    known = _load(name, folder)
    rng = trials.generator(seed, SPLIT, list(data.UCI).index(name))
    order = rng.permutation(len(known.y))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    X, y, K = known.X[train], known.y[train], known.n_classes
    forms = {"default": {}, "plain": {**APPENDIX_D, "standardize": False, "fit_intercept": False}}
    known_costs = drs.optimize.Losses.known(X, costs(y, K))
    policies = {
        form: drs.optimize.DirectLossMinimizer(**_effort(quick), **options).fit(known_costs, threads=1)
        for form, options in forms.items()
    }
    model = drs.models.Ridge().fit(full_feedback(X, y, K), threads=1)
    return policies, model, data.Classes(name, known.X[test], known.y[test], K)


def _effort(quick: bool) -> dict[str, Any]:
    return {"restarts": 5} if quick else {}


def error_of(policy: Any, X: NDArray[Any], y: NDArray[np.int64]) -> float:
    return float((policy.probabilities(X).argmax(axis=1) != y).mean())


def estimates(name: str, folder: Path, seed: int, first: int, last: int, quick: bool) -> list[Row]:
    """Steps 3 and 4, for some of the repetitions."""
    policies, model, held = _policies(name, folder, seed, quick)
    truth = {form: error_of(policy, held.X, held.y) for form, policy in policies.items()}
    rows = []
    for repetition in range(first, last):
        rng = trials.generator(seed, FIGURE1, list(data.UCI).index(name), repetition)
        table = bandit(held.X, held.y, held.n_classes, rng)
        rewards, losses = (as_log(table, outcome, held.n_classes) for outcome in ("reward", "cost"))
        result = drs.evaluate(rewards, policies, model, estimators=["dm", "ips", "dr"], threads=1)
        of_losses = drs.evaluate(losses, policies, estimators="ips", threads=1)
        for form in policies:
            errors = {estimator: 1 - result[form, estimator].value for estimator in ("dm", "dr")}
            errors |= {"ips": -of_losses[form, "ips"].value, "ips of rewards": 1 - result[form, "ips"].value}
            about = {"data": name, "repetition": repetition, "classifier": form, "truth": truth[form]}
            rows += [{**about, "estimator": estimator, "error": error} for estimator, error in errors.items()]
    return rows


# Figure 2


def figure2(setting: Setting) -> Path:
    started = time.perf_counter()
    names = SMALL if setting.quick else tuple(data.UCI)
    count = setting.repetitions(30, 4)
    by_size = sorted(names, key=lambda name: -data.UCI[name][2])  # long ones first, to keep all cores busy
    cases = [(name, setting.data, setting.seed, i, setting.quick) for name in by_size for i in range(count)]
    rows = trials.run(learners, cases, setting, "Figure 2")
    return trials.write("figure2", rows, setting, started)


class Split(NamedTuple):
    """One repetition of section 4.1.3: bandit feedback of the training part, and the test part."""

    table: pa.Table
    X: NDArray[Any]  # of the test part
    y: NDArray[np.int64]
    n_classes: int

    @classmethod
    def of(cls, name: str, folder: Path, seed: int, repetition: int) -> Split:
        known = _load(name, folder)
        rng = trials.generator(seed, FIGURE2, list(data.UCI).index(name), repetition)
        order = rng.permutation(len(known.y))
        cut = round(TRAIN * len(order))
        train, test = order[:cut], order[cut:]
        table = bandit(known.X[train], known.y[train], known.n_classes, rng)
        return cls(table, known.X[test], known.y[test], known.n_classes)


def learners(name: str, folder: Path, seed: int, repetition: int, quick: bool) -> list[Row]:
    """Section 4.1.3: the test error of each learner's policy, learned from partial feedback on the training set."""
    split = Split.of(name, folder, seed, repetition)
    log, rewards = (as_log(split.table, outcome, split.n_classes) for outcome in ("cost", "reward"))
    model = drs.models.Ridge().fit(log, threads=1)  # on the same events, as in the paper
    optimize = drs.optimize
    made = {
        ("dlm", "ips"): (optimize.DirectLossMinimizer(**_effort(quick)), log, None),
        ("dlm", "ips of rewards"): (optimize.DirectLossMinimizer(**_effort(quick)), rewards, None),
        ("dlm", "dr"): (optimize.DirectLossMinimizer(**_effort(quick)), log, model),
        ("dlm", "dr, cross-fitted"): (optimize.DirectLossMinimizer(**_effort(quick)), log, drs.models.Ridge()),
        ("filter tree", "ips"): (optimize.FilterTree(), log, None),
        ("filter tree", "ips of rewards"): (optimize.FilterTree(), rewards, None),
        ("filter tree", "dr"): (optimize.FilterTree(), log, model),
        ("filter tree", "dr, cross-fitted"): (optimize.FilterTree(), log, drs.models.Ridge()),
        ("offset tree", "logged"): (optimize.OffsetTree(), log, None),
    }
    rows = []
    for (learner, losses), (unfitted, seen, with_model) in made.items():
        policy = unfitted.fit(seen, with_model, threads=1)
        found = {"error": error_of(policy, split.X, split.y), "converged": getattr(policy, "converged_", None)}
        rows.append({"data": name, "repetition": repetition, "learner": learner, "losses": losses, **found})
    return rows


# Forms of direct loss minimisation


def minimizers(setting: Setting) -> Path:
    started = time.perf_counter()
    names = SMALL if setting.quick else tuple(data.UCI)
    by_size = sorted(names, key=lambda name: -data.UCI[name][2])
    cases = [(name, setting.data, setting.seed, i) for name in by_size for i in range(setting.repetitions(10, 3))]
    rows = trials.run(minimize, cases, setting, "Direct loss minimisation")
    return trials.write("dlm", rows, setting, started)


def minimize(name: str, folder: Path, seed: int, repetition: int) -> list[Row]:
    """Losses completed by DR as in figure 2, minimised with the steps of appendix D and with those of the defaults."""
    split = Split.of(name, folder, seed, repetition)
    log = as_log(split.table, "cost", split.n_classes)
    model = drs.models.Ridge().fit(log, threads=1)
    about = {"data": name, "repetition": repetition}
    rows: list[Row] = []
    for form, options in (("former", APPENDIX_D), ("new", {})):
        started = time.perf_counter()
        policy = drs.optimize.DirectLossMinimizer(**options).fit(log, model, threads=1)
        seconds = time.perf_counter() - started
        found = {"loss": policy.loss_, "error": error_of(policy, split.X, split.y), "converged": policy.converged_}
        rows.append({**about, "form": form, **found, "epochs": policy.n_epochs_, "seconds": seconds})
    error = float((model.predict(split.X).argmax(axis=1) != split.y).mean())
    start = {"loss": policy.start_loss_, "error": error, "converged": True, "epochs": 0, "seconds": 0.0}
    return [{**about, "form": "start", **start}, *rows]
