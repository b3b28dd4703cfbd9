"""What a plan returns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drstream.errors import printable, suggest
from drstream.results import Note, as_frame, plain, schema_name, stamped
from drstream.views import Reported

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Width:
    """The interval of one policy by one estimator that `evaluate` will give on the whole log.

    value             The estimate on the sample.
    width             High minus low; NaN if there will be no interval.
    error             Standard error of the width, relative to it: how well the sample tells it; NaN if unknown.
    method            How the interval will be made.
    rows_to_halve     Rows of a log like this one whose interval is half as wide.
    exploration       Smallest share e of uniform exploration in the logging policy, (1 - e) μ + e/K, that would halve
                      the width with the same number of rows. NaN if no share would, or if it is unknown.
    narrowest         The smallest width that exploration could give; NaN if unknown.
    best_exploration  The share that gives it.
    """

    policy: str
    estimator: str
    value: float
    width: float
    error: float
    method: str
    rows_to_halve: float
    exploration: float
    narrowest: float
    best_exploration: float

    @property
    def advice(self) -> str:
        """What exploration would do, in words."""
        if math.isnan(self.narrowest):
            return "unknown"
        if not math.isnan(self.exploration):
            return f"{self.exploration:.2g}"
        return f"none: at best {self.narrowest / self.width:.0%} of the width" if self.width else "none"


@dataclass(frozen=True)
class Simulation:
    """The replay of one policy at one target of the bias mass, or quantile level, on the whole log.

    acceptance       Share of the events that will be accepted.
    error            How well the sample tells this share, relative to it: how much its halves differ, or how far the
                     mean weight is from 1.
    pilot_events     Events of the pilot, which sets c.
    replicates       Expected number of complete replicates.
    events_for_one, events_for_ten
                     Events that complete one replicate, and ten, with probability 95 %.
    longest_for_one, longest_for_ten
                     Longest horizon of which the log completes one replicate, and ten, with probability 95 %, if events
                     are accepted at this rate.
    width            Width of the replay's t interval; NaN if the sample does not tell it.
    measured         Number of replicates that were complete in the simulation on the sample.
    passes           How often the simulation went through the sample.
    limited          Whether it reached its limit before the rate was known to 2 %.
    """

    policy: str
    bias: float
    q: float
    seed: int
    horizon: int
    acceptance: float
    error: float
    pilot_events: float
    replicates: float
    events_for_one: float
    events_for_ten: float
    longest_for_one: int
    longest_for_ten: int
    width: float
    measured: int
    passes: float
    limited: bool

    @property
    def level(self) -> str:
        """What the multiplier c follows, in words."""
        return f"bias {self.bias:g}" if not math.isnan(self.bias) else f"q {self.q:g}"


class Forecast(Reported):
    """What `evaluate` and `replay` will be able to tell on the whole log, forecast from a sample of it.

    rows, events                Of the whole log. Events are those rows that filter and splits leave.
    sample_rows, sample_events  Of the sample.
    widths                      A `Width` for each fixed policy and estimator: `forecast["new", "dr"]`.
    replays                     A `Simulation` for each policy and target of the bias mass: `forecast.replay("ucb")`.
    horizon                     Number of steps of a replicate; None if nothing was replayed.
    confidence                  Confidence level of the intervals.
    notes                       Warnings and remarks. Each has a kind.
    provenance                  What it was made from: version, log, filter, seed, models, parameters.
    """

    def __init__(
        self,
        rows: int,
        events: float,
        sample_rows: int,
        sample_events: int,
        widths: Sequence[Width],
        replays: Sequence[Simulation],
        horizon: int | None,
        confidence: float,
        notes: Sequence[Note],
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.rows, self.events = rows, round(events)
        self.sample_rows, self.sample_events = sample_rows, sample_events
        self.widths, self.replays = list(widths), list(replays)
        self.horizon, self.confidence = horizon, confidence
        self.notes = list(notes)
        self.provenance = provenance or {}

    def __getitem__(self, key: tuple[str, str] | str) -> Width:
        """The forecast of (policy, estimator). With a single policy, the estimator is enough."""
        policies = list(dict.fromkeys(width.policy for width in self.widths))
        policy, estimator = key if isinstance(key, tuple) else (policies[0] if len(policies) == 1 else "", key)
        for width in self.widths:
            if (width.policy, width.estimator) == (policy, estimator):
                return width
        known = [f"{width.policy}, {width.estimator}" for width in self.widths]
        raise KeyError(f"no width was forecast for {key!r}: {suggest(f'{policy}, {estimator}', known)}")

    def replay(self, policy: str | None = None) -> list[Simulation]:
        """The forecasts of one policy, for each target of the bias mass or quantile level."""
        names = list(dict.fromkeys(one.policy for one in self.replays))
        if policy is None and len(names) == 1:
            policy = names[0]
        if policy not in names:
            raise KeyError(f"no replay of {policy!r} was forecast: {suggest(str(policy), names)}")
        return [one for one in self.replays if one.policy == policy]

    def to_arrow(self) -> pa.Table:
        """One row for each width and each replay. `run` says which; columns of the other are null."""
        names = {"run": pa.string(), **_columns(Width), **_columns(Simulation)}
        rows = [{"run": "evaluate", **asdict(one)} for one in self.widths]
        rows += [{"run": "replay", **asdict(one)} for one in self.replays]
        return stamped(pa.Table.from_pylist(rows, schema=pa.schema(names)), self.provenance)

    def to_pandas(self) -> pd.DataFrame:
        """The table of `to_arrow` as a pandas frame."""
        return as_frame(self.to_arrow())

    def to_dict(self) -> dict[str, Any]:
        """The forecast as a dictionary, as in JSON."""
        return plain(
            {
                "schema": schema_name("plan"),
                "rows": self.rows,
                "events": self.events,
                "sample_rows": self.sample_rows,
                "sample_events": self.sample_events,
                "horizon": self.horizon,
                "confidence": self.confidence,
                "evaluate": [asdict(one) for one in self.widths],
                "replay": [asdict(one) for one in self.replays],
                "notes": self.notes,
                "provenance": self.provenance,
            }
        )

    def to_json(self, indent: int | None = 2) -> str:
        """The forecast as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent)

    @property
    def head(self) -> str:
        return (
            f"{self.events:,} events in {self.rows:,} rows, forecast from {self.sample_events:,} events in "
            f"{self.sample_rows:,} rows"
        )

    @printable
    def __repr__(self) -> str:
        lines = [f"Forecast of {self.head}"]
        lines += [f"  evaluate {w.policy!r} by {w.estimator}: {_evaluated(w, self.confidence)}" for w in self.widths]
        lines += [f"  replay {run.policy!r}, {run.level}: {_replayed(run)}" for run in self.replays]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _evaluated(one: Width, confidence: float) -> str:
    if math.isnan(one.width):
        return "no interval, or its width is unknown"
    error = "" if math.isnan(one.error) else f" (± {one.error:.0%})"
    said = f"{100 * confidence:.6g} % interval {one.width:.4g} wide{error}, half of it with {_rows(one.rows_to_halve)}"
    return f"{said}; exploration to halve it: {one.advice}"


def _replayed(run: Simulation) -> str:
    width = "" if math.isnan(run.width) else f", interval {run.width:.3g} wide"
    return (
        f"{run.replicates:.3g} replicates of {run.horizon:,} steps, {run.acceptance:.3%} accepted{width}; one takes "
        f"{_count(run.events_for_one)} events, ten take {_count(run.events_for_ten)}; longest horizon "
        f"{run.longest_for_one:,} for one, {run.longest_for_ten:,} for ten"
    )


def _rows(rows: float) -> str:
    return "an unknown number of rows" if math.isnan(rows) else f"{rows:,.0f} rows"


def _count(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else "no number of"


def _columns(kind: type) -> dict[str, pa.DataType]:
    kinds = {"str": pa.string(), "float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}
    return {field.name: kinds[str(field.type)] for field in fields(kind)}
