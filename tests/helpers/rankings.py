"""Logs of rankings for tests: tables from lists, drawn by hypothesis, and simulated users whose true value is known."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import drstream as drs

COLUMNS = {"items": "items", "p": "p", "r": "r", "pi": "new", "q": "q", "e": "q_new"}
ROLES = {"action": "items", "propensity": "p", "reward": "r"}
NEW = drs.policies.Column("new")
PREDICTED = drs.models.Positions("q", "q_new")
NAMES = tuple(drs.rankings.ALL)
WHOLE = ("ips", "snips")  # of whole lists


def table_of(rankings, kind=None, **more):
    """A table of rankings, as in `naive_rankings`. kind: a function from the type of items to that of lists."""
    kind = kind or pa.list_
    columns = {}
    for field, name in COLUMNS.items():
        if field in rankings[0]:
            items = pa.int64() if field == "items" else pa.float64()
            columns[name] = pa.array([ranking[field] for ranking in rankings], kind(items))
    return pa.table({**columns, **more})


def log_of(rankings, **options):
    return drs.Log(table_of(rankings), **{**ROLES, **options})


@st.composite
def rankings(draw, max_lists=20, max_items=4):
    """Lists of any lengths: one list, one item, huge weights, and policies that never show an item included."""
    lengths = draw(st.lists(st.integers(1, max_items), min_size=1, max_size=max_lists))
    reward = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-1e3, 1e3).map(lambda x: round(x, 3)))
    propensity = st.one_of(st.sampled_from([1.0, 0.5, 1e-3]), st.floats(0.05, 1.0))
    probability = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.05, 1.0))
    found = []
    for length in lengths:
        numbers = {"p": propensity, "pi": probability, "r": reward, "q": reward, "e": reward}
        lists = {name: draw(st.lists(kind, min_size=length, max_size=length)) for name, kind in numbers.items()}
        found.append({"items": draw(st.permutations(range(6)))[:length], **lists})
    return found


# Users of whom all is known: four items, three positions

ITEMS, LENGTH = 4, 3
LISTS = np.array(list(itertools.product(range(ITEMS), repeat=LENGTH)))
APPEAL = np.array([0.7, 0.2, 0.5, 0.35])
SEEN = np.array([1.0, 0.7, 0.5])


def independent(lists):
    """A click depends on the item and its position."""
    return APPEAL[lists] * SEEN


def cascade(lists):
    """Users go from the top to the bottom, and do not click on what they have seen above."""
    second, third = lists[:, 1] != lists[:, 0], (lists[:, 2] != lists[:, 0]) & (lists[:, 2] != lists[:, 1])
    return APPEAL[lists] * np.column_stack([np.ones(len(lists)), second, third])


def additive(lists):
    """Each item has an effect at its position, but the reward is booked at the position above."""
    return np.roll(APPEAL[lists] * SEEN, -1, axis=1)


def whole(lists):
    """The top item is clicked if the list is varied, the others never."""
    distinct = np.array([len(set(one)) for one in lists.tolist()])
    return np.column_stack([0.1 + 0.8 * (distinct == LENGTH), np.zeros((len(lists), LENGTH - 1))])


USERS = {"independent": independent, "cascade": cascade, "additive": additive, "whole": whole}


LOGGING = np.array([[0.25, 0.25, 0.25, 0.25], [0.3, 0.3, 0.2, 0.2], [0.2, 0.3, 0.2, 0.3]])  # by position and item
POLICY = np.array([[0.6, 0.1, 0.2, 0.1], [0.55, 0.15, 0.15, 0.15], [0.5, 0.2, 0.1, 0.2]])


def at(distribution, lists):
    """The probability of each item at its position."""
    return distribution[np.arange(LENGTH), lists]


class Simulated:
    """A logger and a policy that fill positions independently of each other, and users of one kind."""

    logging, policy = LOGGING, POLICY

    def __init__(self, users):
        self.expected = USERS[users]

    @property
    def truth(self):
        """The expected reward of a list, by enumeration."""
        return float(at(self.policy, LISTS).prod(axis=1) @ self.expected(LISTS).sum(axis=1))

    def table(self, n, seed, **more):
        rng = np.random.default_rng(seed)
        lists = np.column_stack([rng.choice(ITEMS, n, p=self.logging[place]) for place in range(LENGTH)])
        reward = (rng.random(lists.shape) < self.expected(lists)).astype(float)
        # rough predictions: of the item alone, whatever was above
        rough = np.arange(ITEMS) / ITEMS
        expected = np.broadcast_to(self.policy @ rough, lists.shape)
        columns = {"items": lists, "p": at(self.logging, lists), "r": reward, "new": at(self.policy, lists)}
        columns |= {"q": rough[lists], "q_new": expected}
        kind = {name: np.ascontiguousarray(values).reshape(-1) for name, values in columns.items()}
        lists = {name: pa.FixedSizeListArray.from_arrays(pa.array(values), LENGTH) for name, values in kind.items()}
        return pa.table({**lists, **more})

    def evaluate(self, n, seed, estimators, **options):
        log = drs.Log(self.table(n, seed), **ROLES, positions="independent")
        return drs.evaluate(log, NEW, PREDICTED, list(estimators), **options)
