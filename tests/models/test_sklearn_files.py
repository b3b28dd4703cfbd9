"""Models of scikit-learn that are kept: pickles, and files of skops."""

import importlib.util
import pickle
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVR

import drstream as drs
from drstream.models import from_sklearn, load
from tests.helpers.logs import world
from tests.helpers.sklearn_models import (
    ROWS,
    SGD,
    contexts,
)

HAS_SKOPS = importlib.util.find_spec("skops") is not None
needs_skops = pytest.mark.skipif(not HAS_SKOPS, reason="skops, with which models are saved, is not installed")


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


class Mean(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_pickling(table):
    model = from_sklearn(LogisticRegression()).fit(drs.Log(table).split(0.5)[0])
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict(contexts(table)), model.predict(contexts(table)))
    assert other.fitted_on.splits == model.fitted_on.splits
    assert len(pickle.dumps(model)) < 20_000


@needs_skops
@pytest.mark.parametrize("action", ["separate", "feature"])
@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearSVR(), SGD], ids=lambda e: type(e).__name__)
def test_saving(table, tmp_path, estimator, action):
    rows, path = tmp_path / "log.parquet", tmp_path / "model.skops"
    names = np.array(["w", "x", "y", "z"])
    pq.write_table(table.set_column(0, "action", pa.array(names[table["action"].to_numpy()])), rows)
    train, test = drs.Log(rows, actions=["z", "y", "x", "w", "v"]).split(0.5)
    model = from_sklearn(estimator, action=action, sample=100, partial=False, seed=3).fit(train)
    model.save(path)
    other = load(path)
    assert repr(other) == repr(model)
    np.testing.assert_array_equal(other.predict(contexts(table)), model.predict(contexts(table)))
    assert vars(other).keys() == vars(model).keys()
    same = vars(model).keys() - {"estimator", "models_"}
    assert {name: getattr(other, name) for name in same} == {name: getattr(model, name) for name in same}
    assert other.estimator.get_params() == model.estimator.get_params()
    if action == "feature":
        assert other.models_[0] is other.models_[1]
    policy = drs.policies.Uniform()
    assert drs.evaluate(test, policy, other)["dr"].value == drs.evaluate(test, policy, model)["dr"].value
    with pytest.warns(UserWarning, match="fitted on events that it is now evaluated on"):
        drs.evaluate(train, policy, other)


@needs_skops
def test_types_that_are_not_trusted_are_refused_by_name(table, tmp_path):
    path = tmp_path / "model.skops"
    model = from_sklearn(Mean()).fit(table)
    model.save(path)
    name = f"{__name__}.Mean"
    with pytest.raises(drs.ModelError, match=rf"model.skops holds types.*: {name}.*pass trusted=\['{name}'\]"):
        load(path)
    with pytest.raises(drs.ModelError, match=name):
        load(path, trusted=[f"{__name__}.Own"])
    for trusted in ([name], name):
        other = load(path, trusted=trusted)
        np.testing.assert_array_equal(other.predict(contexts(table)), model.predict(contexts(table)))


@needs_skops
def test_files_that_are_no_models(tmp_path):
    import skops.io

    with pytest.raises(drs.ModelError, match=r"no such file: .*absent"):
        load(tmp_path / "absent")
    path = tmp_path / "other"
    path.write_bytes(b"something else")
    with pytest.raises(drs.ModelError, match="other is not a model: it was not written by"):
        load(path)
    skops.io.dump(Ridge(), path)
    with pytest.raises(drs.ModelError, match="other was not written by"):
        load(path)
    skops.io.dump({"format": 1, "kind": "cheese"}, path)
    with pytest.raises(drs.ModelError, match="other holds a 'cheese', which is not a model"):
        load(path)
    skops.io.dump({"format": 99, "kind": "from_sklearn"}, path)
    with pytest.raises(drs.ModelError, match="has format 99 of saved models, and this drstream reads 1"):
        load(path)


def test_without_skops_nothing_is_pickled(table, tmp_path, monkeypatch):
    model = from_sklearn(Ridge()).fit(table)
    with zipfile.ZipFile(tmp_path / "kept", "w") as file:
        file.writestr("schema.json", "{}")
    for name in [name for name in sys.modules if name.split(".")[0] == "skops"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "skops", None)
    for use in (lambda: model.save(tmp_path / "m"), lambda: load(tmp_path / "kept")):
        with pytest.raises(drs.ModelError, match=r"with skops only.*pip install skops"):
            use()
    assert not (tmp_path / "m").exists()


def test_scikit_learn_is_imported_when_it_is_needed():
    """Not by importing the module: it is an extra."""
    import subprocess

    code = "import sys; import drstream.models.adapters; print('sklearn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
