"""CSV: a line with the names of the columns, then a row a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv

from drstream.converting.csv_quotes import records
from drstream.converting.lines import MALFORMED, NOT_UTF8, Malformed, Parsed
from drstream.errors import LogError
from drstream.sources.names import arrow_says
from drstream.types import Ints

OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}  # what else may separate fields
QUOTE, BREAK, RETURN = b'"', ord("\n"), ord("\r")


ALONE = pc_csv.ReadOptions(use_threads=False)  # a process that ends while threads of Arrow start may abort


@dataclass(frozen=True)
class Csv:
    """Fields are separated by `delimiter`. An empty field is null."""

    delimiter: str = ","
    name: str = "CSV"
    typed: bool = False
    text: tuple[str, ...] = ()  # columns that are read as text: as numbers, 01 and 1 would be the same

    def begin(self, data: bytes, path: str) -> tuple[tuple[str, ...], int]:
        first = end = data.find(b"\n") + 1 or len(data)
        quotes = data.count(QUOTE, 0, end)
        while quotes % 2 and end < len(data):  # the line ends within a quoted name
            start, end = end, data.find(b"\n", end) + 1 or len(data)
            quotes += data.count(QUOTE, start, end)
        try:
            head = self._head(data[:end])
            if head.num_rows:  # a quote within a name, as in: size 5"
                end = first
                head = self._head(data[:end])
            names = tuple(head.column_names)
        except pa.ArrowInvalid as error:
            raise LogError(f"cannot read the names of the columns in line 1 of {path}: {arrow_says(error)}") from None
        except UnicodeDecodeError:
            raise LogError(f"the names of the columns in line 1 of {path} are not UTF-8: {NOT_UTF8}") from None
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise LogError(f"{path} has {names.count(twice)} columns named {twice!r}: rename all but one")
        other = next((mark for mark in OTHERS if mark in names[0]), None) if len(names) == 1 else None
        if other is not None:
            raise LogError(
                f"{path} has one column, {names[0]!r}: fields must be separated by {OTHERS[self.delimiter]}, not by "
                f"{OTHERS[other]}. Call a file .csv if commas separate its fields, .tsv if tabs do"
            )
        return names, end

    def _head(self, data: bytes) -> pa.Table:
        return pc_csv.read_csv(pa.BufferReader(data), ALONE, parse_options=self._fields)

    @property
    def _fields(self) -> pc_csv.ParseOptions:
        return pc_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def cut(self, data: bytes) -> int:
        """Return the end of the last record that is complete."""
        ends = records(data, self.delimiter).ends
        return int(ends[-1]) if len(ends) else 0

    def parse(self, data: bytes, names: tuple[str, ...], schema: pa.Schema | None, skip: bool) -> Parsed:
        types = None if schema is None else {column.name: column.type for column in schema}
        as_text = {name: pa.string() for name in self.text if name in names}
        if not data.strip():
            return Parsed(pa.table({name: pa.nulls(0) for name in names}) if schema is None else schema.empty_table())
        bad: list[pc_csv.InvalidRow] = []
        fields = self._fields
        if skip:
            fields.invalid_row_handler = partial(_remember, bad)
        try:
            table = pc_csv.read_csv(
                pa.BufferReader(data),
                read_options=pc_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                parse_options=fields,
                convert_options=pc_csv.ConvertOptions(
                    column_types=as_text if types is None else types,
                    include_columns=list(types) if types else None,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._malformed(error, data, names) from None
        return self._located(table, data, bad)

    def _located(self, table: pa.Table, data: bytes, bad: list[pc_csv.InvalidRow]) -> Parsed:
        """Return the table with the lines of its rows, and those that were left out."""
        if QUOTE not in data and not bad and table.num_rows == data.count(b"\n") + (not data.endswith(b"\n")):
            return Parsed(table)
        found = records(data, self.delimiter)
        if found.open is not None:
            line = data.count(b"\n", 0, found.open)
            raise Malformed('a field begins with a double quote (") that is never closed', line, skippable=False)
        lines = _filled(data, found.ends, found.lines(data))
        out = Parsed(table, lines)
        if bad:
            places = np.array([row.number for row in bad]) - 1
            out.lines = np.delete(lines, places)
            for row, place in zip(bad, places, strict=True):
                what = f"expected {row.expected_columns} fields, but got {row.actual_columns}: {row.text}"
                out.leave_out(MALFORMED, int(lines[place]), what)
        return out

    def texts(self, data: bytes, names: tuple[str, ...], column: str) -> list[str | None]:
        return self.parse(data, names, pa.schema([(column, pa.string())]), True).table.column(0).to_pylist()

    def _malformed(self, error: pa.ArrowInvalid, data: bytes, names: tuple[str, ...]) -> Malformed:
        """Return what Arrow says, with the name of the column instead of its number, and the line of the row."""
        said = arrow_says(error)
        row = re.search(r"Row #(\d+): ", said)
        column = re.search(r"In CSV column #(\d+): ", said)
        what = re.sub(r"^(In CSV column #\d+: )?(Row #\d+: )?(CSV parse error: )?(Row #\d+: )?", "", said)
        what = re.sub(r"^Expected (\d+) columns, got (\d+)", r"expected \1 fields, but got \2", what)
        if column is not None:
            what = f"column {names[int(column[1])]!r}: {what}"
        if row is None:
            return Malformed(what, skippable=False)
        found = records(data, self.delimiter)
        return Malformed(what, int(_filled(data, found.ends, found.lines(data))[int(row[1]) - 1]))

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType:
        if one == other or pa.types.is_null(other):
            return one
        if pa.types.is_null(one):
            return other
        kinds = {one, other}
        if kinds == {pa.int64(), pa.float64()}:
            return pa.float64()
        times = [kind for kind in kinds if pa.types.is_timestamp(kind)]
        if times and all(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) for kind in kinds):
            return pa.timestamp("ns") if pa.timestamp("ns") in times else times[0]
        return pa.string()


def _remember(bad: list[pc_csv.InvalidRow], row: pc_csv.InvalidRow) -> str:
    bad.append(row)
    return "skip"


def _filled(data: bytes, ends: Ints, lines: Ints) -> Ints:
    """Return the lines of those records that are not empty, which Arrow leaves out."""
    starts = np.concatenate([[0], ends])[: len(lines)]
    text = np.frombuffer(data, np.uint8)
    stops = np.append(ends, len(data))[: len(lines)]
    size = stops - starts
    empty = (size == 1) & (text[starts] == BREAK)
    empty |= (size == 2) & (text[starts] == RETURN) & (text[stops - 1] == BREAK)
    return lines[~empty]
