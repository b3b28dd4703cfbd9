"""What all checkpoints have in common: the file, when it is written, what is refused, and what happens at a signal."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drstream.digests import Digest
from drstream.errors import DrstreamError, parameter, warn_user
from drstream.log import Log
from drstream.log.marks import Mark
from drstream.parameters import number
from drstream.provenance import about_log, describe
from drstream.states import StateError, difference, write

EVERY = 30.0  # seconds
COST = 1 / 50  # most of the time that checkpoints may take
OF_A_FILE = ("file", "size", "modified", "digest")
OF_A_PART = ("row_group", "first_row", "rows")
TERMINATED = 128 + signal.SIGTERM  # exit code, as shells have it


@dataclass
class CheckpointFile:
    """A file that a run writes now and then, and deletes when it is over."""

    path: str
    every: float
    last: float = 0.0  # when it was written

    @classmethod
    def of(cls, path: Any, every: Any, log: Log) -> CheckpointFile:
        """Raise an error before a long run if it could not be written, or a run could not go on from it."""
        seconds = number("checkpoint_every", every, 0, error=DrstreamError)
        source = log.source
        if getattr(source, "one_shot", False) or not getattr(source, "repeatable", True):
            raise StateError(
                f"{parameter('checkpoint')}: a {source.name} can be read only once, so a pass cannot go on after it "
                "was stopped. Pass a Parquet path or a pyarrow Table"
            )
        check_folder(path, "checkpoint", log)
        return cls(os.fspath(path), seconds, time.monotonic())

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path)

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last >= self.every

    @contextmanager
    def timed(self) -> Iterator[None]:
        """The file is written here. What takes long to write is written less often."""
        started = time.monotonic()
        yield
        took = time.monotonic() - started
        self.last = time.monotonic() + max(0.0, took / COST - self.every)

    def write(self, data: bytes) -> None:
        write(self.path, data)

    def remove(self) -> None:
        """The run is over."""
        with suppress(OSError):
            Path(self.path).unlink(missing_ok=True)

    @property
    def advice(self) -> str:
        """How to go on after a run was stopped."""
        return f"what is complete is in {self.path}: the same run, started again, goes on from there"


def check_folder(path: Any, name: str, log: Log) -> None:
    """Raise an error before a long pass if its file could not be written, or is one of the log."""
    if not isinstance(path, str | os.PathLike):
        raise StateError(f"{parameter(name, path)}: it must be the path of a file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise StateError(f"{parameter(name, os.fspath(path))}: there is no folder {folder!r}")
    if os.path.realpath(path) in {os.path.realpath(key) for key in log.source.keys if isinstance(key, str)}:
        raise StateError(f"{parameter(name, os.fspath(path))} is a file of the log itself: choose another name")
    if os.path.isdir(path):
        raise StateError(f"{parameter(name, os.fspath(path))} is a folder: give the path of a file")


# What a checkpoint is about


def about_columns(log: Log, encoding: Any) -> dict[str, Any]:
    """What runs must agree in about their log, beside its rows."""
    about = about_log(log)
    return {
        **{name: about[name] for name in ("columns", "filter", "splits", "before_row", "missing", "on_bad_row")},
        "roles": Digest.of(log.roles)["sha256"],
        "categories": None if encoding is None else Digest.of(encoding.to_dict())["sha256"],
        "loggers": describe([str(one) for one in log.loggers]) if log.roles.logger_propensities else None,
    }


def about_labels(log: Log) -> dict[str, Any]:
    """The number of actions, and a digest of their labels, if all events share them."""
    if log.has_candidates:
        return {}
    return {"number_of_actions": log.n_actions, "labels": Digest.of(list(log.labels))["sha256"]}


def refuse_difference(path: str, one: Any, other: Any) -> None:
    """Raise an error that names the first difference between what a checkpoint is about and this run."""
    found = difference(one, other)
    if found is None:
        return
    where, first, second = found
    if where[-1] in ("sha256", "is"):
        first, second = within(one, where[:-1]), within(other, where[:-1])
        text = "is" if first["is"] != second["is"] else "sha256"
        first, second = first[text], second[text]
    error = StateError(
        f"{path} is a checkpoint of another run: {named(where)} is {shown(first)} there, and {shown(second)} now. "
        "Run it as before, or delete the checkpoint"
    )
    if where[-1] == "labels" and isinstance(first, list) and isinstance(second, list):
        first, second = len(first), len(second)
    if where[-1] in ("labels", "number_of_actions") and isinstance(first, int) and first > second:
        error.n_actions = first  # the earlier run may have started again with so many, which a policy knows
    raise error


def named(where: tuple[str, ...]) -> str:
    """The words for a place in an identity."""
    if where[0] == "policies":
        return f"policy {where[1]!r}" if len(where) > 1 else "the set of policies"
    if where[0] == "models":
        return f"the {where[2]} of {where[1]!r}" if len(where) > 2 else "the set of models"
    if where[0] == "parameters" and len(where) > 1:
        return parameter(where[1])
    if where[0] == "log" and len(where) > 1:
        return f"the log's {where[1].replace('_', ' ')}" + "".join(f" ({word})" for word in where[2:])
    if where[0] == "rewards" and len(where) > 2:
        return "the set of actions" if where[2] == "labels" else " ".join(where[2:]).replace("_", " ")
    return " ".join(word for word in where if word not in ("sha256", "is"))


def within(tree: Any, where: tuple[str, ...]) -> Any:
    for word in where:
        tree = tree[word]
    return tree


def shown(value: Any) -> str:
    if isinstance(value, dict) and "is" in value:
        value = value["is"]
    text = "none" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def warn_of(path: str, doubtful: Sequence[str]) -> None:
    """Warn of code that may have changed since a checkpoint was written."""
    if doubtful:
        warn_user(
            f"the run goes on from {path}, and nobody can vouch that {', '.join(sorted(set(doubtful)))} is still the "
            "same: give it a name that changes when it does, drs.policies.named('v1', ...), or delete the checkpoint"
        )


def doubts_of(tree: Any) -> list[str]:
    """What nobody can vouch for, anywhere in an identity."""
    if not isinstance(tree, Mapping):
        return []
    found = [text for value in tree.values() for text in doubts_of(value)]
    return found + list(tree.get("doubtful", ()))


# The rows that it is about


def other_part(path: str, mark: Mark | None, found: Mark | None) -> StateError:
    """What to raise if a part of the log is not the one of the checkpoint."""
    return StateError(
        f"{path} is a checkpoint of another log: it has "
        f"{'no part' if mark is None else f'{mark}{_about(mark)}'}, and now this part is "
        f"{'not there' if found is None else f'{found}{_about(found)}'}. Give the same log, or delete the checkpoint"
    )


def refuse_parts(path: str, there: Sequence[Mark], here: Sequence[Mark]) -> None:
    """Raise an error unless the parts of the log are the same."""
    for mark, found in itertools.zip_longest(there, here):
        if mark != found:
            raise other_part(path, mark, found)


def _about(mark: Mark) -> str:
    words = [f"{mark.rows:,} rows"]
    if mark.size is not None:
        words.append(f"{mark.size:,} bytes")
    if mark.modified is not None:
        words.append(f"written {datetime.fromtimestamp(mark.modified / 1e9, UTC).isoformat(timespec='microseconds')}")
    return f" ({', '.join(words)}, sha256 {mark.digest[:12]})"


def files_of(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """The marks by file, each with its parts, as JSON."""
    found: list[dict[str, Any]] = []
    for mark in marks:
        about = mark.to_dict()
        part = [about[name] for name in OF_A_PART]
        of_file = {name: about[name] for name in OF_A_FILE}
        if found and {name: found[-1][name] for name in OF_A_FILE} == of_file:
            found[-1]["parts"].append(part)
        else:
            found.append({**of_file, "parts": [part]})
    return found


def marks_of(files: Any) -> list[Mark]:
    return [
        Mark(**{name: one[name] for name in OF_A_FILE}, **dict(zip(OF_A_PART, part, strict=True)))
        for one in files
        for part in one["parts"]
    ]


# Signals


@contextmanager
def kept_at_signals(file: CheckpointFile | None) -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: what is complete is kept, and a message says how to go on.

    The process then ends with code 143. A handler of the user's own stays. So does the default without a checkpoint.
    """
    usual = signal.getsignal(signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    terminated = False

    def stop(*_: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    mine = file is not None and main and usual is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        if file is not None and file.exists:
            error.add_note(file.advice)
        if not terminated:
            raise
    finally:
        if mine:
            signal.signal(signal.SIGTERM, usual)
    if terminated:
        if file is not None and file.exists:
            sys.stderr.write(f"terminated: {file.advice}\n")
        raise SystemExit(TERMINATED)
