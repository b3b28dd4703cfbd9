"""From record batches to read-only NumPy views of checked events, in batches of 65,536 rows.

They are counted from a part's first row, however the source was cut. So every bit of a result stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.dataset as ds
from numpy.typing import NDArray

from drstream import sampling
from drstream.errors import LogError, parameter
from drstream.kernels import checks
from drstream.log import labels as action_labels
from drstream.log.batch import ROWS, Batch, Block, Context
from drstream.log.chunks import exact
from drstream.log.columns import floats, floats_or_nan, has_nulls, known_numbers, lengths, nulls, numbers
from drstream.log.eligible import Sets, bad_sets, judged, read_sets
from drstream.log.eligible import problem as problem_with_set
from drstream.log.encoding import ERROR, KEEP, KEEP_IT, REMEDY, SKIP, Encoding, Missing, Number, check_finite
from drstream.log.loggers import Loggers
from drstream.log.loggers import problem as problem_with_logger
from drstream.log.offered import Offered, Offers
from drstream.log.offered_propensities import bad_lists, flat_propensities
from drstream.log.pairs import Pairs
from drstream.log.propensities import DIFFERENT, OUTSIDE, differ, outside, read_propensities, refuse
from drstream.log.ragged import Ragged
from drstream.log.rankings import bad_rows as bad_rankings
from drstream.log.rankings import problem as problem_with_ranking
from drstream.log.rankings import read_rankings
from drstream.log.rows import Blocks, Folds, Split, keys_of
from drstream.log.schema import UNIFORM, Roles, is_list
from drstream.log.shown import ShownOffers
from drstream.log.sparse import Csr, bad_rows, problem, read_sparse
from drstream.sources.base import Part
from drstream.sources.names import arrow_says
from drstream.types import Bools, Floats, Ints

ROW = "__drstream_row__"  # column of row numbers, added for filters, splits, folds and skipped rows
EARLY = "before the first propensity model"  # why an event is left out
NO_ACTIONS = np.empty(0, np.int32)
NO_NUMBERS = np.empty(0)
Where = Callable[[int], str]  # returns where an event is stored, for messages
Events = tuple[tuple[NDArray[np.int32], Floats, Floats], dict[str, Any]]  # action, reward, propensity; and other fields


@dataclass(frozen=True)
class Reader:
    """How to read the parts of one log: roles, labels, rows, and what happens to bad rows. It can be pickled."""

    roles: Roles
    labels: Sequence[Any]
    n_features: int
    with_context: bool
    with_action: bool
    extra: tuple[str, ...]
    filter: ds.Expression | None
    filter_columns: tuple[str, ...]
    splits: tuple[Split, ...]
    skip_bad_rows: bool
    folds: Folds | Blocks | None = None
    cluster: str | None = None  # the column whose values tell which events depend on each other
    start: int = 0  # events of earlier rows are left out, and counted
    stop: int | None = None  # rows from this one on do not belong to the log
    all_propensities: bool = False  # whether to read the propensities of all actions
    checks_context: bool = True  # whether to look for numbers of contexts that are not finite
    encoding: Encoding | None = None  # of the columns of the context; None if they are read as they are
    missing: Missing = ERROR  # what happens to missing values in contexts
    constant: float | None = None  # the propensity of every row, if no column holds them
    loggers: Loggers | None = None  # how to read which policy logged an event; None: it is not read
    offers: Offers | None = None  # how to read candidates of events; None: there are none, or they are not read
    pairs: Pairs | None = None  # the context of an event becomes the pair of it and the logged candidate
    batch_rows: int = ROWS  # rows of a batch

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be decoded."""
        roles = self.roles
        names = [*roles.rewards, *self.extra, *self.filter_columns, *self.clusters]
        if roles.sample_rate is not None:
            names.append(roles.sample_rate)
        if roles.propensity is not None:
            names.append(roles.propensity)
        if self.all_propensities:
            names.extend(roles.propensities)
        if self.loggers is not None:
            names.extend(self.loggers.all_columns)
        if (self.with_action or roles.ranking) and roles.action is not None:
            names.append(roles.action)
        if self.offers is not None:
            names.extend(self.offers.needed)
        if self.with_sets and roles.eligible is not None:
            names.append(roles.eligible)
        if self.with_context:
            names.extend(roles.context)
        return tuple(dict.fromkeys(names))

    @property
    def _width(self) -> int:
        """Number of features that contexts have in the log."""
        return self.n_features if self.pairs is None else self.pairs.context

    @property
    def with_sets(self) -> bool:
        """Whether eligible sets are read: with actions, or as propensities."""
        return self.roles.eligible is not None and (self.with_action or self.roles.uniform_over_sets)

    @property
    def plain_context(self) -> bool:
        """Whether contexts are columns of numbers, or of lists of them, in which none may be missing."""
        return self.with_context and self.roles.sparse is None and self.encoding is None and self.missing == ERROR

    @property
    def clusters(self) -> tuple[str, ...]:
        """The columns whose values, instead of row numbers, decide on splits, folds and buckets."""
        users: list[Split | Folds | Blocks] = [*self.splits, *([self.folds] if self.folds else [])]
        names = [*(user.cluster for user in users), self.cluster]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def batches(self, part: Part, skipped: Counter[str]) -> Iterator[Batch]:
        """Yield the part's events. `skipped` counts the rows that were left out for a bad value."""
        skipped.update(getattr(part, "dropped", {}))  # lines of a text that hold no row
        kept = self._select(part, skipped)
        first = 0
        for batch in exact(kept, self.batch_rows):
            yield self._views(batch, part, first)
            first += batch.num_rows

    def with_bad_rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the part's rows, also those with bad values, in batches of one size.

        The reader must skip bad rows: one that does not may raise an error, and does not number its rows.
        """
        assert self.skip_bad_rows
        return exact(self.chosen(part), self.batch_rows)

    def good_rows(self, batch: pa.RecordBatch, part: Part, good: Bools) -> Batch:
        """Return the events of a batch of `with_bad_rows` in which nothing is bad."""
        return self._views(batch if good.all() else batch.filter(pa.array(good)), part, 0)

    def rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part's events. If bad rows are an error, they may be among them, and are no error yet.

        Then `choosing` are all columns that the part must have.
        """
        return self._select(part, Counter())

    @property
    def choosing(self) -> tuple[str, ...]:
        """The columns that decide which rows are events."""
        return self.columns if self.skip_bad_rows else tuple(dict.fromkeys([*self.filter_columns, *self.clusters]))

    def _select(self, part: Part, skipped: Counter[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the rows that the filter, the splits or a bad value exclude."""
        for batch in self.chosen(part):
            for good in self._drop_bad(batch, skipped) if self.skip_bad_rows else [batch]:
                yield from self._drop_early(good, skipped) if self.start else [good]

    def chosen(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the rows that the filter or the splits exclude."""
        row = part.first_row
        numbered = (
            self.filter is not None or self.splits or self.skip_bad_rows or self.start
        )  # else rows are consecutive
        for batch in part.batches(self.batch_rows):
            if self.stop is not None and row + batch.num_rows > self.stop:
                batch = batch.slice(0, max(0, self.stop - row))
            first, row = row, row + batch.num_rows
            if numbered:
                batch = batch.append_column(ROW, pa.array(np.arange(first, row)))
            if self.filter is not None:
                chunks = self._filtered(batch, part).combine_chunks().to_batches()
                if not chunks:
                    continue
                batch = chunks[0]
            for split in self.splits:
                rows = batch.column(ROW).to_numpy()
                u = sampling.at_rows(split.seed, self._keys(batch, rows, split.cluster, part))
                batch = batch.filter(pa.array(split.keep(u)))
            if batch.num_rows:
                yield batch

    def _filtered(self, batch: pa.RecordBatch, part: Part) -> pa.Table:
        """Return the rows that satisfy the filter. Parts run in parallel already, so Arrow starts no threads."""
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
        try:
            kept = acero.Declaration("filter", acero.FilterNodeOptions(self.filter), inputs=[source])
            return kept.to_table(use_threads=False)
        except pa.ArrowException as error:
            where = part.place.of_row(part.first_row)
            raise LogError(
                f"{parameter('filter')} cannot be computed for rows of the part that begins at {where}: "
                f"{arrow_says(error)}. Compare columns with values of their own type"
            ) from None

    def _keys(self, batch: pa.RecordBatch, rows: Ints | int, cluster: str | None, part: Part) -> NDArray[np.uint64]:
        """Return the keys for the random numbers of splits and folds: row numbers, or keys of clusters."""
        if isinstance(rows, int):
            rows = np.arange(rows, rows + batch.num_rows)
        if cluster is None:
            return rows.view(np.uint64)
        column = batch.column(cluster)
        if has_nulls(column) and not self.skip_bad_rows:  # _drop_bad drops such rows if bad rows are skipped
            i = int(np.argmax(nulls(column)))
            where = part.place.of_row(int(rows[i]))
            raise LogError(f"cluster is null at {where}, column {cluster!r}. {REMEDY}")
        return keys_of(column)

    def _drop_early(self, batch: pa.RecordBatch, skipped: Counter[str]) -> list[pa.RecordBatch]:
        """Drop the rows before `start`. Rows ascend."""
        early = int(np.searchsorted(batch.column(ROW).to_numpy(), self.start))
        if early:
            skipped[EARLY] += early
        return [batch.slice(early)] if early < batch.num_rows else []

    def _drop_bad(self, batch: pa.RecordBatch, skipped: Counter[str]) -> list[pa.RecordBatch]:
        good = np.ones(batch.num_rows, bool)
        for reason, _, bad in self.bad_rows(batch):
            if count := int((bad & good).sum()):
                skipped[reason] += count
                good &= ~bad
        if good.all():
            return [batch]
        return [batch.filter(pa.array(good))] if good.any() else []

    def bad_rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, str, Bools]]:
        """Yield each reason to leave rows out, with its column and those rows."""
        roles = self.roles
        if roles.ranking:
            yield from bad_rankings(batch, roles)
        for name in () if roles.ranking else roles.rewards:
            reward = batch.column(name)
            yield "reward is null", name, nulls(reward)
            yield "reward is not finite", name, ~np.isfinite(floats_or_nan(reward))
        if roles.sample_rate is not None:
            rate = batch.column(roles.sample_rate)
            yield "sample rate is null", roles.sample_rate, nulls(rate)
            kept = floats_or_nan(rate)
            yield "sample rate is not in (0, 1]", roles.sample_rate, ~((kept > 0) & (kept <= 1))
        if roles.propensity is not None and not roles.ranking:
            p = batch.column(roles.propensity)
            yield "propensity is null", roles.propensity, nulls(p)
            values = floats_or_nan(p)
            yield "propensity is not in (0, 1]", roles.propensity, ~((values > 0) & (values <= 1))
        for name in self.clusters:
            yield "cluster is null", name, nulls(batch.column(name))
        if self.loggers is not None:
            yield from self.loggers.bad_rows(batch, self._logged)
        if self.with_action and roles.action is not None:
            column = batch.column(roles.action)
            missing = nulls(column)
            yield "action is null", roles.action, missing
        if self.offers is not None:
            assert roles.action is not None
            bad = np.zeros(batch.num_rows, bool)
            for reason, name, rows in self.offers.bad_rows(batch, roles.action):
                bad |= rows
                yield reason, name, rows
            if self.all_propensities:
                about = roles.propensities[0], self.offers, roles.action, self._logged, ~(bad | missing)
                yield from bad_lists(batch, *about, uniform=roles.constant == UNIFORM)
        elif self.with_action and roles.action is not None:
            index = np.zeros(batch.num_rows, np.int32)
            index[~missing] = action_labels.encode(column.filter(pa.array(~missing)), self.labels)
            yield "action is not among the labels", roles.action, (index < 0) | (index >= len(self.labels))
            if self.all_propensities:
                listed, found = read_propensities(batch, roles.propensities, len(self.labels))
                if roles.propensity is not None:
                    found[DIFFERENT] = differ(listed, index, floats_or_nan(batch.column(roles.propensity)))
                elif self.constant is not None:
                    found[DIFFERENT] = differ(listed, index, np.full(batch.num_rows, self.constant))
                yield from ((reason, roles.propensities[0], rows) for reason, rows in found.items())
        if self.with_sets and roles.eligible is not None:
            logged = index if self.with_action else NO_ACTIONS
            lists, reasons = bad_sets(batch.column(roles.eligible), self.labels, logged)
            yield from ((reason, roles.eligible, bad) for reason, bad in reasons)
            if self.all_propensities:
                yield OUTSIDE, roles.propensities[0], outside(listed, lists)
        if self.with_context and roles.sparse is not None:
            for reason, bad in bad_rows(batch, roles.sparse):
                yield reason, roles.sparse.indices, bad
        elif self.with_context:
            for place, name in enumerate(roles.context):
                column = batch.column(name)
                if self.encoding is None or isinstance(self.encoding.columns[place], Number):
                    yield from ((reason, name, bad) for reason, bad in self._bad_contexts(column))
                elif self.missing == ERROR:
                    yield "context is null", name, nulls(column)

    def _bad_contexts(self, column: pa.Array) -> Iterator[tuple[str, Bools]]:
        kept = self.missing != ERROR and not self.roles.listed  # a list that is missing altogether stays bad
        bad = np.zeros(len(column), bool) if kept else nulls(column)
        yield "context is null", bad
        if self.roles.listed:
            short = np.zeros(len(column), bool)
            short[~bad] = lengths(column.filter(pa.array(~bad))) != self._width
            yield "context has another length", short
            bad |= short
        values = floats_or_nan(_flat(column.filter(pa.array(~bad))))
        usable = np.isfinite(values) if self.missing == ERROR else ~np.isinf(values)
        finite = usable.reshape(int((~bad).sum()), -1).all(axis=1)
        infinite = np.zeros(len(column), bool)
        infinite[~bad] = ~finite
        yield "context is not finite", infinite

    def _views(self, batch: pa.RecordBatch, part: Part, first: int) -> Batch:
        roles = self.roles
        rows: Ints | int = part.first_row + first
        if ROW in batch.schema.names:
            rows = batch.column(ROW).to_numpy()

        def where(i: int) -> str:
            return part.place.of_row(int(rows + i if isinstance(rows, int) else rows[i]))

        events, more = (self._rankings if roles.ranking else self._events)(batch, where)
        context: Context = []
        if self.with_context and roles.sparse is not None:
            context = self._sparse_context(batch, where)
        elif self.with_context and self.encoding is not None:
            context = self.encoding.read(batch.column, where)
        elif self.with_context:
            columns = []
            for name in roles.context:
                values = self._context_values(self._whole(batch, name, "context", where), name, where)
                if self.checks_context:
                    check_finite(values, name, where, nan=self.missing == KEEP)
                columns.append(values)
            context = columns[0] if roles.listed else columns
        logger = [] if self.loggers is None or self.loggers.column in self.extra else [self.loggers.column]
        extra = batch.select([*self.extra, *logger])
        fold = None if self.folds is None else self.folds.of(self._keys(batch, rows, self.folds.cluster, part))
        keys = None if self.cluster is None else self._keys(batch, rows, self.cluster, part)
        weight = self._row_weight(batch, where)
        mixture = None if self.loggers is None else self._mixture(batch, where)
        known = (part.place, rows, *events)
        found = Batch(*known, context, self._width, extra, fold, keys, weight, mixture=mixture, **more)
        return found if self.pairs is None else self.pairs.logged(found)

    def _events(self, batch: pa.RecordBatch, where: Where) -> Events:
        """Return action, reward and propensity, other rewards, the propensities of all actions, and sets."""
        roles = self.roles
        reward = self._reward(batch, roles.reward, where)
        more = {name: self._reward(batch, name, where) for name in roles.more_rewards}
        propensity = NO_NUMBERS
        if roles.propensity is not None:
            propensity = floats(self._whole(batch, roles.propensity, "propensity", where))
        elif self.constant is not None:
            propensity = np.full(batch.num_rows, self.constant)
        action, offered = NO_ACTIONS, None
        if self.offers is not None:
            offered, action = self._candidates(batch, self.offers, where)
            if roles.constant == UNIFORM:
                propensity = 1 / np.diff(offered.starts)
        elif self.with_action and roles.action is not None:
            action = action_labels.encode(self._whole(batch, roles.action, "action", where), self.labels)
        lists = self._lists(batch, where) if self.with_sets else None
        if lists is not None and roles.uniform_over_sets:
            propensity = 1 / np.maximum(np.diff(lists.starts), 1)
        self._check(NO_ACTIONS if offered else action, reward, propensity, batch, where)
        eligible = None if lists is None else self._sets(lists, action, batch, where)
        listed = None
        if self.all_propensities and offered is not None:
            flat, bad = flat_propensities(batch, roles.propensities[0], offered, action, propensity)
            refuse(bad, batch, roles.propensities, propensity, where, "it must hold one for each candidate")
            offered = replace(offered, propensities=flat)
        elif self.all_propensities:
            listed = self._propensities(batch, action, propensity, lists, where)
        for other in more.values():
            self._check(NO_ACTIONS, other, NO_NUMBERS, batch, where)
        sets = {"candidates": offered, "eligible": eligible}
        return (action, reward, propensity), {"more_rewards": more, "propensities": listed, **sets}

    def _candidates(self, batch: pa.RecordBatch, offers: Offers, where: Where) -> tuple[Offered, NDArray[np.int32]]:
        """Return the candidates and the positions of the logged ones, or raise an error at the first bad row."""
        assert self.roles.action is not None
        found = offers.read(batch, self._whole(batch, self.roles.action, "action", where))
        if found is None:
            raise self._bad_candidates(batch, offers, self.roles.action, where)
        return found

    def _bad_candidates(self, batch: pa.RecordBatch, offers: Offers, action: str, where: Where) -> LogError:
        i, what, name, hint = offers.problem(batch, action)
        return LogError(f"{what}, at {where(i)}, column {name!r}. {hint}{REMEDY}")

    def _rankings(self, batch: pa.RecordBatch, where: Where) -> Events:
        """Return the same of rankings: no action, sums of rewards, smallest propensities; and the lists."""
        found = read_rankings(batch, self.roles, self.constant)
        if found is None:
            i, what = problem_with_ranking(batch, self.roles)
            raise LogError(f"{what}, at {where(i)}. {REMEDY}")
        about: dict[str, Any] = {name: found.rewards[name] for name in self.roles.more_rewards}
        about = {"more_rewards": about, "lists": found.lists}
        if isinstance(self.offers, ShownOffers):
            assert self.roles.action is not None
            shown = self.offers.read_shown(batch, batch.column(self.roles.action))
            if shown is None:
                raise self._bad_candidates(batch, self.offers, self.roles.action, where)
            about |= {"candidates": shown[0], "lists": replace(found.lists, shown=shown[1])}
        return (NO_ACTIONS, found.rewards[self.roles.reward], found.least), about

    def _reward(self, batch: pa.RecordBatch, name: str, where: Where) -> Floats:
        reward = floats(self._whole(batch, name, "reward", where))
        return -reward if self.roles.negated else reward

    def _row_weight(self, batch: pa.RecordBatch, where: Where) -> Floats | None:
        """Return the number of rows that each row stands for, 1 / sample rate; None if the log is not down-sampled."""
        name = self.roles.sample_rate
        if name is None:
            return None
        rate = floats(self._whole(batch, name, "sample rate", where))
        bad = ~((rate > 0) & (rate <= 1))
        if bad.any():
            i = int(np.argmax(bad))
            raise LogError(f"sample rate must be in (0, 1]: got {rate[i]} at {where(i)}, column {name!r}. {REMEDY}")
        return 1 / rate

    def _lists(self, batch: pa.RecordBatch, where: Where) -> Ragged:
        assert self.roles.eligible is not None
        return read_sets(self._whole(batch, self.roles.eligible, "eligible set", where), self.labels)

    def _sets(self, lists: Ragged, action: NDArray[np.int32], batch: pa.RecordBatch, where: Where) -> Sets:
        """Return the eligible sets, or raise an error at the first bad one."""
        found, wrong = judged(lists, self.labels, action)
        if wrong is None:
            return found
        name = self.roles.eligible
        i, reason, value = problem_with_set(batch.column(name), wrong)
        logged = f", where the action is {batch.column(self.roles.action)[i].as_py()!r}" if len(action) else ""
        raise LogError(f"{reason}: got {value}{logged}, at {where(i)}, column {name!r}. {REMEDY}")

    @property
    def _logged(self) -> str | float | None:
        """The column of the logged propensities, or that of every row."""
        return self.constant if self.roles.propensity is None else self.roles.propensity

    def _mixture(self, batch: pa.RecordBatch, where: Where) -> Floats | None:
        """Return the propensities of all loggers together, or raise an error at the first bad row."""
        assert self.loggers is not None
        if not self.skip_bad_rows and (found := problem_with_logger(self.loggers, batch, self._logged)):
            raise LogError(f"{found[0]}, at {where(found[1])}. {REMEDY}")
        return self.loggers.mixture(batch) if self.loggers.shares else None

    def _propensities(
        self, batch: pa.RecordBatch, action: Any, propensity: Floats, lists: Ragged | None, where: Where
    ) -> Floats:
        """Return the propensities of all actions (n, K), or raise an error at the first bad row."""
        names = self.roles.propensities
        found, bad = read_propensities(batch, names, len(self.labels))
        if len(propensity):
            bad[DIFFERENT] = differ(found, action, propensity)
        if lists is not None:
            bad[OUTSIDE] = outside(found, lists)
        refuse(bad, batch, names, propensity, where, f"there are {len(self.labels)} actions")
        return found

    def check_finite(self, block: Block) -> None:
        """Raise an error if a number of the block's contexts is not finite, for a pass that does not check them all."""
        if not self.with_context:
            return
        context = block.batch.context
        columns = [context] if isinstance(context, np.ndarray) else context
        if not isinstance(columns, list):  # an encoding has looked at its numbers
            return
        for name, values in zip(self.roles.context, columns, strict=True):
            check_finite(values[block.start : block.stop], name, block.where)

    def _sparse_context(self, batch: pa.RecordBatch, where: Where) -> Csr:
        sparse = self.roles.sparse
        assert sparse is not None
        for name in sparse.columns:
            self._whole(batch, name, "context", where)
        found = read_sparse(batch, sparse)
        if found is None:
            i, reason, value = problem(batch, sparse)
            raise LogError(f"{reason}: {value} at {where(i)}, column {sparse.indices!r}. {REMEDY}")
        return found

    def _whole(self, batch: pa.RecordBatch, name: str, role: str, where: Where) -> pa.Array:
        """Return a column, or raise an error if it has nulls."""
        column = batch.column(name)
        if has_nulls(column):
            i = int(np.argmax(nulls(column)))
            hint = f", {KEEP_IT}" if role == "context" and self.missing == ERROR and not self.roles.sparse else ""
            raise LogError(f"{role} is null at {where(i)}, column {name!r}. {REMEDY}{hint}")
        return column

    def _check(self, action: Any, reward: Floats, propensity: Floats, batch: pa.RecordBatch, where: Where) -> None:
        i = checks.first_bad(action, len(self.labels), reward, propensity)
        if i < 0:
            return
        if not np.isfinite(reward[i]):
            raise LogError(f"reward must be finite: got {reward[i]} at {where(i)}. {REMEDY}")
        if len(propensity) and not 0 < propensity[i] <= 1:
            raise LogError(f"propensity must be in (0, 1]: got {propensity[i]} at {where(i)}. {REMEDY}")
        value = batch.column(self.roles.action)[i].as_py()
        raise LogError(
            f"action {value!r} is not among the {describe_labels(self.labels)}: at {where(i)}. "
            f"Pass all labels with {parameter('actions')}, or {SKIP}"
        )

    def _context_values(self, column: pa.Array, name: str, where: Where) -> NDArray[Any]:
        """Return (n,) for a column of numbers, (n, d) for a column of lists; float32 and float64 as they are."""
        if not self.roles.listed:
            return numbers(column)
        d = self._width
        fixed = pa.types.is_fixed_size_list(column.type) and column.type.list_size == d
        if not fixed and (lengths(column) != d).any():
            found = lengths(column)
            i = int(np.argmax(found != d))
            raise LogError(f"context {name!r} has {found[i]} numbers where others have {d}, at {where(i)}. {REMEDY}")
        values = _flat(column)
        if self.missing != ERROR:
            return known_numbers(values, None if self.missing == KEEP else self.missing).reshape(len(column), d)
        if has_nulls(values):
            i = int(np.argmax(nulls(values))) // d
            raise LogError(f"context {name!r} holds a null at {where(i)}. {REMEDY}, {KEEP_IT}")
        return numbers(values).reshape(len(column), d)


def _flat(column: pa.Array) -> pa.Array:
    """Return the numbers of all lists. Unlike .values, .flatten() respects the offset of a sliced batch."""
    return column.flatten() if is_list(column.type) else column


def describe_labels(labels: Sequence[Any]) -> str:
    shown = [repr(x) for x in (list(labels) if len(labels) <= 6 else [*labels[:3], *labels[-1:]])]
    if len(labels) > 6:
        shown.insert(3, "...")
    return f"{len(labels)} action{'s' * (len(labels) != 1)} {', '.join(shown)}"
