"""What `repr` of a log says: which column plays which role, and which rows there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drstream.log.encoding import ERROR, KEEP
from drstream.log.kinds.rankings.columns import shown_lengths, shown_propensities
from drstream.log.labels import describe_labels
from drstream.log.schema import UNIFORM


def summary(log: Any) -> Iterator[str]:
    """Yield the lines. What takes a pass to find out is left out if the source may be read once only."""
    roles, spec = log.roles, log.spec
    known = log.labels_are_given or log.facts.known(log.labels_key) or log.source_rows is not None
    yield f"Log of {'rankings in ' * roles.ranking}{log.source.name}: {_rows(log)}"
    yield f"  context     {log.contexts}"
    outcomes = [outcome.column for outcome in roles.outcomes]
    others = [name for name in roles.left_out if name not in outcomes]
    for names, what in ((outcomes, "outcomes"), (others, "ids, times or other roles")):
        if names:
            yield f"  left out    {', '.join(names)}: like {what}. Name them to use them as contexts"
    if log.has_candidates:
        yield f"  candidates  {log.candidates}"
    yield f"  action      {f'{roles.action}: {_actions(log, known)}' if roles.action else 'none'}"
    by_position = ", by position" if roles.reward in roles.lists else ", of the whole list"
    more = f"; also {', '.join(roles.more_rewards)}" if roles.more_rewards else ""
    reward = f"-({roles.reward}): costs, negated" if roles.negated else roles.reward
    yield f"  reward      {reward}{by_position if roles.ranking else ''}{more}"
    of_all = f"; of all {'candidates' if log.has_candidates else 'actions'}: {_abridged(roles.propensities)}"
    of_lists = shown_propensities(roles) if roles.ranking else ""
    yield f"  propensity  {_propensity(log, known)}{of_lists}{of_all if roles.propensities else ''}"
    if roles.eligible is not None:
        yield f"  eligible    {roles.eligible}: the actions that an event could choose from"
    if roles.sample_rate is not None:
        yield f"  sample rate {roles.sample_rate}"
    if roles.logger is not None:
        yield f"  logger      {roles.logger}{_loggers(log)}"
    if log.filter is not None:
        yield f"  filter      {spec.filter_text or log.filter}"
    if spec.stop is not None:
        yield f"  rows        those before row {spec.stop:,}"
    yield from (f"  split       {split}" for split in spec.splits)
    if log.missing != ERROR:
        yield f"  missing     {'kept' if log.missing == KEEP else f'{log.missing:g} in their place'}"
    if spec.skip_bad_rows:
        yield "  bad rows    skipped and counted"
    counts = getattr(log.source, "dropped", {})  # lines of a text that hold no row
    for reason, first in getattr(log.source, "left_out", {}).items():
        yield f"  left out    {counts[reason]:,} ({reason}); the first: {first}"


def _rows(log: Any) -> str:
    whole, rows = log.source_rows, log.rows
    files = sum(isinstance(key, str) for key in log.source.keys)
    where = f" in {files:,} files" if files > 1 else ""
    if whole is None:
        return f"rows not known before reading{where}"
    return f"{whole:,} rows{where}" if rows == whole else f"{rows:,} of {whole:,} rows{where}"


def _actions(log: Any, known: bool) -> str:
    if log.has_candidates:
        return str(log.candidates.choice)
    if not known:
        return "labels not known before reading"
    return shown_lengths(log.facts, log.roles) if log.roles.ranking else describe_labels(log.labels)


def _propensity(log: Any, known: bool) -> str:
    constant = log.roles.constant
    if constant == UNIFORM and log.has_candidates:
        return "1 / the number of candidates, in every row: uniform"
    if log.roles.uniform_over_sets:
        return "1 / the size of the eligible set: uniform"
    if constant == UNIFORM:
        return f"1/{log.n_actions} in every row: uniform" if known else "uniform, in every row"
    if constant is not None:
        return f"{constant:.6g} in every row"
    return log.roles.propensity or "none"


def _loggers(log: Any) -> str:
    columns, loggers = log.roles.logger_propensities, log.spec.loggers
    if not columns:
        return ""
    if not loggers.labels and not log.facts.known(("loggers", loggers.column)) and log.source_rows is None:
        return f"; propensities of each: {', '.join(columns)}"
    return f"; propensities {_abridged([f'{n} of {label!r}' for label, n in zip(log.loggers, columns, strict=True)])}"


def _abridged(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= 8 else [*names[:3], "...", names[-1]])
