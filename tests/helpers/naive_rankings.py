"""Naive versions of the estimators of rankings, in plain Python: slow and obviously right.

A ranking is a dictionary of lists by position: `p` the propensities, `pi` the policy's probabilities, `r` the rewards,
`q` the predictions for shown items, and `e` those in expectation over the policy.
"""

import math

from tests.helpers.reference import effective_sample_size, mean, standard_error


def position_weights(name, ranking):
    """v_l: the weight of each position."""
    w = [a / b for a, b in zip(ranking["pi"], ranking["p"], strict=True)]
    if name in ("iips", "sniips"):
        return w
    return [math.prod(w[: k + 1]) for k in range(len(w))]  # from the top to each position


def list_weight(name, ranking):
    """The weight that a list has in the effective sample size."""
    w = [a / b for a, b in zip(ranking["pi"], ranking["p"], strict=True)]
    if name in ("ips", "snips"):
        return math.prod(w)
    if name in ("pi", "snpi"):
        return 1 + sum(v - 1 for v in w)
    return mean(position_weights(name, ranking))


def score(name, ranking):
    """What a list adds to an estimate that is a mean."""
    r = ranking["r"]
    if name in ("ips", "pi"):
        return list_weight(name, ranking) * sum(r)
    v = position_weights(name, ranking)
    if name == "cascade-dr":
        q, e, before = ranking["q"], ranking["e"], [1.0, *v[:-1]]
        return sum(v[k] * (r[k] - q[k]) + before[k] * e[k] for k in range(len(r)))
    return sum(v[k] * r[k] for k in range(len(r)))


def influence(name, rankings):
    """Numbers whose mean is the estimate, and whose standard error is that of the estimate."""
    n = len(rankings)
    if name in ("snips", "snpi"):
        w = [list_weight(name, ranking) for ranking in rankings]
        total = [sum(ranking["r"]) for ranking in rankings]
        if not mean(w):
            return [math.nan] * n
        value = mean([w[i] * total[i] for i in range(n)]) / mean(w)
        return [value + w[i] * (total[i] - value) / mean(w) for i in range(n)]
    if name not in ("sniips", "snrips"):
        return [score(name, ranking) for ranking in rankings]
    psi = [0.0] * n
    for k in range(max(len(ranking["r"]) for ranking in rankings)):
        has = [float(len(ranking["r"]) > k) for ranking in rankings]
        v = [position_weights(name, ranking)[k] if h else 0.0 for h, ranking in zip(has, rankings, strict=True)]
        r = [ranking["r"][k] if h else 0.0 for h, ranking in zip(has, rankings, strict=True)]
        if not mean(v):
            return [math.nan] * n
        ratio = mean([v[i] * r[i] for i in range(n)]) / mean(v)
        for i in range(n):
            psi[i] += has[i] * ratio + mean(has) * v[i] * (r[i] - ratio) / mean(v)
    return psi


def estimate(name, rankings):
    """Value, standard error and effective sample size. Without any weight, there is no estimate."""
    w = [list_weight(name, ranking) for ranking in rankings]
    if not max(w) > 0:
        return math.nan, math.nan, effective_sample_size(w)
    psi = influence(name, rankings)
    return mean(psi), standard_error(psi), effective_sample_size(w)
