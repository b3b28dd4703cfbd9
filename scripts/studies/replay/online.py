"""True online runs: users arrive, the learner chooses, the world rewards, the learner learns."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from drstream.policies.online import Compiled
from drstream.types import Floats
from scripts.studies.replay.worlds import FEATURES, HORIZONS, learners, world_of

RUNS = {"Python": 500}  # of a learner; Python code takes longer
MANY_RUNS = 2000


@numba.njit
def _simulate(probabilities: Any, update: Any, initial: Any, kinds: Any, arrivals: Any, reward: Any, seed: int) -> Any:
    """The expected reward of each step (runs, T); arrivals (runs, T) has the kinds of the users."""
    np.random.seed(seed)
    total = np.zeros(arrivals.shape)
    out = np.empty(reward.shape[1])
    for run in range(arrivals.shape[0]):
        state = initial.copy()
        for t in range(arrivals.shape[1]):
            user = arrivals[run, t]
            probabilities(state, kinds[user], out)
            left = np.random.random()
            action = 0
            while action < len(out) - 1 and left >= out[action]:
                left -= out[action]
                action += 1
            total[run, t] = reward[user, action]
            update(state, kinds[user], action, 1.0 if np.random.random() < reward[user, action] else 0.0)
    return total


def _simulate_python(policy: Any, kinds: Floats, arrivals: Any, reward: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    total = np.zeros(arrivals.shape)
    for run, users in enumerate(arrivals):
        policy.reset()
        draws = rng.random((len(users), 2))
        for t, user in enumerate(users):
            out = policy.probabilities(kinds[user : user + 1])[0]
            action = min(int(np.searchsorted(out.cumsum(), draws[t, 0], side="right")), len(out) - 1)
            total[run, t] = reward[user, action]
            policy.update(kinds[user], action, float(draws[t, 1] < reward[user, action]))
    return total


def truths(n_actions: int, name: str, seed: int = 1) -> list[dict[str, Any]]:
    """The mean reward per step of the learner for each horizon, with its standard error, and the spread of one run."""
    world, policy = world_of(n_actions), learners(n_actions)[name]
    assert world.kinds is not None
    runs, horizon = RUNS.get(name, MANY_RUNS), max(HORIZONS)
    rng = np.random.default_rng([seed, n_actions])
    arrivals = rng.choice(len(world.kinds), size=(runs, horizon), p=world.frequency)
    kinds, reward = np.asarray(world.kinds, np.float64), world.reward(world.kinds)
    if isinstance(policy, Compiled):
        features = FEATURES if policy.uses_context else 0
        initial = policy.initial_state(n_actions, features)
        total = _simulate(*policy.functions(name), initial, kinds[:, :features].copy(), arrivals, reward, seed)
    else:
        total = _simulate_python(policy, kinds, arrivals, reward, seed)
    found = []
    for T in HORIZONS:
        means = total[:, :T].mean(axis=1)
        spread = float(means.std(ddof=1))
        found.append(
            {
                "actions": n_actions,
                "horizon": T,
                "learner": name,
                "truth": float(means.mean()),
                "error": spread / len(means) ** 0.5,
                "spread": spread,
            }
        )
    return found
