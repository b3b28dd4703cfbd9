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
