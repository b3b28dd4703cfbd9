"""Learners as words on the command line: they are found by what the package holds, each with its parameters."""

import inspect
import json

import pytest
from typer.testing import CliRunner

import drstream as drs
from drstream.cli import specs
from drstream.cli.app import app
from drstream.policies import learners
from tests.helpers.logs import world


class PatientBandit(drs.policies.UCB1):
    """A learner that is in no list of words."""

    def __init__(self, patience: float = 1.0, *, mood: str = "calm", hopeful: bool = False) -> None:
        super().__init__(patience)
        self.patience, self.mood, self.hopeful = patience, mood, hopeful


@pytest.fixture
def patient(monkeypatch):
    """What one adds for a new learner: a class in drstream.policies.learners, and nothing else."""
    monkeypatch.setattr(learners, "PatientBandit", PatientBandit, raising=False)
    monkeypatch.setattr(learners, "__all__", [*learners.__all__, "PatientBandit"])


def other_value(parameter):
    """A value that is allowed, and is not the default."""
    words = {"loss": "logistic", "start": "random", "step": "decaying"}
    if parameter.name in words:
        return words[parameter.name]
    if isinstance(parameter.default, bool):
        return not parameter.default
    if isinstance(parameter.default, int):
        return parameter.default + 1
    return parameter.default / 2 if parameter.default else 0.25


def test_the_words_stay():
    """They are typed by users and stand in scripts."""
    assert sorted(specs.learners()) == ["boltzmann", "epsilon-greedy", "exp3", "linucb", "square-cb", "ucb1"]
    assert sorted(specs.optimizers()) == ["dlm", "filter-tree", "offset-tree"]


def test_every_compiled_learner_has_a_word():
    kinds = [
        kind for kind in vars(learners).values() if isinstance(kind, type) and kind.__module__ == learners.__name__
    ]
    compiled = {kind for kind in kinds if not kind.__name__.startswith("_")}
    assert set(specs.learners().values()) == compiled
    assert {kind.__name__ for kind in compiled} == set(learners.__all__) <= set(drs.policies.__all__)
    assert {getattr(drs.policies, name) for name in learners.__all__} == compiled


@pytest.mark.parametrize("word", [*specs.learners(), *specs.optimizers()])
def test_every_parameter_can_be_written(word):
    kind = {**specs.learners(), **specs.optimizers()}[word]
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.name != "base"]  # of trees: an object
    assert parameters
    wanted = {p.name: other_value(p) for p in parameters}
    spec = f"{word}:" + ",".join(f"{name}={value}" for name, value in wanted.items())
    if word in specs.learners():
        made = specs.online_policies([f"mine={spec}"], [], {})["mine"]
        replayed = specs.learner(spec, None, None, None)
        assert isinstance(replayed, drs.optimize.ProgressivePolicy)
    else:
        made = specs.learner(spec, None, None, None)
    assert type(made) is kind
    assert {name: getattr(made, name) for name in wanted} == wanted
    with pytest.raises(drs.PolicyError, match=f"'nothing' is not a parameter of it: .*{parameters[0].name}"):
        specs.learner(f"{word}:nothing=1", None, None, None)


@pytest.mark.usefixtures("patient")
def test_a_new_learner_is_found_with_its_parameters():
    words = ["patient-bandit", "b=patient-bandit:patience=0.5,mood=wild,hopeful=true"]
    found = specs.online_policies(words, [], {"patience": 3.0})
    default, other = found["patient-bandit"], found["b"]
    assert type(default) is type(other) is PatientBandit
    assert (default.patience, default.mood, default.hopeful) == (3.0, "calm", False)
    assert (other.patience, other.mood, other.hopeful) == (0.5, "wild", True)
    learned = specs.learner("patient-bandit:patience=2", 40, None, None)
    assert isinstance(learned, drs.optimize.ProgressivePolicy)
    for spec, message in (
        ("patient-bandit:patiense=1", "'patiense' is not a parameter of it: did you mean 'patience'"),
        ("patient-bandit:patience=much", "patience='much' is not a number"),
        ("patient-bandti", "did you mean 'patient-bandit'"),
        ("something", "A policy is one of: .*patient-bandit"),
    ):
        with pytest.raises(drs.PolicyError, match=message):
            specs.online_policies([spec], [], {})
    with pytest.raises(drs.PolicyError, match=r"A learner is one of: .*patient-bandit"):
        specs.learner("something", None, None, None)
    with pytest.raises(drs.PolicyError, match="'patient-bandit' learns while it runs: drstream replay is for"):
        specs.policies(["patient-bandit"], [])


@pytest.mark.usefixtures("patient")
def test_a_new_learner_is_replayed(tmp_path):
    world().write(tmp_path / "log.parquet", 2000, seed=1)
    words = ["replay", str(tmp_path / "log.parquet"), "--policy", "patient-bandit:patience=0.5", "--horizon", "10"]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    (run,) = json.loads(done.stdout)["runs"]
    assert run["policy"] == "patient-bandit:patience=0.5"
    assert run["value"] == drs.replay(tmp_path / "log.parquet", PatientBandit(0.5), 10).value
