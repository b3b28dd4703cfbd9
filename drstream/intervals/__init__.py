"""Intervals: bounds of an estimate or of a difference, by several methods, from sums over the log.

basic.py      standard errors, z and t          statistic.py  what every method takes
methods.py    the registry: one entry a method  ranges.py     how small and how large a score can be
winners.py    several estimates at once
tails.py, resampling.py, bernstein.py, freedman.py, likelihood.py, gamma.py, anytime.py, smoothing.py: the methods

Names are imported when they are first used: `drstream evaluate --help` lists the methods without loading NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drstream.intervals.basic import normal, standard_error, student, t_score, z_score

__all__ = ["normal", "standard_error", "student", "t_score", "z_score"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'drstream.intervals' has no attribute {name!r}")
    from drstream.intervals import basic

    return getattr(basic, name)
