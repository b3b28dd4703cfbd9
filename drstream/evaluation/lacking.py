"""What an estimator lacks, as an error that says what to give. `Available.lacks` finds the key of the sentence."""

from __future__ import annotations

from collections.abc import Iterable

from drstream.errors import DrstreamError, parameter, phrase

PROPENSITIES, PARAMETERS = "propensities", "parameters"  # the latter: a limit of the weights
LIMITS = {
    "cap": "the largest weight",
    "floor": "the smallest propensity",
    "inflation": "a factor of the propensities",
    "lambda_": "how large a weight may be before it counts less",
}
OPENED = phrase(" where you open the log", "")


def _other(needed: str, logged: str) -> str:
    says = f"{parameter('positions')} says that those of this log are {logged}"
    return f"needs propensities {needed}, and {says}: use another estimator"


SENTENCES = {
    "model": f"needs a reward model: pass {parameter('model')}, e.g. "
    f"{phrase('drs.models.Ridge().fit(other_events)', 'a file of drstream fit')}, or "
    f"{parameter('model', option='model')}{phrase('drs.models.Ridge()', ' ridge')} with {parameter('crossfit', 5)}",
    "predictions": f"is r̂ alone, and with {parameter('crossfit', 'forward')} the first events have none: leave it out, "
    f"or choose a number of folds, e.g. {parameter('crossfit', 5)}",
    "all propensities": "needs the propensities of all actions, as logged: name their column of lists, or one column "
    f"for each action, with {parameter('propensities')}{OPENED}",
    "logger propensities": "needs the propensities of all loggers, as logged: name the column of the loggers and a "
    "column for each, e.g. "
    + phrase(
        'logger="who", logger_propensities={"a": "p_a", "b": "p_b"}, where you open the log',
        "--logger who --logger-propensities a=p_a,b=p_b",
    ),
    "segments": "weighs by the number of events that each logger has in the whole log, and a segment may have other "
    f"shares: leave out {parameter('by')}, or evaluate one segment alone, with {parameter('filter')}",
    "all rows": "counts the events of each logger, which is not known for a down-sampled log: use a log of all events, "
    "or other estimators",
    "one action": "is about events with one action, and this is a log of rankings: use one of those that "
    "docs/rankings.md names",
    "position propensities": "needs a propensity for each item, and this log has one for the whole list: name a column "
    f"of lists with {parameter('propensity')}, or use an estimator of whole lists",
    "position rewards": "needs a reward for each item, and this log has one for the whole list: name a column of lists "
    f"with {parameter('reward')}, or use an estimator of whole lists",
    "position predictions": "needs predicted rewards by position, as columns of lists: pass "
    f"{parameter('model')}, e.g. " + phrase('drs.models.Positions("q", {"new": "q_new"})', "positions:q,new=q_new"),
    "marginal propensities": _other("of an item at its position", "given the items above"),
    "conditional propensities": _other("given the items above", "of an item at its position"),
    "independent propensities": _other("of positions that were filled independently", "others"),
    "one set of actions": "weighs stretches of time by how a policy overlaps with the logging policy, which is known "
    f"for logs with one set of actions for all events only, and this log has {parameter('candidates')}: use other "
    "estimators",
    "embedding": f"needs the categories of actions: pass {parameter('embedding')}"
    + phrase(
        '{"tea": "drinks", "cake": "food"}, or the column of the log that has them', " with the column that has them"
    ),
    "distribution": "needs the logging policy's propensities of all actions, not of the logged one alone: name their "
    f"column of lists with {parameter('propensities')}{OPENED}, or give the logging policy, or a model of it, with "
    f"{parameter('propensity', option='propensity-model')}",
}


def lacks(estimator: str, what: str, no_propensities: str, limits: Iterable[str]) -> DrstreamError:
    """Return the error. `limits` are the parameters of the estimator's weight."""
    if what == PROPENSITIES:
        said = f"needs propensities, {no_propensities}"
    elif what == PARAMETERS:
        wanted = " or ".join(f"{parameter(name)} ({LIMITS.get(name, name)})" for name in limits)
        said = f"needs a limit: pass {wanted}"
    else:
        said = SENTENCES[what]
    return DrstreamError(f"estimator {estimator!r} {said}")
