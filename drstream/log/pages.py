"""Decodes columns of numbers, and of lists that all have one length, from the pages of a Parquet file.

pyarrow takes up to twice as long for them (ADR 26). What is not known here, is null or looks damaged raises `Unusual`:
then pyarrow reads the rows, or says what is wrong with them. So this module has no messages.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.kernels import footer as fields
from drstream.kernels import pages as kernels
from drstream.kernels.thrift import DEPTH
from drstream.log.footers import Footer
from drstream.log.memory import Pool
from drstream.log.schema import is_list

STORED_TYPES = {pa.int32(): 1, pa.int64(): 2, pa.float32(): 4, pa.float64(): 5}  # numbers of the types in Parquet
ZSTD = 6  # number of the codec in Parquet
OF_FOOTER = -1  # the length of lists: the number of numbers, divided by that of rows
MOST_CHUNKS = 1 << 20  # columns times row groups: what footers say about more would take much memory
LINE = 64  # bytes: columns begin at multiples
NOTHING = np.frombuffer(b"", np.uint8)


class Unusual(Exception):  # noqa: N818  # not an error: another decoder takes over
    """Raised for pages that are not decoded here."""


@dataclass(frozen=True)
class Leaf:
    """A column of numbers, or of lists of `size` numbers each."""

    place: int  # among the stored columns of the file
    field: pa.Field
    number: pa.DataType
    size: int  # 0 if it has no lists, OF_FOOTER if their length is not in the type
    level: int  # of definition that a number has that is there
    width: int  # bytes of a number

    def array(self, values: pa.Buffer, rows: int, size: int) -> pa.Array:
        """Return an array of so many rows. If they are lists, each has `size` numbers."""
        numbers = pa.Array.from_buffers(self.number, rows * (size or 1), [None, values], 0)
        if self.size == 0:
            return numbers
        kind, buffers = self.field.type, [None]
        if self.size == OF_FOOTER:
            starts = np.arange(rows + 1, dtype=np.int64 if pa.types.is_large_list(kind) else np.int32) * size
            buffers.append(pa.py_buffer(starts))
        return pa.Array.from_buffers(kind, rows, buffers, 0, 0, [numbers])


@dataclass(frozen=True)
class Known:
    """The columns of a file that can be decoded here."""

    leaves: dict[str, Leaf]
    schema: pa.Schema
    chunks: NDArray[np.int64]  # what the footer says about each of them, in each row group; 0 if it is damaged
    form: NDArray[np.int64]  # rows for `kernels.decode`, with what is the same in all row groups
    types: NDArray[np.int64]


@lru_cache(maxsize=64)
def known_columns(footer: Footer, columns: tuple[str, ...]) -> Known | None:
    """Return those of the columns that can be decoded here; None if there are none."""
    leaves = _leaves(footer, columns)
    if not leaves or len(leaves) * len(footer.rows) > MOST_CHUNKS:
        return None
    form = np.zeros((len(leaves), kernels.FIELDS), np.int64)
    form[:, kernels.KNOWN] = -1
    slots = np.full(footer.columns, -1, np.int64)
    for slot, leaf in enumerate(leaves.values()):
        slots[leaf.place] = slot
        form[slot, [kernels.WIDTH, kernels.SIZE, kernels.LEVEL]] = leaf.width, leaf.size, leaf.level
    chunks = np.zeros((len(footer.rows), len(leaves), len(fields.NUMBERS)), np.int64)
    if fields.find_columns(footer.serialized, slots, np.zeros((3, DEPTH), np.int64), chunks) < 0:
        chunks[:] = 0
    schema = pa.schema([leaf.field for leaf in leaves.values()])
    return Known(leaves, schema, chunks, form, np.array([STORED_TYPES[leaf.number] for leaf in leaves.values()]))


def _leaves(footer: Footer, columns: tuple[str, ...]) -> dict[str, Leaf]:
    stored = footer.metadata.schema
    schema = stored.to_arrow_schema()
    flat = len(schema) == footer.columns
    places: dict[str, list[int]] = {}
    for j in range(0 if flat else footer.columns):
        places.setdefault(stored.column(j).path.partition(".")[0], []).append(j)
    found = {}
    for name in columns:
        index = schema.get_field_index(name)
        own = [index] if flat else places.get(name, [])
        if index >= 0 and len(own) == 1 and (leaf := _leaf(stored.column(own[0]), own[0], schema.field(index))):
            found[name] = leaf
    return found


def _leaf(column: Any, place: int, field: pa.Field) -> Leaf | None:
    size = list_size(field.type)
    if size is None or column.max_repetition_level != (size != 0) or column.max_definition_level > 3:
        return None
    number = field.type.value_type if size else field.type
    return Leaf(place, field, number, size, column.max_definition_level, number.bit_width // 8)


def list_size(kind: pa.DataType) -> int | None:
    """Return the length of all lists, OF_FOOTER, or 0 for numbers; None for a column that is not decoded here."""
    if kind in STORED_TYPES:
        return 0
    if not is_list(kind) or kind.value_type not in STORED_TYPES:
        return None
    if not pa.types.is_fixed_size_list(kind):
        return OF_FOOTER
    return kind.list_size or None


class Space:
    """Memory for the columns of a file, used again and again."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool  # for decoded rows
        self.window = np.empty(0, np.uint8)
        self.pages = self.dictionaries = np.empty((0, 0), np.uint8)
        self.levels = np.zeros((3, DEPTH), np.int64)
        self.codec = pa.Codec("zstd")

    def fit(self, columns: int, regions: int) -> None:
        """Have a region for the pages of each column, or one for all, and a dictionary for each."""
        if len(self.pages) != regions:
            self.pages = np.empty((regions, 0), np.uint8)
        if len(self.dictionaries) < columns:
            self.dictionaries = np.empty((columns, 0), np.uint8)

    def grow(self, what: int, size: int) -> None:
        """Make memory as large as a kernel needs it. What it holds stays."""
        if what == kernels.MORE_WINDOW:
            self.window = np.empty(size, np.uint8)
        elif what == kernels.MORE_PAGE:
            self.pages = _wider(self.pages, size)
        else:
            self.dictionaries = _wider(self.dictionaries, size)


def _wider(memory: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    found = np.empty((len(memory), -(-size // LINE) * LINE), np.uint8)
    found[:, : memory.shape[1]] = memory
    return found


@dataclass
class Columns:
    """Reads the columns of numbers of a row group, from their first rows to their last."""

    leaves: dict[str, Leaf]
    schema: pa.Schema
    table: NDArray[np.int64]  # of `kernels.decode`, a row for each
    handle: int
    rows: int
    space: Space

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(self._bytes)

    @cached_property
    def _bytes(self) -> list[int]:
        return list((self.table[:, kernels.WIDTH] * np.maximum(self.table[:, kernels.SIZE], 1)).tolist())

    def batches(self, most: int) -> Iterator[list[pa.Array]]:
        """Yield arrays of at most so many rows each, in the order of the leaves."""
        table, bytes_ = self.table, self._bytes
        self.space.fit(len(table), 1 if most >= self.rows else len(table))
        sizes = table[:, kernels.SIZE].tolist()
        for first in range(0, self.rows, most):
            some = min(most, self.rows - first)
            starts = [0, *itertools.accumulate(-(-size * some // LINE) * LINE for size in bytes_)]
            _, memory = self.space.pool.lend(starts[-1])
            table[:, kernels.OUT] = starts[:-1]
            table[:, kernels.OUT] += memory.address
            table[:, kernels.FILLED] = 0
            self._decode(some)
            places = zip(self.leaves.values(), starts, bytes_, sizes, strict=False)
            yield [leaf.array(memory.slice(start, width * some), some, size) for leaf, start, width, size in places]

    def _decode(self, rows: int) -> None:
        space, state, given = self.space, np.zeros(kernels.STATE, np.int64), NOTHING
        while True:
            memory = space.window, space.pages, space.dictionaries, given, space.levels
            found = kernels.decode(self.handle, self.table, rows, *memory, state)
            if found == kernels.DONE:
                return
            if found == kernels.UNUSUAL:
                raise Unusual
            if found == kernels.DECOMPRESS:
                given = self._decompressed(state)
                state[kernels.GIVEN] = 1
            else:
                space.grow(found, int(state[kernels.NEEDED]))

    def _decompressed(self, state: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the page under way, decompressed."""
        start, head = int(state[kernels.START]), state[kernels.HEAD :]
        data = self.space.window[start : start + int(head[kernels.STORED])]
        try:
            found = self.space.codec.decompress(pa.py_buffer(data), int(head[kernels.BYTES]))
        except (pa.ArrowException, OSError) as error:
            raise Unusual from error
        return np.frombuffer(found, np.uint8)


def columns_of(footer: Footer, index: int, names: Sequence[str], handle: int, space: Space) -> Columns | None:
    """Return those columns of a row group that can be decoded here; None if there are none."""
    known = known_columns(footer, tuple(names))
    if known is None:
        return None
    rows, about, table = footer.rows[index], known.chunks[index].T, known.form.copy()
    start, size, end = about[fields.DATA], about[fields.BYTES], footer.state.size
    start = np.where(about[fields.DICTIONARY] > 0, np.minimum(start, about[fields.DICTIONARY]), start)
    table[:, kernels.AT], table[:, kernels.END] = start, start + size
    table[:, kernels.CODEC], sizes = about[fields.CODEC], table[:, kernels.SIZE]
    sizes[:] = np.where(sizes == OF_FOOTER, np.maximum(about[fields.VALUES] // rows, 1), sizes)
    table[:, kernels.NUMBERS] = rows * np.maximum(sizes, 1)
    usual = (about[fields.ELSEWHERE] == 0) & (about[fields.TYPE] == known.types)
    codec = about[fields.CODEC]
    usual &= (codec == kernels.PLAIN_CODEC) | (codec == kernels.SNAPPY) | (codec == ZSTD)
    usual &= about[fields.VALUES] == table[:, kernels.NUMBERS]
    usual &= (start > 0) & (start <= end) & (size > 0) & (size <= end - start)
    if usual.all():
        return Columns(known.leaves, known.schema, table, handle, rows, space)
    found = {name: leaf for (name, leaf), one in zip(known.leaves.items(), usual, strict=True) if one}
    schema = pa.schema([leaf.field for leaf in found.values()])
    return Columns(found, schema, table[usual], handle, rows, space) if found else None


def opened(path: str) -> int:
    """Open a file on the disk; -1 if that fails: then whoever else opens it says why."""
    if hasattr(os, "preadv"):  # so kernels can read files as well
        with suppress(OSError):
            return os.open(path, os.O_RDONLY)
    return -1
