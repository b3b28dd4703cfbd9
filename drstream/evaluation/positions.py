"""Self-normalised estimates of rankings: for each position a ratio, as functions of means.

The means are those of three terms for each position l, in this order: whether a list has the position, its weight v_l
there, and v_l r_l. All may have several columns, one for each of several samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def normalised(mean: Any) -> Any:
    """Return Σ_l share_l (mean of v_l r_l) / (mean of v_l). A position that no list has counts as 0."""
    shown, weight, reward = np.split(np.asarray(mean), 3)
    with np.errstate(all="ignore"):
        return np.where(np.real(shown) == 0, 0.0, shown * (reward / weight)).sum(axis=0)
