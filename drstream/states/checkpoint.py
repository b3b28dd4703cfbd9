"""Checkpoints: a run is a sequence of passes, and the file remembers passes. After a kill, it goes on to the same bits.

A pass adds what is found in each part of a log to a total, in order. A fit is a function of the totals of its passes,
and of nothing else. So a run that goes on makes all its steps again with the totals of the file, and reads the log only
for what is missing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from drstream.errors import DrstreamError, StateError, parameter
from drstream.findings import LOOK, SAME, doubt
from drstream.log import Log
from drstream.parameters import number
from drstream.states import arrays as files
from drstream.states import marks, tree
from drstream.states.arrays import Arrays
from drstream.states.identity import difference, doubts_of, named, shown
from drstream.states.marks import Mark, Marker

EVERY = 30.0  # seconds
EVALUATION = "evaluation"  # name of a pass that may go on with a longer log
COST = 1 / 50  # most of the time that checkpoints may take
LARGEST = 1 << 30  # bytes of the passes of fits that are kept; what comes after them is computed again
TERMINATED = 128 + signal.SIGTERM  # exit code, as shells have it
MADE_UP = (ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError, ArithmeticError, RecursionError)
Total = TypeVar("Total")
Found = TypeVar("Found")


@dataclass
class Kept:
    """A pass as the file has it: the total of its first parts, and what it is about beside what the run is about."""

    words: Any
    arrays: Arrays
    parts: int = 0
    complete: bool = False
    about: Any = None

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


@dataclass
class Now:
    """The pass under way. Some are known by a name, those of fits by their number."""

    key: str | int
    total: Any
    about: Any
    parts: int = 0
    complete: bool = False
    whole: bool = True  # False while a part is added


class Checkpoint:
    """A file that a run writes now and then, and deletes when it is over. `open_checkpoint` makes one."""

    def __init__(self, path: Any, every: Any, log: Log, kind: str, identity: Mapping[str, Any]) -> None:
        from drstream import __version__

        self.marker = Marker(digests=True)
        self.path, self.kind, self.every = os.fspath(path), kind, every
        self.identity = json.loads(json.dumps({"version": __version__, **identity}))
        self.marks = [self.marker.mark(part) for part in log.parts(log.reader().columns)]
        self.passes: list[Kept] = []
        self.named: dict[str, Kept] = {}
        self.lock = threading.RLock()  # shards of a replay share it
        self._made = 0  # passes of this run
        self.now: Now | None = None
        self._last = time.monotonic()  # when it was written
        if os.path.exists(self.path):
            self._read()

    # What an earlier run has left

    def _read(self) -> None:
        words, arrays = files.load(self.path, self.kind)
        try:
            identity, there = words["identity"], marks.from_words(words["files"])
            self._refuse_other_run(identity)
            self.passes = [_taken(one, arrays) for one in words["passes"]]
            self.named = {str(name): _taken(one, arrays) for name, one in words["named"].items()}
            self._refuse_other_log(there)
            if arrays:
                raise ValueError(f"array {next(iter(arrays))!r}")
            doubtful = sorted(set(map(str, doubts_of([identity, *(one.about for one in self.named.values())]))))
        except MADE_UP as error:
            raise self.damaged(error) from None
        if doubtful:
            text = (
                f"the run goes on from {self.path}, and nobody can vouch that {', '.join(doubtful)} is still the same: "
                "give it a name that changes when it does, drs.policies.named('v1', ...), or delete the checkpoint"
            )
            doubt(LOOK, SAME, None, text)

    def _refuse_other_run(self, there: Any, here: Any = None) -> None:
        found = difference(there, self.identity if here is None else here)
        if found is None:
            return
        where, first, second = found
        raise StateError(
            f"{self.path} is a checkpoint of another run: {named(where)} is {shown(first)} there, and {shown(second)} "
            "now. Run it as before, or delete the checkpoint"
        )

    def _refuse_other_log(self, there: Sequence[Mark]) -> None:
        """Raise an error unless parts are the same: all of them, or those before the end of the only pass."""
        done, most = self.named.get(EVALUATION), max(len(there), len(self.marks))
        if done is not None and not self.passes and not done.complete and done.parts <= len(there):
            most = done.parts
        for mark, found in itertools.zip_longest(there[:most], self.marks[:most]):
            if mark != found:
                raise StateError(
                    f"{self.path} is a checkpoint of another log: it has "
                    f"{'no part' if mark is None else f'{mark}{_about(mark)}'}, and now this part is "
                    f"{'not there' if found is None else f'{found}{_about(found)}'}. Give the same log, or delete the "
                    "checkpoint"
                )

    def find(self, name: str, about: Any) -> Kept | None:
        """Return a pass of an earlier run by its name. Raise an error if it was about something else."""
        kept = self.named.get(name)
        if kept is not None:
            try:
                self._refuse_other_run(kept.about, json.loads(json.dumps(about)))
            except MADE_UP as error:
                raise self.damaged(error) from None
        return kept

    def keep(self, name: str, kept: Kept, about: Any) -> None:
        """Take what is known of a pass that goes its own way."""
        self.named[name] = replace(kept, about=about)

    def restored(self, like: Total, kept: Kept) -> Total:
        """Return the total of a pass, of the form of `like`."""
        try:
            arrays = dict(kept.arrays)
            found = tree.restore(like, tree.unpack(kept.words, arrays))
            if arrays:
                raise ValueError(f"array {next(iter(arrays))!r}")
        except MADE_UP as error:
            raise self.damaged(error) from None
        return found

    def damaged(self, error: Exception) -> DrstreamError:
        """What to raise for a file whose contents are not those of such a run."""
        if isinstance(error, DrstreamError):
            return error
        return StateError(f"{self.path} is damaged: {error} does not fit. Delete it, and run again")

    # This run

    def sum_parts(
        self,
        run: Callable[[int], Iterator[Found]],
        total: Total,
        merge: Callable[[Total, Found], Any],
        name: str = "",
        about: Any = None,
    ) -> Total:
        """Let `merge` add what `run` yields to the total. What the file has of this pass is not computed again.

        run    Yields what is found in each part after the first so many.
        about  Of a pass with a name: what must be the same, as JSON.
        """
        kept = self.find(name, about) if name else self.passes[self._made] if self._made < len(self.passes) else None
        now = Now(name or self._made, total, about)
        self._made += not name
        if kept is not None:
            now.total, now.parts, now.complete = self.restored(total, kept), kept.parts, kept.complete
        if not now.complete:
            self.now = now
            for found in run(now.parts):
                now.whole = False
                merge(now.total, found)
                now.parts, now.whole = now.parts + 1, True
                self.note()
            now.complete = True
            self._take_up()
            self.now = None
            self.note()
        result: Total = now.total
        return result

    def note(self) -> None:
        """Write the file, if it is time."""
        if time.monotonic() - self._last >= self.every:
            self.write()

    def write(self) -> None:
        """Write all passes. What takes long to write is written less often."""
        started = time.monotonic()
        with self.lock:
            self._take_up()
            arrays = Arrays()
            words = {
                "identity": self.identity,
                "files": marks.to_words(self.marks),
                "passes": [_given(one, f"pass.{i}", arrays) for i, one in enumerate(self.passes)],
                "named": {name: _given(one, f"named.{i}", arrays) for i, (name, one) in enumerate(self.named.items())},
            }
            try:
                files.save(self.path, self.kind, words, arrays)
            except StateError as error:
                raise StateError(f"{error.message}{self._left}") from None
        now = time.monotonic()
        self._last = now + max(0.0, (now - started) / COST - self.every)

    def _take_up(self) -> None:
        """Take up the total of the pass under way."""
        now = self.now
        if now is None or not now.whole or (isinstance(now.key, int) and now.key > len(self.passes)):
            return
        arrays = Arrays()
        kept = Kept(tree.pack(now.total, arrays, "total"), arrays, now.parts, now.complete, now.about)
        if isinstance(now.key, str):
            self.named[now.key] = kept
        elif sum(one.nbytes for one in (*self.passes[: now.key], kept)) <= LARGEST:
            self.passes[now.key :] = [kept]

    def stopped(self) -> None:
        """The run ends before its end."""
        if (self.now is None or self.now.whole) and (self.passes or self.named or (self.now and self.now.parts)):
            with suppress(DrstreamError, OSError):
                self.write()

    def remove(self) -> None:
        """The run is over."""
        with suppress(OSError):
            Path(self.path).unlink(missing_ok=True)

    @property
    def advice(self) -> str:
        """How to go on after a run was stopped."""
        return f"what is complete is in {self.path}: the same run, started again, goes on from there"

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path)

    @property
    def _left(self) -> str:
        return f". An earlier checkpoint is whole: {self.advice}" if self.exists else ""


def sum_parts(
    kept: Checkpoint | None,
    run: Callable[[int], Iterator[Found]],
    total: Total,
    merge: Callable[[Total, Found], Any],
    name: str = "",
    about: Any = None,
) -> Total:
    """The same as `Checkpoint.sum_parts`, perhaps without a checkpoint."""
    if kept is not None:
        return kept.sum_parts(run, total, merge, name, about)
    for found in run(0):
        merge(total, found)
    return total


@contextmanager
def open_checkpoint(
    path: Any, every: Any, log: Log, kind: str, identity: Callable[[], Mapping[str, Any]]
) -> Iterator[Checkpoint | None]:
    """Yield the checkpoint of a run, or None if there is no path. The caller removes the file at the end.

    Whatever ends the run before, what is complete is written. SIGTERM ends it as Ctrl-C does, with code 143, and a
    message says how to go on. A handler of the user's own stays. So does the default without a checkpoint.

    identity  Returns what the run is about. Runs that go on must agree in it.
    """
    if path is None:
        yield None
        return
    every = number("checkpoint_every", every, 0, error=DrstreamError)
    source = log.source
    if getattr(source, "one_shot", False) or not getattr(source, "repeatable", True):
        raise StateError(
            f"{parameter('checkpoint')}: a {source.name} can be read only once, so a pass cannot go on after it was "
            "stopped. Pass a Parquet path or a pyarrow Table"
        )
    check_path(path, "checkpoint", log)
    kept = Checkpoint(path, every, log, kind, identity())
    terminated = False

    def stop(*_: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGTERM)
    mine = threading.current_thread() is threading.main_thread() and usual is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield kept
    except BaseException as error:
        kept.stopped()
        if isinstance(error, KeyboardInterrupt) and kept.exists:
            error.add_note(kept.advice)
        if not terminated:
            raise
    finally:
        if mine:
            signal.signal(signal.SIGTERM, usual)
    if terminated:
        if kept.exists:
            sys.stderr.write(f"terminated: {kept.advice}\n")
        raise SystemExit(TERMINATED)


def check_path(path: Any, name: str, log: Log) -> None:
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


def _given(kept: Kept, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """What the words of a file have of a pass. Its arrays go to the others."""
    arrays |= {f"{prefix}.{name}": array for name, array in kept.arrays.items()}
    return {
        "prefix": prefix,
        "arrays": list(kept.arrays),
        "total": kept.words,
        "parts": kept.parts,
        "complete": kept.complete,
        "about": kept.about,
    }


def _taken(words: Any, arrays: Arrays) -> Kept:
    parts, complete = words["parts"], words["complete"]
    if type(parts) is not int or parts < 0 or type(complete) is not bool:
        raise ValueError(f"pass {words['prefix']!r}")
    found = {name: arrays.pop(f"{words['prefix']}.{name}") for name in words["arrays"]}
    return Kept(words["total"], found, parts, complete, words["about"])


def _about(mark: Mark) -> str:
    words = [f"{mark.rows:,} rows"]
    if mark.size is not None:
        words.append(f"{mark.size:,} bytes")
    if mark.modified is not None:
        words.append(f"written {datetime.fromtimestamp(mark.modified / 1e9, UTC).isoformat(timespec='microseconds')}")
    return f" ({', '.join(words)}, sha256 {mark.digest[:12]})"
