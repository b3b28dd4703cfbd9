"""Policies and models written as words on the command line."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drstream import models
from drstream import policies as kinds
from drstream.errors import DrstreamError, LogError, ModelError, PolicyError, near
from drstream.log import Log, Sparse
from drstream.models.crossfit import fit, to_be_fitted
from drstream.models.propensity import PropensityModel

POLICIES = ("uniform", "constant:LABEL", "column:NAME", "softmax:FILE.npz", "linear:FILE.npz", "python:MODULE:OBJECT")
LEARNERS = {  # word -> class of drstream.policies, and its parameters
    "epsilon-greedy": ("EpsilonGreedy", ("epsilon", "epsilon_decay", "learning_rate", "learning_rate_decay", "loss")),
    "boltzmann": ("Boltzmann", ("temperature", "cooling", "learning_rate", "learning_rate_decay", "loss")),
    "square-cb": ("SquareCB", ("gamma", "exponent", "learning_rate", "learning_rate_decay", "loss")),
    "linucb": ("LinUCB", ("alpha", "ridge")),
    "ucb1": ("UCB1", ("scale",)),
    "exp3": ("Exp3", ("gamma",)),
}
TO_FIT = ("ridge", "ridge:ALPHA", "logistic", "logistic:C", "propensity", "propensity:C")
MODELS = (*TO_FIT[:4], "FILE.npz", "constant:VALUE", "column:NAME", "python:MODULE:OBJECT")
PROPENSITIES = ("logistic", "logistic:C", "FILE.npz", "uniform", "python:MODULE:OBJECT")
MODEL_FILES = (".npz", ".skops")


def actions(text: str | None) -> int | list[Any] | None:
    """`10`, or `web,news,movie`."""
    if text is None:
        return None
    labels: list[Any] = [_int_or_text(label.strip()) for label in text.split(",")]
    if len(labels) == 1 and isinstance(labels[0], int):
        return labels[0]
    return labels if all(isinstance(label, int) for label in labels) else [label.strip() for label in text.split(",")]


def policies(texts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for text in texts:
        name, spec = _name(text)
        _check_new(name, spec, named)
        named[name] = _policy(spec, labels)
    return named


def online_policies(texts: Sequence[str], labels: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Policies that learn, as `epsilon-greedy` or `a=linucb:alpha=0.5,ridge=2`, and fixed ones as above.

    `given` are parameters for all policies that have them, e.g. of --epsilon.
    """
    named: dict[str, Any] = {}
    unused = set(given)
    for text in texts:
        name, spec = _name(text)
        _check_new(name, spec, named)
        kind, _, rest = spec.partition(":")
        if kind in LEARNERS:
            known = LEARNERS[kind][1]
            unused -= set(known)
            parameters = {key: value for key, value in given.items() if key in known}
            named[name] = getattr(kinds, LEARNERS[kind][0])(**{**parameters, **_parameters(rest, known, spec)})
        else:
            named[name] = _policy(spec, labels, (*LEARNERS, *POLICIES))
    if unused:
        option = "--" + min(unused).replace("_", "-")
        raise PolicyError(f"{option} is a parameter of none of the policies {', '.join(named)}")
    return named


def _parameters(text: str, known: Sequence[str], spec: str) -> dict[str, Any]:
    """`alpha=0.5,ridge=2`."""
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key in found:
            raise PolicyError(f"--policy {spec!r}: {key} is given twice")
        if not equals or key not in known:
            raise PolicyError(f"--policy {spec!r}: {key!r} is not a parameter of it: {near(key, known)}")
        try:
            found[key] = float(value) if key != "loss" else value
        except ValueError:
            raise PolicyError(f"--policy {spec!r}: {key}={value!r} is not a number") from None
    return found


def numbers(text: str, option: str, kind: Callable[[str], Any] = float) -> list[Any]:
    """`0,0.01,0.05`."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise DrstreamError(f"{option} {text!r}: write numbers, separated by commas") from None


def _check_new(name: str, spec: str, named: dict[str, Any]) -> None:
    if name in named:
        raise PolicyError(f"two policies are called {name!r}: name one of them, e.g. --policy other={spec}")


def _name(text: str) -> tuple[str, str]:
    """`new=softmax:w.npz` is called new; without a name, a policy is called as it is written."""
    name, equals, spec = text.partition("=")
    return (name, spec) if equals and ":" not in name and name and spec else (text, text)


def _policy(spec: str, labels: Sequence[Any], all_forms: Sequence[str] = POLICIES) -> Any:
    kind, _, rest = spec.partition(":")
    made: dict[str, Callable[[], Any]] = {
        "uniform": kinds.Uniform,
        "constant": lambda: kinds.Constant(_label(rest, labels)),
        "column": lambda: kinds.Column(rest),
        "softmax": lambda: kinds.Softmax(**_weights(rest, ("temperature",))),
        "linear": lambda: kinds.Linear(**_weights(rest)),
        "python": lambda: _python(rest, PolicyError),
    }
    if kind not in made or bool(rest) == (kind == "uniform"):
        if kind in LEARNERS:
            raise PolicyError(f"--policy {spec!r} learns while it runs: drstream replay is for such policies")
        meant = near(kind, [form.partition(":")[0] for form in all_forms])
        hint = f", {meant}" if meant.startswith("did") else "."
        raise PolicyError(f"--policy {spec!r} is not a policy{hint} A policy is one of: {', '.join(all_forms)}")
    return made[kind]()


def _label(text: str, labels: Sequence[Any]) -> Any:
    """The label that is written so."""
    for label in labels if not isinstance(labels, range) else ():
        if str(label) == text:
            return label
    return _int_or_text(text)


def _int_or_text(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def _weights(path: str, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """Arrays `weights` (K, d) and perhaps `intercept` (K) of an .npz file."""
    if not Path(path).is_file():
        raise PolicyError(f"no such file: {path!r}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception:
        raise PolicyError(f"{path} is not an .npz file of numeric arrays, as numpy.savez writes them") from None
    if "weights" not in found:
        raise PolicyError(f"{path} holds no array 'weights' (actions x features): {near('weights', found)}")
    known = {"weights", "intercept", *others}
    unknown = sorted(set(found) - known)
    if unknown:
        raise PolicyError(f"{path} holds an array {unknown[0]!r} that is not known: {near(unknown[0], known)}")
    for name in set(others) & set(found):
        if found[name].size != 1:
            raise PolicyError(f"{path}: {name!r} must be one number")
        found[name] = found[name].item()
    return found


def _python(spec: str, kind: type[DrstreamError]) -> Any:
    """`module:object`, imported with the current folder on the path. What is imported is trusted."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise kind(f"python:{spec}: write python:MODULE:OBJECT")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise kind(f"python:{spec} cannot be imported: {error}") from None
    if isinstance(found, type):
        try:
            return found()
        except TypeError as error:
            raise kind(f"python:{spec} is a class that cannot be made without arguments: {error}") from None
    return found


@dataclass(frozen=True)
class Fitting:
    """How models that are named by a word are fitted: by fold, or on a share of the log, which is then left out."""

    share: float
    seed: int
    crossfit: int | None
    cluster: str | None
    fold_seed: int
    threads: int | None


def fitted_models(
    model_text: str | None,
    propensity_text: str | None,
    inflation: float | None,
    floor: float | None,
    clamped: str | None,
    log: Log,
    how: Fitting,
) -> tuple[dict[str, Any], Log]:
    """What `evaluate` and `replay` are told of models, and the log that is left for them."""
    limits = {name: value for name, value in (("inflation", inflation), ("floor", floor)) if value is not None}
    model = None if model_text is None else _model(model_text)
    propensity = None if propensity_text is None else _propensity(propensity_text, limits)
    if limits and propensity is None:
        raise ModelError(f"--{min(limits).replace('_', '-')} is about --propensity-model, and there is none")
    for known in (model, propensity):
        log = _less_what_it_knows(known, log)
    waiting: list[Any] = [m for m in (model, propensity) if to_be_fitted(m)]
    if waiting and how.crossfit is None:
        train, log = log.split(how.share, how.seed, how.cluster)
        for one in waiting:
            fit(one, train, threads=how.threads, progress=True)
    told: dict[str, Any] = {"model": model, "propensity": propensity, "clamp": _clamp(clamped)}
    if how.crossfit is not None:
        told |= {"crossfit": how.crossfit, "cluster": how.cluster, "fold_seed": how.fold_seed}
    return told, log


def _less_what_it_knows(model: Any, log: Log) -> Log:
    """The rest of a log on a split of which the model was fitted: for models from files."""
    origin = getattr(model, "fitted_on", None)
    if origin is None or origin.keys != log.origin.keys or not origin.shares_rows_with(log.origin):
        return log
    return log.part_of(origin.splits[-1].complement) if origin.splits else log


def model_to_fit(text: str, *, weights: str | None = None, shared: bool = False) -> Any:
    """For `drstream fit`: ridge, logistic or propensity."""
    kind, _, rest = text.partition(":")
    if kind == "ridge":
        return models.Ridge(_number(rest, text) if rest else 1.0, shared=shared, weights=weights)
    if weights is not None or shared:
        raise ModelError(f"--{'shared' if shared else 'weights'} is for --model ridge")
    if kind in ("logistic", "propensity"):
        made = models.Logistic if kind == "logistic" else models.Propensity
        return made(_number(rest, text) if rest else 1.0)
    raise ModelError(f"--model {text!r} cannot be fitted: one of {', '.join(TO_FIT)}")


def _model(text: str) -> Any:
    kind, _, rest = text.partition(":")
    if kind in ("ridge", "logistic"):
        return model_to_fit(text)
    if kind == "constant" and rest:
        return models.Constant(_number(rest, text))
    if kind == "column" and rest:
        return models.Column(*rest.split(","))
    if kind == "python":
        return _python(rest, ModelError)
    if Path(text).suffix in MODEL_FILES or Path(text).is_file():
        found = models.load(text)
        if isinstance(found, PropensityModel):
            raise ModelError(f"--model {text}: a {type(found).__name__} is for --propensity-model")
        return found
    raise ModelError(f"--model {text!r} is not a model: one of {', '.join(MODELS)}")


def _propensity(text: str, limits: dict[str, Any]) -> Any:
    kind, _, rest = text.partition(":")
    if kind in ("logistic", "propensity"):
        return models.Propensity(_number(rest, text) if rest else 1.0, **limits)
    if Path(text).suffix in MODEL_FILES or Path(text).is_file():
        found = models.load(text)
        if not isinstance(found, PropensityModel):
            raise ModelError(f"--propensity-model {text}: a {type(found).__name__} is for --model")
        found.set_limits(limits.get("inflation", found.inflation), limits.get("floor", found.floor))
        return found
    if limits:
        raise ModelError(f"--propensity-model {text}: inflation and floor are for models that are fitted")
    if kind == "uniform" and not rest:
        return kinds.Uniform()
    if kind == "python":
        return _python(rest, ModelError)
    raise ModelError(f"--propensity-model {text!r} is not a model: one of {', '.join(PROPENSITIES)}")


def sparse(text: str) -> Sparse:
    """`indices,values,47236`, or `indices,47236`."""
    *columns, dim = text.split(",")
    if not 1 <= len(columns) <= 2 or not dim.strip().isdigit():
        raise LogError(f"--sparse {text!r}: write INDICES,VALUES,DIM or INDICES,DIM")
    names = [name.strip() for name in columns]
    return Sparse(names[0], names[1] if len(names) > 1 else None, int(dim))


def _clamp(text: str | None) -> Any:
    """`0,1`, or `range`: that of the rewards that the model was fitted on."""
    if text is None or text == "range":
        return None if text is None else True
    pair = numbers(text, "--clamp")
    if len(pair) != 2:
        raise DrstreamError(f"--clamp {text!r}: write LOW,HIGH or range")
    return tuple(pair)


def _number(text: str, spec: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ModelError(f"model {spec!r}: {text!r} is not a number") from None
