"""A log of events: where they are stored, which column plays which role, and which rows belong to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import LogError, parameter, printable
from drstream.findings import Finding
from drstream.log import labels as action_labels
from drstream.log.categories import Hashed
from drstream.log.context import Contexts
from drstream.log.doubts import doubts
from drstream.log.encoding import ERROR, Encoding, Missing
from drstream.log.exporting import batches_of, count_rows, frame_of, head_of, table_of
from drstream.log.facts import SourceFacts
from drstream.log.ids import IdColumn, find_ids, id_columns
from drstream.log.kinds.candidates.columns import (
    Candidates,
    no_labels,
)
from drstream.log.kinds.candidates.sets import CandidateSets
from drstream.log.kinds.rankings.columns import NEEDS_ONE, refusal
from drstream.log.loggers import Loggers, find_loggers, match_loggers
from drstream.log.opening import skips, spec_of
from drstream.log.reader import Reader
from drstream.log.rewards import first_rewards
from drstream.log.rows import Blocks, Folds, Origin, Split, check_cluster, split_seed
from drstream.log.schema import FIND, UNIFORM, Find, Options, Roles, require_column
from drstream.log.sparse import Sparse
from drstream.log.spec import ROWS, Needs, Spec
from drstream.log.summary import summary
from drstream.sources.base import Part, SameObject, Source
from drstream.sources.open import open_source
from drstream.views import Described

if TYPE_CHECKING:
    from drstream.auditing.description import Description
    from drstream.auditing.result import Audit

PAIR = "the logged candidate"  # the one action of a log of pairs
FAR = 1e5  # in standard deviations: so far from 0, sums of squares about 0 lose ten of sixteen digits


class Log(Described):
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
        given = {name: value for name, value in locals().items() if name != "self"}
        self.opened: tuple[str, dict[str, Any]] = ("Log", dict(given))  # the function of drstream, and its arguments
        del given["source"]
        self.source = open_source(source)
        self.facts = SourceFacts(self.source)
        self.spec = spec_of(self.facts, Options(**given))

    def copy(self, source: Source | None = None, **changes: Any) -> Log:
        """Return the log of another source with the same rows, or of some of them, or with a changed `Spec`."""
        other = object.__new__(Log)
        other.source, other.facts = self.source if source is None else source, self.facts
        other.spec, other.opened = replace(self.spec, **changes), self.opened
        return other

    @property
    def roles(self) -> Roles:
        """Which column plays which role."""
        return self.spec.roles

    @property
    def filter(self) -> ds.Expression | None:
        """The filter of rows."""
        return self.spec.filter

    @property
    def missing(self) -> Missing:
        """What happens to missing values in contexts."""
        return self.spec.missing

    @property
    def on_bad_row(self) -> str:
        """What happens to rows that cannot be used."""
        return "skip" if self.spec.skip_bad_rows else "error"

    # Contexts, and candidates

    @cached_property
    def contexts(self) -> Contexts:
        """What is known of the contexts."""
        return Contexts(self.facts, self.spec)

    @property
    def encoding(self) -> Encoding | None:
        """How columns become features; None for a column of lists, or `Sparse`. Categories take one pass over them."""
        return self.contexts.encoding

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column that is one-hot encoded."""
        return self.contexts.categories

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in their order: age, country=DE, x[0]."""
        return self.contexts.names

    @property
    def n_features(self) -> int:
        """Number of features of a context, d, be it that of a pair."""
        return self.contexts.width if self.spec.pairs is None else self.spec.pairs.width

    @property
    def is_sparse(self) -> bool:
        """Whether contexts are sparse. Those of pairs are if the features of candidates are."""
        return self.contexts.sparse or (self.spec.pairs is not None and self.spec.pairs.sparse)

    def seen_by(self, encoding: Encoding) -> Log:
        """Return the same log with the context in another encoding, e.g. that of a model."""
        return self.copy(roles=encoding.roles(self.roles), encoding=encoding, missing=encoding.missing)

    @cached_property
    def candidates(self) -> CandidateSets:
        """What is known of the candidates. The log must have some."""
        return CandidateSets(self.facts, self.roles)

    @property
    def has_candidates(self) -> bool:
        """Whether each event has candidates of its own. Such a log has no labels of actions."""
        return self.roles.candidates is not None and self.spec.pairs is None

    @property
    def candidate_features(self) -> Sequence[str]:
        """Names of the features of candidates, in their order: price, item.age, z[0]. None without candidates."""
        return [] if self.roles.candidates is None else self.candidates.features

    def pairs(self, interactions: bool = False) -> Log:
        """Return the same log as one with a single action, whose contexts are pairs: [x, z] of the logged candidate.

        Models with shared weights are fitted on it.
        """
        return self.copy(pairs=self.candidates.pairs(self.contexts, interactions), labels=[PAIR])

    def refuse_candidates(self, who: str, instead: str = "") -> None:
        """Raise an error if this is a log of candidates, for who needs one set of actions for all events."""
        if self.has_candidates:
            raise LogError(
                f"{who} needs one set of actions for all events, and this log has {parameter('candidates')}, "
                f"a set for each{instead and '. '}{instead}"
            )

    # Actions, propensities and rewards

    @cached_property
    def labels(self) -> Sequence[Any]:
        """Labels of the actions, in the order of a policy's probabilities. A log of candidates has none."""
        self.refuse_rankings()
        if self.has_candidates:
            raise no_labels()
        found = self.spec.labels
        return found or self.facts.of(self.labels_key, partial(action_labels.labels_of, self.source, self.spec))

    @property
    def labels_key(self) -> Any:
        """What the labels of the actions depend on."""
        return action_labels.key_of(self.spec)

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
        first = first_rewards(self.facts, self.roles)
        return 0.0 if self.spec.about_zero or not first.far else first.typical

    @property
    def typical_reward(self) -> float:
        """Mean of the first finite rewards, or 0 if there are none."""
        return first_rewards(self.facts, self.roles).typical

    @property
    def same_rewards(self) -> bool:
        """Whether the first rewards are all the same."""
        return first_rewards(self.facts, self.roles).same

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
    def has_labels(self) -> bool:
        """Whether events have one action of a set that all share."""
        return not self.has_candidates and not self.roles.ranking

    @property
    def labels_are_given(self) -> bool:
        """Whether actions= gave the labels; otherwise they were found in the log."""
        return bool(self.spec.labels)

    @property
    def doubts(self) -> list[Finding]:
        """What the first rows give reason to doubt, e.g. a context that looks like an outcome; `audit` looks at all."""
        known = self.has_labels and (self.labels_are_given or self.facts.known(self.labels_key))
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

    def with_actions_of(self, *users: Any) -> Log:
        """Return the same log with the actions that policies and models know, if it has fewer and they were found.

        Something fitted brings its labels. Weights with K rows say that the actions are 0..K-1.
        """
        if self.labels_are_given or self.has_candidates:
            return self
        labels = action_labels.known_to(users, self.labels)
        if labels is self.labels:
            return self
        if self.roles.constant == UNIFORM and self.roles.eligible is None:
            raise LogError(
                f"{parameter('propensity', UNIFORM)} is 1/{self.n_actions} in a log of {self.n_actions} actions, and a "
                f"policy or model knows {len(labels)}: say how many the logging policy chose from, with "
                f"{parameter('actions')}, or give the propensity as a number"
            )
        return self.copy(labels=labels)

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
        return self.copy(skip_bad_rows=skips(on_bad_row))

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
        return head_of(self, rows)

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
        if self.spec.pairs is not None:
            candidates = context
        if self.roles.candidates is not None and (candidates or self.roles.constant == UNIFORM):
            action = True
        for name in columns:
            require_column(self.source.schema, name, "policy or model")
        asked = {"propensities": propensities, "loggers": loggers, "logger_propensities": logger_propensities}
        needs = Needs(context=context, action=action, columns=tuple(columns), candidates=candidates, **asked)
        return Reader(self._found(needs), needs, folds, cluster, start)

    def _found(self, needs: Needs) -> Spec:
        """What workers must know to read what is needed. Labels, loggers and categories take a pass, so only then."""
        acts, roles, contexts = needs.action, self.roles, self.contexts
        sets = None if roles.candidates is None else self.candidates
        loggers = self.spec.loggers if needs.loggers else None
        if loggers is not None:
            of_each = (self.loggers, roles.logger_propensities) if needs.logger_propensities else ((), ())
            loggers = Loggers(loggers.column, *of_each, logged=roles.propensity)
        return replace(
            self.spec,
            labels=self.labels if self.has_labels and (acts or roles.uniform_over_sets) else (),
            width=contexts.width if needs.context else 0,
            encoding=contexts.encoding if needs.context and not contexts.reads_numbers else None,
            constant=self.constant_propensity,
            loggers=loggers,
            offers=sets.offers(features=needs.candidates) if sets is not None and acts else None,
            batch_rows=ROWS if sets is None else sets.batch_rows,
        )

    def parts(self, columns: Sequence[str]) -> Iterator[Part]:
        named = [name for name in (self.roles.action, self.roles.eligible, *self.roles.coded) if name is not None]
        text = [name for name in named if name not in (*self.spec.filter_columns, *self.roles.lists)]
        parts, stop = self.source.parts(columns, self.filter, text), self.spec.stop
        return parts if stop is None else itertools.takewhile(lambda part: part.first_row < stop, parts)

    @printable
    def __repr__(self) -> str:
        return "\n".join(summary(self))


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
