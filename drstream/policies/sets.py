"""How policies meet eligible sets: functions that take them, and sets that the user gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import PolicyError
from drstream.log import Events
from drstream.log.kinds.eligible.reading import bits_of
from drstream.types import Bools, Floats

NO, KNOWN, ALWAYS = "no", "known", "always"  # whether a function takes eligible sets: where events have some, or always
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def wants_sets(function: Callable[..., Any]) -> str:
    """Return whether a function takes the eligible sets (n, K) beside X.

    It does if it has a parameter `eligible`, or a second one without a default.

    >>> wants_sets(lambda X: X), wants_sets(lambda X, eligible=None: X), wants_sets(lambda X, mask: X)
    ('no', 'known', 'always')
    >>> wants_sets(lambda X, temperature=1.0: X)
    'no'
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions in C may have none
        return NO
    positional = [p for p in parameters if p.kind in POSITIONAL]
    if len(positional) > 1 and positional[1].default is inspect.Parameter.empty:
        return ALWAYS
    named = any(p.name == "eligible" and p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)
    return KNOWN if named else NO


def with_sets(function: Callable[..., Any], wants: str, block: Events, n_actions: int) -> Callable[[Any], Any]:
    """Return a function of X alone, which is given the block's eligible sets if it wants them."""
    more, named = sets_for(wants, block.eligible_mask, (len(block), n_actions))
    return lambda X: function(X, *more, **named)


def sets_for(wants: str, mask: Bools | None, shape: tuple[int, int]) -> tuple[tuple[Bools, ...], dict[str, Bools]]:
    """Return what a function gets beside X: the eligible sets (n, K), by position or by name, or nothing."""
    if wants == ALWAYS:
        return (np.broadcast_to(True, shape) if mask is None else mask,), {}
    return (), {"eligible": mask} if wants == KNOWN and mask is not None else {}


def learns_sets(update: Callable[..., Any]) -> bool:
    """Return whether a policy's update has a parameter `eligible`: it is told which set an action was taken from."""
    try:
        return "eligible" in inspect.signature(update).parameters
    except (TypeError, ValueError):
        return False


def given_bits(eligible: Any, rows: int, n_actions: int, who: str) -> NDArray[np.uint32] | None:
    """Check eligible sets (n, K) that the user gave, and return them as bits; None if there are none."""
    mask = given_mask(eligible, rows, n_actions, who)
    return None if mask is None else bits_of(mask)


def given_mask(eligible: Any, rows: int, n_actions: int, who: str) -> Bools | None:
    """Check eligible sets (n, K) that the user gave."""
    if eligible is None:
        return None
    mask = np.asarray(eligible)
    if mask.dtype != bool or mask.shape != (rows, n_actions):
        raise PolicyError(
            f"{who}: eligible is {mask.dtype} of shape {mask.shape}; it must say for each of {rows} events and "
            f"{n_actions} actions whether the event could choose it: booleans of shape {(rows, n_actions)}"
        )
    if not mask.any(axis=1).all():
        raise PolicyError(f"{who}: event {int(np.argmin(mask.any(axis=1)))} has no eligible action")
    return mask


def spread(pi: Floats, epsilon: float, block: Events) -> None:
    """pi (K, n) <- (1 - ε) pi + ε times the uniform policy over the eligible actions."""
    pi *= 1 - epsilon
    if block.eligible is None:
        pi += epsilon / len(pi)
    else:
        pi += epsilon / block.eligible.sizes
        block.hide(pi)


def spread_over(pi: Floats, epsilon: float, mask: Bools | None) -> Floats:
    """Return the same for probabilities (n, K), over the actions of a mask."""
    if mask is None:
        return (1 - epsilon) * pi + epsilon / pi.shape[1]
    return np.where(mask, (1 - epsilon) * pi + epsilon / mask.sum(axis=1, keepdims=True), 0.0)
