"""Rankings of candidates: factorised policies against columns of their probabilities, and items that are none."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.cut import cut_log
from tests.helpers.passes import PLAIN
from tests.helpers.ranked_candidates import INTERACTIONS, W, draw, softmax

pytestmark = pytest.mark.covers

P = drs.policies
ROLES = {"action": "shown", "propensity": "p", "reward": "r", "context": ["x0", "x1"], "positions": "independent"}
SETS = drs.Candidates("offered", "z")
ESTIMATORS = ["rips", "iips", "pi", "ips", "snrips"]


ROWS = 60 if PLAIN else 3000


@pytest.fixture(scope="module")
def table():
    return draw(ROWS)


POLICIES = {
    "soft": P.Factorised(P.Softmax(W, interactions=INTERACTIONS)),
    "even": P.Factorised(P.Uniform()),
    "mixed": P.Factorised(P.Epsilon(P.Column("all"), 0.5)),
    "all": P.Factorised(P.Column("all")),
}


def values(result, policy):
    return [result[policy, name].value for name in result.estimators]


def test_a_factorised_policy_is_a_column_of_its_probabilities(table):
    both = zip(table["soft"].to_pylist(), table["even"].to_pylist(), strict=True)
    mixed = pa.array([0.5 * np.array(soft) + 0.5 * np.array(even) for soft, even in both])
    log = drs.Log(table.append_column("mixed", mixed), candidates=SETS, **ROLES)
    found = drs.evaluate(log, POLICIES, estimators=ESTIMATORS)
    columns = {"soft": P.Column("soft"), "even": P.Column("even"), "mixed": P.Column("mixed"), "all": P.Column("soft")}
    wanted = drs.evaluate(log, columns, estimators=ESTIMATORS)
    for name in columns:
        assert values(found, name) == pytest.approx(values(wanted, name), rel=1e-12)
    assert found["even", "ips"].value == pytest.approx(found.baseline.value)
    assert found["soft", "rips"].ess == pytest.approx(wanted["soft", "rips"].ess)


@pytest.mark.parametrize("form", ["positions", "text", "function", "one propensity"])
def test_other_forms_give_the_same(table, form):
    options, policy, names = {**ROLES, "candidates": SETS}, POLICIES["soft"], ESTIMATORS
    if form == "positions":
        options |= {"action": "place", "candidates": drs.Candidates("offered", "z", "position")}
    elif form == "text":
        table = draw(ROWS, text=True)
    elif form == "function":
        policy = P.Factorised(by_hand)
    else:
        options, names = {**options, "propensity": "whole"}, ["ips", "snips"]
    found = drs.evaluate(drs.Log(table, **options), {"new": policy}, estimators=names)
    wanted = drs.evaluate(drs.Log(draw(ROWS), candidates=SETS, **ROLES), {"new": P.Column("soft")}, estimators=names)
    assert values(found, "new") == pytest.approx(values(wanted, "new"), rel=1e-12)


def by_hand(X, features, starts):
    """The softmax policy as a function of the user's."""
    found = []
    for x, first, last in zip(X, starts, starts[1:], strict=False):
        found.append(softmax(features[first:last] @ (W[2:] + x @ INTERACTIONS)))
    return np.concatenate(found)


def test_threads_batch_sizes_and_row_groups_do_not_matter(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 3)

    def bits(**options):
        threads = options.pop("threads", 1)
        log = cut_log(tmp_path / "log.parquet", candidates=SETS, **ROLES, **options)
        result = drs.evaluate(log, POLICIES, estimators=ESTIMATORS, threads=threads)
        return [float(row[name]).hex() for row in result.rows() for name in ("value", "stderr", "low", "ess")]

    assert bits() == bits(threads=3) == bits(batch_size=37) == bits(batch_size=5000)


def test_what_a_log_shows(table):
    log = drs.Log(table, candidates=SETS, **ROLES)
    assert "  action      shown: lists of 1 to 3 items" in repr(log)
    assert "ids of candidates\n" in repr(log)
    assert "  candidates  offered, with" in repr(log)
    by_place = drs.Log(table, candidates=drs.Candidates("offered", "z", "position"), **{**ROLES, "action": "place"})
    assert "positions of candidates, from 0\n" in repr(by_place)
    found = log.describe()
    assert (found["lists"]["shortest"], found["candidates"]["most"]) == (1, 6)
    assert log.to_arrow().num_rows == ROWS


def broken(**columns):
    """A log whose row 2 has these values, and others are fine."""
    table = draw(5, seed=2)
    for name, value in columns.items():
        rows = table[name].to_pylist()
        rows[2] = value
        table = table.set_column(table.column_names.index(name), name, pa.array(rows, table.schema.field(name).type))
    return table


ONE = {"offered": [7, 8], "z": [[0.0, 1.0], [1.0, 0.0]], "p": [0.5], "r": [1.0], "soft": [0.5]}


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ({**ONE, "shown": [9]}, "action is not among its candidates", "got 9 in place 0, .* at row 2"),
        ({**ONE, "shown": [7], "offered": [7, 7]}, "a candidate is there twice", "got 7 in place 1 at row 2"),
        ({**ONE, "shown": [7], "offered": [7, None]}, "a candidate has no id", "got None in place 1 at row 2"),
        ({**ONE, "shown": [7], "offered": None}, "candidates are null", "at row 2"),
        ({**ONE, "shown": [7], "z": [[0.0, np.nan], [1.0, 0.0]]}, "a candidate's features are not finite", "at row 2"),
        ({**ONE, "shown": [7, 8]}, "lists have different lengths", "at row 2"),
        ({**ONE, "shown": [None]}, "action holds a null", "at row 2"),
    ],
)
def test_bad_rows(row, reason, message):
    table = broken(**row)
    with pytest.raises(drs.LogError, match=f"{reason}.*{message}"):
        drs.evaluate(drs.Log(table, candidates=SETS, **ROLES), POLICIES["soft"])
    skipped = drs.evaluate(drs.Log(table, candidates=SETS, on_bad_row="skip", **ROLES), POLICIES["soft"])
    assert skipped.skipped == {reason: 1}
    assert skipped.n == 4


@pytest.mark.parametrize("place", [[2], [-1]])
def test_positions_outside(place):
    table = broken(**ONE, place=place, shown=[7])
    options = {**ROLES, "action": "place", "candidates": drs.Candidates("offered", "z", "position")}
    with pytest.raises(
        drs.LogError, match=f"not a position among its candidates: got {place[0]} in place 0, .* at row 2"
    ):
        drs.evaluate(drs.Log(table, **options), POLICIES["soft"])
    assert drs.evaluate(drs.Log(table, on_bad_row="skip", **options), POLICIES["soft"]).n == 4


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            P.Uniform(),
            r"is a Uniform, and this is a log of rankings.*or wrap it, drs.policies.Factorised\(Uniform\(...\)",
        ),
        (P.Factorised(P.Constant(99)), "takes 99, which is not among the candidates at row 0"),
        (P.Factorised(P.Softmax(np.ones(3))), "has 3 weights; on this log, they are 4"),
        (P.Factorised(P.Column("x0")), "the base of Factorised must know the probabilities of all candidates"),
        (P.Factorised(lambda X, z, starts: np.ones(len(z))), "policy 'new'.* at row 0"),
        (P.Factorised(P.Column("soft")), "policy 'new'"),
    ],
)
def test_policies_that_do_not_fit(policy, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(drs.Log(draw(20), candidates=SETS, **ROLES), {"new": policy})


def test_factorised_policies_are_for_rankings_of_candidates():
    with pytest.raises(drs.PolicyError, match="chooses among the candidates of an event, and this log has none: name"):
        drs.evaluate(drs.Log(draw(5), **ROLES), POLICIES["soft"])
    events = pa.table({"action": [7, 8], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "offered": [[7, 8]] * 2})
    for candidates in (None, drs.Candidates("offered")):
        with pytest.raises(
            drs.PolicyError, match="fills the positions of rankings, and this log has one action for each"
        ):
            drs.evaluate(drs.Log(events, candidates=candidates), P.Factorised(P.Uniform()))
