"""The words of errors and warnings: two forms, one for Python and one for the command line, and where they point."""

import pickle
import sys
import warnings
from pathlib import Path

import pytest

import drstream as drs
from drstream import errors
from drstream.errors import for_command_line, in_python, parameter, phrase

PACKAGE = Path(drs.__file__).parent
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, drs.DrstreamError)]


@pytest.mark.parametrize(
    ("marked", "python", "command"),
    [
        (parameter("cap"), "cap=", "--cap"),
        (parameter("crossfit", 5), "crossfit=5", "--crossfit 5"),
        (parameter("fold_seed", 1), "fold_seed=1", "--fold-seed 1"),
        (parameter("lambda_", 0.5), "lambda_=0.5", "--lambda 0.5"),
        (parameter("cluster", "user id"), "cluster='user id'", "--cluster user id"),
        (parameter("cap", None), "cap=None", "--cap none"),
        (parameter("estimators", option="estimator"), "estimators=", "--estimator"),
        (phrase("drs.models.Ridge()", "ridge"), "drs.models.Ridge()", "ridge"),
        (phrase("", "x"), "", "x"),
        ("no words of two forms", "no words of two forms", "no words of two forms"),
        (f"{parameter('a', 1)},\n{phrase('b', 'c')}\n{parameter('d')}", "a=1,\nb\nd=", "--a 1,\nc\n--d"),
        (phrase("two\nlines", "one"), "two\nlines", "one"),
    ],
)
def test_both_forms(marked, python, command):
    assert in_python(marked) == python
    assert for_command_line(marked) == command


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_speaks_python_and_keeps_both_forms(kind):
    error = kind(f"{parameter('cap', -1)} must be above 0", kind="a kind")
    assert str(error) == error.args[0] == "cap=-1 must be above 0"
    assert for_command_line(error.message) == "--cap -1 must be above 0"
    error.steps = 3
    error.add_note("a note")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is kind
        assert (str(copy), copy.message, copy.kind, copy.steps) == (str(error), error.message, "a kind", 3)
        assert copy.__notes__ == ["a note"]
    assert isinstance(error, ValueError)
    assert str(kind()) == ""


def test_errors_of_an_evaluation_have_both_forms():
    table = drs.synth.World(n_actions=2, n_features=1).table(10)
    with pytest.raises(drs.DrstreamError) as caught:
        drs.evaluate(table, drs.policies.Uniform(), lambda_=0)
    assert str(caught.value) == "lambda_=0 must be a number above 0"
    assert for_command_line(caught.value.message) == "--lambda 0 must be a number above 0"


def test_a_missing_file_is_both_kinds_of_error(tmp_path):
    missing = tmp_path / "clicks.parquet"
    for kind in (FileNotFoundError, OSError, drs.LogError, errors.MissingFileError):
        with pytest.raises(kind) as caught:
            drs.Log(missing)
    assert str(caught.value) == caught.value.args[0]
    assert str(caught.value).startswith("no such file or directory: ")
    assert str(missing) in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, FileNotFoundError)
    assert str(copy) == str(caught.value)


# Warnings


def library(name, source, **names):
    """Functions as if they stood in a file of the package."""
    space = {"errors": errors, **names}
    exec(compile(source, str(PACKAGE / name), "exec"), space)
    return space


FRAMES = """
def inner(): errors.warn_user("careful with " + errors.parameter("cap", 1))
def middle(): return [inner() for _ in range(1)]
def outer(): (lambda: middle())()
def through(callback): callback()
"""


def warned(function, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args)
        line = sys._getframe().f_lineno - 1
    (warning,) = caught
    return warning, line


@pytest.mark.parametrize("name", ["inner", "middle", "outer"])
def test_a_warning_points_to_the_line_that_called_the_library(name):
    made_up = library("evaluation/made_up.py", FRAMES)
    warning, line = warned(made_up[name])
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert warning.category is drs.DrstreamWarning
    assert issubclass(warning.category, UserWarning)


def test_a_warning_points_to_the_innermost_of_the_users_lines():
    made_up = library("made_up.py", FRAMES)

    def callback():
        made_up["outer"]()

    warning, _ = warned(made_up["through"], callback)
    assert (warning.filename, warning.lineno) == (__file__, callback.__code__.co_firstlineno + 1)


def test_a_users_folder_may_begin_like_the_package():
    """As in a folder drstream-experiments beside the folder drstream."""
    made_up = library("made_up.py", FRAMES)
    path = f"{PACKAGE}-experiments/run.py"
    mine = {"outer": made_up["outer"]}
    exec(compile("def run():\n    outer()", path, "exec"), mine)
    warning, _ = warned(mine["run"])
    assert (warning.filename, warning.lineno) == (path, 2)


def test_warnings_of_an_evaluation_point_here():
    log = drs.Log(drs.synth.World(n_actions=2, n_features=1).table(200))
    model = drs.models.Ridge().fit(log)
    warning, line = warned(drs.evaluate, log, drs.policies.Uniform(), model)
    assert (warning.filename, warning.lineno) == (__file__, line)


def test_a_warning_has_both_forms_and_can_be_pickled():
    warning = drs.DrstreamWarning(f"{parameter('cap', 1)} is small")
    assert str(warning) == "cap=1 is small"
    copy = pickle.loads(pickle.dumps(warning))
    assert type(copy) is drs.DrstreamWarning
    assert str(copy) == "cap=1 is small"
    assert for_command_line(copy.message) == "--cap 1 is small"


# Suggestions


def test_suggestions():
    names = ["action", "reward", "propensity"]
    assert errors.suggest("propensty", names) == "did you mean 'propensity'?"
    assert errors.suggest("REWARD", names) == "did you mean 'reward'?"
    assert errors.suggest("zzz", names) == "there are: action, reward, propensity"
    assert errors.suggest("zzz", []) == "there are: none"
    assert errors.suggest("zzz", (f"x{j}" for j in range(25))).endswith("x18, x19, ...")
    assert errors.closest("x1", ["X1", "y2"]) == ["X1"]
