"""Checkpoints of a replay: the lanes of each shard between two chunks, and how far they have come in the log."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drstream.errors import PolicyError, parameter
from drstream.log import Log
from drstream.models.binding import ModelInputs
from drstream.policies.online import AnyCompiled, Fixed
from drstream.provenance import describe
from drstream.replaying.lanes import Lane
from drstream.replaying.options import ReplayOptions
from drstream.replaying.plan import Plan
from drstream.states import tree
from drstream.states.arrays import Arrays
from drstream.states.checkpoint import MADE_UP, Checkpoint, Kept
from drstream.states.identity import Digest, about_columns, about_labels

KIND = "checkpoint of a replay"
OFTEN = 1.0  # seconds between two moments that Ctrl-C can go back to
TAKING = 1 / 100  # most of the time that it may take to keep such moments in memory; writing them comes on top
METHODS = ("get_state", "set_state")  # of a policy in Python
FUNCTIONS = ("probabilities", "update", "sparse_probabilities", "sparse_update", "initial_state")
Sums = TypeVar("Sums")


def state_of(lanes: Sequence[Lane], sums: Any, parts: int, chunks: int, over: bool) -> Kept:
    """Return the state of a shard between two chunks.

    parts, chunks  Number of complete parts, and of chunks of the part after them.
    over           Whether the shard is at its end.
    """
    arrays = Arrays()
    words = {"chunks": chunks, "sums": tree.pack(sums, arrays, "sums"), "lanes": []}
    for i, lane in enumerate(lanes):
        try:
            words["lanes"].append([type(lane.tracker).__name__, tree.pack(lane.contents(), arrays, f"lane.{i}")])
        except TypeError as error:
            raise PolicyError(
                f"{parameter('checkpoint')}: get_state of policy {lane.options.policy!r} must return numbers, text and "
                f"arrays, in dicts and lists: {error}"
            ) from None
    return Kept(words, arrays, parts, over)


class Keeper:
    """The last states of all shards, in a checkpoint. Threads may share it."""

    def __init__(self, kept: Checkpoint, about: Mapping[str, Any], shards: int) -> None:
        self.kept, self.about = kept, about
        self.shards = [kept.find(f"shard {shard}", about) for shard in range(shards)]
        self._next = [time.monotonic() + self.often] * shards  # when to take the next state of each shard

    @property
    def often(self) -> float:
        return min(OFTEN, self.kept.every)

    def take_up(self, shard: int, lanes: Sequence[Lane], sums: Sums) -> tuple[Sums, int]:
        """Let lanes go on from what an earlier run has left. Return the sums, and the number of chunks."""
        found = self.shards[shard]
        assert found is not None
        try:
            words, arrays = found.words, dict(found.arrays)
            if type(words["chunks"]) is not int or words["chunks"] < 0:
                raise ValueError(f"{words['chunks']!r} chunks")
            for lane, (tracker, contents) in zip(lanes, words["lanes"], strict=True):
                lane.take_up(tree.unpack(contents, arrays), tracker)
            return tree.restore(sums, tree.unpack(words["sums"], arrays)), words["chunks"]
        except MADE_UP as error:
            raise self.kept.damaged(error) from None

    def note(self, shard: int, make: Callable[[], Kept]) -> None:
        """Take the state of a shard, and write the file, if it is time."""
        started = time.monotonic()
        if started < self._next[shard]:
            return
        found = make()
        with self.kept.lock:
            self.end(shard, found)
            took = time.monotonic() - started
            self._next[shard] = time.monotonic() + max(self.often, took / TAKING if self.often else 0.0)
            self.kept.note()

    def end(self, shard: int, state: Kept) -> None:
        """Take the state of a shard, perhaps at its end."""
        with self.kept.lock:
            self.kept.keep(f"shard {shard}", state, self.about)


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
