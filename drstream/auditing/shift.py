"""Whether rewards belong to other rows: what contexts and actions tell about the reward of their own row, of the row
before, and of the next one.

Sums of products of rewards are taken over the first events of each part: for each of the most frequent actions, with 1,
with log p, and with features that are scaled and uncorrelated in the first rows of the log; and over all actions.
If rewards of another row have nothing to do with a row, a standardised sum is about normal, and a sum of their squares
about chi-square. No large reward may decide: arcsinh makes it smaller, and features are cut at 3 standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drstream.auditing.guess import FEATURES, features
from drstream.auditing.merging import Merging
from drstream.kernels import audit as kernels
from drstream.log import Events
from drstream.running.execution import one_blas_thread
from drstream.types import Floats, Ints

FIRST = 16_384  # events of each part that are looked at
FEWEST = 100
DIMENSIONS = 24  # uncorrelated features that are kept
OTHERS = 2  # beside them: 1 and log p
MOST_ACTIONS = 12  # the last one stands for all others
OF_AN_ACTION = 20  # fewest events
CUT = 3.0  # standard deviations
SMALL = 1e-3  # share of the largest variance below which a direction is not looked at

SURE = 4.5  # z-score of what a neighbour tells: 0.000003, for each of six
NOTHING = 4.0  # z-score below which a row may tell nothing about its own reward
LESS = 4.0  # times less than about its neighbour's
MORE = 5.0  # z-score of the difference, if it tells something, too


@dataclass(frozen=True)
class Lens:
    """How to look at events, learned from the first ones. It can be pickled."""

    middle: float  # of the rewards
    scale: float
    mean: float  # of the scaled rewards
    centre: Floats
    spread: Floats
    turn: Floats  # (features, dimensions) to uncorrelated ones
    groups: NDArray[np.int32]  # of actions
    centre_p: Floats  # of log p, by group
    spread_p: Floats

    def create(self) -> LagSums:
        shape = len(self.centre_p), self.turn.shape[1] + OTHERS
        of_lags, of_rows, rewards = np.zeros((2, 3, *shape)), np.zeros((2, *shape)), np.zeros((2, 3))
        counts = np.zeros(shape[0], np.int64)
        return LagSums(of_lags[0], of_lags[1], of_rows[0], of_rows[1], rewards[0], rewards[1], counts)

    def add(self, events: Events, sums: LagSums) -> None:
        """Add the first events of a part."""
        events = events[:FIRST]
        rows = np.asarray(events.numbers)
        apart = np.diff(rows) != 1
        alone = np.ones(len(rows), bool)
        alone[1:-1] = apart[1:] | apart[:-1]
        with one_blas_thread():
            turned = scaled(features(events, FEATURES), self.centre, self.spread) @ self.turn
        reward = np.arcsinh((events.reward - self.middle) / self.scale) - self.mean
        group = group_of(self.groups, events.action)
        log_p = scaled(logarithms(events), self.centre_p[group], self.spread_p[group])
        seen = np.column_stack([np.ones(len(rows)), log_p, turned])
        kernels.add_lags(seen, reward, group, alone.view(np.uint8), sums.products, sums.squares, sums.sums, sums.sums2)
        used = np.flatnonzero(~alone)
        sums.rows += len(used)
        sums.counts += np.bincount(group[used], minlength=len(sums.counts))
        near = np.array([reward[used + lag] for lag in (-1, 0, 1)])
        sums.rewards += near.sum(axis=1)
        sums.rewards2 += (near * near).sum(axis=1)


@dataclass
class LagSums(Merging):
    """Sums over events: products with the reward of the row before, of their own and of the next one, and more."""

    products: Floats  # (3, groups, features)
    squares: Floats
    sums: Floats  # (groups, features) of features, and of their squares
    sums2: Floats
    rewards: Floats  # (3) of rewards, and of their squares
    rewards2: Floats
    counts: Ints  # (groups)
    rows: int = 0


def logarithms(events: Events) -> Floats:
    """Return log p, or 0 if there is no p."""
    return np.log(events.propensity) if len(events.propensity) else np.zeros(len(events))


def group_of(groups: NDArray[np.int32], action: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the group of each action; of candidates, which have places only, there is one."""
    return groups[action] if len(groups) > 1 else np.zeros(len(action), np.int32)


def scaled(x: Floats, centre: Floats, spread: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.clip((x - centre) / spread, -CUT, CUT))


def lens_of(first: Sequence[Events], actions: int) -> Lens | None:
    """Learn how to look at events; None if there are too few."""
    if sum(map(len, first)) < FEWEST:
        return None
    seen = [(features(e, FEATURES), logarithms(e), e.reward, e.action) for e in first]
    x, log_p, reward, action = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    middle = float(np.median(reward))
    distance = np.abs(reward - middle)
    scale = float(np.median(distance[distance > 0])) if distance.any() else 1.0
    with np.errstate(all="ignore"), one_blas_thread():
        centre, spread = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        spread[~(spread > 0)] = np.inf  # what is always the same tells nothing
        z = scaled(x, np.nan_to_num(centre), spread)
        variances, directions = np.linalg.eigh(z.T @ z / len(z))
    kept = np.argsort(-variances)[:DIMENSIONS]
    kept = kept[variances[kept] > SMALL * variances.max(initial=0)]
    turn = directions[:, kept] / np.sqrt(variances[kept])
    frequent = np.argsort(-np.bincount(action % actions, minlength=actions), kind="stable")
    groups = np.full(actions, min(actions, MOST_ACTIONS) - 1, np.int32)
    groups[frequent[: MOST_ACTIONS - 1]] = np.arange(min(actions, MOST_ACTIONS - 1))
    of = [log_p[group_of(groups, action) == g] for g in range(int(groups.max()) + 1)]
    centre_p, spread_p = (np.array([f(y) if len(y) else 0.0 for y in of]) for f in (np.mean, np.std))
    spread_p[spread_p <= SMALL] = np.inf
    mean = float(np.arcsinh((reward - middle) / scale).mean())
    return Lens(middle, scale, mean, np.nan_to_num(centre), spread, turn, groups, centre_p, spread_p)


@dataclass(frozen=True)
class Told:
    """What rows tell about rewards: a sum of squares of about normal numbers, less its mean if they tell nothing."""

    excess: float
    numbers: int

    @property
    def z(self) -> float:
        """Wilson and Hilferty's normal score of a chi-square."""
        if not self.numbers:
            return 0.0
        wide = 2 / (9 * self.numbers)
        return float((((self.excess + self.numbers) / self.numbers) ** (1 / 3) - (1 - wide)) / math.sqrt(wide))

    @property
    def variance(self) -> float:
        return 2 * (max(self.numbers, 1) + 2 * max(self.excess, 0.0))


def told(sums: LagSums, lag: int, actions: bool = True) -> list[Told]:
    """Return what features, features by action, and actions with log p tell about a reward: -1 is of the row before.

    Actions and propensities may well know the reward before, if the logging policy learns: then leave out actions.
    """
    index, often = lag + 1, sums.counts >= OF_AN_ACTION
    mean, square = sums.rewards[index] / sums.rows, sums.rewards2[index] / sums.rows
    products = sums.products[index] - sums.sums * mean
    squares, least = sums.squares[index], sums.sums2 * square
    found = []
    families = [None, np.s_[often, OTHERS:], *([np.s_[often, :OTHERS]] if actions else [])]
    for of in families:
        three = products, squares, least
        sum_of, seen, expected = (x[:, OTHERS:].sum(axis=0) if of is None else x[of] for x in three)
        variance = np.maximum(seen, expected)
        z = (sum_of / np.sqrt(np.where(variance > 0, variance, np.inf))).ravel()
        found.append(Told(float(z @ z) - int((variance > 0).sum()), int((variance > 0).sum())))
    return found


@dataclass(frozen=True)
class Shifted:
    """How much a neighbour's reward has to do with a row."""

    lag: int  # -1: the reward of the row before
    z: float
    own: float  # z-score of a row's own reward
    shifted: bool


def shifted(sums: LagSums, learns: bool) -> Shifted | None:
    """Return the neighbour whose reward a row tells most about; None if there are too few rows.

    learns  Whether the logging policy may have learned from rewards.
    """
    if sums.rows < FEWEST:
        return None
    by_lag = {-1: told(sums, -1, actions=not learns), 1: told(sums, 1)}
    own = told(sums, 0)
    z, lag, family = max((found.z, lag, k) for lag in (-1, 1) for k, found in enumerate(by_lag[lag]))
    most, mine = by_lag[lag][family], max(own, key=lambda found: found.excess)
    own_z = max(found.z for found in own)
    nothing = own_z < NOTHING and mine.excess < most.excess / LESS
    more = (most.excess - mine.excess) / math.sqrt(most.variance + mine.variance) >= MORE
    return Shifted(lag, z, own_z, z >= SURE and (nothing or (more and lag > 0)))  # contexts may know what was earned
