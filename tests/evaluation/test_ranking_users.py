"""Simulated users of rankings, whose true value is known by enumeration: each estimator is unbiased under its own
assumption about users and propensities, and biased outside of it.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers.passes import PLAIN
from tests.helpers.rankings import NAMES, NEW, ROLES, USERS, WHOLE, Simulated

pytestmark = pytest.mark.slow
LISTS = 60_000
RIGHT = {  # the users that each estimator is made for
    "iips": {"independent"},
    "sniips": {"independent"},
    "rips": {"independent", "cascade"},
    "snrips": {"independent", "cascade"},
    "cascade-dr": {"independent", "cascade"},
    "pi": {"independent", "additive"},
    "snpi": {"independent", "additive"},
    "ips": {"independent", "cascade", "additive", "whole"},
    "snips": {"independent", "cascade", "additive", "whole"},
}


@pytest.mark.parametrize("users", ["independent", "cascade", "additive", "whole"])
def test_an_estimator_is_right_about_its_own_users_and_wrong_about_others(users):
    world = Simulated(users)
    result = world.evaluate(LISTS, 7, (*NAMES, *WHOLE))
    assert set(RIGHT) == set(result.estimators)
    for name in result.estimators:
        distance = abs(result[name].value - world.truth) / result[name].stderr
        if users in RIGHT[name]:
            assert distance < 4, (name, distance)
        else:
            assert distance > 8, (name, distance)
            assert abs(result[name].value - world.truth) > 0.02


def test_predictions_make_intervals_narrower():
    """With the true expectations of the cascade, cascade-dr has less variance than rips."""
    world = Simulated("cascade")
    table = world.table(LISTS, 3)
    lists = np.stack(table["items"].to_numpy())
    shown, expected = world.expected(lists), np.zeros(lists.shape)
    for place, item in itertools.product(range(3), range(4)):
        other = lists.copy()
        other[:, place] = item
        expected[:, place] += world.policy[place, item] * world.expected(other)[:, place]
    kind = {"q": shown, "q_new": expected}
    for name, values in kind.items():
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 3)
        table = table.set_column(table.column_names.index(name), name, column)
    log = drs.Log(table, **ROLES, positions="independent")
    result = drs.evaluate(log, NEW, drs.models.Positions("q", "q_new"), ["cascade-dr", "rips"])
    for name in result.estimators:
        assert abs(result[name].value - world.truth) < 4 * result[name].stderr
    assert result["cascade-dr"].stderr < 0.85 * result["rips"].stderr
    assert result.r2 > 0.1
    assert result.headline == "cascade-dr"


class WithoutRepeats:
    """A logger and a policy that choose the items of a list one after the other, none twice: Plackett and Luce."""

    def __init__(self):
        self.logging, self.policy = np.array([0.4, 0.3, 0.15, 0.15]), np.array([0.1, 0.7, 0.1, 0.1])
        self.lists = np.array(list(itertools.permutations(range(4), 3)))

    def conditional(self, weights):
        """The probability of each item, given those above, for all lists."""
        chosen = weights[self.lists]
        above = np.column_stack([np.zeros(len(chosen)), np.cumsum(chosen, axis=1)[:, :-1]])
        return chosen / (weights.sum() - above)

    def marginal(self, weights):
        """The probability of each item at its position, for all lists."""
        joint = self.conditional(weights).prod(axis=1)
        at = np.zeros((3, 4))
        for place in range(3):
            np.add.at(at[place], self.lists[:, place], joint)
        return at[np.arange(3), self.lists]

    def log(self, expected, kind, n=LISTS, seed=1):
        """A log with propensities of this kind, and the true value of the policy."""
        rng = np.random.default_rng(seed)
        joint = self.conditional(self.logging).prod(axis=1)
        drawn = rng.choice(len(self.lists), n, p=joint / joint.sum())
        of = getattr(self, kind)
        reward = (rng.random((n, 3)) < expected(self.lists)[drawn]).astype(float)
        columns = {"items": self.lists[drawn], "p": of(self.logging)[drawn], "r": reward, "new": of(self.policy)[drawn]}
        arrays = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 3) for name, values in columns.items()
        }
        truth = self.conditional(self.policy).prod(axis=1) @ expected(self.lists).sum(axis=1)
        return drs.Log(pa.table(arrays), **ROLES), truth


@pytest.mark.parametrize(
    ("estimator", "users", "kind", "other"),
    [
        ("iips", "independent", "marginal", "conditional"),
        ("rips", "cascade", "conditional", "marginal"),
        ("ips", "additive", "conditional", "marginal"),
    ],
)
def test_an_estimator_needs_its_own_kind_of_propensities(estimator, users, kind, other):
    """If no item is shown twice, propensities of an item at its position are not those given the items above."""
    world = WithoutRepeats()

    def distance(which):
        log, truth = world.log(USERS[users], which)
        found = drs.evaluate(log, NEW, estimators=[estimator])[estimator]
        return abs(found.value - truth) / found.stderr

    assert distance(kind) < 4
    assert distance(other) > 8


@pytest.mark.parametrize(("users", "estimator"), [("independent", "iips"), ("cascade", "rips"), ("cascade", "snrips")])
def test_intervals_cover_the_truth(users, estimator):
    """95 % intervals of 600 logs of 400 lists, which are the segments of one log."""
    logs, size = (20, 50) if PLAIN else (600, 400)
    world = Simulated(users)
    table = world.table(logs * size, 11, part=pa.array(np.repeat(np.arange(logs), size)))
    log = drs.Log(table, **ROLES, positions="independent")
    segments = drs.evaluate(log, NEW, estimators=[estimator], by="part").segments
    low, high = segments["low"].to_numpy(), segments["high"].to_numpy()
    covered = np.mean((low <= world.truth) & (world.truth <= high))
    error = np.sqrt(0.95 * 0.05 / logs)
    assert abs(covered - 0.95) < 4 * error, covered
