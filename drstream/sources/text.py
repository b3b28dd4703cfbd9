"""CSV and JSON lines, read by pyarrow.

The first bytes of each file decide on the types of its columns, unless the caller says otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.dataset as ds
import pyarrow.json as pj

from drstream.errors import LogError, parameter, phrase
from drstream.sources.base import Source, checked, without_views
from drstream.sources.memory import TablePart, pieces
from drstream.sources.names import arrow_says, changed

FIRST_BYTES = 1 << 16
BLOCK_BYTES = 1 << 23  # that are parsed at a time, and decide on types
OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}  # what else may separate fields
MALFORMED = "malformed line"  # why a line is left out if bad rows are skipped
OPEN = 'goes on to the end of the file: it begins with a double quote (") that is never closed'
NOT_UTF8 = "write it as UTF-8, e.g. with iconv -f latin1 -t utf-8"


@dataclass(frozen=True)
class Csv:
    """Fields are separated by `delimiter`. An empty field is null. The first line names the columns."""

    delimiter: str = ","
    name: str = "CSV"

    def format(self, types: Mapping[str, pa.DataType], handler: Any = None) -> ds.FileFormat:
        return ds.CsvFileFormat(
            pc_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=handler),
            convert_options=pc_csv.ConvertOptions(column_types=dict(types), null_values=[""], strings_can_be_null=True),
            read_options=pc_csv.ReadOptions(block_size=BLOCK_BYTES),
        )


@dataclass(frozen=True)
class JsonLines:
    """Each line is an object, whose members are columns. A member that a line lacks is null."""

    name: str = "JSON lines"

    def format(self, types: Mapping[str, pa.DataType], handler: Any = None) -> ds.FileFormat:
        return ds.JsonFileFormat(read_options=pj.ReadOptions(block_size=BLOCK_BYTES))


def no_constants(path: str) -> dict[str, str]:
    return {}


@dataclass
class TextSource:
    """Text files of one syntax and with the same columns, in the order given. Each pass reads them again.

    types      Types of some columns. The first bytes of the files decide on the others.
    skip       Malformed lines of CSV are left out and counted. Otherwise the first one raises an error.
    constants  Columns that the path of a file tells: names and values.
    """

    paths: tuple[str, ...]
    name: str
    syntax: Csv | JsonLines
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    skip: bool = False
    constants: Callable[[str], dict[str, str]] = no_constants
    dropped: dict[str, int] = field(default_factory=dict)  # lines that held no row in the last pass, by reason
    left_out: dict[str, str] = field(default_factory=dict)  # the first of them

    def __post_init__(self) -> None:
        self.keys = tuple(map(os.path.abspath, self.paths))
        self._rows: int | None = None  # known when all were read once
        self._names: dict[str, list[str]] = {}  # of the columns in each file
        self.schema = self._schema()

    @property
    def rows(self) -> int:
        """Number of rows. Unless a pass has found it, this is a pass."""
        if self._rows is None:
            self._rows = sum(part.rows for part in self.parts(self.schema.names[:1]))
        return self._rows

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        first_row, before = 0, 0
        self.dropped, self.left_out = {}, {}
        for path in self.paths:
            for part in pieces(self._read(path, list(columns), first_row), first_row, path):
                count, before = self.dropped.get(MALFORMED, 0) - before, self.dropped.get(MALFORMED, 0)
                part.dropped = {MALFORMED: count} if count else {}
                first_row = part.first_row + part.rows
                yield part
        if (count := self.dropped.get(MALFORMED, 0) - before) > 0:
            empty = pa.schema([self.schema.field(name) for name in columns]).empty_table()
            yield TablePart(empty, first_row, dropped={MALFORMED: count})
        if not first_row:
            first = next((f", but e.g. {what}" for what in self.left_out.values()), "")
            raise LogError(f"{self.name} holds no row: there is nothing to read{first}")
        if self._rows not in (None, first_row):
            raise changed(self.name, f"it had {self._rows:,} rows, and has {first_row:,}")
        self._rows = first_row

    def _read(self, path: str, columns: list[str], row: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, whose first is so many rows from the log's first."""
        told = self.constants(path)
        known = pa.schema([one for one in self.schema if one.name not in told])
        form = self.syntax.format({one.name: one.type for one in known}, self._leave_out(path) if self.skip else None)
        last: pa.RecordBatch | None = None
        try:
            stored = [name for name in dict.fromkeys([*columns, *self._at_the_end(path)]) if name not in told]
            for batch in ds.dataset(path, schema=known, format=form).to_batches(columns=stored):
                last = checked(batch, f"{path} after row {row}") if batch.num_rows else last
                row += batch.num_rows
                for name, value in told.items():
                    batch = batch.append_column(name, pa.repeat(pa.scalar(value), batch.num_rows))
                yield without_views(batch.select(columns))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(path, error) from None
        for end in self._at_the_end(path):
            text = None if last is None else last.column(end)[-1].as_py()
            if text is not None and text.endswith("\n"):
                raise LogError(f"cannot read {path}: the last value of column {end!r} {OPEN}")

    def _at_the_end(self, path: str) -> list[str]:
        """Return the last column of CSV, if it holds text.

        Where a double quote is never closed, the rest of the file is one value. Arrow takes it in the last column.
        """
        name = self._names[path][-1]
        text = isinstance(self.syntax, Csv) and name and pa.types.is_string(self.schema.field(name).type)
        return [name] if text else []

    def _leave_out(self, path: str) -> Callable[[pc_csv.InvalidRow], str]:
        def leave_out(row: pc_csv.InvalidRow) -> str:
            if "\n" in row.text and row.text.count('"') % 2:
                return "error"  # a quote that is never closed: the line has all others that follow in it
            self.dropped[MALFORMED] = self.dropped.get(MALFORMED, 0) + 1
            what = f"expected {row.expected_columns} fields, but got {row.actual_columns}: {row.text}"
            where = path if row.number is None else f"line {row.number} of {path}"
            self.left_out.setdefault(MALFORMED, f"{what}, in {where}")
            return "skip"

        return leave_out

    def _schema(self) -> pa.Schema:
        """Return the types of the columns. Numbers of several files have the type that holds all of them."""
        found: list[pa.Schema] = []
        for path in self.paths:
            try:
                with pa.input_stream(path) as file:  # decompresses .gz, .bz2 and .zst
                    if b"\0" in file.read(FIRST_BYTES):
                        raise LogError(f"{path} holds bytes that are no text: write it as UTF-8")
                form = self.syntax.format(self.types, self._leave_out(path) if self.skip else None)
                found.append(ds.dataset(path, format=form).schema)
                self._names[path] = found[-1].names
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise self._unreadable(path, error) from None
            self._check(path, found[-1])
            if set(found[-1].names) != set(found[0].names):
                other = sorted(set(found[-1].names) ^ set(found[0].names))[0]
                raise LogError(
                    f"files differ: only one of {self.paths[0]} and {path} has the column {other!r}. Give files with "
                    "the same columns"
                )
        try:
            schema = pa.unify_schemas(found, promote_options="permissive") if len(found) > 1 else found[0]
        except pa.ArrowException as error:
            raise LogError(f"files of {self.name} differ: {arrow_says(error)}. {self._advice()}") from None
        columns = [(one.name, self.types.get(one.name, self._usual(one.type))) for one in schema if one.name]
        return pa.schema([*columns, *((name, pa.string()) for name in self.constants(self.paths[0]))])

    def _usual(self, kind: pa.DataType) -> pa.DataType:
        """Return the type for one that was found. Where all fields are empty at first, later ones may be anything."""
        return pa.string() if pa.types.is_null(kind) and isinstance(self.syntax, Csv) else kind

    def _check(self, path: str, schema: pa.Schema) -> None:
        others = [mark for mark in OTHERS if mark in schema.names[0]] if len(schema) == 1 else []
        if others and isinstance(self.syntax, Csv):
            raise LogError(
                f"{path} has one column, {schema.names[0]!r}: fields must be separated by "
                f"{OTHERS[self.syntax.delimiter]}, not by {OTHERS[others[0]]}. Call a file .csv if commas separate its "
                "fields, .tsv if tabs do"
            )
        for column in schema:
            if pa.types.is_binary(column.type) and column.name not in self.types:
                raise LogError(f"column {column.name!r} of {path} holds text that is not UTF-8: {NOT_UTF8}")

    def _advice(self) -> str:
        return (
            f"The first {BLOCK_BYTES >> 20} MB of each file decide on types. "
            + phrase("Pass types={'column': 'float64'}, or read", "Read")
            + " the file with DuckDB, which looks at all rows: drs.Log(duckdb.read_csv(path, sample_size=-1))"
        )

    def _unreadable(self, path: str, error: Exception) -> LogError:
        """Return what Arrow says, with names of columns instead of their numbers, and what to do."""
        if isinstance(error, FileNotFoundError):
            return LogError(f"cannot read {path}: the file is gone. Something deleted it meanwhile")
        said = re.sub(r"^Error creating dataset.*?: (?=Could not open)", "", arrow_says(error))
        said = re.sub(r"^Could not open \w+ input source '[^']*': (Invalid: |IOError: )?", "", said)
        said = re.sub(r"(Invalid: )?(CSV|JSON) parse error: ", "", said).removeprefix("Invalid: ")
        said = re.sub(r"Expected (\d+) columns, got (\d+)", r"expected \1 fields, but got \2", said)
        said = re.sub(r"Row #(\d+)", r"record \1", said)
        column = re.search(r"In CSV column #(\d+): ", said)
        if column is not None and path in self._names:
            said = said.replace(column[0], f"column {self._names[path][int(column[1])]!r}: ")
        said = re.sub(r"Column\(/([^)]*)\)", r"column '\1'", said)
        advice = "Is it complete?"
        if "conversion error" in said or "changed from" in said:
            advice = self._advice()
        if "expected" in said:
            advice = (
                f"Repair the line, or remove it, or pass {parameter('on_bad_row', 'skip')} to leave such lines out and "
                "have them counted"
            )
            if "\n" in str(error) and str(error).count('"') % 2:
                advice = f"A value {OPEN}"
        if "Column() changed from object" in said:
            advice = f"Each line must be an object. If the file is one array: jq -c '.[]' {path}"
        if "UTF" in said.upper():
            advice = NOT_UTF8[0].upper() + NOT_UTF8[1:]
        return LogError(f"cannot read {self.syntax.name}: {said}, in {path}. {advice}")
