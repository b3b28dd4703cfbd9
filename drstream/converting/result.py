"""What a conversion has written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Conversion:
    """A log that was written to a file.

    path        The file.
    rows        Number of rows that were written.
    row_groups  Number of row groups, or of record batches of an Arrow IPC file.
    bytes       Size of the file.
    skipped     Number of rows, and of lines of a text, that were left out, by reason.
    first       The first line of a text that was left out, by reason.
    """

    path: Path
    rows: int
    row_groups: int
    bytes: int
    skipped: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        pieces = "record batch" if self.path.suffix != ".parquet" else "row group"
        groups = f"{self.row_groups:,} {pieces}{'' if self.row_groups == 1 else 'es' if pieces[-1] == 'h' else 's'}"
        return f"{self.path}: {self.rows:,} rows in {groups}, {self.bytes / 1e6:,.1f} MB"
