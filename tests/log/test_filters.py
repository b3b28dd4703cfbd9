"""Filters as text: the rows that they keep, against plain Python, and what is refused."""

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from drstream.log.filters import parse_filter

BERLIN = dt.timezone(dt.timedelta(hours=1))
DAYS = [dt.datetime(2026, 10, 31, 23, 30), dt.datetime(2026, 11, 1), dt.datetime(2026, 11, 1, 12), None]
ROWS = [
    {"country": "DE", "age": 17, "score": 0.5, "new": True, "day": dt.date(2026, 10, 31)},
    {"country": "AT", "age": 30, "score": 1.5, "new": False, "day": dt.date(2026, 11, 1)},
    {"country": None, "age": None, "score": -2.0, "new": None, "day": None},
    {"country": "it's", "age": 65, "score": None, "new": True, "day": dt.date(2026, 11, 2)},
]
TABLE = pa.Table.from_pylist(ROWS)
TABLE = TABLE.append_column("at", pa.array(DAYS, pa.timestamp("us")))
TABLE = TABLE.append_column("zoned", pa.array(DAYS, pa.timestamp("ns")).cast(pa.timestamp("ns", "UTC")))
TABLE = TABLE.append_column("user age", pa.array([1, 2, 3, 4], pa.uint64()))
TABLE = TABLE.append_column("big", pa.array([2**63 + 5, 1, 2, 3], pa.uint64()))
TABLE = TABLE.append_column("price", pa.array([decimal.Decimal(x) for x in ("1.50", "2.00", "3.25", "4.00")]))
TABLE = TABLE.append_column("kind", pa.array(["a", "b", None, "a"]).dictionary_encode())
TABLE = TABLE.append_column("tiny", pa.array([1, 2, 3, -4], pa.int8()))
TABLE = TABLE.append_column("items", pa.array([[1], [2], None, []]))


def kept(text, table=TABLE):
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    return numbered.filter(parse_filter(text, table.schema))["row"].to_pylist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("country == 'DE'", [0]),
        ("country != 'DE'", [1, 3]),  # a null is neither equal nor unequal
        ('country == "it\'s"', [3]),
        ("country in ['DE', 'AT']", [0, 1]),
        ("country not in ['DE', 'AT']", [3]),
        ("not country in ('DE', 'AT')", [3]),
        ("country is null", [2]),
        ("country is not null and age >= 30", [1, 3]),
        ("country is None", [2]),
        ("age > 17", [1, 3]),
        ("17 < age", [1, 3]),
        ("17 <= age < 65", [0, 1]),
        ("age == 30 or (age == 17 and not score > 1)", [0, 1]),
        ("age > 29.5", [1, 3]),
        ("score < -1", [2]),
        ("score >= -2 and score <= +0.5", [0, 2]),
        ("score < age", [0, 1]),
        ("new", [0, 3]),
        ("not new", [1]),
        ("new == true and country == 'DE'", [0]),
        ("new == False", [1]),
        ("day >= '2026-11-01'", [1, 3]),
        ("'2026-11-01' > day", [0]),
        ("day in ['2026-11-01', '2026-11-02']", [1, 3]),
        ("at >= '2026-11-01'", [1, 2]),
        ("at == '2026-11-01 12:00:00'", [2]),
        ("at < '2026-11-01T00:00:00'", [0]),
        ("zoned >= '2026-11-01'", [1, 2]),
        ("zoned >= '2026-11-01T00:30:00+01:00'", [0, 1, 2]),
        ("at is null", [3]),
        ("`user age` > 2", [2, 3]),
        ("country == '`x`' or `user age` == 1", [0]),
        (f"big == {2**63 + 5}", [0]),
        ("big < 3", [1, 2]),
        ("big > 2.5", [0, 3]),
        ("big >= 2.5 and big <= 3.5", [3]),
        ("age == 17.5 or age == 65.0", [3]),
        ("age != 17.5", [0, 1, 3]),
        ("age < 17.5", [0]),
        ("age in [17.5, 30.0]", [1]),
        (f"age in {[*range(100), 17.5]}", [0, 1, 3]),
        ("price >= 2", [1, 2, 3]),
        ("kind == 'a'", [0, 3]),
        ("kind != 'a'", [1]),
        ("tiny < 300 and tiny > -300", [0, 1, 2, 3]),
        ("items is null", [2]),
        (f"age in {list(range(100))}", [0, 1, 3]),
        (f"not age in {list(range(18, 100))}", [0]),
        ("country == 'DE'\n  or age == 65", [0, 3]),
    ],
)
def test_rows(text, rows, tmp_path):
    assert kept(text) == rows
    pq.write_table(TABLE, tmp_path / "log.parquet", row_group_size=1)
    columns = {"action": [0, 1, 0, 1], "reward": [1.0, 2.0, 3.0, 4.0], "propensity": [0.5] * 4}
    whole = pa.table({**{name: TABLE[name] for name in TABLE.column_names}, **columns})
    pq.write_table(whole, tmp_path / "whole.parquet", row_group_size=1)
    log = drs.Log(tmp_path / "whole.parquet", filter=text, actions=2)  # statistics leave out row groups
    assert log.rows == len(rows)
    assert log.to_arrow(["reward"])["reward"].to_pylist() == [1.0 + row for row in rows]
    assert f"filter      {text}" in repr(log)


numbers = st.integers(-3, 3)
comparisons = st.builds(
    lambda name, op, value, flip: f"{value} {op} {name}" if flip else f"{name} {op} {value}",
    st.sampled_from(["a", "b"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    numbers,
    st.booleans(),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not {}".format, inner.map("({})".format)),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(conditions, st.lists(st.tuples(numbers, numbers), min_size=1, max_size=10))
def test_conditions_against_python(text, rows):
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    assert kept(text, table) == [i for i, (a, b) in enumerate(rows) if eval(text, {"a": a, "b": b})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contry == 'DE'", r"the log has no column 'contry': did you mean 'country'\?"),
        ("__import__('os').system('true')", r"it has .*system.*A filter is data, not code"),
        ("country.startswith('D')", r"it has .*startswith.*data, not code"),
        ("country.name == 'x'", r"it has 'country.name'.*data, not code"),
        ("country[0] == 'D'", r"it has 'country\[0\]'"),
        ("age + 1 > 3", r"it has 'age \+ 1'"),
        ("age == 2 ** 1000000000", r"it has '2 \*\* 1000000000'"),
        ("(lambda: 1)", r"it has 'lambda: 1'"),
        ("1 if new else 2", r"it has '1 if new else 2'"),
        ("age == f'{age}'", r"it has .*age"),
        ("(x := 3) == 3", r"it has .*x := 3"),
        ("[a for a in age]", r"it has '.a for a in age.'"),
        ("new & new", r"write and, or"),
        ("age = 3", r"it cannot be read.*Write == to compare"),
        ("age == 3 AND new", r"small letters"),
        ("age == 3 or", r"it cannot be read"),
        ("", r"write a condition, e.g. age > 30"),
        ("age", r"column 'age' is int64, no condition"),
        ("3", r"3 is no condition"),
        ("true", r"true is no condition"),
        ("1 == 1", r"1 and 1 are both values: name a column"),
        ("age == 'x'", r"column 'age' is int64, not 'x': compare it with a number"),
        ("age == true", r"column 'age' is int64, not True: compare it with a number"),
        ("country == 3", r"column 'country' is string, not 3: compare it with text in quotes"),
        ("country == DE", r"the log has no column 'DE'"),
        ("new == 1", r"column 'new' is bool, not 1: compare it with true or false"),
        ("day >= 20261101", r"column 'day' is date32\[day\], not 20261101: compare it with a date in quotes"),
        ("day >= '1.11.2026'", r"column 'day' is date32\[day\], and '1.11.2026' is no date or time"),
        ("day >= '2026-11-01 12:00'", r"column 'day' is date32\[day\]: compare it with a date, without a time"),
        ("at >= '2026-11-01T00:00:00+01:00'", r"column 'at' is timestamp\[us\], without a time zone"),
        ("kind == 3", r"column 'kind' is dictionary<.*not 3: compare it with text"),
        ("items == 3", r"column 'items' is list<.*can only be asked for null"),
        ("country == null", r"nothing equals null: write NAME is null"),
        ("country is 'DE'", r"write NAME is null"),
        ("age in 3", r"write NAME in \[VALUE, VALUE"),
        ("age in []", r"the list after 'age' in ... is empty"),
        ("age in [country]", r"country is a column, and a value is needed here"),
        ("age == country", r"column 'age' is int64, and column 'country' is string: they cannot be compared"),
        ("age > 1e999", r"inf is too large a number"),
        ("big > -1", r"column 'big' is uint64, which cannot hold -1"),
        (f"age == {2**63}", r"column 'age' is int64, which cannot hold 9223372036854775808"),
        ("(" * 300 + "new" + ")" * 300, r"it cannot be read"),
        ("not " * 5000 + "new", r"it cannot be read|too deeply nested"),
        ("new or " * 40_000 + "new", r"it is too long"),
        ("`user age > 2", r"it cannot be read"),
    ],
)
def test_refused(text, message):
    with pytest.raises(drs.LogError, match=message):
        parse_filter(text, TABLE.schema)


def test_columns_that_arrow_cannot_compare():
    """Integers beyond 2^53 have no float: the error is one of the log."""
    columns = {"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "a": [2**60 + 1, 3], "b": [0.5, 1.0]}
    with pytest.raises(drs.LogError, match=r"filter= cannot be computed for rows of the part that begins at row 0"):
        drs.Log(pa.table(columns), filter="a > b").to_arrow()


def test_named_zones_mean_their_own_midnight():
    times = pa.array([dt.datetime(2026, 10, 31, 22, 59), dt.datetime(2026, 10, 31, 23, 0)], pa.timestamp("s", "UTC"))
    for zone in ("Europe/Berlin", "+01:00"):
        table = pa.table({"at": times.cast(pa.timestamp("s", zone))})
        assert kept("at >= '2026-11-01'", table) == [1]
