"""Fitted models as files: arrays and JSON in an .npz for ours, skops for those of scikit-learn; never a pickle."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drstream.errors import ModelError, near
from drstream.log.rows import Origin
from drstream.models.adapters import from_sklearn
from drstream.models.logistic import Logistic
from drstream.models.propensity import Propensity, SklearnPropensity
from drstream.models.ridge import Ridge
from drstream.models.trained import Trained
from drstream.writing import whole

FORMAT = 1
ARRAYS: dict[str, type[Trained]] = {kind.__name__: kind for kind in (Ridge, Logistic, Propensity)}
ESTIMATORS: dict[str, type[Trained]] = {kind.__name__: kind for kind in (from_sklearn, SklearnPropensity)}


def save(model: Trained, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; the file appears when it is complete."""
    model.require_fit()
    if type(model).__name__ in ESTIMATORS:
        skops = _skops()
        data = skops.dumps({**_about(model), **{name: getattr(model, name) for name in model.kept}})
        _write(path, lambda file: file.write(data))
    else:
        arrays = {name: getattr(model, name) for name in model.kept}
        about = np.array(json.dumps(_about(model)))
        _write(path, lambda file: np.savez(file, about=about, **arrays))


def _write(path: str | os.PathLike[str], write: Callable[[Any], Any]) -> None:
    try:
        with whole(path) as unfinished, unfinished.open("wb") as file:
            write(file)
    except OSError as error:
        raise ModelError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from None


def _about(model: Trained) -> dict[str, Any]:
    """All but arrays and estimators."""
    parameters = model.parameters()
    if "policy" in parameters:
        parameters["policy"] = None  # any object, which only a new fit would need
    return {
        "format": FORMAT,
        "kind": type(model).__name__,
        "parameters": parameters,
        "labels": [label if isinstance(label, str) else int(label) for label in model.labels_],
        "features": None if model.features_ is None else list(model.features_),
        "n_features": model.n_features_,
        "reward": model.reward_,
        "n_events": model.n_events_,
        "reward_range": list(model.reward_range_),
        "skipped": model.skipped_,
        "fitted_on": None if model.fitted_on is None else model.fitted_on.to_dict(),
    }


def load(path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> Any:
    """A model that `model.save(path)` wrote.

    Of a model of scikit-learn, types that skops does not know as harmless are refused unless named in `trusted`.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise ModelError(f"no such file: {name!r}")
    try:
        with zipfile.ZipFile(path) as file:
            ours = "about.npy" in file.namelist()
            theirs = "schema.json" in file.namelist()
    except Exception:  # BadZipFile, OSError, NotImplementedError, ...: what a damaged file meets in zipfile is not one
        ours = theirs = False
    if theirs:
        state = _read_skops(name, [trusted] if isinstance(trusted, str) else list(trusted))
        return _restore(name, state, ESTIMATORS, state)
    if not ours:
        raise ModelError(f"{name} is not a model: it was not written by model.save() or drstream fit, or it is damaged")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        about = json.loads(str(arrays.pop("about")))
    except Exception as error:  # as above
        raise ModelError(f"{name} cannot be read: {error}. Fit the model again") from None
    return _restore(name, about, ARRAYS, arrays)


def _restore(name: str, about: dict[str, Any], kinds: dict[str, type[Trained]], values: dict[str, Any]) -> Trained:
    try:
        return _model(name, about, kinds, values)
    except (KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{name} lacks what a saved model has ({error}): it is damaged. Fit the model again") from None


def _model(name: str, about: dict[str, Any], kinds: dict[str, type[Trained]], values: dict[str, Any]) -> Trained:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise ModelError(
            f"{name} has format {found!r} of saved models, and this drstream reads {FORMAT}: fit the model again, or "
            "use the drstream that wrote it"
        )
    if about["kind"] not in kinds:
        raise ModelError(f"{name} holds a {about['kind']!r}, which is not a model: {near(about['kind'], kinds)}")
    kind = kinds[about["kind"]]
    if kinds is ESTIMATORS:
        model = kind(**about["parameters"])
    else:  # its parameters were checked when it was made, and a policy of "mrdr" is not kept
        model = object.__new__(kind)
        model.__dict__.update(about["parameters"])
    missing = [key for key in kind.kept if key not in values]
    if missing:
        raise ModelError(f"{name} lacks {missing[0]!r}: it is damaged. Fit the model again")
    for key in kind.kept:
        setattr(model, key, values[key])
    model.labels_, model.n_actions = about["labels"], len(about["labels"])
    model.features_ = None if about["features"] is None else tuple(about["features"])
    model.n_features_, model.n_events_ = about["n_features"], about["n_events"]
    model.reward_range_ = about["reward_range"][0], about["reward_range"][1]
    model.skipped_, model.reward_ = about["skipped"], about["reward"]
    model.fitted_on = None if about["fitted_on"] is None else Origin.from_dict(about["fitted_on"])
    return model


def _read_skops(name: str, trusted: list[str]) -> dict[str, Any]:
    skops = _skops()
    data = Path(name).read_bytes()
    try:
        unknown = sorted(set(skops.get_untrusted_types(data=data)) - set(trusted))
    except Exception as error:
        raise ModelError(f"{name} cannot be read: {error}. Fit the model again") from None
    if unknown:
        raise ModelError(
            f"{name} holds types that could do harm in a file from someone else: {', '.join(unknown)}. If you trust "
            f"who wrote it, pass trusted={unknown}"
        )
    state = skops.loads(data, trusted=trusted)
    if not isinstance(state, dict):
        raise ModelError(f"{name} was not written by model.save()")
    return state


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError:
        raise ModelError(
            "models of scikit-learn are saved and loaded with skops only, as a pickle can run any code when it is "
            "read: pip install skops"
        ) from None
