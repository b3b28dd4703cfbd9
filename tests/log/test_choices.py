"""Whether actions are ids or positions of candidates, where they could be both."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

P = drs.policies
ROWS, SIZE = 60, 4


def table(rows=ROWS, seed=0, **changes):
    """Each event has the ids 0..3 in an order of its own; "position" and "id" tell of the same candidate."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((rows, SIZE)), axis=1)
    position = rng.integers(SIZE, size=rows)
    columns = {
        "ids": ids.tolist(),
        "position": position,
        "id": ids[np.arange(rows), position],
        "reward": rng.random(rows),
        "propensity": np.full(rows, 1 / SIZE),
    }
    return pa.table(columns | changes)


def log(rows, action, action_is=None, **options):
    return drs.Log(rows, action=action, candidates=drs.Candidates("ids", action_is=action_is), context=[], **options)


@pytest.mark.parametrize("action", ["position", "id"])
def test_what_could_be_both_must_be_said(action):
    message = (
        r"'(position|id)' could hold ids or positions of candidates.*Say which it is: drs.Candidates\(.*action_is="
    )
    with pytest.raises(drs.LogError, match=message):
        drs.evaluate(log(table(), action), P.Uniform(), estimators="ips")
    with pytest.raises(drs.LogError, match=message):
        log(table(), action).audit()


def test_both_ways_to_say_it_give_the_same():
    by_position = drs.evaluate(log(table(), "position", "position"), P.Column("position"), estimators="ips")
    by_id = drs.evaluate(log(table(), "id", "id"), P.Column("id"), estimators="ips")
    assert by_position["ips"].value == by_id["ips"].value == pytest.approx(table()["reward"].to_numpy().mean() * SIZE)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": [[0, 1, 2, 3]] * ROWS},  # the id is the position
        {"ids": [[7, 5, 1, 3]] * ROWS, "position": [3] * (ROWS - 1) + [5]},  # 5 is no position
        {"ids": [[7, 5, 1, 3]] * (ROWS - 1) + [[9, 8, 7, 6]], "position": [3] * ROWS},  # 3 is no id at the end
    ],
    ids=["the same", "no position", "no id"],
)
def test_what_can_be_one_thing_only_is_taken(changes):
    found = log(table(**changes), "position", on_bad_row="skip")
    assert drs.evaluate(found, P.Uniform(), estimators="ips").n >= ROWS - 1


def test_a_few_events_tell_nothing():
    assert drs.evaluate(log(table(rows=5), "id"), P.Uniform(), estimators="ips").n == 5


def test_integers_of_policies_mean_what_the_actions_mean():
    rows = table()
    taken = rows.append_column("second", pa.array(np.ones(ROWS, int)))
    for action, action_is in (("position", "position"), ("id", "id")):
        found = drs.evaluate(
            log(taken, action, action_is), {"constant": P.Constant(1), "column": P.Column("second")}, estimators="ips"
        )
        mask = rows[action].to_numpy() == 1
        wanted = (rows["reward"].to_numpy() * mask).mean() * SIZE
        assert found["constant", "ips"].value == found["column", "ips"].value == pytest.approx(wanted)


def test_errors_name_the_other_meaning():
    rows = table(ids=[[70, 50, 10, 30]] * ROWS)
    with pytest.raises(drs.LogError, match=r"If actions are positions, say so with drs.Candidates\(.*Repair or remove"):
        drs.evaluate(log(rows, "position"), P.Uniform())
    with pytest.raises(drs.LogError, match="If actions are ids, say so"):
        drs.evaluate(log(table(id=np.full(ROWS, 7)), "id", "position"), P.Uniform())
