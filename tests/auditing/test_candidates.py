"""Audits and descriptions of logs of candidates, and their rows in other files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.candidate_logs import NAMES, events, log_of, table_of


def replaced(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def honest(rows=2000, seed=0):
    """Events whose propensities are right: candidates are drawn evenly."""
    found = events(rows=rows, seed=seed, most=6)
    found["propensity"] = np.array([1 / len(s) for s in found["sets"]])
    return found


def test_describe_shows_the_sizes_of_candidates():
    found = honest(300)
    log = log_of(found)
    described = log.describe()
    sizes = [len(s) for s in found["sets"]]
    assert described["candidates"] == {
        "fewest": 1,
        "most": 6,
        "mean": np.mean(sizes),
        "action_is": "id",
        "features": ["z[0]", "z[1]", "z[2]"],
    }
    assert described["labels"] == []
    assert f"  a row has   1 to 6 candidates, {np.mean(sizes):.3g} on average" in repr(described)
    assert described["unused"] == []
    table, _ = table_of(found)
    empty = drs.Log(table.slice(0, 0), context="x?", candidates=drs.Candidates("items")).describe()
    assert empty["candidates"] is None


def test_an_audit_of_right_propensities_is_fine():
    found = log_of(honest()).audit()
    assert found["inverse_over_candidates"].level == "ok"
    assert found["inverse_over_candidates"].value == pytest.approx(1)
    assert found.level == "ok"
    assert found.actions.num_rows == 0
    checks = {finding.check for finding in found.findings}
    assert not checks & {"inverse_propensity", "inverse_over_all", "unlogged_actions", "guessed_action"}


@pytest.mark.parametrize(("factor", "level"), [(0.5, "stop"), (1.8, "look")])
def test_an_audit_finds_propensities_that_are_too_small_or_too_large(factor, level):
    found = honest()
    found["propensity"] = np.minimum(1, factor * found["propensity"])
    audit = log_of(found).audit()
    mean = np.mean([1 / (p * len(s)) for p, s in zip(found["propensity"], found["sets"], strict=True)])
    assert audit["inverse_over_candidates"].value == pytest.approx(mean)
    assert audit["inverse_over_candidates"].level == level


def test_an_audit_counts_bad_candidates_and_copies():
    found = honest(400)
    table, candidates = table_of(found)
    sets = table["items"].to_pylist()
    sets[7] = [*sets[7], "more"]
    broken = replaced(table, "items", sets)
    audit = drs.Log(broken, candidates=candidates).audit()
    assert audit.bad["candidates have lists of different lengths"]["count"] == 1
    assert audit.bad["candidates have lists of different lengths"]["row"] == 7
    twice = pa.concat_tables([table, table.slice(0, 200)])
    assert drs.Log(twice, candidates=candidates).audit()["duplicate_rows"].level != "ok"
    without = drs.Candidates(features=NAMES)
    twice, _ = table_of({**found, "sets": found["sets"]}, "columns", position=True)
    copies = pa.concat_tables([twice, twice.slice(0, 200)])
    assert drs.Log(copies, candidates=without).audit()["duplicate_rows"].level != "ok"
    assert drs.Log(twice, candidates=without).audit()["duplicate_rows"].level == "ok"


def test_an_audit_without_propensities_and_without_a_choice():
    found = honest(300)
    table, candidates = table_of(found)
    assert drs.Log(table, candidates=candidates, propensity=None).audit()["no_propensities"].level == "look"
    found = events(rows=100, most=1)
    found["propensity"] = np.ones(100)
    assert log_of(found).audit()["exploration"].level == "ok"
    many = events(rows=100, most=5)
    many["propensity"] = np.ones(100)
    assert log_of(many).audit()["exploration"].level == "stop"


def test_rows_are_exported_and_converted(tmp_path):
    found = honest(300)
    table, candidates = table_of(found)
    z = table["z"].to_pylist()
    z[3] = z[3][:-1] or [[0.0, 0.0]]
    broken = table.set_column(table.schema.get_field_index("z"), "z", pa.array(z, table["z"].type))
    log = drs.Log(broken, candidates=candidates, on_bad_row="skip")
    assert log.to_arrow().num_rows == 299
    with pytest.raises(drs.LogError, match="at row 3, column 'z'"):
        drs.Log(broken, candidates=candidates).to_arrow(["reward"])
    done = drs.convert(log, tmp_path / "log.parquet")
    assert done.rows == 299
    again = drs.Log(tmp_path / "log.parquet", candidates=candidates)
    assert again.to_arrow().equals(log.to_arrow().replace_schema_metadata(again.source.schema.metadata))
    pq.write_table(table, tmp_path / "more.parquet")
    drs.convert(tmp_path / "more.parquet", tmp_path / "log.arrow", candidates=candidates)
    value = drs.evaluate(drs.Log(tmp_path / "log.arrow", candidates=candidates), drs.policies.Uniform())["ips"].value
    assert value == pytest.approx(np.mean(found["reward"]))


def test_an_audit_compares_propensities_of_all_candidates_with_the_logged_ones():
    found = honest(400)
    table, candidates = table_of(found)
    sizes = [len(s) for s in found["sets"]]
    even = table.append_column("mu", pa.array([[1 / size] * size for size in sizes]))
    log = drs.Log(replaced(even, "propensity", [1 / size for size in sizes]), candidates=candidates, propensities="mu")
    assert log.audit()["bad_values"].level == "ok"
    wrong = replaced(even, "propensity", [0.9 / size for size in sizes])
    audit = drs.Log(wrong, candidates=candidates, propensities="mu").audit()
    assert audit["bad_values"].level == "stop"
    assert "actions" not in repr(audit).splitlines()[0]
