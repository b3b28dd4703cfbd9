"""A log as it comes from a shop: text, categories, nulls and times; and what its columns say, event by event."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa

ACTIONS = ["banner", "mail", "none"]
LANDS = ["AT", "DE", "FR", "IT"]


def shop(rows=1500, seed=0, integers=False):
    """A table. Rewards depend on the land and the age. With `integers`, actions are 0, 1 and 2."""
    rng = np.random.default_rng(seed)
    land = rng.choice(LANDS, rows)
    age = rng.integers(18, 80, rows)
    action = rng.integers(0, 3, rows)
    p = np.where(action == 0, 0.5, 0.25)
    action = np.where(rng.random(rows) < 0.25, 0, action)
    p = np.choose(action, [0.5, 0.25, 0.25])
    chance = 0.1 + 0.4 * ((land == "DE") & (action == 1)) + 0.3 * ((age > 50) & (action == 2))
    kinds = rng.choice(["new", "old"], rows)
    return pa.table(
        {
            "age": pa.array(age),
            "income": pa.array(rng.normal(3, 1, rows).round(2), mask=rng.random(rows) < 0.1),
            "land": pa.array(land, pa.string(), mask=rng.random(rows) < 0.1),
            "kind": pa.array(kinds).dictionary_encode(),
            "day": pa.array([datetime.date(2026, 11, 1 + k % 28) for k in range(rows)]),
            "tags": pa.array([{"shop": k % 3} for k in range(rows)]),
            "action": pa.array(action if integers else np.array(ACTIONS)[action]),
            "reward": (rng.random(rows) < chance).astype(float),
            "propensity": p,
        }
    )


def frame(table, names, categories=()):
    """The columns as pandas has them, in this order."""
    found = table.select(list(names)).to_pandas()
    return found.assign(**{name: found[name].astype("category") for name in categories})


def best_actions(table):
    """For a classifier to learn: mail for DE, none for people over 50, else a banner."""
    land, age = table["land"].to_pylist(), table["age"].to_pylist()
    return np.array([1 if x == "DE" else 2 if y > 50 else 0 for x, y in zip(land, age, strict=True)])


def naive_ips(table, pi, labels=ACTIONS):
    """IPS of probabilities (n, K), one event after the other."""
    rows = zip(table["action"].to_pylist(), table["reward"].to_pylist(), table["propensity"].to_pylist(), strict=True)
    return float(np.mean([pi[k][labels.index(a)] / p * r for k, (a, r, p) in enumerate(rows)]))


def naive_dr(table, pi, rhat, labels=ACTIONS):
    found = []
    rows = zip(table["action"].to_pylist(), table["reward"].to_pylist(), table["propensity"].to_pylist(), strict=True)
    for k, (a, r, p) in enumerate(rows):
        j = labels.index(a)
        found.append(np.dot(pi[k], rhat[k]) + pi[k][j] / p * (r - rhat[k][j]))
    return float(np.mean(found))


def by_land(batch):
    """Probabilities of all actions, for `from_arrow`: a function of text with nulls."""
    return np.array([[0.2, 0.8, 0] if x == "DE" else [0, 0, 1] if x is None else [1, 0, 0] for x in lands(batch)])


def rewards_by_land(batch):
    """Predictions for `from_arrow`."""
    return np.array([[0.1, 0.5, 0.1] if x == "DE" else [0.1, 0.2, 0.3] for x in lands(batch)])


def lands(batch):
    assert isinstance(batch, pa.RecordBatch)
    return batch["land"].to_pylist()


def whole(table):
    """The table as one record batch, for functions of `from_arrow`."""
    return table.combine_chunks().to_batches()[0]


def with_numbers(table, **columns):
    """The table with lists of numbers as further columns."""
    for name, values in columns.items():
        table = table.append_column(name, pa.array(list(np.asarray(values, float))))
    return table


def categorical(values):
    return pd.Series(values).astype("category")
