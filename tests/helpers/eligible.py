"""Logs whose events could choose from some of the actions only."""

import numpy as np
import pyarrow as pa


def random_mask(rng, rows, actions, share=0.5):
    """Whether each event could choose each action: (rows, actions), at least one a row."""
    mask = rng.random((rows, actions)) < share
    mask[np.arange(rows), rng.integers(0, actions, rows)] = True
    return mask


def lists_of(mask, labels=None, rng=None, kind=None):
    """The sets of a mask as a column of lists of labels, in a random order if there is a generator."""
    labels = range(mask.shape[1]) if labels is None else labels
    found = [np.flatnonzero(row) for row in mask]
    if rng is not None:
        found = [rng.permutation(row) for row in found]
    return pa.array([[labels[a] for a in row] for row in found], kind)


def softmax(scores, mask):
    """Naive: exp of the scores of eligible actions, over their sum."""
    out = np.zeros(scores.shape)
    for i, able in enumerate(mask):
        exps = np.exp(scores[i, able] - scores[i, able].max())
        out[i, able] = exps / exps.sum()
    return out


def argmax(scores, mask):
    """Naive: the first of the largest scores of eligible actions."""
    out = np.zeros(scores.shape)
    for i, able in enumerate(mask):
        best = max(np.flatnonzero(able), key=lambda a: scores[i, a])
        out[i, best] = 1
    return out


def uniform(mask):
    return mask / mask.sum(axis=1, keepdims=True)


def mask_of(table, actions, column="items"):
    """The mask of a column of lists of integers."""
    out = np.zeros((table.num_rows, actions), bool)
    for i, items in enumerate(table[column].to_pylist()):
        out[i, items] = True
    return out
