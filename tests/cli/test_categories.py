"""--categorical, --hashed and --missing, as typed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.categories import table
from tests.helpers.command import drstream, fails

CONTEXT = ("--context", "age", "--context", "country", "--context", "zip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-categories")
    pq.write_table(table(600), folder / "log.parquet")
    pq.write_table(table(300, 5, ("AT", "DE", "FR")), folder / "later.parquet")
    data = table(600)
    ages = np.where(np.arange(600) % 3 == 0, np.nan, data["age"].to_numpy())
    place = data.column_names.index("age")
    pq.write_table(data.set_column(place, "age", pa.array(ages, from_pandas=True)), folder / "nulls.parquet")
    return folder


def done(*words, cwd):
    found = drstream(*words, cwd=cwd)
    assert found.returncode == 0, found.stderr
    return found


def test_describe_shows_categories(folder):
    words = "describe", "log.parquet", *CONTEXT, "--categorical", "zip", "--hashed", "agent:4"
    shown = done(*words, cwd=folder).stdout
    assert "25 features of 4 columns: age, country (3 categories: DE, FR, US), zip (5 categories: 100, " in shown
    assert "agent (hashed, 16 features)" in shown
    found = json.loads(done(*words, "--json", cwd=folder).stdout)
    assert found["categories"] == {"country": ["DE", "FR", "US"], "zip": [100, 101, 102, 103, 104]}
    assert found["n_features"] == 25
    assert found["sparse"] is False
    assert found["feature_names"][:3] == ["age", "country=DE", "country=FR"]


def test_a_model_is_fitted_and_meets_another_log(folder):
    done("fit", "log.parquet", "--model", "ridge", *CONTEXT, "--categorical", "zip", "-o", "m.npz", cwd=folder)
    other = "--context", "zip", "--context", "country", "--context", "age"  # the model knows that zip is categorical
    run = done("evaluate", "later.parquet", "--policy", "uniform", "--model", "m.npz", *other, "--json", cwd=folder)
    count = pq.read_table(folder / "later.parquet")["country"].to_pylist().count("AT")
    assert f"{count} events have a category in 'country' that the reward model does not know" in run.stderr
    assert any(f["check"] == "categories" for f in json.loads(run.stdout)["findings"])
    log = drs.Log(folder / "later.parquet", context=["age", "country", "zip"], categorical="zip")
    with pytest.warns(drs.DrstreamWarning, match="does not know"):
        result = drs.evaluate(log, drs.policies.Uniform(), drs.models.load(folder / "m.npz"))
    found = {row["estimator"]: row["value"] for row in json.loads(run.stdout)["estimates"]}
    assert found["dr"] == result["dr"].value


def test_missing_values(folder):
    words = "evaluate", "nulls.parquet", "--policy", "uniform", "--model", "ridge", "--crossfit", "2", *CONTEXT
    fails("context is null at row 0", *words, cwd=folder)
    fails("Say what missing values mean with --missing", *words, cwd=folder)
    fails("it takes no NaN, and the log keeps missing values: --missing keep", *words, "--missing", "keep", cwd=folder)
    fails('--missing kep: it must be "error", "keep", or a number', *words, "--missing", "kep", cwd=folder)
    found = json.loads(done(*words, "--missing", "0", "--json", cwd=folder).stdout)
    log = drs.Log(folder / "nulls.parquet", context=["age", "country", "zip"], missing=0)
    value = drs.evaluate(log, drs.policies.Uniform(), drs.models.Ridge(), crossfit=2)["dr"].value
    assert {row["estimator"]: row["value"] for row in found["estimates"]}["dr"] == value


def test_mistakes(folder):
    words = "evaluate", "log.parquet", "--policy", "uniform"
    fails("did you mean 'country'", *words, *CONTEXT, "--categorical", "contry", cwd=folder)
    fails("write NAME or NAME:BITS", *words, "--hashed", "agent:many", cwd=folder)
    fails("bits must be a whole number from 1 to 28", *words, "--hashed", "agent:99", cwd=folder)
    fails("--sparse and --hashed are two ways", *words, "--sparse", "a,b,3", "--hashed", "agent", cwd=folder)


def test_every_command_takes_categories(folder):
    words = "log.parquet", "--context", "country", "--hashed", "agent:3"
    done("audit", *words, "--json", cwd=folder)
    done("convert", words[0], "copy.parquet", *words[1:], cwd=folder)
    done("plan", *words, "--policy", "uniform", "--sample", "0.5", cwd=folder)
    done("replay", *words, "--policy", "epsilon-greedy", "--horizon", "5", "--json", cwd=folder)
    done("optimize", *words, "--learner", "dlm", "-o", "policy.npz", cwd=folder)
    done("evaluate", *words, "--policy", "policy.npz", cwd=folder)
