"""One simulation of a policy: its state, and how a chunk of the log passes through it.

A lane is a policy with one q or target of the bias mass, and one seed. Kinds of policies differ in how they give
probabilities: a compiled policy event by event, a Python policy for some events ahead, and a fixed policy for the whole
chunk.
"""

from __future__ import annotations

import copy
import math
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import check_shape, invalid_probabilities, read_only
from drstream.errors import PolicyError, parameter
from drstream.kernels import eligible, lanes, masses, quantiles, tallies
from drstream.kernels import replay as kernels
from drstream.kernels.tiles import TILE
from drstream.log import Csr
from drstream.policies.online import AnyCompiled, Fixed
from drstream.policies.sets import learns_sets, sets_for, wants_sets
from drstream.replaying.chunks import Chunk, Preparation
from drstream.replaying.options import LaneOptions
from drstream.replaying.outcome import Outcome
from drstream.replaying.snapshots import Recorded, Recorder
from drstream.replaying.trackers import Exact, Mass, Sketch, plain
from drstream.states.tree import Free, Varying, restore
from drstream.types import Floats

EXACT_VALUES = 1 << 23  # in an exact tracker before "auto" turns it into a sketch: 64 MB, or 96 with spare room
LEAST_AHEAD, MOST_AHEAD = 16, 4096  # events for which one call asks a Python policy
SNAPSHOTS, SNAPSHOT_BYTES = 1024, 1 << 20  # limits of the states that a call copies; a call takes 0.1 ms, a state 5 µs
NO_TRACE = np.empty((0, 3))
TRACKING = {Exact: tallies.EXACT, Sketch: tallies.SKETCH, Mass: tallies.MASS}
UNUSED = {kind: np.zeros(1, kind.STATE).view(np.recarray) for kind in (quantiles, masses)}  # of trackers not in use
OPTIONS = ("horizon", "c_max", "kind", "carry", "most_replicates", "bin_steps", "snapshot_space", "pilot_horizon")
KINDS = {
    "dr-ns": tallies.DOUBLY_ROBUST,
    "dr-ns-wc": tallies.DOUBLY_ROBUST,
    "rs": tallies.REJECTION,
    "dm": tallies.DIRECT,
}


@dataclass
class Lane:
    """The state of one simulation: a policy, one q or bias, and one seed. Kinds of policies differ in `_walk`.

    With a target of the bias mass, the first replicate is a pilot, which finds the multiplier and does not count.
    """

    options: LaneOptions
    policy: Any
    preparation: Preparation  # made the chunks
    stop: threading.Event = field(default_factory=threading.Event)
    debug: bool = False
    sketch_from: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        options = self.options
        state = np.zeros(1, lanes.LANE).view(np.recarray)
        state.horizon, state.c_max, state.c = options.horizon, options.c_max, options.c_max
        self.tracker = _make_tracker(options)
        state.kind, state.carry = KINDS[options.method], options.carry
        state.tracking = TRACKING[type(self.tracker)] if options.adaptive else tallies.CONSTANT
        state.most_replicates = -1 if options.most_replicates is None else options.most_replicates
        state.bin_steps = options.bin_steps
        state.pilot, state.pilot_horizon = options.bias is not None, options.pilot_steps
        state.least_reward, state.largest_reward = np.inf, -np.inf
        self.state = state  # of kernels, which read it as attributes
        self.now = plain(state)  # the same memory
        self.curve = np.zeros(options.bins, lanes.CURVE).view(np.recarray)
        self.curve.least_c = np.inf
        self.complete: list[NDArray[np.void]] = []
        self.recorder = Recorder(options.snapshots, options.seed) if options.snapshots else None
        self.snapshot: Any = None  # the policy in the last recorded step (compiled) or in the step under way (Python)
        self.trace = NO_TRACE
        self._ended = np.zeros(0, lanes.REPLICATE)

    @property
    def done(self) -> bool:
        return bool(self.now["replicates"] == self.now["most_replicates"])

    def take(self, chunk: Chunk, trace: Floats = NO_TRACE) -> None:
        """Replay the chunk, unless the lane is done. `trace` gets c, c V_k and 1 for accepted events."""
        if self.done:
            return
        self.trace = trace
        self._reserve(chunk)
        now, before = self.now, int(self.now["all_events"])
        events, lane = chunk.events(self.options.seed), self._arrays()
        try:
            first = 0
            while first < len(chunk.rows) and not self.done and not self.stop.is_set():
                last = min(len(chunk.rows), first + self._pilot_left())
                self._walk(chunk, events, lane, first, last)
                if not self._pilot_left():
                    lanes.end_pilot(lane)
                    self._restart()
                first = last
        finally:
            if new := int(now["replicates"] - now["reported"]):
                self.complete.append(self._ended[:new].copy())
                now["reported"] = now["replicates"]
        if self.recorder is not None:
            taken = int(now["all_events"]) - before
            complete = max(taken - int(now["step_events"]), 0)  # a step may have begun in an earlier chunk
            columns = chunk.propensity[:taken], chunk.reward[:taken], chunk.predicted[:taken]
            self.recorder.pass_over(*columns, complete)

    def _arrays(self) -> lanes.LaneArrays:
        tracker = self.tracker
        quantile, mass = UNUSED[quantiles], UNUSED[masses]
        if isinstance(tracker, Mass):
            mass = tracker.state
        else:
            quantile = tracker.state
        return lanes.LaneArrays(
            self.state, quantile, mass, tracker.low, tracker.high, self.curve, self._ended.view(np.recarray), self.trace
        )

    def contents(self) -> dict[str, Any]:
        """All that a checkpoint holds of the lane, between two chunks."""
        replicates = np.concatenate([np.empty(0, lanes.REPLICATE), *self.complete])
        return {
            "state": self.state,
            "curve": self.curve,
            "complete": Varying(replicates),
            "sketch_from": -1 if self.sketch_from is None else self.sketch_from,
            "tracker": self.tracker.contents(),
            "policy": self._kept_policy(),
            "recorder": None if self.recorder is None else self.recorder.contents(self._snapshot_like()),
        }

    def take_up(self, found: Any, kind: str) -> None:
        """Go on from what a checkpoint holds of the lane. `kind` is that of its tracker."""
        if isinstance(self.tracker, Exact) and kind == Sketch.__name__ and self.options.tracker == "auto":
            self.tracker = self.tracker.as_sketch()
        if type(self.tracker).__name__ != kind:
            raise ValueError(f"tracker {kind!r}")
        wanted = self.state.copy()
        kept = restore(self.contents(), found)
        self.state[:] = kept["state"]
        self.state.tracking = TRACKING[type(self.tracker)] if self.options.adaptive else tallies.CONSTANT
        now, options = self.now, [name for name in OPTIONS if wanted[name][0] != self.state[name][0]]
        if options or not 0 <= now["t"] < now["horizon"] or now["replicates"] != now["reported"] or now["snapshots"]:
            raise ValueError(f"lane {options or 't'}")
        self.curve[:] = kept["curve"]
        self.complete = [kept["complete"].array]
        self.sketch_from = None if kept["sketch_from"] < 0 else kept["sketch_from"]
        self.tracker.take_up(kept["tracker"])
        self._take_up_policy(kept["policy"])
        if self.recorder is not None:
            self.snapshot = self.recorder.take_up(kept["recorder"])

    def _kept_policy(self) -> Any:
        """What the policy has learned."""
        return None

    def _take_up_policy(self, kept: Any) -> None:
        """Let the policy go on with what it had learned."""

    def _snapshot_like(self) -> Floats:
        """A state of the policy, if its states are recorded."""
        raise PolicyError(
            f"{parameter('checkpoint')}: the states of policy {self.options.policy!r} are recorded as copies of a "
            "Python object, which a file without code cannot hold: leave it out, or use a compiled policy"
        )

    def _pilot_left(self) -> int:
        """Number of events that the pilot may still take. Without a pilot, or a limit of it, there is no end."""
        most = self.options.pilot_rows
        if not self.now["pilot"] or most is None:
            return sys.maxsize
        return most - int(self.now["events"])

    def _walk(self, chunk: Chunk, events: kernels.ReplayEvents, lane: lanes.LaneArrays, first: int, last: int) -> None:
        """Replay events first, ..., last - 1 of the chunk, unless the lane is done before."""
        raise NotImplementedError

    def _restart(self) -> None:
        """Let the policy forget what it learned in the pilot, which was cut off."""

    def _reserve(self, chunk: Chunk) -> None:
        """Make space for the results of the chunk, because kernels cannot allocate."""
        if (most := len(chunk.rows) // self.options.horizon + 1) > len(self._ended):
            self._ended = np.zeros(most, lanes.REPLICATE)
        if not self.options.adaptive:
            return
        if self.options.tracker == "auto" and isinstance(self.tracker, Exact) and self.tracker.kept > EXACT_VALUES:
            self.tracker = self.tracker.as_sketch()
            self.state.tracking = tallies.SKETCH
            self.sketch_from = int(chunk.rows[0])
        self.tracker.reserve(len(chunk.rows))

    def _refuse(self, pi: Floats, event: int, chunk: Chunk) -> None:
        """Raise an error about invalid probabilities."""
        where = f"t = {self.now['t'] + 1}, {chunk.block.where(event)}"
        raise invalid_probabilities(f"policy {self.options.policy!r}", pi, where, chunk.block.eligible, event)

    def outcome(self, shard: int, interrupted: bool) -> Outcome:
        now = self.now
        replicates = np.concatenate([np.empty(0, lanes.REPLICATE), *self.complete])
        return Outcome(
            replicates=replicates,
            shard=np.full(len(replicates), shard),
            curve=np.array(self.curve, lanes.CURVE),
            target=np.full(len(replicates), math.nan if self.options.bias is None else self.options.bias),
            events=int(now["all_events"] - now["pilot_events"]),
            considered=int(now["all_events"] - now["pilot_events"]),
            accepted=int(now["all_accepted"] - now["pilot_accepted"]),
            violations=int(now["all_violations"] - now["pilot_violations"]),
            pilot_events=int(now["pilot_events"]),
            pilot_cut=bool(now["pilot_events"] and now["pilot_accepted"] < self.options.pilot_steps),
            left_over=int(now["events"]),
            steps_left_over=int(now["t"]),
            cut_off=int(now["t"] > 0 and not self.done),
            rewards=(float(now["least_reward"]), float(now["largest_reward"])),
            largest_weight=float(now["largest_weight"]),
            sketch_from=self.sketch_from,
            interrupted=interrupted,
            recorded=self._recorded(replicates),
        )

    def _recorded(self, replicates: NDArray[np.void]) -> Recorded | None:
        """The recorded states with the sums of the only replicate, complete or not."""
        now = self.now
        if self.recorder is None or not now["all_accepted"]:
            return None
        if len(replicates):
            _, value, weight, steps, *_ = replicates[0]
        else:
            weight = now["weight"] + now["weight_carry"]
            value, steps = (now["value"] + now["value_carry"]) / weight, now["t"]
        return self.recorder.recorded(float(value), float(weight), int(steps))


@dataclass
class CompiledLane(Lane):
    """The policy is compiled: one call replays the whole chunk, or several calls if states are recorded.

    With `debug`, its functions check the bounds of arrays.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        name, actions = self.options.policy, self.preparation.n_actions
        features = self.preparation.n_features if self.policy.uses_context else 0
        self.sparse = self.preparation.sparse and features > 0
        self.all_eligible = not self.preparation.sets and self.policy.only_within(self.sparse)
        with_sets = self.preparation.sets or self.all_eligible
        find = self.policy.functions_within if with_sets else self.policy.functions
        self.within = (np.empty(actions, np.uint8),) if with_sets else ()  # space for the set of an event
        self.loop = None if self.sparse or features == 0 else self.policy.own_loop(with_sets)
        self.functions = find(name, self.sparse, self.debug) if self.loop is None else []
        initial = self.policy.checked_state(name, actions, features)
        x = np.empty(0 if self.sparse else features)
        size = len(initial) + 1
        space = 0 if self.recorder is None else max(min(SNAPSHOTS, SNAPSHOT_BYTES // (8 * size)), 1)
        self.state.snapshot_space = space
        self.learner = kernels.Learner(
            initial.copy(), read_only(initial), x, np.zeros(actions), np.empty((space, size))
        )
        self.own_learner = None if self.loop is None else self.loop.learner_for(self.learner)

    def _learn(self, chunk: Chunk, events: kernels.ReplayEvents, lane: lanes.LaneArrays, first: int, last: int) -> int:
        """Replay events first, ..., last - 1 of the chunk. Return the event after the last one taken."""
        contexts = chunk.contexts
        if self.all_eligible:
            tiles = -(-len(chunk.rows) // TILE)
            events = events._replace(eligible=read_only(np.ones((tiles, len(self.learner.pi), TILE), np.uint8)))
        if isinstance(contexts, Csr) and not self.sparse:  # other policies use the contexts, this one does not
            contexts = read_only(np.empty((1, 0, TILE)))
        if not isinstance(contexts, Csr):
            if self.loop is not None:
                return int(self.loop.learn(events, contexts, lane, self.own_learner, first, last))
            learn: Any = eligible.learn_eligible if self.within else kernels.learn
            return int(learn(events, contexts, *self.within, lane, self.learner, *self.functions, first, last))
        if (most := int(np.diff(contexts.indptr[first : last + 1]).max())) > len(self.learner.x):
            self.learner = self.learner._replace(x=np.empty(most))
        rows = kernels.Rows(contexts.indptr, contexts.indices, contexts.values)
        learn = eligible.learn_sparse_eligible if self.within else kernels.learn_sparse
        return int(learn(events, rows, *self.within, lane, self.learner, *self.functions, first, last))

    def _restart(self) -> None:
        self.learner.state[:] = self.learner.initial

    def _kept_policy(self) -> Any:
        return self.learner.state

    def _take_up_policy(self, kept: Any) -> None:
        self.learner.state[:] = kept

    def _snapshot_like(self) -> Floats:
        return np.asarray(self.learner.state)

    def _walk(self, chunk: Chunk, events: kernels.ReplayEvents, lane: lanes.LaneArrays, first: int, last: int) -> None:
        now = self.now
        before = int(now["all_events"]) - first
        while first < last and not self.done:  # once, unless states are recorded
            try:
                first = self._learn(chunk, events, lane, first, last)
            except Exception as error:
                i = min(int(now["all_events"]) - before, len(chunk.rows) - 1)
                where = f"t = {now['t'] + 1}, {chunk.block.where(i)} or the one before"
                error.add_note(f"raised by the compiled policy {self.options.policy!r} at {where}")
                raise
            if now["improper"]:
                self._refuse(self.learner.pi, first, chunk)
            if self.recorder is not None:
                self._record(self.recorder)

    def _record(self, recorder: Recorder) -> None:
        for row in self.learner.snapshots[: int(self.now["snapshots"])]:
            state, weight = row[:-1], float(row[-1])
            if not np.array_equal(self.snapshot, state):
                self.snapshot = state.copy()
            recorder.add(self.snapshot, weight)
        self.now["snapshots"] = 0


class FixedLane(Lane):
    """The policy does not change: its probabilities for the whole chunk are known."""

    policy: Fixed

    def _walk(self, chunk: Chunk, events: kernels.ReplayEvents, lane: lanes.LaneArrays, first: int, last: int) -> None:
        pi = chunk.fixed[self.options.policy]
        taken = kernels.replay_given(events, lane, pi[first:last], first, 0)
        if self.now["improper"]:
            self._refuse(pi[taken], taken, chunk)


@dataclass
class PythonLane(Lane):
    """The policy is Python code. One call gives probabilities for many events ahead, until its version changes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ahead = 64.0  # average number of events until the version changes
        self.since = 0  # events since the version changed
        self.wants = wants_sets(self.policy.probabilities)
        self.tells = self.preparation.sets and learns_sets(self.policy.update)
        self._call("reset")
        self._keep()

    def _keep(self) -> None:
        """Copy the policy for the recorder, if there is one."""
        if self.recorder is None:
            return
        try:
            self.snapshot = copy.deepcopy(self.policy)
        except Exception as error:
            raise PolicyError(
                f"policy {self.options.policy!r} cannot be copied: {error}. What it was when it gave its "
                "probabilities is recorded as a copy of it. Give it a __deepcopy__"
            ) from error

    def _restart(self) -> None:
        self._call("reset")

    def _kept_policy(self) -> Any:
        return {"ahead": self.ahead, "since": self.since, "learned": Free(self._call("get_state"))}

    def _take_up_policy(self, kept: Any) -> None:
        self.ahead, self.since = kept["ahead"], kept["since"]
        self._call("set_state", kept["learned"].value)

    def _walk(self, chunk: Chunk, events: kernels.ReplayEvents, lane: lanes.LaneArrays, first: int, last: int) -> None:
        end, now = last, self.now
        while first < end and not self.done and not self.stop.is_set():
            last = min(first + int(min(max(self.ahead, LEAST_AHEAD), MOST_AHEAD)), end)
            version = getattr(self.policy, "version", None)
            pi = self._ask(chunk, first, last)
            start = first
            while first < last:
                accepted, before = now["all_accepted"], first
                first = self._given(events, lane, pi[first - start :], first)
                if now["improper"]:
                    self._refuse(pi[first - start], first, chunk)
                self.since += first - before
                if now["all_accepted"] > accepted and self._learn(chunk, first - 1, version):
                    self.ahead += 0.1 * (self.since - self.ahead)
                    self.since = 0
                    break
                if self.debug and first < last:
                    self._check_version(chunk, first, last, pi[first - start :])
            else:
                self.ahead = max(self.ahead, min(2.0 * (last - start), MOST_AHEAD))  # all probabilities were used

    def _given(self, events: Any, lane: lanes.LaneArrays, pi: Any, first: int) -> int:
        """Replay events until the policy can learn from one, with probabilities that it gave. Return the next event."""
        return int(kernels.replay_given(events, lane, pi, first, 1))

    def _lesson(self, chunk: Chunk, event: int) -> tuple[Any, ...]:
        """What the policy learns from an accepted event: the parameters of its update."""
        block = chunk.block
        x = block.matrix[event] if block.sparse is None else block.matrix[event : event + 1]  # sparse ones are (1, d)
        return x, int(block.action[event]), float(block.reward[event])

    def _set_of(self, chunk: Chunk, event: int) -> dict[str, Any]:
        """The set that an action was taken from, if the policy's update takes it."""
        mask = chunk.block.eligible_mask if self.tells else None
        return {} if mask is None else {"eligible": mask[event]}

    def _learn(self, chunk: Chunk, event: int, version: Any) -> bool:
        """Let the policy learn from an accepted event. Return whether its old probabilities are out of date."""
        if self.recorder is not None:
            self.recorder.add(self.snapshot, float(self.now["last_weight"]))
        self._call("update", *self._lesson(chunk, event), at=(chunk, event), **self._set_of(chunk, event))
        if self.now["t"] == 0:  # the replicate is complete
            if not self.done:
                self._call("reset")
            return True
        moved = version is None or self.policy.version != version
        if moved:
            self._keep()
        return moved

    def _ask(self, chunk: Chunk, first: int, last: int) -> Any:
        """Return the probabilities of events first, ..., last - 1: (n, K)."""
        where = f", at t = {self.now['t'] + 1}, {chunk.block.where(first)}"
        wanted = last - first, self.preparation.n_actions
        mask = None if chunk.block.eligible_mask is None else chunk.block.eligible_mask[first:last]
        more, named = sets_for(self.wants, mask, wanted)
        X = chunk.block.matrix[first:last]
        values = np.asarray(self._call("probabilities", X, *more, at=(chunk, first), **named))
        check_shape(values, wanted, f"policy {self.options.policy!r}", PolicyError, where)
        return np.array(values, dtype=np.float64, order="C")  # a copy: the policy may reuse its array

    def _call(self, method: str, *values: Any, at: tuple[Chunk, int] | None = None, **named: Any) -> Any:
        try:
            return getattr(self.policy, method)(*values, **named)
        except Exception as error:
            t = self.now["t"]
            t = t or self.options.horizon if method == "update" else t + 1  # an update is about the step just taken
            where = f", {at[0].block.where(at[1])}" if at else ""
            error.add_note(f"raised by {method} of policy {self.options.policy!r} at t = {t}{where}")
            raise

    def _changed(self, now: Any, pi: Any) -> NDArray[np.bool_]:
        """Whether the probabilities of each event have changed."""
        return ~np.isclose(now, pi, rtol=1e-9, atol=1e-12).all(axis=1)

    def _check_version(self, chunk: Chunk, first: int, last: int, pi: Any) -> None:
        """With `debug`: raise an error if the probabilities changed while the version did not."""
        now = self._ask(chunk, first, last)
        changed = self._changed(now, pi)
        if changed.any():
            i = int(np.argmax(changed))
            raise PolicyError(
                f"policy {self.options.policy!r} changed its probabilities while its version stayed "
                f"{self.policy.version!r}, at t = {self.now['t'] + 1}, {chunk.block.where(first + i)}: from "
                f"{pi[i].tolist()} to {now[i].tolist()}. Change version whenever the probabilities change"
            )


def _make_tracker(options: LaneOptions) -> Exact | Sketch | Mass:
    if options.bias is not None:
        return Mass(options.bias, options.c_max)
    return (Sketch if options.tracker == "sketch" else Exact)(options.q, options.c_max)


def kind_of_lane(policy: Any) -> type[Lane]:
    """Return the lane that simulates a policy."""
    return CompiledLane if isinstance(policy, AnyCompiled) else FixedLane if isinstance(policy, Fixed) else PythonLane
