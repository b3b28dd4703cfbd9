"""How a result was made: what its provenance says, for people, and how to make it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABELS = {
    "version": "drstream",
    "log": "Log",
    "rows": "Rows",
    "filter": "Filter",
    "events": "Events used",
    "splits": "Split",
    "before_row": "Rows before",
    "columns": "Columns",
    "actions": "Actions",
    "policies": "Policies",
    "models": "Fitted models",
    "parameters": "Parameters",
    "seed": "Seed",
    "missing": "Missing values",
    "on_bad_row": "Bad rows",
    "held_out": "Held out",
    "fit": "Fit",
    "states": "States",
}
NOT_SHOWN = frozenset({"run"})
OBJECTS = frozenset({"candidates", "sparse"})  # roles of columns that objects describe


def made_of(provenance: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a provenance that say something, each with a label."""
    ordered = [*(key for key in LABELS if key in provenance), *(key for key in provenance if key not in LABELS)]
    found = []
    for key in ordered:
        value = without_nothing(provenance[key])
        if key not in NOT_SHOWN and value not in (None, [], {}):
            found.append((LABELS.get(key, key.replace("_", " ").capitalize()), value))
    return found


def without_nothing(value: Any) -> Any:
    """Leave out what a dictionary says nothing about."""
    if isinstance(value, Mapping):
        return {key: inner for key, one in value.items() if (inner := without_nothing(one)) not in (None, [], {})}
    return value


def python_call(provenance: Mapping[str, Any]) -> str:
    """Return the call that made a result. Policies and models stand there as they describe themselves.

    >>> print(python_call({"run": "evaluate", "log": "a.parquet", "policies": {"new": "Uniform()"}, "seed": 0}))
    log = drs.Log('a.parquet')
    drs.evaluate(log, {'new': Uniform()})
    """
    if "run" not in provenance:
        return ""
    run = str(provenance["run"])
    if run == "merge":
        files = ", ".join(repr(str(state.get("state"))) for state in provenance.get("states", ()))
        return f"drs.merge([{files}])"
    lines = [f"log = drs.Log({', '.join(_of_log(provenance))})"]
    for split in provenance.get("splits") or ():
        about = ", ".join(f"{key}={value}" for key, value in split.items() if value not in (None, False))
        lines.append(f"# rows of a split: {about}")
    given = [_policies(provenance.get("policies"))] if provenance.get("policies") is not None else []
    models = provenance.get("models") or {}
    given += [f"model={models['reward']}"] if models.get("reward") else []
    given += [f"propensity={models['propensity']}"] if models.get("propensity") else []
    given += [f"{name}={value!r}" for name, value in (provenance.get("parameters") or {}).items()]
    given += [f"seed={provenance['seed']}"] if provenance.get("seed") and run == "replay" else []
    call = f"log.{run}({', '.join(given)})" if run == "audit" else f"drs.{run}({', '.join(['log', *given])})"
    return "\n".join([*lines, call])


def _of_log(provenance: Mapping[str, Any]) -> list[str]:
    name = str(provenance.get("log"))
    given = [name if name.isidentifier() else repr(name)]  # "table": what was given is no file
    for role, column in (provenance.get("columns") or {}).items():
        if column not in (None, []):
            given.append(f"{role}={column}" if role in OBJECTS else f"{role}={column!r}")
    for name, usual in (("filter", None), ("missing", "error"), ("on_bad_row", "error")):
        if provenance.get(name, usual) != usual:
            given.append(f"{name}={provenance[name]!r}")
    return given


def _policies(policies: Any) -> str:
    if isinstance(policies, Mapping):
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in policies.items()) + "}"
    return str(policies)
