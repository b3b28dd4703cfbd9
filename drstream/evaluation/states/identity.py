"""What a state is about: digests of policies, models, parameters and columns. States that are merged agree in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from drstream.errors import DrstreamError, StateError, parameter, phrase, without_secrets
from drstream.evaluation.header import Header
from drstream.evaluation.plan import Plan
from drstream.evaluation.request import Request
from drstream.evaluation.states.header import header_to_dict, own_estimators
from drstream.evaluation.states.state import State
from drstream.log import Log, Reader
from drstream.provenance import describe
from drstream.states.checkpoint import check_path
from drstream.states.identity import Digest, about_columns, difference, named, shown

PARAMETERS = ("cap", "floor", "inflation", "lambda_", "clamp", "embedding", "precision", "crossfit", "fold_seed")


def identity_of(request: Request, log: Log, plans: Sequence[Plan], headers: Sequence[Header]) -> dict[str, Any]:
    """What a pass is about, as JSON."""
    models = {}
    for reward, one in request.inputs.items():
        users = {"reward model": one.model, "propensity model": one.propensity, "second reward model": one.second}
        models[reward] = {role: Digest.of(user) for role, user in users.items() if user is not None}
    return {
        "policies": {name: Digest.of(policy) for name, policy in request.policies.items()},
        "log": about_columns(log, plans[0].reader.encoding),
        "models": models,
        "parameters": {name: _parameter(request.given[name]) for name in PARAMETERS if request.given[name] is not None},
        "rewards": {header.reward: header_to_dict(header) for header in headers},
        "blocks": [[plan.block_rows, plan.path] for plan in plans],
    }


def state_of(request: Request, log: Log, plans: Sequence[Plan], headers: Sequence[Header], reader: Reader) -> State:
    """Return a state without sums, of a pass that is about to begin."""
    from drstream import __version__

    identity = identity_of(request, log, plans, headers)
    if any(one.waits for one in request.inputs.values()) or reader.loggers is not None:  # they depend on the whole log
        found = [[plan.job.models, plan.job.overlaps] for plan in plans]
        identity["fitted"] = Digest.of([found, None if reader.loggers is None else reader.loggers.shares])["sha256"]
    others = {header.reward: header.others for header in headers}
    identity = json.loads(json.dumps(identity))  # as a file gives it back
    return State(identity, without_secrets(log.source.name), log.source_rows, others, __version__)


def keeping(state: Any, log: Log, request: Request) -> bool:
    """Return whether a state is wanted. Raise an error if the pass has none that lasts."""
    if state is None:
        return False
    if not isinstance(state, State):
        check_path(state, "state", log)
    refuse_unlasting(log, request)
    return True


def _parameter(value: Any) -> Any:
    return describe(value) if isinstance(value, bool | int | float | str | tuple | list) else Digest.of(value)


def doubts(identity: Mapping[str, Any]) -> dict[str | None, list[str]]:
    """What nobody can vouch for, by policy; None for models and parameters."""
    found: dict[str | None, list[str]] = {
        name: one["doubtful"] for name, one in identity["policies"].items() if "doubtful" in one
    }
    others = [one for models in identity["models"].values() for one in models.values()]
    others += [one for one in identity["parameters"].values() if isinstance(one, dict)]
    unknown = sorted({text for one in others for text in one.get("doubtful", ())})
    return {**found, None: unknown} if unknown else found


def refuse_difference(one: Any, other: Any, names: tuple[str, str]) -> None:
    """Raise an error that names the first difference of two identities, if there is one."""
    found = difference(one, other)
    if found is not None:
        where, first, second = found
        raise StateError(
            f"{names[0]} and {names[1]} cannot be merged: {named(where)} is {shown(first)} in the first, and "
            f"{shown(second)} in the second. {_advice(where)}"
        )


def _advice(where: tuple[str, ...]) -> str:
    if where[-1] in ("labels", "actions"):
        return f"Give all actions, with {parameter('actions')}, when you open each log"
    if where[:2] == ("log", "categories"):
        return f"Give all categories, with {parameter('categorical')}, when you open each log"
    if where[-1] == "positions" or "columns" in where or "groups" in where:
        return "States must be about the same sums: give the same estimators, to logs with lists of the same length"
    return "Evaluate all logs in the same way"


def refuse_unlasting(log: Log, request: Request) -> None:
    """Raise an error before the pass if its state could not be merged with others to what one pass would give."""
    if own := own_estimators(request.chosen, ranking=bool(log.roles.ranking)):
        raise _cannot(f"estimator {own[0]!r} is yours, and a file holds no functions: leave it out")
    if any(request.needed(one).waits for one in request.inputs.values()):
        raise _cannot(
            "models would be fitted on this log alone, and one pass over several logs would fit others: fit the models "
            "before, on earlier events, and pass them fitted"
        )
    for split in log.origin.splits:
        if split.cluster is None:
            raise _cannot(
                "a split by row numbers has other rows in a longer log: split by a column (cluster), or not at all"
                f"{phrase('', '. A model is fitted on such a split: fit it before, drstream fit, on another log')}"
            )
    if log.origin.stop is not None:
        raise _cannot("the rows before a certain one are others in a longer log: take the whole log")
    for estimator in request.chosen:
        weight = estimator.weight
        if weight is not None and weight.balanced:
            raise _cannot(
                f"the weights of {estimator.name!r} depend on the shares of loggers in all logs: leave it out"
            )
        if weight is not None and weight.power:
            raise _cannot(f"the weights of {estimator.name!r} depend on all earlier rows: leave it out")
    if request.stretches:
        raise _cannot("'anytime' intervals count rows from the first one of all logs: choose another method")
    for reward in log.roles.rewards:
        first = log.for_reward(reward)
        if first.pivot and not first.same_rewards:
            raise _cannot(
                f"rewards in {reward!r} are about {first.pivot:.6g}, with a spread small beside it, and sums about "
                "0 would lose their digits: subtract a constant from them"
            )


def _cannot(why: str) -> DrstreamError:
    return StateError(f"{parameter('state')}: {why}")
