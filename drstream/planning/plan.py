"""The planner: what `evaluate` and `replay` will tell on the whole log, and how many events it takes, from a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drstream.errors import DrstreamError, LogError, PolicyError, parameter
from drstream.evaluation import estimators as registry
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.result import Evaluation
from drstream.findings import STOP, Finding, distinct, gathered
from drstream.intervals import z_score
from drstream.log import as_log
from drstream.models.binding import ModelInputs
from drstream.models.crossfit import to_be_fitted
from drstream.parameters import whole
from drstream.planning.result import Forecast, Simulation, Width
from drstream.planning.sample import check_share, take_sample
from drstream.planning.simulation import simulate
from drstream.planning.widths import check_intervals, forecast_widths
from drstream.policies.base import FixedPolicy
from drstream.policies.online import Fixed, as_online
from drstream.provenance import provenance
from drstream.replaying.options import LONGEST, Levels, ReplayOptions, listed
from drstream.results import Note
from drstream.running.execution import Workers

HORIZON = 1000  # at which policies that learn are simulated if no horizon is given
FEW_EVENTS = 1000  # of a sample, below which rare events are likely to be missing
WIDE_ERROR = 0.1  # relative standard error of a width, above which a note is made


def plan(
    log: Any,
    policies: Any,
    model: Any = None,
    *,
    horizon: int | None = None,
    sample: float | None = None,
    estimators: Sequence[str | Estimator] | str | None = None,
    propensity: Any = None,
    crossfit: int | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    cap: float | str | None = None,
    floor: float | str | None = None,
    lambda_: float | str | None = None,
    embedding: Any = None,
    interval: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    reward_range: Sequence[float] | None = None,
    max_weight_bound: float | None = None,
    bias: float | str | Sequence[float] = "auto",
    q: float | Sequence[float] | None = None,
    c_max: float | None = None,
    seed: int = 0,
    on_bad_row: str | None = None,
    threads: int | None = None,
) -> Forecast:
    """Say, from a sample of the log, how wide intervals will be on all of it, and how many replicates a replay gives.

    policies    A mapping of names to policies, or one policy. Fixed policies are those of `evaluate`. Policies that
                learn are those of `replay`.
    horizon     T: all policies will be replayed for this many steps. Without it, only policies that learn are planned
                for a replay, at 1,000 steps.
    sample      Share of the rows to look at. By default 2 % of them, but at least 10,000 rows and at most 500,000.
    bias, q, c_max, seed
                As in `replay`. By default, each target of the bias mass that bias="auto" tries.

    The other parameters are those of `evaluate` and `replay`. The log must tell its number of rows: a stream cannot be
    planned.

    >>> import drstream as drs
    >>> table = drs.synth.World(n_actions=3, n_features=2).table(50_000)
    >>> forecast = drs.plan(drs.Log(table), drs.policies.Constant(1), estimators="ips")
    >>> width = forecast["ips"].width
    >>> result = drs.evaluate(table, drs.policies.Constant(1), estimators="ips")["ips"]
    >>> bool(abs(width / (result.high - result.low) - 1) < 0.2)
    True
    """
    given = dict(locals())
    share = check_share(sample)
    if horizon is not None:
        horizon = whole("horizon", horizon, 1, LONGEST, error=DrstreamError)
    z_score(confidence)
    check_intervals(interval)
    for name, limit in (("cap", cap), ("floor", floor), ("lambda_", lambda_)):
        if limit == registry.AUTO:
            raise DrstreamError(
                f"{parameter(name, limit)}: which limit the whole log will choose cannot be told from a sample. Give a "
                "number"
            )
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    log = log.for_reward(log.roles.reward) if log.roles.more_rewards else log
    log.check_cluster(cluster)
    fixed, learning = _sorted(policies)
    replayed = {**fixed, **learning} if horizon is not None else learning
    levels = Levels.of("dr-ns", bias, q, c_max)
    steps = HORIZON if horizon is None else horizon
    options = ReplayOptions("dr-ns", steps, levels, listed("seed", seed))
    options.check()
    workers = Workers.of(threads)
    inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
    if replayed and log.roles.sample_rate is not None:
        raise LogError(
            f"replay needs every event, and this log is down-sampled: {parameter('sample_rate', log.roles.sample_rate)}"
        )
    taken = take_sample(log, share)
    widths: list[Width] = []
    runs: list[Simulation] = []
    notes: list[Note] = []
    events = 0
    if fixed:
        how: dict[str, Any] = {
            "estimators": estimators,
            "cap": cap,
            "floor": floor,
            "lambda_": lambda_,
            "embedding": embedding,
            "interval": interval,
        }
        how |= {"confidence": confidence, "reward_range": reward_range, "max_weight_bound": max_weight_bound}
        without = replace(inputs, cluster=None)
        with gathered() as doubts:
            widths, result = forecast_widths(taken, fixed, without, workers, how)
        events = round(result.n * taken.rows / taken.whole_rows)
        if cluster is not None:
            widths = [_unknown(width) for width in widths]
        notes += [*map(Note.of, distinct(doubts)), *_about_widths(result, doubts, widths, cluster)]
    if replayed:
        with gathered() as doubts:
            runs, counted = simulate(
                taken, replayed, inputs.needed(model=True, propensity=True), options, workers, confidence
            )
        told = {str(note) for note in notes}
        notes += [Note.of(one) for one in distinct(doubts) if one.message not in told]
        events = events or counted
        notes += _about_replays(runs, horizon, counted)
    if to_be_fitted(model) or to_be_fitted(propensity):
        text = "models were fitted on the sample alone: fitted on more events, they may give narrower intervals"
        notes.append(Note(text, "models"))
    return Forecast(
        rows=taken.whole_rows,
        events=taken.whole_events(events),
        sample_rows=taken.rows,
        sample_events=events,
        widths=widths,
        replays=runs,
        horizon=steps if replayed else None,
        confidence=confidence,
        notes=notes,
        provenance=provenance(plan, given, log, events),
    )


def _sorted(policies: Any) -> tuple[dict[str, FixedPolicy], dict[str, Any]]:
    """The fixed policies, and those that learn."""
    named = policies if isinstance(policies, Mapping) else {"policy": policies}
    found = {str(name): as_online(policy, str(name)) for name, policy in named.items()}
    if len(found) < len(named):
        raise PolicyError(f"two policies have the same name: {', '.join(map(repr, named))}")
    if not found:
        raise PolicyError("there is no policy to plan for: pass a policy, or a mapping of names to policies")
    fixed = {name: policy.policy for name, policy in found.items() if isinstance(policy, Fixed)}
    return fixed, {name: policy for name, policy in found.items() if name not in fixed}


def _unknown(width: Width) -> Width:
    nothing = dict.fromkeys(
        ("width", "error", "rows_to_halve", "exploration", "narrowest", "best_exploration"), math.nan
    )
    return replace(width, **nothing, method="")  # type: ignore[arg-type]


def _about_widths(
    result: Evaluation, doubts: Sequence[Finding], widths: Sequence[Width], cluster: str | None
) -> list[Note]:
    told = {doubt.message for doubt in doubts}
    stops = [finding for finding in result.findings if finding.level == STOP and finding.message not in told]
    notes = [Note(str(finding), finding.check, finding.level) for finding in stops]
    if cluster is not None:
        text = (
            f"{parameter('cluster', cluster)}: a sample of rows does not tell how much events of a cluster depend on "
            "each other, so widths are unknown. Evaluate one part of a split by cluster instead, and scale its widths"
        )
        return [*notes, Note(text, "cluster")]
    unsure = [f"{w.policy} by {w.estimator} (± {w.error:.0%})" for w in widths if w.error > WIDE_ERROR]
    if unsure:
        text = (
            f"few events of the sample decide on the width of {', '.join(unsure)}: take a larger sample. Events that "
            "the sample lacks may make it wider still"
        )
        notes.append(Note(text, "few events"))
    return notes


def _about_replays(runs: Sequence[Simulation], horizon: int | None, events: int) -> list[Note]:
    notes = []
    if horizon is None:
        text = f"policies that learn were simulated for {HORIZON:,} steps, as no horizon was given"
        notes.append(Note(text, "horizon"))
    passes = max(run.passes for run in runs)
    if passes > 1:
        text = (
            f"replicates were counted in simulations that went through the sample up to {passes:.3g} times, with other "
            "random numbers each time"
        )
        notes.append(Note(text, "passes"))
    if events < FEW_EVENTS:
        text = f"the sample has only {events:,} events, so rates of acceptance are rough: take a larger sample"
        notes.append(Note(text, "few events"))
    unsure = dict.fromkeys(run.policy for run in runs if run.error > WIDE_ERROR)
    if unsure:
        text = (
            f"the sample does not tell well how many events of {', '.join(unsure)} are accepted: its halves differ, or "
            "it lacks rare events with large weights, which would lower the number of replicates. Take a larger sample"
        )
        notes.append(Note(text, "few events"))
    for run in runs:
        if run.limited:
            how = "no replicate was complete" if not run.measured else f"only {run.measured:,} replicates were complete"
            text = f"{run.policy}, {run.level}: {how} when the simulation reached its limit, so its rate is rough"
            notes.append(Note(text, "limit"))
    return notes
