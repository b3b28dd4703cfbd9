"""JSON lines: an object a line. Its members are columns; lists and nested objects become Arrow's lists and structs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from drstream.converting.lines import MALFORMED, NOT_UTF8, Malformed, Parsed, filled
from drstream.errors import LogError
from drstream.sources.names import arrow_says
from drstream.types import Ints

FILLED = re.compile(r"\S")


@dataclass(frozen=True)
class JsonLines:
    """A member that a line lacks is null."""

    name: str = "JSON lines"
    typed: bool = False

    def begin(self, data: bytes, path: str) -> tuple[tuple[str, ...], int]:
        if data.lstrip().startswith(b"["):
            raise LogError(
                f"{path} begins with '[': it is one JSON array. Write one object a line, e.g. with jq -c '.[]' {path}"
            )
        return (), 0

    def cut(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def parse(self, data: bytes, names: tuple[str, ...], schema: pa.Schema | None, skip: bool) -> Parsed:
        if not data.strip():
            return Parsed(pa.table({}) if schema is None else schema.empty_table())
        try:
            if schema is None or skip:
                _check_utf8(data)
            table, found = self._read(data, schema), Parsed(None)
        except Malformed:
            if not skip:
                raise
            found, good = _good_lines(data)
            if not found.left_out:
                raise
            table = self.parse(good, names, schema, False).table
        found.table = table
        if found.lines is None and table.num_rows != data.count(b"\n") + (not data.endswith(b"\n")):
            found.lines = _lines_of(data, table.num_rows)
        return found

    def _read(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        known = {} if schema is None else {"explicit_schema": schema, "unexpected_field_behavior": "ignore"}
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(**known),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _malformed(error, data) from None
        return table if schema is None else table.select(schema.names)

    def texts(self, data: bytes, names: tuple[str, ...], column: str) -> list[str | None]:
        found = []
        for line in data.decode(errors="replace").split("\n"):
            with suppress(ValueError):  # of a line that is left out
                found += [row.get(column) for row in _objects(line)]
        return found

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        try:
            both = [pa.schema([("value", kind)]) for kind in (one, other)]
            return pa.unify_schemas(both, promote_options="permissive").field(0).type
        except pa.ArrowTypeError:
            text = {one, other} - {pa.string()}  # Arrow takes a text for a timestamp where all texts look like one
            return pa.string() if len(text) == 1 and pa.types.is_timestamp(*text) else None


def _check_utf8(data: bytes) -> None:
    """Arrow does not check it."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        found = before[-1][-20:] + data[error.start : error.end]
        raise Malformed(f"{found!r} is not UTF-8: {NOT_UTF8}", len(before) - 1) from None


def _objects(line: str) -> Iterator[Any]:
    """Yield the objects of a line. There is one, but Arrow takes several. Numbers stay as they are written."""
    decode = json.JSONDecoder(parse_int=str, parse_float=str, strict=False).raw_decode
    end = 0
    while start := FILLED.search(line, end):
        row, end = decode(line, start.start())
        yield row


def _lines_of(data: bytes, rows: int) -> Ints:
    """Return the line of each row."""
    found = filled(data)
    if len(found) == rows:
        return found
    lines = data.decode(errors="replace").split("\n")
    return np.repeat(np.arange(len(lines)), [sum(1 for _ in _objects(line)) for line in lines])


def _good_lines(data: bytes) -> tuple[Parsed, bytes]:
    """Return the lines that hold an object, and which these are."""
    found, good, places = Parsed(None), [], []
    for number, line in enumerate(data.split(b"\n")):
        if not line.strip():
            continue
        try:
            rows = [json.loads(line, strict=False)]
        except (ValueError, RecursionError):
            rows = _arrow_rows(line)
        if rows and all(isinstance(row, dict) for row in rows):
            good.append(line)
            places += [number] * len(rows)
        else:
            found.leave_out(MALFORMED, number, f"not an object of JSON: {line[:60].decode(errors='replace')}")
    found.lines = np.array(places, np.int64)
    return found, b"\n".join(good)


def _arrow_rows(line: bytes) -> list[Any]:
    """Return the rows that Arrow finds in a line, if it can read it. It takes several objects."""
    try:
        line.decode()
        return pj.read_json(pa.BufferReader(line)).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return []


def _malformed(error: Exception, data: bytes) -> Malformed:
    said = arrow_says(error)
    row = re.search(r"in row (\d+)$", said)
    what = re.sub(r"\.? in row \d+$", "", said.removeprefix("JSON parse error: "))
    what = re.sub(
        r"^Column\(\) changed from object to (\w+)", r"each line must be an object, but this is of type \1", what
    )
    other_type = re.search(r"^Column\(", what)
    what = re.sub(r"Column\(/([^)]*)\)", r"column '\1'", what)
    return Malformed(what, _line_of(data, int(row[1])) if row else None, skippable=not other_type)


def _line_of(data: bytes, row: int) -> int | None:
    """Return the line of a row, or the first line before it that is no JSON."""
    count = 0
    for number, line in enumerate(data.decode(errors="replace").split("\n")):
        try:
            count += sum(1 for _ in _objects(line))
        except (ValueError, RecursionError):
            return number
        if count > row:
            return number
    return None
