"""What a type checker knows: all policies by name, and that `replay` of one policy, q and seed returns a Replay."""

import re

import pytest

import drstream as drs
from tests.helpers.places import ROOT

CASES = {  # the call, and the type of what it returns
    "drs.replay(log, policy, 10)": "Replay",
    "drs.replay(log, policy, 10, model, q=0.1, seed=3, method='rs', threads=2)": "Replay",
    "drs.replay(log, {'a': policy, 'b': policy}, 10)": "Replays",
    "drs.replay(log, {'a': policy}, 10, q=0.1, seed=3)": "Replays",
    "drs.replay(log, {'a': policy}, 10, q=[0.0, 0.1], seed=[1, 2])": "Replays",
    "drs.replay(log, policy, 10, q=[0.0, 0.1])": "Replays",
    "drs.replay(log, policy, 10, model, q=(0.0, 0.1), seed=3)": "Replays",
    "drs.replay(log, policy, 10, seed=[1, 2])": "Replays",
    "drs.replay(log, policy, 10, q=0.1, seed=[1, 2], carry=True)": "Replays",
    "drs.replay(log, policy, 10, q=[0.0, 0.1], seed=[1, 2])": "Replays",
}
WRONG = ("drs.replay(log, policy, 10, shards='two')", "drs.replay(log, policy, 10, sheds=2)")
NAMES = [f"drs.policies.{name}" for name in drs.policies.__all__]
HEAD = """\
import drstream as drs

log, model = drs.Log("log.parquet"), drs.models.Ridge()
policy = drs.policies.UCB1()
"""


def test_a_type_checker_knows_policies_and_what_replay_returns(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    lines = [*HEAD.splitlines(), *(f"reveal_type({call})" for call in CASES), *WRONG, *NAMES]
    path = tmp_path / "user.py"
    path.write_text("\n".join(lines) + "\n")
    out, problems, _ = api.run(["--no-pretty", "--hide-error-context", str(path)])
    assert not problems
    said = {}
    for line in out.splitlines():
        if found := re.match(r".*user\.py:(\d+): (\w+): (.*)", line):
            said.setdefault(lines[int(found[1]) - 1], []).append((found[2], found[3]))
    for call, kind in CASES.items():
        ((level, text),) = said.pop(f"reveal_type({call})")
        assert (level, text.split(".")[-1]) == ("note", f'{kind}"'), (call, text)
    for call in WRONG:
        level, text = said.pop(call)[0]
        assert level == "error"
        assert text.endswith("[call-overload]")
    assert not said  # so that every name of drs.policies is known
