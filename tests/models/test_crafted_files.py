"""Model files that someone crafted: whatever they declare, they are refused in a sentence, and take little memory."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drstream as drs
from tests.helpers.logs import world

WORLD = world(kinds=None)
K, D = 4, 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the file of a fitted Ridge holds."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    drs.models.Ridge().fit(drs.Log(WORLD.table(200, seed=1), actions=K)).save(path)
    with np.load(path) as file:
        found = {name: file[name] for name in file.files}
    assert found["coef_"].shape == (K, D)
    return found


def with_about(saved: dict[str, Any], **changes: Any) -> dict[str, Any]:
    about = {**json.loads(saved["about"].tobytes()), **changes}
    return {**saved, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}


ARRAYS = {
    "narrow": ({"coef_": np.zeros((K, D - 1))}, r"coef_ has shape \(4, 2\), not \(4, 3\)"),
    "few rows": ({"coef_": np.zeros((K - 1, D))}, r"coef_ has shape"),
    "flat": ({"coef_": np.zeros(K * D)}, r"coef_ has shape"),
    "long intercept": ({"intercept_": np.zeros(K + 1)}, r"intercept_ has shape"),
    "float32": ({"coef_": np.zeros((K, D), np.float32)}, "coef_ is float32, not float64"),
    "integers": ({"intercept_": np.zeros(K, np.int64)}, "intercept_ is int64"),
    "text": ({"intercept_": np.array(["0"] * K)}, "intercept_ is <U1"),
    "NaN": ({"coef_": np.full((K, D), np.nan)}, "coef_ holds nan"),
    "infinite": ({"intercept_": np.full(K, np.inf)}, "intercept_ holds inf"),
    "records": ({"intercept_": np.zeros(K, [("a", "f8")])}, "intercept_ is"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_do_not_fit_the_model_are_refused(saved: dict[str, Any], tmp_path: Path, case: str) -> None:
    changes, words = ARRAYS[case]
    path = tmp_path / "model.npz"
    np.savez(path, **{**saved, **changes})
    with pytest.raises(drs.ModelError, match=rf"model\.npz .*{words}"):
        drs.models.load(path)


ABOUT: dict[str, tuple[dict[str, Any], str]] = {
    "one label more": ({"labels": [0, 1, 2, 3, 4]}, "coef_ has shape"),
    "labels of two kinds": ({"labels": [0, 1, 2, "3"]}, "distinct integers or strings"),
    "labels that are numbers with a point": ({"labels": [0.0, 1.0, 2.0, 3.0]}, "distinct integers or strings"),
    "a label twice": ({"labels": [0, 1, 2, 2]}, "distinct integers or strings"),
    "labels in a string": ({"labels": "0123"}, "distinct integers or strings"),
    "no label": ({"labels": []}, "distinct integers or strings"),
    "other width": ({"n_features": 2, "features": None}, "coef_ has shape"),
    "huge width": ({"n_features": 10**18, "features": None}, "n_features is"),
    "a width with a point": ({"n_features": 3.0}, "n_features is 3.0"),
    "negative events": ({"n_events": -1}, "n_events is -1"),
    "a range of text": ({"reward_range": ["0", "1"]}, "reward_range"),
    "a range of three": ({"reward_range": [0, 1, 2]}, "reward_range"),
    "features that are numbers": ({"features": [1, 2, 3]}, "features are not names"),
    "skipped": ({"skipped": {"null": "many"}}, "bad rows"),
    "reward": ({"reward": 3}, "its reward is 3"),
    "alpha": ({"parameters": {"alpha": -1}}, "alpha"),
    "text as alpha": ({"parameters": {"alpha": "a lot"}}, "alpha"),
    "unknown parameter": ({"parameters": {"beta": 1}}, "beta"),
    "pairs": ({"pairs": {"context": 5, "items": ["a"], "interactions": True}}, "pairs of 5 features"),
}


@pytest.mark.parametrize("case", ABOUT)
def test_words_and_numbers_that_do_not_fit_are_refused(saved: dict[str, Any], tmp_path: Path, case: str) -> None:
    changes, words = ABOUT[case]
    path = tmp_path / "model.npz"
    np.savez(path, **with_about(saved, **changes))
    with pytest.raises(drs.ModelError, match=rf"model\.npz .*{words}"):
        drs.models.load(path)


def test_a_model_with_all_that_is_needed_is_loaded(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"  # else the tests above would refuse anything
    np.savez(path, **with_about(saved))
    assert (drs.models.load(path).coef_ == saved["coef_"]).all()


@pytest.mark.parametrize("name", ["inflation", "floor"])
@pytest.mark.parametrize("value", ["much", -1.0, float("nan")])
def test_limits_of_propensities_from_a_file_are_checked(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "model.npz"
    drs.models.Propensity().fit(drs.Log(WORLD.table(200, seed=1), actions=K)).save(path)
    with np.load(path) as file:
        found = {key: file[key] for key in file.files}
    parameters = {**json.loads(found["about"].tobytes())["parameters"], name: value}
    np.savez(path, **with_about(found, parameters=parameters))
    with pytest.raises(drs.ModelError, match=rf"model\.npz .*{name}"):
        drs.models.load(path)


def test_characters_that_do_not_exist_are_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    about = np.array(saved["about"].tobytes().decode())  # as earlier versions wrote it
    np.savez(path, **{**saved, "about": about})
    assert (drs.models.load(path).coef_ == saved["coef_"]).all()
    about.reshape(1).view(np.uint32)[20] = 0x7FFF_FFFF
    np.savez(path, **{**saved, "about": about})
    with pytest.raises(drs.ModelError, match=r"model\.npz cannot be read: .*characters"):
        drs.models.load(path)


# Sizes


def member(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


def write_zip(path: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def refused(path: Path, words: str, most: int = 20_000_000) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(drs.ModelError, match=rf"model\.npz .*{words}"):
            drs.models.load(path)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_a_file_that_would_grow_is_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    """100 MB of zeros are 100 kB when compressed."""
    path = tmp_path / "model.npz"
    zeros = member(np.zeros((K, 3_000_000)))
    write_zip(path, zipfile.ZIP_DEFLATED, about=member(saved["about"]), coef_=zeros, intercept_=member(np.zeros(K)))
    assert path.stat().st_size < 200_000
    refused(path, "is compressed")


def test_an_array_that_declares_a_huge_size_is_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    small = member(np.zeros((K, 100)))
    huge = small.replace(b"(4, 100), }" + 9 * b" ", b"(4, 100000000000), }")
    assert len(huge) == len(small)
    assert huge != small
    write_zip(path, about=member(saved["about"]), coef_=huge, intercept_=member(np.zeros(K)))
    refused(path, r"shape \(4, 100000000000\)")


def test_a_member_that_declares_a_huge_size_is_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write_zip(path, about=member(saved["about"]), coef_=member(saved["coef_"]), intercept_=member(np.zeros(K)))
    size = len(member(saved["coef_"])).to_bytes(4, "little")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(size, (2**31).to_bytes(4, "little")))
    refused(path, "it declares")


def test_a_pickle_is_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, **saved, more=np.array([{"a": print}], dtype=object))
    refused(path, "is a pickle, which could run any code")


# skops


def skops_file(path: Path, **changes: bytes) -> None:
    """Write the file of a linear model of scikit-learn in which some members are replaced."""
    linear = pytest.importorskip("sklearn.linear_model")
    pytest.importorskip("skops")
    drs.models.from_sklearn(linear.LinearRegression()).fit(drs.Log(WORLD.table(200, seed=1), actions=K)).save(path)
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in found.items():
            file.writestr(name, changes.get(Path(name).suffix[1:], data))


def test_an_array_of_skops_that_declares_a_huge_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    small = member(np.zeros(100))
    skops_file(path, npy=small.replace(b"(100,), }" + 9 * b" ", b"(100000000000,), }"))
    refused(path, r"shape \(100000000000,\)")


def test_compressed_skops_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    skops_file(path)
    drs.models.load(path)
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in found.items():
            file.writestr(name, data)
    refused(path, "is compressed")


def sparse_member(indices: list[int], rows: int = 1) -> bytes:
    from scipy.sparse import csr_array, save_npz

    found = csr_array(np.ones((rows, 3)))
    found.indices = np.array(indices, np.int32)
    buffer = io.BytesIO()
    save_npz(buffer, found)
    return buffer.getvalue()


@pytest.mark.parametrize(("indices", "words"), [([0, 1, 900_000_000], "must be < 3"), ([0, -5, 2], "must be >= 0")])
def test_sparse_arrays_of_skops_do_not_point_outside(tmp_path: Path, indices: list[int], words: str) -> None:
    path = tmp_path / "model.npz"
    skops_file(path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("1.npz", sparse_member(indices))
    refused(path, words)


def test_sparse_arrays_of_skops_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    skops_file(path)
    data = io.BytesIO()
    np.savez_compressed(data, data=np.zeros(10_000_000))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("1.npz", data.getvalue())
    refused(path, "a sparse array in it takes")


def test_a_schema_that_refers_to_one_array_many_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    skops_file(path)
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    schema = json.loads(found["schema.json"])
    big = member(np.zeros(100_000))
    schema["more"] = [{"file": "big.npy"}] * 100
    with zipfile.ZipFile(path, "w") as file:
        for name, data in {**found, "schema.json": json.dumps(schema).encode(), "big.npy": big}.items():
            file.writestr(name, data)
    refused(path, "it refers to")


# The policy of a replay


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights_": np.array([2.0])}, "states_ has shape|shares"),
        ({"states_": np.zeros((1, 2)), "weights_": np.array([1.0])}, "states of shape"),
        ({"states_": np.zeros(3)}, "states_ has shape"),
    ],
    ids=["weights", "narrow states", "flat states"],
)
def test_states_of_a_learner_are_checked(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, **{**learned(path), **changes})
    with pytest.raises(drs.PolicyError, match=words):
        drs.optimize.load(path)


def test_a_learner_that_declares_many_features_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    found = learned(path)
    np.savez(path, **with_about(found, n_features=20_000, features=None))  # states of 1.6 GB an action
    tracemalloc.start()
    with pytest.raises(drs.PolicyError, match="for 20000 features"):
        drs.optimize.load(path)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def learned(path: Path) -> dict[str, Any]:
    """Return what the file of a policy that a replay made holds."""
    log = drs.Log(WORLD.table(400, seed=1), actions=K)
    drs.optimize.ProgressivePolicy(drs.policies.LinUCB(), q=0.05, snapshots=2).fit(log).save(path)
    with np.load(path) as file:
        return {key: file[key] for key in file.files}
