"""Policies: fixed ones, which do not change while they are evaluated."""

from drstream.policies.adapters import from_sklearn
from drstream.policies.base import FixedPolicy
from drstream.policies.fixed import Column, Constant, Epsilon, Linear, Softmax, Uniform

__all__ = ["Column", "Constant", "Epsilon", "FixedPolicy", "Linear", "Softmax", "Uniform", "from_sklearn"]
