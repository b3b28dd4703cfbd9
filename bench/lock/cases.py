"""The cases of the interpreter's lock: how long `evaluate` holds it for each event."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.common.logs import WIDE, LogFile
from bench.common.selecting import main_names
from bench.evaluation import cases as evaluation

ROUNDS = 15
SHARE = 5  # the large log has so many times the rows of the small one
LEAST_RATE = 0.5  # minimum of the samples per second, as a share of those beside a loop in Python
REST = "rest"  # what is in no step
HELD = 2.0  # maximum, in ns for each event


@dataclass(frozen=True)
class Case:
    task: evaluation.Task
    log: LogFile
    required: float | None = None  # maximum, in ns for each event; None: for information
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"the interpreter's lock: {self.task.name}, {self.log}, one thread"

    @property
    def small(self) -> LogFile:
        """The same log with fewer rows, for what a call costs however many there are."""
        return replace(self.log, rows=self.log.rows // SHARE)

    @property
    def alone(self) -> evaluation.Task:
        """The task with one worker. With two, one could hold the lock while the other waits for it."""
        return replace(self.task, threads=1)


CASES = [
    Case(evaluation.FOUR, WIDE, HELD, main="the interpreter's lock, four estimators"),
    Case(evaluation.COLUMN, WIDE),
    Case(evaluation.MANY, WIDE),
]
MAIN = main_names(CASES)
NAMES = [*map(str, CASES)]
