"""Learned policies that can be read from a file."""

from drstream.errors import PolicyError
from drstream.optimize.dlm import DirectLossMinimizer
from drstream.optimize.progressive import ProgressivePolicy
from drstream.optimize.trees import CHECKED, FilterTree, OffsetTree
from drstream.storage import Shelf

_KINDS = {kind.__name__: kind for kind in (DirectLossMinimizer, FilterTree, OffsetTree, ProgressivePolicy)}
load = Shelf("policy", _KINDS, PolicyError, "Learn the policy again", checked=CHECKED).load
