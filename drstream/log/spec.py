"""What a log is, as far as its parts must be read; and what somebody needs of its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as ds

from drstream.log.encoding import ERROR, Encoding, Missing
from drstream.log.loggers import Loggers
from drstream.log.rows import Split
from drstream.log.schema import Roles

ROWS = 65_536  # of a batch


@dataclass(frozen=True)
class Spec:
    """What a log was opened with; and, for workers that read its parts, what was found out. It can be pickled."""

    roles: Roles
    missing: Missing = ERROR  # what happens to missing values in contexts
    skip_bad_rows: bool = False
    filter: ds.Expression | None = None
    filter_text: str | None = None  # as the user wrote it
    filter_columns: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    stop: int | None = None  # rows from this one on do not belong to the log
    pairs: Any = None  # `Pairs`: the context of an event becomes the pair of it and the logged candidate
    about_zero: bool = False  # whether sums of rewards are about 0, whatever the first rewards
    propensities_found: bool = False  # whether the log itself knew the column of all candidates' propensities
    labels: Sequence[Any] = ()  # of the actions, if they were given, or are read
    encoding: Encoding | None = None  # of the columns of the context; None if they are read as they are
    loggers: Loggers | None = None  # which policy logged an event
    width: int = 0  # number of features of contexts, as the log stores them
    constant: float | None = None  # the propensity of every row, if no column holds them
    offers: Any = None  # `CandidateReader`: how to read candidates of events, if there are any
    batch_rows: int = ROWS


@dataclass(frozen=True)
class Needs:
    """What is read of each event, beside its reward and propensity."""

    context: bool = False
    action: bool = False  # the logged action and, in a log of candidates, how many there are
    columns: tuple[str, ...] = ()
    propensities: bool = False  # those of all actions
    loggers: bool = False  # which policy logged it, if the log has several
    logger_propensities: bool = False  # those of all loggers
    candidates: bool = False  # features of candidates
    finite: bool = True  # whether to look for numbers of contexts that are not finite

    def __or__(self, other: Needs) -> Needs:
        """What both need."""
        return Needs(
            context=self.context or other.context,
            action=self.action or other.action,
            columns=tuple(dict.fromkeys([*self.columns, *other.columns])),
            propensities=self.propensities or other.propensities,
            loggers=self.loggers or other.loggers,
            logger_propensities=self.logger_propensities or other.logger_propensities,
            candidates=self.candidates or other.candidates,
            finite=self.finite or other.finite,
        )
