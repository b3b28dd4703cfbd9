"""How much a command says beside its result: --quiet, --verbose and --progress."""

from __future__ import annotations

import typer

from drstream.kernels import _notice
from drstream.running import progress


class Voice:
    """What the options --quiet and --verbose ask for. One command runs in a process."""

    quiet = False
    verbose = False
    interrupt: KeyboardInterrupt | None = None  # that ended the command, with notes on how far it came


voice = Voice()


def set_voice(quiet: bool, verbose: bool, bars: bool | None) -> None:
    """Set how much is said: bars  --progress or --no-progress; None if neither is given."""
    voice.quiet, voice.verbose = quiet, verbose
    progress.shown = not quiet if bars is None else bars
    _notice.silent = quiet


def say(text: str) -> None:
    """Print what a user likes to know beside the result, such as the speed, on standard error."""
    if not voice.quiet:
        typer.echo(text, err=True)


def say_speed(events: int, seconds: float) -> None:
    """Say how many events were read in how much time, compiling apart, on standard error."""
    rate = events / max(seconds, 1e-9)
    say(f"{events:,} events in {seconds:.2f} s: {f'{rate / 1e6:.2f} M' if rate >= 1e5 else f'{rate:,.0f}'} events/s")


def tell(text: str, *, err: bool = False) -> None:
    """Print a sentence that goes with the result: on standard output, unless that holds a table for another program."""
    if not voice.quiet:
        typer.echo(text, err=err)


def detail(text: str) -> None:
    """Print what --verbose asks for, on standard error."""
    if voice.verbose and text:
        typer.echo(text, err=True)
