"""Bias and variance of DR by enumeration of a world's events, and their parts from single events: obviously right."""

import math
from itertools import product

import numpy as np


def matrices(world, policy):
    """Frequencies of kinds, ν, μ and r* (kinds, K)."""
    nu = np.asarray(world._probabilities(policy), float)
    return world.frequency, nu, world.logging(world.kinds), world.reward(world.kinds)


def weights(nu, used, cap=math.inf, floor=0.0):
    return [[min(cap, n / max(floor, u)) for n, u in zip(*pair, strict=True)] for pair in zip(nu, used, strict=True)]


def enumerate_scores(world, policy, rhat, w):
    """Every event (kind, action, reward) as its probability and its score b + z."""
    frequency, nu, mu, r_star = matrices(world, policy)
    kinds, actions = nu.shape
    for x, a, r in product(range(kinds), range(actions), (0, 1)):
        chance = r_star[x][a] if r else 1 - r_star[x][a]
        b = math.fsum(nu[x][k] * rhat[x][k] for k in range(actions))
        yield frequency[x] * mu[x][a] * chance, b + w[x][a] * (r - rhat[x][a])


def moments(pairs):
    pairs = list(pairs)
    mean = math.fsum(p * y for p, y in pairs)
    return mean, math.fsum(p * (y - mean) ** 2 for p, y in pairs)


def definitions(world, policy, rhat, used):
    """T1 to T4 as Lemma 3.3 defines them, with ϱ = μ / μ̂ and Δ = r̂ - r*; `used` is μ̂."""
    frequency, nu, mu, r_star = matrices(world, policy)
    kinds, actions = range(nu.shape[0]), range(nu.shape[1])
    rho, delta = mu / used, rhat - r_star

    def over_contexts(values):
        return math.fsum(f * v for f, v in zip(frequency, values, strict=True))

    def under_policy(values):
        return [math.fsum(nu[x][a] * values[x][a] for a in actions) for x in kinds]

    inner = under_policy(r_star + (1 - rho) * delta)
    mean = over_contexts(inner)
    noise = r_star * (1 - r_star)
    return (
        over_contexts([(v - mean) ** 2 for v in inner]),
        over_contexts([v**2 for v in under_policy(rho * delta)]),
        over_contexts(under_policy(nu / used * rho * noise)),
        over_contexts(under_policy(nu / used * rho * delta**2)),
    )


def measured(b, z):
    """T1 - T2 and T3 + T4 of single events."""
    n = len(z)
    mean_b, mean_z = math.fsum(b) / n, math.fsum(z) / n
    spread = math.fsum((x - mean_b) ** 2 for x in b) / n
    joint = math.fsum((x - mean_b) * (y - mean_z) for x, y in zip(b, z, strict=True)) / n
    return spread + 2 * joint - mean_z**2, math.fsum(y * y for y in z) / n
