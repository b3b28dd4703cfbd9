"""Balanced estimators and weights by logger, in plain Python and NumPy: slow and obviously right."""

import math

import numpy as np


def mixture(who, p_of):
    """Σ_j (n_j / n) p_j(a|x) of each event; p_of maps each logger to its propensities of the logged actions."""
    n = len(who)
    return [math.fsum(sum(w == j for w in who) / n * p_of[j][k] for j in p_of) for k in range(n)]


def balanced(name, r, a, pi, who, p_of, rhat=None):
    """Value, standard error and weights of a balanced estimator.

    The standard error is that of a stratified sample, √Σ_j (n_j/n)² s_j²/n_j; pooled if a logger has a single event.
    """
    n, p = len(r), mixture(who, p_of)
    w = np.array([pi[k][a[k]] / p[k] for k in range(n)])
    if name == "balanced-ips":
        psi = w * r
        value = math.fsum(psi) / n
    elif name == "balanced-dr":
        psi = (pi * rhat).sum(axis=1) + w * (r - rhat[np.arange(n), a])
        value = math.fsum(psi) / n
    else:
        if not w.any():
            return math.nan, math.nan, w
        value = math.fsum(w * r) / math.fsum(w)
        psi = w * (r - value) / (math.fsum(w) / n)
    return value, math.nan if not w.any() or n < 2 else stratified_error(psi, who), w


def stratified_error(psi, who):
    n = len(psi)
    strata = [[x for x, w in zip(psi, who, strict=True) if w == j] for j in sorted(set(who))]
    if min(map(len, strata)) < 2:
        return np.std(psi, ddof=1) / math.sqrt(n)
    return math.sqrt(math.fsum((len(s) / n) ** 2 * np.var(s, ddof=1) / len(s) for s in strata))


def table(r, p, a, pi, who):
    """For each logger: rows, share, mean reward, mean weight and its error, ess, largest weight, IPS and its error."""
    w = np.array([pi[k][a[k]] / p[k] for k in range(len(r))])
    rows = []
    for j in sorted(set(who)):
        mine = np.array([x == j for x in who])
        v, n = w[mine], int(mine.sum())
        of_none = not v.any() or n < 2
        rows.append(
            {
                "logger": j,
                "rows": n,
                "share": n / len(r),
                "mean_reward": np.mean(r[mine]),
                "mean_weight": v.mean(),
                "mean_weight_stderr": math.nan if n < 2 else v.std(ddof=1) / math.sqrt(n),
                "ess": v.sum() ** 2 / (v**2).sum() if v.any() else math.nan,
                "max_weight": v.max(),
                "value": np.mean(v * r[mine]) if v.any() else math.nan,  # without overlap, nothing is known
                "stderr": math.nan if of_none else np.std(v * r[mine], ddof=1) / math.sqrt(n),
            }
        )
    return rows
