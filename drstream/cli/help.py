"""The help of commands: options in groups, each with its text below it, then examples and exit codes.

It is written here, since a table in a terminal of 80 columns leaves a column of 18 for what an option does.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from drstream.cli.declared import Option, options_of
from drstream.cli.examples import EXAMPLES
from drstream.cli.options import BAD_INPUT, INTERRUPTED, STOPPED, TERMINATED

WIDEST, NARROWEST, INDENT = 100, 30, 6
KINDS = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "FILE"}
OWN = "Options"
GROUPS = {  # by the first name that fits; all others are the command's own
    "Models": "model propensity_model inflation propensity_floor crossfit cluster fold_seed clamp fit fit_seed "
    "second_model",
    "The log": "context sparse candidates items action_is categorical hashed missing action reward propensity "
    "propensities sample_rate logger logger_propensities positions actions eligible filter exclude on_bad_row",
    "Work and output": "threads workers dask checkpoint state json output curve report config progress quiet verbose "
    "help",
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
EXIT_CODES = {
    0: "a result",
    1: "your own code, e.g. a policy, raised an error",
    BAD_INPUT: "bad input",
    STOPPED: "a finding says not to use a number (audit; evaluate and merge with --strict)",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "terminated by SIGTERM",
}


class Command(TyperCommand):
    """A command whose help is written here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        known, width = options_of(self.callback) if self.callback else {}, _width()
        arguments: list[Any] = [p for p in self.params if p.param_type_name == "argument"]
        options: list[Any] = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        needed = [f"{max(p.opts, key=len)} {_metavar(p, known)}" for p in options if p.required]
        words = [ctx.command_path, *(_name(p) for p in arguments), *needed, "[OPTIONS]"]
        lines = [*_wrapped(f"Usage: {' '.join(words)}", width, 0), "", *_wrapped(self.help or "", width, 0)]
        for argument in arguments:
            lines += ["", _bold(_name(argument)), *_wrapped(argument.help or "", width)]
        for group in (OWN, *GROUPS):
            those = [p for p in options if GROUP_OF.get(p.name, OWN) == group]
            lines += (
                ["", _bold(f"{group}:"), *(line for p in those for line in _option(p, known, width))] if those else []
            )
        lines += ["", _bold("Examples:")]
        for what, example in EXAMPLES.get(self.name or "", ()):
            lines += [*_wrapped(f"# {what}", width, 2, "  # "), f"  {example}"]
        formatter.write("\n".join([*lines, "", *_exit_codes(width)]) + "\n")


class Group(TyperGroup):
    """The whole program: its help lists the commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = _width()
        usage = f"Usage: {ctx.command_path} COMMAND [OPTIONS] [ARGUMENTS]"
        lines = [*_wrapped(usage, width, 0), "", *_wrapped(self.help or "", width, 0), "", _bold("Commands:")]
        for name, command in self.commands.items():
            lines += [f"  {_bold(name)}", *_wrapped(command.help or "", width)]
        lines += ["", _bold("Options:"), *(line for p in self.get_params(ctx) for line in _option(p, {}, width))]
        lines += ["", _bold("Examples:"), *(f"  {example}" for _, example in EXAMPLES[""]), "", *_exit_codes(width)]
        more = f"'{ctx.command_path} COMMAND -h' shows the options of a command, and examples."
        formatter.write("\n".join([*lines, "", *_wrapped(more, width, 0)]) + "\n")


def _option(parameter: Any, known: dict[str, Option], width: int) -> Iterator[str]:
    names = ", ".join(sorted(parameter.opts, key=len)) + "".join(f" / {other}" for other in parameter.secondary_opts)
    yield f"  {_bold(names)} {_metavar(parameter, known)}".rstrip()
    default = parameter.default
    said = parameter.help or ""
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    if plain and "default" not in said.lower():
        said += f" Default: {default}."
    yield from _wrapped(f"{said} Required." if parameter.required else said, width)


def _metavar(parameter: Any, known: dict[str, Option]) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    option = known.get(parameter.name)
    return KINDS.get(option.kind, "") if option else ""


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _exit_codes(width: int) -> list[str]:
    lines = [_bold("Exit codes:")]
    for code, meaning in EXIT_CODES.items():
        lines += _wrapped(f"{code:<4} {meaning}", width, 2, " " * 7)
    return lines


def _wrapped(text: str, width: int, indent: int = INDENT, rest: str | None = None) -> list[str]:
    """Return lines of at most this width. A word that is longer, such as a path, stays whole."""
    text, start = " ".join(text.split()) if rest is None else text, " " * indent
    return textwrap.wrap(
        text,
        max(width, NARROWEST),
        initial_indent=start,
        subsequent_indent=start if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns)


def _bold(text: str) -> str:
    return text if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else typer.style(text, bold=True)
