"""Policies and reward models that are functions of columns of the log."""

import json
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from tests.helpers.cut import cut_log
from tests.helpers.frames import (
    ACTIONS,
    by_land,
    naive_dr,
    naive_ips,
    rewards_by_land,
    shop,
    whole,
    with_numbers,
)
from tests.helpers.passes import PLAIN, not_plain

ROWS = 300 if PLAIN else 1500
POLICY = drs.policies.from_arrow(by_land, columns=["land"])
MODEL = drs.models.from_arrow(rewards_by_land, columns=["land"])


@pytest.fixture(scope="module")
def table():
    found = shop(ROWS)
    return with_numbers(found, pi=by_land(whole(found)), rhat=rewards_by_land(whole(found)))


@pytest.fixture(scope="module")
def file(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrow") / "shop.parquet"
    pq.write_table(table, path, row_group_size=400)
    return path


def test_equals_the_naive_form(table):
    result = drs.evaluate(table, POLICY, MODEL, ["ips", "dr"])
    pi, rhat = by_land(whole(table)), rewards_by_land(whole(table))
    assert result["ips"].value == pytest.approx(naive_ips(table, pi), rel=1e-12)
    assert result["dr"].value == pytest.approx(naive_dr(table, pi, rhat), rel=1e-12)


def both(log, **options):
    """The same by functions of columns, and by columns of the log that have their results."""
    by_column = drs.policies.Column("pi"), drs.models.Column("rhat")
    return drs.evaluate(log, POLICY, MODEL, **options), drs.evaluate(log, *by_column, **options)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [None, 17])
def test_any_batch_size_and_threads_give_the_same_bits(file, threads, batch_size):
    got, ref = both(cut_log(file, batch_size=batch_size), threads=threads)
    assert told(got) == told(ref)


def told(result):
    """All that a result says, but for what it was made from."""
    return repr({name: value for name, value in json.loads(result.to_json()).items() if name != "provenance"})


def test_with_a_filter_a_split_and_bad_rows(file):
    log = drs.Log(file, filter=pc.field("age") > 30, on_bad_row="skip").split(0.6)[0]
    got, ref = both(log)
    assert got["dr"].value == ref["dr"].value
    assert got.n == ref.n < ROWS


@not_plain
def test_on_an_executor(file):
    with ProcessPoolExecutor(1) as executor:
        got = drs.evaluate(file, POLICY, MODEL, executor=executor)
    assert got["dr"].value == drs.evaluate(file, POLICY, MODEL)["dr"].value


def test_beside_models_that_are_fitted_by_fold(file):
    log = drs.Log(file, context=["age"])
    got = drs.evaluate(log, POLICY, drs.models.Ridge(), crossfit=3)
    assert got["dr"].value == drs.evaluate(log, drs.policies.Column("pi"), drs.models.Ridge(), crossfit=3)["dr"].value
    with pytest.raises(drs.ModelError, match="from_arrow can be used as it is: leave crossfit= out"):
        drs.evaluate(log, POLICY, MODEL, crossfit=3)


@pytest.mark.covers
def test_in_a_replay(file):
    options = {"horizon": 30, "bias": 0.02}
    got = drs.replay(file, POLICY, model=MODEL, **options)
    ref = drs.replay(file, drs.policies.Column("pi"), model=drs.models.Column("rhat"), **options)
    assert got.value == ref.value
    learner = drs.policies.EpsilonGreedy()
    log = drs.Log(file, context=["age"])
    got = drs.replay(log, learner, model=MODEL, **options)
    assert got.value == drs.replay(log, learner, model=drs.models.Column("rhat"), **options).value


def test_as_propensities_and_in_a_plan(table):
    logging = drs.policies.from_arrow(lambda batch: np.tile([0.5, 0.25, 0.25], (len(batch), 1)), columns="land")
    got = drs.evaluate(drs.Log(table, propensity=None), POLICY, propensity=logging)
    assert got["ips"].value == drs.evaluate(table, POLICY)["ips"].value
    ref = drs.plan(table, drs.policies.Column("pi"), model=drs.models.Column("rhat"))
    assert told(drs.plan(table, POLICY, model=MODEL)) == told(ref)


def test_losses_for_learners(table):
    log = drs.Log(table, context=["age"])
    got = np.concatenate([batch.losses for batch in drs.optimize.impute(log, MODEL)])
    ref = np.concatenate([batch.losses for batch in drs.optimize.impute(log, drs.models.Column("rhat"))])
    assert (got == ref).all()


NAMES = ["age", "income", "land", "kind", "day", "tags", "action"]


@pytest.mark.parametrize("stored", ["table", "file"])
def test_columns_come_in_their_types_and_with_their_nulls(table, file, stored):
    """Also the action, which is decoded as a dictionary for its labels."""
    seen = []

    def policy(batch):
        seen.append(batch)
        return np.tile([1.0, 0, 0], (batch.num_rows, 1))

    log = drs.Log(table if stored == "table" else file, context=["age"])
    drs.evaluate(log, drs.policies.from_arrow(policy, columns=NAMES), threads=1)
    assert seen[0].schema.names == NAMES
    assert seen[0].schema.types == table.select(NAMES).schema.types
    plain = [batch.to_pylist() for batch in seen]
    assert [row for rows in plain for row in rows] == table.select(NAMES).to_pylist()
    assert any(row["land"] is None for rows in plain for row in rows)


# What a function may return

LABELS = np.array(ACTIONS)


def chosen(batch):
    return by_land(batch).argmax(axis=1)


FORMS = {
    "array": by_land,
    "columns first": lambda batch: np.asfortranarray(by_land(batch)),
    "lists": lambda batch: by_land(batch).tolist(),
    "pandas": lambda batch: pd.DataFrame(by_land(batch)),
    "pandas, by label": lambda batch: pd.DataFrame(by_land(batch), columns=ACTIONS)[["none", "banner", "mail"]],
    "record batch": lambda batch: pa.RecordBatch.from_arrays(list(by_land(batch).T.copy()), names=list("abc")),
    "record batch, by label": lambda batch: pa.RecordBatch.from_arrays(
        [pa.array(by_land(batch)[:, j].copy()) for j in (2, 0, 1)], names=["none", "banner", "mail"]
    ),
    "table": lambda batch: pa.table({name: by_land(batch)[:, j] for j, name in enumerate("abc")}),
    "Arrow lists": lambda batch: pa.array(list(by_land(batch))),
    "Arrow lists of one size": lambda batch: pa.FixedSizeListArray.from_arrays(by_land(batch).reshape(-1), 3),
    "chunks of lists": lambda batch: pa.chunked_array([list(by_land(batch))]),
}
CHOICES = {
    "text": lambda batch: LABELS[chosen(batch)],
    "objects": lambda batch: LABELS[chosen(batch)].astype(object),
    "list": lambda batch: LABELS[chosen(batch)].tolist(),
    "Arrow": lambda batch: pa.array(LABELS[chosen(batch)]),
    "dictionary": lambda batch: pa.array(LABELS[chosen(batch)]).dictionary_encode(),
    "chunks": lambda batch: pa.chunked_array([LABELS[chosen(batch)]]),
    "series": lambda batch: pd.Series(LABELS[chosen(batch)]),
    "category": lambda batch: pd.Series(LABELS[chosen(batch)]).astype("category"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_probabilities(table, form):
    got = drs.evaluate(table, drs.policies.from_arrow(FORMS[form], columns=["land"]))
    assert got["ips"].value == drs.evaluate(table, POLICY)["ips"].value
    model = drs.models.from_arrow(FORMS[form], columns=["land"])
    assert drs.evaluate(table, POLICY, model)["dm"].value == drs.evaluate(table, POLICY, POLICY_AS_MODEL)["dm"].value


POLICY_AS_MODEL = drs.models.from_arrow(by_land, columns=["land"])


@pytest.mark.parametrize("form", CHOICES)
def test_labels_of_the_actions_taken(table, form):
    got = drs.evaluate(table, drs.policies.from_arrow(CHOICES[form], columns=["land"]))
    ref = naive_ips(table, np.eye(3)[chosen(whole(table))])
    assert got["ips"].value == pytest.approx(ref, rel=1e-12)


def test_integer_labels():
    table = shop(200, integers=True)
    got = drs.evaluate(table, drs.policies.from_arrow(chosen, columns=["land"]))
    ref = naive_ips(table, np.eye(3)[chosen(whole(table))], [0, 1, 2])
    assert got["ips"].value == pytest.approx(ref, rel=1e-12)


@settings(max_examples=10 if PLAIN else 40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 1), st.booleans()), min_size=1, max_size=30)
)
def test_labels_of_any_text(rows):
    """The policy takes the action whose name the text is, else the first one."""
    text, action, reward = zip(*rows, strict=True)
    table = pa.table(
        {
            "text": pa.array(text, pa.string()),
            "action": pa.array(["ab"[a] for a in action]),
            "reward": pa.array(reward).cast(pa.float64()),
            "propensity": [0.5] * len(rows),
        }
    )
    log = drs.Log(table, actions=["a", "b"])
    got = drs.evaluate(log, drs.policies.from_arrow(lambda batch: pc.fill_null(batch["text"], "a"), columns=["text"]))
    taken = [x or "a" for x in text]
    hits = [2.0 * r for x, a, r in zip(taken, action, reward, strict=True) if x == "ab"[a]]
    if not hits:
        assert np.isnan(got["ips"].value)
    else:
        assert got["ips"].value == pytest.approx(sum(hits) / len(rows), abs=1e-12)


# Mistakes


def broken_at(k, value):
    def function(batch):
        found = by_land(batch)
        found[k] = value
        return found

    return function


BAD = {
    "ragged": (lambda b: [[1.0, 0, 0], [1.0]] * (len(b) // 2), "returned list, where numbers are needed"),
    "shape": (lambda b: np.ones((2, 3)), r"returned an array of shape \(2, 3\) for \d+ events and 3 actions"),
    "one column": (lambda b: np.ones(len(b)), r"returned an array of shape \(\d+,\) for \d+ events and 3 actions"),
    "NaN": (broken_at(5, np.nan), "gives NaN among its probabilities at row 5"),
    "sum": (broken_at(7, [0.5, 0.4, 0]), "gives probabilities that sum to 0.9, not 1, at row 7"),
    "negative": (broken_at(3, [-0.5, 1, 0.5]), "gives a probability of -0.5 at row 3"),
    "text": (lambda b: pa.table({"a": b["land"], "b": b["land"]}), "returned string, string, where numbers are needed"),
    "label": (
        lambda b: ["mail"] * 4 + ["post"] * (len(b) - 4),
        r"takes action 'post' at row 4, which is not among the 3",
    ),
    "number": (lambda b: np.zeros(len(b), int), r"takes action 0 at row 0, which is not among the 3 actions 'banner'"),
    "null": (lambda b: ["mail", None] + ["mail"] * (len(b) - 2), "takes no action at row 1: the label .* is null"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_probabilities_are_named(table, case):
    function, message = BAD[case]
    with pytest.raises(drs.PolicyError, match=f"policy 'new' {message}"):
        drs.evaluate(table, {"new": drs.policies.from_arrow(function, columns=["land"])}, threads=1)


def test_bad_predictions_are_named(table):
    model = drs.models.from_arrow(broken_at(6, np.inf), columns=["land"])
    with pytest.raises(drs.ModelError, match="the reward model predicts inf for action 0 at row 6"):
        drs.evaluate(table, POLICY, model, threads=1)
    labels = drs.models.from_arrow(CHOICES["text"], columns=["land"])
    with pytest.raises(drs.ModelError, match=r"the reward model returned an array of shape \(\d+,\)"):
        drs.evaluate(table, POLICY, labels)


def test_a_function_that_raises_says_where(table):
    def raises(batch):
        raise KeyError("lnd")

    broken = drs.models.from_arrow(raises, "land")
    for users in ({"policies": drs.policies.from_arrow(raises, "land")}, {"policies": POLICY, "model": broken}):
        with pytest.raises(KeyError) as caught:
            drs.evaluate(table, **users)
        assert "events from row 0 on" in caught.value.__notes__[0]


@pytest.mark.parametrize("module", [drs.policies, drs.models])
def test_mistakes_in_the_columns(table, module):
    wrong = module.from_arrow(by_land, columns=["lnad"])
    given = {"policies": wrong} if module is drs.policies else {"policies": POLICY, "model": wrong}
    with pytest.raises(drs.DrstreamError, match=r"reads a column 'lnad', and the log has none: did you mean 'land'\?"):
        drs.evaluate(table, **given)
    for columns in ([], ["land", "land"], 3, [3]):
        with pytest.raises(drs.DrstreamError, match="name one or more different columns"):
            module.from_arrow(by_land, columns=columns)
    with pytest.raises(drs.DrstreamError, match="'land' is not a function"):
        module.from_arrow("land", columns=["land"])


def test_they_are_functions_of_columns_not_of_x():
    with pytest.raises(drs.PolicyError, match="not of X"):
        POLICY.probabilities(np.zeros((1, 1)))
    with pytest.raises(drs.ModelError, match="not of X"):
        MODEL.predict(np.zeros((1, 1)))


def frame_with(*names):
    def probabilities(batch):
        rows = batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        return pd.DataFrame(dict(zip(names, np.tile([[0.7], [0.2], [0.1]], (1, rows)), strict=True)))

    return probabilities


def test_names_of_a_frame_are_labels_or_have_nothing_to_do_with_them():
    rng = np.random.default_rng(0)
    table = pa.table({"age": rng.random(200), "action": rng.choice([17, 42, 99], 200), "reward": rng.random(200)})
    log = drs.Log(table, context=["age"], propensity="uniform")

    def ips(*names):
        return drs.evaluate(log, drs.policies.from_arrow(frame_with(*names), ["age"]), estimators="ips")["ips"].value

    assert ips(99, 42, 17) == ips("99", "42", "17") != ips(17, 42, 99) == ips(0, 1, 2) == ips("a", "b", "c")
    with pytest.raises(drs.PolicyError, match=r"returned columns 99, 42, 18, some of which are labels.*18 is not"):
        ips(99, 42, 18)
    with pytest.raises(drs.PolicyError, match=r"returned a frame with the columns 99, 42, 17.*log\.labels"):
        drs.evaluate(log, frame_with(99, 42, 17), estimators="ips")
    assert drs.evaluate(log, frame_with(0, 1, 2), estimators="ips")["policy", "ips"].value == ips(0, 1, 2)


def test_nobody_reads_the_reward(table):
    for make, name in ((drs.policies.from_arrow, "policies"), (drs.models.from_arrow, "model")):
        made = make(lambda batch: np.full((len(batch), 3), 1 / 3), columns=["age", "reward"])
        with pytest.raises(drs.DrstreamError, match="reads the reward, 'reward'"):
            drs.evaluate(table, **{"policies": POLICY, name: made})
