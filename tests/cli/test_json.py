"""--json: documents with a schema and its version. Each other test with --json validates what it got, too."""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from drstream.cli.app import COMMANDS
from drstream.cli.declared import options_of
from drstream.results import VERSIONS
from tests.helpers import schemas
from tests.helpers.command import drstream
from tests.helpers.logs import world
from tests.helpers.places import ROOT

UNIFORM = "--policy", "uniform"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    world().write(folder / "log.parquet", 2000, seed=1)
    done = drstream("evaluate", "log.parquet", *UNIFORM, "--state", "log.state", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


WORDS = {
    "describe": (),
    "audit": (),
    "plan": (*UNIFORM, "--policy", "ucb1", "--sample", "1"),
    "evaluate": (
        *UNIFORM,
        "--policy",
        "constant:1",
        "--model",
        "ridge",
        "--explain",
        "--compare",
        "uniform,constant:1",
    ),
    "merge": (),
    "replay": ("--policy", "ucb1", "--horizon", "20", "--q", "0.1"),
}


def test_all_commands_with_json_are_here():
    assert [c.__name__ for c in COMMANDS if "json" in options_of(c)] == list(WORDS)
    assert set(VERSIONS) == set(WORDS) - {"merge"}
    assert {path.stem for path in (ROOT / "drstream" / "schemas").glob("*.json")} == set(VERSIONS)


@pytest.mark.parametrize("command", WORDS)
def test_documents_of_every_command(command, folder):
    what = "log.state" if command == "merge" else "log.parquet"
    done = drstream(command, what, *WORDS[command], "--json", cwd=folder)
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    name = "evaluate" if command == "merge" else command
    assert next(iter(document)) == "schema"
    assert document["schema"] == f"drstream.{name}/{VERSIONS[name]}"
    assert schemas.check(document) == name
    Draft202012Validator(schemas.schema(name)).validate({**document, "later": 1})  # new keys need no new version
    for key in set(schemas.schema(name)["required"]) - {"schema"}:
        without = {k: value for k, value in document.items() if k != key}
        with pytest.raises(ValidationError, match="is a required property"):
            schemas.check(without)
