"""What bad input gets: a message with place, value and remedy. The command line's side of it is in tests/cli."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.logs import world

pytestmark = pytest.mark.covers

GOOD = {
    "action": [0, 1, 0, 1],
    "reward": [1.0, 0.0, 1.0, 0.0],
    "propensity": [0.5, 0.5, 0.5, 0.5],
    "x0": [1.0, 2.0, 3.0, 4.0],
}


def table(**changes):
    return pa.table({**GOOD, **changes})


def evaluate(source, policy=None, **options):
    given = {
        k: options.pop(k) for k in ("context", "action", "reward", "propensity", "actions", "filter") if k in options
    }
    return drs.evaluate(drs.Log(source, **given), policy or (lambda X: np.full((len(X), 2), 0.5)), **options)


def test_missing_and_misnamed_columns():
    with pytest.raises(drs.LogError, match=r"no column 'propensty' for the propensity: did you mean 'propensity'\?"):
        evaluate(table(), propensity="propensty")
    with pytest.raises(
        drs.LogError, match=r"no column 'x7' for the context: there are: action, reward, propensity, x0"
    ):
        evaluate(table(), context=["x7"])
    with pytest.raises(drs.LogError, match=r"no column matches 'feature\*'"):
        evaluate(table(), context="feature*")
    with pytest.raises(drs.LogError, match=r"usual name for the propensity \(propensity, pscore"):
        evaluate(table().drop_columns(["propensity"]))
    with pytest.raises(drs.LogError, match=r"2 columns named 'x0'"):
        evaluate(table().append_column("x0", [[1.0] * 4]), context="x0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": [0.5, 1.0, 0.0, 1.0]}, r"action column 'action' has type double: it must hold integers"),
        ({"reward": ["a", "b", "c", "d"]}, r"reward column 'reward' has type string: it must hold numbers"),
        ({"propensity": ["a", "b", "c", "d"]}, r"propensity column 'propensity' has type string"),
        ({"x0": pa.array([0] * 4, pa.timestamp("s"))}, r"context column 'x0' has type timestamp"),
        ({"action": [-1, 0, 1, 1]}, r"runs from -1 to 1.*actions=\["),
    ],
)
def test_wrong_types(change, message):
    with pytest.raises(drs.LogError, match=message):
        evaluate(table(**change), context="x0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": [1.0, None, 0.0, 0.0]}, r"reward is null at row 1, column 'reward'"),
        ({"reward": [1.0, 0.0, np.nan, 0.0]}, r"reward is not finite: got nan at row 2"),
        ({"reward": [1.0, 0.0, 0.0, -np.inf]}, r"reward is not finite: got -inf at row 3"),
        ({"propensity": [0.5, 0.0, 0.5, 0.5]}, r"propensity is not in \(0, 1\]: got 0.0 at row 1"),
        ({"propensity": [0.5, -0.25, 0.5, 0.5]}, r"got -0.25 at row 1"),
        ({"propensity": [0.5, 0.5, 0.5, 1.5]}, r"got 1.5 at row 3"),
        ({"propensity": [np.nan, 0.5, 0.5, 0.5]}, r"got nan at row 0"),
        ({"propensity": [None, 0.5, 0.5, 0.5]}, r"propensity is null at row 0"),
        ({"action": [0, None, 1, 1]}, r"action is null at row 1"),
        ({"x0": [1.0, None, 1.0, 1.0]}, r"context is null at row 1, column 'x0'"),
        ({"x0": [1.0, 2.0, np.inf, 1.0]}, r"context is not finite: got inf at row 2, column 'x0'"),
    ],
)
def test_bad_rows_name_place_value_and_remedy(change, message, tmp_path):
    with pytest.raises(drs.LogError, match=message + r'.*on_bad_row="skip"'):
        evaluate(table(**change), context="x0")
    path = tmp_path / "log.parquet"
    pq.write_table(table(**change), path, row_group_size=2)
    with pytest.raises(drs.LogError, match=r"\(row \d of row group \d of .*log.parquet\)"):
        evaluate(path, context="x0")


def test_row_numbers_are_those_of_the_file(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(table(propensity=[0.5, 0.5, 0.5, 2.0]), path, row_group_size=3)
    log = drs.Log(path, filter=pc.field("x0") > 1.5)
    with pytest.raises(drs.LogError, match=r"got 2.0 at row 3 \(row 0 of row group 1 of "):
        drs.evaluate(log, drs.policies.Uniform())


def test_actions_outside_the_labels():
    with pytest.raises(drs.LogError, match=r"action is not among the labels: got 1 at row 1, .*pass all labels"):
        evaluate(table(), lambda X: np.ones((len(X), 1)), actions=1)
    with pytest.raises(drs.LogError, match=r"action is not among the labels: got 'c' at row 2"):
        evaluate(table(action=["a", "b", "c", "a"]), actions=["a", "b"])
    with pytest.raises(drs.LogError, match=r"action is not among the labels: got 4294967296"):
        evaluate(table(action=[0, 2**32, 0, 0]), actions=2)
    with pytest.raises(drs.LogError, match=r"'a' more than once"):
        evaluate(table(action=["a"] * 4), actions=["a", "a"])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda X: np.full((len(X), 2), 0.6), r"policy 'bad' gives probabilities that sum to 1.2, not 1, at row 0"),
        (lambda X: np.full((len(X), 2), np.nan), r"policy 'bad' gives NaN among its probabilities at row 0"),
        (lambda X: np.tile([1.5, -0.5], (len(X), 1)), r"policy 'bad' gives a probability of -0.5 at row 0"),
        (lambda X: np.ones(len(X)), r"policy 'bad' returned an array of shape \(4,\).*must be \(4, 2\)"),
        (lambda X: np.ones((2, len(X))), r"policy 'bad' returned an array of shape \(2, 4\)"),
        (lambda X: np.ones((len(X), 3)) / 3, r"policy 'bad' returned an array of shape \(4, 3\)"),
        (lambda X: [["a", "b"]] * len(X), r"policy 'bad' returned <U1, where numbers are needed"),
        (drs.policies.Linear(np.zeros((2, 5))), r"policy 'bad' has weights of shape \(2, 5\).*must be \(2, 1\)"),
        (drs.policies.Constant(7), r"policy 'bad' takes action 7, which is not among the 2 actions 0, 1"),
        (drs.policies.Uniform, r"policy 'bad' is a class: pass an instance, Uniform\(...\)"),
        (42, r"policy 'bad' is a int: a policy is an object with probabilities"),
        (drs.policies.Column("x9"), r"no column 'x9' for the policy"),
        (drs.policies.Column("x0"), r"policy 'bad': column 'x0' holds the probability 2.0 at row 1"),
    ],
)
def test_bad_policies_are_named(policy, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(drs.Log(table(), context="x0"), {"bad": policy}, estimators="ips")


def test_policy_that_raises_says_where():
    def broken(X):
        raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError) as caught:
        drs.evaluate(table(), {"mine": broken})
    assert caught.value.__notes__ == ["raised by policy 'mine' for 4 events from row 0 on"]


def test_policy_cannot_change_the_contexts():
    def greedy(X):
        X[:] = 0
        return np.full((len(X), 2), 0.5)

    for source in (table(), pa.table({**GOOD, "x": pa.array([[1.0]] * 4, pa.list_(pa.float64(), 1))})):
        with pytest.raises(ValueError, match="read-only"):
            drs.evaluate(source, greedy)


def test_empty_logs(tmp_path):
    empty = table().slice(0, 0)
    pq.write_table(empty, tmp_path / "empty.parquet")
    for source in (empty, tmp_path / "empty.parquet", empty.to_reader()):
        with pytest.raises(drs.LogError, match="the log is empty"):
            drs.evaluate(source, drs.policies.Uniform(), estimators="ips")
        with pytest.raises(drs.LogError, match="the log is empty"):
            evaluate(empty, actions=2)
    with pytest.raises(drs.LogError, match="the log is empty"):
        drs.evaluate(drs.Log(table(), filter=pc.field("x0") > 99), drs.policies.Uniform())
    bad = table(propensity=[0.0] * 4)
    with pytest.raises(drs.LogError, match="the log is empty, or no row of it can be used"):
        drs.evaluate(bad, drs.policies.Uniform(), on_bad_row="skip")
    with pytest.raises(drs.LogError, match="after 4 rows were skipped"):
        drs.evaluate(drs.Log(bad, actions=2), drs.policies.Uniform(), on_bad_row="skip")
    with pytest.raises(drs.LogError, match="no event to fit"):
        drs.models.Ridge().fit(drs.Log(empty, actions=2))


def test_files(tmp_path):
    with pytest.raises(drs.LogError, match=r"no such file or directory: .*clicks.parquet") as caught:
        drs.Log(tmp_path / "clicks.parquet")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(drs.LogError, match="no file matches"):
        drs.Log(f"{tmp_path}/*.parquet")
    with pytest.raises(drs.LogError, match="no Parquet or Arrow file in"):
        drs.Log(tmp_path)
    good = tmp_path / "good.parquet"
    pq.write_table(table(), good)
    with pytest.raises(drs.LogError, match=r"no such file.*did you mean 'good.parquet'"):
        drs.Log(tmp_path / "god.parquet")
    (tmp_path / "text.parquet").write_text("action,reward\n1,2\n" * 100)
    with pytest.raises(drs.LogError, match=r"cannot read .*text.parquet.* as Parquet"):
        drs.Log(tmp_path / "text.parquet")
    (tmp_path / "cut.parquet").write_bytes(good.read_bytes()[:-20])
    with pytest.raises(drs.LogError, match=r"cannot read .*cut.parquet.* complete\?"):
        evaluate(tmp_path / "cut.parquet")
    with pytest.raises(drs.LogError, match=r"cannot read .*cut.parquet"):
        evaluate([good, tmp_path / "cut.parquet"])
    (tmp_path / "nothing.parquet").write_bytes(b"")
    with pytest.raises(drs.LogError, match=r"cannot read .*nothing.parquet"):
        evaluate(tmp_path / "nothing.parquet")


def test_file_damaged_in_the_middle(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(world().table(5000), path, compression="zstd", row_group_size=1000)
    data = bytearray(path.read_bytes())
    start = len(data) // 2
    data[start : start + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(drs.LogError, match=r"cannot read row group \d of .*log.parquet"):
        drs.evaluate(path, drs.policies.Softmax(world().taste))


def test_truncated_ipc(tmp_path):
    path = tmp_path / "log.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(drs.LogError, match=r"cannot read .*log.arrow as Arrow IPC"):
        drs.Log(path)


def test_files_of_different_schemas(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    pq.write_table(table(reward=[1, 0, 1, 0]), tmp_path / "b.parquet")
    with pytest.raises(
        drs.LogError, match=r"files differ: column 'reward' is double in .*a.parquet, but int64 in .*b.parquet"
    ):
        evaluate(tmp_path)
    pq.write_table(table().drop_columns(["propensity"]), tmp_path / "b.parquet")
    with pytest.raises(drs.LogError, match=r"files differ: column 'propensity' .* but missing in"):
        evaluate(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": ["drr"]}, r"no estimator 'drr': did you mean 'dr'"),
        ({"estimators": []}, r"estimators= is empty"),
        ({"estimators": ["dr"]}, r"estimator 'dr' needs a reward model: pass model="),
        (
            {"estimators": ["ips-capped"]},
            r"needs a limit: pass floor= \(the smallest propensity\) or cap= \(the largest weight\)",
        ),
        ({"cap": -1}, r"cap=-1"),
        ({"floor": 2}, r"floor=2"),
        ({"confidence": 95}, r"confidence=95: it must lie between 0 and 1"),
        ({"threads": 0}, r"threads=0"),
        ({"progress": "yes"}, r"progress='yes'"),
        ({"on_bad_row": "drop"}, r"on_bad_row='drop'"),
        ({"model": 3, "estimators": "dr"}, r"model=3 is not a reward model"),
        ({"model": drs.models.Ridge(), "estimators": "dr"}, r"not fitted: call .fit\(log\)"),
        ({"model": drs.models.Constant([1, 2, 3]), "estimators": "dr", "actions": 2}, r"knows 3 actions.*have 2"),
        ({"model": drs.models.Column("x0"), "estimators": "dr"}, r"2 actions need lists, or as many columns"),
        (
            {"model": drs.models.from_function(lambda X: X[:, :1] * [np.nan, 1]), "estimators": "dr"},
            r"predicts nan for action 0 at row 0",
        ),
        (
            {"model": drs.models.from_function(lambda X: X), "estimators": "dr"},
            r"the reward model returned an array of shape",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(drs.DrstreamError, match=message):
        evaluate(table(), context="x0", **options)


def test_log_options():
    with pytest.raises(drs.LogError, match="on_bad_row='drop'"):
        drs.Log(table(), on_bad_row="drop")
    with pytest.raises(drs.LogError, match=r"split\(2\)"):
        drs.Log(table()).split(2)
    with pytest.raises(drs.LogError, match="cannot read a log from int"):
        drs.Log(3)
    with pytest.raises(drs.LogError, match="does not fit the log"):
        drs.Log(table(), filter=pc.field("nope") > 1)
    with pytest.raises(drs.LogError, match="actions=0"):
        drs.Log(table(), actions=0)


def test_result_with_a_wrong_name():
    result = evaluate(table(), estimators="ips")
    with pytest.raises(KeyError, match="did you mean 'policy'"):
        result["polcy", "ips"]
    with pytest.raises(KeyError, match="no estimator 'dr' was asked for"):
        result["policy", "dr"]
    with pytest.raises(KeyError, match="give a policy and an estimator"):
        result["a", "b", "c"]


def test_logged_probability_column_cannot_do_dr():
    log = drs.Log(table(target=[0.5] * 4))
    with pytest.raises(drs.PolicyError, match=r"logged action only.*column of lists"):
        drs.evaluate(log, drs.policies.Column("target"), model=drs.models.Constant(0.5))
