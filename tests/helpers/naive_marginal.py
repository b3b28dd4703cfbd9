"""Naive versions of estimators that weigh by category, one event and one action at a time.

Lists have an entry for each action of an event, so that events may have candidates of their own.
"""

import math

from tests.helpers import reference


def weights(pi, mu, a, categories):
    """w(x, e) = Σ ν(b|x) 1[e_b = e] / Σ μ(b|x) 1[e_b = e], e the category of the logged action."""
    found = []
    for k, logged in enumerate(a):
        same = [b for b, category in enumerate(categories[k]) if category == categories[k][logged]]
        found.append(math.fsum(pi[k][b] for b in same) / math.fsum(mu[k][b] for b in same))
    return found


def estimate(name, r, pi, mu, a, categories, rhat=None):
    """Value, standard error and weights of mips, snmips and offcem."""
    w, rows = weights(pi, mu, a, categories), range(len(r))
    if not any(w):
        return math.nan, math.nan, w
    if name == "mips":
        psi = [w[k] * r[k] for k in rows]
    elif name == "snmips":
        value = math.fsum(w[k] * r[k] for k in rows) / math.fsum(w)
        psi = [value + w[k] * (r[k] - value) / reference.mean(w) for k in rows]
    else:
        b = [math.fsum(p * q for p, q in zip(pi[k], rhat[k], strict=True)) for k in rows]
        psi = [b[k] + w[k] * (r[k] - rhat[k][a[k]]) for k in rows]
    return reference.mean(psi), reference.standard_error(psi), w


def direct_effect(y, pi, mu, a, categories):
    """Mean and standard error of (w - w') y, with w' = c ν(a|x) / μ(a|x).

    c is such that both weights have the same sum over the actions of a category that are logged at all.
    """
    terms = []
    for k, w in enumerate(weights(pi, mu, a, categories)):
        same = [b for b, category in enumerate(categories[k]) if category == categories[k][a[k]]]
        whole, covered = (math.fsum(pi[k][b] for b in same if mu[k][b] > least) for least in (-1, 0))
        other = pi[k][a[k]] / mu[k][a[k]] * whole / covered if covered else w
        terms.append((w - other) * y[k])
    return reference.mean(terms), reference.standard_error(terms)
