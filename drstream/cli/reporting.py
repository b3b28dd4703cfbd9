"""--report: the report of a result, for people, with the command that made it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drstream.cli.voice import say
from drstream.errors import DrstreamError

if TYPE_CHECKING:
    from drstream.log import Log
    from drstream.views import Reported

ReportPath = Annotated[
    Path | None,
    typer.Option("--report", help="Write a report for people to this HTML file: one file that can be sent."),
]


def check_report(path: Path | None, log: Log | None = None, *others: Path | None) -> None:
    """Raise an error if a report cannot be written, before the work begins."""
    if path is None:
        return
    keys = () if log is None else log.source.keys
    if str(path.resolve()) in {os.path.realpath(key) for key in keys if isinstance(key, str)}:
        raise DrstreamError(f"--report {path} is a file of the log itself: choose another name")
    if path in others:
        raise DrstreamError(f"--report {path} is the file of another option, too: give two files")
    if path.suffix.lower() not in (".html", ".htm"):
        raise DrstreamError(f"--report {path}: the name must end in .html")
    if not path.parent.is_dir():
        raise DrstreamError(f"--report {path}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise DrstreamError(f"--report {path} cannot be written: choose another name or folder")


def write_report(result: Reported, path: Path | None) -> None:
    """Write the report of a result, if it was asked for."""
    if path is not None:
        result.report(path, command=shlex.join(["drstream", *sys.argv[1:]]))
        say(f"report: {path}")
