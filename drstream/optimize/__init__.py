"""From logged data to better policies: completed losses, learners, and the policies that they make."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drstream.optimize.dlm import DirectLossMinimizer
    from drstream.optimize.files import load
    from drstream.optimize.losses import Losses, impute
    from drstream.optimize.progressive import ProgressivePolicy
    from drstream.optimize.trees import FilterTree, OffsetTree

_WHERE = {
    "DirectLossMinimizer": "drstream.optimize.dlm",
    "FilterTree": "drstream.optimize.trees",
    "Losses": "drstream.optimize.losses",
    "OffsetTree": "drstream.optimize.trees",
    "ProgressivePolicy": "drstream.optimize.progressive",
    "impute": "drstream.optimize.losses",
    "load": "drstream.optimize.files",
}

__all__ = ["DirectLossMinimizer", "FilterTree", "Losses", "OffsetTree", "ProgressivePolicy", "impute", "load"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'drstream.optimize' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
