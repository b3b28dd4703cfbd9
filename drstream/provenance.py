"""What a result was made from: version, log, rows, seed, policies, models and parameters, as text and numbers.

`result.provenance` is this dictionary. JSON has it under "provenance", and Arrow tables in the metadata of their
schema, under b"drstream". It does not depend on threads, batch sizes or the time of day.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from drstream.errors import without_secrets
from drstream.log import Log
from drstream.recipe import recipe

LONGEST = 300  # characters of a description
NEVER = frozenset(  # how the work is done, which changes no result
    {"threads", "executor", "progress", "debug", "state", "checkpoint", "checkpoint_every"}
)
ELSEWHERE = frozenset({"log", "policies", "model", "propensity", "seed", "fold_seed", "on_bad_row"})


def provenance(run: Callable[..., Any], given: Mapping[str, Any], log: Log, events: int | None) -> dict[str, Any]:
    """Describe a run.

    run     The function that was called, e.g. `drs.evaluate`.
    given   Its arguments by name. Those with their default value are left out.
    log     The log as it was used.
    events  Number of events that were used; None if they are not known yet.
    """
    from drstream import __version__

    usual = _signature(run).parameters
    seeds = {name: describe(given[name]) for name in ("seed", "fold_seed") if name in given}
    changed = {name: value for name, value in given.items() if name in usual and _differs(value, usual[name].default)}
    code = recipe(run, given, log, describe)
    return {
        "version": __version__,
        "run": run.__name__,
        **({"call": code} if code else {}),
        **about_log(log),
        "events": events,
        "seed": seeds.get("seed", seeds.get("fold_seed")),
        "policies": _described(given.get("policies")),
        "models": {
            "reward": _described(given.get("model")),
            "propensity": describe(given.get("propensity")),
            "folds": describe(given.get("crossfit")),
            "fold_seed": seeds.get("fold_seed") if given.get("crossfit") is not None else None,
        },
        "parameters": {
            name: describe(value) for name, value in changed.items() if name not in NEVER and name not in ELSEWHERE
        },
    }


_signature = lru_cache(maxsize=16)(inspect.signature)  # it takes a third of a millisecond


def _differs(value: Any, default: Any) -> bool:
    simple = isinstance(value, int | float | str)
    return value is not default and not (simple and type(value) is type(default) and value == default)


def about_log(log: Log) -> dict[str, Any]:
    """Describe a log: where it is, which rows are used, and what its columns are."""
    origin, roles = log.origin, log.roles
    columns = {
        "context": list(roles.context),
        "action": roles.action,
        "reward": list(roles.rewards) if roles.more_rewards else roles.reward,
        "propensity": roles.constant if roles.propensity is None else roles.propensity,
        "sample_rate": roles.sample_rate,
        "logger": roles.logger,
        "logger_propensities": list(roles.logger_propensities) or None,
        "propensities": list(roles.propensities) or None,
        "eligible": roles.eligible,
        "categories": list(roles.categories) or None,
        "hashed": [f"{hashed.column}:{hashed.bits}" for hashed in roles.hashed] or None,
        "sparse": roles.sparse,
        "candidates": roles.candidates,
        "negated": roles.negated or None,
        "positions": roles.positions,
    }
    return {
        "log": without_secrets(log.source.name),
        "rows": log.source_rows,
        "filter": None if log.filter is None else str(log.filter),
        "splits": [vars(split) for split in origin.splits],
        "before_row": origin.stop,
        "columns": {role: describe(name) for role, name in columns.items() if name is not None},
        "actions": describe(list(log.labels)) if "labels" in vars(log) else None,
        "missing": log.missing,
        "on_bad_row": log.on_bad_row,
    }


def _described(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {str(name): describe(value) for name, value in given.items()}
    return describe(given)


def describe(value: Any, depth: int = 3) -> Any:
    """Return numbers, words and lists of them as they are; of other objects, their class and what made them.

    >>> import drstream as drs
    >>> describe(drs.policies.Epsilon(drs.policies.Constant(1), 0.1)), describe([1, "a"]), describe(math.sqrt)
    ('Epsilon(base=Constant(action=1), epsilon=0.1)', [1, 'a'], 'math.sqrt')
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [describe(item, depth - 1) for item in value] if len(value) <= 100 else f"{len(value)} items"
    return _shortened(without_secrets(_named(value, depth)))


def _named(value: Any, depth: int) -> str:
    """Return an object as text that is the same in each run: no addresses in memory."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]
        return f"array of {value.dtype} {' x '.join(map(str, value.shape))}, sha256 {digest}"
    if inspect.ismethod(value):
        return str(describe(value.__self__, depth - 1)) if depth else value.__name__
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the user's own
        text = ""
    if text and " at 0x" not in text:
        return text
    ours = kind.__module__.split(".")[0] == "drstream"
    name = kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}({', '.join(_arguments(value, depth))})" if ours and depth else name


def _arguments(value: Any, depth: int) -> list[str]:
    """Return what made an object of drstream: the parameters of its class that it keeps under their names."""
    found = []
    for name, parameter in inspect.signature(type(value)).parameters.items():
        kept = getattr(value, name, parameter.default)
        if kept is not parameter.default and kept is not None:
            found.append(f"{name}={describe(kept, depth - 1)}")
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
