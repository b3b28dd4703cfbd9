"""`drs.merge`: the result of several states, as if one pass had read all of their logs. `drs.partial` makes a state."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from drstream.errors import DrstreamError, LogError, StateError, parameter
from drstream.evaluation.conclude import conclude
from drstream.evaluation.evaluate import evaluate
from drstream.evaluation.header import Header
from drstream.evaluation.result import Evaluation
from drstream.evaluation.states.by_file import Unit
from drstream.evaluation.states.header import header_from_dict
from drstream.evaluation.states.identity import doubts, refuse_difference
from drstream.evaluation.states.state import Others, State
from drstream.evaluation.sums import Sums
from drstream.findings import LOOK, SAME, Finding, worst_of_each
from drstream.log import Log
from drstream.states.checkpoint import MADE_UP
from drstream.states.marks import Mark


def merge(states: Any) -> Evaluation:
    """Make the result of states that `evaluate(..., state=)` wrote, or `drs.partial` made, without their logs.

    states  Paths of files, bytes, or states of `drs.partial`, in the order of their logs.

    Estimates, differences, intervals, findings and segments are those of one pass over all logs, to the last bit if a
    file of Parquet is in one state only. What was found in the first rows of each log is said once, as of the log where
    it is worst. States must agree in policies, models, parameters and columns, and no row may
    be in two of them.

    >>> import drstream as drs, pyarrow as pa
    >>> def day(rewards):
    ...     return pa.record_batch({"action": [0, 1], "reward": rewards, "propensity": [0.5, 0.5]})
    >>> days = [drs.partial([day(rewards)], drs.policies.Constant(1)) for rewards in ([0.0, 1.0], [1.0, 0.0])]
    >>> drs.merge(days)["ips"].value
    0.5
    """
    if isinstance(states, str | os.PathLike | bytes | State):
        states = [states]
    found = [State.of(state) for state in states]
    try:
        return _merged(found, _refuse_overlap)
    except MADE_UP as error:
        if isinstance(error, DrstreamError):
            raise
        raise StateError(f"{found[0].name} is damaged: {error} does not fit. Make it again") from None


def merge_shares(states: Sequence[State]) -> Evaluation:
    """Make the result of states of shares of one log, which have no row in common, though rows may be equal."""
    return _merged(states, lambda _: None)


def _merged(found: Sequence[State], check: Callable[[Sequence[State]], None]) -> Evaluation:
    used = [state for state in found if state.identity is not None]
    if not used:
        raise StateError(f"there is no event in {len(found)} states: give states of logs" if found else "give a state")
    first = used[0]
    for state in used[1:]:
        refuse_difference(first.identity, state.identity, (first.name, state.name))
    check(used)
    headers = _headers(used)
    totals = [Sums(one.form, one.pivot) for one in headers] if any(state.n for state in used) else []
    for state in used if totals else []:
        state.add_to(totals)
    if not totals:
        raise LogError(f"there is no event in {len(found)} states")
    made_from = _provenance(used, totals[0].count)
    findings = worst_of_each([state.doubts for state in used])
    findings += _doubts(first) if len(used) > 1 else []
    results = {
        header.reward: conclude(header, total, made_from, findings)
        for header, total in zip(headers, totals, strict=True)
    }
    result = next(iter(results.values()))
    result.rewards = results
    return result


def partial(
    batches: Iterable[pa.RecordBatch],
    policies: Any,
    model: Any = None,
    estimators: Any = None,
    *,
    log: Mapping[str, Any] | None = None,
    **options: Any,
) -> State:
    """Return the state of some record batches: what a worker of Spark, Ray or Beam makes of its share of a log.

    batches  Any iterable of record batches of one schema. There may be none.
    log      Options of `drs.Log`, e.g. {"reward": "click", "actions": 4}. Give all actions, as a share may lack some.
    options  Those of `drs.evaluate`.

    `state.to_bytes()` travels, and `drs.merge` takes it.
    """
    kept = State(None)
    for name in ("state", "checkpoint"):
        if options.get(name) is not None:
            raise DrstreamError(f"partial: leave out {parameter(name)}, it returns a state")
    rows = _batches(batches)
    first = next(rows, None)
    if first is None:
        return kept
    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rows))
    try:
        evaluate(Log(reader, **(log or {})), policies, model, estimators, state=kept, **options)
    except LogError:
        if kept.identity is None or kept.n:
            raise
    return kept


def _batches(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for batch in [batches] if isinstance(batches, pa.Table | pa.RecordBatch) else batches:
        if isinstance(batch, pa.Table):
            yield from (one for one in batch.to_batches() if one.num_rows)
        elif not isinstance(batch, pa.RecordBatch):
            raise LogError(f"partial: a {type(batch).__name__} is not a pyarrow RecordBatch")
        elif batch.num_rows:
            yield batch


def _headers(used: Sequence[State]) -> list[Header]:
    others: Others = {}
    for state in used:
        for reward, users in state.others.items():
            for who, columns in users.items():
                sums = Counter(others.setdefault(reward, {}).get(who, {}))
                sums.update(columns)
                others[reward][who] = dict(sums)
    assert used[0].identity is not None
    return [header_from_dict(one, others.get(name, {})) for name, one in used[0].identity["rewards"].items()]


def _refuse_overlap(used: Sequence[State]) -> None:
    """Raise an error if a row is in two states. A copy of a file is known by its footer, and by the same sums."""
    seen: dict[tuple[Any, ...], tuple[State, Unit, Mark]] = {}
    for state in used:
        for unit in state.units:
            for mark in unit.marks:
                copied = ("copy", mark.digest, mark.size, mark.row_group, mark.rows)
                keys = [copied, ("file", mark.file, mark.row_group, mark.first_row)] if mark.file else [copied]
                for key in keys:
                    if key not in seen:
                        continue
                    before, other, place = seen[key]
                    if key[0] == "file" or not mark.file or _same_sums(unit, other):
                        raise StateError(
                            f"{before.name} and {state.name} cannot be merged: both have {mark}"
                            f"{'' if place.file == mark.file else f', the first one as {place}'}. Its events would "
                            "count twice"
                        )
                seen |= dict.fromkeys(keys, (state, unit, mark))


def _same_sums(unit: Unit, other: Unit) -> bool:
    pairs = zip(unit.sums, other.sums, strict=True)
    return all(one["whole"].tobytes() == another["whole"].tobytes() for one, another in pairs)


def _provenance(used: Sequence[State], events: int) -> dict[str, Any]:
    from drstream import __version__

    identity = used[0].identity
    assert identity is not None
    rows = [state.rows for state in used]
    return {
        "version": __version__,
        "run": "merge",
        "call": f"import drstream as drs\n\nresult = drs.merge({[state.name for state in used]!r})",
        "log": f"{len(used)} states",
        "rows": None if None in rows else sum(row for row in rows if row is not None),
        **identity["log"],
        "events": events,
        "policies": {name: one["is"] for name, one in identity["policies"].items()},
        "models": {
            name: {role: one["is"] for role, one in models.items()} for name, models in identity["models"].items()
        },
        "parameters": identity["parameters"],
        "states": [
            {"state": os.path.basename(state.name), "log": state.log, "rows": state.rows, "version": state.version}
            for state in used
        ],
        "exact": all(_is_exact(state, first=state is used[0]) for state in used),
    }


def _is_exact(state: State, *, first: bool) -> bool:
    """Whether its sums are added in the order of one pass: file by file, and those by bucket, too."""
    files = [len({mark.file for mark in unit.marks}) for unit in state.units]
    return max(files, default=0) <= 1 and (first or len(files) <= 1 or not any(state.buckets))


def _doubts(state: State) -> list[Finding]:
    assert state.identity is not None
    found = []
    for policy, texts in doubts(state.identity).items():
        whose = "a model or parameter" if policy is None else f"policy {policy}"
        text = (
            f"Nobody can vouch that {whose} was the same for all states: it is made of {', '.join(texts)}, and a state "
            "knows its name and code, but not what it reads or calls. Give it a name that changes when it does: "
            "drs.policies.named('v1', ...)."
        )
        found.append(Finding(LOOK, SAME, policy, math.nan, text))
    return found
