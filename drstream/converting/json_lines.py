"""JSON lines: an object a line. Its members are columns; lists and nested objects become Arrow's lists and structs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json as pj

from drstream.converting.text import NOT_UTF8, Malformed
from drstream.errors import LogError
from drstream.log.files import arrow_says

FILLED = re.compile(r"\S")


@dataclass(frozen=True)
class JsonLines:
    """A member that a line lacks is null."""

    name: str = "JSON lines"

    def begin(self, data: bytes, path: str) -> tuple[tuple[str, ...], int]:
        if data.lstrip().startswith(b"["):
            raise LogError(
                f"{path} begins with '[': it is one JSON array. Write one object a line, e.g. with jq -c '.[]' {path}"
            )
        return (), 0

    def cut(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def parse(self, data: bytes, names: tuple[str, ...], schema: pa.Schema | None) -> pa.Table:
        if not data.strip():
            return pa.table({}) if schema is None else schema.empty_table()
        if schema is None:
            _check_utf8(data)
        known = {} if schema is None else {"explicit_schema": schema, "unexpected_field_behavior": "ignore"}
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(**known),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _malformed(error) from None
        return table if schema is None else table.select(schema.names)

    def texts(self, data: bytes, names: tuple[str, ...], column: str) -> list[str | None]:
        decode = json.JSONDecoder(parse_int=str, parse_float=str, strict=False).raw_decode
        content = data.decode(errors="replace")
        found, end = [], 0
        while start := FILLED.search(content, end):
            row, end = decode(content, start.start())
            found.append(row.get(column))
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
        row = sum(bool(line.strip()) for line in before[:-1])
        found = before[-1][-20:] + data[error.start : error.end]
        raise Malformed(f"{found!r} is not UTF-8: {NOT_UTF8}", row) from None


def _malformed(error: Exception) -> Malformed:
    said = arrow_says(error)
    row = re.search(r"in row (\d+)$", said)
    what = re.sub(r"\.? in row \d+$", "", said.removeprefix("JSON parse error: "))
    what = re.sub(
        r"^Column\(\) changed from object to (\w+)", r"each line must be an object, but this is of type \1", what
    )
    what = re.sub(r"Column\(/([^)]*)\)", r"column '\1'", what)
    return Malformed(what if len(what) < 300 else f"{what[:300]} ...", int(row[1]) if row else None)
