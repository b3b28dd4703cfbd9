"""Checkpoints of a replay: the lanes of each shard between two chunks, and how far they have come in the log."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from drstream import states
from drstream.checkpoints import (
    CheckpointFile,
    about_columns,
    about_labels,
    doubts_of,
    files_of,
    marks_of,
    refuse_difference,
    refuse_parts,
    warn_of,
)
from drstream.digests import Digest
from drstream.errors import DrstreamError, PolicyError, parameter
from drstream.flat import Packed, pack, restore
from drstream.log import Log
from drstream.log.marks import Marker
from drstream.log.source import Part
from drstream.models.binding import ModelInputs
from drstream.policies.online import AnyCompiled, Fixed
from drstream.provenance import describe
from drstream.replaying.lanes import Lane
from drstream.replaying.options import ReplayOptions
from drstream.replaying.plan import Plan
from drstream.states import Arrays, StateError

KIND = "checkpoint of a replay"
OFTEN = 1.0  # seconds between two moments that Ctrl-C can go back to
TAKING = 1 / 100  # most of the time that it may take to keep such moments in memory; writing them comes on top
MADE_UP = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
METHODS = ("get_state", "set_state")  # of a policy in Python
FUNCTIONS = ("probabilities", "update", "sparse_probabilities", "sparse_update", "initial_state")


@dataclass
class ShardState:
    """A shard between two chunks.

    parts, chunks  Number of complete parts, and of chunks of the part after them.
    over           Whether the shard is at its end.
    sums           Sums over the events that were read.
    lanes          Each with the kind of its tracker.
    """

    parts: int
    chunks: int
    over: bool
    sums: Packed
    lanes: list[tuple[str, Packed]]

    @classmethod
    def of(cls, lanes: Sequence[Lane], sums: Any, parts: int, chunks: int, over: bool) -> ShardState:
        return cls(parts, chunks, over, pack(sums), [(type(lane.tracker).__name__, _packed(lane)) for lane in lanes])

    def take_up(self, lanes: Sequence[Lane], sums: Any, path: str) -> Any:
        """Let lanes go on from here. Return the sums."""
        try:
            for lane, (kind, packed) in zip(lanes, self.lanes, strict=True):
                lane.take_up(packed, kind)
            return restore(sums, self.sums)
        except PolicyError:
            raise
        except MADE_UP as error:
            raise _made_up(path, error) from None

    def to_words(self, shard: int, arrays: Arrays) -> dict[str, Any]:
        """What the header has of it. Numbers go to the arrays."""
        for name, packed in {"sums": self.sums, **{str(i): one for i, (_, one) in enumerate(self.lanes)}}.items():
            arrays |= {f"{shard}.{name}.floats": packed.floats, f"{shard}.{name}.ints": packed.ints}
        return {
            "parts": self.parts,
            "chunks": self.chunks,
            "over": self.over,
            "words": self.sums.words,
            "lanes": [{"tracker": kind, "words": packed.words} for kind, packed in self.lanes],
        }

    @classmethod
    def from_words(cls, shard: int, words: Any, arrays: Arrays) -> ShardState:
        parts, chunks, over = words["parts"], words["chunks"], words["over"]
        if type(parts) is not int or type(chunks) is not int or parts < 0 or chunks < 0 or type(over) is not bool:
            raise ValueError(f"shard {shard}")

        def packed(name: Any, listed: Any) -> Packed:
            floats, ints = arrays[f"{shard}.{name}.floats"], arrays[f"{shard}.{name}.ints"]
            return Packed(list(listed), floats, np.asarray(ints, np.int64))

        lanes = [(str(one["tracker"]), packed(i, one["words"])) for i, one in enumerate(words["lanes"])]
        return cls(parts, chunks, over, packed("sums", words["words"]), lanes)


def _packed(lane: Lane) -> Packed:
    try:
        return pack(lane.contents())
    except TypeError as error:
        raise PolicyError(
            f"{parameter('checkpoint')}: get_state of policy {lane.options.policy!r} must return numbers, text and "
            f"arrays, in dicts and lists: {error}"
        ) from None


class Keeper:
    """The file of a replay, and the last states of all shards. Threads may share it."""

    def __init__(self, file: CheckpointFile, identity: Mapping[str, Any], parts: Sequence[Part], shards: int) -> None:
        from drstream import __version__

        marker = Marker(digests=True)
        self.file, self.identity = file, json.loads(json.dumps({"version": __version__, **identity}))
        self.marks = [marker.mark(part) for part in parts]
        self.shards: list[ShardState | None] = self._read(shards) if file.exists else [None] * shards
        self.lock = threading.Lock()
        self._next = [time.monotonic() + self.often] * shards  # when to take the next state of each shard
        self._written = True

    @property
    def often(self) -> float:
        return min(OFTEN, self.file.every)

    def _read(self, shards: int) -> list[ShardState | None]:
        path = self.file.path
        header, arrays = states.from_bytes(states.read(path), path, KIND)
        try:
            identity, marks = header["identity"], marks_of(header["files"])
            refuse_difference(path, identity, self.identity)
            refuse_parts(path, marks, self.marks)
            found = [
                None if words is None else ShardState.from_words(shard, words, arrays)
                for shard, words in enumerate(header["shards"])
            ]
            if len(found) != shards:
                raise ValueError(f"{len(found)} shards")
        except DrstreamError:
            raise
        except MADE_UP as error:
            raise _made_up(path, error) from None
        warn_of(path, doubts_of(identity))
        return found

    def note(self, shard: int, make: Callable[[], ShardState]) -> None:
        """Take the state of a shard, and write the file, if it is time."""
        started = time.monotonic()
        if started < self._next[shard]:
            return
        found = make()
        with self.lock:
            self.shards[shard], self._written = found, False
            took = time.monotonic() - started
            self._next[shard] = time.monotonic() + max(self.often, took / TAKING if self.often else 0.0)
            if self.file.due:
                with self.file.timed():
                    self._write()

    def end(self, shard: int, state: ShardState) -> None:
        """A shard is at its end."""
        with self.lock:
            self.shards[shard], self._written = state, False

    def stopped(self) -> None:
        """The run ends before its end."""
        with self.lock, suppress(DrstreamError, OSError):
            if not self._written:
                self._write()

    def _write(self) -> None:
        arrays = Arrays()
        words = [None if one is None else one.to_words(shard, arrays) for shard, one in enumerate(self.shards)]
        header = {
            "kind": KIND,
            "version": self.identity["version"],
            "identity": self.identity,
            "files": files_of(self.marks),
            "shards": words,
        }
        self.file.write(states.to_bytes(header, arrays))
        self._written = True


def _made_up(path: str, error: Exception) -> StateError:
    return StateError(f"{path} is damaged: {error} does not fit. Delete it, and run again")


# What a replay is about


def check_policies(policies: Mapping[str, Any]) -> None:
    """Raise an error before the pass if a file could not hold what a policy learns."""
    for name, policy in policies.items():
        if isinstance(policy, AnyCompiled | Fixed) or all(callable(getattr(policy, m, None)) for m in METHODS):
            continue
        raise PolicyError(
            f"{parameter('checkpoint')}: a file holds arrays and no code, and policy {name!r} does not say what it has "
            f"learned: give {type(policy).__name__} the methods get_state(), which returns numbers, text and arrays in "
            "dicts and lists, and set_state(state), or leave the checkpoint out"
        )


def identity_of(
    log: Log, policies: Mapping[str, Any], inputs: ModelInputs, options: ReplayOptions, plan: Plan
) -> dict[str, Any]:
    """What runs must agree in, beside the rows of the log, as JSON."""
    levels, about = options.levels, vars(options)
    given = {name: about[name] for name in ("method", "horizon", "carry", "replicates", "shards", "tracker")}
    given |= {"bias": levels.bias, "q": levels.q, "c_max": levels.c_max, "c": levels.c, "seed": options.seeds}
    given |= {"crossfit": inputs.crossfit, "cluster": inputs.cluster, "fold_seed": inputs.seed, "clamp": inputs.clamp}
    roles = {"reward model": inputs.model, "propensity model": inputs.propensity}
    identity: dict[str, Any] = {
        "policies": {str(name): _digest_of(policy, str(name)) for name, policy in policies.items()},
        "models": {log.roles.reward: {role: Digest.of(one) for role, one in roles.items() if one is not None}},
        "parameters": {name: describe(value) for name, value in given.items() if value is not None},
        "log": {**about_columns(log, plan.reader.encoding), **about_labels(log)},
        "chunks": [plan.chunk_rows, plan.precision],
        "lanes": Digest.of([vars(one) for one in plan.lane_options])["sha256"],
    }
    if inputs.waits:
        identity["fitted"] = Digest.of(plan.preparation.models)["sha256"]
    return identity


def _digest_of(policy: Any, name: str) -> dict[str, Any]:
    """The digest of a policy before it has learned anything."""
    if isinstance(policy, AnyCompiled):
        code = [getattr(type(policy), function, None) for function in FUNCTIONS]
        found = Digest.of([policy, *(getattr(one, "py_func", one) for one in code)])
        return {**found, "is": describe(policy)}
    if hasattr(policy, "update") and not hasattr(policy, "identity"):
        try:
            policy = copy.deepcopy(policy)
        except Exception as error:
            raise PolicyError(
                f"{parameter('checkpoint')}: policy {name!r} cannot be copied, so nobody can tell whether it is the "
                f"same in another run: {error}. Give it a __deepcopy__, or an attribute identity with a name of your "
                "choosing"
            ) from error
        policy.reset()
    return Digest.of(policy)
