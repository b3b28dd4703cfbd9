"""Progress of a pass: a bar on a terminal or in a notebook, lines in a log file, or calls of a user's function."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from drstream.errors import DrstreamError
from drstream.kernels._notice import clock, sum_up

shown = True  # whether progress=True shows anything: the command line has --quiet


@contextmanager
def reporter(progress: Any, total: int | None) -> Iterator[Callable[..., None]]:
    """Yield a function that takes the number of rows done so far, and perhaps a text to show beside the bar.

    progress=False shows nothing. True shows a bar on a terminal or in a notebook, else a line every 10 seconds on
    standard error. A function is called with (done, total).
    """
    with _reporter(progress, total) as report:
        yield report
    sum_up()


@contextmanager
def _reporter(progress: Any, total: int | None) -> Iterator[Callable[..., None]]:
    if callable(progress):
        yield lambda done, text="": progress(done, total)
    elif progress not in (True, False):
        raise DrstreamError(f"progress={progress!r}: it is True, False, or a function of (rows done, rows in all)")
    elif not (progress and shown):
        yield lambda done, text="": None
    elif _on_a_terminal() or _in_a_notebook():
        with _bar(total) as report:
            yield report
    else:
        with lines.of_a_pass(total) as report:
            yield report


def _on_a_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _in_a_notebook() -> bool:
    """Whether rich can show a bar below the cell of a notebook, which takes ipywidgets."""
    if "IPython" not in sys.modules or importlib.util.find_spec("ipywidgets") is None:
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter


class ProgressLines:
    """Lines for a log file: one every `every` seconds, and one at the end of a pass that had such a line.

    Passes that follow each other, such as those of a fit, share the clock: many short ones are a long run. It stands
    still while kernels are compiled.
    """

    every = 10.0

    def __init__(self, clock: Callable[[], float] = clock) -> None:
        self.clock = clock
        self._last = self._end = -1e9  # when a line was printed, and when a pass ended

    @contextmanager
    def of_a_pass(self, total: int | None) -> Iterator[Callable[..., None]]:
        start, printed, latest = self.clock(), 0, 0
        if start - self._end > 1:  # no pass of the same run before it
            self._last = start

        def report(done: int, text: str = "") -> None:
            nonlocal printed, latest
            now, latest = self.clock(), done
            if now - self._last >= self.every:
                self._last, printed = now, printed + 1
                _print(_progress_line(done, total, now - start, text))

        try:
            yield report
            seconds = self.clock() - start
            if printed:
                _print(f"{latest:,} events in {seconds:.0f} s{_speed(latest, seconds)}")
        finally:
            self._end = self.clock()


def _progress_line(done: int, total: int | None, seconds: float, text: str) -> str:
    """Return a line for a log file.

    >>> _progress_line(25_000_000, 100_000_000, 20.0, "")
    '25,000,000 of 100,000,000 events (25 %): 1.2 M events/s, 0:01:00 left'
    """
    if not total:
        said = f"{done:,} events{_speed(done, seconds)}"
    else:
        left = f", {timedelta(seconds=round((total - done) * seconds / done))} left" if done else ""
        said = f"{done:,} of {total:,} events ({done / total:.0%}){_speed(done, seconds)}{left}".replace("%)", " %)")
    return f"{said}; {text}" if text else said


def _speed(events: int, seconds: float) -> str:
    if seconds <= 0 or not events:
        return ""
    rate = events / seconds
    return f": {rate / 1e6:.1f} M events/s" if rate >= 1e5 else f": {rate:,.0f} events/s"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


lines = ProgressLines()


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
    with Progress(*columns, console=Console(stderr=True), transient=True, get_time=clock) as bars:
        bar = bars.add_task("", total=total)
        yield lambda done, text="": bars.update(bar, completed=done, description=text)
