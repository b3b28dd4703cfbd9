"""`drstream fit`, and models on the command line, as typed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

ROWS = 600 if PLAIN else 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-models")
    table = world().table(ROWS, seed=1)
    table = table.append_column("user", pa.array(np.arange(ROWS) // 3))
    pq.write_table(table, folder / "log.parquet", row_group_size=ROWS // 3)
    pq.write_table(table.drop_columns(["propensity"]), folder / "bare.parquet")
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    listed = table.append_column("mu", pa.array(list(world().logging(X))))
    pq.write_table(listed.append_column("twice", listed["mu"]), folder / "listed.parquet")
    sparse = table.select(["action", "reward", "propensity"])
    sparse = sparse.append_column("indices", pa.array([np.arange(3, dtype=np.int32)] * ROWS))
    pq.write_table(sparse.append_column("values", pa.array(list(X))), folder / "sparse.parquet")
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 not really")
    return folder


def estimates(*words, cwd):
    done = drstream("evaluate", *words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("kind", ["ridge", "ridge:3", "logistic", "logistic:0.1"])
def test_a_model_is_fitted_saved_and_used_on_the_other_rows(folder, kind):
    done = drstream("fit", "log.parquet", "--model", kind, "--share", "0.4", "--seed", "3", "-o", "m.npz", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "fitted on" in done.stdout
    assert "random number in [0, 0.4)" in done.stdout
    found, warned = estimates("log.parquet", "--policy", "uniform", "--model", "m.npz", cwd=folder)
    assert "warning" not in warned
    train, test = drs.Log(folder / "log.parquet").split(0.4, seed=3)
    name, _, value = kind.partition(":")
    made = (drs.models.Ridge if name == "ridge" else drs.models.Logistic)(float(value or 1)).fit(train)
    wanted = drs.evaluate(test, {"uniform": drs.policies.Uniform()}, made)
    assert found["events"] == wanted.n
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]
    assert found["model"]["r2"] == wanted.r2


def test_a_model_of_all_rows_draws_a_warning_with_the_remedy(folder):
    assert drstream("fit", "log.parquet", "--model", "ridge", "--output", "all.npz", cwd=folder).returncode == 0
    _, warned = estimates("log.parquet", "--policy", "uniform", "--model", "all.npz", cwd=folder)
    assert warned.startswith("warning: the reward model was fitted on events that it is now evaluated on")
    assert "--crossfit 5" in warned


def test_cross_fitting_equals_that_in_python(folder):
    words = "--policy", "uniform", "--model", "ridge", "--crossfit", "4", "--cluster", "user", "--fold-seed", "2"
    found, _ = estimates("log.parquet", *words, "--clamp", "0,1", cwd=folder)
    wanted = drs.evaluate(
        drs.Log(folder / "log.parquet"),
        {"uniform": drs.policies.Uniform()},
        drs.models.Ridge(),
        crossfit=4,
        cluster="user",
        fold_seed=2,
        clamp=(0, 1),
    )
    assert found["crossfit"] == 4
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]
    assert found["model"]["clamped"] == wanted.clamped


def test_models_of_earlier_rows_equal_those_in_python(folder):
    words = "--policy", "uniform", "--model", "ridge", "--crossfit", "forward:40"
    found, _ = estimates("log.parquet", *words, cwd=folder)
    log = drs.Log(folder / "log.parquet")
    wanted = drs.evaluate(log, {"uniform": drs.policies.Uniform()}, drs.models.Ridge(), crossfit="forward:40")
    assert (found["crossfit"], found["unpredicted"]) == ("forward", 40)
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]
    model = "--propensity-model", "logistic", "--propensity-floor", "0.01"
    shown = drstream("evaluate", "log.parquet", *words, *model, cwd=folder)
    assert "rows skipped: 40 (before the first propensity model)" in shown.stdout
    replay = "replay", "log.parquet", "--policy", "epsilon-greedy", "--horizon", "20", *words[2:], "--json"
    done = drstream(*replay, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert '"crossfit": "forward"' in done.stdout


def test_propensities_of_all_actions(folder):
    words = "--policy", "uniform", "--model", "constant:0.1", "--estimator", "dr-minvar,dr-stablevar"
    found, _ = estimates("listed.parquet", *words, "--propensities", "mu", cwd=folder)
    wanted = drs.evaluate(
        drs.Log(folder / "listed.parquet", propensities="mu"),
        drs.policies.Uniform(),
        drs.models.Constant(0.1),
        ["dr-minvar", "dr-stablevar"],
    )
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]
    several = "evaluate", "listed.parquet", *words, "--propensities", "mu, twice"
    fails("propensities column 'mu' has type list", *several, cwd=folder)


def test_propensities_from_a_model(folder):
    words = "--policy", "constant:1", "--propensity", "none", "--propensity-model", "logistic:0.5", "--crossfit", "3"
    limits = "--propensity-floor", "0.1", "--inflation", "1.2"
    found, _ = estimates("bare.parquet", *words, *limits, cwd=folder)
    model = drs.models.Propensity(0.5, inflation=1.2, floor=0.1)
    log = drs.Log(folder / "bare.parquet", propensity=None)
    wanted = drs.evaluate(log, drs.policies.Constant(1), propensity=model, crossfit=3)
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]
    assert found["estimated_propensities"]
    uniform, _ = estimates("bare.parquet", *words[:4], "--propensity-model", "uniform", cwd=folder)
    same = drs.evaluate(log, drs.policies.Constant(1), propensity=drs.policies.Uniform())
    assert uniform["estimates"][0]["value"] == same["ips"].value


def test_a_propensity_model_from_a_file(folder):
    fit = "--model", "propensity:0.5", "--share", "0.5", "--cluster", "user", "-o", "mu.npz", "--propensity", "none"
    assert drstream("fit", "bare.parquet", *fit, cwd=folder).returncode == 0
    words = "--policy", "uniform", "--propensity", "none", "--propensity-model", "mu.npz"
    found, warned = estimates("bare.parquet", *words, cwd=folder)
    assert "warning" not in warned
    train, test = drs.Log(folder / "bare.parquet", propensity=None).split(0.5, cluster="user")
    wanted = drs.evaluate(test, drs.policies.Uniform(), propensity=drs.models.Propensity(0.5).fit(train))
    assert found["estimates"][0]["value"] == wanted["ips"].value
    fails(
        "a Propensity is for --propensity-model", "evaluate", "log.parquet", *words[:2], "--model", "mu.npz", cwd=folder
    )


def test_sparse_contexts(folder):
    words = "--policy", "uniform", "--model", "ridge", "--crossfit", "2"
    found, _ = estimates("sparse.parquet", "--sparse", "indices,values,3", *words, cwd=folder)
    dense, _ = estimates("log.parquet", *words, cwd=folder)
    for one, other in zip(found["estimates"], dense["estimates"], strict=True):
        assert one["value"] == pytest.approx(other["value"], abs=1e-5)
    done = drstream("describe", "sparse.parquet", "--sparse", "indices,values,3", cwd=folder)
    assert "sparse, 3 features: indices, values" in done.stdout
    replay = "replay", "sparse.parquet", "--sparse", "indices,values,3", "--policy", "epsilon-greedy", "--horizon", "20"
    done = drstream(*replay, "--model", "ridge", "--crossfit", "2", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("cannot be fitted, did you mean 'ridge'? A model is one of: ridge", "fit log.parquet --model rigde -o m.npz"),
        ("'x' is not a number", "fit log.parquet --model ridge:x -o m.npz"),
        ("must end in .npz", "fit log.parquet --model ridge -o model.pickle"),
        ("there is no folder", "fit log.parquet --model ridge -o nowhere/model.npz"),
        ("is a file of the log itself", "fit log.parquet --model ridge -o log.parquet"),
        ("--weights is for --model ridge", "fit log.parquet --model logistic --weights 1/p -o m.npz"),
        ("did you mean '1/p'?", "fit log.parquet --model ridge --weights 1/q -o m.npz"),
        ("no such file: 'absent.npz'", "evaluate log.parquet --policy uniform --model absent.npz"),
        ("broken.npz is not a model", "evaluate log.parquet --policy uniform --model broken.npz"),
        (
            "is not a model, did you mean 'ridge'? A model is one of: ridge",
            "evaluate log.parquet --policy uniform --model rigde",
        ),
        ("--inflation is about --propensity-model", "replay log.parquet --policy ucb1 --horizon 10 --inflation 2"),
        ("--crossfit fits models that are not yet", "evaluate log.parquet --policy uniform --crossfit 5"),
        (  # --floor is another option
            "Propensity: floor=2.0 must be a number at least 0 and at most 1",
            "evaluate log.parquet --policy uniform --propensity-model logistic --propensity-floor 2",
        ),
        (
            "it must be a whole number of folds, at least 2",
            "evaluate log.parquet --policy uniform --model ridge --crossfit 1",
        ),
        ("or forward", "evaluate log.parquet --policy uniform --model ridge --crossfit backward"),
        ("e.g. forward:1000", "evaluate log.parquet --policy uniform --model ridge --crossfit forward:0"),
        (
            "--cluster user is about folds, and --crossfit forward:40 has none",
            "replay log.parquet --policy uniform --horizon 9 --model ridge --crossfit forward:40 --cluster user",
        ),
        (
            f"of earlier events: the log has {ROWS:,} rows, and the first block 9,000. Make it shorter",
            "evaluate log.parquet --policy uniform --model ridge --crossfit forward:9000",
        ),
        (
            "name their column of lists, or one column for each action, with --propensities",
            "evaluate log.parquet --policy uniform --model constant:0 --estimator dr-minvar",
        ),
        ("did you mean 'user'?", "evaluate log.parquet --policy uniform --model ridge --crossfit 2 --cluster usr"),
        ("write LOW,HIGH or range", "evaluate log.parquet --policy uniform --model ridge --clamp 1"),
        ("write INDICES,VALUES,DIM", "evaluate sparse.parquet --policy uniform --sparse indices,values"),
        ("two ways to name the context", "evaluate sparse.parquet --policy uniform --sparse indices,3 --context x0"),
        ("open the log with --propensity none", "evaluate bare.parquet --policy uniform"),
        ("give --propensity-model", "evaluate bare.parquet --policy uniform --propensity none"),
        ("give --propensity-model", "replay bare.parquet --policy uniform --propensity none --horizon 10"),
    ],
)
def test_mistakes(folder, message, words):
    before = sorted(folder.iterdir())
    fails(message, *words.split(), cwd=folder)
    assert sorted(folder.iterdir()) == before
