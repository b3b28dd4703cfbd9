"""Progress of a pass: a bar with events per second and time left on a terminal, or a call of the user's function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from drstream.errors import DrstreamError


@contextmanager
def reporter(progress: Any, total: int | None) -> Iterator[Callable[..., None]]:
    """A function to be called with the number of rows done so far, and perhaps with a text to show beside the bar.

    progress=False shows nothing, True a bar if standard error is a terminal, a function is called with (done, total).
    """
    if callable(progress):
        yield lambda done, text="": progress(done, total)
    elif progress not in (True, False):
        raise DrstreamError(f"progress={progress!r}: it is True, False, or a function of (rows done, rows in all)")
    elif progress and sys.stderr.isatty():
        with _bar(total) as report:
            yield report
    else:
        yield lambda done, text="": None


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[..., None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed / 1e6:.1f} M events/s" if speed else "")

    columns = (
        TextColumn("{task.completed:,.0f} events"),
        BarColumn(16),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=total)
        notice.line = lambda text: bars.update(bar, description=text)
        try:
            yield lambda done, text="": bars.update(bar, completed=done, description=text)
        finally:
            notice.line = _on_a_line_of_its_own


class CompileNotice:
    """Says on a terminal that kernels are being compiled, for as long as that lasts."""

    line: Callable[[str], None]  # shows a text, beside the bar where there is one

    def start(self) -> None:
        """Only the command line calls this: a library should not write to its user's terminal unasked."""
        from drstream.kernels import _notice

        if sys.stderr.isatty():
            self.line = _on_a_line_of_its_own
            _notice.listener = self.show

    def show(self, count: int, at_work: bool) -> None:
        self.line(f"compiling kernels for this machine, once: {count}" if at_work else "")


def _on_a_line_of_its_own(text: str) -> None:
    sys.stderr.write(f"\r\x1b[2K{text}")  # over what was there
    sys.stderr.flush()


notice = CompileNotice()
