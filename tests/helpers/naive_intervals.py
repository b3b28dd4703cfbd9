"""Intervals from single events, in plain Python: slow, and obviously right."""

import math
from itertools import pairwise

import numpy as np
from scipy import optimize, stats


def mean(values):
    return math.fsum(values) / len(values)


def covariance(a, b):
    """Over n, not n - 1."""
    mean_a, mean_b = mean(a), mean(b)
    return mean([(x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)])


def t_interval(scores, confidence, freedom=None):
    n = len(scores)
    stderr = math.sqrt(covariance(scores, scores) / (n - 1))
    half = (stats.norm.ppf if freedom is None else stats.t(freedom).ppf)((1 + confidence) / 2) * stderr
    return mean(scores) - half, mean(scores) + half


def jackknife(events, labels, value, confidence):
    """Leave out the events of one label after the other."""
    found = [
        value([e for e, label in zip(events, labels, strict=True) if label != left_out])
        for left_out in sorted(set(labels))
    ]
    size = len(found)
    variance = (size - 1) / size * math.fsum((v - mean(found)) ** 2 for v in found)
    half = stats.t(size - 1).ppf((1 + confidence) / 2) * math.sqrt(variance)
    return value(events) - half, value(events) + half


def mix(bits):
    """The finalizer of SplitMix64, in whole numbers of any size."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def poisson(seed, bucket, replicate):
    golden = 0x9E3779B97F4A7C15
    bits = mix((seed + golden) % 2**64)
    bits = mix((bits + (bucket + 1) * golden) % 2**64)
    bits = mix((bits + (replicate + 1) * golden) % 2**64)
    uniform, times = (bits >> 11) / 2**53, 0
    while uniform >= stats.poisson.cdf(times, 1):
        times += 1
    return times


def bernstein(scores, smallest, largest, confidence):
    n, log = len(scores), math.log(4 / (1 - confidence))
    variance = math.fsum((s - mean(scores)) ** 2 for s in scores) / (n - 1)
    half = math.sqrt(2 * variance * log / n) + 7 * (largest - smallest) * log / (3 * (n - 1))
    return mean(scores) - half, mean(scores) + half


def freedman(b, z, w, miss, low, scale, bound, confidence, error=0.0, ratio=None, given=None):
    """Bounds of the mean of b + z, z = w miss; rewards and predictions lie in [low, low + scale].

    given  Constants by name, in the units of the rewards; "largest" takes the largest possible ones for the others.
    """
    given = given or {}
    n, log = len(z), math.log(2 / (1 - confidence))
    scores = [x + y for x, y in zip(b, z, strict=True)]
    ratio = 1 + error if ratio is None else ratio
    unit = [m / scale for m in miss]
    squared = mean([v * m**2 for v, m in zip(w, unit, strict=True)])
    second = mean([(v * m) ** 2 for v, m in zip(w, unit, strict=True)])
    absolute = mean([v * abs(m) for v, m in zip(w, unit, strict=True)])
    largest = given.get("largest", False)
    bias = 0.0
    if error > 0:
        bias = 1.0 if largest else min(absolute / (1 - error), math.sqrt(squared / (1 - error)), 1.0)
        bias = error * (given["model_bias"] / scale if "model_bias" in given else bias)
    if "model_error" in given:
        second = bound * ratio * given["model_error"] / scale**2
    elif largest:
        second = bound * ratio
    spread = 0.25
    if "value_variance" in given:
        spread = given["value_variance"] / scale**2
    elif not largest:
        value = (mean(scores) - low) / scale
        near = [value + bias * k / 1000 for k in range(-1000, 1001)]
        spread = max(max(v * (1 - v) for v in near), 0.0)
        if bias == 0:
            variance = covariance(scores, scores) * n / (n - 1) / scale**2
            measured = mean([(v * m) ** 2 for v, m in zip(w, unit, strict=True)])
            spread = min(spread, max(0.0, variance - measured + squared))
    v, most = spread + 2 * bias + second, bound + max(1.0, ratio)
    half = most * log / (3 * n) + math.sqrt((most * log / (3 * n)) ** 2 + 2 * v * log / n)
    return mean(scores) - scale * (bias + half), mean(scores) + scale * (bias + half)


def likelihood_statistic(columns, expected):
    """N (m - μ)' Σ⁻¹ (m - μ) of events, the pseudo-event among them, with μ = expected."""
    away = np.array([mean(column) - e for column, e in zip(columns, expected, strict=True)])
    matrix = np.array([[covariance(a, b) for b in columns] for a in columns])
    return len(columns[0]) * float(away @ np.linalg.solve(matrix, away))


def likelihood_bound(weights, y, points, confidence, top):
    """The least v that some pseudo-event makes likely enough.

    weights  One list for each weight; they are at most `top`.
    points   Pseudo-events: the weights, then the score.
    """
    n = len(y)
    likeliest = [[*w, top if mean(w) < 1 else 0.0] for w in weights]
    level = likelihood_statistic(likeliest, [1] * len(weights)) + stats.f(1, n).ppf(confidence)
    found = []
    for point in points:
        columns = [[*column, end] for column, end in zip([*weights, y], point, strict=True)]

        def above(v, columns=columns):
            return likelihood_statistic(columns, [*[1] * len(weights), v]) - level

        vertex = optimize.minimize_scalar(above).x
        if above(vertex) < 0:
            found.append(optimize.brentq(above, vertex - 1000, vertex, xtol=1e-12))
    return min(found)


def likelihood(w, y, low, high, confidence, top):
    """Bounds for IPS: scores y = w r, with rewards in [low, high] and weights in [0, top]."""
    lower = likelihood_bound([w], y, [(0, 0), (top, top * low)], confidence, top)
    upper = likelihood_bound([w], [-s for s in y], [(0, 0), (top, -top * high)], confidence, top)
    return lower, -upper


def anytime_lower(forms, ends, middle, confidence, first, prior):
    """The lower bound after every stretch, event by event.

    forms  Scores φ >= -k of the events, and k. Their expectation is the same, and at most 1. Every stretch uses the one
           with the largest bet.
    ends   Where stretches end, the first of them 0.
    """
    log = math.log(2 / (1 - confidence))
    up, down, bounds = 0.0, 0.0, []
    for start, end in pairwise(ends):
        best = (0.0, None)
        for scores, k in forms:
            before = [s / (1 + k) for s in scores[:start]]
            guess = min((middle / (1 + k) + math.fsum(before)) / (1 + start), 1 / (1 + k))
            variance = first / (1 + k) ** 2
            if start > 0:
                variance = (prior / (1 + k) ** 2 + start * covariance(before, before)) / (1 + start)
            bet = min(0.5, math.sqrt(2 * log / (variance * end * math.log(1 + end) / 2)))
            if bet / (1 + k) > best[0] * (1 + 1e-9):
                best = (bet / (1 + k), (bet, guess, [s / (1 + k) for s in scores[start:end]]))
        bet, guess, now = best[1]
        up += math.fsum(bet * x - (-math.log(1 - bet) - bet) * (x - guess) ** 2 for x in now)
        down += best[0] * len(now)
        bounds.append(max([(up - log) / down, *bounds]))
    return bounds
