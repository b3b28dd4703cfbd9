"""--config: options of commands in a file, drstream.toml or [tool.drstream] of pyproject.toml, for jobs of every day.

Keys are the names of long options. Those at the top are for every command that has them, those in a table such as
[evaluate] for one command. Options on the command line win.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from drstream.cli.declared import Option, options_of
from drstream.errors import DrstreamError, suggest

IN_PYPROJECT = ("tool", "drstream")
NEVER = frozenset({"help", "config"})
MODEL_FILES = (".npz", ".skops")
WORDS = {"policy", "model", "propensity_model", "second_model"}  # options with files inside of words: new=softmax:w.npz
TYPES = {bool: "true or false", int: "a whole number", float: "a number", Path: "a name of a file", str: "a text"}


class Settings:
    """What a file gave, for messages. One command runs in a process."""

    places: Mapping[str, str] = {}  # by long option: the file and the line

    def about(self, message: str) -> str:
        """Return a message that says of options from the file where they stand in it."""
        typed = {word.partition("=")[0] for word in sys.argv}
        named = [o for o in self.places if o not in typed and re.search(rf"{o}(?![\w-])", message)]
        said = "; ".join(f"{option} is from {self.places[option]}" for option in named)
        return f"{message} ({said})" if said else message


settings = Settings()


def take_options(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file as those of the command, where the command line has none."""
    if path is None or ctx.resilient_parsing:  # the latter: a shell completes words
        return path
    file = File(path, {name: _known(command) for name, command in ctx.parent.command.commands.items()})  # type: ignore[union-attr]
    ctx.default_map = file.options(str(ctx.command.name))
    settings.places = file.places
    sys.path.append(str(file.folder))  # for python:MODULE:OBJECT
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        callback=take_options,
        is_eager=True,
        help="File with options, by their long names: drstream.toml, or pyproject.toml with a table [tool.drstream]. A "
        "table such as [evaluate] is for one command. Options on the command line win.",
    ),
]
Known = dict[str, tuple[str, Option]]  # by the name of the long option: the parameter, and what it takes


def _known(command: Any) -> Known:
    kinds = options_of(command.callback)
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in NEVER]
    return {_key(max(p.opts, key=len)[2:]): (p.name, kinds[p.name]) for p in options if p.name in kinds}


def _key(name: str) -> str:
    return name.replace("-", "_")


class File:
    """A file of options, checked for all commands: a mistake is found on the first day, not when a command is used."""

    def __init__(self, path: Path, commands: Mapping[str, Known]) -> None:
        self.path, self.commands = path, commands
        self.folder = path.resolve().parent
        self.places: dict[str, str] = {}
        self._lines = _read(path).splitlines()
        self._top = self._table()
        everywhere = {key for known in commands.values() for key in known}
        for key, value in self._top.items():
            if isinstance(value, dict):
                self._check(key, value)
            elif _key(key) not in everywhere:
                near = suggest(_key(key), sorted({*everywhere, *commands})).replace("_", "-")
                raise self._error(key, f"there is no option {key!r}: {near}")

    def options(self, command: str) -> dict[str, Any]:
        """Return the options that the file has for a command, by the names of its parameters."""
        known, found = self.commands[command], {}
        for table, given in (("", self._top), (command, self._top.get(command, {}))):
            for key, value in given.items():
                if _key(key) in known and not isinstance(value, dict):  # [fit] is a command, and fit an option
                    name, option = known[_key(key)]
                    found[name] = self._value(key, value, option, table)
                    option_name = f"--{_key(key).replace('_', '-')}"
                    self.places[option_name] = f"{self.path}, line {self._line(key, table)}"
        return found

    def _check(self, table: str, given: dict[str, Any]) -> None:
        if table not in self.commands:
            raise self._error(table, f"[{table}] is not a command: {suggest(table, self.commands)}")
        known = self.commands[table]
        for key, value in given.items():
            if _key(key) not in known:
                near = suggest(_key(key), known).replace("_", "-")
                raise self._error(key, f"drstream {table} has no option {key!r}: {near}", table)
            self._value(key, value, known[_key(key)][1], table)

    def _table(self) -> dict[str, Any]:
        try:
            found = tomllib.loads("\n".join(self._lines))
        except tomllib.TOMLDecodeError as error:
            raise DrstreamError(f"--config {self.path} is not TOML: {error}") from None
        if self.path.name != "pyproject.toml":
            return found
        for name in IN_PYPROJECT:
            found = found.get(name, {})
        if not found:
            raise DrstreamError(f"--config {self.path} has no table [{'.'.join(IN_PYPROJECT)}]")
        return found

    def _value(self, key: str, value: Any, option: Option, table: str) -> Any:
        """Return a value as the command line would have it."""
        if option.several or (option.kind is str and isinstance(value, list)):
            values = value if isinstance(value, list) else [value]
            texts = [self._one(key, one, option, table) for one in values]
            return texts if option.several else ",".join(texts)
        return self._one(key, value, option, table)

    def _one(self, key: str, value: Any, option: Option, table: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        right = {bool: isinstance(value, bool), int: number and isinstance(value, int), float: number}
        if not right.get(option.kind, isinstance(value, str) or (number and option.kind is str)):
            raise self._error(key, f"{key} = {_shown(value)}: it must be {TYPES[option.kind]}", table)
        if option.kind is Path:
            return self._beside(value)
        return self._with_files(_key(key), str(value)) if option.kind is str else value

    def _with_files(self, key: str, text: str) -> str:
        """Return words in which files are found from the folder of this file.

        For example, in `new=softmax:weights.npz` it is weights.npz.
        """
        if key in WORDS:
            parts = re.split(r"([=:,])", text)
            return "".join(self._beside(part) if part.endswith(MODEL_FILES) else part for part in parts)
        if key == "items" or (key == "embedding" and "," in text.rpartition(":")[2] and ":" in text):
            return self._beside(text)
        return text

    def _beside(self, name: str) -> str:
        if "://" in name or os.path.isabs(name) or self.folder == Path.cwd():
            return name
        return os.path.relpath(self.folder / name)

    def _line(self, key: str, table: str = "") -> int:
        """Return the line, from 1, in which a key or the head of a table stands."""
        here = prefix = ".".join(IN_PYPROJECT) if self.path.name == "pyproject.toml" else ""
        wanted, current = ".".join(filter(None, (prefix, table))), ""
        for number, line in enumerate(self._lines, 1):
            if head := re.match(r"\s*\[\s*([^\]\[]+?)\s*\]", line):
                current = head[1].replace('"', "")
                if current == ".".join(filter(None, (here, key))):
                    return number
            elif current == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return 1

    def _error(self, key: str, message: str, table: str = "") -> DrstreamError:
        return DrstreamError(f"--config {self.path}, line {self._line(key, table)}: {message}")


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise DrstreamError(f"--config {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DrstreamError(f"--config {path}: cannot read it: {error}") from None
