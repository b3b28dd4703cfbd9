"""Which module tells about a result: the report, a picture, or what a notebook shows."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from drstream.report import audits, contents, evaluations, forecasts, notebook, page, replays

BY_CLASS: dict[str, ModuleType] = {
    "Evaluation": evaluations,
    "Replay": replays,
    "Replays": replays,
    "Audit": audits,
    "Forecast": forecasts,
}


def _of(result: Any) -> ModuleType:
    return next(BY_CLASS[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in BY_CLASS)


def write(result: Any, path: str | os.PathLike[str], command: str | None) -> None:
    """Write the report of a result."""
    again = result.provenance.get("call", "") if command is None else command
    page.write(_of(result).report(result), path, again)


def plot(result: Any, what: str | None, ax: Any) -> Any:
    """Draw a picture of a result with matplotlib."""
    from drstream.report.plots import draw

    return draw(contents.picture(_of(result).PICTURES, result, what), ax)


def cell(result: Any) -> str:
    """Return what a notebook shows of a result."""
    module = _of(result)
    return notebook.result(module.report(result), contents.existing(module.PICTURES, module.FIRST, result))
