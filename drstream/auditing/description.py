"""What a log holds, in one pass over actions, rewards and propensities: `log.describe()`."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.auditing.audit import lenient
from drstream.errors import printable
from drstream.log import Log, Reader
from drstream.results import schema_name
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.types import Ints
from drstream.views import Described

SHOWN = 20  # actions that are printed
NO_SIZE = 1 << 62
MOST_NAMES = 10_000  # features whose names are listed: hashed ones have only numbers


@dataclass
class Counts:
    """What the pass gathers about rows without a bad value. It merges."""

    actions: Ints  # number of rows, by action
    rows: int = 0
    total: float = 0.0  # of rewards
    low: float = math.inf
    high: float = -math.inf
    least: float = math.inf  # smallest propensity
    sizes: tuple[int, int, int] = (NO_SIZE, 0, 0)  # of candidates of a row: the fewest, the most, and the sum
    items: int = 0  # in all lists, of a log of rankings
    shortest: float = math.inf  # of these lists
    longest: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    eligible: int = 0  # actions in all eligible sets
    smallest: int = 0  # size of a set; 0 if there are no sets
    largest: int = 0

    def merge(self, later: Counts) -> None:
        self.actions += later.actions
        self.rows += later.rows
        self.total += later.total
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
        self.least = min(self.least, later.least)
        (low, high, total), more = self.sizes, later.sizes
        self.sizes = min(low, more[0]), max(high, more[1]), total + more[2]
        self.items += later.items
        self.shortest, self.longest = min(self.shortest, later.shortest), max(self.longest, later.longest)
        self.skipped.update(later.skipped)
        if later.eligible:
            self.note_sizes(later.eligible, later.smallest, later.largest)

    def note_sizes(self, items: int, smallest: int, largest: int) -> None:
        """Take down the sizes of some eligible sets."""
        self.smallest = min(smallest, self.smallest) if self.eligible else smallest
        self.eligible += items
        self.largest = max(self.largest, largest)


@dataclass(frozen=True)
class Description(Described):
    """What a log holds. `print` shows it, and `to_dict` has all of it."""

    text: str  # roles of the columns
    about: dict[str, Any]
    actions: pa.Table | None  # action, count, share; None without actions

    def to_dict(self) -> dict[str, Any]:
        """The description as a dictionary."""
        return {"schema": schema_name("describe"), **self.about}

    def to_json(self) -> str:
        """The description as JSON. Undefined values are null."""
        return json.dumps(_plain(self.to_dict()), indent=2)

    def __getitem__(self, name: str) -> Any:
        return self.about[name]

    @printable
    def __repr__(self) -> str:
        about = self.about
        lines = [self.text, f"  unused      {', '.join(about['unused']) or 'none'}"]
        lines.append(
            f"  rewards     mean {about['reward_mean']:.6g}, from {about['reward_range'][0]:.6g} to "
            f"{about['reward_range'][1]:.6g}"
        )
        if about["candidates"] is not None:
            found = about["candidates"]
            lines.append(
                f"  a row has   {found['fewest']:,} to {found['most']:,} candidates, {found['mean']:.3g} on average"
            )
        if about["smallest_propensity"] is not None:
            lines.append(f"  smallest p  {about['smallest_propensity']:.6g}")
        if about["lists"]:
            lists = about["lists"]
            lines.append(
                f"  lists       from {lists['shortest']} to {lists['longest']} items, {lists['mean']:.6g} on average"
            )
        if about["eligible_sizes"] is not None:
            low, mean, high = about["eligible_sizes"]
            lines.append(f"  set sizes   mean {mean:.4g}, from {low} to {high}")
        if about["bad_rows"]:
            bad = ", ".join(f"{count:,} ({reason})" for reason, count in about["bad_rows"].items())
            lines.append(f"  bad rows    {bad}")
        if self.actions is not None:
            rows = self.actions.sort_by([("count", "descending")]).slice(0, SHOWN).to_pylist()
            wide = max((len(str(row["action"])) for row in rows), default=0)
            lines += [f"  {row['action']!s:<{max(wide, 12)}}{row['count']:>14,}  {row['share']:8.3%}" for row in rows]
            if (more := self.actions.num_rows - len(rows)) > 0:
                lines.append(f"  and {more:,} more actions, with fewer rows")
        return "\n".join(lines)


def describe(log: Log, threads: int | None = None, executor: Any = None, progress: Any = False) -> Description:
    """See `Log.describe`."""
    workers = Workers.of(threads, executor, progress)
    log = log.copy(source=log.source.peek())  # keeps a stream that can be read only once for later
    counted = lenient(log)
    counts_actions = not (log.has_candidates or log.roles.ranking)
    with_actions = log.roles.action is not None and counts_actions
    reader = counted.reader(action=with_actions or log.has_candidates)
    total = Counts(np.zeros(len(reader.labels), np.int64))
    for found in execution.run(partial(_count, reader), counted, reader.columns, workers):
        total.merge(found)
    actions = None
    if with_actions:
        share = total.actions / total.rows if total.rows else np.full(len(total.actions), np.nan)
        actions = pa.table({"action": pa.array(list(reader.labels)), "count": total.actions, "share": share})
    return Description(repr(log), _about(log, total, actions), actions)


def _count(reader: Reader, part: Part) -> Counts:
    found = Counts(np.zeros(len(reader.labels), np.int64))
    for batch in reader.batches(part, found.skipped):
        execution.raise_if_stopped()
        if len(batch.candidates):
            sizes = np.diff(batch.candidates.starts)
            of_batch = Counts(found.actions[:0], sizes=(int(sizes.min()), int(sizes.max()), int(sizes.sum())))
            found.merge(of_batch)
        elif len(batch.action):
            found.actions += np.bincount(batch.action, minlength=len(found.actions))
        found.rows += len(batch)
        found.total += float(batch.reward.sum())
        found.low, found.high = min(found.low, float(batch.reward.min())), max(found.high, float(batch.reward.max()))
        if len(batch.propensity):
            found.least = min(found.least, float(batch.propensity.min()))
        if len(batch.lists):
            sizes = np.diff(batch.lists.starts)
            found.items += int(sizes.sum())
            found.shortest, found.longest = min(found.shortest, int(sizes.min())), max(found.longest, int(sizes.max()))
        if batch.eligible is not None:
            sizes = batch.eligible.sizes
            found.note_sizes(int(sizes.sum()), int(sizes.min()), int(sizes.max()))
    return found


def _about(log: Log, total: Counts, actions: pa.Table | None) -> dict[str, Any]:
    roles = log.roles
    some = total.rows > 0
    return {
        "log": log.source.name,
        "rows": log.rows,
        "source_rows": log.source_rows,
        "filter": None if log.filter is None else log.spec.filter_text or str(log.filter),
        "context": list(roles.context),
        "n_features": log.n_features,
        "sparse": log.is_sparse,
        "categories": log.categories,
        "feature_names": log.feature_names if log.n_features <= MOST_NAMES else None,
        "left_out": list(roles.left_out),
        "unused": unused_columns(log),
        "candidates": _candidates(log, total) if log.has_candidates and some else None,
        "action": roles.action,
        "labels": [] if actions is None else actions["action"].to_pylist(),
        "counts": [] if actions is None else actions["count"].to_pylist(),
        "reward": roles.reward,
        "negated": roles.negated,
        "reward_mean": total.total / total.rows if some else math.nan,
        "reward_range": (total.low, total.high) if some else (math.nan, math.nan),
        "propensity": roles.propensity if roles.constant is None else roles.constant,
        "smallest_propensity": total.least if total.least <= 1 else None,
        "lists": _lists(total) if roles.ranking and some else None,
        "eligible": roles.eligible,
        "eligible_sizes": (total.smallest, total.eligible / total.rows, total.largest) if total.eligible else None,
        "bad_rows": dict(total.skipped),
    }


def _candidates(log: Log, total: Counts) -> dict[str, Any]:
    fewest, most, all_of_them = total.sizes
    about = {"fewest": fewest, "most": most, "mean": all_of_them / total.rows}
    return {**about, "action_is": log.roles.candidates.action_is, "features": log.candidate_features}


def _lists(total: Counts) -> dict[str, float]:
    """Lengths of the lists of a log of rankings."""
    return {"shortest": total.shortest, "longest": total.longest, "mean": total.items / total.rows}


def unused_columns(log: Log) -> list[str]:
    """Return the columns that have no role, and that the filter does not look at."""
    roles = log.roles
    used = {*roles.context, *roles.others, *log.spec.filter_columns}
    return [name for name in log.source.schema.names if name not in used]


def _plain(value: Any) -> Any:
    """JSON knows no NaN: null stands for it."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
