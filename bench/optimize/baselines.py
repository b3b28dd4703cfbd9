"""Baselines of policy optimisation, and the checks that both sides compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

from bench.common import logs, racing
from bench.common.baselines import (
    PARITY,
    PARITY_ROWS,
    SCAN,
    Estimates,
    agree,
    contexts,
    estimates,
    exactly,
    scan,
    textbook,
)
from bench.evaluation import cases as evaluation
from bench.optimize import cases
from drstream.kernels.learners import HEADER
from drstream.models.passes import HOLD_BYTES
from drstream.optimize import DirectLossMinimizer, impute

Run = Callable[[], Any]
one_blas_thread = threadpool_limits.wrap(
    limits=1
)  # on busy cores two threads took up to nine times as long, and never less
BLOCK = 4096  # events; up to 16,384 take as long, 1,024 and all at once take longer

# Direct loss minimisation


class Data(NamedTuple):
    """What NumPy's epochs need. It is made before the clock starts."""

    Z: np.ndarray  # standardised contexts and a column of ones, (n, d + 1)
    by_feature: np.ndarray  # Z transposed, (d + 1, n)
    costs: np.ndarray  # completed, (K, n)
    epsilon: float
    start: np.ndarray  # (runs, K, d + 1)


def gather(case: cases.Epochs) -> Data:
    table = pq.read_table(case.log.path, columns=case.log.columns)
    X = contexts(table)
    events = (table[name].to_numpy() for name in ("action", "reward", "propensity"))
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    learner = DirectLossMinimizer()
    shape = case.runs, logs.ACTIONS, Z.shape[1]
    start = np.random.default_rng(learner.seed).normal(scale=learner.perturbation, size=shape)
    epsilon = learner.epsilon / np.ptp(table["reward"].to_numpy())
    costs = np.ascontiguousarray(completed(X, *events).T)
    return Data(Z, np.ascontiguousarray(Z.T), costs, epsilon, start)


@one_blas_thread
def descend(data: Data, epochs: int, block: int | None) -> list[float]:
    """The smallest loss of each run over the epochs. Takes all events at once, or blocks of them on two threads."""
    with ThreadPoolExecutor(racing.THREADS) as threads:
        each = threads.map if block else map
        return [min(losses_on_the_way(data, theta, epochs, block or len(data.Z), each)) for theta in data.start]


def losses_on_the_way(data: Data, theta: np.ndarray, epochs: int, block: int, each: Any) -> Iterator[float]:
    learner, n = DirectLossMinimizer(), len(data.Z)
    blocks = [slice(first, first + block) for first in range(0, n, block)]
    for t in range(1, epochs + 2):  # one more, to score the last weights
        losses, moves = zip(*each(partial(look, data, theta), blocks), strict=True)
        yield sum(losses) / n
        theta = theta + learner.learning_rate * t**-learner.decay * sum(moves) / n


def look(data: Data, theta: np.ndarray, block: slice) -> tuple[float, np.ndarray]:
    """The sum of losses in the block, and that of moves (K, d + 1)."""
    costs = data.costs[:, block]
    scores = theta @ data.by_feature[:, block]
    taken = scores.argmax(axis=0)
    better = (scores - data.epsilon * costs).argmax(axis=0)
    moved = np.flatnonzero(taken != better)
    signs, column = np.zeros((len(theta), len(moved))), np.arange(len(moved))
    signs[better[moved], column] = 1
    signs[taken[moved], column] = -1
    return costs[taken, np.arange(len(taken))].sum(), signs @ data.Z[block][moved]


def prepare_epochs(case: cases.Epochs) -> tuple[Run, int]:
    """Checks parity on the whole log. Returns the run that is timed, and its number of epochs."""
    assert case.log.rows * 8 * (logs.FEATURES + 3) <= HOLD_BYTES, "contexts would be decoded in each epoch"
    ours = case.fit(case.more)
    assert ours.n_epochs_ == case.more
    assert ours.n_events_ == case.log.rows
    if case.baseline == SCAN:  # other cases check the losses
        assert scan(case.log) == case.log.rows
        return lambda: scan(case.log), 1
    data = gather(case)
    block = BLOCK if case.baseline == cases.NUMPY_BLOCKS else None
    np.testing.assert_allclose(ours.run_losses_, descend(data, case.more, block), rtol=PARITY)
    return lambda: descend(data, case.more, block), case.more + 1


# Completed losses


def completed(X: np.ndarray, a: np.ndarray, r: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Costs (n, K), completed by DR."""
    rewards = X @ logs.model().coef_.T + logs.model().intercept_
    logged = np.arange(len(a)), a
    rewards[logged] += (r - rewards[logged]) / p
    return -rewards


def complete(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields contexts (n, d) as the log has them, and costs (n, K)."""
    for batch in batches:
        X = np.column_stack([batch.column(f"x{j}").to_numpy() for j in range(logs.FEATURES)])
        events = (batch.column(name).to_numpy() for name in ("action", "reward", "propensity"))
        yield X, completed(X.astype(np.float64), *events)


@one_blas_thread
def complete_all(log: logs.LogFile) -> int:
    pa.set_cpu_count(racing.THREADS)
    return sum(len(X) for X, _ in complete(ds.dataset(log.path).to_batches(columns=log.columns)))


# Learned policies, with events in memory


class Events(NamedTuple):
    X: np.ndarray  # as the log has them
    action: np.ndarray
    reward: np.ndarray
    propensity: np.ndarray


def first_events(case: cases.Case) -> pa.Table:
    return ds.dataset(case.log.path).head(case.baseline_rows or case.log.rows, columns=case.log.columns)


def in_memory(table: pa.Table) -> Events:
    events = (table[name].to_numpy() for name in ("action", "reward", "propensity"))
    return Events(contexts(table).astype(np.float32), *events)


def evaluate_with(pi: np.ndarray, events: Events) -> Estimates:
    rhat = events.X.astype(np.float64) @ logs.model().coef_.T + logs.model().intercept_
    found = textbook(pi, rhat, events.action, events.reward, events.propensity)
    return {("learned", name): numbers for name, numbers in found.items()}


@one_blas_thread
def evaluate_progressive(events: Events) -> Estimates:
    """Takes one snapshot after the other. Scores are (K, n), because (n, K) takes four times as long."""
    policy = cases.progressive()
    Z = np.vstack([events.X.T.astype(np.float64), np.ones(len(events.X))])
    pi = np.full((logs.ACTIONS, len(events.X)), cases.EXPLORATION / logs.ACTIONS)
    for state, weight in zip(policy.states_, policy.weights_, strict=True):
        scores = state[HEADER:].reshape(logs.ACTIONS, -1) @ Z
        best = scores == scores.max(axis=0)
        pi += (1 - cases.EXPLORATION) * weight / best.sum(axis=0) * best
    return evaluate_with(pi.T, events)


@one_blas_thread
def evaluate_filter_tree(events: Events) -> Estimates:
    """Goes down from the root. Each classifier gets the events that reach it."""
    policy = cases.filter_tree()
    pi = np.zeros((len(events.X), logs.ACTIONS))

    def walk(node: int, places: np.ndarray) -> None:
        if node < 0:
            pi[places, -1 - node] = 1
        elif len(places):
            left, right = policy.children_[node]
            goes_right = policy.classifiers_[node].predict(events.X[places]) == 1
            walk(left, places[~goes_right])
            walk(right, places[goes_right])

    walk(len(policy.children_) - 1, np.arange(len(pi)))
    return evaluate_with(pi, events)


BY_HAND: dict[str, Callable[[Events], Estimates]] = {
    cases.PROGRESSIVE: evaluate_progressive,
    cases.FILTER_TREE: evaluate_filter_tree,
}


def prepare(case: cases.Case) -> Run:
    """Does what needs no timing, and returns the run that is timed."""
    if case.task == cases.FILTER_TREE:
        pytest.importorskip("sklearn", reason="scikit-learn is not installed; drstream[sklearn] has it")
    if case.baseline == SCAN:
        return lambda: scan(case.log)
    if case.baseline == cases.NUMPY_SCAN:
        return lambda: complete_all(case.log)
    if case.baseline == cases.ARGMAX:
        return lambda: evaluation.ONE.run(case.log.path)
    events = in_memory(first_events(case))
    return lambda: BY_HAND[case.task](events)


def check_parity(case: cases.Case, baseline: Run) -> None:
    """Runs before the clock starts."""
    ours, theirs = cases.TASKS[case.task](case.log.path), baseline()
    if case.task == cases.IMPUTE:
        assert ours == theirs == case.log.rows
        check_losses(case.log)
    elif case.baseline == cases.ARGMAX:
        assert ours.n == theirs.n == case.log.rows
    else:
        assert ours.n == case.log.rows
        agree(estimates(cases.TASKS[case.task](first_events(case), **exactly())), theirs)


def check_losses(log: logs.LogFile) -> None:
    head = ds.dataset(log.path).head(PARITY_ROWS)
    ours = impute(cases.open_log(head), logs.model()).collect()
    X, costs = map(np.concatenate, zip(*complete(head.to_batches()), strict=True))
    np.testing.assert_array_equal(ours.rows, np.arange(len(head)))
    np.testing.assert_array_equal(ours.X, X)
    np.testing.assert_allclose(ours.losses, costs, rtol=PARITY, atol=PARITY * np.abs(costs).max())
