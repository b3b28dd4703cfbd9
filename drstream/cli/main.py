"""The entry point of the command line. It imports typer and nothing heavy: a command imports the rest when it runs."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import warnings
from typing import Annotated, Any

import typer

from drstream.cli.demo import demo
from drstream.cli.describe import describe
from drstream.cli.evaluate import evaluate
from drstream.cli.fit import fit
from drstream.cli.optimize import optimize
from drstream.cli.options import BAD_INPUT, INTERRUPTED
from drstream.cli.replay import replay

app = typer.Typer(
    name="drstream",
    help="How good would another policy have been? Offline evaluation of policies from click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The entry point: bad input is one line on standard error and exit code 2."""
    from drstream.errors import DrstreamError

    warnings.showwarning = _warn
    try:
        try:
            app()
            sys.stdout.flush()
        finally:
            gc.freeze()  # the interpreter would look through all of Numba's objects once more before it exits: 0.3 s
    except DrstreamError as error:
        _fail(str(error))
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's answer to Ctrl-C
            print("interrupted", file=sys.stderr)  # noqa: T201
        raise
    except BrokenPipeError:  # the reader, e.g. head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write the result: {error.strerror}")


def _warn(message: Any, *where: Any, **more: Any) -> None:
    print(f"warning: {_as_options(str(message))}", file=sys.stderr)  # noqa: T201


def _fail(message: str) -> None:
    print(f"error: {_as_options(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


def _as_options(message: str) -> str:
    """Messages speak of parameters; here these are options."""
    message = message.replace('on_bad_row="skip"', "--on-bad-row skip")
    message = re.sub(r'\b(tracker|method)="([\w-]+)"', r"--\1 \2", message).replace("c_max=", "--c-max ")
    from drstream.evaluation.estimators import NO_PROPENSITIES

    here = (
        "and the log has none: name their column with --propensity, or give --propensity-model: logistic with "
        "--crossfit 5, say, or uniform"
    )
    message = message.replace(NO_PROPENSITIES, here)
    message = message.replace("propensity=None", "--propensity none")
    names = (
        "action|actions|reward|propensity|context|model|cap|floor|confidence|crossfit|cluster|clamp|sparse"
        "|horizon|q|seed|replicates|shards|tracker|method|threads"
    )
    message = message.replace("train, test = log.split(0.5)", "drstream fit --share 0.5")
    message = message.replace("train, test = log.split(0.7)", "drstream optimize --share 0.7")
    message = message.replace("drs.models.Ridge()", "ridge")
    message = re.sub(rf"(?<![\w-])({names})=(?=[ .,;:)])", r"--\1", message)
    return re.sub(rf"(?<![\w-])({names})=", r"--\1 ", message)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        from drstream import __version__

        typer.echo(f"drstream {__version__}")
        raise typer.Exit


for command in (describe, evaluate, fit, optimize, replay, demo):
    app.command()(command)
