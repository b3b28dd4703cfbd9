"""Better policies from logged data: losses of all actions, and learners that turn them into policies."""

from drstream.errors import PolicyError
from drstream.models import Logistic, Ridge, from_sklearn
from drstream.models.saved import Shelf
from drstream.optimize.dlm import DirectLossMinimizer
from drstream.optimize.losses import Losses, impute
from drstream.optimize.progressive import ProgressivePolicy
from drstream.optimize.trees import CHECKED, FilterTree, OffsetTree
from drstream.policies.greedy import Greedy

__all__ = ["DirectLossMinimizer", "FilterTree", "Losses", "OffsetTree", "ProgressivePolicy", "impute", "load"]

load = Shelf(
    "policy",
    (DirectLossMinimizer, FilterTree, OffsetTree, ProgressivePolicy),
    PolicyError,
    checked=CHECKED,
    models=(Ridge, Logistic, from_sklearn),
    policy=Greedy,
).load
