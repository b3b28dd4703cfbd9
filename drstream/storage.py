"""Files: fitted models and policies, saved and loaded without a pickle. A file is written whole or not at all.

Models and policies are arrays and JSON in an .npz file. skops saves estimators of scikit-learn.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drstream import archives
from drstream.errors import DrstreamError, because, suggest
from drstream.log.encoding import Encoding
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.rows import Origin

if TYPE_CHECKING:
    from drstream.models.trained import Trained

FORMAT = 1
SEVERAL = {"model": "models", "policy": "policies"}
AGAIN = {"model": "Fit the model again", "policy": "Learn the policy again"}  # advice if a file cannot be read
ABANDONED = 60.0  # seconds after which an unfinished file that nobody holds was left by a killed process
UNFINISHED = ".part"  # suffix of a file that is being written; a folder of data is read without them
NOT_OURS = "not ours"  # the kind of an error about a file that drstream did not write


def save(model: Trained, path: str | os.PathLike[str], policy: dict[str, Any] | None = None) -> None:
    """Write a fitted model or policy to a file, which appears only when it is complete.

    policy  Parameters of a policy that is made of the model.
    """
    model.require_fit()
    kept = {name: getattr(model, name) for name in model.kept}
    if model.estimators:
        data = _skops(model.error).dumps({**_about(model), "policy": policy, **kept})
        _write(path, lambda file: file.write(data), model.error)
    else:
        about = np.array(json.dumps({**_about(model), "policy": policy}))
        _write(path, lambda file: np.savez(file, about=about, **kept), model.error)


def check_savable(model: Trained) -> None:
    """Raise an error if the library that saves this model is not installed. To be called before the fit."""
    if model.estimators:
        _skops(model.error)


def _write(path: str | os.PathLike[str], write: Callable[[Any], Any], kind: type[DrstreamError]) -> None:
    try:
        with atomic_path(path) as unfinished, unfinished.open("wb") as file:
            write(file)
    except OSError as error:
        raise kind(f"cannot write {os.fspath(path)}: {because(error)}") from None


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
            names = archives.members(path)
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
        if "about.npy" not in names:
            raise self.error(
                f"{name} is not a {self.sort}: it was not written by {self.sort}.save() or "
                f"drstream {'fit' if self.sort == 'model' else 'optimize'}, or it is damaged",
                kind=NOT_OURS,
            )
        about = self._read(name, lambda: json.loads(_text(archives.read_array(path, "about"))))
        arrays = _Members(lambda key: self._read(name, lambda: archives.read_array(path, key)))
        return self._finished(name, self._restore(name, about, arrays, estimators=False), about)

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

    def _restore(self, name: str, about: Any, values: dict[str, Any] | _Members, *, estimators: bool) -> Trained:
        try:
            return self._model(name, about, values, estimators)
        except DrstreamError:
            raise
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise self.error(
                f"{name} lacks what a saved {self.sort} has ({error}): it is damaged. {self.again}"
            ) from None

    def _model(self, name: str, about: Any, values: dict[str, Any] | _Members, estimators: bool) -> Trained:
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
        self._read(name, lambda: archives.check_skops(data))
        unknown = sorted(set(self._read(name, lambda: skops.get_untrusted_types(data=data))) - set(trusted))
        if not set(unknown) <= set(self.checked):
            raise untrusted(name, unknown, self.error)
        state = self._read(name, lambda: skops.loads(data, trusted=[*trusted, *unknown]))
        if not isinstance(state, dict):
            raise self.error(f"{name} was not written by {self.sort}.save()")
        return state, unknown


def _text(array: Any) -> bytes:
    """Return the text in an array. NumPy takes any number for a character, also those that Python cannot handle."""
    if array.dtype.kind != "U" or array.ndim:
        raise ValueError("what it says about itself is not text")
    if array.reshape(1).view(np.uint32).max(initial=0) > sys.maxunicode:
        raise ValueError("what it says about itself has characters that do not exist")
    return str(array).encode()


class _Members:
    """Arrays of a file, which are read when they are asked for: nothing else in the file is."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.get = read


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


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path to write to. At the end, the file is renamed to `path`. After an error, it is deleted.

    Its name is its own, so two processes that write to one path do not mix: the last one wins, and its file is whole.
    The bytes are on the disk before the name is, so that a machine that stops leaves the old file or the new one.
    """
    folder, name = os.path.split(os.fspath(path))
    folder, name = folder or ".", f".{name[:100]}."
    _sweep(folder, name)
    unfinished = os.path.join(folder, f"{name}{secrets.token_hex(8)}{UNFINISHED}")
    handle = -1
    try:  # the name is known before the file is there, so that a Ctrl-C leaves nothing
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        _lock(handle)
        yield Path(unfinished)
        os.chmod(unfinished, 0o666 & ~_umask())  # until now, only the owner could read it
        _sync(unfinished)
        os.replace(unfinished, path)
        _sync(folder)
    finally:
        with suppress(OSError):
            os.unlink(unfinished)
        with suppress(OSError):
            os.close(handle)


def _lock(handle: int) -> bool:
    """Hold an open file until it is closed, or the process ends. Return False if another process holds it."""
    try:
        fcntl = importlib.import_module("fcntl")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):  # other systems, and some file systems, have no such locks
        return False
    return True


_swept: set[tuple[str, str]] = set()


def _sweep(folder: str, name: str) -> None:
    """Delete what killed processes have left of a file: unfinished ones that nobody holds. Once for each name."""
    place = os.path.abspath(folder), name
    if place in _swept:
        return
    _swept.add(place)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(name) and entry.name.endswith(UNFINISHED):
                _delete_if_left(entry.path)


def _delete_if_left(path: str) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            old = time.time() - os.fstat(handle).st_mtime > ABANDONED
            if old and _lock(handle):
                os.unlink(path)
        finally:
            os.close(handle)


def _sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk, where the file system can tell."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)  # here, some file systems say first that the disk is full
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):  # they do not sync folders
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    """Return the mask of permissions for new files. Setting it, the only other way to read it, disturbs threads."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
