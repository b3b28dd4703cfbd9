"""What a replay needs to know: policies and models bound to the log, its lanes, and what to read."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from drstream.errors import LogError, ModelError, PolicyError, parameter
from drstream.log import Log, Reader
from drstream.log.kinds.candidates.columns import Numbered
from drstream.log.spec import ROWS as BATCH_ROWS
from drstream.models.binding import BoundModels, ModelInputs, bind_models, no_propensities
from drstream.policies.base import doubt_if_learned_here
from drstream.policies.online import AnyCompiled, Fixed, as_online, check_for_candidates
from drstream.policies.shared import SharedForm
from drstream.replaying import lanes as plain
from drstream.replaying import offered_lanes
from drstream.replaying.chunks import SPARSE_FEATURES, Chunk, Preparation, Spaces
from drstream.replaying.lanes import Lane
from drstream.replaying.offered import OfferedPreparation
from drstream.replaying.options import LaneOptions, ReplayOptions
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part

PILOT_SHARE = 10  # the pilot takes at most this part of a shard's rows
LEAST_CHUNK = 256  # rows
WAITING = 3  # chunks for each thread, at least: two wait, and one is made
CHUNK_BYTES = 1 << 25  # of the contexts, probabilities and predictions in a chunk; half of it takes 5% more time


@dataclass(frozen=True)
class Plan:
    """All that a replay needs to know, bound to the log. It can be pickled if the policies can."""

    policies: dict[str, Any]
    lane_options: list[LaneOptions]
    preparation: Preparation
    reader: Reader
    grids: list[tuple[int, int]]  # ranges of lanes that try the targets of one grid
    shards: int
    share: float  # of the rows of a part that splits leave
    debug: bool
    precision: str  # of the products that make predictions

    def lanes(self, stop: threading.Event, shard: int, rows: int | None) -> list[Lane]:
        """The lanes of a shard of so many rows, if their number is known."""
        lanes = []
        kinds = offered_lanes if isinstance(self.preparation, OfferedPreparation) else plain
        several = len(self.lane_options) > 1 or self.shards > 1
        for options in self.lane_options:
            policy = self.policies[options.policy]
            if several and not isinstance(policy, AnyCompiled | Fixed):
                policy = _copy_of(policy, options.policy)
            most = options.most_replicates
            if most is not None:  # divided among the shards
                options = replace(options, most_replicates=most // self.shards + (shard < most % self.shards))
            if options.bias is not None and rows is not None:
                limit = rows * self.share / PILOT_SHARE * options.pilot_steps / options.horizon
                options = replace(options, pilot_rows=max(int(limit), 1))
            kind = kinds.kind_of_lane(policy)
            lanes.append(kind(options, policy, self.preparation, stop, self.debug))
        return lanes

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk. They depend on the log and the parameters only, so every run has the same chunks."""
        rows = max(CHUNK_BYTES // self.preparation.event_bytes, 1)
        return min(max(LEAST_CHUNK, 1 << (rows.bit_length() - 1)), BATCH_ROWS)

    def check_memory(self, threads: int) -> None:
        """Raise an error if the chunks that wait at the same time need more memory than the machine has."""
        if isinstance(self.preparation, OfferedPreparation):  # chunks have a bound on their candidates
            self._check_states(self.preparation)
            return
        event, actions = self.preparation.event_bytes, self.preparation.n_actions
        execution.check_memory(
            WAITING * threads * self.chunk_rows * event,
            f"{actions:,} actions need about {event / 1e6:.3g} MB for each event, with {parameter('model')} and each "
            "policy that does not learn; chunks of events that are ready to be replayed",
            f"take fewer {parameter('threads')} or fewer such policies, or leave {parameter('model')} out",
        )

    def _check_states(self, preparation: OfferedPreparation) -> None:
        """Raise an error if what built-in policies learn on candidates needs more memory than the machine has."""
        of_lanes = [self.policies[options.policy] for options in self.lane_options]
        sizes = preparation.n_features, preparation.item_features
        execution.check_memory(
            16 * self.shards * sum(policy.state_size(*sizes) for policy in of_lanes if isinstance(policy, SharedForm)),
            f"policies that learn from {sizes[0]} features of contexts and {sizes[1]} of candidates",
            "leave interactions out, name fewer features, or use EpsilonGreedy instead of LinUCB",
        )

    def chunks(self, spaces: Spaces, part: Part, after: tuple[int, int] = (0, 0)) -> Iterator[Chunk | Counter[str]]:
        """Yield the chunks of a part and, at the end, the counts of bad rows that were skipped.

        after  The first row of a part, and the number of its chunks that are left out.
        """
        skipped: Counter[str] = Counter()
        left = after[1] if after[0] == part.first_row else 0
        for batch in self.reader.batches(part, skipped):
            for block in self.preparation.blocks(batch, self.chunk_rows):
                if left:
                    left -= 1
                    continue
                yield self.preparation.chunk(block, spaces)
        yield skipped


def make_plan(
    log: Log,
    named: Mapping[Any, Any],
    inputs: ModelInputs,
    options: ReplayOptions,
    workers: Workers,
    debug: bool,
    precision: str | None = None,
) -> Plan:
    """Bind policies and models to the log, and find out what to read from it."""
    policies = {str(name): as_online(policy, str(name)) for name, policy in named.items()}
    if len(policies) < len(named):
        raise PolicyError(f"two policies have the same name: {', '.join(map(repr, named))}")
    if not policies:
        raise PolicyError("there is no policy to replay: pass a policy, or a mapping of names to policies")
    if options.method == "dm" and inputs.model is None:
        raise ModelError(f"{parameter('method', 'dm')} is r̂ alone: pass a reward model with {parameter('model')}")
    if options.method == "dm" and inputs.forward:
        raise ModelError(
            f"{parameter('method', 'dm')} is r̂ alone, and with {parameter('crossfit', inputs.crossfit)} the first "
            f"events have none: choose another method, or a number of folds, e.g. {parameter('crossfit', 5)}"
        )
    if not log.roles.with_propensities and inputs.propensity is None:
        raise LogError(f"replay needs propensities, {no_propensities()}")
    if log.roles.sample_rate is not None:
        raise LogError(
            f"replay needs every event, and this log is down-sampled: {parameter('sample_rate', log.roles.sample_rate)}"
        )
    log = log.for_reward(log.roles.reward) if log.roles.more_rewards else log
    fixed = [p.policy for p in policies.values() if isinstance(p, Fixed)]
    log = log.with_actions_of(*inputs.users, *fixed, *policies.values())
    bound = {name: _bind(policy, name, log) for name, policy in policies.items()}
    compiled = [p for p in bound.values() if isinstance(p, AnyCompiled)]
    for_compiled = any(p.uses_context for p in compiled)
    for_python = any(not isinstance(p, AnyCompiled | Fixed) for p in bound.values())
    models = bind_models(log, inputs, workers)
    users: list[Any] = [*(p.policy for p in bound.values() if isinstance(p, Fixed)), models]
    features = bool(compiled) or for_python or any(u.uses_candidates for u in users)
    reader = log.reader(
        context=for_compiled or for_python or any(u.uses_context for u in users),
        candidates=log.has_candidates and features,
        action=True,
        columns=tuple(dict.fromkeys(c for u in users for c in u.columns)),
        folds=models.folds,
        start=models.start,
    )
    c_max = float(options.levels.c_max if options.levels.c is None else options.levels.c)
    smallest = math.inf
    if not options.adaptive and options.levels.c is None:
        smallest = smallest_propensity(log, reader, models, workers)
    lanes = list(options.lanes(bound.items(), min(c_max, smallest), smallest <= c_max))
    about: dict[str, Any] = {
        "models": models,
        "fixed": {name: policy.policy for name, policy in bound.items() if isinstance(policy, Fixed)},
        "seeds": frozenset(lane.seed for lane in lanes),
        "n_features": log.n_features if reader.with_context else 0,
        "sparse": reader.with_context and log.is_sparse,
        "for_compiled": for_compiled,
        "for_python": for_python,
        "typical_reward": log.pivot,
    }
    preparation: Preparation
    if log.has_candidates:
        names = log.candidate_features
        width = 0 if not features else SPARSE_FEATURES if isinstance(names, Numbered) else len(names)
        about |= {"item_features": width, "for_features": bool(compiled), "usual_candidates": log.candidates.usual}
        preparation = OfferedPreparation(**about, n_actions=0, single=False, sets=False, unchecked=None)
    else:
        single = precision is None and reader.with_context and log.contexts.type.itemsize == 4
        sets = log.roles.eligible is not None
        tell = models.model is not None and models.model.spoilt_by_contexts and reader.plain_context
        reader = reader.unchecked() if tell else reader  # checks take 8 ns an event
        about["unchecked"] = reader if tell else None
        preparation = Preparation(**about, n_actions=log.n_actions, single=single, sets=sets)
    size = len(options.levels.targets) if options.levels.automatic else len(lanes) + 1
    grids = [(first, first + size) for first in range(0, len(lanes) - size + 1, size)]
    shape = grids, int(options.shards), log.share
    plan = Plan(bound, lanes, preparation, reader, *shape, debug, preparation.precision)
    plan.check_memory(workers.threads)
    return plan


def _bind(policy: Any, name: str, log: Log) -> Any:
    """Check that the policy fits the log, and bind it."""
    if isinstance(policy, Fixed):
        doubt_if_learned_here(policy.policy, name, log)
        bound = Fixed(policy.policy.bind_to(log, name))
        if bound.policy.only_logged:
            raise PolicyError(
                f"policy {name!r} gives the probability of the logged action only; replay needs those of all actions"
            )
        return bound
    if isinstance(policy, AnyCompiled):
        if policy.uses_context:
            log.contexts.refuse_nan(f"policy {name!r}, a compiled one,", PolicyError)
        return policy.bind_to(log, name)
    bound = policy.bind(log) or policy if hasattr(policy, "bind") else policy
    if log.has_candidates:
        check_for_candidates(bound, name)
    return bound


def _copy_of(policy: Any, name: str) -> Any:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise PolicyError(
            f"policy {name!r} cannot be copied: {error}. Several seeds, shards, q or targets of the bias mass have a "
            f"copy each, and {parameter('bias', 'auto')} has several targets. Give it a __deepcopy__, or replay one "
            f"{parameter('bias')} and seed at a time"
        ) from error


def smallest_propensity(log: Log, reader: Reader, models: BoundModels, workers: Workers) -> float:
    """The smallest propensity of the log's events.

    It comes from a pass over the column: statistics of Parquet files may be wrong. If bad rows are skipped or
    propensities are estimated, the pass reads all columns that the replay reads.
    """
    if models.logger is None and log.constant_propensity is not None:
        return log.constant_propensity
    held = log.copy(source=log.source.peek())  # keeps a stream that can be read only once for the replay
    reader = reader if log.on_bad_row == "skip" or models.logger else held.reader()
    smallest = 1.0
    for least in execution.run(_Smallest(reader, models), held, reader.columns, Workers(workers.threads)):
        smallest = min(smallest, least)
    return smallest


@dataclass(frozen=True)
class _Smallest:
    reader: Reader
    models: BoundModels

    def __call__(self, part: Part) -> float:
        batches = self.reader.batches(part, Counter())
        blocks = (batch for batch in batches)
        actions = len(self.reader.labels)
        return min((float(self.models.propensities_of_many(block, actions).min()) for block in blocks), default=1.0)
