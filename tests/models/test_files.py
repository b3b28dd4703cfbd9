"""Fitted models as files: what is saved is what is loaded, and what is no model is refused in a sentence."""

import json
import stat
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.states.files import atomic_path
from tests.helpers.logs import arrays, log_of, world
from tests.helpers.passes import PLAIN

M = drs.models
ROWS = 600
WORLD = world(kinds=None)
NAMES = np.array(["süß", "w x", "", "0"])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A log in a file, with labels that are text."""
    table = WORLD.table(ROWS, seed=1)
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(table.set_column(0, "action", pa.array(NAMES[table["action"].to_numpy()])), path)
    return path


def text_log(rows):
    return drs.Log(rows, context="x?", actions=[*NAMES.tolist(), "never"])


def sparse_log(rows):
    X, a, r, p = arrays(WORLD.table(ROWS, seed=1), 3)
    return log_of(X * (X > 0), a, r, p, sparse=True)


MODELS = {
    "Ridge()": M.Ridge(),
    "Ridge(alpha=0.5, fit_intercept=False, shared=True, weights='1/p')": M.Ridge(
        np.float32(0.5), np.bool_(False), shared=np.bool_(True), weights="1/p"
    ),
    "Ridge(weights='mrdr')": M.Ridge(weights="mrdr", policy=drs.policies.Uniform()),
    "Logistic(C=2.0)": M.Logistic(np.int64(2)),
    "Propensity(fit_intercept=False)": M.Propensity(1, False),
    "Propensity(inflation=2.0, floor=0.25)": M.Propensity(inflation=np.float32(2), floor=0.25),
}


@pytest.mark.parametrize("log_from", [text_log, sparse_log])
@pytest.mark.parametrize("shown", MODELS)
def test_what_is_saved_is_loaded(rows, tmp_path, log_from, shown):
    path = tmp_path / "a model"  # no suffix is added
    train, test = log_from(rows).split(0.5)
    model = MODELS[shown].fresh().fit(train)
    model.save(path)
    other = M.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a model"]
    assert type(other) is type(model)
    about = f", fitted on {model.n_events_} events of {model.fitted_on}"
    assert repr(other) == shown + about
    X = arrays(WORLD.table(ROWS, seed=1), 3)[0]
    assert (other.predict(X) == model.predict(X)).all()
    same = vars(model).keys() - {"policy", "n_passes_", "coef_", "intercept_", "fitted_on"}
    assert {name: getattr(other, name) for name in same if name != "labels_"} == {
        name: getattr(model, name) for name in same if name != "labels_"
    }
    assert list(other.labels_) == list(model.labels_)
    assert other.fitted_on.splits == model.fitted_on.splits
    role = {"propensity": other} if isinstance(other, M.Propensity) else {"model": other}
    if log_from is text_log:
        assert other.fitted_on == model.fitted_on
        with pytest.warns(UserWarning, match="fitted on events that it is now evaluated on"):
            drs.evaluate(train, drs.policies.Uniform(), **role)
    wanted = dict.fromkeys(role, model)
    got, ref = (drs.evaluate(test, drs.policies.Uniform(), **given) for given in (role, wanted))
    assert got.rows() == ref.rows()
    run = drs.replay(test, drs.policies.Uniform(), 5, q=0.2, **role)
    assert run.value == drs.replay(test, drs.policies.Uniform(), 5, q=0.2, **wanted).value


def test_there_is_no_pickle_inside(rows, tmp_path):
    path = tmp_path / "model"
    M.Propensity().fit(text_log(rows)).save(path)
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == {"about", "coef_", "intercept_"}
        assert all(file[name].dtype.kind in "fu" for name in file.files)
        about = json.loads(file["about"].tobytes())
    assert about["format"] == 1
    assert about["labels"] == [*NAMES.tolist(), "never"]


def test_saving_twice_writes_over(rows, tmp_path):
    path = tmp_path / "model"
    M.Logistic().fit(text_log(rows)).save(path)
    M.Ridge().fit(text_log(rows)).save(str(path))
    assert isinstance(M.load(str(path)), M.Ridge)


@pytest.mark.parametrize("model", [M.Ridge(), M.Logistic(), M.Propensity()], ids=lambda m: type(m).__name__)
def test_what_is_not_fitted_is_not_saved(tmp_path, model):
    with pytest.raises(drs.ModelError, match="is not fitted"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


# Paths


def test_paths_that_cannot_be_written(rows, tmp_path):
    model = M.Ridge().fit(text_log(rows))
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "absent" / "model", tmp_path / "file" / "model", tmp_path / "folder"):
        with pytest.raises(drs.ModelError, match=f"cannot write {path}: "):
            model.save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"
    assert not list((tmp_path / "folder").iterdir())


def test_a_write_that_fails_leaves_the_old_file(rows, tmp_path, monkeypatch):
    path = tmp_path / "model"
    M.Ridge().fit(text_log(rows)).save(path)
    before = path.read_bytes()

    def fail(file, *args, **options):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(drs.ModelError, match="No space left on device"):
        M.Logistic().fit(text_log(rows)).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert stat.S_ISREG(path.stat().st_mode)


# Files that are no models, or not any more


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(drs.ModelError, match=r"no such file: .*absent"):
        M.load(tmp_path / "absent")
    with pytest.raises(drs.ModelError, match="no such file"):
        M.load(tmp_path)
    path = tmp_path / "other"
    for content in (b"", b"PK", b"something else", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(drs.ModelError, match="other is not a model: it was not written by"):
            M.load(path)
    np.savez(path.with_suffix(".npz"), weights=np.ones(3))
    with pytest.raises(drs.ModelError, match="is not a model"):
        M.load(path.with_suffix(".npz"))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("about.npy", "{}")
    with pytest.raises(drs.ModelError, match="other cannot be read"):
        M.load(path)
    np.savez(path.with_suffix(".npz"), about=np.array({"format": 1}, dtype=object))
    with pytest.raises(drs.ModelError, match=r"other.npz cannot be read: .*pickle"):
        M.load(path.with_suffix(".npz"))


GOOD = {
    "format": 1, "kind": "Ridge", "parameters": {"alpha": 1.0}, "labels": [0], "features": None, "n_features": 1,
    "reward": "reward",
    "n_events": 1, "reward_range": [0, 1], "skipped": {}, "fitted_on": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2 of saved models, and this drstream reads 1: .*the drstream that wrote it"),
        ({"format": None}, "has format None"),
        ({"kind": "Rigde"}, "holds a 'Rigde', which is not a model: .*Ridge"),
        ({"kind": "from_sklearn"}, "holds a 'from_sklearn', which is not a model"),
        ({"kind": []}, "it is damaged"),
        ({"parameters": None}, "it is damaged"),
        ({"labels": None}, "it is damaged"),
        ({"reward_range": [0]}, "it is damaged"),
        ({"fitted_on": {}}, "it is damaged"),
        ("list", "what it says about itself is no dictionary"),
        *((name, "has format None" if name == "format" else f"lacks .*'{name}'") for name in GOOD),
    ],
    ids=str,
)
def test_files_of_another_make(tmp_path, changes, message):
    path = tmp_path / "model.npz"
    about = {**GOOD, **changes} if isinstance(changes, dict) else {k: v for k, v in GOOD.items() if k != changes}
    np.savez(path, about=np.array(json.dumps([] if changes == "list" else about)), coef_=[[1.0]], intercept_=[0.0])
    with pytest.raises(drs.ModelError, match=message):
        M.load(path)


def test_a_file_that_lacks_an_array(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, about=np.array(json.dumps(GOOD)), coef_=[[1.0]])
    with pytest.raises(drs.ModelError, match="lacks 'intercept_': it is damaged"):
        M.load(path)


def test_damaged_files(rows, tmp_path):
    """Every byte, changed, either does not matter or is noticed; so is every end that is missing."""
    path = tmp_path / "model"
    model = M.Ridge().fit(text_log(rows))
    model.save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 11 if PLAIN else 1):
        for bit in (1, 128):
            changed = bytearray(whole)
            changed[place] ^= bit
            path.write_bytes(changed)
            try:
                other = M.load(path)
            except drs.ModelError:
                continue
            assert (other.coef_ == model.coef_).all()
            assert (other.intercept_ == model.intercept_).all()
            assert list(other.labels_) == list(model.labels_)
    for end in range(0, len(whole), 13):
        path.write_bytes(whole[:end])
        with pytest.raises(drs.ModelError):
            M.load(path)


def test_two_writers_of_one_path_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with atomic_path(path) as one, atomic_path(path) as other:
        one.write_bytes(b"one" * 100)
        other.write_bytes(b"other")
        assert not path.exists()
    assert path.read_bytes() == b"one" * 100  # the one that ended last
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.npz"]


def test_a_file_that_is_not_complete_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(b"old")

    def write() -> None:
        with atomic_path(path) as unfinished:
            unfinished.write_bytes(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.npz"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "model.npz") as unfinished:
        unfinished.write_bytes(b"new")
    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "model.npz").stat().st_mode == (tmp_path / "usual").stat().st_mode
