"""The list of logs. Each has a function that evaluates on it, and one that writes its section of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scripts.studies.real_logs import arms, open_bandit, sections
from scripts.studies.trials import Setting


class RealLog(NamedTuple):
    run: Callable[[Setting], dict[str, Any]]
    section: Callable[[dict[str, Any]], str]


LOGS = {  # in the order of the page
    "open_bandit": RealLog(open_bandit.run, sections.open_bandit),
    "hillstrom": RealLog(arms.hillstrom, sections.hillstrom),
    "gotv": RealLog(arms.gotv, sections.gotv),
}
