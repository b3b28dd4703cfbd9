"""Fits of folds side by side, in the same passes: as one by one."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import drstream as drs
from drstream.errors import ModelError
from drstream.log import Reader
from drstream.log.rows import Folds
from drstream.models import logistic_fit, passes, ridge, together
from drstream.models.trained import Trained
from drstream.running import execution
from drstream.running.execution import Workers
from tests.helpers.cut import cut_log
from tests.helpers.logs import log_of
from tests.helpers.passes import PLAIN, not_plain

ROWS, D, K = (200 if PLAIN else 4_000), 4, 3
FOLDS = Folds(4, seed=2)
SAME = 1e-9  # of predictions: sums are added in another order, and the steps of a fit follow from them
MODELS = {
    "ridge": drs.models.Ridge(0.5),
    "shared": drs.models.Ridge(shared=True, weights="1/p"),
    "no intercept": drs.models.Ridge(fit_intercept=False),
    "logistic": drs.models.Logistic(0.5),
    "propensity": drs.models.Propensity(0.5),
}
FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
NAMED = pytest.mark.parametrize("name", MODELS)


def draw(sparse=False, path=None, K=K):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, D)) * (rng.random((ROWS, D)) < 0.7)
    a = (0.5 * X @ rng.standard_normal((D, K)) + rng.gumbel(size=(ROWS, K))).argmax(axis=1)
    r = (rng.random(ROWS) < 1 / (1 + np.exp(-X @ rng.standard_normal(D)))).astype(float)
    return X, log_of(X, a, r, sparse=sparse, path=path)


def one_by_one(model, log):
    return Trained.fit_folds(model, log, FOLDS, Workers(1))


@FORMS
@NAMED
@pytest.mark.parametrize("sample", [1 << 16, ROWS // 5], ids=["no sample", "sample"])
def test_as_one_by_one(monkeypatch, name, sample, sparse):
    monkeypatch.setattr(logistic_fit, "SAMPLE_ROWS", sample)
    X, log = draw(sparse)
    model = MODELS[name]
    for got, wanted in zip(model.fit_folds(log, FOLDS, Workers(2)), one_by_one(model, log), strict=True):
        np.testing.assert_allclose(got.predict(X), wanted.predict(X), rtol=0, atol=SAME)
        assert (got.n_events_, got.reward_range_) == (wanted.n_events_, wanted.reward_range_)
        assert got.fitted_on == wanted.fitted_on
        assert getattr(got, "n_passes_", 1) == getattr(wanted, "n_passes_", 1)
    assert not model.fitted


@not_plain
@FORMS
@NAMED
def test_threads_batches_and_memory_change_no_bit(monkeypatch, tmp_path, name, sparse):
    monkeypatch.setattr(logistic_fit, "SAMPLE_ROWS", ROWS // 5)
    path = tmp_path / "log.parquet"
    _, log = draw(sparse, path)
    wanted = MODELS[name].fit_folds(log, FOLDS, Workers(1))

    def same(log, workers):
        for got, model in zip(MODELS[name].fit_folds(log, FOLDS, workers), wanted, strict=True):
            assert (got.coef_ == model.coef_).all()
            assert (got.intercept_ == model.intercept_).all()
            assert getattr(got, "n_passes_", 1) == getattr(model, "n_passes_", 1)

    same(cut_log(path, context=log.roles.sparse or "x", batch_size=77), Workers(3))
    with ThreadPoolExecutor(2) as executor:
        same(log, Workers(2, executor))
    monkeypatch.setattr(together, "SIDE_BYTES", 1)  # one fit at a time
    same(log, Workers(2))
    monkeypatch.setattr(passes, "HOLD_BYTES", 0)
    same(log, Workers(2))


@FORMS
@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_one_pass_serves_all_folds(monkeypatch, name, sparse):
    """The log is read as often as the slowest fit needs, and three times at most before."""
    _, log = draw(sparse)
    read = Counter()
    batches = Reader.batches

    def counted(reader, part, skipped):
        read["parts"] += 1
        return batches(reader, part, skipped)

    monkeypatch.setattr(Reader, "batches", counted)
    monkeypatch.setattr(passes, "HOLD_BYTES", 0)
    monkeypatch.setattr(logistic_fit, "SAMPLE_ROWS", ROWS // 5)
    models = MODELS[name].fit_folds(log, FOLDS, Workers(1))
    most = max(getattr(model, "n_passes_", 1) for model in models)
    assert most <= read["parts"] <= most + 2  # and a pass over actions, and one that draws the sample


def test_a_fit_that_fails_says_so(monkeypatch):
    _, log = draw(sparse=True)
    monkeypatch.setattr(ridge, "MOST_STEPS", 2)
    with pytest.raises(ModelError, match="did not converge in 2 passes"):
        drs.models.Ridge().fit_folds(log, FOLDS, Workers(2))
    monkeypatch.setattr(logistic_fit, "PATIENCE", 1)
    monkeypatch.setattr(logistic_fit, "MOST_PASSES", 1)
    with pytest.raises(ModelError, match="Logistic did not converge"):
        drs.models.Logistic(C=100).fit_folds(log, FOLDS, Workers(2))


def test_passes_say_how_far_they_are(monkeypatch):
    """Side by side, passes are counted once, not once for each fold."""
    texts = []

    class reporter:  # noqa: N801
        def __init__(self, *_):
            pass

        def __enter__(self):
            return lambda rows, text: texts.append(text)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(execution, "reporter", reporter)
    _, log = draw(sparse=True)
    models = MODELS["ridge"].fit_folds(log, FOLDS, Workers(1))
    assert texts == [f"pass {i + 1}" for i in range(max(model.n_passes_ for model in models))]
