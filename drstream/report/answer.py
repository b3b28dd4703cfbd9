"""The answer in one sentence. It rests on paired differences to the logging policy, and on the findings.

A finding of level "stop", or a difference without an interval, means that the log cannot tell. With several policies, a
policy is said to be better only if its band says so, which holds for all of them at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drstream.errors import DrstreamError
from drstream.evaluation.choosing import Best
from drstream.evaluation.result import Comparison, Evaluation
from drstream.findings import LOOK
from drstream.report.numbers import count, estimate, level, percent
from drstream.results import Estimate

BETTER, WORSE, UNSURE, UNKNOWN = "better", "worse", "unsure", "unknown"
TOLD = "told"  # the kind of an answer that compares nothing
WORDS = {BETTER: "better", WORSE: "worse", UNSURE: "no difference told", UNKNOWN: "cannot tell"}
AWAY = 0.05  # largest relative standard error of a mean reward of which differences are given in percent
DEFAULT_NAME = "policy"  # of a policy that was given without a name
LONGEST = 60  # characters of a name in a sentence


@dataclass(frozen=True)
class Verdict:
    """What a log tells about one policy.

    kind      "better" or "worse" than the logging policy, "unsure" if no difference can be told, "unknown" if the log
              cannot tell.
    sentence  The same in words.
    brief     The same for a list of policies: the difference, or why the log cannot tell.
    gain      The difference to the logging policy.
    """

    kind: str
    policy: str
    sentence: str
    brief: str
    gain: Estimate


@dataclass(frozen=True)
class Answer:
    """The answer of a result: its kind, one sentence, and what should be said beside it."""

    kind: str
    sentence: str
    beside: Sequence[str] = ()
    verdicts: Sequence[Verdict] = ()


def shortened(name: str) -> str:
    """Return a name that fits on a line.

    >>> shortened("a" * 100)[-3:]
    'aa…'
    """
    name = str(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def named(name: str) -> str:
    """Return a name for a sentence. One of several words is quoted.

    >>> named("new"), named("new model"), named("policy")
    ('new', '“new model”', 'the policy')
    """
    if name == DEFAULT_NAME:
        return "the policy"
    return f"“{shortened(name)}”" if len(str(name).split()) > 1 else shortened(name)


def first_sentence(message: str) -> str:
    """Return the first sentence of a message, without its full stop.

    >>> first_sentence("The mean is 0.5 ± 0.1. It should be 1.")
    'The mean is 0.5 ± 0.1'
    """
    return re.split(r"\.\s+(?=[A-Z])", message.strip(), maxsplit=1)[0].rstrip(".")


def start(sentence: str) -> str:
    """Return a sentence with a capital letter, unless it begins with a name that the user gave."""
    return f"The{sentence[3:]}" if sentence.startswith("the policy ") else sentence


def cannot_tell(what: str, why: str) -> str:
    return f"This log cannot tell {what}: {why}."


# Evaluations


def is_away_from_zero(base: Estimate) -> bool:
    """Whether a mean reward is so far above 0 that differences can be given in percent of it."""
    return base.value > 0 and base.stderr <= AWAY * base.value


def gain_text(gain: Estimate, base: Estimate, *, signed: bool = False) -> str:
    """Return a difference with its interval: in percent of the log's mean reward if that is well away from 0."""
    sign = -1.0 if gain.value < 0 and not signed else 1.0
    low, high = sorted((sign * gain.low, sign * gain.high))
    value = sign * gain.value
    plus = "+" if signed and value > 0 else ""
    if not is_away_from_zero(base):
        return estimate(value, low, high, signed=signed)
    wide = (high - low) / base.value
    said = [percent(x / base.value, wide) for x in (value, low, high)]
    return f"{plus}{said[0]} % [{said[1]}, {said[2]}]"


def of_policy(result: Evaluation, compared: Comparison) -> Verdict:
    """What the log tells about a policy."""
    policy, gain, name, base = compared.policy, compared.gain, named(compared.policy), result.baseline
    why = ""
    if compared.stops:
        why = first_sentence(compared.stops[0].message)
    elif not math.isfinite(gain.low) or not math.isfinite(gain.high):
        why = f"the difference to the logging policy by {compared.estimator} has no interval"
    if why:
        return Verdict(UNKNOWN, policy, cannot_tell(f"how good {name} is", why), f"{why}.", gain)
    text, told, brief = gain_text(gain, base), _told(result), gain_text(gain, base, signed=True)
    if gain.low <= 0 <= gain.high:
        sentence = f"No difference between {name} and the logging policy can be told: {brief} {told}."
        return Verdict(UNSURE, policy, sentence, brief, gain)
    kind, does = (BETTER, "beats") if gain.low > 0 else (WORSE, "does worse than")
    said, many = f"{name} {does} the logging policy by {text} {told}", len(result.policies)
    if not (compared.band[0] > 0 or compared.band[1] < 0):
        chance = f"one of {many} policies may do so by chance"
        sentence = start(f"{said}, but {chance}: no difference is told.")
        return Verdict(UNSURE, policy, sentence, f"{brief}; but {chance}", gain)
    return Verdict(kind, policy, start(f"{said}."), brief, gain)


def _told(result: Evaluation) -> str:
    return f"({level(result.confidence)} interval, {count(result.n)} {'lists' if result.lists else 'events'})"


def of_evaluation(result: Evaluation) -> Answer:
    """The answer of an evaluation, about one reward."""
    verdicts = [of_policy(result, compared) for compared in result.comparisons()]
    beside, many = _beside(result), len(verdicts)
    if many == 1:
        return Answer(verdicts[0].kind, verdicts[0].sentence, beside, verdicts)
    best = result.best()
    beside = [*_of_best(best, verdicts), *beside]
    ordered = sorted(verdicts, key=lambda v: (v.kind == UNKNOWN, -_or_least(v.gain.value)))
    better = [verdict for verdict in ordered if verdict.kind == BETTER]
    if better:
        sentence, more = _of_better(result, better, best, many)
        return Answer(BETTER, sentence, [*more, *beside], ordered)
    if all(verdict.kind == UNKNOWN for verdict in verdicts):
        why = verdicts[0].brief.rstrip(".")
        return Answer(UNKNOWN, cannot_tell(f"how good any of {many} policies is", why), beside, ordered)
    if all(verdict.kind == WORSE for verdict in verdicts):
        return Answer(
            WORSE, f"{_all(many)} policies do worse than the logging policy {_told(result)}.", beside, ordered
        )
    sentence = f"None of {many} policies is shown to beat the logging policy {_told(result)}."
    return Answer(UNSURE, sentence, beside, ordered)


def _of_better(result: Evaluation, better: Sequence[Verdict], best: Best, many: int) -> tuple[str, list[str]]:
    """The sentence about several policies of which some are better, and what to say beside it."""
    first = better[0]
    gain = gain_text(best.gain if best.policy == first.policy else first.gain, result.baseline)
    if len(better) == 1:
        return f"1 of {many} policies beats the logging policy: {named(first.policy)} by {gain} {_told(result)}.", []
    some = _all(many) if len(better) == many else f"{len(better)} of {many}"
    highest = f"{named(first.policy)} has the highest estimate, {gain} above it"
    beside = [_against_second(result, first, better[1])]
    return f"{some} policies beat the logging policy; {highest} {_told(result)}.", beside


def _of_best(best: Best, verdicts: Sequence[Verdict]) -> list[str]:
    """What is said about the best of several policies, if the log can tell its value."""
    if math.isnan(best.low) or any(v.kind == UNKNOWN for v in verdicts if v.policy == best.policy):
        return []
    said = f"{named(best.policy)}, {estimate(best.value, best.low, best.high)} by {best.estimator}"
    return [f"The best: {said}, valid after choosing it among {best.among}."]


def _all(many: int) -> str:
    return "Both" if many == 2 else f"All {many}"


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _against_second(result: Evaluation, best: Verdict, second: Verdict) -> str:
    """How the best policy compares with the next one."""
    names = named(best.policy), named(second.policy)
    try:
        found = result.difference(best.policy, second.policy)
    except DrstreamError:  # covariances between policies were not gathered
        return f"Whether {names[0]} is better than {names[1]} was not computed."
    if not found.low > 0:
        return f"No difference between {names[0]} and {names[1]}, the next best, can be told."
    return f"{names[0]} also beats {names[1]}, the next best, by {gain_text(found, result.baseline)}."


def _beside(result: Evaluation) -> list[str]:
    base, per = result.baseline, "a list" if result.lists else "an event"
    said = f"The logging policy earned {estimate(base.value, base.low, base.high)} {per}"
    found = [f"{said}. Percentages are of that mean." if is_away_from_zero(base) else f"{said}."]
    looks = sum(finding.level == LOOK for finding in result.findings)
    if looks:
        found.append(f"Read {'the finding' if looks == 1 else f'{looks} findings'} below before you use these numbers.")
    return found
