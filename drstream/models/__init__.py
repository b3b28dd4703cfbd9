"""Reward models r̂(x, a), and models of the propensities."""

from drstream.models.adapters import from_sklearn
from drstream.models.base import Column, Constant, RewardModel, from_function
from drstream.models.files import load
from drstream.models.logistic import Logistic
from drstream.models.propensity import Propensity
from drstream.models.ridge import Ridge

__all__ = [
    "Column",
    "Constant",
    "Logistic",
    "Propensity",
    "RewardModel",
    "Ridge",
    "from_function",
    "from_sklearn",
    "load",
]
