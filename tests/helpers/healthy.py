"""Small logs of ten kinds without a fault: a search must find none. Each is a table and options of Log."""

import numpy as np
import pyarrow as pa

import drstream as drs

ROWS = (2000, 3000, 5000)


def _rows(seed):
    return ROWS[seed % len(ROWS)]


def _click(rng, chance):
    return (rng.random(len(chance)) < chance) * 1.0


def _drawn(rng, probabilities):
    """Actions drawn from (n, K) probabilities, and their propensities."""
    action = (probabilities.cumsum(axis=1) > rng.random((len(probabilities), 1))).argmax(axis=1)
    return action, probabilities[np.arange(len(action)), action]


def _softmax(scores, floor=0.02):
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return (1 - floor * p.shape[1]) * p + floor


def few_kinds_of_users(seed):
    return drs.synth.World(n_actions=4, n_features=3, kinds=8, seed=seed).table(_rows(seed), seed=seed), {}


def new_users(seed):
    return drs.synth.World(n_actions=10, n_features=5, kinds=None, seed=seed).table(_rows(seed), seed=seed), {}


def experiment_with_rare_clicks(seed):
    """Arms of unequal size, contexts of all types, and a flag and a count that matter much."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    share = rng.dirichlet(np.full(4, 5.0)) * 0.8 + 0.05
    action = rng.choice(4, n, p=share)
    member, visits = rng.random(n) < 0.3, rng.poisson(0.7, n)
    chance = 0.01 * (1 + 4 * member) * (1 + visits)
    table = {
        "age": rng.integers(18, 90, n),
        "member": member,
        "visits": visits,
        "spent": np.where(visits > 0, np.round(rng.lognormal(3, 1, n), 2), 0.0),
        "country": rng.choice(["de", "fr", "it", "es"], n, p=[0.7, 0.2, 0.07, 0.03]),
        "reward": _click(rng, chance),
        "action": action,
        "propensity": share[action],
    }
    return pa.table(table), {"context": "*"}


def epsilon_greedy(seed):
    rng, n = np.random.default_rng(seed), _rows(seed)
    actions, epsilon = int(rng.integers(2, 9)), rng.choice([0.05, 0.1, 0.3])
    X = rng.standard_normal((n, 4))
    best = (X @ rng.standard_normal((4, actions))).argmax(axis=1)
    action = np.where(rng.random(n) < epsilon, rng.integers(0, actions, n), best)
    p = epsilon / actions + (1 - epsilon) * (action == best)
    reward = _click(rng, 0.05 + 0.1 * (action == best))
    return pa.table({"action": action, "reward": reward, "propensity": p, "x": pa.array(list(X))}), {"context": "x"}


def learner(seed):
    """Its propensities depend on earlier rewards. The arms are equal in every second log."""
    rng, n = np.random.default_rng(seed), 2000
    chances = np.full(4, 0.2) if seed % 2 else rng.random(4) * 0.4
    clicks, shown, rows = np.ones(4), np.full(4, 2.0), []
    for u, v, other, x in zip(rng.random(n), rng.random(n), rng.integers(0, 4, n), rng.random(n), strict=True):
        best = int((clicks / shown).argmax())
        action = best if u < 0.8 else int(other)
        reward = float(v < chances[action])
        rows.append({"action": action, "reward": reward, "propensity": 0.05 + 0.8 * (action == best), "x": x})
        clicks[action] += reward
        shown[action] += 1
    return pa.Table.from_pylist(rows), {"context": ["x"]}


def revenue(seed):
    """5 % buy, for lognormal amounts."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    X = rng.standard_normal((n, 3))
    action, p = _drawn(rng, _softmax(X @ rng.standard_normal((3, 3))))
    buys = rng.random(n) < 0.05 * np.exp(0.3 * X[:, 0])
    table = {"action": action, "reward": np.where(buys, rng.lognormal(3, 1.5, n), 0.0), "propensity": p}
    return pa.table({**table, **{f"x{j}": X[:, j] for j in range(3)}}), {}


def sessions(seed):
    """Users come for some rows each, one after the other, with the same context in all of them."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    lengths = rng.geometric(0.15, n)
    user = np.repeat(np.arange(n), lengths)[:n]
    X, mood = np.round(rng.standard_normal((n, 3)), 2)[user], 0.5 * rng.standard_normal(n)[user]
    action, p = _drawn(rng, _softmax(X @ rng.standard_normal((3, 5)) * 0.7))
    chance = 1 / (1 + np.exp(1 - mood - X[:, 0] - 0.5 * (action == 1)))
    table = {"action": action, "reward": _click(rng, chance), "propensity": p}
    return pa.table({**table, **{f"x{j}": X[:, j] for j in range(3)}}), {"context": "*"}


def seasons(seed):
    """Contexts and rewards go up and down with time."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    season = np.sin(np.arange(n) / n * 9) + np.cumsum(rng.standard_normal(n)) / n**0.5
    X = np.column_stack([season + 0.5 * rng.standard_normal(n), rng.integers(0, 24, n), rng.poisson(2, n)])
    action, p = _drawn(rng, _softmax(np.outer(season, [0.5, 0, -0.5])))
    reward = rng.standard_normal(n) + season + 0.2 * action
    table = {"action": action, "reward": reward, "propensity": p}
    return pa.table({**table, "trend": X[:, 0], "hour": X[:, 1], "seen": X[:, 2]}), {"context": "*"}


def words(seed):
    """Sparse contexts, and labels that are text."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    topic, places = rng.integers(0, 6, n), rng.integers(1, 5, n)
    indices = [np.unique(np.append(rng.integers(6, 60, k), t)).tolist() for k, t in zip(places, topic, strict=True)]
    names = np.array(["sport", "politics", "weather", "culture", "science", "games"])
    p = np.full((n, 6), 0.1)
    p[np.arange(n), topic] = 0.5
    action, p = _drawn(rng, p)
    table = {"action": names[action], "reward": _click(rng, 0.05 + 0.1 * (action == topic)), "propensity": p}
    table |= {"i": indices, "v": [[1.0] * len(row) for row in indices]}
    return pa.table(table), {"context": drs.Sparse("i", "v", 60)}


def stock(seed):
    """Eligible sets: not all is in stock."""
    rng, n = np.random.default_rng(seed), _rows(seed)
    available = rng.random((n, 6)) < 0.6
    available[np.arange(n), rng.integers(0, 6, n)] = True
    weight = available * rng.dirichlet(np.full(6, 4.0))
    action, p = _drawn(rng, weight / weight.sum(axis=1, keepdims=True))
    reward = _click(rng, 0.05 + 0.05 * action)
    table = {"action": action, "reward": reward, "propensity": p, "price": np.round(rng.lognormal(2, 0.5, n), 2)}
    table |= {"sets": [np.flatnonzero(row).tolist() for row in available], "hour": rng.integers(0, 24, n)}
    return pa.table(table), {"context": ["price", "hour"], "eligible": "sets", "actions": 6}


HEALTHY = {
    make.__name__: make
    for make in (
        few_kinds_of_users,
        new_users,
        experiment_with_rare_clicks,
        epsilon_greedy,
        learner,
        revenue,
        sessions,
        seasons,
        words,
        stock,
    )
}
