"""Policies: fixed ones, and ones that learn. Those that learn are imported when first used, with their kernels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from drstream.policies.adapters import from_sklearn
from drstream.policies.base import FixedPolicy
from drstream.policies.fixed import Column, Constant, Epsilon, Linear, Softmax, Uniform

if TYPE_CHECKING:
    from drstream.policies.learners import UCB1, Boltzmann, EpsilonGreedy, Exp3, LinUCB, SquareCB
    from drstream.policies.online import Compiled, Fixed
    from drstream.policies.retrained import Retrained

_WHERE = {
    **dict.fromkeys(
        ("Boltzmann", "EpsilonGreedy", "Exp3", "LinUCB", "SquareCB", "UCB1"),
        "drstream.policies.learners",
    ),
    "Compiled": "drstream.policies.online",
    "Fixed": "drstream.policies.online",
    "Retrained": "drstream.policies.retrained",
}

__all__ = [
    "UCB1",
    "Boltzmann",
    "Column",
    "Compiled",
    "Constant",
    "Epsilon",
    "EpsilonGreedy",
    "Exp3",
    "Fixed",
    "FixedPolicy",
    "LinUCB",
    "Linear",
    "Retrained",
    "Softmax",
    "SquareCB",
    "Uniform",
    "from_sklearn",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'drstream.policies' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
