"""The best action of a model as a policy, and misspelt names, on the command line."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

ROWS = 400 if PLAIN else 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-greedy")
    table = world().table(ROWS, seed=1)
    table = table.append_column("rhat", [list(np.eye(4)[[k % 4 for k in range(ROWS)]])])
    pq.write_table(table, folder / "log.parquet", row_group_size=ROWS // 3)
    done = drstream("fit", "log.parquet", "--model", "ridge", "--share", "0.5", "-o", "m.npz", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def estimates(folder, *words):
    done = drstream("evaluate", "log.parquet", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("epsilon", [0.0, 0.125])
def test_greedy_of_a_file_leaves_out_the_rows_of_the_fit(folder, epsilon):
    word = f"new=greedy:m.npz{f',epsilon={epsilon}' if epsilon else ''}"
    found, warned = estimates(folder, "--policy", word)
    assert "warning" not in warned
    policy = drs.policies.Greedy(drs.models.load(folder / "m.npz"), epsilon)
    rest = drs.Log(folder / "log.parquet").split(0.5)[1]
    wanted = drs.evaluate(rest, {"new": policy})
    assert found["events"] == wanted.n
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in wanted.rows()]


def test_a_saved_policy_is_a_file_like_others(folder):
    policy = drs.policies.Greedy(drs.models.load(folder / "m.npz"), 0.25)
    policy.save(folder / "greedy.npz")
    found, _ = estimates(folder, "--policy", "new=greedy.npz")
    assert [row["value"] for row in found["estimates"]] == [
        row["value"] for row in estimates(folder, "--policy", "new=greedy:m.npz,epsilon=0.25")[0]["estimates"]
    ]


def test_other_models_and_replay(folder):
    found, _ = estimates(folder, "--policy", "new=greedy:column:rhat")
    wanted = drs.evaluate(folder / "log.parquet", drs.policies.Greedy(drs.models.Column("rhat")))
    assert found["estimates"][0]["value"] == wanted["ips"].value
    words = (
        "replay",
        "log.parquet",
        "--policy",
        "greedy:m.npz,epsilon=0.5",
        "--horizon",
        "9",
        "--bias",
        "0.05",
        "--json",
    )
    done = drstream(*words, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("--policy 'greedi:m.npz' is not a policy, did you mean 'greedy'?", "--policy greedi:m.npz"),
        ("--policy greedy:'rigde' is not a model, did you mean 'ridge'?", "--policy greedy:rigde"),
        ("is not fitted: write one to a file first, with drstream fit --share", "--policy greedy:ridge"),
        ("'epsilo' is not a parameter of it: did you mean 'epsilon'?", "--policy greedy:m.npz,epsilo=0.1"),
        ("epsilon=2 must be a number at least 0 and at most 1", "--policy greedy:m.npz,epsilon=2"),
        ("no such file: 'absent.npz'", "--policy greedy:absent.npz"),
        ("--policy 'greedy:' is not a policy", "--policy greedy:"),
        ("--model 'ridg' is not a model, did you mean 'ridge'?", "--policy uniform --model ridg"),
        ("--model 'cheese' is not a model. A model is one of: ridge", "--policy uniform --model cheese"),
        (
            "--propensity-model 'logstic' is not a model, did you mean 'logistic'?",
            "--policy uniform --propensity-model logstic",
        ),
    ],
)
def test_mistakes(folder, message, words):
    fails(message, "evaluate", "log.parquet", *words.split(), cwd=folder)


def test_a_model_of_all_rows_draws_a_warning_with_the_remedy(folder):
    assert drstream("fit", "log.parquet", "--model", "ridge", "-o", "all.npz", cwd=folder).returncode == 0
    _, warned = estimates(folder, "--policy", "new=greedy:all.npz")
    assert "policy 'new' was learned from events that it is now evaluated on" in " ".join(warned.split())
    assert "drstream fit --share 0.7" in " ".join(warned.split())
