"""What people look at: reports, pictures, and cells of notebooks. The room `report` is opened when it is asked for."""

from __future__ import annotations

import os
from typing import Any


class Reported:
    """A result that people can look at."""

    def report(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Write a report to an HTML file: the answer in one sentence, findings, pictures with their tables.

        It is one file without scripts, and loads nothing. It appears only when it is complete.

        command  What made the result, as it should stand in the report. By default, the call in Python.
        """
        from drstream.report.kinds import write

        write(self, path, command)

    def plot(self, what: str | None = None, *, ax: Any = None) -> Any:
        """Draw a picture of the report with matplotlib, and return its axes.

        what  Name of the picture. An unknown name raises an error that lists all of them. By default, the first one.
        ax    Axes to draw on. By default, those of a new figure.
        """
        from drstream.report.kinds import plot

        return plot(self, what, ax)

    def _repr_html_(self) -> str:
        from drstream.report.kinds import cell

        return cell(self)


class Described:
    """An object whose `repr` has a title, and perhaps lines of a name and a value: notebooks show them as a table."""

    def _repr_html_(self) -> str:
        from drstream.report.notebook import of_text

        return of_text(repr(self), self._more_to_show())

    def _more_to_show(self) -> list[tuple[str, Any]]:
        """More lines of a name and a value."""
        return []
