"""Logs with categories, and their features by hand."""

from collections import Counter

import numpy as np
import pyarrow as pa
import scipy.sparse

COUNTRIES = ("DE", "FR", "US")


def table(rows=1000, seed=0, countries=COUNTRIES, actions=2):
    """A log whose best action depends on the country. Every column is without nulls."""
    rng = np.random.default_rng(seed)
    country = rng.choice(list(countries), rows)
    action = rng.integers(0, actions, rows)
    reward = (action == np.searchsorted(sorted(countries), country) % actions) * 0.5 + rng.random(rows) * 0.5
    return pa.table(
        {
            "action": action,
            "reward": (reward > 0.6).astype(float),
            "propensity": np.full(rows, 1 / actions),
            "age": rng.standard_normal(rows).astype(np.float32),
            "country": country,
            "device": pa.array(rng.choice(["phone", "tablet", "tv"], rows)).dictionary_encode(),
            "zip": rng.integers(100, 105, rows),
            "member": rng.random(rows) < 0.5,
            "agent": [f"agent {i}" for i in rng.integers(0, 400, rows)],
        }
    )


def one_hot(values, categories):
    """Features (n, categories) of a column, by hand."""
    return np.array([[float(value == category) for category in categories] for value in values])


def features(log, rows=100_000):
    """The contexts (n, d) of a log, as blocks of so many rows give them; dense and sparse forms must agree."""
    reader = log.reader(context=True, action=True)
    found = []
    for part in log.parts(reader.columns):
        for batch in reader.batches(part, Counter()):
            for block in batch.blocks(rows):
                matrix = block.matrix
                if scipy.sparse.issparse(matrix):
                    found.append(matrix.toarray())
                    continue
                np.testing.assert_array_equal(matrix.T, block.features)
                np.testing.assert_array_equal(matrix.T, block.features_as(np.dtype(np.float32)))
                found.append(np.array(matrix))
    return np.concatenate(found) if found else np.empty((0, log.n_features))
