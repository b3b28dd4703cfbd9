"""What a replay of several policies, bias, q or seeds returns: the runs beside each other, and their differences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from drstream.errors import printable, suggest
from drstream.intervals import student, t_score
from drstream.replaying.options import AUTO
from drstream.replaying.result import Replay
from drstream.results import Estimate, Note, as_frame, schema_name, stamped
from drstream.views import Reported

if TYPE_CHECKING:
    import pandas as pd


class Replays(Reported):
    """Several simulations over the same events and random numbers: `runs["new", 0.01]`, or `runs["new", 0.01, seed]`.

    The number after the policy is the bias, or q if q was given. Omit any part of the key that has a single value.
    Iterating gives each `Replay`.
    """

    def __init__(self, runs: Sequence[Replay]) -> None:
        self.runs = list(runs)
        self.policies = list(dict.fromkeys(run.policy for run in self.runs))
        self.levels = list(dict.fromkeys(run.level_value for run in self.runs))  # of bias, or of q
        self.seeds = list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def provenance(self) -> dict[str, Any]:
        """What the results were made from: version, log, filter, seeds, models, parameters."""
        return self.runs[0].provenance

    @property
    def _level(self) -> str:
        return self.runs[0].level_name

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Replay]:
        return iter(self.runs)

    def __getitem__(self, key: Any) -> Replay:
        """One simulation by policy, bias or q, and seed, in this order. A lone number is a seed if only seeds vary."""
        parts = key if isinstance(key, tuple) else (key,)
        if AUTO not in self.policies:  # the only level that is a word: all runs have it, or none
            parts = tuple(part for part in parts if part not in self.levels or part != AUTO)
        numbers = [part for part in parts if not isinstance(part, str)]
        wanted: dict[str, Any] = dict(zip(("policy",), (p for p in parts if isinstance(p, str)), strict=False))
        only_seed = len(numbers) == 1 and len(self.levels) == 1 and len(self.seeds) > 1
        names = ("seed",) if only_seed else ("level_value", "seed")
        wanted |= dict(zip(names, numbers, strict=False))
        found = [run for run in self.runs if all(getattr(run, name) == value for name, value in wanted.items())]
        if len(found) == 1 and len(parts) == len(wanted):
            return found[0]
        policy = wanted.get("policy", self.policies[0])
        if policy not in self.policies:
            raise KeyError(f"no policy {policy!r} was replayed: {suggest(policy, self.policies)}")
        raise KeyError(
            f"runs[{key!r}] is {'no' if not found else 'more than one'} simulation: give policy, {self._level} and "
            f"seed, of policies {self.policies}, {self._level} {self.levels}, seeds {self.seeds}"
        )

    def difference(self, policy: Any, other: Any) -> Estimate:
        """The value per step of one simulation minus that of another, with an interval. Keys are those of `runs[...]`.

        With several shards, the interval is paired by shard, because both simulations met the same events and random
        numbers in a shard. With one shard, the replicates are treated as two independent samples (Welch). Replicates
        do not match row by row, so this interval is no narrower for the events that both simulations share.
        """
        a, b = self[policy], self[other]
        for run in (a, b):
            if not run.complete:
                raise run.failure
        one, two = (_by_shard(run) for run in (a, b))
        both = sorted(one.keys() & two.keys())
        if len(both) > 1:
            found = Estimate(*student(np.array([one[s] - two[s] for s in both]), a.confidence), n=len(both))
        else:
            found = _welch(a, b)
        shifts = a.shift, -b.shift  # how far the truth may lie from each, by the measured bias
        low, high = (sum(limit(shift, 0.0) for shift in shifts) for limit in (min, max))
        return replace(found, low=found.low + low, high=found.high + high)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each simulation."""
        return [run.row() for run in self.runs]

    def to_arrow(self) -> pa.Table:
        """One row for each simulation."""
        return stamped(pa.Table.from_pylist(self.rows()), self.provenance)

    def to_pandas(self) -> pd.DataFrame:
        """The table of `to_arrow` as a pandas frame."""
        return as_frame(self.to_arrow())

    def to_dict(self) -> dict[str, Any]:
        """The results as a dictionary, as in JSON."""
        found = [run.to_dict() for run in self.runs]
        for run in found:
            run.pop("provenance")  # that of all runs
        return {"schema": schema_name("replay"), "provenance": self.provenance, "runs": found}

    def to_json(self, indent: int | None = 2) -> str:
        """The results as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent)

    @printable
    def __repr__(self) -> str:
        first = self.runs[0]
        width = max(len("policy"), *map(len, self.policies))
        events = max(run.events for run in self.runs)
        count = f"{len(self)} replay{'s' * (len(self) > 1)}"
        columns = f"{self._level:>6} {'seed':>5} {'value':>11}  {'interval':<24} {'T':>7}"
        lines = [
            f"{count} by {first.method}, T = {first.horizon:,} steps, of {events:,} events",
            f"  {'policy':<{width}}  {columns} {'replicates':>10} {'accepted':>9} {'violations':>10}",
        ]
        for run in self.runs:
            row = run.row()
            interval = f"[{row['low']:.5g}, {row['high']:.5g}]" if row["low"] == row["low"] else "none"
            lines.append(
                f"  {run.policy:<{width}}  {_shown(run):>6} {run.seed:>5} "
                f"{row['value']:>11.5g}  {interval:<24} "
                f"{run.horizon:>7,} {run.complete:>10,} {run.acceptance:>9.3%} {run.violations:>10.3%}"
            )
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    @property
    def notes(self) -> list[Note]:
        """Notes on the results. A note that holds for all of them is given once."""
        said = {note: [run for run in self.runs if note in run.notes] for run in self.runs for note in run.notes}
        found = []
        for note, runs in said.items():
            names = "; ".join(r.policy if len(self.levels) == 1 else f"{r.policy}, {r.level}" for r in runs)
            alike = len(runs) == len(self.runs) or not runs[0].complete  # a failure names its policy
            found.append(note if alike else Note(f"{names}: {note}", note.kind, note.level))
        return found

    def curves(self) -> pa.Table:
        """The learning curves of all simulations: policy, bias, q and seed, and the columns of `Replay.curve`."""
        tables = []
        for run in self.runs:
            if run.complete:
                key = {name: run.row()[name] for name in ("policy", "bias", "q", "seed")}
                constants = {name: pa.array([value] * len(run.curve)) for name, value in key.items()}
                tables.append(pa.table({**constants, **dict(zip(run.curve.column_names, run.curve, strict=True))}))
        return stamped(pa.concat_tables(tables), self.provenance)


def _shown(run: Replay) -> str:
    value = run.level_value
    return value if isinstance(value, str) else f"{value:.3g}"


def _by_shard(run: Replay) -> dict[int, float]:
    """The mean of the replicates of each shard."""
    shards, averages = run._outcome.shard, run._outcome.replicates["average"]
    return {int(s): float(averages[shards == s].mean()) for s in np.unique(shards)}


def _welch(a: Replay, b: Replay) -> Estimate:
    value, n = a.value - b.value, min(a.complete, b.complete)
    variances = a.stderr**2, b.stderr**2
    total = sum(variances)
    if not total > 0:
        return Estimate(value, math.nan, math.nan, math.nan, n)
    freedom = total**2 / sum(v**2 / (run.complete - 1) for v, run in zip(variances, (a, b), strict=True))
    half = t_score(a.confidence, freedom) * math.sqrt(total)
    return Estimate(value, math.sqrt(total), value - half, value + half, n)
