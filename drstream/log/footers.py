"""What the footers of Parquet files say: row groups and statistics. They may be damaged, or wrong.

pyarrow reads statistics by functions that end the process if they are damaged. So they are read here, and only as
hints: rows that are read tell whether they were right.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.kernels.footer import find_statistics
from drstream.kernels.thrift import DEPTH
from drstream.log.files import State, changed


@dataclass(frozen=True)
class Footer:
    """A Parquet file as it was when its footer was read. A pickled one reads it again, once in each process."""

    path: str
    filesystem: pa.fs.FileSystem
    state: State

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        return _metadata(self)

    @cached_property
    def rows(self) -> list[int]:
        """Number of rows of each row group."""
        metadata = self.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    @property
    def serialized(self) -> NDArray[np.uint8]:
        """The metadata as a file has them."""
        sink = pa.BufferOutputStream()
        self.metadata.write_metadata_file(sink)
        return np.frombuffer(sink.getvalue(), np.uint8)[4:-8]  # between PAR1, and the length and PAR1

    @property
    def columns(self) -> int:
        """Number of stored columns; a column of lists or structs is stored as its leaves."""
        return int(self.metadata.num_columns)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "filesystem": self.filesystem, "state": self.state}

    def __hash__(self) -> int:
        return hash((self.path, self.state))

    def open(self) -> pa.NativeFile:
        return self.filesystem.open_input_file(self.path)

    def has_checksums(self) -> bool | None:
        """Return whether the first page has a checksum, which goes for all pages of most writers. None if unknown."""
        with self.open() as file:
            return page_has_checksum(file.read(64)[4:])  # after PAR1

    def check_state(self, found: State) -> None:
        """Raise an error if the file is not the one whose metadata were read: its row groups may hold anything."""
        if found != self.state:
            raise changed(self.path, self.state, found)

    def bounds(self, column: int, kind: pa.DataType) -> list[tuple[Any, Any] | None]:
        """Return the smallest and largest value of a stored column in each row group, where statistics tell.

        kind  Its type in Arrow. Bounds are known of integers, strings and dates.
        """
        groups, read = len(self.rows), _decoder(self.metadata.schema.column(column), kind)
        if read is None:
            return [None] * groups
        found, data = np.full((groups, 4), -1, np.int64), self.serialized
        find_statistics(data, column, np.zeros((3, DEPTH), np.int64), found)
        known: list[tuple[Any, Any] | None] = []
        for low, low_bytes, high, high_bytes in found.tolist():
            try:
                pair = read(data[low : low + low_bytes].tobytes()), read(data[high : high + high_bytes].tobytes())
                known.append(pair if min(low, high) >= 0 and pair[0] <= pair[1] else None)
            except (ValueError, struct.error, pa.ArrowException):
                known.append(None)
        return known

    def kept(self, filter: ds.Expression, schema: pa.Schema, always: ds.Expression | None) -> set[int]:
        """Return the row groups that may have rows for a filter, by the statistics of its columns.

        always  What the path of the file says about all of its rows.
        """
        text = str(filter)
        stored = {column.path: j for j, column in enumerate(map(self.metadata.schema.column, range(self.columns)))}
        guarantees = [ds.scalar(True) if always is None else always] * len(self.rows)
        for field in schema:
            if field.name not in text or field.name not in stored:
                continue
            for i, known in enumerate(self.bounds(stored[field.name], field.type)):
                if known is not None:
                    value, low, high = ds.field(field.name), *(pa.scalar(v, field.type) for v in known)
                    within = ((value >= low) | value.is_null()) & ((value <= high) | value.is_null())
                    guarantees[i] = guarantees[i] & within
        form, here = ds.ParquetFileFormat(), pa.fs.LocalFileSystem()  # of files that nobody opens
        groups = [form.make_fragment(str(i), here, partition_expression=g) for i, g in enumerate(guarantees)]
        found = ds.FileSystemDataset(groups, schema, form, here).get_fragments(filter=filter)
        return {int(group.path) for group in found}


def page_has_checksum(header: bytes) -> bool | None:
    """Return whether the header of a page has the field `crc`, the fourth; None if this is no header of a page.

    Headers are in Thrift's compact protocol: a byte 0x15 says that the next field follows and is a 32-bit integer.
    All bytes of the integer but the last one have their highest bit set.

    >>> [page_has_checksum(bytes.fromhex(header)) for header in ("1500 15c801 15c801 15b48b04 2c", "1500 1502 1502 2c")]
    [True, False]
    """
    at = 0
    for _ in range(3):  # its type, and its size before and after compression
        if header[at : at + 1] != b"\x15":
            return None
        at += 1
        while header[at : at + 1] >= b"\x80":
            at += 1
        at += 1
    following = header[at : at + 1]
    return None if not following else following == b"\x15"


def _decoder(column: pq.ColumnSchema, kind: pa.DataType) -> Callable[[bytes], Any] | None:
    """Return what decodes a value of a column's statistics; None if nothing does."""
    stored = column.physical_type
    if pa.types.is_integer(kind) and stored in ("INT32", "INT64"):
        form = "<" + ("i" if stored == "INT32" else "q")
        form = form.upper() if pa.types.is_unsigned_integer(kind) else form
        return lambda value: struct.unpack(form, value)[0]
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and stored == "BYTE_ARRAY":
        return lambda value: value.decode()
    if pa.types.is_date32(kind) and stored == "INT32":
        return lambda value: pa.scalar(struct.unpack("<i", value)[0], pa.int32()).cast(kind).as_py()
    return None


@lru_cache(maxsize=64)
def _metadata(footer: Footer) -> pq.FileMetaData:
    with footer.filesystem.open_input_file(footer.path) as source:
        footer.check_state(State.of(footer.path, footer.filesystem, source))
        return pq.ParquetFile(source).metadata
