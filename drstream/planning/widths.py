"""How wide the intervals of `evaluate` will be on the whole log, and what would halve them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drstream.errors import DrstreamError, parameter
from drstream.evaluation.evaluate import evaluate
from drstream.evaluation.plan import count_loggers, make_plan
from drstream.evaluation.request import Request
from drstream.evaluation.result import Evaluation
from drstream.intervals import methods
from drstream.models.binding import ModelInputs
from drstream.planning.exploration import UNKNOWN, Explored, explore, for_pass, influences
from drstream.planning.result import Width
from drstream.planning.sample import Sample
from drstream.policies.base import FixedPolicy
from drstream.results import Estimate
from drstream.running.execution import Workers

MOST_ERROR = 0.2  # relative standard error of a width, above which it is not told: some six events decide on it
BY_ROOT = ("normal",)  # its width falls with the square root of the number of events
MOST = 2.0**30  # times the rows of the log, where the search for half of the width ends


def check_intervals(interval: str | Sequence[str] | None) -> None:
    """Raise an error if a method's width cannot be told from a sample."""
    for method in [] if interval is None else methods.choose(interval):
        if {"buckets", "stretches"} & method.needs:
            known = [m.name for m in methods.ALL.values() if not {"buckets", "stretches"} & m.needs]
            raise DrstreamError(
                f"{parameter('interval', method.name)}: its width on the whole log cannot be told from a sample; "
                f"choose {', '.join(map(repr, known))}"
            )


def forecast_widths(
    sample: Sample, policies: dict[str, FixedPolicy], inputs: ModelInputs, workers: Workers, options: dict[str, Any]
) -> tuple[list[Width], Evaluation]:
    """Forecast the intervals of fixed policies. Also return the evaluation of the sample.

    options  Other parameters of `evaluate`.
    """
    models = {name: getattr(inputs, name) for name in ("model", "propensity", "crossfit", "clamp")}
    result = evaluate(
        sample.log, policies, **models, **options, fold_seed=inputs.seed, threads=workers.threads, progress=False
    )
    ratio = sample.whole_events(result.n) / result.n
    whole = result.scaled(ratio)
    known = _explored(sample, policies, inputs, workers, options, result)
    sampled_down = sample.log.roles.sample_rate is not None  # then the error of a width is unknown
    found = []
    for policy in result.policies:
        for name in result.estimators:
            estimate, about = whole[policy, name], known.get((policy, name), UNKNOWN)
            told = sampled_down or about.error <= MOST_ERROR
            width = estimate.high - estimate.low if told else math.nan
            rows = _rows_to_halve(result, policy, name, ratio, width) * sample.whole_rows / ratio
            found.append(
                Width(
                    policy=policy,
                    estimator=name,
                    value=estimate.value,
                    width=width,
                    error=about.error,
                    method=estimate.method,
                    rows_to_halve=rows,
                    exploration=about.share if width == width else math.nan,
                    best_exploration=about.best_share if width == width else math.nan,
                    narrowest=width * about.best,
                )
            )
    return found, whole


def _rows_to_halve(result: Evaluation, policy: str, estimator: str, ratio: float, width: float) -> float:
    """How many times the events of the sample it takes for an interval of half this width; NaN if it is unknown."""
    if not width > 0:
        return math.nan

    def result_of(times: float) -> Estimate:
        return result.scaled(times)[policy, estimator]

    def wide(times: float) -> bool:
        found = result_of(times)
        return found.high - found.low > width / 2

    if result_of(ratio).method in BY_ROOT and result_of(4 * ratio).method in BY_ROOT:
        return 4 * ratio
    low, high = ratio, 2 * ratio
    while wide(high):
        low, high = high, 2 * high
        if high > MOST * ratio:
            return math.nan
    while high - low > 0.005 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


def _explored(
    sample: Sample,
    policies: dict[str, FixedPolicy],
    inputs: ModelInputs,
    workers: Workers,
    options: dict[str, Any],
    result: Evaluation,
) -> dict[tuple[str, str], Explored]:
    """What the sample says about the variance with other logging policies; nothing for a down-sampled log."""
    if sample.log.roles.sample_rate is not None:
        return {}
    chosen = list(result.chosen)
    limits = {name: options[name] for name in ("cap", "floor", "lambda_")}
    of_rewards = dict.fromkeys(sample.log.roles.rewards, inputs)
    request = Request(policies, of_rewards, for_pass(chosen), limits, embedding=options["embedding"])
    plan = make_plan(request, sample.log, workers)
    plan = replace(plan, reader=count_loggers(plan.reader, sample.log, workers))
    return explore(sample.log, plan, influences(plan, result.statistics, chosen), workers)
