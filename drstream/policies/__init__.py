"""Policies: fixed ones, and ones that learn."""

from drstream.policies import learners
from drstream.policies.adapters import from_arrow, from_function, from_sklearn
from drstream.policies.base import FixedPolicy, named
from drstream.policies.fixed import Column, Constant, Epsilon, Linear, Softmax, Uniform
from drstream.policies.greedy import Greedy
from drstream.policies.learners import *  # noqa: F403  # its __all__ holds the learners and nothing else
from drstream.policies.online import Compiled, Fixed
from drstream.policies.retrained import Retrained
from drstream.policies.shared import CompiledShared

__all__ = [
    "Column",
    "Compiled",
    "CompiledShared",
    "Constant",
    "Epsilon",
    "Fixed",
    "FixedPolicy",
    "Greedy",
    "Linear",
    "Retrained",
    "Softmax",
    "Uniform",
    "from_arrow",
    "from_function",
    "from_sklearn",
    "named",
    *learners.__all__,
]
