"""Logs of rankings: roles, what is shown of them, and rows that cannot be used."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.log.kinds.rankings.reading import repeated
from tests.helpers.rankings import NEW, ROLES, log_of, table_of

GOOD = {"items": [4, 7, 1], "p": [0.5, 0.25, 1.0], "pi": [0.25, 0.25, 0.5], "r": [1.0, 0.0, 2.0]}
SHORT = {name: values[:2] for name, values in GOOD.items()}


def with_bad(**lists):
    """Rankings of which row 2 has these lists, and all others are fine."""
    return [GOOD, SHORT, {**GOOD, **lists}, GOOD, SHORT]


BAD = {
    "no items": ({"items": None}, "action is null", "column 'items'"),
    "no propensities": ({"p": None}, "propensity is null", "column 'p'"),
    "no rewards": ({"r": None}, "reward is null", "column 'r'"),
    "empty": ({"items": [], "p": [], "r": [], "pi": []}, "action is empty", r"got \[\] at .*, column 'items'"),
    "null item": ({"items": [4, None, 1]}, "action holds a null", r"got None in place 1 at .*, column 'items'"),
    "null propensity": ({"p": [0.5, None, 1.0]}, "propensity holds a null", r"got None in place 1 at .*, column 'p'"),
    "null reward": ({"r": [None, 0.0, 2.0]}, "reward holds a null", r"got None in place 0 at .*, column 'r'"),
    "more items": (
        {"items": [4, 7, 1, 9]},
        "lists have different lengths",
        r"got \[0.5, 0.25, 1.0\], where 'items' holds \[4, 7, 1, 9\], at .*, column 'p'",
    ),
    "fewer rewards": (
        {"r": [1.0]},
        "lists have different lengths",
        r"got \[1.0\], where 'items' holds \[4, 7, 1\], at .*, column 'r'",
    ),
    "p = 0": ({"p": [0.5, 0.0, 1.0]}, r"propensity is not in \(0, 1\]", r"got 0.0 in place 1 at .*, column 'p'"),
    "p > 1": ({"p": [0.5, 1.5, 1.0]}, r"propensity is not in \(0, 1\]", r"got 1.5 in place 1 at .*, column 'p'"),
    "p is NaN": ({"p": [np.nan, 0.5, 1.0]}, r"propensity is not in \(0, 1\]", r"got nan in place 0 at .*, column 'p'"),
    "infinite": ({"r": [1.0, np.inf, 2.0]}, "reward is not finite", r"got \[1.0, inf, 2.0\] at .*, column 'r'"),
    "r is NaN": ({"r": [1.0, 0.0, np.nan]}, "reward is not finite", r"got \[1.0, 0.0, nan\] at .*, column 'r'"),
    "too large": ({"r": [1e308, 1e308, 0.0]}, "reward is not finite", "column 'r'"),
    "twice": (
        {"items": [4, 7, 4]},
        "action has an item twice",
        r"got 4 in place 2 at .*, column 'items'.*positions='independent'",
    ),
}


@pytest.mark.covers
@pytest.mark.parametrize("case", BAD)
def test_bad_rows_name_place_value_and_remedy(case, tmp_path):
    lists, reason, value = BAD[case]
    path = tmp_path / "log.parquet"
    pq.write_table(table_of(with_bad(**lists)), path, row_group_size=2)
    with pytest.raises(drs.LogError, match=f"{reason}.*{value}.*Repair or remove such rows, or pass on_bad") as caught:
        drs.evaluate(drs.Log(path, **ROLES), NEW)
    assert f"at row 2 (row 0 of row group 1 of {path}), column" in str(caught.value)
    good = drs.evaluate(log_of([GOOD, SHORT, GOOD, SHORT]), NEW)
    skipped = drs.evaluate(drs.Log(path, **ROLES, on_bad_row="skip"), NEW)
    assert skipped.skipped == {reason.replace("\\", ""): 1}
    assert [row["value"] for row in skipped.rows()] == pytest.approx([row["value"] for row in good.rows()])
    assert drs.Log(path, **ROLES).describe()["bad_rows"] == skipped.skipped
    assert drs.Log(path, **ROLES, on_bad_row="skip").to_arrow().num_rows == 4


@pytest.mark.parametrize("column", ["p", "r"])
def test_one_number_for_a_list_that_is_bad(column):
    """A whole list's propensity, or its reward."""
    numbers = {"p": [0.5, 0.25, 0.5, 0.5], "r": [1.0, 0.0, 2.0, 1.0]}
    policy = pa.array([0.5, 0.5, 0.5, 0.5])
    for value in (None, np.nan, np.inf, *([0.0, 1.5] if column == "p" else [])):
        found = {**numbers, column: [*numbers[column][:2], value, numbers[column][3]]}
        table = pa.table({"items": [[1, 2]] * 4, "p": found["p"], "r": found["r"], "new": policy})
        got = "" if value is None else f": got {value}"
        with pytest.raises(drs.LogError, match=f"{got} at row 2, column '{column}'"):
            drs.evaluate(drs.Log(table, **ROLES), NEW)
        skipped = drs.evaluate(drs.Log(table, **ROLES, on_bad_row="skip"), NEW)
        assert (skipped.n, sum(skipped.skipped.values())) == (3, 1)


def test_a_long_list_is_shown_in_part():
    long = {"items": [*range(20)], "p": [0.5] * 21, "pi": [0.5] * 21, "r": [0.0] * 21}
    with pytest.raises(
        drs.LogError,
        match=r"got \[0.5, .*, ...\], 21 items, where 'items' holds \[0, 1, 2, 3, 4, 5, 6, 7, ...\], 20 items",
    ):
        drs.evaluate(log_of([long]), NEW)


def test_positions_that_were_filled_independently_may_have_an_item_twice():
    lists = with_bad(items=[4, 4, 4])
    result = drs.evaluate(log_of(lists, positions="independent"), NEW)
    assert result.n == 5
    assert result.estimators == ["rips", "iips", "pi", "ips", "snips"]
    assert not any(finding.check == "positions" for finding in result.findings)


@given(
    lists=st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=9),
    kind=st.sampled_from(["numbers", "bytes", "large", "huge", "text", "dictionary"]),
)
def test_repeats_are_found(lists, kind):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    items = pa.array(list(itertools.chain(*lists)), pa.int64())
    if kind == "bytes":
        items = pa.array([50 * x - 128 for x in itertools.chain(*lists)], pa.int8())
    elif kind == "large":
        items = pa.array([2**40 * x for x in itertools.chain(*lists)], pa.int64())
    elif kind == "huge":
        items = pa.array([2**64 - 1 - x for x in itertools.chain(*lists)], pa.uint64())
    elif kind == "text":
        items = items.cast(pa.string())
    if kind == "dictionary":  # that has a value twice
        codes = [5 - x if x % 2 else 10 - x for x in itertools.chain(*lists)]
        values = pa.array([str(x) for x in (*range(5, -1, -1), *range(4, -1, -1))])
        items = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values)
        assert items.cast(pa.string()).to_pylist() == [str(x) for x in itertools.chain(*lists)]
    assert repeated(starts, items).tolist() == [len(set(one)) < len(one) for one in lists]


def test_what_a_log_shows():
    table = table_of([GOOD, SHORT], day=pa.array([1, 2]))
    log = drs.Log(table, **ROLES, positions="conditional")
    assert repr(log).splitlines() == [
        "Log of rankings in table: 2 rows",
        "  context     none",
        "  action      items: lists of 2 to 3 items",
        "  reward      r, by position",
        "  propensity  p, by position, given the items above",
    ]
    found = log.describe()
    assert found["lists"] == {"shortest": 2, "longest": 3, "mean": 2.5}
    assert found["reward_mean"] == 2.0
    assert found["smallest_propensity"] == 0.25
    assert "  lists       from 2 to 3 items, 2.5 on average" in repr(found)
    assert "unused" in repr(found)
    many = drs.Log(table_of([GOOD] * 3000), **ROLES)
    assert "items: lists of 3 items in the first 1,024 rows" in repr(many)
    fixed = drs.Log(table_of([GOOD] * 3000, lambda kind: pa.list_(kind, 3)), **ROLES, positions="marginal")
    assert "items: lists of 3 items\n" in repr(fixed)
    assert "propensity  p, of an item at its position" in repr(fixed)
    whole = drs.Log(table, action="items", propensity=0.5, reward="day", positions="independent")
    assert "reward      day, of the whole list" in repr(whole)
    assert "propensity  0.5 in every row, of the whole list" in repr(whole)
    assert "lists of 0 items" not in repr(drs.Log(table.slice(0, 0), **ROLES))
    assert "positions were filled independently" in repr(drs.Log(table, **ROLES, positions="independent"))
    assert "propensity  none" in repr(drs.Log(table, action="items", propensity=None, reward="r"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "day"}, "column 'r' holds lists, and action column 'day' does not"),
        ({"actions": 9}, "column 'items' holds lists, so this is a log of rankings.*actions= is about events with one"),
        ({"eligible": "items2"}, "eligible= is about events with one action: leave it out"),
        ({"positions": "other"}, "positions='other': it must be one of marginal, conditional, independent"),
        ({"propensity": "uniform"}, "propensity='uniform' is about events with one action"),
        ({"propensities": "new"}, "propensities= is about events with one action"),
        ({"logger": "day", "logger_propensities": ["share", "other"]}, "logger_propensities= is about events with one"),
        ({"reward": ["r", "name"]}, "reward column 'name' has type string: it must hold numbers or booleans"),
        (
            {"propensity": "names"},
            r"propensity column 'names' has type list<.*>: it must hold numbers, or lists of them",
        ),
        ({"action": "p"}, r"action column 'p' has type list<.*double>: it must hold integers, strings"),
        ({"context": ["p"]}, "column 'p' is the propensity: it cannot be part of the context"),
    ],
)
def test_columns_that_do_not_fit_are_refused(options, message):
    more = {
        "day": [1, 2],
        "share": [0.5, 0.5],
        "other": [0.5, 0.5],
        "name": ["a", "b"],
        "names": [["a"], ["b"]],
        "items2": [[1], [2]],
    }
    table = table_of([GOOD, SHORT], **{name: pa.array(values) for name, values in more.items()})
    options = {**ROLES, **options}
    with pytest.raises(drs.LogError, match=message):
        drs.Log(table, **options)


def test_positions_are_about_rankings():
    table = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
    with pytest.raises(drs.LogError, match="positions='marginal' is about rankings, and action, propensity and reward"):
        drs.Log(table, positions="marginal")


def test_usual_names_and_costs_of_rankings():
    table = table_of([GOOD, SHORT]).rename_columns(["action", "propensity", "cost", "new"])
    log = drs.Log(table)
    assert log.roles.ranking
    assert log.roles.negated
    result = drs.evaluate(log, NEW, estimators=["iips", "ips"])
    found = drs.evaluate(log_of([GOOD, SHORT]), NEW, estimators=["iips", "ips"])
    for name in result.estimators:
        assert result[name].value == -found[name].value


def test_rewards_far_from_0_have_a_typical_one():
    lists = [{**GOOD, "r": [1e6, 1e6, 1e6 + k]} for k in range(40)]
    log = log_of([*lists, {**GOOD, "r": None}], on_bad_row="skip")
    assert log.typical_reward == pytest.approx(3e6 + 19.5)
    assert log.pivot == log.typical_reward
    result = drs.evaluate(log, NEW, estimators=["snips", "ips"])
    assert result["snips"].value == pytest.approx(3e6 + 19.5, rel=1e-12)


def test_rankings_are_copied_to_another_file(tmp_path):
    table = table_of([GOOD, SHORT, GOOD])
    drs.convert(drs.Log(table, **ROLES), tmp_path / "copy.parquet", columns=["new"])
    log = drs.Log(tmp_path / "copy.parquet", **ROLES)
    assert log.to_arrow(["items", "p", "r", "new"]) == table
    wanted = drs.evaluate(drs.Log(table, **ROLES), NEW).rows()
    assert [row["value"] for row in drs.evaluate(log, NEW).rows()] == [row["value"] for row in wanted]


def test_rankings_have_no_candidates():
    lists = pa.table({"action": [[1, 2]], "reward": [[0.0, 1.0]], "propensity": [[0.5, 0.5]], "items": [[1, 2, 3]]})
    with pytest.raises(drs.LogError, match=r"column 'action' holds lists, .* It takes no candidates=: leave it out"):
        drs.Log(lists, candidates=drs.Candidates("items"))
