"""Policies and models written as words on the command line."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drstream import models
from drstream import policies as kinds
from drstream.cli.options import int_or_text, numbers
from drstream.errors import DrstreamError, ModelError, PolicyError, closest, suggest
from drstream.log import Log
from drstream.log.schema import is_string
from drstream.models.crossfit import to_be_fitted
from drstream.models.propensity import PropensityModel
from drstream.models.saved import NOT_OURS
from drstream.models.trained import Trained
from drstream.optimize.base import Learned
from drstream.optimize.losses import FOLDS

POLICIES = (
    "uniform",
    "constant:LABEL",
    "constant:LABEL,otherwise=POLICY",
    "column:NAME",
    "softmax:FILE.npz",
    "linear:FILE.npz",
    "greedy:MODEL",
    "greedy:MODEL,epsilon=E",
    "python:MODULE:OBJECT",
    "FILE of drstream optimize",
)
TO_FIT = ("ridge", "ridge:ALPHA", "logistic", "logistic:C", "propensity", "propensity:C")
INTERACTIONS = "interactions"  # after a model, for a log of candidates: ridge:1:interactions
MODELS = (*TO_FIT[:4], "FILE.npz", "constant:VALUE", "column:NAME", "positions:NAME,NAME", "python:MODULE:OBJECT")
PROPENSITIES = ("logistic", "logistic:C", "FILE.npz", "uniform", "python:MODULE:OBJECT")
MODEL_FILES = (".npz", ".skops")


def learners() -> dict[str, type]:
    """Return the compiled online policies by their names on the command line."""
    from drstream.policies import learners as found

    return {_word(kind): kind for kind in (getattr(found, name) for name in found.__all__)}


def optimizers() -> dict[str, type]:
    """Return the learners of drstream.optimize that learn from losses, by their names on the command line."""
    from drstream import optimize

    kinds = (getattr(optimize, name) for name in optimize.__all__)
    return {
        _word(kind): kind
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Learned) and kind is not optimize.ProgressivePolicy
    }


def _word(kind: type) -> str:
    """Return the name of a class on the command line: its `word` or, for EpsilonGreedy, epsilon-greedy.

    >>> _word(kinds.SquareCB), _word(kinds.LinUCB)
    ('square-cb', 'linucb')
    """
    return getattr(kind, "word", "") or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def _parameters_of(kind: type) -> list[str]:
    """Return the parameters that can be written as numbers or words. Others are objects, e.g. a base classifier."""
    found = inspect.signature(kind).parameters.values()
    return [p.name for p in found if isinstance(p.default, int | float | str) or "float" in str(p.annotation)]


def policies(texts: Sequence[str], labels: Log | Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for text in texts:
        name, spec = _name(text)
        _check_new(name, spec, named)
        named[name] = _policy(spec, labels)
    return named


def online_policies(texts: Sequence[str], labels: Log | Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Parse online policies, e.g. `epsilon-greedy` or `a=linucb:alpha=0.5,ridge=2`, and fixed policies.

    `given` are parameters for every policy that has them, e.g. from --epsilon.
    """
    named: dict[str, Any] = {}
    unused = set(given)
    for text in texts:
        name, spec = _name(text)
        _check_new(name, spec, named)
        kind, _, _ = spec.partition(":")
        if kind in learners():
            known = _parameters_of(learners()[kind])
            unused -= set(known)
            named[name] = _online(spec, {key: value for key, value in given.items() if key in known})
        else:
            named[name] = _policy(spec, labels, (*learners(), *POLICIES))
    if unused:
        option = "--" + min(unused).replace("_", "-")
        raise PolicyError(f"{option} is a parameter of none of the policies {', '.join(named)}")
    return named


def _online(spec: str, given: dict[str, Any], option: str = "--policy") -> Any:
    kind, _, rest = spec.partition(":")
    made = learners()[kind]
    return made(**{**given, **_parameters(rest, made, spec, option)})


def _parameters(text: str, kind: type, spec: str, option: str) -> dict[str, Any]:
    """Parse parameters, e.g. `alpha=0.5,ridge=2`."""
    found: dict[str, Any] = {}
    known, usual = _parameters_of(kind), inspect.signature(kind).parameters
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key in found:
            raise PolicyError(f"{option} {spec!r}: {key} is given twice")
        if not equals or key not in known:
            raise PolicyError(f"{option} {spec!r}: {key!r} is not a parameter of it: {suggest(key, known)}")
        try:
            found[key] = value if isinstance(usual[key].default, str) else _number_or_truth(value)
        except ValueError:
            raise PolicyError(f"{option} {spec!r}: {key}={value!r} is not a number") from None
    return found


def _number_or_truth(text: str) -> float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)  # a seed may have more digits than a float
    except ValueError:
        value = float(text)
        return int(value) if value.is_integer() else value


def _check_new(name: str, spec: str, named: dict[str, Any]) -> None:
    if name in named:
        raise PolicyError(f"two policies are called {name!r}: name one of them, e.g. --policy other={spec}")


def _name(text: str) -> tuple[str, str]:
    """Return the name and the rest: `new=softmax:w.npz` has the name new. Without one, the whole text is the name."""
    name, equals, spec = text.partition("=")
    if Path(text).is_file():
        return text, text
    return (name, spec) if equals and ":" not in name and name and spec else (text, text)


def _policy(spec: str, labels: Log | Sequence[Any], all_forms: Sequence[str] = POLICIES) -> Any:
    kind, _, rest = spec.partition(":")
    made: dict[str, Callable[[], Any]] = {
        "uniform": kinds.Uniform,
        "constant": lambda: _constant(rest, labels),
        "column": lambda: kinds.Column(rest),
        "softmax": lambda: kinds.Softmax(**_weights(rest, ("temperature",))),
        "linear": lambda: kinds.Linear(**_weights(rest)),
        "greedy": lambda: _greedy(rest, spec),
        "python": lambda: _python(rest, PolicyError),
    }
    if kind not in made or bool(rest) == (kind == "uniform"):
        misspelt = bool(rest) and bool(closest(kind, made))  # greedi:model.npz is no file of this name
        if Path(spec).is_file() or (Path(spec).suffix in MODEL_FILES and not misspelt):
            return _learned(spec)
        if kind in learners():
            raise PolicyError(f"--policy {spec!r} learns while it runs: drstream replay is for such policies")
        raise _unknown("policy", spec, all_forms)
    return made[kind]()


def _constant(text: str, labels: Log | Sequence[Any]) -> Any:
    """Make a policy of a label, e.g. `a`, or `a,otherwise=uniform` for a log with eligible sets."""
    label, otherwise, policy = text.partition(",otherwise=")
    return kinds.Constant(_label(label, labels), _policy(policy, labels) if otherwise else None)


def _greedy(text: str, spec: str) -> Any:
    """Make a policy of a reward model, e.g. `model.npz`, `column:rhat` or `model.npz,epsilon=0.1`."""
    model, comma, parameters = text.rpartition(",")
    if not comma or "=" not in parameters:
        model, parameters = text, ""
    return kinds.Greedy(_model(model, "policy greedy:"), **_parameters(parameters, kinds.Greedy, spec, "--policy"))


def _unknown(option: str, text: str, forms: Sequence[str]) -> PolicyError:
    return PolicyError(
        f"--{option} {text!r} is not a {option}{_near(text, forms)} A {option} is one of: {', '.join(forms)}"
    )


def _near(text: str, forms: Sequence[str]) -> str:
    """Return the words that may be meant, with a comma before them; or a full stop."""
    meant = closest(text.partition(":")[0], dict.fromkeys(form.partition(":")[0] for form in forms))
    return f", did you mean {' or '.join(map(repr, meant))}?" if meant else "."


def _learned(path: str) -> Any:
    """Load a policy that drstream optimize wrote."""
    from drstream import optimize

    try:
        return optimize.load(path)
    except PolicyError as error:
        if Path(path).is_file() and error.kind == NOT_OURS:
            error = PolicyError(f"{error}. An .npz of weights is written as linear:{path} or softmax:{path}")
        raise error from None


def _label(text: str, labels: Log | Sequence[Any]) -> Any:
    """Return the label that this text stands for. Only here does a log have to find its labels."""
    if isinstance(labels, Log) and labels.has_candidates:
        ids = labels.candidates.ids_type
        return text if ids is not None and is_string(ids) else int_or_text(text)
    labels = labels.labels if isinstance(labels, Log) else labels
    for label in labels if not isinstance(labels, range) else ():
        if str(label) == text:
            return label
    return int_or_text(text)


def _weights(path: str, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read the arrays `weights` (K, d) and perhaps `intercept` (K) from an .npz file.

    Those of candidates are `weights` (d + m) and perhaps `interactions` (d, m).
    """
    if not Path(path).is_file():
        raise PolicyError(f"no such file: {path!r}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception:
        raise PolicyError(f"{path} is not an .npz file of numeric arrays, as numpy.savez writes them") from None
    if "weights" not in found:
        raise PolicyError(f"{path} holds no array 'weights' (actions x features): {suggest('weights', found)}")
    known = {"weights", "intercept", "interactions", *others}
    unknown = sorted(set(found) - known)
    if unknown:
        raise PolicyError(f"{path} holds an array {unknown[0]!r} that is not known: {suggest(unknown[0], known)}")
    for name in set(others) & set(found):
        if found[name].size != 1:
            raise PolicyError(f"{path}: {name!r} must be one number")
        found[name] = found[name].item()
    return found


def _python(spec: str, kind: type[DrstreamError]) -> Any:
    """Import `module:object`, with the current folder at the end of the path. Imported code is trusted."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise kind(f"python:{spec}: write python:MODULE:OBJECT")
    if "" not in sys.path:
        sys.path.append("")  # last: a file named as an installed module must not take its place
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
    """How models of the command line are fitted: by fold, or on a share of the log, which is then left out."""

    share: float
    seed: int
    crossfit: int | str | None
    cluster: str | None
    fold_seed: int
    threads: int | None
    executor: Any = None
    checkpoint: Path | None = None


def fitted_models(
    model_text: str | None,
    propensity_text: str | None,
    inflation: float | None,
    floor: float | None,
    clamped: str | None,
    log: Log,
    how: Fitting,
    second_text: str | None = None,
) -> tuple[dict[str, Any], Log, bool]:
    """Return the parameters of `evaluate` and `replay` about models, and the rows that are left for them.

    Also return whether models were fitted here, on a share of the log.
    """
    limits = {name: value for name, value in (("inflation", inflation), ("floor", floor)) if value is not None}
    model = None if model_text is None else _model(model_text)
    propensity = None if propensity_text is None else _propensity(propensity_text, limits)
    if limits and propensity is None:
        raise ModelError(f"--{min(limits).replace('_', '-')} is about --propensity-model, and there is none")
    second = None if second_text is None else _model(second_text)
    log = without_training_rows((model, propensity, second), log)
    waiting: list[Any] = [m for m in (model, propensity, second) if to_be_fitted(m)]
    fitted_here = bool(waiting) and how.crossfit is None
    if fitted_here:
        train, log = log.split(how.share, how.seed, how.cluster)
        for number, one in enumerate(waiting):
            if isinstance(one, Trained):
                kept = how.checkpoint is not None and one.keeps_passes
                path = f"{how.checkpoint}.fit{number}" if kept else None
                one.fit(train, threads=how.threads, executor=how.executor, progress=True, checkpoint=path)
            else:  # fit of a user's model may not take threads=
                one.fit(train)
    told: dict[str, Any] = {"model": model, "propensity": propensity, "clamp": _clamp(clamped)}
    if second is not None:
        told["second_model"] = second
    if how.crossfit is not None:
        told |= {"crossfit": how.crossfit, "cluster": how.cluster, "fold_seed": how.fold_seed}
    return told, log, fitted_here


def without_training_rows(users: Iterable[Any], log: Log) -> Log:
    """Return the log without the splits that models or policies, loaded from files, were fitted on."""
    origins = [o for user in users for o in (getattr(user, "fitted_on", None), *getattr(user, "models_of", ()))]
    for origin in origins:
        if origin is None or origin.keys != log.origin.keys or not origin.shares_rows_with(log.origin):
            continue
        if origin.splits:
            log = log.part_of(origin.splits[-1].complement)
    return log


def learner(text: str, horizon: int | None, q: float | None, c_max: float | None) -> Any:
    """Make a learner for `drstream optimize`: dlm, filter-tree, offset-tree, or an online policy to replay."""
    from drstream import optimize

    kind, _, rest = text.partition(":")
    if kind in learners():
        options = ("horizon", horizon), ("q", q), ("c_max", c_max)
        given: dict[str, Any] = {key: value for key, value in options if value is not None}
        return optimize.ProgressivePolicy(_online(text, {}, "--learner"), **given)
    if kind not in optimizers():
        raise _unknown("learner", text, (*optimizers(), *learners()))
    for option, value in (("horizon", horizon), ("q", q), ("c-max", c_max)):
        if value is not None:
            raise PolicyError(f"--{option} {value} is for learners that are replayed: {', '.join(learners())}")
    made = optimizers()[kind]
    return made(**_parameters(rest, made, text, "--learner"))


@dataclass(frozen=True)
class Learning:
    """The options of `drstream optimize` about losses, models and the split."""

    losses: str | None
    model: str | None
    propensity_model: str | None
    crossfit: int | None
    cluster: str | None
    fold_seed: int | None
    clamp: str | None
    share: float
    seed: int

    @property
    def estimator(self) -> str:
        return self.losses or "dr"

    def check(self, made: Any) -> None:
        """Raise an error if some option does not apply to this learner."""
        from drstream import optimize

        if self.estimator not in ("ips", "dr", "dm"):
            raise DrstreamError(f"--losses {self.losses!r}: {suggest(self.estimator, ('dr', 'ips', 'dm'))}")
        if not 0 < self.share <= 1:
            raise DrstreamError(f"--share {self.share:g}: there is nothing to learn from")
        options = ("losses", "model", "propensity_model", "crossfit", "fold_seed", "clamp")
        given = {name: getattr(self, name) for name in options if getattr(self, name) is not None}
        if isinstance(made, optimize.OffsetTree):
            self._refuse(given, options, "offset-tree, which learns from logged rewards without a model")
        if isinstance(made, optimize.ProgressivePolicy) and self.losses == "dm":
            raise DrstreamError("--losses dm: the replay of a policy that learns takes dr or ips")
        if self.estimator == "ips":
            self._refuse(given, ("model", "clamp"), "--losses ips, which needs no reward model")
        if self.estimator == "ips" and self.propensity_model is None:
            self._refuse(given, ("crossfit", "fold_seed"), "--losses ips, as there is no model to fit")
        if self.cluster is not None and self.share == 1 and self.estimator == "ips":
            raise DrstreamError(
                f"--cluster {self.cluster} is about the split of --share and about folds: there are none"
            )

    @staticmethod
    def _refuse(given: dict[str, Any], options: Sequence[str], why: str) -> None:
        for name in options:
            if name in given:
                raise DrstreamError(f"--{name.replace('_', '-')} {given[name]} is of no use for {why}: leave it out")


def optimized(made: Any, log: Log, asked: Learning, how: dict[str, Any]) -> Any:
    """Fit the learner on its share of the log, and return it."""
    from drstream import optimize

    asked.check(made)
    model = None if asked.estimator == "ips" else _model(asked.model or "ridge")
    propensity = None if asked.propensity_model is None else _propensity(asked.propensity_model, {})
    log = without_training_rows((model, propensity), log)
    if asked.share < 1:
        log = log.split(asked.share, asked.seed, asked.cluster)[0]
    if isinstance(made, optimize.OffsetTree):
        return made.fit(log, **how)
    folds = {
        "crossfit": FOLDS if asked.crossfit is None else asked.crossfit,
        "cluster": asked.cluster,
        "fold_seed": asked.fold_seed or 0,
    }
    models = {"propensity": propensity, **folds, "clamp": _clamp(asked.clamp)}
    if isinstance(made, optimize.ProgressivePolicy):
        return made.fit(log, model, **models, **how)
    return made.fit(optimize.impute(log, model, estimator=asked.estimator, **models, **how), **how)


def model_to_fit(text: str, *, weights: str | None = None, shared: bool = False) -> Any:
    """Make a model for `drstream fit`: ridge, logistic or propensity."""
    kind, _, rest = text.partition(":")
    more: dict[str, Any] = {}
    if kind in ("ridge", "logistic") and rest.rpartition(":")[2] == INTERACTIONS:
        rest, more = rest.rpartition(":")[0], {"interactions": True}
    if kind == "ridge":
        return models.Ridge(_number(rest, text) if rest else 1.0, shared=shared, weights=weights, **more)
    if weights is not None or shared:
        raise ModelError(f"--{'shared' if shared else 'weights'} is for --model ridge")
    if kind in ("logistic", "propensity"):
        made = models.Logistic if kind == "logistic" else models.Propensity
        return made(_number(rest, text) if rest else 1.0, **more)
    raise ModelError(f"--model {text!r} cannot be fitted{_near(text, TO_FIT)} A model is one of: {', '.join(TO_FIT)}")


def _model(text: str, option: str = "model ") -> Any:
    kind, _, rest = text.partition(":")
    if kind in ("ridge", "logistic"):
        return model_to_fit(text)
    if kind == "constant" and rest:
        return models.Constant(_number(rest, text))
    if kind == "column" and rest:
        return models.Column(*rest.split(","))
    if kind == "positions" and rest:
        return _positions(rest, text)
    if kind == "python":
        return _python(rest, ModelError)
    if Path(text).suffix in MODEL_FILES or Path(text).is_file():
        found = models.load(text)
        if isinstance(found, PropensityModel):
            raise ModelError(f"--{option}{text}: a {type(found).__name__} is for --propensity-model")
        return found
    raise ModelError(f"--{option}{text!r} is not a model{_near(text, MODELS)} A model is one of: {', '.join(MODELS)}")


def _positions(text: str, spec: str) -> Any:
    """Make predictions of rankings from columns, e.g. `q,q_new` or, for several policies, `q,new=q_new,old=q_old`."""
    shown, *others = (part.strip() for part in text.split(","))
    pairs = [(name.strip(), column.strip()) for name, _, column in (part.rpartition("=") for part in others)]
    if not pairs or not all(name and column for name, column in pairs[: None if len(pairs) > 1 else 0]):
        raise ModelError(f"--model {spec!r}: write positions:COLUMN,COLUMN or positions:COLUMN,POLICY=COLUMN,...")
    return models.Positions(shown, dict(pairs) if pairs[0][0] else pairs[0][1])


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
    raise ModelError(
        f"--propensity-model {text!r} is not a model{_near(text, PROPENSITIES)} A model is one of: "
        f"{', '.join(PROPENSITIES)}"
    )


def _clamp(text: str | None) -> Any:
    """Parse --clamp: `0,1`, or `range` for the range of rewards that the model was fitted on."""
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
