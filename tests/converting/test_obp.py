"""Open Bandit: its CSV files by one command, and the dictionaries of its pipeline."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream
from tests.helpers.places import data

USERS = [f"user_feature_{k}" for k in range(4)]


def small(rows=60, items=5, seed=0):
    """A table like those that Open Bandit publishes."""
    rng = np.random.default_rng(seed)
    columns = {
        "": np.arange(rows),
        "timestamp": [f"2019-11-24 00:00:{k % 60:02d}.762830+00:00" for k in range(rows)],
        "item_id": rng.integers(0, items - 1, rows),  # the last item is never shown
        "position": rng.integers(1, 4, rows),
        "click": rng.integers(0, 2, rows),
        "propensity_score": np.full(rows, 1 / items),
        **{name: rng.choice(["4ae385d792f81dde", "81ce123cbb5bd8ce"], rows) for name in USERS},
        **{f"user-item_affinity_{k}": rng.integers(0, 2, rows).astype(float) for k in range(items)},
    }
    return pa.table(columns)


def item_table(items=5):
    return pa.table({"": range(items), "item_id": range(items), "item_feature_0": np.arange(items) - 0.5})


def write_folder(folder, table, items=None):
    folder.mkdir(parents=True)
    pa.csv.write_csv(table, folder / "all.csv", pa.csv.WriteOptions(quoting_style="none"))
    if items is not None:
        pa.csv.write_csv(items, folder / "item_context.csv", pa.csv.WriteOptions(quoting_style="none"))
    return folder


def test_a_folder(tmp_path):
    table = small()
    log = drs.read_obp(write_folder(tmp_path / "obd" / "random" / "all", table, item_table()))
    assert (log.rows, list(log.labels), log.n_features) == (60, [0, 1, 2, 3, 4], 4 * 2 + 5)
    assert list(log.roles.context) == [*USERS, *(f"user-item_affinity_{k}" for k in range(5))]
    assert (log.roles.action, log.roles.reward, log.roles.propensity) == ("item_id", "click", "propensity_score")
    found = log.head(60)
    assert found.column_names == [*table.column_names[1:], "policy"]
    assert found["user_feature_0"].to_pylist() == table["user_feature_0"].to_pylist()
    assert set(found["policy"].to_pylist()) == {"random"}
    assert pa.types.is_timestamp(found.schema.field("timestamp").type)
    items = json.loads(log.source.schema.metadata[b"item_context"])
    assert items["item_feature_0"] == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])["ips"].value == pytest.approx(
        np.mean(table["click"].to_numpy())
    )


def test_features_of_users_are_categories(tmp_path):
    """Also if no code has a letter; and not if the caller names the context."""
    table = small()
    codes = pa.array((np.arange(60) % 3 + 10**15).astype(str))
    table = table.set_column(table.column_names.index(USERS[1]), USERS[1], codes)
    folder = write_folder(tmp_path / "log", table)
    log = drs.read_obp(folder)
    assert log.n_features == 3 * 2 + 3 + 5
    assert log.categories[USERS[1]] == [10**15 + k for k in range(3)]
    assert drs.read_obp(folder, context=[USERS[0]]).n_features == 2
    assert drs.evaluate(log, drs.policies.Uniform(), drs.models.Ridge(), "dm", crossfit=2).n == 60


def test_both_loggers(tmp_path):
    for seed, name in enumerate(("random", "bts")):
        write_folder(tmp_path / "obd" / name / "all", small(seed=seed), item_table())
    log = drs.read_obp([tmp_path / "obd" / "random" / "all", tmp_path / "obd" / "bts" / "all"])
    assert log.head(120)["policy"].to_pylist() == ["random"] * 60 + ["bts"] * 60
    assert drs.read_obp(tmp_path / "obd").rows == 120
    pa.csv.write_csv(item_table(4), tmp_path / "obd" / "bts" / "all" / "item_context.csv")
    with pytest.raises(drs.LogError, match="describe other items: read the files of one campaign"):
        drs.read_obp(tmp_path / "obd")


def test_items_elsewhere_or_nowhere(tmp_path):
    folder = write_folder(tmp_path / "log", small())
    assert "policy" not in drs.read_obp(folder / "all.csv").source.schema.names
    assert drs.read_obp(folder / "all.csv").source.schema.metadata is None
    pa.csv.write_csv(item_table(7), tmp_path / "items.csv")
    assert drs.read_obp(folder, items=tmp_path / "items.csv").n_actions == 7
    with pytest.raises(drs.LogError, match="cannot read the items in"):
        drs.read_obp(folder, items=tmp_path / "none.csv")
    (tmp_path / "items.csv").write_text("item,x\n1,2\n")
    with pytest.raises(drs.LogError, match="has no column 'item_id'"):
        drs.read_obp(folder, items=tmp_path / "items.csv")
    (tmp_path / "other.csv").write_text("action,reward,propensity\n0,1,1\n")
    with pytest.raises(drs.LogError, match="has no column 'click': the files of Open Bandit have"):
        drs.read_obp(tmp_path / "other.csv")


@pytest.mark.parametrize("name", ["all", "men"])
def test_real_data_from_its_csv_by_one_command(tmp_path, name):
    """The table, written as the data set publishes it, comes back whole."""
    real = pq.read_table(data(f"obd_{name}.parquet")).slice(9000, 2000)  # of both loggers
    about = {key.decode(): json.loads(value) for key, value in real.schema.metadata.items()}
    times = real["timestamp_us"].cast(pa.timestamp("us", "UTC"))
    columns = {"": pa.array(range(2000)), "timestamp": times}
    columns |= {column: real[column] for column in ("item_id", "position", "click")}
    columns["propensity_score"] = real["propensity"]
    for column in USERS:
        columns[column] = pa.array(np.array(about["user_feature_codes"][column])[real[column].to_numpy()])
    affinity = real["affinity"].combine_chunks().flatten().to_numpy().reshape(2000, -1)
    columns |= {f"user-item_affinity_{k}": pa.array(affinity[:, k]) for k in range(affinity.shape[1])}
    folder = write_folder(tmp_path / "log", pa.table(columns))
    done = drstream("convert", folder / "all.csv", tmp_path / "log.parquet")
    assert done.returncode == 0, done.stderr
    found = pq.read_table(tmp_path / "log.parquet")
    for column in ("timestamp", "item_id", "position", "click", "propensity_score", *USERS):
        assert found[column].to_pylist() == columns[column].to_pylist(), column
    log = drs.Log(tmp_path / "log.parquet", actions=int(about["n_items"]))
    ours = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])["ips"].value
    wanted = np.mean(real["click"].to_numpy() / real["propensity"].to_numpy()) / int(about["n_items"])
    assert ours == pytest.approx(wanted, rel=1e-12)


# Open Bandit Pipeline


def feedback(rows=40, actions=3, positions=1, seed=0):
    rng = np.random.default_rng(seed)
    pi_b = rng.dirichlet(np.ones(actions), (rows, positions)).transpose(0, 2, 1)
    action, position = rng.integers(0, actions, rows), rng.integers(0, positions, rows)
    return {
        "n_rounds": rows,
        "n_actions": actions,
        "context": rng.normal(size=(rows, 2)),
        "action_context": np.eye(actions),
        "action": action,
        "position": None if positions == 1 else position,
        "reward": rng.binomial(1, 0.5, rows),
        "expected_reward": rng.random((rows, actions)),
        "pi_b": pi_b,
        "pscore": pi_b[np.arange(rows), action, position],
    }


@pytest.mark.parametrize("positions", [1, 3])
def test_bandit_feedback(positions):
    given = feedback(positions=positions)
    log = drs.from_obp(given)
    assert (log.rows, log.n_actions, log.n_features) == (40, 3, 2)
    model = drs.models.Column("expected_reward")
    found = drs.evaluate(log, drs.policies.Uniform(), model, estimators=["dm", "ips"])
    assert found["ips"].value == pytest.approx(np.mean(given["reward"] / given["pscore"]) / 3)
    assert found["dm"].value == pytest.approx(given["expected_reward"].mean())
    own = drs.evaluate(log, drs.policies.Column("propensities"), estimators=["ips"])
    assert own["ips"].value == pytest.approx(given["reward"].mean())


def test_bandit_feedback_with_little_in_it():
    log = drs.from_obp({"action": [0, 1], "reward": [0.5, 1], "pscore": None})
    assert (log.roles.propensity, log.roles.context) == (None, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rounds": 41}, "has n_rounds=41, but 40 actions"),
        (
            {"reward": np.ones(3)},
            r"'reward' of the bandit feedback has shape \(3,\): it must have 1 dimension and 40 rows",
        ),
        ({"context": np.ones(40)}, r"'context' of the bandit feedback has shape \(40,\): it must have 2 dimensions"),
        ({"action": None}, "has no 'action'"),
    ],
)
def test_bandit_feedback_that_is_wrong(change, message):
    with pytest.raises(drs.LogError, match=message):
        drs.from_obp({**feedback(), **change})
    with pytest.raises(drs.LogError, match="takes a dictionary of Open Bandit Pipeline, not list"):
        drs.from_obp([])
