"""Policies that learn on candidates, naively: one model on pairs [x, z]; and the logs that they are tested on."""

import itertools
import math

import numpy as np
import pyarrow as pa

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.cut import cut_log


def pair(x, z, interactions):
    """[x, z], perhaps with all products."""
    x, z = [float(v) for v in x], [float(v) for v in z]
    return [*x, *z, *(a * b for a in x for b in z if interactions)]


class Shared:
    """A policy that learns, in plain Python, as `drs.replay` runs it on candidates: inner learns about one action."""

    def __init__(self, kind, interactions=False, **parameters):
        self.kind, self.interactions, self.parameters = kind, interactions, parameters
        self.inner = None
        self.version = 0

    def reset(self):
        self.inner = None
        self.version = 0

    def choose(self, x, Z):
        pairs = [pair(x, z, self.interactions) for z in Z]
        if self.inner is None:
            self.inner = self.kind(1, len(pairs[0]), **self.parameters)
        one = self.inner
        if isinstance(one, naive_replay.LinUCB):
            bounds = [naive_bound(one, p) for p in pairs]
            best = naive_replay.first_largest([round(v, 9) for v in bounds])
            return [float(k == best) for k in range(len(Z))]
        scores = [one.scores(p)[0] for p in pairs]
        many = self.kind(len(Z), 0, **self.parameters)  # how it chooses among as many actions with these scores
        many.n, many.scores = one.n, lambda _: scores
        many.meet(None)
        return many.choose([])

    def probabilities(self, X, Z, starts):
        sets = [Z[a:b] for a, b in itertools.pairwise(starts)]
        return np.concatenate([self.choose(x, z) for x, z in zip(X, sets, strict=True)])

    def update(self, x, z, reward):
        self.inner.update(np.array(pair(x, z, self.interactions)), 0, reward)
        self.version += 1


def naive_bound(one, features):
    z = np.array([*features, 1.0])
    inverse = np.linalg.inv(one.A[0])
    return float(inverse @ one.b[0] @ z + one.alpha * math.sqrt(z @ inverse @ z))


class ByRow:
    """Lets `naive_replay.replay` walk over events with candidates: the context that it hands on is the row number."""

    def __init__(self, policy, X, sets):
        self.policy, self.X, self.sets = policy, X, sets

    def reset(self):
        self.policy.reset()

    def probabilities(self, rows):
        return [self.policy.choose(self.X[k], self.sets[k]) for k in rows]

    def update(self, row, action, reward):
        self.policy.update(self.X[row], self.sets[row][action], reward)


LEARNERS = {
    "epsilon": (drs.policies.EpsilonGreedy, naive_replay.EpsilonGreedy, {"epsilon": 0.3}, {"epsilon": 0.3}),
    "epsilon, decaying, logistic": (
        drs.policies.EpsilonGreedy,
        naive_replay.EpsilonGreedy,
        {"epsilon": 0.5, "epsilon_decay": 0.1, "learning_rate": 0.3, "learning_rate_decay": 0.05, "loss": "logistic"},
        {"epsilon": 0.5, "decay": 0.1, "rate": 0.3, "rate_decay": 0.05, "loss": "logistic"},
    ),
    "boltzmann": (
        drs.policies.Boltzmann,
        naive_replay.Boltzmann,
        {"temperature": 0.2, "cooling": 0.01},
        {"temperature": 0.2, "cooling": 0.01},
    ),
    "square": (drs.policies.SquareCB, naive_replay.SquareCB, {"gamma": 5.0}, {"gamma": 5.0}),
    "linucb": (drs.policies.LinUCB, naive_replay.LinUCB, *[{"alpha": 0.7, "ridge": 2.0}] * 2),
}


def learner(name, interactions):
    """A learner of drstream, and its naive form."""
    made, naive, given, plain = LEARNERS[name]
    return made(**given, interactions=interactions), Shared(naive, interactions, **plain)


def small_log(seed, rows, features=2, width=3, most=5, kind="float64", catalogue=8):
    """Random events with candidates, strong and weak propensities, and predictions that stand in a column."""
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((catalogue, width)).astype(kind)
    sets = [rng.permutation(catalogue)[: rng.integers(1, most + 1)] for _ in range(rows)]
    Z = [items[s] for s in sets]
    inner = pa.list_(pa.from_numpy_dtype(items.dtype))
    table = pa.table(
        {
            **{f"x{j}": rng.standard_normal(rows).astype(kind) for j in range(features)},
            "items": [s.tolist() for s in sets],
            "z": pa.array([z.tolist() for z in Z], pa.list_(inner)),
            "action": [int(rng.integers(len(s))) for s in sets],
            "reward": rng.choice([0.0, 1.0, 0.4], rows),
            "propensity": rng.choice([1.0, 0.5, 0.25, 0.06, 0.9], rows),
            "rhat": [rng.random(len(s)).tolist() for s in sets],
            "pi": [rng.dirichlet(np.ones(len(s))).tolist() for s in sets],
        }
    )
    return table, Z


CANDIDATES = drs.Candidates("items", "z", "position")


def open_log(table, features=2, **options):
    return cut_log(table, context=[f"x{j}" for j in range(features)], candidates=CANDIDATES, **options)


def as_events(table, features=2):
    """Events for the naive replay, whose contexts are row numbers; the contexts; and predictions."""
    X = np.column_stack([*(table[f"x{j}"].to_numpy() for j in range(features)), np.zeros((table.num_rows, 0))])
    columns = (table[name].to_pylist() for name in ("action", "reward", "propensity"))
    return list(zip(range(table.num_rows), *columns, strict=True)), X, table["rhat"].to_pylist()
