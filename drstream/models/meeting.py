"""How what was fitted meets another log: it brings its own encoding, and finds the log's columns by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

from drstream.errors import parameter
from drstream.findings import CATEGORIES, LOOK, doubt
from drstream.log import Events, Log, Reader
from drstream.log.columns import nulls
from drstream.log.encoding import ERROR, Category, Encoding, abridged
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.candidates import SeenCandidates
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.types import Floats

Bind = TypeVar("Bind", bound=Callable[..., Any])


def by_name(bind: Bind) -> Bind:
    """Decorate `bind` of something fitted: on a log with another encoding, it sees its columns in its own one."""

    @wraps(bind)
    def meet(self: Any, log: Log, *name: str) -> Any:
        encoding = own_encoding(self, log)
        if encoding is None:
            return bind(self, log, *name)
        others = _doubt_others(self, log, encoding)
        bound = bind(self, log.seen_by(encoding), *name)
        if isinstance(bound, CandidateModel):
            return SeenCandidates(bound, encoding, others)
        return (SeenPolicy if isinstance(self, FixedPolicy) else SeenModel)(bound, encoding, others)

    return meet  # type: ignore[return-value]


class SeenModel(RewardModel):
    """A bound reward model that sees the contexts in its own encoding."""

    def __init__(self, model: RewardModel, encoding: Encoding, others: dict[str, int]) -> None:
        self.model, self.encoding, self.others = model, encoding, others
        self.n_actions, self.columns = model.n_actions, (*model.columns, *encoding.names)

    def fill(self, block: Events, out: Floats) -> None:
        self.model.fill(block.seen_by(self.encoding), out)


class SeenPolicy(FixedPolicy):
    """A bound policy, or propensity model, that sees the contexts in its own encoding."""

    def __init__(self, policy: FixedPolicy, encoding: Encoding, others: dict[str, int]) -> None:
        self.policy, self.encoding, self.others = policy, encoding, others
        self.name, self.n_actions, self.learned_on = policy.name, policy.n_actions, policy.learned_on
        self.columns = (*policy.columns, *encoding.names)
        self.uses_candidates = policy.uses_candidates
        for name in ("inflation", "floor", "estimated"):  # of a propensity model
            if hasattr(policy, name):
                setattr(self, name, getattr(policy, name))

    def fill(self, block: Events, out: Floats) -> None:
        self.policy.fill(block.seen_by(self.encoding), out)

    def fill_flat(self, block: Events, out: Floats) -> None:
        self.policy.fill_flat(block.seen_by(self.encoding), out)


def own_encoding(fitted: Trained, log: Log) -> Encoding | None:
    """Return the encoding in which it must see the log; None if the log's own is right.

    Columns may have another order, and other categories. Raise an error where columns do not fit.
    """
    fitted.require_fit()
    if fitted.columns:  # it reads columns as they are stored, by name
        return None
    mine, theirs = fitted.encoding_, log.encoding
    if mine is None or theirs is None:
        _refuse_categories(fitted, mine, theirs)
        return None
    if set(mine.names) != set(theirs.names):
        if mine.plain and theirs.plain:
            return None  # `check_fits` raises the error
        raise _other_columns(fitted, mine, theirs)
    if mine.missing == ERROR:
        mine = mine.with_missing(theirs.missing)
    if mine.same_as(theirs):
        return None
    for column in mine.columns:
        kind = log.source.schema.field(column.name).type
        if not column.fits(kind):
            wanted = getattr(column, "kind", "numbers")
            raise fitted.error(
                f"the {fitted.role} was fitted on {wanted} in the column {column.name!r}, and the log's has type "
                f"{kind}, {_example(log, column.name)}: cast the column, or fit it again on a log like this one"
            )
    return mine


def _refuse_categories(fitted: Trained, mine: Encoding | None, theirs: Encoding | None) -> None:
    """Raise an error where lists of numbers meet categories."""
    known = mine if theirs is None else theirs
    if known is None or known.plain:
        return
    one, two = "a list of numbers", f"columns with categories: {abridged(known.names)}"
    was, is_ = (one, two) if mine is None else (two, one)
    raise fitted.error(
        f"the {fitted.role} was fitted on {was}; the log's context is {is_}: open it with the same "
        f"{parameter('context')}"
    )


def _other_columns(fitted: Trained, mine: Encoding, theirs: Encoding) -> Exception:
    new = [column for column in theirs.columns if column.name not in mine.names]
    coded = next((column.name for column in new if isinstance(column, Category)), None)
    why = ""
    if coded is not None:
        only = ", and knows numbers only" if mine.plain else ""
        why = f" It does not know the categories of {coded!r}{only}."
    return fitted.error(
        f"the {fitted.role} was fitted on the context {', '.join(mine.names)}; the log's is {', '.join(theirs.names)}."
        f"{why} Open the log with {parameter('context', list(mine.names))}, or fit it again on a log like this one"
    )


def _example(log: Log, name: str) -> str:
    """Return the first value of a column that is not null, and where it is."""
    for part in log.source.peek(1).parts([name]):
        for batch in part.batches(1024):
            known = ~nulls(batch.column(0))
            if known.any():
                i = int(known.argmax())
                return f"e.g. {batch.column(0)[i].as_py()!r} at {part.place.of_row(part.first_row + i)}"
            break
        break
    return "without a value in its first rows"


# Categories that it does not know


def _doubt_others(fitted: Trained, log: Log, encoding: Encoding) -> dict[str, int]:
    """Count the events with categories that were not there when it was fitted, by column, and say so."""
    if not _unknown(log, encoding):
        return {}
    held = log.copy(source=log.source.peek())  # keeps a stream that can be read only once
    reader = held.reader(context=True, action=True, columns=encoding.names)
    counts: Counter[str] = Counter()
    for found in execution.run(partial(_others, reader, encoding), held, reader.columns, Workers.of(None, None, False)):
        counts += found
    for name, count in counts.items():
        text = (
            f"{count:,} events have a category in {name!r} that the {fitted.role} does not know, as it was fitted "
            f"without it: they count as other, none of {abridged(_feature_names(encoding, name))}"
        )
        doubt(LOOK, CATEGORIES, None, text)
    return dict(counts)


def _unknown(log: Log, encoding: Encoding) -> bool:
    """Whether the log may have categories that the encoding lacks."""
    theirs = {column.name: column for column in log.encoding.columns} if log.encoding else {}
    for column in encoding.columns:
        if isinstance(column, Category):
            other = theirs.get(column.name)
            if not isinstance(other, Category) or not set(other.values) <= set(column.values) or other.null:
                return True
    return False


def _feature_names(encoding: Encoding, name: str) -> list[str]:
    return next(column.feature_names() for column in encoding.columns if column.name == name)


def _others(reader: Reader, encoding: Encoding, part: Part) -> Counter[str]:
    counts: Counter[str] = Counter()
    for batch in reader.batches(part, Counter()):
        execution.raise_if_stopped()
        counts += encoding.others(batch.columns.column)
    return counts
