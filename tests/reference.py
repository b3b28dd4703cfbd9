"""Naive versions of everything, in plain Python and NumPy, one event at a time: slow and obviously right."""

import math

import numpy as np


def estimate(name, r, p, a, pi, rhat=None, cap=math.inf, floor=0.0):
    """Value, standard error and per-event terms of an estimator; pi and rhat are (n, K)."""
    n = len(r)
    rows = range(n)
    w = [pi[k][a[k]] / p[k] for k in rows]
    wc = [min(pi[k][a[k]] / max(p[k], floor), cap) for k in rows]
    if rhat is not None:
        b = [math.fsum(pi[k][j] * rhat[k][j] for j in range(len(pi[k]))) for k in rows]
        miss = [r[k] - rhat[k][a[k]] for k in rows]
    if name == "dm":
        psi = b
    elif name == "ips":
        psi = [w[k] * r[k] for k in rows]
    elif name == "dr":
        psi = [b[k] + w[k] * miss[k] for k in rows]
    elif name == "ips-capped":
        psi = [wc[k] * r[k] for k in rows]
    elif name == "dr-capped":
        psi = [b[k] + wc[k] * miss[k] for k in rows]
    elif name == "snips":
        mean_w = math.fsum(w) / n
        if mean_w == 0:
            return math.nan, math.nan, [math.nan] * n
        value = math.fsum(w[k] * r[k] for k in rows) / n / mean_w
        psi = [value + w[k] * (r[k] - value) / mean_w for k in rows]  # its influence function
    elif name == "sndr":
        mean_w = math.fsum(w) / n
        if mean_w == 0:
            return math.nan, math.nan, [math.nan] * n
        part = math.fsum(w[k] * miss[k] for k in rows) / n / mean_w
        psi = [b[k] + part + w[k] * (miss[k] - part) / mean_w for k in rows]
    return mean(psi), standard_error(psi), psi


def mean(x):
    return math.fsum(x) / len(x)


def standard_error(x):
    if len(x) < 2:
        return math.nan
    m = mean(x)
    return math.sqrt(math.fsum((v - m) ** 2 for v in x) / (len(x) - 1) / len(x))


def effective_sample_size(w):
    squares = math.fsum(v * v for v in w)
    return math.fsum(w) ** 2 / squares if squares else math.nan


def softmax(weights, intercept, X):
    scores = X @ np.asarray(weights).T + intercept
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def argmax(weights, intercept, X):
    scores = X @ np.asarray(weights).T + intercept
    return np.eye(len(weights))[scores.argmax(axis=1)]


def ridge(X, a, r, n_actions, alpha, fit_intercept):
    """Per-action ridge by the normal equations of a design matrix with a column of ones that is not penalised."""
    coef, intercept = [], []
    for action in range(n_actions):
        rows = a == action
        if not rows.any():
            coef.append(np.zeros(X.shape[1]))
            intercept.append(r.mean())
            continue
        design = np.column_stack([X[rows], np.ones(rows.sum())]) if fit_intercept else X[rows]
        penalty = alpha * np.eye(design.shape[1])
        if fit_intercept:
            penalty[-1, -1] = 0
        w = np.linalg.lstsq(design.T @ design + penalty, design.T @ r[rows], rcond=1e-12)[0]
        coef.append(w[: X.shape[1]])
        intercept.append(w[-1] if fit_intercept else 0.0)
    return np.array(coef), np.array(intercept)


MASK = 2**64 - 1


def uniform(seed, row):
    """u_k: splitmix64's finaliser, twice, keyed by the seed."""

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    key = mix(mix((seed * gamma + gamma) & MASK))
    return (mix(mix((row * gamma + key) & MASK) ^ key) >> 11) * 2.0**-53
