"""What results say about where they come from: in every JSON and table, without secrets and without addresses."""

import json

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.provenance import describe, provenance
from drstream.sources.names import without_secrets
from drstream.sources.open import open_source
from tests.helpers.logs import world

WANTED = {"version", "run", "log", "filter", "splits", "rows", "events", "seed", "models", "policies", "parameters"}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("provenance") / "log.parquet"
    world(kinds=None).write(path, 2000, seed=1)
    return drs.Log(path, filter=pc.field("x0") > -10).split(0.9, seed=4)[0]


def of_table(table):
    return json.loads(table.schema.metadata[b"drstream"])


def check(found, log, run):
    assert set(found) >= WANTED
    assert found["version"] == drs.__version__
    assert (found["run"], found["log"], found["filter"]) == (run, log.source.name, str(log.filter))
    assert found["rows"] == 2000
    assert found["splits"] == [vars(log.origin.splits[0])]
    assert found["columns"]["action"] == "action"


def test_an_evaluation_and_its_tables(log, tmp_path):
    policies = {"new": drs.policies.Constant(1), "soft": drs.policies.Softmax(np.zeros((4, 3)))}
    result = drs.evaluate(
        log, policies, drs.models.Ridge(2.0), crossfit=2, fold_seed=7, by="action", lambda_="auto", threads=2
    )
    found = result.provenance
    check(found, log, "evaluate")
    assert found["events"] == result.n
    assert found["seed"] == found["models"]["fold_seed"] == 7
    assert found["models"]["reward"] == "Ridge(alpha=2.0)"
    assert found["policies"]["new"] == "Constant(action=1)"
    assert found["policies"]["soft"].startswith("Softmax(weights=array of float64 4 x 3, sha256 ")
    assert found["parameters"] == {"crossfit": 2, "by": "action", "lambda_": "auto"}
    assert json.loads(result.to_json())["provenance"] == found
    for table in (result.to_arrow(), result.segments, result.grid):
        assert of_table(table) == found
    pq.write_table(result.to_arrow(), tmp_path / "result.parquet")
    assert of_table(pq.read_table(tmp_path / "result.parquet")) == found


def test_it_does_not_depend_on_how_the_work_is_done(log):
    one = drs.evaluate(log, drs.policies.Uniform(), threads=1, progress=False)
    two = drs.evaluate(log, drs.policies.Uniform(), threads=2, progress=lambda *_: None)
    assert one.provenance == two.provenance


def test_each_reward_has_it(log):
    both = drs.Log(log.source, reward=["reward", "x0"])
    result = drs.evaluate(both, drs.policies.Uniform())
    assert result.rewards["x0"].provenance == result.provenance
    assert result.provenance["columns"]["reward"] == ["reward", "x0"]


def test_replays_and_their_tables(log):
    runs = drs.replay(log, {"greedy": drs.policies.EpsilonGreedy(epsilon=0.2)}, 50, q=[0.05, 0.1], seed=3)
    check(runs.provenance, log, "replay")
    assert runs.provenance["seed"] == 3
    assert runs.provenance["parameters"]["q"] == [0.05, 0.1]
    assert "epsilon=0.2" in runs.provenance["policies"]["greedy"]
    found = json.loads(runs.to_json())
    assert found["provenance"] == runs.provenance
    assert "provenance" not in found["runs"][0]  # once is enough
    run = runs.runs[0]
    assert json.loads(run.to_json())["provenance"] == runs.provenance
    for table in (runs.to_arrow(), runs.curves(), run.to_arrow(), run.curve, run.replicates, run.grid):
        assert of_table(table) == runs.provenance


def test_an_audit_and_a_forecast(log):
    audit = log.audit(event_id="action")
    check(audit.provenance, log, "audit")
    assert audit.provenance["parameters"] == {"event_id": "action"}
    assert json.loads(audit.to_json())["provenance"] == audit.provenance == of_table(audit.actions)
    forecast = drs.plan(log, drs.policies.Constant(1), sample=0.9, estimators=["ips"])
    check(forecast.provenance, log, "plan")
    assert forecast.provenance["parameters"] == {"sample": 0.9, "estimators": ["ips"]}
    assert json.loads(forecast.to_json())["provenance"] == forecast.provenance == of_table(forecast.to_arrow())


def test_losses_and_files_of_models(log, tmp_path):
    losses = drs.optimize.impute(log, drs.models.Ridge(), crossfit=2, fold_seed=5)
    check(losses.provenance, log, "impute")
    assert losses.provenance["seed"] == 5
    losses.write(tmp_path / "losses.parquet")
    assert of_table(losses.to_arrow()) == of_table(pq.read_table(tmp_path / "losses.parquet")) == losses.provenance
    drs.models.Ridge().fit(log).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        header = next(found for name in file.files if (found := file[name]).dtype == np.uint8)
    assert json.loads(header.tobytes())["version"] == drs.__version__


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:SECRET@bucket/a.parquet", "s3://***@bucket/a.parquet"),
        ("s3://KEY:SEC/RET+x@bucket/a.parquet?region=eu", "s3://***@bucket/a.parquet?region=eu"),
        ("s3://token@bucket/a", "s3://***@bucket/a"),
        ("https://host/a?X-Amz-Signature=abc&b=1&sig=d", "https://host/a?X-Amz-Signature=***&b=1&sig=***"),
        ("s3://bucket/a@2.parquet", "s3://bucket/a@2.parquet"),
        ("folder/a@b.parquet", "folder/a@b.parquet"),
    ],
)
def test_secrets_are_not_shown(uri, shown):
    assert without_secrets(uri) == shown
    assert describe(uri) == shown


def test_a_uri_with_a_password_is_shown_nowhere(log, monkeypatch):
    """The source, its errors, print(log) and provenance."""
    import pyarrow.dataset as ds
    import pyarrow.fs as fs

    from drstream.sources import remote

    monkeypatch.setattr(remote, "_expand", lambda name: (fs.LocalFileSystem(), [name]))
    real = ds.dataset(log.source.keys[0], format="parquet")
    monkeypatch.setattr(ds, "dataset", lambda *_, **__: real)
    source = open_source("s3://KEY:SECRET@bucket/log.parquet")
    opened = drs.Log(source)
    result = drs.evaluate(opened, drs.policies.Uniform())
    assert result.provenance["log"] == "s3://***@bucket/log.parquet"
    for text in (repr(opened), result.to_json(), opened.audit().to_json()):
        assert "SECRET" not in text
    with pytest.raises(drs.LogError, match=r"'s3://\*\*\*@bucket/a' is given twice"):
        drs.Log(["s3://KEY:SECRET@bucket/a"] * 2)

    def fails(*_, **__):
        raise OSError("Cannot parse URI: 's3://KEY:SECRET@bucket/a'")

    monkeypatch.setattr(ds, "dataset", fails)
    with pytest.raises(drs.LogError, match="Cannot parse URI") as error:
        drs.Log("s3://KEY:SECRET@bucket/a")
    assert "SECRET" not in str(error.value)


class Mine:
    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)


class Rude(Mine):
    def __repr__(self):
        raise ZeroDivisionError


def test_objects_of_the_user_have_a_name_and_no_address(log):
    policies = {"object": Mine(), "function": Mine().probabilities, "lambda": lambda X: Mine().probabilities(X)}
    result = drs.evaluate(log, {**policies, "rude": Rude()})
    for text in result.provenance["policies"].values():
        assert "0x" not in text
    assert result.provenance["policies"]["object"].endswith("test_provenance.Mine")
    assert result.provenance["policies"]["rude"].endswith("test_provenance.Rude")


def test_descriptions():
    assert describe(np.float64(0.5)) == 0.5
    assert describe(np.int32(3)) == 3
    assert describe(float("inf")) == "inf"
    assert describe(None) is None
    assert describe(range(3)) == "range(0, 3)"
    assert describe(list(range(200))) == "200 items"
    assert len(describe({"x": "y" * 1000})) == 300
    assert describe(drs.policies.Uniform) == "drstream.policies.fixed.Uniform"
    json.dumps(describe({"a": object()}))


def test_fits_of_a_log_are_named(log):
    model = drs.models.Ridge().fit(log)
    found = provenance(drs.evaluate, {"model": model}, log, 10)
    assert found["models"]["reward"].startswith("Ridge(), fitted on ")
    assert "filtered" in found["models"]["reward"]
