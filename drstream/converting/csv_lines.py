"""CSV: a line with the names of the columns, then a row a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pc_csv

from drstream.converting.text import NOT_UTF8, Malformed
from drstream.errors import LogError
from drstream.log.files import arrow_says

OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}  # what else may separate fields
QUOTE = b'"'


@dataclass(frozen=True)
class Csv:
    """Fields are separated by `delimiter`. An empty field is null."""

    delimiter: str = ","
    name: str = "CSV"

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
        return pc_csv.read_csv(pa.BufferReader(data), parse_options=self._fields)

    @property
    def _fields(self) -> pc_csv.ParseOptions:
        return pc_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def cut(self, data: bytes) -> int:
        """Return the end of the last line that does not end within quotes; of the last line if there is none."""
        last = end = data.rfind(b"\n") + 1
        quotes = data.count(QUOTE, 0, end)
        while end and quotes % 2:
            stop, end = end, data.rfind(b"\n", 0, end - 1) + 1
            quotes -= data.count(QUOTE, end, stop)
        return end or last

    def parse(self, data: bytes, names: tuple[str, ...], schema: pa.Schema | None) -> pa.Table:
        types = None if schema is None else {column.name: column.type for column in schema}
        if not data.strip():
            return pa.table({name: pa.nulls(0) for name in names}) if schema is None else schema.empty_table()
        try:
            table = pc_csv.read_csv(
                pa.BufferReader(data),
                read_options=pc_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                parse_options=self._fields,
                convert_options=pc_csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types) if types else None,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise _malformed(error, names) from None
        if data.count(QUOTE) % 2 and table.num_rows < sum(bool(line.strip()) for line in data.splitlines()):
            raise Malformed('a field begins with a double quote (") that is never closed')
        return table

    def texts(self, data: bytes, names: tuple[str, ...], column: str) -> list[str | None]:
        return self.parse(data, names, pa.schema([(column, pa.string())])).column(0).to_pylist()

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


def _malformed(error: pa.ArrowInvalid, names: tuple[str, ...]) -> Malformed:
    """Return what Arrow says, with the name of the column instead of its number."""
    said = arrow_says(error)
    row = re.search(r"Row #(\d+): ", said)
    column = re.search(r"In CSV column #(\d+): ", said)
    what = re.sub(r"^(In CSV column #\d+: )?(Row #\d+: )?(CSV parse error: )?(Row #\d+: )?", "", said)
    what = re.sub(r"^Expected (\d+) columns, got (\d+)", r"expected \1 fields, but got \2", what)
    if column is not None:
        what = f"column {names[int(column[1])]!r}: {what}"
    return Malformed(what if len(what) < 300 else f"{what[:300]} ...", int(row[1]) - 1 if row else None)
