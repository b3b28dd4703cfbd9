"""Explanations on the command line."""

import json

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

WORDS = ("evaluate", "log.parquet", "--policy", "new=constant:1", "--model", "ridge", "--cap", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    pq.write_table(world().table(3000, seed=1), folder / "log.parquet")
    return folder


def test_the_table_and_json_say_where_the_variance_comes_from(folder):
    done = drstream(*WORDS, "--explain", "--second-model", "logistic", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in ("reward noise", "model error", "bias of the cap"):
        assert words in done.stdout
    found = json.loads(drstream(*WORDS, "--explain", "--deterministic-rewards", "--json", cwd=folder).stdout)
    assert [one["estimator"] for one in found["explanations"]] == ["ips", "dr", "ips-capped", "dr-capped", "dm"]
    assert found["explanations"][1]["reward_noise"] == 0
    assert found["explanations"][4]["width"] is None
    assert "explanations" not in json.loads(drstream(*WORDS, "--json", cwd=folder).stdout)


def test_estimated_propensities_have_a_note(folder):
    words = ("--propensity-model", "logistic", "--crossfit", "forward:500", "--explain")
    said = " ".join(drstream(*WORDS, *words, cwd=folder).stdout.split())
    assert "not known for snips." in said
    assert "new, dr: The propensities are estimated." in said


def test_words_about_explanations_need_explain(folder):
    for words in (("--second-model", "ridge"), ("--deterministic-rewards",)):
        fails(f"{words[0]} is about explanations: give --explain, too", *WORDS, *words, cwd=folder)
