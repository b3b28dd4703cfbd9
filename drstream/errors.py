"""Errors and warnings about wrong input, and the words of their messages.

Messages name parameters. The command line has options instead. It shows the same messages, with its own words for
`parameter(...)` and `phrase(...)`.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

_START, _OR, _END = "\ue000", "\ue001", "\ue002"  # mark words with two forms; private-use characters of Unicode
_TWO_FORMS = re.compile(f"{_START}(.*?){_OR}(.*?){_END}", re.DOTALL)
_NO_VALUE = object()
_PACKAGE = str(Path(__file__).parent) + os.sep


_SECRET = re.compile(r"(?i)([?&][^=&#\s]*(?:key|secret|token|sig|signature|password|credential)[^=&#\s]*=)[^&#\s]+")
_USER = re.compile(r"(\w://)(?:[^/@\s:]*:[^@\s]*|[^/@\s]+)@")
# Codes that a terminal obeys: all control characters but tabs and ends of lines, and those that turn the direction
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def without_secrets(text: str) -> str:
    """Return text in which URIs hide passwords, and keys in their queries.

    >>> without_secrets("s3://KEY:SECRET@bucket/log.parquet?secret_key=x&region=eu")
    's3://***@bucket/log.parquet?secret_key=***&region=eu'
    """
    return _SECRET.sub(r"\1***", _USER.sub(r"\1***@", text))


def shown(text: str) -> str:
    """Return text that is safe on a terminal: names and values from data may hold escape codes.

    >>> shown("red \x1b[31m")
    'red \\\\x1b[31m'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def printable(method: Callable[[Any], str]) -> Callable[[Any], str]:
    """Make a `__repr__` or `__str__` safe on a terminal."""

    @wraps(method)
    def safe(self: Any) -> str:
        return shown(method(self))

    return safe


def phrase(python: str, command: str) -> str:
    """Return words of a message that differ between Python and the command line."""
    return f"{_START}{python}{_OR}{command}{_END}"


def parameter(name: str, value: Any = _NO_VALUE, *, option: str | None = None) -> str:
    """Return a parameter for a message, perhaps with its value. The command line shows the option of that name.

    >>> in_python(parameter("crossfit", 5)), for_command_line(parameter("crossfit", 5))
    ('crossfit=5', '--crossfit 5')
    """
    flag = f"--{(option or name).rstrip('_').replace('_', '-')}"
    if value is _NO_VALUE:
        return phrase(f"{name}=", flag)
    return phrase(f"{name}={value!r}", f"{flag} {'none' if value is None else value}")


def in_python(message: str) -> str:
    return _TWO_FORMS.sub(r"\1", message)


def for_command_line(message: str) -> str:
    return _TWO_FORMS.sub(r"\2", message)


class DrstreamError(ValueError):
    """Something about the input is wrong. The message says what, where, and what to do."""

    def __init__(self, message: str = "", *, kind: str = "") -> None:
        message = shown(without_secrets(message))
        super().__init__(in_python(message))
        self.message = message  # with both forms of `phrase`
        self.kind = kind  # lets code tell errors of one class apart

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), vars(self)


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


class StateError(DrstreamError):
    """A state or checkpoint cannot be read, or does not fit."""


class WorkerError(DrstreamError):
    """Workers of an executor ended before their work was complete, or cannot take it."""


class NotEnoughEventsError(DrstreamError):
    """A replay reached the end of the log before it had simulated all steps of one replicate."""

    steps: int = 0  # steps that were simulated
    acceptance: float = float("nan")
    events_for_one: int | None = None  # about how many events one replicate takes, by the bound of section 5.3
    events_for_ten: int | None = None


class DrstreamWarning(UserWarning):
    """The result may not mean what it seems to mean. The message says why, and what to do."""

    def __init__(self, message: str) -> None:
        message = shown(without_secrets(message))
        super().__init__(in_python(message))
        self.message = message


def warn_user(message: str) -> None:
    """Issue a warning that points at the line of the user's code that called drstream."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(DrstreamWarning(message), stacklevel=level)


def because(error: OSError) -> str:
    """Return why the system refused something and, if it is about too many files, what to do."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"{os.strerror(error.errno)}: {_most_files()}. Raise the limit, e.g. with ulimit -n 4096, or close files. "
            f"Fewer {parameter('threads')} open fewer files, too"
        )
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())


def _most_files() -> str:
    try:
        import resource

        return f"this process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}"
    except (ImportError, OSError):  # the first on Windows
        return "the system lets no process have more"


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that the user may have meant.

    >>> closest("propensty", ["action", "propensity"])
    ['propensity']
    """
    lower = {n.lower(): n for n in reversed(list(names))}
    return [lower[n] for n in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a hint: the names that the user may have meant or, if none is close, the names that exist.

    >>> suggest("propensty", ["action", "propensity"])
    "did you mean 'propensity'?"
    """
    names = list(names)
    if close := closest(name, names):
        return f"did you mean {' or '.join(repr(n) for n in close)}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"there are: {shown or 'none'}"
