"""JSON lines: an object a line. Its members are columns; lists and nested objects become Arrow's lists and structs."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from drstream.converting.lines import MALFORMED, NOT_UTF8, Malformed, Parsed, filled
from drstream.errors import LogError
from drstream.log.files import arrow_says


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
            found.lines = filled(data)
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
        decode = json.JSONDecoder(parse_int=str, parse_float=str, strict=False).decode
        found = []
        for line in data.decode(errors="replace").split("\n"):
            with suppress(ValueError):  # of a line that is left out
                found.append(decode(line).get(column))
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


def _good_lines(data: bytes) -> tuple[Parsed, bytes]:
    """Return the lines that hold an object, and which these are."""
    found, good, places = Parsed(None), [], []
    for number, line in enumerate(data.split(b"\n")):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse)
            if not isinstance(row, dict):
                raise ValueError(f"each line must be an object, but this is of type {type(row).__name__}")
        except (ValueError, RecursionError) as error:
            found.leave_out(MALFORMED, number, f"{error}: {line[:60].decode(errors='replace')}")
        else:
            good.append(line)
            places.append(number)
    found.lines = np.array(places, np.int64)
    return found, b"\n".join(good)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _malformed(error: Exception, data: bytes) -> Malformed:
    said = arrow_says(error)
    row = re.search(r"in row (\d+)$", said)
    what = re.sub(r"\.? in row \d+$", "", said.removeprefix("JSON parse error: "))
    what = re.sub(
        r"^Column\(\) changed from object to (\w+)", r"each line must be an object, but this is of type \1", what
    )
    other_type = re.search(r"^Column\(", what)
    what = re.sub(r"Column\(/([^)]*)\)", r"column '\1'", what)
    line = int(filled(data)[int(row[1])]) if row else None
    return Malformed(what, line, skippable=not other_type)
