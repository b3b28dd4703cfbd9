"""Small simulated logs of two policies, and the statistics that intervals are computed from."""

from dataclasses import dataclass, replace

import numpy as np

from drstream.intervals.statistic import Exploring, Groups, Side, Smooth, Statistic

# variables of an event, by place; a and b are two policies
R, WA, WRA, ROBUST_A, PREDICTED_A, WB, WRB, ROBUST_B, PREDICTED_B, CENTRED_A = range(10)
PIVOT = 0.3
SMOOTHING = 0.05  # λ
PLACES = {
    ("reward", "a"): (WA, WRA),
    ("robust", "a"): (WA, ROBUST_A),
    ("predicted", "a"): (None, PREDICTED_A),
    ("reward", "b"): (WB, WRB),
    ("robust", "b"): (WB, ROBUST_B),
    ("predicted", "b"): (None, PREDICTED_B),
    ("baseline", ""): (None, R),
}


@dataclass
class Events:
    """Variables x (n, 10) of events; the values of both policies and of the logging policy; the largest weight."""

    x: np.ndarray
    truth: dict
    top: float


def simulate(n, seed, probabilities=(0.7, 0.2, 0.1), clicks=(0.1, 0.3, 0.2), low=0.0, high=1.0, each=1):
    """Events with three actions. Policy a chooses the last two, policy b the first two. Rewards are `low` or `high`.

    each  Events of one user, who clicks on all or on none of one action.
    """
    draw = np.random.default_rng(seed)
    p, click = np.array(probabilities), np.array(clicks)
    a, b = np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.5, 0.0])
    action = np.repeat(draw.choice(3, n // each, p=p), each)
    clicked = np.repeat(draw.random(n // each) < click[action[::each]], each)
    scale = high - low
    r = low + scale * clicked
    model = low + scale * np.clip(click + np.array([0.05, -0.05, 0.1]), 0, 1)
    context = np.repeat(draw.random(n // each) * 0.1 * scale, each)
    x = np.empty((len(r), 10))
    x[:, R] = r
    for policy, (w, wr, robust, predicted) in ((a, (WA, WRA, ROBUST_A, 4)), (b, (WB, WRB, ROBUST_B, 8))):
        weight = (policy / p)[action]
        x[:, w], x[:, wr] = weight, weight * r
        x[:, predicted] = policy @ model + context - 0.05 * scale
        x[:, robust] = x[:, predicted] + weight * (r - model[action])
    x[:, CENTRED_A] = x[:, WRA] - PIVOT * x[:, WA]
    values = {"a": a @ click, "b": b @ click, "": p @ click}
    return Events(x, {name: low + scale * v for name, v in values.items()}, max((a / p).max(), (b / p).max()))


def side(kind, policy="", sign=1.0):
    weight, place = PLACES[kind, policy]
    unit = np.eye(10)
    if kind == "predicted":
        return Side(sign, kind, weight, unit[place])
    clicks = {"a": WRA, "b": WRB, "": R}[policy]
    return Side(sign, kind, weight, unit[place], unit[clicks], unit[place], 1.0 if weight is None else 10.0)


def groups(x, label, size, gram=False):
    count, sums = np.zeros(size), np.zeros((size, x.shape[1]))
    np.add.at(count, label, 1)
    np.add.at(sums, label, x)
    if not gram:
        return Groups(count, sums)
    return Groups(count, sums, np.array([x[label == g].T @ x[label == g] for g in range(size)]))


def smoothed(x, side, low, high):
    """The side with the terms of logarithmic smoothing and implicit exploration, as if the policy's ν were 1."""
    if side.weight is None:
        return side
    w, r = x[:, side.weight], x[:, R]
    gain, loss = (np.log1p(SMOOTHING * w * y / (high - low)).mean() for y in (r - low, high - r))
    explored = w / (1 + SMOOTHING / 2 * w)
    terms = Smooth(float(gain), float(loss)), Exploring(float(explored.mean()), float((explored * r).mean()))
    return replace(side, smooth=terms[0], explored=terms[1])


def statistic(x, *sides, ratio=False, buckets=64, stretches=20, label=None, ends=(0.0, 1.0)):
    """The statistic of some sides. Buckets are by row, or by `label`.

    ratio  Divides by the means of the weights, as SNIPS does.
    ends   Of the range of the rewards.
    """
    n, means = len(x), x.mean(axis=0)
    sides = [smoothed(x, s, *ends) for s in sides]

    def at(m):
        return sum(s.sign * (s.score @ m) / (m[s.weight] if ratio else 1) for s in sides)

    gradient = np.zeros(x.shape[1])
    for s in sides:
        below = means[s.weight] if ratio else 1
        gradient += s.sign * s.score / below
        if ratio:
            gradient[s.weight] -= s.sign * (s.score @ means) / below**2
    centred = x - means
    rows = np.arange(n)
    return Statistic(
        at(means),
        n,
        means,
        centred.T @ centred,
        gradient,
        at,
        tuple(sides),
        groups(x, rows % buckets if label is None else label, buckets),
        groups(x, rows * stretches // n, stretches, gram=True),
    )
