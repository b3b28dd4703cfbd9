"""Baselines of models: scikit-learn's fits, and the check that both sides predict the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import PARITY_ROWS, agree, contexts, estimates, exactly
from bench.evaluation import cases as evaluation
from bench.evaluation.baselines import plain_numpy
from bench.models import cases, sklearn_fits

CONVERGED = 1e-5  # maximum difference of predictions from those of scikit-learn at tol=1e-8
CONVERGED_ROWS = 150_000  # enough for drstream to start with a sample, as on the whole log


def fit_sklearn(case: cases.Fit) -> list:
    """Reads the log and fits it. This is the run that is timed."""
    pa.set_cpu_count(racing.THREADS)
    with threadpool_limits(racing.THREADS):
        return sklearn_fits.fit(case.model, sklearn_fits.read(case.log.path, case.kind, logs.FEATURES))


def check_parity(case: cases.Fit) -> tuple[float, int]:
    """Returns the largest difference of predictions, and the number of drstream's passes over the log."""
    head = ds.dataset(case.log.path).head(PARITY_ROWS)
    X = contexts(head)
    model = cases.fit(case.model, case.log.path)
    assert model.n_events_ == pq.read_metadata(case.log.path).num_rows
    difference = _difference(case.model, model.predict(X), fit_sklearn(case), X.astype(case.kind))
    assert difference <= case.parity, f"predictions differ by {difference:.2g}, more than {case.parity:g}"
    if case.model != "Ridge":
        off = _off(case)
        assert off <= CONVERGED, f"predictions differ by {off:.2g} from those at tol=1e-8, more than {CONVERGED:g}"
    return difference, getattr(model, "n_passes_", 1)  # Ridge takes one pass over dense contexts


def _off(case: cases.Fit) -> float:
    """How far drstream's predictions are from those of scikit-learn at tol=1e-8."""
    head = ds.dataset(case.log.path).head(CONVERGED_ROWS)
    X = contexts(head)
    events = X, head["action"].to_numpy(), head["reward"].to_numpy()
    converged = sklearn_fits.fit(case.model, events, tol=1e-8, max_iter=1000)
    return _difference(case.model, cases.fit(case.model, head).predict(X), converged, X)


def _difference(name: str, ours: np.ndarray, models: list, X: np.ndarray) -> float:
    theirs = sklearn_fits.predict(name, models, X)
    scale = np.abs(theirs).max() if name == "Ridge" else 1.0  # the others predict probabilities
    return float(np.abs(ours - theirs).max() / scale)


def check_crossfit() -> None:
    """Compares with cross-fitting by hand: scikit-learn's Ridge for each fold and action, fitted on the other folds."""
    task = cases.CROSSFIT
    head = ds.dataset(logs.WIDE.path).head(PARITY_ROWS)
    X, action, reward = contexts(head), head["action"].to_numpy(), head["reward"].to_numpy()
    fold = drs.Log(head).folds(cases.FOLDS).of(np.arange(len(head), dtype=np.uint64))
    rhat = np.empty((len(head), logs.ACTIONS))
    for f in range(cases.FOLDS):
        others, mine = fold != f, fold == f
        models = sklearn_fits.fit("Ridge", (X[others], action[others], reward[others]))
        rhat[mine] = sklearn_fits.predict("Ridge", models, X[mine])
    agree(estimates(task.run(head, **exactly())), plain_numpy(task, head, rhat))
    assert task.run(logs.WIDE.path).n == evaluation.FOUR.run(logs.WIDE.path).n == logs.WIDE.rows
