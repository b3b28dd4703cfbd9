"""Policies and models on candidates in plain Python, event by event: slow and obviously right."""

from __future__ import annotations

import math

import numpy as np


def pairs(found, interactions=False):
    """For each event, the rows [x, z] of its candidates, perhaps with all products."""
    out = []
    for x, s in zip(found["x"].astype(float), found["sets"], strict=True):
        rows = []
        for i in s:
            z = found["features"][i].astype(float)
            products = [a * b for a in x for b in z] if interactions else []
            rows.append([*x, *z, *products])
        out.append(np.array(rows))
    return out


def scores(found, weights, interactions=None):
    out = []
    for x, s in zip(found["x"].astype(float), found["sets"], strict=True):
        of_event = []
        for i in s:
            z = found["features"][i].astype(float)
            score = math.fsum(w * v for w, v in zip(weights, [*x, *z], strict=True))
            if interactions is not None:
                score += float(x @ np.asarray(interactions) @ z)
            of_event.append(score)
        out.append(of_event)
    return out


def softmax(scores):
    out = []
    for s in scores:
        exps = [math.exp(v - max(s)) for v in s]
        out.append([e / math.fsum(exps) for e in exps])
    return out


def argmax(scores):
    """The first of the largest."""
    return [[1.0 if j == s.index(max(s)) else 0.0 for j in range(len(s))] for s in scores]


def uniform(found):
    return [[1 / len(s)] * len(s) for s in found["sets"]]


def mixed(pi, epsilon):
    return [[(1 - epsilon) * p + epsilon / len(one) for p in one] for one in pi]


def ridge(phi, r, alpha=1.0):
    """One ridge regression on rows, with an intercept that is not penalised."""
    design = np.column_stack([phi, np.ones(len(phi))])
    penalty = alpha * np.eye(design.shape[1])
    penalty[-1, -1] = 0
    return np.linalg.solve(design.T @ design + penalty, design.T @ r)


def predictions(rows, w):
    """Predictions of a linear model for all candidates."""
    return [(one @ w[:-1] + w[-1]).tolist() for one in rows]


def logged(rows, position):
    return np.array([one[p] for one, p in zip(rows, position, strict=True)])
