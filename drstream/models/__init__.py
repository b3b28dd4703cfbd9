"""Reward models r̂(x, a), and models of the propensities."""

from drstream.errors import ModelError
from drstream.models.adapters import from_sklearn
from drstream.models.base import Column, Constant, RewardModel, from_arrow, from_function
from drstream.models.logistic import Logistic
from drstream.models.positions import Positions
from drstream.models.propensity import Propensity, SklearnPropensity
from drstream.models.ridge import Ridge
from drstream.models.saved import Shelf

__all__ = [
    "Column",
    "Constant",
    "Logistic",
    "Positions",
    "Propensity",
    "RewardModel",
    "Ridge",
    "from_arrow",
    "from_function",
    "from_sklearn",
    "load",
]

load = Shelf("model", (Ridge, Logistic, Propensity, from_sklearn, SklearnPropensity), ModelError).load
