"""Section 6: estimates the loss of a learning policy from a log. Table 3, on news of four topics."""

from __future__ import annotations

import math
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, lambertw

import drstream as drs
from scripts.studies import data, trials
from scripts.studies.trials import Row, Setting

TABLE3 = 6  # key of random numbers
PARTITION, SIMULATION, REPETITION = 0, 1, 2  # keys within table 3
C = 100.0  # of all regressions; the power of ten with the smallest log-loss in 5-fold cross-validation on D_init
EVERY, EPSILON = 15, 0.1
PRECISION = 1e-4  # of scores w.x + b
LEVELS = (0.0, 0.01, 0.05, 0.1)  # q
PARTITIONS = 5  # of the documents: what the policy and l̂ start with moves the truth, too
DEFAULT = "default"  # drs.replay without options
DM_LEVEL = 0.01  # DM needs a history of the policy, too; it takes that of DR-ns with the default q
CHUNK = 10  # simulations in a task

Floats = NDArray[np.float64]


# Logistic regressions that are fitted again whenever a few rows are added


class Fit(NamedTuple):
    """The minimum of C Σ log-loss + |w|² / 2 over w and b. In the dual: w = X'β, β = C (y - p), Σ β = 0."""

    rows: NDArray[np.int64]  # rows of the history that are in X
    y: Floats  # 0 or 1
    gram: Floats  # XX'
    beta: Floats
    intercept: float
    curvature: Floats  # W = C p (1 - p), at this minimum or at one with fewer rows
    inverse: Floats  # of XX' + 1/W

    @classmethod
    def start(cls, y: Floats, gram: Floats) -> Fit:
        return cls(np.arange(len(y)), y, gram, *newton(gram, y, np.zeros(len(y)), 0.0))

    def more(self, rows: NDArray[np.int64], y: Floats, products: Floats) -> Fit:
        """Adds rows, in a few steps. `products` has x.x' of all rows with the new ones."""
        n, total = len(self.y), len(products)
        gram = np.empty((total, total))
        gram[:n, :n] = self.gram
        gram[:, n:] = products
        gram[n:, :n] = products[:n].T
        labels, sign = np.concatenate([self.y, y]), 2 * y - 1
        scores = products[:n].T @ self.beta + self.intercept
        alone = sign * lambertw(C * np.exp(-sign * scores)).real  # β = C exp(-score - β), for a row of norm 1
        beta = np.concatenate([self.beta, alone])
        curvature = np.concatenate([self.curvature, _curvature(scores + alone)])
        inverse = _border(self.inverse, gram, curvature)
        found = chord(gram, labels, beta, self.intercept, curvature, inverse)
        return Fit(rows, labels, gram, *(found or newton(gram, labels, beta, self.intercept)))


Minimum = tuple[Floats, float, Floats, Floats]  # β, b, W and the inverse of XX' + 1/W


def chord(gram: Floats, y: Floats, beta: Floats, b: float, curvature: Floats, inverse: Floats) -> Minimum | None:
    """Takes steps with fixed curvatures, about nine for a precision of 1e-4. None, if they do not converge."""
    ones = inverse.sum(axis=0)
    scores = gram @ beta + b
    for _ in range(20):
        step, lift = _step(y, beta, scores, curvature, inverse, ones)
        moved = gram @ step + lift
        beta, b, scores = beta + step, b + lift, scores + moved
        if np.abs(moved).max() < PRECISION:
            return beta, b, curvature, inverse
    return None


def newton(gram: Floats, y: Floats, beta: Floats, b: float) -> Minimum:
    """Newton's method from any start. It halves a step until the loss falls."""
    product = gram @ beta
    loss = math.inf
    for _ in range(100):
        curvature = _curvature(product + b)
        inverse = np.linalg.inv(gram + np.diag(1 / curvature))
        step, lift = _step(y, beta, product + b, curvature, inverse, inverse.sum(axis=0))
        turn, size, before = gram @ step, 1.0, loss
        while size > 1e-6:
            to, ahead = beta + size * step, product + size * turn
            scores = ahead + b + size * lift
            loss = C * float((np.logaddexp(0, scores) - y * scores).sum()) + to @ ahead / 2
            if loss <= before + 1e-9 * abs(before):
                break
            size /= 2
        beta, product, b = to, ahead, b + size * lift
        if size * np.abs(turn + lift).max() < PRECISION:
            return beta, b, curvature, inverse
    raise RuntimeError("Newton's method did not converge")


def _step(
    y: Floats, beta: Floats, scores: Floats, curvature: Floats, inverse: Floats, ones: Floats
) -> tuple[Floats, float]:
    """Solves (XX' + 1/W) δβ + δb = (C (y - p) - β) / W with Σ (β + δβ) = 0 for δβ and δb."""
    step = inverse @ ((C * (y - expit(scores)) - beta) / curvature)
    lift = (step.sum() + beta.sum()) / ones.sum()
    return step - lift * ones, lift


def _curvature(scores: Floats) -> Floats:
    p = expit(scores)
    return C * np.maximum(p * (1 - p), 1e-6)


def _border(inverse: Floats, gram: Floats, curvature: Floats) -> Floats:
    """The inverse of gram + 1/curvature, from that of its first rows."""
    n = len(inverse)
    other = inverse @ gram[:n, n:]
    corner = np.linalg.inv(gram[n:, n:] + np.diag(1 / curvature[n:]) - gram[n:, :n] @ other)
    out = np.empty_like(gram)
    out[n:, n:] = corner
    out[:n, n:] = -other @ corner
    out[n:, :n] = out[:n, n:].T
    np.subtract(inverse, out[:n, n:] @ other.T, out=out[:n, :n])
    return out


class Adaptive:
    """The policy of section 6.2, for logs of losses. Rewards are 0 (a right label) and -1.

    It does the same as drs.policies.Retrained(LogisticRegression(C=C), every=15, epsilon=0.1, start=(X, Y - 1)). But
    each regression starts from the last one, which takes a twentieth of the time.
    """

    def __init__(self, X: scipy.sparse.csr_array, Y: NDArray[np.bool_]) -> None:
        self._start = X.astype(np.float64)
        gram = (self._start @ self._start.T).toarray()
        self._first = [Fit.start(right, gram) for right in Y.T.astype(float)]
        self._first_scores = _linear(self._start, self._first)
        self.reset()

    def reset(self) -> None:
        self._history, self._fits, self._scores = self._start, self._first, self._first_scores
        self._new: list[tuple[Any, int, float]] = []
        self.version = 0

    def probabilities(self, X: scipy.sparse.csr_array) -> Floats:
        if len(self._new) >= EVERY:  # not in update: after the last step nothing needs it
            self._train()
        weights, intercepts = self._scores
        greedy = (X @ weights + intercepts).argmax(axis=1)
        out = np.full((X.shape[0], len(intercepts)), EPSILON / len(intercepts))
        out[np.arange(X.shape[0]), greedy] += 1 - EPSILON
        return out

    def update(self, x: scipy.sparse.csr_array, action: int, reward: float) -> None:
        self._new.append((x, action, 1 + reward))
        self.version += len(self._new) == EVERY

    def _train(self) -> None:
        contexts, actions, labels = zip(*self._new, strict=True)
        new, n = scipy.sparse.vstack(contexts, format="csr"), self._history.shape[0]
        self._history = scipy.sparse.vstack([self._history, new], format="csr")
        products = (self._history @ new.T).toarray()
        fits = []
        for a, fit in enumerate(self._fits):
            mine = np.flatnonzero(np.equal(actions, a))
            rows = np.concatenate([fit.rows, n + mine])
            y = np.array(labels)[mine]
            fits.append(fit.more(rows, y, products[rows[:, None], mine]) if len(mine) else fit)
        self._fits, self._scores, self._new = fits, _linear(self._history, fits), []


def _linear(X: scipy.sparse.csr_array, fits: list[Fit]) -> tuple[Floats, Floats]:
    """Weights (d, K) and intercepts (K)."""
    beta = np.zeros((X.shape[0], len(fits)))
    for a, fit in enumerate(fits):
        beta[fit.rows, a] = fit.beta
    return X.T @ beta, np.array([fit.intercept for fit in fits])


# The problem


class Problem(NamedTuple):
    """Two of the three parts of D, and what is fitted on the first part."""

    valid: data.Documents
    evaluation: data.Documents
    policy: Adaptive
    model: Any  # l̂, as rewards


@cache
def _problem(folder: Path, seed: int, partition: int) -> Problem:
    X, Y = data.rcv1(folder)
    order = trials.generator(seed, TABLE3, PARTITION, partition).permutation(len(Y))
    first, second = round(0.01 * len(Y)), round(0.2 * len(Y))
    initial, valid, evaluation = (
        data.Documents(X[part], Y[part]) for part in (order[:first], order[first:second], order[second:])
    )
    right = drs.models.Logistic(C=C).fit(full_feedback(*initial), threads=1)
    model = drs.models.from_function(lambda X: right.predict(X) - 1)
    return Problem(valid, evaluation, Adaptive(*initial), model)


def full_feedback(X: scipy.sparse.csr_array, Y: NDArray[np.bool_]) -> drs.Log:
    """A log with all labels for each document. The reward is 1 for right labels."""
    n, K = Y.shape
    columns = {"action": np.tile(np.arange(K), n), "reward": Y.reshape(-1).astype(float)}
    context = data.sparse_rows(X[np.repeat(np.arange(n), K)])
    return drs.Log(pa.table({**columns, **context}), context=_sparse(X), propensity=None, actions=K)


def exploration(X: scipy.sparse.csr_array, Y: NDArray[np.bool_], rng: np.random.Generator) -> drs.Log:
    """Section 6.1: documents in random order, with the loss of one label each. Most of these labels are right."""
    order = rng.permutation(len(Y))
    Y = Y[order]
    n, K = Y.shape
    s = rng.uniform(0.1, 1, (n, K))
    mu = 0.3 * s / s.sum(axis=1, keepdims=True) + 0.7 * Y / Y.sum(axis=1, keepdims=True)
    action = np.minimum((mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), K - 1)
    chosen = np.arange(n), action
    columns = {"action": action, "cost": 1.0 - Y[chosen], "propensity": mu[chosen]}
    return drs.Log(pa.table({**columns, **data.sparse_rows(X[order])}), context=_sparse(X), actions=K)


def _sparse(X: scipy.sparse.csr_array) -> drs.Sparse:
    return drs.Sparse("indices", "values", X.shape[1])


# Table 3


def table3(setting: Setting) -> Path:
    """Writes a row for each horizon, repetition, method and q. `value` is the loss per step V/C, `per_step` is V/T.

    Repetitions take turns at the partitions, and are compared with the truth of theirs.
    """
    started = time.perf_counter()
    horizons = (60,) if setting.quick else (200, 300)
    levels = LEVELS[:2] if setting.quick else LEVELS
    partitions = setting.repetitions(PARTITIONS, 2)
    simulations, repetitions = setting.repetitions(200, 15), setting.repetitions(4, 1)  # for each partition
    where = [(setting.data, setting.seed, partition) for partition in range(partitions)]
    chunks = [(first, min(first + CHUNK, simulations)) for first in range(0, simulations, CHUNK)]
    cases = [(*w, part, horizons, *chunk) for w in where for part in ("valid", "evaluation") for chunk in chunks]
    truth = _truths(trials.run(simulate, cases, setting, "Table 3, the truth"))
    replays = [(*w, horizon, i, levels) for w in where for horizon in horizons for i in range(repetitions)]
    rows = trials.run(estimates, replays, setting, "Table 3, replays")
    found = [{**row, **truth[row["partition"], row["horizon"]]} for row in rows]
    return trials.write("table3", found, setting, started)


def simulate(
    folder: Path, seed: int, partition: int, part: str, horizons: tuple[int, ...], first: int, last: int
) -> list[Row]:
    """The policy's loss per step on D_valid or D_eval in random order, for some of the simulations."""
    problem = _problem(folder, seed, partition)
    X, Y = getattr(problem, part)
    policy, rows = problem.policy, []
    for i in range(first, last):
        rng = trials.generator(seed, TABLE3, SIMULATION, partition, part == "valid", i)
        order = rng.permutation(len(Y))[: max(horizons)]
        policy.reset()
        losses: list[float] = []
        for some in np.split(order, range(EVERY, len(order), EVERY)):  # the policy does not change in between
            contexts = X[some]
            cumulative = policy.probabilities(contexts).cumsum(axis=1)
            actions = np.minimum((cumulative < rng.random((len(some), 1))).sum(axis=1), Y.shape[1] - 1)
            losses += (1.0 - Y[some, actions]).tolist()
            for j, action in enumerate(actions):
                policy.update(contexts[j : j + 1], int(action), -losses[j - len(some)])
        about = {"partition": partition, "part": part, "simulation": i}
        rows += [{**about, "horizon": T, "loss": float(np.mean(losses[:T]))} for T in horizons]
    return rows


def _truths(rows: list[Row]) -> dict[tuple[int, int], Row]:
    """The truth for each partition and horizon: from D_valid, as in the paper, and from D_eval itself."""
    losses: dict[tuple[int, int, str], list[float]] = {}
    for row in rows:
        losses.setdefault((row["partition"], row["horizon"], row["part"]), []).append(row["loss"])
    found: dict[tuple[int, int], Row] = {}
    for (partition, T, part), values in losses.items():
        name = "truth" if part == "valid" else "truth_eval"
        stderr = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        found.setdefault((partition, T), {}).update({name: float(np.mean(values)), f"{name}_stderr": stderr})
    return found


def estimates(
    folder: Path, seed: int, partition: int, horizon: int, repetition: int, levels: tuple[float, ...]
) -> list[Row]:
    """All evaluators on one exploration log."""
    problem = _problem(folder, seed, partition)
    log = exploration(*problem.evaluation, trials.generator(seed, TABLE3, REPETITION, partition, repetition))
    methods: list[tuple[str, tuple[float, ...]]] = [("dm", (DM_LEVEL,)), ("rs", (0.0,)), ("dr-ns-wc", (0.0,))]
    rows = []
    for method, qs in [*methods, ("dr-ns", levels), (DEFAULT, (math.nan,))]:
        how: dict[str, Any] = {"method": method, "q": qs, "c_max": 1.0} if method != DEFAULT else {}
        runs: list[Any]
        try:
            found = drs.replay(
                log, {"policy": problem.policy}, horizon, problem.model, **how, seed=repetition, threads=1
            )
            runs = list(found)
        except drs.NotEnoughEventsError as error:
            runs = [error] * len(qs)
        about = {"partition": partition, "horizon": horizon, "repetition": repetition, "method": method}
        rows += [{**about, "q": q, **_outcome(run)} for q, run in zip(qs, runs, strict=True)]
    return rows


def _outcome(run: drs.Replay | drs.NotEnoughEventsError) -> Row:
    """Losses are negative rewards. A run without a complete replicate has NaN."""
    if isinstance(run, drs.Replay) and not run.complete:
        run = run.failure
    if isinstance(run, drs.NotEnoughEventsError):
        unknown = ("value", "low", "high", "per_step", "pooled", "weight", "c", "violations", "bias_mass", "bias_bound")
        steps = {"replicates": 0, "steps": run.steps, "acceptance": run.acceptance}
        return {"failed": True, **dict.fromkeys(unknown, math.nan), **steps}
    return {
        "failed": False,
        "value": -run.value,  # V/C, the mean over replicates
        "low": -run.high,
        "high": -run.low,
        "per_step": -float(np.mean(run.replicates["cumulative"])) / run.horizon,  # V/T
        "pooled": -run.pooled.value,  # ΣV/ΣC
        "weight": float(np.mean(run.replicates["weight"])) / run.horizon,  # C/T
        "c": float(np.mean(run.curve["c"])),
        "violations": run.violations,
        "bias_mass": run.bias_mass,
        "bias_bound": run.bias_bound,
        "replicates": run.complete,
        "steps": run.complete * run.horizon,
        "acceptance": run.acceptance,
    }
