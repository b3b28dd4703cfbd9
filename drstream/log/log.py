"""A log of events: where they are stored, which column plays which role, and which rows belong to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drstream.errors import LogError, parameter, printable
from drstream.findings import Finding
from drstream.log import labels as action_labels
from drstream.log.categories import Hashed
from drstream.log.doubts import doubts
from drstream.log.encoding import ERROR, KEEP, Missing, check_missing
from drstream.log.exporting import batches_of, count_rows, frame_of, table_of
from drstream.log.facts import Facts
from drstream.log.filters import parse_filter
from drstream.log.ids import IdColumn, find_ids, id_columns
from drstream.log.kinds.candidates.columns import (
    Candidates,
    candidate_columns,
    check_candidates,
    stored_candidates,
    with_action,
)
from drstream.log.kinds.eligible.columns import check_eligible
from drstream.log.kinds.rankings.columns import NEEDS_ONE, refusal, shown_lengths, shown_propensities
from drstream.log.kinds.rankings.reading import totals
from drstream.log.labels import describe_labels
from drstream.log.loggers import Loggers, find_loggers, logger_roles, match_loggers
from drstream.log.offering import Offering
from drstream.log.outcomes import without_outcomes
from drstream.log.propensities import width
from drstream.log.reader import Reader
from drstream.log.rows import Blocks, Folds, Origin, Split, check_cluster, split_seed
from drstream.log.schema import FIND, UNIFORM, Find, Roles, assign_roles, require_column
from drstream.log.sparse import Sparse
from drstream.log.spec import Needs, Spec
from drstream.sources.base import Part, SameObject
from drstream.sources.open import open_source
from drstream.types import Floats
from drstream.views import Described

if TYPE_CHECKING:
    from drstream.auditing.description import Description
    from drstream.auditing.result import Audit

FAR = 1e5  # in standard deviations: so far from 0, sums of squares about 0 lose ten of sixteen digits


class Log(Offering, Described):
    """Logged events (x, a, r, p), streamed from wherever they are.

    source      Where the events are: a path, glob, list of paths, directory or URI of Parquet files, Arrow IPC files, a
                pyarrow Table, Dataset or RecordBatchReader, or any object with __arrow_c_stream__ (polars, pandas,
                duckdb).
    context     Columns of the context: names or globs of columns, the name of one column of lists, or `Sparse(...)`. By
                default, the log looks for columns with usual names. Strings and dictionaries are categories, which are
                one-hot encoded. `Hashed("column")` stands for a column that has too many of them.
    action, reward, propensity
                Names of columns. By default, the log looks for columns with usual names, and `repr` says which it
                found. Pass propensity=None if the log has no propensities, a number such as 1/3 if all are the same,
                or "uniform" for 1 / the number of actions. With action=None, only what needs no actions can be
                evaluated. With reward=["visit", "spend"], `evaluate` evaluates both rewards in one pass; everything
                else uses the first.
    actions     Labels of the actions, in the order of a policy's probabilities, or the number of actions. By default,
                the log finds them itself: they are the distinct values of the column, sorted.
    filter      Only rows that satisfy it belong to the log: text such as "country == 'DE' and day >= '2026-11-01'", or
                a pyarrow expression.
    exclude     Names or globs of columns that are not taken as contexts, with globs such as context="*". That one also
                leaves out what looks like an id or a time.
    sample_rate For a down-sampled log: a column with the probability with which each row was kept. In `evaluate`, a row
                then counts as 1 / sample_rate rows.
    propensities
                The propensities of all actions: a column of lists, or a column for each action, in the order of the
                labels. In a log of candidates, a column of lists that are as long as the candidates. The estimators
                that weigh stretches of time, or by category, need them.
    categorical Columns of the context whose integers or booleans are categories, too.
    missing     What to do with nulls and NaN in the context. "error" makes them bad rows. "keep" hands NaN to functions
                and models that take it. A number is put in their place. With "keep" or a number, null is a category.
    logger      For a log of several logging policies: the column that says which one logged a row. `evaluate` then
                checks the weights of each.
    logger_propensities
                For each logger, the column with its probability of the logged action, also where another one logged: a
                mapping of loggers to columns, or columns in the order of the sorted loggers. The balanced estimators
                need them.
    eligible    Column with lists of the actions that each event could choose from, if not all events could choose any.
                Policies and propensity models then act on these only. An action that is in a list, but was never
                logged, is an action, too.
    candidates  For a log whose events have candidates of their own, e.g. the items that a page could show:
                `Candidates(...)` names the columns with their ids and features. A log that `convert` wrote from events
                with candidates knows them by itself, unless you pass None, or actions=.
    positions   For a log of rankings, whose action is a column of lists of shown items: what the propensities by
                position are. "marginal": those of an item at its position. "conditional": given the items above it.
                "independent": positions were filled independently of each other, so both are the same, and a list
                may have an item twice. Some estimators need one of them; docs/rankings.md says which.
    on_bad_row  "error" raises an error at an event that cannot be used. "skip" leaves such events out and counts them.

    >>> import pyarrow as pa
    >>> table = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "age": [31, 64]})
    >>> Log(table, context=["age"])
    Log of table: 2 rows
      context     1 feature: age
      action      action: 2 actions 0, 1
      reward      reward
      propensity  propensity
    """

    def __init__(
        self,
        source: Any,
        context: str | Sequence[str | Hashed] | Hashed | Sparse | Find = FIND,
        action: str | Find | None = FIND,
        reward: str | Sequence[str] | Find = FIND,
        propensity: str | float | Find | None = FIND,
        *,
        actions: int | Sequence[Any] | None = None,
        filter: ds.Expression | str | None = None,
        exclude: str | Sequence[str] | None = None,
        sample_rate: str | None = None,
        propensities: str | Sequence[str] | None = None,
        categorical: str | Sequence[str] | None = None,
        missing: Missing = ERROR,
        logger: str | None = None,
        logger_propensities: Sequence[str] | Mapping[Any, str] | None = None,
        eligible: str | None = None,
        candidates: Candidates | Find | None = FIND,
        positions: str | None = None,
        on_bad_row: str = "error",
    ) -> None:
        self.opened = "Log", {name: value for name, value in locals().items() if name != "self"}
        _check_on_bad_row(on_bad_row)
        self.source = open_source(source)
        self.facts = Facts(self.source)
        schema = self.source.schema
        of_loggers, loggers = logger_roles(schema, logger, logger_propensities)
        found = False
        if candidates is FIND:
            stored = stored_candidates(schema, action) if actions is None and eligible is None else None
            candidates = None if stored is None else stored.candidates
            if stored is not None:
                found = propensities is None and stored.propensities is not None
                propensities = stored.propensities if propensities is None else propensities
                sample_rate = stored.sample_rate if sample_rate is None else sample_rate
        named = context, action, reward, propensity, sample_rate, propensities, categorical
        sets = None if candidates is None else check_candidates(schema, candidates)
        of_candidates = () if sets is None else candidate_columns(schema, sets)
        about = of_loggers, of_candidates, positions, eligible
        roles = assign_roles(schema, *named, exclude, logger, *about)
        if sets is not None:
            if roles.ranking:
                raise LogError(
                    f"column {roles.lists[0]!r} holds lists, so this is a log of rankings. It takes no "
                    f"{parameter('candidates')}: leave it out, and name columns with the probabilities of policies"
                )
            roles = replace(roles, candidates=with_action(schema, sets, roles.action))
            _check_beside_candidates(actions, roles.propensities, eligible)
        if eligible is not None:
            if roles.ranking:
                raise refusal(roles, f"{parameter('eligible')} is about events with one action: leave it out")
            check_eligible(schema, eligible, roles.action)
        roles = without_outcomes(self.facts, roles)
        if roles.sparse is not None and check_missing(missing) != ERROR:
            raise LogError(
                f"{parameter('missing', missing)}: a sparse context lists what is there, so nothing is missing"
            )
        chosen = parse_filter(filter, schema) if isinstance(filter, str) else filter
        self.spec = Spec(
            roles=roles,
            missing=check_missing(missing),
            skip_bad_rows=on_bad_row == "skip",
            filter=chosen,
            filter_text=filter if isinstance(filter, str) else None,
            filter_columns=_columns_of(chosen, schema),
            propensities_found=found,
            labels=() if actions is None else _given(actions, roles, schema),
            loggers=None if logger is None else Loggers(logger, loggers or ()),
        )
        if roles.constant == UNIFORM and roles.action is None and actions is None:  # no candidates, either
            raise LogError(
                f"{parameter('propensity', UNIFORM)} is 1 / the number of actions, which this log does not "
                f"tell: give the number with {parameter('actions')}, or the propensity itself"
            )

    @property
    def filter(self) -> ds.Expression | None:
        """The filter of rows."""
        return self.spec.filter

    @property
    def filter_text(self) -> str | None:
        """The filter of rows as it was written; None if it was an expression."""
        return self.spec.filter_text

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """The columns that the filter looks at."""
        return self.spec.filter_columns

    @property
    def on_bad_row(self) -> str:
        """What happens to rows that cannot be used."""
        return "skip" if self.spec.skip_bad_rows else "error"

    @cached_property
    def labels(self) -> Sequence[Any]:
        """Labels of the actions, in the order of a policy's probabilities. A log of candidates has none."""
        self.refuse_rankings()
        self._check_labels()
        return self.spec.labels or self.facts.of(self._labels_key, self._find_labels)

    @property
    def _labels_key(self) -> Any:
        """What the labels of the actions depend on: skipped rows have no say in them."""
        roles, skip = self.roles, self.spec.skip_bad_rows
        of_skipped = (roles.reward, roles.propensity) if skip else None
        return "labels", roles.action, roles.eligible, roles.propensities, of_skipped, self.filter is None

    def _find_labels(self) -> Sequence[Any]:
        skip, roles = self.spec.skip_bad_rows, self.roles
        found = action_labels.find_labels(self.source, roles, skip, hints=self.filter is None)
        return action_labels.widened(found, width(self.source.schema, roles.propensities))

    @property
    def constant_propensity(self) -> float | None:
        """The propensity of every row, if no column holds them. None if it is 1 / the size of its eligible set."""
        constant = self.roles.constant
        uniform = constant == UNIFORM  # over candidates, it differs with their number
        if self.roles.uniform_over_sets or (self.roles.candidates is not None and uniform):
            return None
        return 1 / self.n_actions if constant == UNIFORM else constant  # type: ignore[return-value]

    @property
    def loggers(self) -> tuple[Any, ...]:
        """The logging policies of a log of several: those that `logger_propensities` names, else all, sorted."""
        loggers = self.spec.loggers
        if loggers is None:
            return ()
        if loggers.labels:
            return loggers.labels
        found = self.facts.of(("loggers", loggers.column), partial(find_loggers, self.source, loggers.column))
        columns = self.roles.logger_propensities
        return match_loggers(found, columns, loggers.column) if columns else found

    @cached_property
    def pivot(self) -> float:
        """The typical reward if rewards lie far from 0, compared with their spread, else 0."""
        first = self._first_rewards
        mean, spread = self.typical_reward, float(first.std()) if len(first) else 0.0
        return mean if abs(mean) > FAR * spread and not self.spec.about_zero else 0.0

    @property
    def same_rewards(self) -> bool:
        """Whether the first rewards are all the same."""
        return not len(self._first_rewards) or not self._first_rewards.std()

    @property
    def typical_reward(self) -> float:
        """Mean of the first finite rewards, or 0 if there are none."""
        first = self._first_rewards
        mean = float(first.mean()) if len(first) else 0.0
        return -mean if self.roles.negated else mean

    @cached_property
    def _first_rewards(self) -> Floats:
        batch = self.facts.first([self.roles.reward])
        first = np.empty(0) if batch is None else totals(batch.column(0))
        return first[np.isfinite(first)]

    def refuse_rankings(self, what: str = NEEDS_ONE) -> None:
        """Raise an error if this is a log of rankings. Without a word, all that takes one action an event does so."""
        if self.roles.ranking:
            raise refusal(self.roles, what)

    @property
    def n_actions(self) -> int:
        """Number of actions, K."""
        return len(self.labels)

    @cached_property
    def rows(self) -> int | None:
        """Number of rows of this log, those with bad values included; None if only reading a stream would tell.

        After a filter, or a split by cluster, the first call reads the columns that decide on the rows.
        """
        spec = self.spec
        key = "rows", SameObject(self.source), str(spec.filter), spec.splits, spec.stop
        return self.facts.of(key, lambda: count_rows(self))

    @property
    def source_rows(self) -> int | None:
        """Number of rows of the source, before filters and splits; None if only reading the source would tell."""
        return self.source.rows

    @property
    def share(self) -> float:
        """Expected share of the rows that splits leave."""
        return math.prod(split.share for split in self.spec.splits)

    @property
    def propensities_are_found(self) -> bool:
        """Whether the log itself knew the column of all candidates' propensities: then only who needs them reads it."""
        return self.spec.propensities_found

    @property
    def labels_are_given(self) -> bool:
        """Whether actions= gave the labels; otherwise they were found in the log."""
        return bool(self.spec.labels)

    @property
    def doubts(self) -> list[Finding]:
        """What the first rows give reason to doubt, e.g. a context that looks like an outcome; `audit` looks at all."""
        known = self._has_labels and (self.labels_are_given or self.facts.known(self._labels_key))
        return doubts(self.facts, self.roles, self.labels if known else None, self.labels_are_given)

    def ids(self) -> list[IdColumn]:
        """Return columns without a role whose ids repeat in the first rows, as a user's do: they may be a cluster."""
        return find_ids(self.facts, self.id_columns())

    def id_columns(self) -> list[str]:
        """Return the columns without a role that look like ids."""
        used = {*self.roles.context, *self.roles.others, *(split.cluster for split in self.spec.splits)}
        return id_columns(self.facts, [name for name in self.source.schema.names if name not in used])

    def audit(
        self,
        event_id: str | None = None,
        time: str | None = None,
        expected_rows: int | None = None,
        expected_reward: float | None = None,
        threads: int | None = None,
        executor: Any = None,
        progress: Any = False,
    ) -> Audit:
        """Check whether the log can be trusted, in one pass, before any policy is evaluated on it.

        Bad values do not stop the audit: they are counted. All other checks are about the rows without a bad value.

        event_id  A column whose values must all be different.
        time      A column of timestamps, dates, integers or floats, to compare blocks of time with each other.
        expected_rows, expected_reward
                  How many rows the log should have, and the mean of its reward, from who counted them elsewhere. Events
                  without a reward that were dropped cannot be seen from the log alone.
        threads, executor, progress
                  As in `drs.evaluate`. The result does not depend on them.

        >>> import pyarrow as pa
        >>> table = pa.table({"action": [0, 1] * 50, "reward": [1.0, 0.0] * 50, "propensity": [1.0] * 100})
        >>> Log(table).audit().level
        'stop'
        """
        from drstream.auditing.audit import audit

        return audit(self, event_id, time, expected_rows, expected_reward, threads, executor, progress)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of this log, by default with all columns of its source, in record batches.

        Bad rows raise an error, or are left out, as `on_bad_row` says.
        """
        return batches_of(self, columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of this log as a table, by default with all columns of its source; bad rows as in `batches`.

        >>> import pyarrow as pa
        >>> table = pa.table({"action": [0, 1] * 50, "reward": [1.0, 0.0] * 50, "propensity": [0.5] * 100})
        >>> train, test = Log(table).split(0.5)
        >>> train.to_arrow().num_rows + test.to_arrow(["reward"]).num_rows
        100
        """
        return table_of(self, columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of this log as a pandas frame. See `to_arrow`."""
        return frame_of(self, columns, "pandas")

    def to_polars(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of this log as a polars frame. See `to_arrow`."""
        return frame_of(self, columns, "polars")

    def describe(self, threads: int | None = None, executor: Any = None, progress: Any = False) -> Description:
        """Say what the log holds, in one pass over actions, rewards and propensities. Bad rows do not stop it.

        `print` shows the roles and the unused columns, the mean reward, the smallest propensity and the counts of
        actions. `to_dict()` has all of it.

        >>> import pyarrow as pa
        >>> columns = {"action": [3, 5] * 5, "reward": [1.0, 0.0] * 5, "propensity": [0.5] * 10, "day": [1] * 10}
        >>> print(Log(pa.table(columns)).describe())
        Log of table: 10 rows
          context     none
          action      action: 2 actions 3, 5
          reward      reward
          propensity  propensity
          unused      day
          rewards     mean 0.5, from 0 to 1
          smallest p  0.5
          3                        5   50.000%
          5                        5   50.000%
        """
        from drstream.auditing.description import describe

        return describe(self, threads, executor, progress)

    def _wider(self, labels: Sequence[Any]) -> Log:
        """Return the same log with more labels, unless its propensities depend on their number."""
        if self.roles.constant == UNIFORM and self.roles.eligible is None:
            raise LogError(
                f"{parameter('propensity', UNIFORM)} is 1/{self.n_actions} in a log of {self.n_actions} actions, and a "
                f"policy or model knows {len(labels)}: say how many the logging policy chose from, with "
                f"{parameter('actions')}, or give the propensity as a number"
            )
        return self.copy(labels=labels)

    def with_actions_of(self, *users: Any) -> Log:
        """Return the same log with the actions that policies and models know, if it has fewer and they were found.

        Something fitted brings its labels. Weights with K rows say that the actions are 0..K-1.
        """
        if self.labels_are_given or self.has_candidates:
            return self
        for user in users:
            labels = getattr(user, "known_labels", None)
            if isinstance(labels, Sequence) and len(labels) > self.n_actions and set(labels).issuperset(self.labels):
                return self._wider(action_labels.as_labels(labels, like=self.labels))
        known = max((getattr(user, "n_actions", None) or 0 for user in users), default=0)
        wider = action_labels.widened(self.labels, known)
        return self if wider is self.labels else self._wider(wider)

    def for_reward(self, name: str) -> Log:
        """Return the same log with this one reward."""
        return self.copy(roles=self.roles.for_reward(name))

    def about_zero(self) -> Log:
        """Return the same log, whose pivot is 0 although its first rewards are all the same: others may follow."""
        return self.copy(about_zero=True)

    def without_propensities(self) -> Log:
        """Return the same log, which does not read its propensities."""
        without = {"propensity": None, "propensities": (), "constant": None, "logger_propensities": ()}
        return self.copy(roles=replace(self.roles, **without))  # type: ignore[arg-type]

    def with_bad_rows(self, on_bad_row: str) -> Log:
        """Return the same log with another `on_bad_row`."""
        _check_on_bad_row(on_bad_row)
        return self.copy(skip_bad_rows=on_bad_row == "skip")

    def with_labels(self, labels: Sequence[Any]) -> Log:
        """Return the same log with these labels of actions."""
        return self.copy(labels=labels)

    def split(self, fraction: float, seed: int = 0, cluster: str | None = None) -> tuple[Log, Log]:
        """Return two logs without a common row. The first has about this fraction of the rows.

        A hash of the row number decides on the side, or a hash of the value in the column `cluster`. With a cluster,
        all events of one user, say, fall to the same side. The same rows fall to the same side in every run, however
        the log is stored or read.
        """
        if not isinstance(fraction, Real) or not 0 <= fraction <= 1:
            raise LogError(f"split({fraction!r}): the fraction must be a number in [0, 1]")
        self.check_cluster(cluster)
        key = split_seed(seed, len(self.spec.splits))
        parts = Split(key, 0.0, fraction, cluster=cluster), Split(key, fraction, 1.0, cluster=cluster)
        return self.part_of(parts[0]), self.part_of(parts[1])

    def folds(self, count: int, seed: int = 0, cluster: str | None = None) -> Folds:
        """Return `count` folds, chosen by a hash of the row number or of the value in the column `cluster`."""
        if count < 2:
            raise LogError(f"folds({count}): at least 2")
        self.check_cluster(cluster)
        return Folds(count, seed, cluster)

    def check_cluster(self, cluster: str | None) -> None:
        if cluster is not None:
            require_column(self.source.schema, cluster, "cluster")
            check_cluster(self.source.schema, cluster)

    def part_of(self, split: Split) -> Log:
        """Return the log of those rows that are in the split."""
        return self.copy(splits=(*self.spec.splits, split))

    def rows_before(self, row: int) -> Log:
        """Return the log of the rows whose number is smaller. Later parts are not read."""
        return self.copy(stop=row if self.spec.stop is None else min(row, self.spec.stop))

    @property
    def origin(self) -> Origin:
        """Describes which rows belong to this log. A fitted model keeps it, without the rows themselves."""
        keys = self.source.keys or (SameObject(self.source),)
        text = None if self.filter is None else str(self.filter)
        return Origin(self.source.name, keys, self.spec.splits, text, self.spec.stop)

    def head(self, rows: int = 5) -> pa.Table:
        """Return the first rows of the log with all columns, unchanged."""
        if rows < 0:
            raise LogError(f"head({rows}): at least 0")
        schema = self.source.schema
        found = []
        count = 0
        log = self if any(split.cluster for split in self.spec.splits) else self.with_bad_rows("error")
        reader = log.reader(columns=schema.names)  # bad rows are shown, except those whose cluster is null
        for part in self.source.parts(schema.names, self.filter):
            for batch in reader.rows(part):
                found.append(batch.select(schema.names).slice(0, rows - count))
                count += found[-1].num_rows
                if count >= rows:
                    break
            if count >= rows:
                break
        plain = [pa.Table.from_batches([b]).cast(schema) for b in found]
        return pa.concat_tables(plain) if plain else schema.empty_table()

    def reader(
        self,
        *,
        context: bool = False,
        action: bool = False,
        columns: Sequence[str] = (),
        folds: Folds | Blocks | None = None,
        cluster: str | None = None,
        start: int = 0,
        propensities: bool = False,
        loggers: bool = False,
        logger_propensities: bool = False,
        candidates: bool = False,
    ) -> Reader:
        """Return a reader of this log's parts that decodes only what is asked for.

        action        Reads the logged actions and, in a log of candidates, how many there are.
        start         Events of earlier rows are left out, and counted.
        propensities  Reads those of all actions, too. Actions must be read.
        loggers       Reads which policy logged each event, if the log has several.
        logger_propensities
                      Reads those of all loggers, too.
        candidates    Reads the features of candidates, too.
        """
        if self.as_pairs is not None:
            candidates = context
        if self.roles.candidates is not None and (candidates or self.roles.constant == UNIFORM):
            action = True
        for name in columns:
            require_column(self.source.schema, name, "policy or model")
        needs = Needs(
            context=context,
            action=action,
            columns=tuple(columns),
            propensities=propensities,
            loggers=loggers,
            logger_propensities=logger_propensities,
            candidates=candidates,
        )
        return Reader(self._spec(needs), needs, folds, cluster, start)

    def _spec(self, needs: Needs) -> Spec:
        """What workers must know to read what is needed. Labels, loggers and categories take a pass, so only then."""
        acts, roles = needs.action, self.roles
        return replace(
            self.spec,
            labels=self.labels if self._has_labels and (acts or roles.uniform_over_sets) else (),
            width=self.context_width if needs.context else 0,
            encoding=self.encoding if needs.context and not self.reads_numbers else None,
            constant=self.constant_propensity,
            loggers=self._read_loggers(needs.logger_propensities) if needs.loggers else None,
            offers=self.offers(features=needs.candidates) if acts else None,
            batch_rows=self.batch_rows,
        )

    def _read_loggers(self, propensities: bool) -> Loggers | None:
        loggers, roles = self.spec.loggers, self.roles
        if loggers is None:
            return None
        if not propensities:
            return Loggers(loggers.column)
        return Loggers(loggers.column, self.loggers, roles.logger_propensities, logged=roles.propensity)

    def parts(self, columns: Sequence[str]) -> Iterator[Part]:
        named = [name for name in (self.roles.action, self.roles.eligible, *self.roles.coded) if name is not None]
        text = [name for name in named if name not in (*self.filter_columns, *self.roles.lists)]
        parts, stop = self.source.parts(columns, self.filter, text), self.spec.stop
        return parts if stop is None else itertools.takewhile(lambda part: part.first_row < stop, parts)

    @printable
    def __repr__(self) -> str:
        roles = self.roles
        known = self.labels_are_given or self.facts.known(self._labels_key) or self.source_rows is not None
        labels = "labels not known before reading"
        if self.has_candidates:
            labels = self._shown_choice()
        elif known and roles.ranking:
            labels = shown_lengths(self.facts, roles)
        elif known and roles.action:
            labels = describe_labels(self.labels)
        lines = [
            f"Log of {'rankings in ' * roles.ranking}{self.source.name}: {self._shown_rows()}{self._shown_files()}",
            f"  context     {self._shown_context()}",
            f"  action      {f'{roles.action}: {labels}' if roles.action else 'none'}",
            f"  reward      {f'-({roles.reward}): costs, negated' if roles.negated else roles.reward}",
            f"  propensity  {self._shown_propensity(known)}",
        ]
        if self.has_candidates:
            lines.insert(2, f"  candidates  {self._shown_candidates()}")
        outcomes = [outcome.column for outcome in roles.outcomes]
        like = {"ids, times or other roles": [name for name in roles.left_out if name not in outcomes]}
        for what, names in {**like, "outcomes": outcomes}.items():
            if names:
                lines.insert(2, f"  left out    {', '.join(names)}: like {what}. Name them to use them as contexts")
        if roles.ranking:
            lines[-2] += ", by position" if roles.reward in roles.lists else ", of the whole list"
            lines[-1] += shown_propensities(roles)
        if roles.more_rewards:
            lines[-2] += f"; also {', '.join(roles.more_rewards)}"
        if roles.propensities:
            what = "candidates" if self.has_candidates else "actions"
            lines[-1] += f"; of all {what}: {', '.join(_abridged(roles.propensities))}"
        if roles.eligible is not None:
            lines.append(f"  eligible    {roles.eligible}: the actions that an event could choose from")
        if roles.sample_rate is not None:
            lines.append(f"  sample rate {roles.sample_rate}")
        if roles.logger is not None:
            lines.append(f"  logger      {roles.logger}{self._about_loggers()}")
        if self.filter is not None:
            lines.append(f"  filter      {self.filter_text or self.filter}")
        if self.spec.stop is not None:
            lines.append(f"  rows        those before row {self.spec.stop:,}")
        lines += [f"  split       {split}" for split in self.spec.splits]
        if self.missing != ERROR:
            lines.append(f"  missing     {'kept' if self.missing == KEEP else f'{self.missing:g} in their place'}")
        if self.on_bad_row == "skip":
            lines.append("  bad rows    skipped and counted")
        counts = getattr(self.source, "dropped", {})  # lines of a text that hold no row
        for reason, first in getattr(self.source, "left_out", {}).items():
            lines.append(f"  left out    {counts[reason]:,} ({reason}); the first: {first}")
        return "\n".join(lines)

    def _shown_files(self) -> str:
        files = sum(isinstance(key, str) for key in self.source.keys)
        return f" in {files:,} files" if files > 1 else ""

    def _shown_rows(self) -> str:
        whole, rows = self.source_rows, self.rows
        if whole is None:
            return "rows not known before reading"
        return f"{whole:,} rows" if rows == whole else f"{rows:,} of {whole:,} rows"

    def _shown_context(self) -> str:
        roles = self.roles
        if roles.sparse is not None:
            return f"sparse, {roles.sparse.dim:,} features: {', '.join(roles.context)}"
        if roles.listed:
            return f"{roles.context[0]}: {self.source.schema.field(roles.context[0]).type}"
        if roles.starred and not roles.coded and roles.context:
            return f"{len(roles.context)} feature{'s' * (len(roles.context) > 1)}: {', '.join(roles.context)}"
        return self.describe_context()

    @property
    def _has_labels(self) -> bool:
        """Whether events have one action of a set that all share."""
        return not self.has_candidates and not self.roles.ranking

    def _shown_propensity(self, known: bool) -> str:
        roles = self.roles
        if roles.constant == UNIFORM and self.has_candidates:
            return "1 / the number of candidates, in every row: uniform"
        if roles.uniform_over_sets:
            return "1 / the size of the eligible set: uniform"
        if roles.constant == UNIFORM:
            return f"1/{self.n_actions} in every row: uniform" if known else "uniform, in every row"
        if roles.constant is not None:
            return f"{roles.constant:.6g} in every row"
        return "none" if roles.propensity is None else roles.propensity

    def _about_loggers(self) -> str:
        columns = self.roles.logger_propensities
        loggers = self.spec.loggers
        given = loggers is not None and (loggers.labels or self.facts.known(("loggers", loggers.column)))
        if not columns or not (given or self.source_rows is not None):
            return f"; propensities of each: {', '.join(columns)}" if columns else ""
        pairs = [f"{name} of {label!r}" for label, name in zip(self.loggers, columns, strict=True)]
        return f"; propensities {', '.join(_abridged(pairs))}"


def as_log(source: Any, *, propensities: bool = True, rankings: bool = False) -> Log:
    """Open a log, unless it is one already.

    propensities  If not, it neither looks for their column nor reads it.
    rankings      Whether it may be a log of rankings.
    """
    log = source
    if not isinstance(source, Log):
        log = Log(source) if propensities else Log(source, propensity=None)
    elif not propensities:
        log = source.without_propensities()
    if not rankings:
        log.refuse_rankings()
    return log


def _check_on_bad_row(on_bad_row: str) -> None:
    if on_bad_row not in ("error", "skip"):
        raise LogError(f'{parameter("on_bad_row", on_bad_row)}: it must be "error" or "skip"')


def _given(actions: Any, roles: Roles, schema: pa.Schema) -> Sequence[Any]:
    """Check actions= of a log, and return the labels."""
    if roles.ranking:
        raise refusal(roles, f"{parameter('actions')} is about events with one action")
    return action_labels.given_labels(actions, None if roles.action is None else schema.field(roles.action).type)


def _check_beside_candidates(actions: Any, propensities: Sequence[str], eligible: Any) -> None:
    if eligible is not None:
        raise LogError(
            f"{parameter('eligible')} is a set of known actions for each event, {parameter('candidates')} one of "
            "any items: leave out one of them"
        )
    if actions is not None:
        raise LogError(
            f"{parameter('actions')} are labels for all events, and {parameter('candidates')} are a set for each: "
            "leave out one of them"
        )
    if len(propensities) > 1:
        raise LogError(
            f"{parameter('propensities')} names {len(propensities)} columns, and {parameter('candidates')} are a set "
            "for each event: name one column of lists, as long as the candidates"
        )


def _abridged(names: Sequence[str]) -> list[str]:
    return list(names) if len(names) <= 8 else [*names[:3], "...", names[-1]]


def _columns_of(filter: ds.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns without which the expression cannot be evaluated."""
    if filter is None:
        return ()
    if not isinstance(filter, pc.Expression):
        raise LogError(
            f'{parameter("filter", filter)}: pass text, e.g. "age > 30", or a pyarrow expression, e.g. '
            "pyarrow.compute.field('age') > 30"
        )
    if "FieldPath(" in str(filter):
        raise LogError(f"filter={filter}: name its columns; their positions change with what is read")
    empty = schema.empty_table()
    try:
        empty.filter(filter)
    except pa.ArrowException as error:
        raise LogError(f"filter={filter} does not fit the log: {' '.join(str(error).split())}") from None
    needed = []
    for name in schema.names:
        try:
            empty.drop_columns([name]).filter(filter)
        except pa.ArrowException:
            needed.append(name)
    return tuple(needed)
