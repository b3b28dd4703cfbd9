"""What a conversion has written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Conversion:
    """A log that was written to a file."""

    path: Path
    rows: int  # written
    row_groups: int  # or record batches, of an Arrow IPC file
    bytes: int  # size of the file
    skipped: dict[str, int] = field(default_factory=dict)  # rows, and lines of a text, that were left out, by reason
    first: dict[str, str] = field(default_factory=dict)  # the first line of a text that was left out, by reason

    def __str__(self) -> str:
        pieces = "record batch" if self.path.suffix != ".parquet" else "row group"
        groups = f"{self.row_groups:,} {pieces}{'' if self.row_groups == 1 else 'es' if pieces[-1] == 'h' else 's'}"
        return f"{self.path}: {self.rows:,} rows in {groups}, {self.bytes / 1e6:,.1f} MB"
