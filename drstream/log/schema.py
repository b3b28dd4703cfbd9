"""Which column plays which role in a log."""

from __future__ import annotations

import enum
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, parameter, phrase, suggest
from drstream.log.categories import Hashed, choose_categories, is_category, separate
from drstream.log.sparse import Sparse, check_sparse, stored_sparse
from drstream.log.starred import STAR, Suspect, excluded, is_glob, looks_like
from drstream.sources.base import is_list as is_list


class Find(enum.Enum):
    """A default value that means: look for a column with a usual name."""

    FIND = "find"


FIND = Find.FIND

USUAL = {
    "action": ("action", "item_id", "arm", "decision", "chosen_action", "actions", "a"),
    "reward": ("reward", "click", "rewards", "r", "cost"),
    "propensity": ("propensity", "pscore", "propensity_score", "probability", "action_prob", "p_log", "prob", "p"),
}
COSTS = ("cost",)  # a column that is found by this name is negated
OTHER_ROLES = tuple(name for names in USUAL.values() for name in names if len(name) > 1)
UNIFORM = "uniform"  # as a propensity: 1/K in every row
MARGINAL, CONDITIONAL, INDEPENDENT = "marginal", "conditional", "independent"  # what propensities by position are
POSITIONS = (MARGINAL, CONDITIONAL, INDEPENDENT)
USUAL_LISTS = ("context", "contexts", "x", "X", "features")
USUAL_FEATURES = re.compile(r"(x|f|feature|feat|context|ctx|user_feature)_?\d+|(context|feature|user_feature)_.+")


@dataclass(frozen=True)
class Roles:
    """The columns of a log. The context is columns of numbers and categories, one column of lists, or sparse."""

    context: tuple[str, ...]
    listed: bool  # the context is one column of lists
    action: str | None  # None if the log was opened without actions
    reward: str
    propensity: str | None  # None if the log has no such column
    negated: bool  # the reward column holds costs
    sparse: Sparse | None = None  # how to read a sparse context
    more_rewards: tuple[str, ...] = ()  # beside `reward`, for a log with several
    sample_rate: str | None = None  # the probability with which a row was kept, in a down-sampled log
    propensities: tuple[str, ...] = ()  # of all actions: one column of lists, or a column for each action
    constant: float | str | None = None  # the propensity of every row, or UNIFORM for 1/K, instead of a column
    left_out: tuple[str, ...] = ()  # columns that context="*" did not take
    starred: tuple[str, ...] = ()  # columns of the context that "*" chose
    outcomes: tuple[Suspect, ...] = ()  # of the columns that were left out, those that look like outcomes
    categories: tuple[str, ...] = ()  # columns of the context that are one-hot encoded
    hashed: tuple[Hashed, ...] = ()  # and those that are hashed
    logger: str | None = None  # which policy logged a row, in a log of several
    logger_propensities: tuple[str, ...] = ()  # of the logged action, a column for each logger
    eligible: str | None = None  # lists of the actions that an event could choose from
    candidates: Any = None  # `Candidates`: what each event could choose from; None if events share one set of actions
    candidate_columns: tuple[str, ...] = ()  # and the columns that hold it
    lists: tuple[str, ...] = ()  # the columns of action, rewards and propensity that hold lists, in a log of rankings
    positions: str | None = None  # what propensities by position are, one of POSITIONS; None if the user does not say

    @property
    def ranking(self) -> bool:
        """Whether events are rankings: lists of items that were shown together."""
        return bool(self.lists)

    @property
    def coded(self) -> tuple[str, ...]:
        """The columns of the context that are not numbers."""
        return *self.categories, *(hashed.column for hashed in self.hashed)

    @property
    def with_propensities(self) -> bool:
        return self.propensity is not None or self.constant is not None

    @property
    def others(self) -> list[str]:
        """The columns of all roles but the context."""
        names = [self.action, *self.rewards, self.propensity, self.sample_rate, *self.propensities]
        names += [self.logger, *self.logger_propensities, self.eligible, *self.candidate_columns]
        return [name for name in names if name is not None]

    @property
    def rewards(self) -> tuple[str, ...]:
        return self.reward, *self.more_rewards

    @property
    def uniform_over_sets(self) -> bool:
        """Whether the propensity of a row is 1 / the size of its eligible set."""
        return self.constant == UNIFORM and self.eligible is not None

    def for_reward(self, name: str) -> Roles:
        """Return the roles with this one reward."""
        others = {*self.rewards} - {name}
        return replace(self, reward=name, more_rewards=(), lists=tuple(x for x in self.lists if x not in others))


@dataclass(frozen=True, eq=False)
class Options:
    """What a log was opened with: the parameters of `Log`."""

    context: str | Sequence[str | Hashed] | Hashed | Sparse | Find = FIND
    action: str | Find | None = FIND
    reward: str | Sequence[str] | Find = FIND
    propensity: str | float | Find | None = FIND
    actions: int | Sequence[Any] | None = None
    filter: Any = None
    exclude: str | Sequence[str] | None = None
    sample_rate: str | None = None
    propensities: str | Sequence[str] | None = None
    categorical: str | Sequence[str] | None = None
    missing: Any = None
    logger: str | None = None
    logger_propensities: Sequence[str] | Mapping[Any, str] | None = None
    eligible: str | None = None
    candidates: Any = FIND
    positions: str | None = None
    on_bad_row: str = "error"


def assign_roles(
    schema: pa.Schema, options: Options, of_loggers: tuple[str, ...], of_candidates: tuple[str, ...]
) -> Roles:
    """Find each role's column and check its type. `loggers.py` has checked those of loggers, `candidates` theirs."""
    logger, eligible, reward = options.logger, options.eligible, options.reward
    of_all = _propensities(schema, options.propensities)
    named, hashed = separate(stored_sparse(schema) or FIND if options.context is FIND else options.context)
    if eligible is not None:
        require_column(schema, eligible, "eligible sets")
    more = *of_all, *(name for name in (logger, eligible) if name is not None), *of_loggers, *of_candidates
    roles = _assign(schema, options, named, more)
    for name in more:
        if name in (*roles.context, roles.action, *roles.rewards):
            what = {logger: "the logger", eligible: "the eligible sets"}.get(name, "one of the propensities")
            what = "about candidates" if name in of_candidates else what
            raise LogError(f"column {name!r} is {what}: it cannot have another role")
    categories = choose_categories(schema, roles.context, hashed, options.categorical)
    roles = replace(roles, propensities=of_all, categories=categories, hashed=hashed, eligible=eligible)
    roles = replace(roles, logger=logger, logger_propensities=of_loggers, candidate_columns=of_candidates)
    roles = _with_positions(roles, options.positions)
    if isinstance(reward, str | Find):
        return roles
    for name in reward[1:]:
        require_column(schema, name, "reward")
        _check(schema, name, "reward", _in_lists(is_number) if roles.ranking else is_number, "numbers or booleans")
        if name in (*roles.context, roles.action, roles.propensity, roles.sample_rate):
            raise LogError(f"column {name!r} is a reward: it cannot have another role")
    more_lists = [name for name in reward[1:] if is_list(schema.field(name).type)]
    return replace(roles, more_rewards=tuple(reward[1:]), lists=(*roles.lists, *more_lists))


def _with_positions(roles: Roles, positions: str | None) -> Roles:
    """Return the roles with `positions=`, and refuse what a log of rankings cannot have."""
    if not roles.ranking:
        if positions is not None:
            raise LogError(
                f"{parameter('positions', positions)} is about rankings, and action, propensity and reward of this log "
                "hold no lists"
            )
        return roles
    if positions not in (None, *POSITIONS):
        raise LogError(f"{parameter('positions', positions)}: it must be one of {', '.join(POSITIONS)}")
    given = {
        "propensities": bool(roles.propensities),
        "logger_propensities": bool(roles.logger_propensities),
        "propensity": roles.constant == UNIFORM,
    }
    for name, is_given in given.items():
        if is_given:
            value = parameter(name, UNIFORM) if name == "propensity" else parameter(name)
            raise LogError(
                f"{value} is about events with one action, and this is a log of rankings: column {roles.lists[0]!r} "
                "holds lists. Give the propensities of the items as lists, too"
            )
    return replace(roles, positions=positions)


def _propensities(schema: pa.Schema, names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns with the propensities of all actions."""
    if names is None:
        return ()
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        require_column(schema, name, "propensities")
        kind = schema.field(name).type
        value = kind.value_type if is_list(kind) and len(found) == 1 else kind
        if not is_number(value) or (len(found) == 1 and not is_list(kind)):
            raise LogError(
                f"propensities column {name!r} has type {kind}: name one column of lists of numbers, or a column of "
                f"numbers for each action, with {parameter('propensities')}"
            )
    if not found or len(set(found)) < len(found):
        raise LogError(f"{parameter('propensities', list(found))}: name one column of lists, or one for each action")
    return found


def _first_reward(reward: str | Sequence[str] | Find) -> tuple[str | Find, tuple[str, ...]]:
    """Return the first reward, and the others."""
    if isinstance(reward, str | Find):
        return reward, ()
    names = list(reward)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise LogError(f"{parameter('reward', names)}: name one column, or several different ones")
    return names[0], tuple(names[1:])


def _assign(schema: pa.Schema, options: Options, context: Any, more: tuple[str, ...]) -> Roles:
    """Return the roles of context, action, first reward, propensity and sample rate. `more` have other roles."""
    reward, more_rewards = _first_reward(options.reward)
    constant, sample_rate = constant_propensity(schema, options.propensity), options.sample_rate
    propensity: Any = options.propensity if constant is None else None
    twice, count = Counter(schema.names).most_common(1)[0] if len(schema) else ("", 0)
    if count > 1:
        raise LogError(f"the log has {count} columns named {twice!r}: rename all but one")
    wanted = {"action": options.action, "reward": reward, "propensity": propensity}
    found = {role: _find(schema, role, name) for role, name in wanted.items() if name is not None}
    lists = _check_types(schema, found)
    taken = {*found.values(), *more_rewards, *more}
    if sample_rate is not None:
        require_column(schema, sample_rate, "sample_rate")
        _check(schema, sample_rate, "sample_rate", is_number, "numbers")
        taken.add(sample_rate)
    left_out: tuple[str, ...] = ()
    starred: tuple[str, ...] = ()
    if isinstance(context, Sparse):
        for name in context.columns:
            require_column(schema, name, "context")
        check_sparse(schema, context)
        contexts = context.columns
    else:
        contexts, left_out, starred = _find_context(schema, context, taken, excluded(schema, options.exclude))
    for role, name in found.items():
        if name in contexts:
            raise LogError(f"column {name!r} is the {role}: it cannot be part of the context, or it would leak")
    negated = reward is FIND and found["reward"].lower() in COSTS
    places = found.get("action"), found["reward"], found.get("propensity")
    if sample_rate is not None and sample_rate in (*contexts, *found.values()):
        raise LogError(f"column {sample_rate!r} is the sample rate: it cannot have another role")
    sparse = context if isinstance(context, Sparse) else None
    listed = sparse is None and len(contexts) == 1 and is_list(schema.field(contexts[0]).type)
    for name in contexts if sparse is None else ():
        kind = schema.field(name).type
        if is_list(kind) and len(contexts) > 1:
            raise LogError(
                f"context column {name!r} holds lists: a context is one column of lists, or several columns of numbers "
                "or categories"
            )
        _check(schema, name, "context", _is_context, "numbers, booleans, strings, or a dictionary of categories")
    about: dict[str, Any] = {"sample_rate": sample_rate, "constant": constant, "lists": lists}
    return Roles(contexts, listed, *places, negated, sparse, left_out=left_out, starred=starred, **about)


def _check_types(schema: pa.Schema, found: dict[str, str]) -> tuple[str, ...]:
    """Check the columns of action, reward and propensity, and return those that hold lists: of rankings."""
    lists = tuple(name for name in dict.fromkeys(found.values()) if is_list(schema.field(name).type))
    if lists and "action" in found and found["action"] not in lists:
        raise LogError(
            f"column {lists[0]!r} holds lists, and action column {found['action']!r} does not: in a log of rankings, "
            f"the action is a column of lists of items, or {parameter('action', None)}; otherwise action, reward and "
            "propensity hold one value for each event"
        )
    wanted = {
        "action": (is_label, "integers, strings or a dictionary of them"),
        "reward": (is_number, "numbers or booleans"),
        "propensity": (is_number, "numbers"),
    }
    for role, name in found.items():
        fits, what = wanted[role]
        _check(schema, name, role, _in_lists(fits) if lists else fits, f"{what}, or lists of them" if lists else what)
    return lists


def _in_lists(fits: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: fits(kind.value_type if is_list(kind) else kind)


def require_column(schema: pa.Schema, name: str, role: str) -> None:
    if name not in schema.names:
        hint = suggest(str(name), schema.names)
        if "," in str(name) and all(part.strip() in schema.names for part in str(name).split(",")):
            hint = phrase("give a list of names", "give the option once for each column")
        raise LogError(f"the log has no column {name!r} for the {role}: {hint}")


def is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _is_context(kind: pa.DataType) -> bool:
    return is_category(kind) or is_number(kind.value_type if is_list(kind) else kind)


def is_label(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_string(kind)


def _check(schema: pa.Schema, name: str, role: str, fits: Callable[[pa.DataType], bool], wanted: str) -> None:
    kind = schema.field(name).type
    if not fits(kind):
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
    hint = f"Without one, open the log with {parameter(role, None)}. " if role != "reward" else ""
    raise LogError(
        f"no column of the log has a usual name for the {role} ({', '.join(USUAL[role])}): "
        f"name it with {parameter(role)}. {hint}{suggest(role, schema.names)}"
    )


def _find_context(
    schema: pa.Schema, wanted: str | Sequence[str] | Find, taken: set[str], without: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the context, those that "*" left out, and those that it chose."""
    if wanted is FIND:
        free = [name for name in schema.names if name not in taken | without]
        for name in USUAL_LISTS:
            if name in free and is_list(schema.field(name).type):
                return (name,), (), ()
        return tuple(n for n in free if USUAL_FEATURES.fullmatch(n) and is_number(schema.field(n).type)), (), ()
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    named = {p for p in patterns if p in schema.names or not is_glob(p)}
    if both := named & without:
        raise LogError(f"column {min(both)!r} is named with {parameter('context')} and with {parameter('exclude')}")
    names: list[str] = []
    left_out: list[str] = []
    starred: list[str] = []
    for pattern in patterns:
        if pattern in named:
            require_column(schema, pattern, "context")
            matches = [pattern]
        else:
            free = [n for n in schema.names if n not in taken | without]
            matches = [n for n in free if fnmatch.fnmatchcase(n, pattern)]
            if pattern == STAR:
                unlike = {n for n in matches if n not in named and looks_like(schema.field(n), OTHER_ROLES)}
                left_out = [n for n in matches if n in unlike]
                matches = [n for n in matches if n not in unlike]
                starred = [n for n in matches if n not in named]
            if not matches and not left_out:
                raise LogError(f"no column matches {pattern!r} for the context: {suggest(pattern, schema.names)}")
        names += [n for n in matches if n not in names]
    return tuple(names), tuple(n for n in left_out if n not in names), tuple(starred)


def constant_propensity(schema: pa.Schema, propensity: Any) -> float | str | None:
    """Return the propensity of every row, or UNIFORM; None if there is a column instead, or none at all."""
    if propensity == UNIFORM and UNIFORM not in schema.names:
        return UNIFORM
    if not isinstance(propensity, Real) or isinstance(propensity, bool):
        return None
    if not 0 < float(propensity) <= 1:
        raise LogError(f"{parameter('propensity', propensity)}: a propensity for every row must be in (0, 1]")
    return float(propensity)
