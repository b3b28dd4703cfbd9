"""Filters written as text, e.g. "country == 'DE' and day >= '2026-11-01'", become Arrow expressions.

The text is data, not code. Python's parser reads it, but nothing in it is ever run, and only these forms are known:

    age > 30        ==  !=  <  <=  >  >=  between a column and a number, a text, a date or time, true, false or a column
    18 <= age < 65  two comparisons
    country in ['DE', 'AT']     country not in [...]
    country is null             country is not null
    and  or  not  (...)         a boolean column stands for itself
    `user age` > 30             a column whose name is not a plain word

A comparison with a null is neither true nor false, as in SQL, so such a row does not belong to the log.
"""

from __future__ import annotations

import ast
import datetime as dt
import functools
import math
import operator
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drstream.errors import LogError, parameter, suggest

LONGEST = 100_000  # characters
QUOTED = re.compile(r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|`([^`\n]+)`""")
PLACEHOLDER = "__column_{}__"
OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
WORDS = {"true": True, "false": False, "null": None}
WANTED: dict[str, tuple[Any, str]] = {  # what a column of each family is compared with
    "number": ((int, float), "a number"),
    "text": (str, "text in quotes"),
    "truth": (bool, "true or false"),
    "time": (str, "a date in quotes, e.g. '2026-11-01'"),
}
FEW = 64  # values of "in" that are compared one by one, which statistics of row groups can exclude


def parse_filter(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the Arrow expression of a filter, or raise an error that says where it is wrong.

    >>> parse_filter("age >= 18 and not country in ['DE']", pa.schema({"age": pa.int8(), "country": pa.string()}))
    <pyarrow.compute.Expression ((age >= 18) and invert((country == "DE")))>
    """
    return _Filter(text, schema).expression()


@dataclass(frozen=True)
class _Column:
    name: str
    kind: pa.DataType  # of its values, if it is a dictionary

    @property
    def field(self) -> pc.Expression:
        return pc.field(self.name)


class _Filter:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text, self.schema = text, schema
        self.quoted: list[str] = []  # names in backquotes

    def wrong(self, why: str) -> LogError:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}..."
        return LogError(f"{parameter('filter', shown)}: {why}")

    def expression(self) -> pc.Expression:
        if not self.text.strip() or len(self.text) > LONGEST:
            raise self.wrong("write a condition, e.g. age > 30" if len(self.text) <= LONGEST else "it is too long")

        def replaced(found: re.Match[str]) -> str:
            if found[2] is None:
                return found[0]
            self.quoted.append(found[2])
            return PLACEHOLDER.format(len(self.quoted) - 1)

        source = " ".join(QUOTED.sub(replaced, self.text).split("\n"))
        try:
            tree = ast.parse(source.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self.wrong(self._misread(error)) from None
        try:
            return self._truth(tree.body)
        except RecursionError:
            raise self.wrong("its parts are too deeply nested") from None

    def _misread(self, error: BaseException) -> str:
        plain = QUOTED.sub("", self.text)
        hint = "Compare columns with values, e.g. country == 'DE' and day >= '2026-11-01'"
        if re.search(r"(?<![=!<>])=(?!=)", plain):
            hint = "Write == to compare"
        elif re.search(r"&|\||\b(AND|OR|NOT|IN|IS|NULL)\b", plain):
            hint = "Write and, or, not, in, is and null in small letters"
        where = getattr(error, "offset", None)
        return f"it cannot be read{f' from character {where} on' if where else ''}. {hint}"

    # Conditions

    def _truth(self, node: ast.expr) -> pc.Expression:
        """Return a condition."""
        if isinstance(node, ast.BoolOp):
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return functools.reduce(join, map(self._truth, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self._truth(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = zip(sides[:-1], node.ops, sides[1:], strict=True)
            return functools.reduce(operator.and_, (self._compared(*each) for each in pairs))
        if isinstance(node, ast.Name) and node.id.lower() not in WORDS:
            column = self._column(node)
            if not pa.types.is_boolean(column.kind):
                raise self.wrong(f"column {column.name!r} is {column.kind}, no condition: compare it, e.g. with ==")
            return column.field
        if isinstance(node, ast.Constant | ast.Name | ast.List | ast.Tuple | ast.Set):
            raise self.wrong(f"{ast.unparse(node)} is no condition: compare a column with it")
        raise self._refused(node)

    def _refused(self, node: ast.AST) -> LogError:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            return self.wrong("it has & or |: write and, or")
        return self.wrong(
            f"it has {ast.unparse(node)[:60]!r}. A filter is data, not code: it compares columns with values, with "
            "and, or, not, in [...] and is null"
        )

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(left, ast.Name) or not _is_null(right):
                raise self.wrong(f"{ast.unparse(left)} is ...: write NAME is null, or NAME is not null")
            field = self._column(left).field
            return field.is_null() if isinstance(op, ast.Is) else field.is_valid()
        if isinstance(op, ast.In | ast.NotIn):
            inside = self._inside(left, right)
            return inside if isinstance(op, ast.In) else ~inside
        if self._names_column(left):
            return self._ordered(self._column(left), op, right)
        if self._names_column(right):
            return self._ordered(self._column(right), MIRRORED[type(op)](), left)
        self._value(left), self._value(right)  # refuses what is no value
        raise self.wrong(f"{ast.unparse(left)} and {ast.unparse(right)} are both values: name a column")

    def _ordered(self, column: _Column, op: ast.cmpop, other: ast.expr) -> pc.Expression:
        compare = OPERATORS[type(op)]
        if self._names_column(other):
            second = self._column(other)
            if _family(column.kind) != _family(second.kind) or _family(column.kind) == "":
                raise self.wrong(
                    f"column {column.name!r} is {column.kind}, and column {second.name!r} is {second.kind}: they "
                    "cannot be compared"
                )
            return compare(column.field, second.field)
        return self._against(column, op, self._value(other))

    def _against(self, column: _Column, op: ast.cmpop, value: Any) -> pc.Expression:
        """Compare with a value; integers also with a fraction, for which Arrow would turn large ones to floats."""
        field, compare = column.field, OPERATORS[type(op)]
        if not (pa.types.is_integer(column.kind) and isinstance(value, float)):
            return compare(field, self._scalar(column, value))
        if not math.isfinite(value):
            raise self.wrong(f"{value} is too large a number")
        if value.is_integer():
            return compare(field, self._number(column, int(value)))
        if isinstance(op, ast.Eq | ast.NotEq):  # null stays null
            return field != field if isinstance(op, ast.Eq) else field == field
        up = isinstance(op, ast.Lt | ast.GtE)
        return compare(field, self._number(column, math.ceil(value) if up else math.floor(value)))

    def _inside(self, left: ast.expr, right: ast.expr) -> pc.Expression:
        if not self._names_column(left) or not isinstance(right, ast.List | ast.Tuple | ast.Set):
            raise self.wrong("write NAME in [VALUE, VALUE, ...]")
        column = self._column(left)
        if not right.elts:
            raise self.wrong(f"the list after {column.name!r} in ... is empty")
        found = [*map(self._value, right.elts)]
        if len(found) <= FEW:
            return functools.reduce(operator.or_, (self._against(column, ast.Eq(), value) for value in found))
        whole = pa.types.is_integer(column.kind)  # no integer equals a fraction
        values = [self._scalar(column, v) for v in found if not (whole and isinstance(v, float) and v % 1)]
        kind = values[0].type if values else column.kind
        found = column.field.isin(pa.array([value.as_py() for value in values], kind))
        return pc.if_else(column.field.is_valid(), found, pa.scalar(None, pa.bool_()))

    # Columns and values

    def _names_column(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and (node.id in self.schema.names or node.id.lower() not in WORDS)

    def _column(self, node: ast.expr) -> _Column:
        assert isinstance(node, ast.Name)
        name = node.id
        place = re.fullmatch(PLACEHOLDER.format(r"(\d+)"), name)
        if place and int(place[1]) < len(self.quoted):
            name = self.quoted[int(place[1])]
        if name not in self.schema.names:
            raise self.wrong(f"the log has no column {name!r}: {suggest(name, self.schema.names)}")
        kind = self.schema.field(name).type
        return _Column(name, kind.value_type if pa.types.is_dictionary(kind) else kind)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Name) and node.id.lower() in WORDS:
            value = WORDS[node.id.lower()]
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
            value = node.value
        elif isinstance(node, ast.Name):
            raise self.wrong(f"{ast.unparse(node)} is a column, and a value is needed here: put text in quotes")
        else:
            raise self._refused(node)
        if value is None:
            raise self.wrong("nothing equals null: write NAME is null, or NAME is not null")
        return value

    def _scalar(self, column: _Column, value: Any) -> pa.Scalar:
        """Return a value as a scalar that can be compared with the column."""
        family = _family(column.kind)
        fits, wanted = WANTED.get(family, ((), ""))
        if not isinstance(value, fits) or isinstance(value, bool) != (family == "truth"):
            hint = f"compare it with {wanted}" if wanted else "columns of this type can only be asked for null"
            raise self.wrong(f"column {column.name!r} is {self.schema.field(column.name).type}, not {value!r}: {hint}")
        if family == "number":
            return self._number(column, value)
        return self._time(column, value) if family == "time" else pa.scalar(value, column.kind)

    def _number(self, column: _Column, value: float) -> pa.Scalar:
        if not pa.types.is_integer(column.kind):
            return pa.scalar(float(value))
        kind = pa.uint64() if pa.types.is_uint64(column.kind) else pa.int64()
        low, high = (0, 2**64) if kind == pa.uint64() else (-(2**63), 2**63)
        if not low <= value < high:
            raise self.wrong(f"column {column.name!r} is {column.kind}, which cannot hold {value}")
        return pa.scalar(int(value), kind)

    def _time(self, column: _Column, value: str) -> pa.Scalar:
        kind = column.kind
        try:
            found = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            raise self.wrong(
                f"column {column.name!r} is {kind}, and {value!r} is no date or time: write e.g. '2026-11-01' or "
                "'2026-11-01 18:30:00'"
            ) from None
        if pa.types.is_date(kind):
            if found.time() != dt.time() or found.tzinfo is not None:
                raise self.wrong(f"column {column.name!r} is {kind}: compare it with a date, without a time of day")
            return pa.scalar(found.date(), pa.date32())
        if kind.tz is None and found.tzinfo is not None:
            raise self.wrong(f"column {column.name!r} is {kind}, without a time zone: leave it out of {value!r}, too")
        if kind.tz is not None and found.tzinfo is None:
            found = found.replace(tzinfo=_zone(kind.tz))  # midnight there, where the log's times are shown
        return pa.scalar(found, pa.timestamp("ns" if kind.unit == "ns" else "us", kind.tz))


def _zone(name: str) -> dt.tzinfo:
    offset = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    if offset:
        sign = -1 if offset[1] == "-" else 1
        return dt.timezone(sign * dt.timedelta(hours=int(offset[2]), minutes=int(offset[3])))
    return zoneinfo.ZoneInfo(name)


def _is_null(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or (
        isinstance(node, ast.Name) and node.id.lower() == "null"
    )


def _family(kind: pa.DataType) -> str:
    """What values of this type can be compared with: number, text, truth, time; empty if with nothing."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth"
    return "time" if types.is_date(kind) or types.is_timestamp(kind) else ""


def columns_of(filter: Any, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns without which the expression cannot be evaluated."""
    if filter is None:
        return ()
    if not isinstance(filter, pc.Expression):
        raise LogError(
            f'{parameter("filter", filter)}: pass text, e.g. "age > 30", or a pyarrow expression, e.g. '
            "pyarrow.compute.field('age') > 30"
        )
    if "FieldPath(" in str(filter):
        raise LogError(f"filter={filter}: name its columns; their positions change with what is read")
    empty = schema.empty_table()
    try:
        empty.filter(filter)
    except pa.ArrowException as error:
        raise LogError(f"filter={filter} does not fit the log: {' '.join(str(error).split())}") from None
    needed = []
    for name in schema.names:
        try:
            empty.drop_columns([name]).filter(filter)
        except pa.ArrowException:
            needed.append(name)
    return tuple(needed)
