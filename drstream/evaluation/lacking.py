"""What an estimator lacks, as an error that says what to give. `Available.lacks` finds the key of the message."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drstream.errors import DrstreamError, parameter, phrase


def _no_model(estimator: str, _: str) -> DrstreamError:
    model = phrase("drs.models.Ridge().fit(other_events)", "a file of drstream fit")
    unfitted = f"{parameter('model', option='model')}{phrase('drs.models.Ridge()', ' ridge')}"
    return DrstreamError(
        f"estimator {estimator!r} needs a reward model: pass {parameter('model')}, e.g. {model}, or "
        f"{unfitted} with {parameter('crossfit', 5)}"
    )


def _no_predictions(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} is r̂ alone, and with {parameter('crossfit', 'forward')} the first events have "
        f"none: leave it out, or choose a number of folds, e.g. {parameter('crossfit', 5)}"
    )


def _no_propensities(estimator: str, why: str) -> DrstreamError:
    return DrstreamError(f"estimator {estimator!r} needs propensities, {why}")


def _no_list_of_propensities(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} needs the propensities of all actions, as logged: name their column of lists, "
        f"or one column for each action, with {parameter('propensities')}{phrase(' where you open the log', '')}"
    )


def _no_logger_propensities(estimator: str, _: str) -> DrstreamError:
    columns = phrase(
        'logger="who", logger_propensities={"a": "p_a", "b": "p_b"}, where you open the log',
        "--logger who --logger-propensities a=p_a,b=p_b",
    )
    return DrstreamError(
        f"estimator {estimator!r} needs the propensities of all loggers, as logged: name the column of the "
        f"loggers and a column for each, e.g. {columns}"
    )


def _no_balance_by_segment(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} weighs by the number of events that each logger has in the whole log, and a "
        f"segment may have other shares: leave out {parameter('by')}, or evaluate one segment alone, with "
        f"{parameter('filter')}"
    )


def _no_balance_of_a_sample(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} counts the events of each logger, which is not known for a down-sampled log: "
        "use a log of all events, or other estimators"
    )


def _one_action(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} is about events with one action, and this is a log of rankings: use one of those "
        "that docs/rankings.md names"
    )


def _no_position_propensities(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} needs a propensity for each item, and this log has one for the whole list: name a "
        f"column of lists with {parameter('propensity')}, or use an estimator of whole lists"
    )


def _no_position_rewards(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} needs a reward for each item, and this log has one for the whole list: name a column "
        f"of lists with {parameter('reward')}, or use an estimator of whole lists"
    )


def _no_position_predictions(estimator: str, _: str) -> DrstreamError:
    model = phrase('drs.models.Positions("q", {"new": "q_new"})', "positions:q,new=q_new")
    return DrstreamError(
        f"estimator {estimator!r} needs predicted rewards by position, as columns of lists: pass "
        f"{parameter('model')}, e.g. {model}"
    )


def _other_propensities(needed: str, logged: str) -> Callable[[str, str], DrstreamError]:
    def error(estimator: str, _: str) -> DrstreamError:
        return DrstreamError(
            f"estimator {estimator!r} needs propensities {needed}, and {parameter('positions')} says that those of "
            f"this log are {logged}: use another estimator"
        )

    return error


def _no_set_of_actions(estimator: str, _: str) -> DrstreamError:
    return DrstreamError(
        f"estimator {estimator!r} weighs stretches of time by how a policy overlaps with the logging policy, which is "
        f"known for logs with one set of actions for all events only, and this log has {parameter('candidates')}: use "
        "other estimators"
    )


def _no_embedding(estimator: str, _: str) -> DrstreamError:
    mapping = phrase(
        '{"tea": "drinks", "cake": "food"}, or the column of the log that has them', " with the column that has them"
    )
    return DrstreamError(
        f"estimator {estimator!r} needs the categories of actions: pass {parameter('embedding')}{mapping}"
    )


def _no_distribution(estimator: str, _: str) -> DrstreamError:
    where = phrase(" where you open the log", "")
    return DrstreamError(
        f"estimator {estimator!r} needs the logging policy's propensities of all actions, not of the logged one alone: "
        f"name their column of lists with {parameter('propensities')}{where}, or give the logging policy, or a model "
        f"of it, with {parameter('propensity', option='propensity-model')}"
    )


PARAMETERS = "parameters"  # what is lacking: a limit of the weights
LIMITS = {
    "cap": "the largest weight",
    "floor": "the smallest propensity",
    "inflation": "a factor of the propensities",
    "lambda_": "how large a weight may be before it counts less",
}


def no_parameters(estimator: str, parameters: Iterable[str]) -> DrstreamError:
    wanted = " or ".join(f"{parameter(name)} ({LIMITS.get(name, name)})" for name in parameters)
    return DrstreamError(f"estimator {estimator!r} needs a limit: pass {wanted}")


MESSAGES: dict[str, Callable[[str, str], DrstreamError]] = {
    "model": _no_model,
    "predictions": _no_predictions,
    "propensities": _no_propensities,
    "all propensities": _no_list_of_propensities,
    "logger propensities": _no_logger_propensities,
    "segments": _no_balance_by_segment,
    "all rows": _no_balance_of_a_sample,
    "one action": _one_action,
    "position propensities": _no_position_propensities,
    "position rewards": _no_position_rewards,
    "position predictions": _no_position_predictions,
    "marginal propensities": _other_propensities("of an item at its position", "given the items above"),
    "conditional propensities": _other_propensities("given the items above", "of an item at its position"),
    "independent propensities": _other_propensities("of positions that were filled independently", "others"),
    "one set of actions": _no_set_of_actions,
    "embedding": _no_embedding,
    "distribution": _no_distribution,
}
