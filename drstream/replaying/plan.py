"""What a replay needs to know: policies and models bound to the log, its lanes, and what to read."""

from __future__ import annotations

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import execution, sampling
from drstream.errors import LogError, ModelError, PolicyError
from drstream.evaluation.estimators import NO_PROPENSITIES
from drstream.log import Block, Csr, Log, Reader
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.log.source import ParquetSource, Part
from drstream.models.binding import Given, Used, most_actions, prepare
from drstream.models.calibration import Calibration
from drstream.policies.base import warn_if_learned_here
from drstream.policies.online import Compiled, Fixed, as_online
from drstream.replaying.chunks import Chunk, _predict, _probabilities, contexts_of
from drstream.replaying.lanes import Lane, make_lane
from drstream.replaying.options import Settings, _Asked

CHUNK_BYTES = 1 << 24  # of contexts, probabilities and predictions made ready at a time
SPARSE_FEATURES = 100  # that are not 0 in a sparse context, for these sizes


@dataclass(frozen=True)
class _Plan:
    """All that a pass needs to know, bound to the log. It can be pickled if the policies can."""

    policies: dict[str, Any]
    settings: list[Settings]  # of each lane
    used: Used
    n_actions: int
    n_features: int
    compiled_contexts: bool  # some compiled policy looks at them
    python: bool  # some policy is Python code
    typical_reward: float
    reader: Reader
    shards: int
    copies: bool  # Python policies serve several lanes or shards
    debug: bool

    def lanes(self, stop: threading.Event, shard: int) -> list[Lane]:
        lanes = []
        for settings in self.settings:
            policy = self.policies[settings.policy]
            if self.copies and not isinstance(policy, Compiled | Fixed):
                policy = _copy_of(policy, settings.policy)
            most = settings.most_replicates
            if most is not None:  # the shards share what was asked for
                settings = replace(settings, most_replicates=most // self.shards + (shard < most % self.shards))
            lanes.append(make_lane(settings, policy, self.n_actions, self.n_features, stop, self.debug, self.sparse))
        return lanes

    @property
    def sparse(self) -> bool:
        return self.reader.roles.sparse is not None

    @property
    def event_bytes(self) -> int:
        """Of an event made ready; how many features of a sparse one are not 0 is not known ahead."""
        features = 12 * min(self.n_features, SPARSE_FEATURES) if self.sparse else 8 * self.n_features
        matrices = (self.used.model is not None) + sum(isinstance(p, Fixed) for p in self.policies.values())
        seeds = len({settings.seed for settings in self.settings})
        return 64 + 8 * seeds + features + 8 * self.n_actions * matrices

    @property
    def chunk_rows(self) -> int:
        """A function of what is asked for, so that every run has the same chunks."""
        rows = CHUNK_BYTES // self.event_bytes
        return min(max(256, 1 << (rows.bit_length() - 1)), BATCH_ROWS)

    def chunks(self, part: Part) -> Iterator[Chunk | Counter[str]]:
        """The part's events, made ready; and at the end the bad rows that were left out."""
        skipped: Counter[str] = Counter()
        for batch in self.reader.batches(part, skipped):
            for block in batch.blocks(self.chunk_rows):
                yield self._prepare(block)
        yield skipped

    def _prepare(self, block: Block) -> Chunk:
        rows = block.rows
        uniforms = {seed: sampling.at_rows(seed, rows.view(np.uint64)) for seed in {s.seed for s in self.settings}}
        contexts: NDArray[Any] | Csr = np.empty((len(block), 0))
        if self.compiled_contexts:
            contexts = contexts_of(block)
        if self.python:
            block.matrix  # noqa: B018  # made here, on the thread that reads, and not once for each lane
        predictions, calibration = np.empty((len(block), 0)), Calibration(self.typical_reward)
        if self.used.model is not None:
            predictions = _predict(self.used, block, self.n_actions, calibration)
        propensity = self.used.propensities_of_many(block, self.n_actions)
        if self.used.logger is not None:
            calibration.least_propensity = float(propensity.min())
        fixed = {
            name: _probabilities(policy.policy, block, self.n_actions)
            for name, policy in self.policies.items()
            if isinstance(policy, Fixed)
        }
        return Chunk(block, contexts, rows, uniforms, propensity, predictions, fixed, calibration)


def _make_plan(
    log: Log,
    named: Mapping[Any, Any],
    given: Given,
    asked: _Asked,
    how: dict[str, Any],
    debug: bool,
    stacklevel: int = 3,
) -> _Plan:
    """Bind policies and models to the log, and find out what must be read of it."""
    policies = {str(name): as_online(policy, str(name)) for name, policy in named.items()}
    if len(policies) < len(named):
        raise PolicyError(f"two policies have the same name: {', '.join(map(repr, named))}")
    if not policies:
        raise PolicyError("there is no policy to replay: pass a policy, or a mapping of names to policies")
    if asked.method == "dm" and given.model is None:
        raise ModelError('method="dm" is r̂ alone: pass a reward model with model=')
    if log.roles.propensity is None and given.propensity is None:
        raise LogError(f"replay needs propensities, {NO_PROPENSITIES}")
    fixed = [p.policy for p in policies.values() if isinstance(p, Fixed)]
    most = [getattr(p, "n_actions", None) or 0 for p in (*fixed, *policies.values())]
    log = log.with_actions_up_to(max(most_actions(given), *most))
    bound: dict[str, Any] = {}
    for name, policy in policies.items():
        bound[name] = policy
        if isinstance(policy, Fixed):
            warn_if_learned_here(policy.policy, name, log, stacklevel)
            bound[name] = Fixed(policy.policy.bind(log, name))
            if bound[name].policy.only_logged:
                raise PolicyError(
                    f"policy {name!r} gives the probability of the logged action only; replay needs all actions'"
                )
        elif not isinstance(policy, Compiled) and hasattr(policy, "bind"):
            bound[name] = policy.bind(log) or policy
    compiled = any(isinstance(p, Compiled) and p.uses_context for p in policies.values())
    python = any(not isinstance(p, Compiled | Fixed) for p in policies.values())
    used = prepare(log, given, how, stacklevel)
    users: list[Any] = [*fixed, used]
    reader = log.reader(
        context=compiled or python or any(u.uses_context for u in users),
        action=True,
        columns=tuple(dict.fromkeys(c for u in users for c in u.columns)),
        folds=used.folds,
    )
    c_max = float(asked.c_max)
    if asked.method in ("dr-ns-wc", "rs"):
        c_max = min(c_max, smallest_propensity(log, reader, used, how["threads"]))
    lanes = list(itertools.product(bound, asked.q, asked.seeds))
    settings = [
        Settings(
            policy=name,
            method=asked.method,
            horizon=int(asked.horizon),
            q=float(level),
            c_max=c_max,
            seed=int(seed),
            carry=bool(asked.carry),
            tracker=asked.tracker,
            most_replicates=asked.replicates,
            unit_rewards=bool(getattr(bound[name], "unit_rewards", False)),
            snapshots=int(asked.snapshots or 0),
        )
        for name, level, seed in lanes
    ]
    return _Plan(
        policies=bound,
        settings=settings,
        used=used,
        n_actions=log.n_actions,
        n_features=log.n_features if reader.with_context else 0,
        compiled_contexts=compiled,
        python=python,
        typical_reward=log.typical_reward,
        reader=reader,
        shards=int(asked.shards),
        copies=len(lanes) > 1 or asked.shards > 1,
        debug=debug,
    )


def _copy_of(policy: Any, name: str) -> Any:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise PolicyError(
            f"policy {name!r} cannot be copied: {error}. Several q, seeds or shards have a copy each. "
            "Give it a __deepcopy__, or replay one q and seed at a time"
        ) from error


def smallest_propensity(log: Log, reader: Reader, used: Used, workers: int) -> float:
    """Of the log's events: from the statistics of Parquet files if all rows count, else from a pass over the column.

    Where bad rows are skipped or propensities are estimated, the pass reads all columns that the replay will.
    """
    everything = log.filter is None and not log._splits and log.on_bad_row == "error"
    column = log.roles.propensity
    if everything and column is not None and isinstance(log.source, ParquetSource):
        known = log.source.minimum_maximum(column)
        if known is not None and known[0] > 0:
            return float(known[0])
    held = log._but(source=log.source.peek())  # a stream that can be read once is kept for the pass to come
    reader = reader if log.on_bad_row == "skip" or used.logger else held.reader()
    smallest = 1.0
    for least in execution.run(_Smallest(reader, used), held, reader.columns, workers):
        smallest = min(smallest, least)
    return smallest


@dataclass(frozen=True)
class _Smallest:
    reader: Reader
    used: Used

    def __call__(self, part: Part) -> float:
        batches = self.reader.batches(part, Counter())
        blocks = (Block(batch, 0, len(batch)) for batch in batches)
        actions = len(self.reader.labels)
        return min((float(self.used.propensities_of_many(block, actions).min()) for block in blocks), default=1.0)
