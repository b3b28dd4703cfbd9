"""The cases of models: fits against those of scikit-learn, and cross-fitting."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import drstream as drs
from bench.common import logs, racing
from bench.common.selecting import main_names
from bench.evaluation import cases as evaluation

MODELS = {"Ridge": drs.models.Ridge, "Logistic": drs.models.Logistic, "Propensity": drs.models.Propensity}
FIT_PAIRS = 3  # fits of scikit-learn take seconds
CHOICE_ROWS = min(1_000_000, logs.ROWS)  # a row takes scikit-learn's multinomial fit three times as long as other fits


def fit(name: str, log: Any) -> Any:
    return MODELS[name]().fit(drs.Log(log, actions=logs.ACTIONS), threads=racing.THREADS)


@dataclass(frozen=True)
class Fit:
    """A model, and the type of the contexts that scikit-learn gets. The log has float32."""

    model: str
    log: logs.LogFile
    kind: str
    parity: float  # maximum difference of predictions; for Ridge, relative to the largest prediction
    required: float | None = None  # minimum ratio to scikit-learn's throughput; None: for information
    pairs: int = FIT_PAIRS

    @property
    def baseline(self) -> str:
        estimators = {"Ridge": "Ridge for each action", "Logistic": "LogisticRegression for each action"}
        return f"{estimators.get(self.model, 'LogisticRegression, multinomial')}, {self.kind}"

    def __str__(self) -> str:
        return f"fit of {self.model}, {self.log}, against {self.baseline}"


# The requirement for Ridge is about float64, because scikit-learn's predictions in float32 are off by 1e-5.
# LogisticRegression stops at tol=1e-4. Its predictions are then off by up to 0.0018 at 200,000 rows, and 0.0012 at
# 5 million, in either type, so it gets the faster type. A separate check compares drstream with tol=1e-8.
STOPPED = 2e-3
FITS = [
    Fit("Ridge", logs.WIDE, "float64", parity=1e-8, required=1.0),
    Fit("Ridge", logs.WIDE, "float32", parity=1e-4),
    Fit("Logistic", logs.WIDE, "float32", parity=STOPPED, required=1.0),
    Fit("Propensity", logs.LogFile("wide", "snappy", CHOICE_ROWS), "float32", parity=STOPPED, required=1.0),
]

# Cross-fitting

FOLDS = 5
CROSSFIT_PAIRS = 3


@dataclass(frozen=True, eq=False)
class CrossFitted(evaluation.Task):
    """Fits its models within the measured time."""

    def run(self, source: Any, **more: Any) -> drs.Evaluation:
        log = drs.Log(source, actions=logs.ACTIONS)
        how = {"crossfit": FOLDS, "threads": racing.THREADS, **more}
        return drs.evaluate(log, self.policies, drs.models.Ridge(), self.estimators, **how)


CROSSFIT = CrossFitted(f"{evaluation.FOUR.name}, ridge model in {FOLDS} folds", evaluation.FOUR.policies)
FITTED = "drstream, with a model fitted before"
IN_SEQUENCE = "drstream, one fit and then one evaluation"


@dataclass(frozen=True)
class Crossfit:
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: for information
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"{CROSSFIT.name}, {logs.WIDE}, against {self.baseline}"


CROSSFITS = [
    Crossfit(IN_SEQUENCE, required=0.7, main="cross-fitting in 5 folds, against one fit and one evaluation"),
    Crossfit(FITTED),
]


def in_sequence(source: Any) -> drs.Evaluation:
    """Fits one model on the whole log and evaluates with it. As an estimate it is wrong: it uses its events twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # drstream says so
        log, model = drs.Log(source, actions=logs.ACTIONS), fit("Ridge", source)
        return drs.evaluate(log, CROSSFIT.policies, model, CROSSFIT.estimators, threads=racing.THREADS)


MAIN = main_names(CROSSFITS)
NAMES = [*map(str, FITS), *map(str, CROSSFITS)]
