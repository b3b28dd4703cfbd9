"""Files of fitted models and policies, saved and loaded without a pickle. A file is written whole or not at all.

Models and policies are arrays and JSON in an .npz file. skops saves estimators of scikit-learn.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drstream.errors import DrstreamError, because, suggest
from drstream.log.encoding import Encoding
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.rows import Origin
from drstream.states import arrays
from drstream.states.arrays import check_header, check_sizes, write_whole

if TYPE_CHECKING:
    from drstream.models.trained import Trained

FORMAT = 1
SEVERAL = {"model": "models", "policy": "policies"}
AGAIN = {"model": "Fit the model again", "policy": "Learn the policy again"}  # advice if a file cannot be read
NOT_OURS = "not ours"  # the kind of an error about a file that drstream did not write
MOST = 1 << 26  # bytes that sparse arrays of skops, which are compressed, may take in any case
RATIO = 50  # how much larger than the file they may be otherwise
REFERENCES = 8  # how often a file of skops may refer to all of its bytes
SPARSE = {"data", "indices", "indptr", "row", "col", "offsets", "shape", "format", "_is_array"}  # of SciPy


def save(model: Trained, path: str | os.PathLike[str], policy: dict[str, Any] | None = None) -> None:
    """Write a fitted model or policy to a file, which appears only when it is complete.

    policy  Parameters of a policy that is made of the model.
    """
    model.require_fit()
    kept = {name: getattr(model, name) for name in model.kept}
    if model.estimators:
        data = _skops(model.error).dumps({**_about(model), "policy": policy, **kept})
        write_whole(path, lambda file: file.write(data), model.error)
    else:
        words = {**_about(model), "policy": policy}
        write_whole(path, lambda file: arrays.write(file, words, kept), model.error)


def check_savable(model: Trained) -> None:
    """Raise an error if the library that saves this model is not installed. To be called before the fit."""
    if model.estimators:
        _skops(model.error)


def _about(model: Trained) -> dict[str, Any]:
    """Return all that is saved except arrays and estimators."""
    from drstream import __version__

    return {
        "format": FORMAT,
        "version": __version__,
        "kind": type(model).__name__,
        "parameters": model.kept_parameters(),
        "labels": [label if isinstance(label, str) else int(label) for label in model.labels_],
        "features": None if model.features_ is None else list(model.features_),
        "encoding": None if model.encoding_ is None else model.encoding_.to_dict(),
        "n_features": model.n_features_,
        "pairs": None if model.pairs_ is None else model.pairs_.to_dict(),
        "reward": model.reward_,
        "n_events": model.n_events_,
        "reward_range": list(model.reward_range_),
        "skipped": model.skipped_,
        "fitted_on": None if model.fitted_on is None else model.fitted_on.to_dict(),
        "models_of": [origin.to_dict() for origin in model.models_of],
    }


class Shelf:
    """Loads the classes of one sort, "model" or "policy", from files."""

    def __init__(
        self,
        sort: str,
        kinds: Sequence[type[Trained]],
        error: type[DrstreamError],
        checked: Sequence[str] = (),
        *,
        models: Sequence[type[Trained]] = (),
        policy: Callable[..., Any] | None = None,
    ) -> None:
        self.sort, self.error = sort, error
        self.kinds = {kind.__name__: kind for kind in kinds}
        self.models = {kind.__name__: kind for kind in models}  # of which `policy` makes a policy, if the file says so
        self.policy = policy
        self.again = AGAIN[sort]
        self.checked = checked  # types that skops does not know as harmless, but that `check_loaded` checks

    def load(self, path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> Any:
        """Load what `save` wrote. Types that skops does not trust raise an error unless named in `trusted`."""
        name = os.fspath(path)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise FileNotFoundError
            names = _members(path)
        except (FileNotFoundError, NotADirectoryError):
            raise self.error(f"no such file: {name!r}") from None
        except OSError as error:
            raise self.error(f"cannot read {name}: {because(error)}") from None
        if "schema.json" in names:
            trusted = [trusted] if isinstance(trusted, str) else list(trusted)
            state, left = self._read_skops(name, trusted)
            model = self._restore(name, state, state, estimators=True)
            model.check_loaded(name, left)
            return self._finished(name, model, state)
        if f"{arrays.WORDS}.npy" not in names:
            raise self.error(
                f"{name} is not a {self.sort}: it was not written by {self.sort}.save() or "
                f"drstream {'fit' if self.sort == 'model' else 'optimize'}, or it is damaged",
                kind=NOT_OURS,
            )
        with open(path, "rb") as file:
            about, found = self._read(name, lambda: arrays.read(file))
        return self._finished(name, self._restore(name, about, found, estimators=False), about)

    def _read(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:  # zipfile and json raise many kinds for damaged files
            raise self.error(f"{name} cannot be read: {error}. {self.again}") from None

    def _finished(self, name: str, model: Trained, about: dict[str, Any]) -> Any:
        """Return the model, or the policy that was made of it."""
        if self.policy is None or about.get("policy") is None:
            return model
        try:
            return self.policy(model, **about["policy"])
        except (TypeError, DrstreamError) as error:
            raise self.error(f"{name} lacks what a saved policy has ({error}): it is damaged. {self.again}") from None

    def _restore(self, name: str, about: Any, values: dict[str, Any], *, estimators: bool) -> Trained:
        try:
            return self._model(name, about, values, estimators)
        except DrstreamError:
            raise
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise self.error(
                f"{name} lacks what a saved {self.sort} has ({error}): it is damaged. {self.again}"
            ) from None

    def _model(self, name: str, about: Any, values: dict[str, Any], estimators: bool) -> Trained:
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            found = about.get("format") if isinstance(about, dict) else None
            raise self.error(
                f"{name} has format {found!r} of saved {SEVERAL[self.sort]}, and this drstream reads {FORMAT}: "
                f"{self.again[0].lower()}{self.again[1:]}, or use the drstream that wrote it"
            )
        known = self.kinds if about.get("policy") is None else {**self.kinds, **self.models}
        kinds = {key: kind for key, kind in known.items() if kind.estimators == estimators}
        if about["kind"] not in kinds:
            raise self.error(
                f"{name} holds a {about['kind']!r}, which is not a {self.sort}: {suggest(about['kind'], kinds)}"
            )
        kind = kinds[about["kind"]]
        _check_about(about)
        try:
            model = kind.from_parameters(about["parameters"])
        except DrstreamError as error:
            raise ValueError(error) from None
        for key in kind.kept:
            value = values.get(key)
            if value is None:
                raise self.error(f"{name} lacks {key!r}: it is damaged. {self.again}")
            setattr(model, key, value)
        model.labels_, model.n_actions = about["labels"], len(about["labels"])
        model.features_ = None if about["features"] is None else tuple(about["features"])
        model.encoding_ = _encoding(about)
        model.pairs_ = Pairs.from_dict(about.get("pairs"))
        if model.pairs_ is not None and model.pairs_.context != about["n_features"]:
            raise ValueError(f"pairs of {model.pairs_.context} features for {about['n_features']} of the fit")
        model.n_features_, model.n_events_ = about["n_features"], about["n_events"]
        model.reward_range_ = float(about["reward_range"][0]), float(about["reward_range"][1])
        model.skipped_, model.reward_ = about["skipped"], about["reward"]
        model.fitted_on = None if about["fitted_on"] is None else Origin.from_dict(about["fitted_on"])
        model.models_of = tuple(map(Origin.from_dict, about.get("models_of", ())))
        model.check_arrays()
        return model

    def _read_skops(self, name: str, trusted: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the contents of the file, and the types that are yet to be checked."""
        skops = _skops(self.error)
        data = Path(name).read_bytes()
        self._read(name, lambda: check_skops(data))
        unknown = sorted(set(self._read(name, lambda: skops.get_untrusted_types(data=data))) - set(trusted))
        if not set(unknown) <= set(self.checked):
            raise untrusted(name, unknown, self.error)
        state = self._read(name, lambda: skops.loads(data, trusted=[*trusted, *unknown]))
        if not isinstance(state, dict):
            raise self.error(f"{name} was not written by {self.sort}.save()")
        return state, unknown


def _members(path: Any) -> list[str]:
    """Return the names in a zip file; none if it is something else. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        data = file.read(4)
        if not data.startswith(b"PK"):
            return []
        try:
            with zipfile.ZipFile(file) as archive:
                return archive.namelist()
        except Exception:  # zipfile raises BadZipFile, NotImplementedError, UnicodeError and others for damaged files
            return []


WHOLE = {"n_features": 0, "n_events": 1}  # numbers in a file, and the least that they can be


def _check_about(about: dict[str, Any]) -> None:
    """Check the types of all that a file holds beside arrays and parameters: it may be crafted."""
    labels, rewards = about["labels"], about["reward_range"]
    kinds = {type(label) for label in labels} if isinstance(labels, list) else set()
    if kinds not in ({int}, {str}) or len(set(labels)) < len(labels):
        raise ValueError("its labels are not distinct integers or strings")
    for name, least in WHOLE.items():
        if type(about[name]) is not int or not least <= about[name] < 2**53:
            raise ValueError(f"{name} is {about[name]!r}")
    if not isinstance(rewards, list | tuple) or [type(r) in (int, float) for r in rewards] != [True, True]:
        raise ValueError(f"its reward_range is {rewards!r}")
    features = about["features"]
    if features is not None and not all(isinstance(name, str) for name in features):
        raise ValueError("its features are not names")
    skipped = about["skipped"]
    if not all(isinstance(reason, str) and type(count) is int for reason, count in skipped.items()):
        raise ValueError("its counts of bad rows are not numbers")
    if not isinstance(about["reward"], str):
        raise ValueError(f"its reward is {about['reward']!r}")


def _encoding(about: dict[str, Any]) -> Encoding | None:
    """Return the encoding in a file. Older files have names of numeric columns instead."""
    if about["features"] is None:
        return None
    found = about.get("encoding")
    encoding = Encoding.of_numbers(about["features"]) if found is None else Encoding.from_dict(found)
    if encoding.n_features != int(about["n_features"]):
        raise ValueError(f"{encoding.n_features} features of the encoding for {about['n_features']} of the fit")
    return encoding


def untrusted(name: str, types: Sequence[str], kind: type[DrstreamError]) -> DrstreamError:
    return kind(
        f"{name} holds types that could do harm in a file from someone else: {', '.join(types)}. If you trust who "
        f"wrote it, pass trusted={list(types)} to load()"
    )


def _skops(kind: type[DrstreamError]) -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError:
        raise kind(
            "estimators of scikit-learn are saved and loaded with skops only, as a pickle can run any code when it is "
            "read: pip install skops"
        ) from None


def check_skops(data: bytes) -> None:
    """Raise an error if a file of skops declares more than it holds, or has sparse arrays that point outside."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        check_sizes(file)
        sizes = {member.filename: member.file_size for member in file.infolist()}
        for name in sizes:
            if name.endswith(".npy"):
                with file.open(name) as member:
                    check_header(member, sizes[name])
            elif name.endswith(".npz"):
                _check_sparse(file.read(name))
        used = sum(sizes.get(name, 0) for name in _files_of(json.loads(file.read("schema.json"))))
    if used > REFERENCES * len(data):
        raise ValueError(f"it refers to {used:,} bytes, of {len(data):,} that it has")


def _files_of(node: Any) -> Iterator[str]:
    """Yield the files that nodes of a schema refer to."""
    left = [node]
    while left:  # not recursive: a file may nest as deep as JSON is parsed
        node = left.pop()
        if isinstance(node, dict):
            left += node.values()
            if isinstance(node.get("file"), str):
                yield node["file"]
        elif isinstance(node, list):
            left += node


def _check_sparse(data: bytes) -> None:
    """Check a sparse array of SciPy, which trusts indices in files."""
    from scipy.sparse import load_npz

    with zipfile.ZipFile(io.BytesIO(data)) as file:
        total = sum(member.file_size for member in file.infolist())
        if total > max(MOST, RATIO * len(data)):
            raise ValueError(f"a sparse array in it takes {total:,} bytes, of {len(data):,} that are stored")
        unknown = {name.removesuffix(".npy") for name in file.namelist()} - SPARSE
        if unknown:
            raise ValueError(f"a sparse array in it has {min(unknown)!r}, which SciPy does not write")
        for member in file.infolist():
            with file.open(member) as array:
                check_header(array, member.file_size)
    found = load_npz(io.BytesIO(data))
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)
