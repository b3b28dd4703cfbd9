"""All commands, and how they end. It imports nothing heavy. A command imports the rest when it runs."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from drstream.cli.audit import audit
from drstream.cli.convert import convert
from drstream.cli.demo import demo
from drstream.cli.describe import describe
from drstream.cli.evaluate import evaluate
from drstream.cli.fit import fit
from drstream.cli.merge import merge
from drstream.cli.optimize import optimize
from drstream.cli.options import BAD_INPUT, INTERRUPTED
from drstream.cli.plan import plan
from drstream.cli.replay import replay
from drstream.cli.signals import Signals, raised
from drstream.cli.workers import opened
from drstream.errors import DrstreamError, because, for_command_line
from drstream.progress import notice

app = typer.Typer(
    name="drstream",
    help="How good would another policy have been? Offline evaluation of policies from click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command line. Bad input gives one line on standard error and exit code 2."""
    warnings.showwarning = _warn
    signals = Signals()
    try:
        try:
            with raised() as signals, opened:
                notice.start()
                app()
            sys.stdout.flush()
        finally:
            gc.freeze()  # saves 0.3 s: at exit, the interpreter would look through all of Numba's objects once more
    except DrstreamError as error:
        _fail(error.message)
    except KeyboardInterrupt as stop:
        _end(signals, stop)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as below; typer's answer would be 1
            sys.exit(0)
        if end.code == INTERRUPTED:  # typer's answer to Ctrl-C
            _end(signals, end)
        raise
    except BrokenPipeError:  # the reader, e.g. head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _fail(because(error))
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write the result: {error.strerror}")


def _end(signals: Signals, error: BaseException | None) -> None:
    """Say that a command was interrupted or terminated, how far it came, and how to go on."""
    notes: list[str] = []
    while error is not None:
        notes = [*getattr(error, "__notes__", ()), *notes]
        error = error.__context__
    print("\n".join([signals.word, *dict.fromkeys(notes)]), file=sys.stderr)  # noqa: T201
    sys.exit(signals.code)


def _warn(message: Any, *where: Any, **more: Any) -> None:
    print(f"warning: {for_command_line(getattr(message, 'message', str(message)))}", file=sys.stderr)  # noqa: T201


def _fail(message: str) -> None:
    print(f"error: {for_command_line(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        from drstream import __version__

        typer.echo(f"drstream {__version__}")
        raise typer.Exit


for command in (describe, audit, plan, evaluate, merge, fit, optimize, replay, convert, demo):
    app.command()(command)
