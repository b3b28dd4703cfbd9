"""The answer in one sentence. It rests on paired differences to the logging policy, and on the findings.

A finding of level "stop", or a difference without an interval, means that the log cannot tell. With several policies, a
policy is said to be better only if its p-value allows for all of them (Bonferroni).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drstream.errors import DrstreamError
from drstream.evaluation.checks import findings_of
from drstream.evaluation.result import Evaluation
from drstream.findings import LOOK, STOP, Finding
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
    gain      The difference to the logging policy.
    """

    kind: str
    policy: str
    sentence: str
    gain: Estimate


@dataclass(frozen=True)
class Answer:
    """The answer of a result: its kind, one sentence, and what should be said beside it."""

    kind: str
    sentence: str
    beside: Sequence[str] = ()
    verdicts: Sequence[Verdict] = ()


def named(name: str) -> str:
    """Return a name for a sentence.

    >>> named("a" * 100)[-3:]
    'aa…'
    """
    name = "the policy" if name == DEFAULT_NAME else str(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


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


def stops(result: Evaluation, policy: str, estimator: str) -> list[Finding]:
    """Findings that say not to use an estimate. Those about weights that its estimator does not use are left out."""
    j, form = result._find(policy, estimator)
    own = result._facts_of(j, form)
    about_own = {finding.message for finding in findings_of(own)}
    others = {f.message for facts in result._facts[j].values() if facts is not own for f in findings_of(facts)}
    found = [f for f in result.findings if f.level == STOP and f.policy in (None, policy)]
    return [finding for finding in found if finding.message not in others - about_own]


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


def of_policy(result: Evaluation, policy: str) -> Verdict:
    """What the log tells about a policy, by the estimator that policies are compared by."""
    estimator, name = result.headline, named(policy)
    gain, base = result.difference(policy), result.baseline
    if found := stops(result, policy, estimator):
        return Verdict(UNKNOWN, policy, cannot_tell(f"how good {name} is", first_sentence(found[0].message)), gain)
    if not math.isfinite(gain.low) or not math.isfinite(gain.high):
        why = f"the difference to the logging policy by {estimator} has no interval"
        return Verdict(UNKNOWN, policy, cannot_tell(f"how good {name} is", why), gain)
    told = f"({level(result.confidence)} interval, {count(result.n)} {'lists' if result.lists else 'events'})"
    if gain.low <= 0 <= gain.high:
        text = gain_text(gain, base, signed=True)
        sentence = f"No difference between {name} and the logging policy can be told: {text} {told}."
        return Verdict(UNSURE, policy, sentence, gain)
    kind, does = (BETTER, "beats") if gain.low > 0 else (WORSE, "does worse than")
    by = f"the logging policy by {gain_text(gain, base)} {told}"
    compared = len(result.policies)
    if compared > 1 and not result._p_value(policy, estimator) * compared <= 1 - result.confidence:
        sentence = f"{name} {does} {by}, but one of {compared} policies may do so by chance: no difference is told."
        return Verdict(UNSURE, policy, sentence, gain)
    return Verdict(kind, policy, start(f"{name} {does} {by}."), gain)


def of_evaluation(result: Evaluation) -> Answer:
    """The answer of an evaluation, about one reward."""
    verdicts = [of_policy(result, policy) for policy in result.policies]
    beside = _beside(result)
    if len(verdicts) == 1:
        return Answer(verdicts[0].kind, verdicts[0].sentence, beside, verdicts)
    ordered = sorted(verdicts, key=lambda v: (v.kind == UNKNOWN, -_or_least(v.gain.value)))
    better = [verdict for verdict in ordered if verdict.kind == BETTER]
    told = f"({level(result.confidence)} interval, {count(result.n)} {'lists' if result.lists else 'events'})"
    number_of = len(verdicts)
    if better:
        best = better[0]
        most = f"{named(best.policy)} by {gain_text(best.gain, result.baseline)}{' the most' * (len(better) > 1)}"
        some = "all" if len(better) == number_of else f"{len(better)} of {number_of}"
        beat = "beat" if len(better) > 1 else "beats"
        sentence = f"{some.capitalize()} policies {beat} the logging policy: {most} {told}."
        if len(better) > 1:
            beside = [_against_second(result, best, better[1]), *beside]
        return Answer(BETTER, sentence, beside, ordered)
    if all(verdict.kind == UNKNOWN for verdict in verdicts):
        reason = verdicts[0].sentence.partition(": ")[2].rstrip(".")
        return Answer(UNKNOWN, cannot_tell(f"how good any of {number_of} policies is", reason), beside, ordered)
    kinds = {verdict.kind for verdict in verdicts}
    kind = WORSE if kinds == {WORSE} else UNSURE
    does = (
        "All {} policies do worse than the logging policy" if kind == WORSE else "None of {} policies is shown to beat"
    )
    sentence = does.format(number_of) + ("" if kind == WORSE else " the logging policy")
    return Answer(kind, f"{sentence} {told}.", beside, ordered)


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
