"""Decodes columns of numbers, and of lists that all have one length, from the pages of a Parquet file.

pyarrow takes up to twice as long for them (ADR 26). What is not known here, is null or looks damaged raises `Unusual`:
then pyarrow reads the rows, or says what is wrong with them. So this module has no messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.kernels import footer as fields
from drstream.kernels import pages as kernels
from drstream.kernels.thrift import DEPTH
from drstream.log.footers import Footer
from drstream.log.memory import LINE, Pool
from drstream.log.numbers import Column, Form, Numbers
from drstream.log.schema import is_list

STORED_TYPES = {pa.int32(): 1, pa.int64(): 2, pa.float32(): 4, pa.float64(): 5}  # numbers of the types in Parquet
ZSTD = 6  # number of the codec in Parquet
OF_FOOTER = -1  # the length of lists: the number of numbers, divided by that of rows
MOST_CHUNKS = 1 << 18  # columns times row groups: what footers say about more would take much memory
NOTHING = np.frombuffer(b"", np.uint8)
NO_PAGES = kernels.Pages(  # of rows that are decoded
    -1,
    np.empty((0, kernels.FIELDS), np.int64),
    0,
    np.empty(0, np.uint8),
    np.empty((0, 0), np.uint8),
    np.empty((0, 0), np.uint8),
    NOTHING,
    np.empty((3, 0), np.int64),
    np.zeros(kernels.STATE, np.int64),
)
CHUNK = 1 << 14  # rows that are decoded and used at a time: float32 then has the 65,536 bytes that Snappy may repeat


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

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return self.number.bit_width // 8

    def column(self, size: int) -> Column:
        return Column(self.field, np.dtype(self.number.to_pandas_dtype()), size)


@dataclass(frozen=True)
class Known:
    """The columns of a file that can be decoded here."""

    leaves: dict[str, Leaf]
    tables: NDArray[np.int64]  # of `kernels.decode`, for each row group
    usual: NDArray[np.bool_]  # whether a column of a row group can be decoded here
    forms: dict[tuple[int, ...], Form] = field(default_factory=dict)  # by lengths of lists, -1 for columns that cannot

    @cached_property
    def regular(self) -> Form | None:
        """The form of all row groups, if they are alike; else None."""
        sizes = self.tables[:, :, kernels.SIZE]
        alike = len(sizes) and self.usual.all() and (sizes == sizes[0]).all()
        return self.form(tuple(sizes[0].tolist())) if alike else None

    @cached_property
    def flow(self) -> bool:
        """Whether no row group has lists, or another codec than Snappy."""
        codecs, sizes = self.tables[:, :, kernels.CODEC], self.tables[:, :, kernels.SIZE]
        return bool((((codecs == kernels.PLAIN_CODEC) | (codecs == kernels.SNAPPY)) & (sizes == 0)).all())

    def form(self, sizes: tuple[int, ...]) -> Form:
        found = self.forms.get(sizes)
        if found is None:
            columns = zip(self.leaves.values(), sizes, strict=True)
            found = self.forms[sizes] = Form(tuple(leaf.column(size) for leaf, size in columns if size >= 0))
        return found


@lru_cache(maxsize=64)
def known_columns(footer: Footer, columns: tuple[str, ...]) -> Known | None:
    """Return those of the columns that can be decoded here; None if there are none."""
    found = _leaves(footer, columns)
    leaves = list(found.values())
    if not leaves or len(leaves) * len(footer.rows) > MOST_CHUNKS:
        return None
    slots = np.full(footer.columns, -1, np.int64)
    slots[[leaf.place for leaf in leaves]] = np.arange(len(leaves))
    chunks = np.zeros((len(footer.rows), len(leaves), len(fields.NUMBERS)), np.int64)
    if fields.find_columns(footer.serialized, slots, np.zeros((3, DEPTH), np.int64), chunks) < 0:
        chunks[:] = 0
    tables, usual = _tables(footer, leaves, np.moveaxis(chunks, 2, 0))
    return Known(found, tables, usual)


def _tables(
    footer: Footer, leaves: Sequence[Leaf], about: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return `Known.tables` and `Known.usual`, given what the footer says about each column of each row group."""
    rows, end = np.array(footer.rows, np.int64)[:, np.newaxis], footer.state.size
    start, size, codec = about[fields.DATA], about[fields.BYTES], about[fields.CODEC]
    start = np.where(about[fields.DICTIONARY] > 0, np.minimum(start, about[fields.DICTIONARY]), start)
    length = np.where(
        np.array([leaf.size == OF_FOOTER for leaf in leaves]),
        np.maximum(about[fields.VALUES] // np.maximum(rows, 1), 1),
        np.array([leaf.size for leaf in leaves]),
    )
    tables = np.zeros((*start.shape, kernels.FIELDS), np.int64)
    tables[..., kernels.KNOWN] = -1
    tables[..., kernels.AT], tables[..., kernels.END] = start, start + size
    tables[..., kernels.CODEC], tables[..., kernels.SIZE] = codec, length
    tables[..., kernels.WIDTH] = [leaf.width for leaf in leaves]
    tables[..., kernels.LEVEL] = [leaf.level for leaf in leaves]
    tables[..., kernels.NUMBERS] = rows * np.maximum(length, 1)
    usual = (about[fields.ELSEWHERE] == 0) & (about[fields.TYPE] == [STORED_TYPES[leaf.number] for leaf in leaves])
    usual &= (codec == kernels.PLAIN_CODEC) | (codec == kernels.SNAPPY) | (codec == ZSTD)
    usual &= about[fields.VALUES] == tables[..., kernels.NUMBERS]
    usual &= (start > 0) & (start <= end) & (size > 0) & (size <= end - start)
    return tables, usual


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
    return Leaf(place, field, number, size, column.max_definition_level)


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


# Is told where the rows of a chunk are, decodes all chunks from these pages, and uses them. Returns what
# `kernels.decode` does. If that is something to go on, it is called again. If it is UNUSUAL, nothing of it counts.
Use = Callable[[Numbers, kernels.Pages], int]


def decoded(pages: kernels.Pages) -> int:
    """Decode rows, and do nothing with them."""
    return int(kernels.decode(*pages))


@dataclass
class Columns:
    """Reads the columns of numbers of a row group, from their first rows to their last."""

    form: Form
    table: NDArray[np.int64]  # of `kernels.decode`, a row for each
    handle: int
    rows: int
    space: Space
    flow: bool = False  # whether rows can be decoded a chunk at a time, without keeping all pages under way in memory

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(self.form.row_bytes)

    def batches(self, most: int) -> Iterator[Numbers]:
        """Yield at most so many rows at a time."""
        self.space.fit(len(self.table), 1 if most >= self.rows else len(self.table))
        for first in range(0, self.rows, most):
            yield self._next(min(most, self.rows - first))

    def rows_at_once(self) -> Numbers:
        self.space.fit(len(self.table), 1)
        return self._next(self.rows)

    def most_bytes(self, chunk: int | None = None) -> int:
        """Bytes that `hand_to` needs for rows."""
        return int(self.form.starts(min(self.rows, 2 * (chunk or CHUNK)) if self.flow else self.rows)[-1])

    def hand_to(self, use: Use, chunk: int | None = None) -> None:
        """Let all rows be decoded and used, in chunks if they flow. The kernel finds places of columns (`turn`)."""
        rows = min(self.rows, chunk or CHUNK) if self.flow else self.rows
        starts = self.form.starts(rows)
        size = int(starts[-1])
        apart = size if rows < self.rows else 0
        there = Numbers(self.form, starts, self.space.pool.lend(size + apart), rows)
        self.space.fit(len(self.table), len(self.table) if apart else 1)
        state = np.zeros(kernels.STATE, np.int64)
        state[kernels.CHUNK], state[kernels.APART], state[kernels.BASE] = rows, apart, there.memory.address
        self._decode(partial(use, there), rows, state)

    def _next(self, rows: int) -> Numbers:
        table, starts = self.table, self.form.starts(rows)
        memory = self.space.pool.lend(int(starts[-1]))
        table[:, kernels.OUT] = starts[:-1] + memory.address
        self._decode(decoded, rows, np.zeros(kernels.STATE, np.int64))
        table[:, kernels.FILLED] = 0
        return Numbers(self.form, starts, memory, rows)

    def _decode(self, decode: Callable[[kernels.Pages], int], rows: int, state: NDArray[np.int64]) -> None:
        space, given = self.space, NOTHING
        while True:
            memory = space.window, space.pages, space.dictionaries, given, space.levels
            found = decode(kernels.Pages(self.handle, self.table, rows, *memory, state))
            if found == kernels.DONE:
                return
            if found == kernels.UNUSUAL:
                raise Unusual
            if found == kernels.PAUSED:
                continue
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
        page = np.frombuffer(found, np.uint8)
        page.flags.writeable = False  # as kernels want it: what is in a tuple is not converted
        return page


def columns_of(known: Known | None, index: int, rows: int, handle: int, space: Space) -> Columns | None:
    """Return those columns of a row group that can be decoded here; None if there are none."""
    if known is None:
        return None
    table, usual = known.tables[index], known.usual[index]
    if known.regular is not None:
        return Columns(known.regular, table.copy(), handle, rows, space, known.flow)
    sizes = table[:, kernels.SIZE]
    if not usual.all():
        table, sizes = table[usual], np.where(usual, sizes, -1)
    form = known.form(tuple(sizes.tolist()))
    return Columns(form, table.copy(), handle, rows, space) if form.columns else None


def opened(path: str) -> int:
    """Open a file on the disk; -1 if that fails: then whoever else opens it says why."""
    if hasattr(os, "preadv"):  # so kernels can read files as well
        with suppress(OSError):
            return os.open(path, os.O_RDONLY)
    return -1
