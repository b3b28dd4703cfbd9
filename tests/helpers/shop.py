"""A world with eligible sets: what is on the shelf when a customer comes in depends on chance and on the customer."""

import numpy as np
import pyarrow as pa

from tests.helpers.eligible import lists_of

ACTIONS, FLOOR = 4, 0.12
SHELVES = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]], bool)


class Shop:
    """Customers of eight kinds, with contexts (2). The chance of a sale is linear in the context."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.kinds = rng.uniform(-1, 1, (8, 2))
        self.frequency = rng.dirichlet(np.full(8, 5.0))
        self.shelves = rng.dirichlet(np.full(len(SHELVES), 2.0), size=8)  # how often a kind sees each
        self.taste, self.appeal = rng.uniform(-0.25, 0.25, (ACTIONS, 2)), rng.uniform(0.25, 0.6, ACTIONS)
        self.habit = rng.standard_normal((ACTIONS, 2))

    def reward(self, X):
        return np.clip(np.asarray(X, float) @ self.taste.T + self.appeal, 0.02, 0.98)

    def logging(self, X, mask):
        """A softmax over the shelf. Each of its items has at least a chance of FLOOR."""
        weights = np.where(mask, np.exp(np.asarray(X, float) @ self.habit.T), 0)
        size = mask.sum(axis=1, keepdims=True)
        return np.where(mask, FLOOR + (1 - FLOOR * size) * weights / weights.sum(axis=1, keepdims=True), 0)

    def draw(self, rng, rows):
        """Contexts (rows, 2), and shelves as a mask."""
        kind = rng.choice(8, rows, p=self.frequency)
        shelf = (rng.random((rows, 1)) > self.shelves[kind].cumsum(axis=1)).sum(axis=1)
        return self.kinds[kind], SHELVES[np.minimum(shelf, len(SHELVES) - 1)]

    def table(self, rows, seed):
        rng = np.random.default_rng(seed)
        X, mask = self.draw(rng, rows)
        pi = self.logging(X, mask)
        action = np.minimum((rng.random((rows, 1)) > pi.cumsum(axis=1)).sum(axis=1), ACTIONS - 1)
        at = np.arange(rows), action
        return pa.table(
            {
                "x0": X[:, 0], "x1": X[:, 1], "action": action, "propensity": pi[at],
                "reward": (rng.random(rows) < self.reward(X)[at]).astype(float), "items": lists_of(mask, rng=rng),
            }
        )  # fmt: skip

    def value(self, probabilities):
        """The true value of a policy that is a function of contexts and mask."""
        X, mask = np.repeat(self.kinds, len(SHELVES), axis=0), np.tile(SHELVES, (8, 1))
        weight = (self.frequency[:, None] * self.shelves).ravel()
        pi = np.asarray(probabilities(X, mask))
        assert (pi[~mask] == 0).all()
        return float(weight @ (pi * self.reward(X)).sum(axis=1))

    @property
    def best(self):
        """The value of the best policy."""
        return self.value(lambda X, mask: np.eye(ACTIONS)[np.where(mask, self.reward(X), -1).argmax(axis=1)])

    def online(self, policy, horizon, runs, seed=0):
        """Cumulative rewards of true runs of a compiled policy."""
        rng = np.random.default_rng(seed)
        ask, update, update_within = policy.functions_within("policy")
        initial = policy.initial_state(ACTIONS, 2 if policy.uses_context else 0)
        pi, totals = np.empty(ACTIONS), np.zeros(runs)
        for run in range(runs):
            state = initial.copy()
            X, masks = self.draw(rng, horizon)
            means, draws = self.reward(X), rng.random((horizon, 2))
            shown = X if policy.uses_context else np.empty((horizon, 0))
            for x, mask, mean, (one, two) in zip(shown, masks.view(np.uint8), means, draws, strict=True):
                ask(state, x, mask, pi)
                action = min(int(np.searchsorted(pi.cumsum(), one, side="right")), ACTIONS - 1)
                r = float(two < mean[action])
                if update is None:
                    update_within(state, x, mask, action, r)
                else:
                    update(state, x, action, r)
                totals[run] += r
        return totals
