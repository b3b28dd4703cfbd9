"""Estimators that weigh stretches of time, naively: one event at a time."""

import math

from tests.helpers.reference import mean, standard_error


def stretch(row):
    """256 rows each up to row 4,096; from then on, 16 stretches between a power of two and the next."""
    index, start, length = 0, 0, 256
    while row >= start + length:
        index, start = index + 1, start + length
        length = 256 if start < 4096 else 2 ** (start.bit_length() - 1) // 16
    return index


def overlap(pi, mu):
    """Σ_a ν(a|x)² / μ(a|x) of one event."""
    return math.fsum(v * v / m for v, m in zip(pi, mu, strict=True) if v > 0)


def shares(rows, pi, mu, power):
    """h of each event: from the mean overlap of the last stretch with events before its own, or K without one."""
    of_stretch = {}
    for k, row in enumerate(rows):
        of_stretch.setdefault(stretch(row), []).append(overlap(pi[k], mu[k]))
    found = []
    for row in rows:
        earlier = [s for s in of_stretch if s < stretch(row)]
        found.append((mean(of_stretch[max(earlier)]) if earlier else len(pi[0])) ** -power)
    return found


def estimate(power, rows, r, p, a, pi, rhat, mu):
    """Value, standard error and influence of each event."""
    n = len(r)
    h = shares(rows, pi, mu, power)
    scores = []
    for k in range(n):
        b = math.fsum(v * x for v, x in zip(pi[k], rhat[k], strict=True))
        scores.append(b + pi[k][a[k]] / p[k] * (r[k] - rhat[k][a[k]]))
    value = math.fsum(h[k] * scores[k] for k in range(n)) / math.fsum(h)
    psi = [value + h[k] * (scores[k] - value) / mean(h) for k in range(n)]
    return value, standard_error(psi), psi
