"""Which column plays which role in a log."""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from drstream.errors import LogError, parameter, suggest
from drstream.log.sparse import Sparse, check_sparse


class Find(enum.Enum):
    """Stands for "look for a column of a usual name"."""

    FIND = "find"


FIND = Find.FIND

USUAL = {
    "action": ("action", "item_id", "arm", "decision", "chosen_action", "actions", "a"),
    "reward": ("reward", "click", "rewards", "r", "cost"),
    "propensity": ("propensity", "pscore", "propensity_score", "probability", "action_prob", "p_log", "prob", "p"),
}
COSTS = ("cost",)  # found by that name, it is negated
USUAL_LISTS = ("context", "contexts", "x", "X", "features")
USUAL_FEATURES = re.compile(r"(x|f|feature|feat|context|ctx|user_feature)_?\d+|(context|feature|user_feature)_.+")


@dataclass(frozen=True)
class Roles:
    """The columns of a log: contexts are either numeric columns, or one column of lists."""

    context: tuple[str, ...]
    listed: bool  # the context is one column of lists
    action: str
    reward: str
    propensity: str | None  # None: the log has none
    negated: bool  # the reward column holds costs
    sparse: Sparse | None = None  # how `context` is to be read, where it is sparse


def assign_roles(
    schema: pa.Schema,
    context: str | Sequence[str] | Sparse | Find,
    action: str | Find,
    reward: str | Find,
    propensity: str | Find | None,
) -> Roles:
    """Find each role's column and check its type."""
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise LogError(f"the log has {schema.names.count(twice)} columns named {twice!r}: rename all but one")
    wanted = {"action": action, "reward": reward}
    if propensity is not None:
        wanted["propensity"] = propensity
    found = {role: _find(schema, role, name) for role, name in wanted.items()}
    _check(schema, found["action"], "action", _is_label, "integers, strings or a dictionary of them")
    _check(schema, found["reward"], "reward", is_number, "numbers or booleans")
    if propensity is not None:
        _check(schema, found["propensity"], "propensity", is_number, "numbers")
    if isinstance(context, Sparse):
        for name in context.columns:
            require_column(schema, name, "context")
        check_sparse(schema, context)
        contexts = context.columns
    else:
        contexts = _find_context(schema, context, taken=set(found.values()))
    for role, name in found.items():
        if name in contexts:
            raise LogError(f"column {name!r} is the {role}: it cannot be part of the context, or it would leak")
    negated = reward is FIND and found["reward"].lower() in COSTS
    places = found["action"], found["reward"], found.get("propensity")
    if isinstance(context, Sparse):
        return Roles(contexts, False, *places, negated, context)
    listed = len(contexts) == 1 and is_list(schema.field(contexts[0]).type)
    for name in contexts:
        kind = schema.field(name).type
        if is_list(kind) and len(contexts) > 1:
            raise LogError(
                f"context column {name!r} holds lists: a context is one column of lists, or several columns of numbers"
            )
        _check(schema, name, "context", lambda t: is_number(t.value_type if is_list(t) else t), "numbers or booleans")
    return Roles(contexts, listed, *places, negated)


def require_column(schema: pa.Schema, name: str, role: str) -> None:
    if name not in schema.names:
        raise LogError(f"the log has no column {name!r} for the {role}: {suggest(str(name), schema.names)}")


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)


def is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _is_label(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_string(kind)


def _check(schema: pa.Schema, name: str, role: str, fits: object, wanted: str) -> None:
    kind = schema.field(name).type
    if not fits(kind):  # type: ignore[operator]
        raise LogError(
            f"{role} column {name!r} has type {kind}: it must hold {wanted}. Name another column with {parameter(role)}"
        )


def _find(schema: pa.Schema, role: str, wanted: str | Find) -> str:
    if wanted is not FIND:
        require_column(schema, wanted, role)
        return wanted
    lower = {name.lower(): name for name in reversed(schema.names)}
    for name in USUAL[role]:
        if name in lower:
            require_column(schema, lower[name], role)
            return lower[name]
    hint = f"Without one, open the log with {parameter('propensity', None)}. " if role == "propensity" else ""
    raise LogError(
        f"no column of the log has a usual name for the {role} ({', '.join(USUAL[role])}): "
        f"name it with {parameter(role)}. {hint}{suggest(role, schema.names)}"
    )


def _find_context(schema: pa.Schema, wanted: str | Sequence[str] | Find, taken: set[str]) -> tuple[str, ...]:
    if wanted is FIND:
        free = [name for name in schema.names if name not in taken]
        for name in USUAL_LISTS:
            if name in free and is_list(schema.field(name).type):
                return (name,)
        return tuple(n for n in free if USUAL_FEATURES.fullmatch(n) and is_number(schema.field(n).type))
    names: list[str] = []
    for pattern in [wanted] if isinstance(wanted, str) else wanted:
        if pattern in schema.names or not set("*?[") & set(pattern):
            require_column(schema, pattern, "context")
            matches = [pattern]
        else:
            matches = [n for n in schema.names if fnmatch.fnmatchcase(n, pattern) and n not in taken]
            if not matches:
                raise LogError(f"no column matches {pattern!r} for the context: {suggest(pattern, schema.names)}")
        names += [n for n in matches if n not in names]
    return tuple(names)
