"""Options that every command has: --config, --progress, --quiet and --verbose."""

from __future__ import annotations

import inspect
import platform
import time
from collections.abc import Callable
from functools import wraps
from importlib import metadata
from typing import Annotated, Any, get_type_hints

import typer

from drstream.cli.config import Config, settings
from drstream.cli.voice import detail, set_voice, voice

Progress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress: a bar on a terminal, else a line every 10 seconds. On by default.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the result, warnings and errors only: no progress, no times, no notes."),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Also print versions, the roles of the columns, times, and where errors arise."
    ),
]


def _versions() -> str:
    from drstream import __version__

    found = [f"{name} {metadata.version(name)}" for name in ("numba", "numpy", "pyarrow")]
    return ", ".join([f"drstream {__version__}", f"Python {platform.python_version()}", *found])


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that also takes the options that all commands have."""
    more = {
        "config": (Config, None),
        "progress": (Progress, None),
        "quiet": (Quiet, False),
        "verbose": (Verbose, False),
    }

    @wraps(command)
    def run(**given: Any) -> None:
        asked = {name: given.pop(name) for name in more}
        set_voice(asked["quiet"], asked["verbose"], asked["progress"])
        started = time.perf_counter()
        detail(_versions())
        detail("".join(f"{option} from {place}\n" for option, place in settings.places.items()).rstrip())
        try:
            command(**given)
        except KeyboardInterrupt as stop:
            voice.interrupt = stop  # typer makes an exit code of it
            raise
        detail(f"all of it: {time.perf_counter() - started:.2f} s")

    hints = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(n, keyword, default=d, annotation=a) for n, (a, d) in more.items()]
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return run
