"""The passes whose time is divided into steps, on one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.common.logs import LIST, MAPPED_LIST, WIDE, LogFile
from bench.evaluation import cases as evaluation
from bench.replaying import cases as replaying

ROUNDS = 5


@dataclass(frozen=True)
class Case:
    task: Any  # of `evaluation` or `replaying`
    log: LogFile
    main = ""

    def __str__(self) -> str:
        return f"where the time goes: {self.task.name}, {self.log}, one thread"

    @property
    def is_replay(self) -> bool:
        return isinstance(self.task, replaying.Task)


CASES = [
    Case(evaluation.FOUR, WIDE),
    Case(evaluation.FOUR, LIST),
    Case(evaluation.COLUMN, WIDE),
    Case(replaying.GREEDY, MAPPED_LIST),
    Case(replaying.GREEDY, WIDE),
]
NAMES = [*map(str, CASES)]
