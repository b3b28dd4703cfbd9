"""Integer actions are labels like strings: the distinct values, whatever they are, unless something says 0..K-1."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import drstream as drs
from drstream.log import labels as action_labels
from drstream.log.labels import Labels, encode
from tests.helpers.cut import cut_log

ids = st.one_of(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=30),
    st.lists(st.integers(-(2**63), -1), min_size=1, max_size=30),
    st.lists(st.integers(2**63, 2**64 - 1), min_size=1, max_size=30),
)


def table(action, rows=None, **more):
    action = pa.array(action) if not isinstance(action, pa.Array | pa.ChunkedArray) else action
    n = len(action)
    columns = {"reward": np.arange(n) % 3 / 2, "propensity": np.full(n, 0.5), "x0": np.arange(n) % 7 / 7.0}
    return pa.table({"action": action, **columns, **more})


def ips(log, policy, **options):
    return drs.evaluate(log, policy, estimators="ips", **options)["policy", "ips"].value


@settings(deadline=None, max_examples=60)
@given(ids, st.integers(1, 40), st.booleans())
def test_labels_are_the_distinct_values(tmp_path_factory, values, cut, parquet):
    kind = pa.uint64() if max(values) >= 2**63 else pa.int64()
    source = table(pa.array(values, kind))
    if parquet:
        path = tmp_path_factory.mktemp("ids") / "log.parquet"
        pq.write_table(source, path, row_group_size=cut)
        source = path
    log = cut_log(source, batch_size=cut)
    wanted = sorted(set(values))
    assert list(log.labels) == wanted
    index = encode(pa.array(values, kind), log.labels)
    assert [wanted[i] for i in index] == values
    assert log.labels.index(values[0]) == wanted.index(values[0])
    assert values[0] in log.labels


@settings(deadline=None)
@given(ids, ids)
def test_unknown_values_are_no_label(known, asked):
    kind = pa.uint64() if max(asked) >= 2**63 else pa.int64()
    labels = Labels(sorted(set(known)))
    wanted = [labels.index(value) if value in set(known) else -1 for value in asked]
    assert encode(pa.array(asked, kind), labels).tolist() == wanted


def test_labels_of_a_large_table_are_found_by_the_kernel(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**62, 5_000)[rng.integers(0, 5_000, 80_000)]
    wanted = sorted(set(values.tolist()))
    pq.write_table(table(values), tmp_path / "log.parquet", row_group_size=40_000)
    for source in (table(values), tmp_path / "log.parquet", table(pa.array(values).dictionary_encode())):
        assert list(drs.Log(source).labels) == wanted


def test_row_groups_that_can_hold_nothing_new_are_not_read(tmp_path, monkeypatch):
    from drstream.sources.parquet import RowGroup

    path = tmp_path / "log.parquet"
    pq.write_table(table(np.concatenate([np.arange(100) % 5, np.arange(100) % 4, [7] * 100])), path, row_group_size=100)
    read, batches = [], RowGroup.batches
    monkeypatch.setattr(RowGroup, "batches", lambda part, rows=None: read.append(part.index) or batches(part, rows))
    assert drs.Log(path).labels == [0, 1, 2, 3, 4, 7]
    assert read == [0, 2]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.uint8(), pa.int32(), pa.uint32(), pa.uint64()])
def test_all_types_of_integers(kind):
    log = drs.Log(table(pa.array([3, 1, 2, 1], kind)))
    assert log.labels == [1, 2, 3]
    assert ips(log, drs.policies.Constant(1)) == pytest.approx(np.mean(np.array([0, 0.5, 0, 0]) / 0.5))


def test_booleans_and_dictionaries_of_integers():
    assert list(drs.Log(table([True, False])).labels) == [0, 1]
    assert list(drs.Log(table(pa.array([9, 4, 9]).dictionary_encode())).labels) == [4, 9]


def test_ids_from_1_have_no_phantom():
    """Uniform over {1, 2, 3} is 1/3, not 1/4."""
    log = drs.Log(table([1, 2, 3, 1, 2, 3]))
    reward = log.source.table["reward"].to_numpy()
    assert ips(log, drs.policies.Uniform()) == pytest.approx(np.mean(1 / 3 / 0.5 * reward), rel=1e-12)
    assert drs.evaluate(log, drs.policies.Uniform()).labels == [1, 2, 3]
    assert "3 actions 1, 2, 3" in repr(log)


def test_shifted_ids_change_no_result(tmp_path):
    """{0, 1, 2} and {10, 20, 35} give the same bits everywhere, by name."""
    rng = np.random.default_rng(1)
    a = rng.integers(0, 3, 900)
    other = np.array([10, 20, 35])
    logs = [drs.Log(table(a)), drs.Log(table(other[a]))]
    weights = rng.standard_normal((3, 1))
    for run in (
        lambda log: drs.evaluate(log, drs.policies.Softmax(weights), drs.models.Ridge(), crossfit=2),
        lambda log: drs.evaluate(log, lambda X: np.full((len(X), 3), 1 / 3)),
    ):
        first, second = (run(log) for log in logs)
        assert first.to_arrow()["value"].equals(second.to_arrow()["value"])
        assert (first.labels, second.labels) == ([0, 1, 2], [10, 20, 35])
    runs = [drs.replay(log, drs.policies.EpsilonGreedy(), 20, q=0.1) for log in logs]
    assert runs[0].value == runs[1].value
    assert runs[1].labels == [10, 20, 35]
    learned = [drs.optimize.DirectLossMinimizer(restarts=1, epochs=2).fit(log) for log in logs]
    np.testing.assert_array_equal(learned[0].coef_, learned[1].coef_)
    assert list(learned[1].labels_) == [10, 20, 35]
    audits = [log.audit() for log in logs]
    assert audits[1].actions["action"].to_pylist() == [10, 20, 35]
    assert audits[0].actions["count"].equals(audits[1].actions["count"])
    forecasts = [drs.plan(log, drs.policies.Constant(log.labels[1])) for log in logs]
    assert forecasts[0].to_arrow()["width"].equals(forecasts[1].to_arrow()["width"])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_same_bits_for_any_threads_and_batches(tmp_path, threads, batch_size):
    rng = np.random.default_rng(2)
    values = np.array([5, 2**40, 77, -3, -9])[rng.integers(0, 5, 3_000)]
    path = tmp_path / "log.parquet"
    pq.write_table(table(values, target=np.roll(values, 1)), path, row_group_size=500)
    policies = {"uniform": drs.policies.Uniform(), "column": drs.policies.Column("target")}
    found = drs.evaluate(cut_log(path, batch_size=batch_size), policies, threads=threads).to_arrow()
    assert found.equals(drs.evaluate(drs.Log(path), policies, threads=1).to_arrow())


# What weights, functions and fitted models say about the actions


@pytest.mark.parametrize(
    ("logged", "rows", "labels"),
    [
        ([1, 2, 3], 3, [1, 2, 3]),  # as many rows as ids: in their order
        ([1, 2, 3], 4, [0, 1, 2, 3]),  # more rows, and all ids are row numbers
        ([0, 2], 2, [0, 2]),
        ([0, 2], 3, [0, 1, 2]),
        ([0, 1], 3, [0, 1, 2]),
        ([10, 20], 2, [10, 20]),
    ],
)
def test_rows_of_weights(logged, rows, labels):
    log = drs.Log(table(np.resize(logged, 12)))
    for policy in (drs.policies.Softmax(np.zeros((rows, 1))), drs.policies.Uniform(rows)):
        assert drs.evaluate(log, policy, estimators="ips").labels == labels
        assert drs.replay(log, policy, 2, q=0.5).labels == labels
    model = drs.models.Constant(np.zeros(rows))
    assert drs.evaluate(log, drs.policies.Uniform(), model).labels == labels


@pytest.mark.parametrize(("logged", "rows"), [([1, 2, 4], 4), ([0, 1, 2], 2), ([10, 20], 3), ([-5, -4, -1], 4)])
def test_rows_of_weights_that_do_not_fit(logged, rows):
    log = drs.Log(table(np.resize(logged, 12)))
    with pytest.raises(drs.PolicyError, match=rf"{rows} actions.*has 3|{rows}, 1.*so they must be|the log has 2 act"):
        drs.evaluate(log, drs.policies.Softmax(np.zeros((rows, 1))))
    with pytest.raises(drs.PolicyError, match=r"pass all labels with actions="):
        drs.evaluate(log, drs.policies.Uniform(rows))


def test_given_actions_stay():
    log = drs.Log(table([1, 2, 1, 2]), actions=[2, 1])
    assert ips(log, lambda X: np.tile([1.0, 0.0], (len(X), 1))) == ips(log, drs.policies.Constant(2))
    with pytest.raises(drs.PolicyError, match="has 4 actions, the log has 2 actions 2, 1"):
        drs.evaluate(log, drs.policies.Uniform(4))


class Learner:
    """An online policy of the user's, for four actions."""

    version = 0

    def reset(self):
        pass

    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)

    def update(self, x, action, reward):
        assert action in (0, 1, 3)


def test_functions_with_a_column_for_an_action_that_was_never_logged():
    """Ids {0, 1, 3} and four columns: an error says how to open the log."""
    data = table(np.resize([0, 1, 3], 30), pi=[[0.25] * 4] * 30, rhat=[[0.5] * 4] * 30)
    log, told = drs.Log(data), drs.Log(data, actions=4)
    uniform = ips(told, drs.policies.Uniform())
    for policy in (lambda X: np.full((len(X), 4), 0.25), drs.policies.Column("pi")):
        for run in (drs.evaluate, drs.plan, lambda *given: drs.replay(*given, 3, q=0.5)):
            with pytest.raises(drs.PolicyError, match="never logged, open the log with actions=4"):
                run(log, policy)
        assert ips(told, policy) == uniform
        assert drs.replay(told, policy, 3, q=0.5).labels == [0, 1, 2, 3]
    for model in (drs.models.Column("rhat"), drs.models.from_function(lambda X: np.zeros((len(X), 4)))):
        with pytest.raises(drs.ModelError, match="never logged, open the log with actions=4"):
            drs.evaluate(log, drs.policies.Uniform(), model)
        assert drs.evaluate(told, drs.policies.Uniform(), model).labels == [0, 1, 2, 3]


@pytest.mark.parametrize("logged", [[0, 1, 2], [1, 2, 4], [10, 20, 30]])
def test_functions_with_a_column_too_many(logged):
    log = drs.Log(table(np.resize(logged, 30)))
    with pytest.raises(drs.PolicyError, match=r"returned an array of shape \(30, 4\) for 30 events and 3 actions.*act"):
        drs.evaluate(log, lambda X: np.full((len(X), 4), 0.25))
    lists = log.source.table.append_column("pi", pa.array([[0.25] * 4] * 30))
    with pytest.raises(drs.PolicyError, match=r"holds 4 probabilities at row 0; there are 3 actions"):
        drs.evaluate(drs.Log(lists), drs.policies.Column("pi"))


def test_columns_of_propensities_say_how_many_actions_there_are():
    mu = {f"p{a}": np.full(30, 0.25) for a in range(4)}
    columns = table(np.resize([0, 1, 3], 30), **mu).drop_columns(["propensity"])
    columns = columns.append_column("propensity", pa.array([0.25] * 30))
    assert list(drs.Log(columns, propensities=list(mu)).labels) == [0, 1, 2, 3]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.full(120, 0.25)), 4)
    assert list(drs.Log(columns.append_column("mu", lists), propensities="mu").labels) == [0, 1, 2, 3]


def test_what_was_fitted_brings_its_labels(tmp_path):
    """A later log may lack an action; the model's labels count, and are checked."""
    log = drs.Log(table(np.resize([4, 6, 9], 60)))
    model = drs.models.Ridge().fit(log)
    model.save(tmp_path / "model.npz")
    assert json.loads(np.load(tmp_path / "model.npz")["about"].tobytes())["labels"] == [4, 6, 9]
    loaded = drs.models.load(tmp_path / "model.npz")
    assert drs.evaluate(drs.Log(table([4, 9] * 10)), drs.policies.Uniform(), loaded).labels == [4, 6, 9]
    for other, message in (
        ([4, 6, 8], "fitted on 3 actions 4, 6, 9; the log has 3 actions 4, 6, 8"),
        ([4, 6, 9, 11], "knows 3 actions, the log and the policies have 4 actions 4, 6, 9, 11"),
        ([4, 5], "knows 3 actions, the log and the policies have 2 actions 4, 5"),
    ):
        with pytest.raises(drs.ModelError, match=message):
            drs.evaluate(drs.Log(table(np.resize(other, 12))), drs.policies.Uniform(), loaded)
    learned = drs.optimize.DirectLossMinimizer(restarts=1, epochs=2).fit(log)
    assert drs.evaluate(drs.Log(table([4, 9] * 10)), drs.policies.Epsilon(learned, 0.1)).labels == [4, 6, 9]


def test_classes_of_a_classifier_are_labels():
    log = drs.Log(table(np.resize([4, 9], 60)))
    classifier = LogisticRegression().fit(np.arange(6.0)[:, None], [4, 6, 9] * 2)
    assert drs.evaluate(log, drs.policies.from_sklearn(classifier)).labels == [4, 6, 9]


def test_constants_and_targets_are_labels():
    log = drs.Log(table([7, 9, 9, 7], target=[9, 9, 7, 7]))
    reward = log.source.table["reward"].to_numpy()
    assert ips(log, drs.policies.Constant(9)) == np.mean(np.array([0, 1, 1, 0]) / 0.5 * reward)
    assert ips(log, drs.policies.Column("target")) == np.mean(np.array([0, 1, 0, 1]) / 0.5 * reward)
    with pytest.raises(drs.PolicyError, match=r"takes action 0, which is not among the 2 actions 7, 9.*actions="):
        drs.evaluate(log, drs.policies.Constant(0))
    strange = log.source.table.append_column("other", pa.array([9, 9, 8, 7]))
    with pytest.raises(drs.PolicyError, match=r"holds 8 at row 2, which is not among the 2 actions 7, 9.*actions="):
        drs.evaluate(drs.Log(strange), drs.policies.Column("other"))
    text = log.source.table.append_column("text", pa.array(["9", "9", "7", "7"]))
    with pytest.raises(drs.PolicyError, match="holds '9' at row 0, which is not among the 2 actions 7, 9"):
        drs.evaluate(drs.Log(text), drs.policies.Column("text"))


# A lone negative number is rather no action


def test_one_negative_number_is_asked_about():
    with pytest.raises(drs.LogError, match=r"runs from -1 to 9: does -1 mean that there was no action\?.*actions="):
        drs.Log(table([-1, 3, 9])).labels  # noqa: B018
    assert drs.Log(table([-1, 3, 9]), actions=[-1, 3, 9]).labels == [-1, 3, 9]
    assert drs.Log(table([-7, -1, 3])).labels == [-7, -1, 3]
    result = drs.evaluate(drs.Log(table([-1, 3, 9]), on_bad_row="skip"), drs.policies.Uniform())
    assert (result.labels, result.skipped) == ([3, 9], {"action is not among the labels": 1})


# Many actions


def test_k_beyond_two_to_the_16(monkeypatch):
    """65,537 actions, evaluated, audited and described; a replay has chunks of a few events."""
    K = 65_537
    rng = np.random.default_rng(0)
    values = np.concatenate([np.arange(K), rng.integers(0, K, 3_000)]) * 3 + 1
    target = np.where(np.arange(len(values)) % 5 == 0, values, values[rng.permutation(len(values))])
    log = drs.Log(table(values, target=target))
    assert log.n_actions == K
    hits = (log.source.table["target"].to_numpy() == values) / 0.5 * log.source.table["reward"].to_numpy()
    policies = {"target": drs.policies.Column("target"), "uniform": drs.policies.Uniform()}
    result = drs.evaluate(log, policies, estimators=["ips", "snips"])
    assert result["target", "ips"].value == pytest.approx(hits.mean())
    assert log.audit().actions.num_rows == K
    assert log.describe()["counts"][:2] == np.bincount((values - 1) // 3)[:2].tolist()
    few = drs.Log(log.source.table.slice(0, 300), actions=log.labels)
    with pytest.raises(drs.NotEnoughEventsError, match="300 events simulated 0 steps"):
        drs.replay(few, {"u": drs.policies.Uniform()}, 2, drs.models.Constant(0.0), q=0.5, threads=1)


def test_memory_that_is_not_there_is_an_error(monkeypatch):
    from drstream.running import execution

    log = drs.Log(table(np.arange(100)))
    monkeypatch.setattr(execution, "physical_memory", lambda: 1e3)
    with pytest.raises(
        drs.DrstreamError, match=r"100 actions need about .* MB for each event.* need about .* GB in all"
    ):
        drs.replay(log, drs.policies.Uniform(), 2, drs.models.Constant(0.0), q=0.5)
    with pytest.raises(drs.DrstreamError, match=r"100 actions and 1 features need about .* GB in all"):
        drs.models.Ridge().fit(log)
    with pytest.raises(drs.DrstreamError, match=r"100 actions and 1 features need about .* GB in all"):
        drs.models.Logistic().fit(log)


def test_more_values_than_actions_can_be(monkeypatch):
    monkeypatch.setattr(action_labels, "MOST", 50)
    assert drs.Log(table(np.arange(50))).n_actions == 50
    for values in (np.arange(51), [str(i) for i in range(51)]):
        with pytest.raises(drs.LogError, match="holds over 50 different values: is it an identifier"):
            drs.Log(table(values)).labels  # noqa: B018


# Logs without actions


def test_a_log_without_actions(tmp_path):
    columns = table([0, 1, 0, 1], new=[0.1, 0.9, 0.4, 0.5])
    ref = ips(drs.Log(columns), drs.policies.Column("new"))
    log = drs.Log(columns.drop_columns(["action"]), action=None)
    assert ips(log, drs.policies.Column("new")) == ref
    assert drs.evaluate(log, drs.policies.Column("new")).labels == []
    assert "action      none" in repr(log)
    assert log.to_arrow().equals(columns.drop_columns(["action"]))
    assert log.describe().actions is None
    drs.convert(log, tmp_path / "copy.parquet")
    assert ips(drs.Log(tmp_path / "copy.parquet", action=None), drs.policies.Column("new")) == ref
    for asks in (
        lambda: drs.evaluate(log, drs.policies.Uniform()),
        lambda: drs.evaluate(log, drs.policies.Column("new"), drs.models.Constant(0.0)),
        lambda: drs.replay(log, drs.policies.EpsilonGreedy(), 2),
        lambda: drs.models.Ridge().fit(log),
        lambda: drs.optimize.DirectLossMinimizer().fit(log),
        lambda: log.audit(),
        lambda: drs.plan(log, drs.policies.Uniform()),
        lambda: log.labels,
    ):
        with pytest.raises(drs.LogError, match=r"opened with action=None, and this needs the actions.*action="):
            asks()
    with pytest.raises(drs.LogError, match="Without one, open the log with action=None"):
        drs.Log(columns.drop_columns(["action"]))
