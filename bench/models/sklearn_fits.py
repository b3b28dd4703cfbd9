"""Fits the same models with scikit-learn: reads the log from Parquet into one array and fits it in memory.

This file does not import drstream, so that scikit-learn's peak memory has nothing of drstream's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression, Ridge

BATCH_ROWS = 65_536  # small enough to copy from the CPU's cache; read_table and column_stack take four times as long

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
    """Fits one model for each action; for Propensity, one multinomial model."""
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
    """Predictions (n, K)."""
    if name == "Ridge":
        return np.column_stack([model.predict(X) for model in models])
    if name == "Logistic":
        return np.column_stack([model.predict_proba(X)[:, 1] for model in models])
    return models[0].predict_proba(X)
