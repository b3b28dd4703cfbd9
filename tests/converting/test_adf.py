"""dsjson events with candidates, from the file to the estimate; and Vowpal Wabbit's own numbers on the same file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_candidates as naive
from tests.helpers import naive_marginal
from tests.helpers.systems import naive_index, write

BITS = 6
P, M = drs.policies, drs.models


def events(rows, seed=0, drop=False):
    """Events with 2 to 5 of 12 items, and the probabilities of all of them."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(rows):
        items = [int(item) for item in rng.choice(12, rng.integers(2, 6), replace=False)]
        p = rng.dirichlet(np.ones(len(items))) * 0.8 + 0.2 / len(items)
        p = [*p[:-1].round(6).tolist(), float(round(1 - p[:-1].round(6).sum(), 6))]
        taken, young = int(rng.choice(len(items), p=np.array(p) / sum(p))), bool(rng.random() < 0.5)
        clicked = float(rng.random() < 0.1 + 0.5 * ((items[taken] % 2 == 0) == young))
        rate = 0.25 if drop and not clicked else None
        found.append({"k": k, "items": items, "p": p, "taken": taken, "young": young, "r": clicked, "pdrop": rate})
    return found


def lines_of(found):
    lines = []
    for event in found:
        a, size = event["taken"], len(event["items"])
        order = [a, *(j for j in range(size) if j != a)]  # `a` and `p` are in the order of the ranking
        line = {
            "_label_cost": 0.0 - event["r"],
            "_label_probability": event["p"][a],
            "_label_Action": a + 1,
            "_labelIndex": a,
            "EventId": str(event["k"]),
            "a": [j + 1 for j in order],
            "c": {
                "u": {"age": "young" if event["young"] else "old"},
                "_multi": [{"i": {"id": f"item{j}", "size": j / 4}} for j in event["items"]],
            },
            "p": [event["p"][j] for j in order],
        }
        lines.append(json.dumps(line if event["pdrop"] is None else {**line, "pdrop": event["pdrop"]}))
    return lines


FOUND = events(300)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("adf") / "log.dsjson", lines_of(FOUND))


@pytest.fixture(scope="module")
def converted(path):
    drs.convert(path, path.parent / "log.parquet", bits=BITS, row_group_rows=100)
    drs.convert(path, path.parent / "log.arrow", bits=BITS)
    return path.parent / "log.parquet"


def features_of(event):
    """The rows [x, z] of an event's candidates, with hashed features."""
    x = np.zeros(2**BITS)
    x[naive_index(f"u^age={'young' if event['young'] else 'old'}", BITS)] += 1
    rows = []
    for j in event["items"]:
        z = np.zeros(2**BITS)
        z[naive_index(f"i^id=item{j}", BITS)] += 1
        z[naive_index("i^size", BITS)] += j / 4
        rows.append(np.concatenate([x, z]))
    return np.array(rows)


def test_a_file_opens_as_a_log_of_candidates(path, converted):
    shown = """
  context     sparse, 64 features: indices, values
  candidates  items, with 64 sparse features each: item_features
  action      action: the position of a candidate, from 0
  reward      reward
  propensity  propensity; of all candidates: propensities"""
    logs = [drs.read_dsjson(path, bits=BITS), drs.Log(converted), drs.Log(converted.with_suffix(".arrow"))]
    for log in logs:
        assert repr(log).partition(" rows")[2] == shown
    found = [drs.evaluate(log, P.Uniform(), M.Ridge(), crossfit=2).rows() for log in logs]
    assert found[0] == found[2]
    assert [row["value"] for row in found[0]] == pytest.approx([row["value"] for row in found[1]], rel=1e-9)


def test_values_equal_plain_python(converted):
    log = drs.Log(converted)
    rows = [features_of(event) for event in FOUND]
    weights = np.random.default_rng(1).normal(size=2 ** (BITS + 1))
    pi = naive.softmax([(one @ weights).tolist() for one in rows])
    r, p = np.array([e["r"] for e in FOUND]), np.array([e["p"][e["taken"]] for e in FOUND])
    of_logged = np.array([one[e["taken"]] for one, e in zip(pi, FOUND, strict=True)])
    result = drs.evaluate(log, P.Softmax(weights), M.Ridge(), ["ips", "dm"], crossfit=2)
    assert result["ips"].value == pytest.approx((of_logged / p * r).mean(), rel=1e-9)
    model = M.Ridge().fit(log)
    logged = np.array([one[e["taken"]] for one, e in zip(rows, FOUND, strict=True)])
    wanted = naive.ridge(logged, r)
    used = logged.any(axis=0)
    np.testing.assert_allclose(model.coef_[0][used], wanted[:-1][used], rtol=1e-4, atol=1e-6)


def test_categories_of_candidates(converted, tmp_path):
    """Lists of categories in a further column, and the propensities that the file has."""
    kinds = [[j % 3 for j in event["items"]] for event in FOUND]
    table = pq.read_table(converted).append_column("kind", pa.array(kinds))
    result = drs.evaluate(drs.Log(table), P.Uniform(), estimators=["mips", "ips"], embedding="kind")
    args = (
        [[1 / len(e["items"])] * len(e["items"]) for e in FOUND],
        [e["p"] for e in FOUND],
        [e["taken"] for e in FOUND],
    )
    value, stderr, _ = naive_marginal.estimate("mips", [e["r"] for e in FOUND], *args, kinds)
    assert result["mips"].value == pytest.approx(value, rel=1e-5)  # p sums to 1 up to six digits
    assert result["mips"].stderr == pytest.approx(stderr, rel=1e-5)


def test_the_same_events_as_actions(path, converted):
    """With actions=, or without candidates, positions are actions of all events, as long as all have as many."""
    fixed = [event for event in FOUND if len(event["items"]) == 3]
    file = write(path.parent / "three.dsjson", lines_of(fixed))
    for log in (drs.read_dsjson(file, actions=3), drs.read_dsjson(file, candidates=None)):
        assert not log.has_candidates
        assert list(log.labels) == [0, 1, 2]
        assert drs.evaluate(log, P.Uniform(), estimators="ips")["ips"].value == pytest.approx(
            drs.evaluate(drs.read_dsjson(file), P.Uniform(), estimators="ips")["ips"].value, rel=1e-12
        )
    assert not drs.Log(converted, actions=5).has_candidates
    assert not drs.Log(converted, candidates=None).has_candidates
    assert not drs.Log(converted, action="event_id", actions=None).has_candidates
    own = drs.Log(converted, candidates=drs.Candidates("items"), propensities=None)
    assert own.candidate_features == []


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"action": "action", "ids": "nope", "sparse": ["x", null, 4]}'])
def test_metadata_that_does_not_fit_is_passed_over(converted, text):
    table = pq.read_table(converted).replace_schema_metadata({b"drstream.candidates": text})
    assert not drs.Log(table, context=[]).has_candidates


def test_an_event_without_candidates_among_others(path):
    line = json.loads(lines_of(FOUND[:1])[0])
    del line["c"]["_multi"], line["a"], line["p"]
    file = write(path.parent / "mixed.dsjson", [*lines_of(FOUND[:4]), json.dumps(line)])
    with pytest.raises(drs.LogError, match=r"candidates are null at row 4 \(line 5 of"):
        drs.evaluate(drs.read_dsjson(file), P.Uniform())
    skipped = drs.evaluate(drs.read_dsjson(file, on_bad_row="skip"), P.Uniform(), estimators="ips").skipped
    assert skipped == {"candidates are null": 1}


def test_propensities_that_are_missing_stop_only_who_needs_them(path):
    line = json.loads(lines_of(FOUND[:1])[0])
    del line["a"], line["p"]
    file = write(path.parent / "lacking.dsjson", [*lines_of(FOUND[:4]), json.dumps(line)])
    assert drs.convert(file, path.parent / "lacking.parquet").rows == 5
    log = drs.Log(path.parent / "lacking.parquet")
    kinds = pa.array([[0] * size for size in pq.read_table(log.source.name)["items"].to_pandas().map(len)])
    with_kinds = drs.Log(pq.read_table(path.parent / "lacking.parquet").append_column("kind", kinds))
    assert drs.evaluate(log, P.Uniform(), estimators="ips").n == 5
    with pytest.raises(drs.LogError, match=r"propensities are null at row 4, column 'propensities'"):
        drs.evaluate(with_kinds, P.Uniform(), estimators="mips", embedding="kind")
    with pytest.raises(drs.LogError, match="propensities are null"):
        drs.convert(file, path.parent / "never.parquet", propensities="propensities")


# Vowpal Wabbit's own numbers


def vw(words):
    """Run Vowpal Wabbit, and return the average loss that it reports."""
    workspace = pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed").Workspace(
        f"{words} --quiet"
    )
    loss = workspace.get_sum_loss() / workspace.get_weighted_examples()
    workspace.finish()
    return loss


def predictions(path):
    return [line for line in path.read_text().splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize("drop", [False, True], ids=["all events", "down-sampled"])
def test_ips_is_the_loss_that_vowpal_wabbit_reports(tmp_path, drop):
    """cb_adf adds up cost / probability of events whose logged action is its first choice, before it learns from them.

    With -t, that is the IPS estimate of the greedy policy of its model. While it learns, it is that of the choices it
    made one event after the other. An event with pdrop counts 1 / (1 - pdrop) times.
    """
    train = write(tmp_path / "train.dsjson", lines_of(events(500, seed=1, drop=drop)))
    test = write(tmp_path / "test.dsjson", lines_of(events(400, seed=2, drop=drop)))
    learn = f"--cb_adf --cb_type ips -q ui --dsjson -d {train} -f {tmp_path}/model -p {tmp_path}/train.chosen"
    losses = {train: vw(learn), test: vw(f"-t -i {tmp_path}/model --dsjson -d {test} -p {tmp_path}/test.chosen")}
    for file, loss in losses.items():
        done = drs.convert(file, file.with_suffix(".parquet"))
        chosen = [int(line) for line in predictions(file.with_suffix(".chosen"))]  # positions from 0
        assert len(set(chosen)) > 2
        table = pq.read_table(done.path)
        table = table.append_column("chosen", pa.array(chosen))
        lists = [np.eye(size)[place].tolist() for size, place in zip(map(len, table["items"]), chosen, strict=True)]
        log = drs.Log(table.append_column("listed", pa.array(lists)))
        assert (log.roles.sample_rate == "sample_rate") == drop
        result = drs.evaluate(log, {"chosen": P.Column("chosen"), "listed": P.Column("listed")}, estimators=["ips"])
        for policy in ("chosen", "listed"):
            assert abs(result[policy, "ips"].value + loss) < 1e-6  # rewards are negated costs


@pytest.mark.slow
def test_ips_of_a_policy_that_explores(tmp_path):
    """cb_explore_adf writes probabilities of all candidates, and reports the expected loss of its choice."""
    file = write(tmp_path / "log.dsjson", lines_of(events(400, seed=3)))
    vw(f"--cb_explore_adf --epsilon 0.3 --cb_type ips -q ui --dsjson -d {file} -f {tmp_path}/model")
    loss = vw(f"-t -i {tmp_path}/model --dsjson -d {file} -p {tmp_path}/chances")
    drs.convert(file, tmp_path / "log.parquet")
    chances = []
    for line in predictions(tmp_path / "chances"):
        pairs = dict(pair.split(":") for pair in line.split(","))
        chances.append([float(pairs[str(k)]) for k in range(len(pairs))])
    table = pq.read_table(tmp_path / "log.parquet").append_column("vw", pa.array(chances))
    result = drs.evaluate(drs.Log(table), P.Column("vw"), estimators=["ips"])
    assert abs(result["ips"].value + loss) < 1e-6
