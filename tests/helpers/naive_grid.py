"""The pooling of a grid of simulations in plain loops, from its formulas (drstream/replaying/grid.py, crossing.py)."""

import math

import numpy as np
from scipy import stats


def shared(c, y, accepted, values, weights):
    """Covariances by noise, and shares of the history, from c, c V and acceptances of each lane and event."""
    lanes, events = c.shape
    noise, history = np.zeros((lanes, lanes)), np.zeros((lanes, lanes))
    for i in range(lanes):
        for j in range(lanes):
            if not weights[i] or not weights[j]:
                continue
            parts = [(y[i, k] - c[i, k] * values[i]) * (y[j, k] - c[j, k] * values[j]) for k in range(events)]
            longer = min(c[i].sum() / weights[i], c[j].sum() / weights[j])  # with the incomplete replicates
            noise[i, j] = math.fsum(parts) / (c[i].sum() * c[j].sum()) * longer
            both = sum(accepted[i, k] and accepted[j, k] for k in range(events))
            history[i, j] = both / math.sqrt(accepted[i].sum() * accepted[j].sum())
    return noise, history


def covariances(variance, counts, noise, history):
    """What different lanes share, by noise and by history, if one replicate has this variance."""
    lanes = len(counts)
    by_noise, by_history = np.zeros((lanes, lanes)), np.zeros((lanes, lanes))
    for i in range(lanes):
        for j in range(lanes):
            if i == j:
                continue
            v, w = variance / counts[i], variance / counts[j]
            largest = math.sqrt(v * w)
            by_noise[i, j] = min(max(noise[i, j], 0), 0.99 * largest)
            own = [max(each - min(max(noise[k, k], 0), each), 0) for each, k in ((v, i), (w, j))]
            by_history[i, j] = min(math.sqrt(own[0] * own[1]) * history[i, j], 0.99 * largest - by_noise[i, j])
    return by_noise, by_history


def twice(counts, matrix):
    """Σ n n' m over all pairs of lanes."""
    every = range(len(counts))
    return math.fsum(counts[i] * counts[j] * matrix[i, j] for i in every for j in every)


def slope_of(means, masses, covariance, prior):
    """Generalised least squares, value = a + slope * mass, with slope ~ N(0, prior²)."""
    if not prior > 0:
        return 0.0, 0.0
    scale = np.sqrt(np.diag(covariance))
    if not all(scale > 0):
        return 0.0, prior
    sizes, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    correlation = sum(max(size, 0.02) * np.outer(axis, axis) for size, axis in zip(sizes, axes.T, strict=True))
    inverse = np.linalg.inv(correlation * np.outer(scale, scale))
    X = np.array([[1.0, mass] for mass in masses])
    information = X.T @ inverse @ X
    information[1, 1] += 1 / prior**2
    spread = np.linalg.inv(information)
    return (spread @ X.T @ inverse @ means)[1], math.sqrt(spread[1, 1])


def choose(replicates, masses, noise, history, learned, confidence):
    """The pooled estimate of lanes that come in the order of their targets."""
    used = [i for i, values in enumerate(replicates) if len(values)]
    groups, masses = [np.asarray(replicates[i]) for i in used], [masses[i] for i in used]
    noise, history = noise[np.ix_(used, used)], history[np.ix_(used, used)]
    counts, means = [len(g) for g in groups], np.array([g.mean() for g in groups])
    n, lanes = sum(counts), len(groups)
    if n < 2:
        return {"lanes": used[0] + 1, "value": means[0], "stderr": math.nan, "low": math.nan, "high": math.nan, "n": 1}
    freedom = n - lanes
    if freedom >= 2:
        variance = sum(((g - g.mean()) ** 2).sum() for g in groups) / freedom
    else:
        freedom, variance = n - 1, np.concatenate(groups).var(ddof=1)
        variance += sum(twice(counts, part) for part in covariances(variance, counts, noise, history)) / (n * (n - 1))
    variance = max(variance, sum(m**2 * noise[i, i] for i, m in enumerate(counts)) / n)
    by_noise, by_history = covariances(variance, counts, noise, history)
    between = by_noise + by_history
    if variance > 0:
        squares = [between[i, j] ** 2 * counts[i] * counts[j] / variance**2 for i in range(lanes) for j in range(lanes)]
        freedom /= 1 + sum(squares) / lanes
    covariance = between + np.diag([variance / m for m in counts])
    slope, slope_error = slope_of(means, masses, covariance, 0.5 * learned)
    tried = []
    for k in range(1, lanes + 1):
        m = sum(counts[:k])
        measured = variance / m + twice(counts[:k], by_history) / m**2
        known = twice(counts[:k], by_noise) / m**2
        mass = sum(counts[i] * masses[i] for i in range(k)) / m
        value = sum(counts[i] * means[i] for i in range(k)) / m
        error = measured + known + (slope**2 + slope_error**2) * mass**2
        tried.append((error, k, m, value, measured, known, mass))
    _, k, m, value, measured, known, mass = min(tried)
    stderr = math.sqrt(measured + known + (slope_error * mass) ** 2)
    more = ((measured + known) / measured) ** 2 if measured > 0 else math.inf
    half = stats.t.ppf((1 + confidence) / 2, freedom * more) * stderr
    return {
        "lanes": used[k - 1] + 1, "value": value, "stderr": stderr, "n": m, "mass": mass,
        "low": value - half - max(slope * mass, 0), "high": value + half + max(-slope * mass, 0),
        "slope": slope, "slope_error": slope_error,
    }  # fmt: skip
