"""A hand-written loop for DR-ns of one ε-greedy learner: the cost of Algorithm 1 without any generality.

It has no other policy or model, no q = 0, no missing columns or bad rows, no curve, no diagnosis and no compensated
sums. The benchmark measures what these cost in drstream. Random numbers and arithmetic are drstream's, so both sides
give the same averages.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
from numba import njit

from bench.common import logs
from bench.replaying import cases

ROOM = 1 << 20  # values in each heap of Q; on this log a replicate has 3,000 events and a batch 262,144
FLAGS = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}  # reassoc lets dot products vectorise

# SplitMix64's increment and multipliers
INCREMENT, FIRST, SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


@njit(inline="always", **FLAGS)
def mix(z):
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit
def key_of(seed):
    return mix(mix(seed + INCREMENT))


@njit(inline="always", **FLAGS)
def rise(heap, i, value, sign):
    """Puts the value into the hole i. The largest sign * value is on top."""
    while i > 0:
        parent = (i - 1) >> 1
        if sign * heap[parent] >= sign * value:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = value


@njit(inline="always", **FLAGS)
def sink(heap, size, value, sign):
    """Puts the value into the hole at the top."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and sign * heap[child + 1] > sign * heap[child]:
            child += 1
        if sign * heap[child] <= sign * value:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = value


@njit(nogil=True, **FLAGS)
def replay_batch(X, actions, rewards, propensities, first_row, key, model, settings, learner, heaps, state, averages):
    """Replays a batch and returns the state. `averages` gets V / C of each replicate that ends in the batch."""
    coef, intercept = model
    horizon, q, epsilon, rate = settings
    low, high = heaps  # low: the ⌈q n⌉ smallest ratios p / π, largest on top; high: the others below 1, smallest on top
    n_low, n_high, count, t, c, value, weight, complete = state
    K, d = coef.shape
    scores, predictions = np.empty(K), np.empty(K)
    for i in range(X.shape[0]):
        x = X[i]
        a, r, p = actions[i], rewards[i], propensities[i]
        top, all_predicted = -np.inf, 0.0
        for k in range(K):
            score, predicted = learner[k, d], intercept[k]
            for j in range(d):
                score += learner[k, j] * x[j]
                predicted += coef[k, j] * x[j]
            scores[k], predictions[k] = score, predicted
            top = max(top, score)
            all_predicted += predicted
        ties, best_predicted = 0, 0.0
        for k in range(K):
            is_best = scores[k] == top
            ties += is_best
            best_predicted += is_best * predictions[k]
        logged_predicted = predictions[a]
        expected = all_predicted * epsilon / K + (1.0 - epsilon) / ties * best_predicted
        pi = epsilon / K + (1.0 - epsilon) / ties * (scores[a] == top)

        value += c * (expected + pi / p * (r - logged_predicted))
        weight += c

        ratio = p / pi
        count += 1
        rank = max(1, math.ceil(q * count))
        if ratio < 1.0:  # c_max is 1, so larger ones are only counted
            if n_low > 0 and ratio < low[0]:
                ratio, new = low[0], ratio
                sink(low, n_low, new, 1.0)
            rise(high, n_high, ratio, -1.0)
            n_high += 1
        if n_low < rank and n_high > 0:
            least = high[0]
            n_high -= 1
            sink(high, n_high, high[n_high], -1.0)
            rise(low, n_low, least, 1.0)
            n_low += 1

        u = (mix(mix(np.uint64(first_row + i) * INCREMENT + key) ^ key) >> np.uint64(11)) * 2.0**-53
        if u <= c * pi / p:
            squares, score = 1.0, learner[a, d]
            for j in range(d):
                squares += x[j] * x[j]
                score += learner[a, j] * x[j]
            pace = rate * (r - score) / (1.0 + rate * squares)
            for j in range(d):
                learner[a, j] += pace * x[j]
            learner[a, d] += pace
            t += 1
            if t == horizon:
                averages[complete] = value / weight
                complete += 1
                n_low, n_high, count, t, c, value, weight = 0, 0, 0, 0, 1.0, 0.0, 0.0
                learner[:] = 0.0
            else:
                c = low[0] if n_low == rank else 1.0
    return n_low, n_high, count, t, c, value, weight, complete


def replay(path: Path, rows: int) -> np.ndarray:
    """The average of each replicate of a mapped log."""
    model, policy = logs.model(), cases.GREEDY.policies
    settings = cases.HORIZON, cases.Q, policy.epsilon, policy.learning_rate
    learner = np.zeros((logs.ACTIONS, logs.FEATURES + 1))
    heaps = np.empty(ROOM), np.empty(ROOM)
    averages = np.empty(rows // cases.HORIZON)
    state = 0, 0, 0, 0, 1.0, 0.0, 0.0, 0
    key = np.uint64(key_of(np.uint64(0)))  # for seed 0; Numba returns an int
    first_row = 0
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            assert state[2] + len(batch) <= ROOM, "Q could outgrow its room"
            X = batch.column("x").flatten().to_numpy().reshape(len(batch), logs.FEATURES)
            columns = (batch.column(name).to_numpy() for name in ("action", "reward", "propensity"))
            fixed = first_row, key, (model.coef_, model.intercept_), settings
            state = replay_batch(X, *columns, *fixed, learner, heaps, state, averages)
            first_row += len(batch)
    return averages[: state[-1]]
