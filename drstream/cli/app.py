"""All commands, and how they end. It imports nothing heavy. A command imports the rest when it runs."""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from drstream.cli.audit import audit
from drstream.cli.config import settings
from drstream.cli.convert import convert
from drstream.cli.declared import options_of
from drstream.cli.demo import demo
from drstream.cli.describe import describe
from drstream.cli.evaluate import evaluate
from drstream.cli.everywhere import with_common_options
from drstream.cli.fit import fit
from drstream.cli.help import Command, Group
from drstream.cli.merge import merge
from drstream.cli.optimize import optimize
from drstream.cli.options import BAD_INPUT, INTERRUPTED
from drstream.cli.plan import plan
from drstream.cli.replay import replay
from drstream.cli.signals import Signals, raised
from drstream.cli.voice import voice
from drstream.cli.warmup import warmup
from drstream.cli.workers import opened
from drstream.errors import DrstreamError, because, closest, for_command_line

COMMANDS = (describe, audit, plan, evaluate, merge, fit, optimize, replay, convert, warmup, demo)
NAMES_OF_HELP = {"help_option_names": ["-h", "--help"]}
UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
app = typer.Typer(
    name="drstream",
    cls=Group,
    help="How good would another policy have been? Offline evaluation of policies from click logs.",
    pretty_exceptions_enable=False,
    context_settings=NAMES_OF_HELP,
)


def run() -> None:
    """Run the command line. Bad input gives one line on standard error and exit code 2."""
    warnings.showwarning = _warn
    signals = Signals()
    try:
        try:
            with raised() as signals, opened:
                code = app(prog_name="drstream", standalone_mode=False)
            sys.stdout.flush()
        finally:
            gc.freeze()  # saves 0.3 s: at exit, the interpreter would look through all of Numba's objects once more
    except DrstreamError as error:
        if voice.verbose:
            traceback.print_exception(error)
        _fail(error.message)
    except UsageError as error:
        _fail(_misused(error))
    except KeyboardInterrupt as stop:
        _end(signals, voice.interrupt or stop)
    except BrokenPipeError:  # the reader, e.g. head, has gone
        code = 0
        _write_nowhere()
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        code = 0  # as above; typer's answer would be 1
        _write_nowhere()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _fail(because(error))
        if error.errno != errno.ENOSPC:
            raise
        _write_nowhere()
        _fail(f"cannot write the result: {error.strerror}")
    if code == INTERRUPTED:
        _end(signals, voice.interrupt)
    if code:
        sys.exit(code)


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _misused(error: Any) -> str:
    """Return what is wrong with the words of a command, with names that may be meant."""
    said, ctx = error.format_message().rstrip("."), error.ctx
    name = getattr(error, "option_name", None)
    if ctx is None:
        return said
    if name is not None and said.startswith("No such option"):
        options = [option for parameter in ctx.command.get_params(ctx) for option in parameter.opts]
        said = f"No such option: {name}"
        if elsewhere := [c.__name__ for c in COMMANDS if name[2:].replace("-", "_") in options_of(c)]:
            said += f". It is an option of drstream {', drstream '.join(elsewhere)}"
        elif near := closest(name, options):
            said += f", did you mean {' or '.join(near)}?"
    return f"{said}{'' if said.endswith('?') else '.'} '{ctx.command_path} -h' shows what there is"


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
    print(f"error: {settings.about(for_command_line(message))}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


@app.callback(invoke_without_command=True)
def version(
    ctx: typer.Context,
    show: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
) -> None:
    if show:
        from drstream import __version__

        typer.echo(f"drstream {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(BAD_INPUT)


for command in COMMANDS:
    app.command(cls=Command, context_settings=NAMES_OF_HELP)(with_common_options(command))
