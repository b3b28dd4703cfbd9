"""Reward models r̂(x, a)."""

from drstream.models.base import Column, Constant, RewardModel, from_function
from drstream.models.linear import Ridge

__all__ = ["Column", "Constant", "RewardModel", "Ridge", "from_function"]
