"""What drstream raises when the input is wrong. The command line turns each of these into one line and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DrstreamError(ValueError):
    """Something about the input is wrong; the message says what, where, and what to do."""


class LogError(DrstreamError):
    """The log cannot be read, or an event in it cannot be used."""


class NoEventsError(LogError):
    """There is no event to fit a model on."""


class MissingFileError(LogError, FileNotFoundError):
    """There is no such file."""


class PolicyError(DrstreamError):
    """A policy, or what it returned, cannot be used."""


class ModelError(DrstreamError):
    """A reward model, or what it predicted, cannot be used."""


class NotEnoughEventsError(DrstreamError):
    """A replay came to the end of the log before it had simulated all steps of one replicate."""

    steps: int = 0  # simulated
    acceptance: float = float("nan")
    events_for_one: int | None = None  # replicate, about; by the bound of section 5.3
    events_for_ten: int | None = None


def near(name: str, names: Iterable[str]) -> str:
    """A hint at the names that the user may have meant, or the names there are.

    >>> near("propensty", ["action", "propensity"])
    "did you mean 'propensity'?"
    """
    names = list(names)
    lower = {n.lower(): n for n in reversed(names)}
    close = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(repr(n) for n in close)}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"there are: {shown or 'none'}"
