"""What options a command has, as its function declares them."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer


class Option(NamedTuple):
    """A parameter of a command, as its function declares it."""

    kind: type  # str, int, float, bool or Path
    several: bool  # whether it may be repeated
    is_argument: bool = False


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the parameters of a command by name.

    >>> def command(log: Annotated[list[str], typer.Argument()], fit: float | None = 0.5): ...
    >>> options_of(command)["fit"]
    Option(kind=<class 'float'>, several=False, is_argument=False)
    """
    found = {}
    for name, hint in get_type_hints(function, include_extras=True).items():
        if name == "return":
            continue
        about = hint.__metadata__ if get_origin(hint) is Annotated else ()
        plain = get_args(hint)[0] if about else hint
        if get_origin(plain) in (Union, UnionType):
            plain = next(one for one in get_args(plain) if one is not type(None))
        several = get_origin(plain) is list
        kind = get_args(plain)[0] if several else plain
        found[name] = Option(kind, several, any(isinstance(one, typer.models.ArgumentInfo) for one in about))
    return found
