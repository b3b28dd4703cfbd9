"""`drstream optimize`, and policies from files on the command line, as typed."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

ROWS = 600 if PLAIN else 4000
QUICK = "dlm:restarts=2,epochs=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-optimize")
    pq.write_table(world().table(ROWS, seed=1), folder / "log.parquet", row_group_size=ROWS // 3)
    pq.write_table(world().table(ROWS, seed=2), folder / "other.parquet")
    assert optimize(folder, "--learner", QUICK, "-o", "policy.npz").returncode == 0
    np.savez(folder / "weights.npz", weights=np.zeros((4, 3)))
    return folder


def optimize(folder, *words):
    return drstream("optimize", "log.parquet", *words, cwd=folder)


def value(folder, *words):
    done = drstream("evaluate", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["events"], {row["estimator"]: row["value"] for row in found["estimates"]}, done.stderr


@pytest.mark.parametrize("losses", ["dr", "ips", "dm"])
def test_a_policy_is_learned_on_a_share_and_evaluated_on_the_rest(folder, losses):
    done = optimize(folder, "--learner", QUICK, "--losses", losses, "--share", "0.6", "--seed", "3", "-o", "p.npz")
    assert done.returncode == 0, done.stderr
    assert "DirectLossMinimizer(restarts=2, epochs=5), fitted on" in done.stdout
    assert "random number in [0, 0.6)" in done.stdout
    events, found, warned = value(folder, "log.parquet", "--policy", "p.npz")
    train, test = drs.Log(folder / "log.parquet").split(0.6, seed=3)
    model = None if losses == "ips" else drs.models.Ridge()
    made = drs.optimize.DirectLossMinimizer(restarts=2, epochs=5)
    made.fit(drs.optimize.impute(train, model, estimator=losses))
    wanted = drs.evaluate(test, made)
    assert (events, found["ips"], warned.count("warning")) == (wanted.n, wanted["ips"].value, 0)


@pytest.mark.parametrize("words", [("filter-tree", "t.skops"), ("offset-tree:offset=0.25", "t.skops")])
def test_trees(folder, words):
    pytest.importorskip("skops")
    done = optimize(folder, "--learner", words[0], "-o", words[1])
    assert done.returncode == 0, done.stderr
    assert value(folder, "log.parquet", "--policy", f"tree={words[1]}")[0] < ROWS / 2


def test_a_policy_that_learns_becomes_a_mixture(folder):
    done = optimize(folder, "--learner", "epsilon-greedy:epsilon=0.3", "--horizon", "40", "--q", "0.1", "-o", "m.npz")
    assert done.returncode == 0, done.stderr
    assert "T = 40 steps" in done.stdout
    _, found, _ = value(folder, "log.parquet", "--policy", "m.npz")
    train, test = drs.Log(folder / "log.parquet").split(0.7)
    learner = drs.optimize.ProgressivePolicy(drs.policies.EpsilonGreedy(0.3), horizon=40, q=0.1)
    assert found["ips"] == drs.evaluate(test, learner.fit(train, drs.models.Ridge()))["ips"].value


def test_rows_that_its_model_knows_are_left_out_too(folder):
    words = "--model", "ridge", "--share", "0.5", "--seed", "8", "-o", "half.npz"
    assert drstream("fit", "log.parquet", *words, cwd=folder).returncode == 0
    assert optimize(folder, "--learner", QUICK, "--model", "half.npz", "-o", "p.npz").returncode == 0
    events, _, warned = value(folder, "log.parquet", "--policy", "p.npz")
    unknown = drs.Log(folder / "log.parquet").split(0.5, seed=8)[1]
    assert events == drs.evaluate(unknown.split(0.7)[1], drs.policies.Uniform()).n
    assert "warning" not in warned


def test_options_reach_the_folds_of_a_replay(folder):
    words = "--crossfit", "3", "--fold-seed", "7", "--clamp", "0,1", "--c-max", "0.5", "-o", "m.npz"
    done = optimize(folder, "--learner", "ucb1", *words)
    assert done.returncode == 0, done.stderr
    train, _ = drs.Log(folder / "log.parquet").split(0.7)
    wanted = drs.optimize.ProgressivePolicy(drs.policies.UCB1(), c_max=0.5)
    wanted.fit(train, drs.models.Ridge(), crossfit=3, fold_seed=7, clamp=(0, 1))
    assert drs.optimize.load(folder / "m.npz").value == wanted.value


def test_a_policy_of_all_rows_draws_a_warning_with_the_remedy(folder):
    assert optimize(folder, "--learner", QUICK, "--share", "1", "-o", "all.npz").returncode == 0
    events, _, warned = value(folder, "log.parquet", "--policy", "all.npz")
    assert events == ROWS
    assert warned.startswith("warning: policy 'all.npz' was learned from events that it is now evaluated on")
    assert "drstream optimize --share 0.7" in warned
    events, _, warned = value(folder, "other.parquet", "--policy", "all.npz")
    assert (events, warned.count("warning")) == (ROWS, 0)


def test_a_replay_leaves_the_rows_out_too(folder):
    done = drstream("replay", "log.parquet", "--policy", "policy.npz", "--horizon", "5", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


def test_nothing_is_left_of_a_run_that_fails(folder):
    before = sorted(path.name for path in folder.iterdir())
    fails("nope", "optimize", "log.parquet", "--learner", QUICK, "--action", "nope", "-o", "new.npz", cwd=folder)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--learner", "dml", "-o", "p.npz"], "'dml' is not a learner, did you mean 'dlm'"),
        (["--learner", "dlm:restart=3", "-o", "p.npz"], "did you mean 'restarts'"),
        (["--learner", "dlm:restarts=many", "-o", "p.npz"], "restarts='many' is not a number"),
        (["--learner", "dlm:restarts=0", "-o", "p.npz"], "restarts=0 must be a whole number"),
        (["--learner", "dlm", "-o", "p.skops"], "must end in .npz"),
        (["--learner", "filter-tree", "-o", "p.npz"], "must end in .skops"),
        (["--learner", "dlm", "-o", "no/p.npz"], "there is no folder"),
        (["--learner", "dlm", "-o", "log.parquet"], "is a file of the log itself"),
        (["--learner", "dlm", "--losses", "drr", "-o", "p.npz"], "--losses 'drr': did you mean 'dr'"),
        (["--learner", "dlm", "--losses", "ips", "--model", "ridge", "-o", "p.npz"], "which needs no reward model"),
        (["--learner", "dlm", "--losses", "ips", "--crossfit", "9", "-o", "p.npz"], "there is no model to fit"),
        (["--learner", "dlm", "--q", "0.5", "-o", "p.npz"], "--q 0.5 is for learners that are replayed"),
        (["--learner", "dlm", "--share", "0", "-o", "p.npz"], "there is nothing to learn from"),
        (["--learner", "dlm", "--horizon", "9", "-o", "p.npz"], "--horizon 9 is for learners that are replayed"),
        (
            ["--learner", "offset-tree", "--model", "ridge", "-o", "p.skops"],
            "is of no use for offset-tree",
        ),
        (["--learner", "exp3", "--losses", "dm", "-o", "p.npz"], "takes dr or ips"),
        (
            ["--learner", "filter-tree", "--checkpoint", "run.ckpt", "-o", "p.skops"],
            "--checkpoint: a fit of FilterTree",
        ),
        (["--learner", "dlm", "--propensity", "none", "-o", "p.npz"], "needs propensities"),
    ],
)
def test_what_is_refused(folder, words, message):
    fails(message, "optimize", "log.parquet", *words, cwd=folder)


def test_files_that_are_no_policies(folder):
    fails("written as linear:weights.npz", "evaluate", "log.parquet", "--policy", "weights.npz", cwd=folder)
    fails("no such file: 'none.npz'", "evaluate", "log.parquet", "--policy", "none.npz", cwd=folder)
    assert drstream("fit", "log.parquet", "--model", "ridge", "-o", "model.npz", cwd=folder).returncode == 0
    fails("'Ridge', which is not a policy", "evaluate", "log.parquet", "--policy", "model.npz", cwd=folder)
    words = "evaluate", "log.parquet", "--policy", "uniform", "--model", "policy.npz"
    fails("which is not a model", *words, cwd=folder)
