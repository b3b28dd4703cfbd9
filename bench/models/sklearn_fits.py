"""scikit-learn's fits of the same models: the log is read from Parquet into one array, and fitted in memory.

Nothing here needs drstream, whose memory is not to be counted in with scikit-learn's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression, Ridge

BATCH_ROWS = 65_536  # read_table and column_stack take four times as long as batches that are copied while in cache

Events = tuple[np.ndarray, np.ndarray, np.ndarray]  # contexts (n, d), actions, rewards


def read(path: str | Path, kind: str, features: int) -> Events:
    with pq.ParquetFile(path) as file:
        n = file.metadata.num_rows
        X, action, reward = np.empty((n, features), kind), np.empty(n, np.int32), np.empty(n)
        names = [f"x{j}" for j in range(features)]
        start = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=["action", "reward", *names]):
            rows = slice(start, start + len(batch))
            for j, name in enumerate(names):
                X[rows, j] = batch.column(name).to_numpy()
            action[rows] = batch.column("action").to_numpy()
            reward[rows] = batch.column("reward").to_numpy()
            start = rows.stop
    return X, action, reward


def fit(name: str, events: Events, **options: Any) -> list[Any]:
    """Of Ridge and Logistic one model for each action; of Propensity one, multinomial."""
    X, action, reward = events
    if name == "Propensity":
        return [LogisticRegression(**options).fit(X, action)]
    estimator = {"Ridge": Ridge, "Logistic": LogisticRegression}[name]
    models = []
    for a in range(int(action.max()) + 1):
        rows = np.flatnonzero(action == a)
        models.append(estimator(**options).fit(X[rows], reward[rows]))
    return models


def predict(name: str, models: list[Any], X: np.ndarray) -> np.ndarray:
    """(n, K)."""
    if name == "Ridge":
        return np.column_stack([model.predict(X) for model in models])
    if name == "Logistic":
        return np.column_stack([model.predict_proba(X)[:, 1] for model in models])
    return models[0].predict_proba(X)
