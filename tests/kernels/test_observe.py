"""From contexts to observations: kernels against NumPy, in float32 and in float64."""

import numpy as np
import pytest

from drstream.kernels import observe as kernels
from drstream.kernels.observe import ARGMAX, IDENTITY, LOGISTIC, NOTHING, SOFTMAX
from drstream.log.kinds.eligible.reading import bits_of
from tests.helpers.eligible import random_mask
from tests.helpers.passes import PLAIN, not_plain

pytestmark = pytest.mark.covers

TYPES = np.float32, np.float64
ERROR = {np.float32: 1e-5, np.float64: 1e-12}  # of scores of the size of 10
FEATURES, POLICIES = 4, 4
LIMITS = -0.5, 0.75  # of predictions


def softmax(scores):
    likely = np.exp(scores - scores.max(axis=0))
    return likely / likely.sum(axis=0)


class Case:
    """Events with four linear policies, the last two of which take random actions, and a linear model."""

    def __init__(self, rows, actions, kind, sets=False, model=True, links=(IDENTITY, LOGISTIC), seed=0):
        rng = np.random.default_rng([rows, actions, seed])
        self.rows, self.actions, self.kind, self.links, self.with_model = rows, actions, kind, links, model
        self.X = rng.integers(-40, 40, (rows, FEATURES)) / 16  # any type of column holds them, scaled
        self.mask = random_mask(rng, rows, actions).T if sets else np.ones((actions, rows), bool)
        self.bits = bits_of(self.mask.T) if sets else None
        self.action = np.array([rng.choice(np.flatnonzero(able)) for able in self.mask.T], np.int32)
        self.weights = rng.standard_normal((len(links), (POLICIES + 1) * actions, FEATURES))
        self.weights[:, : POLICIES * actions] = self.weights[0, : POLICIES * actions]  # folds have models of their own
        self.intercept = rng.standard_normal(POLICIES * actions)
        self.model = rng.standard_normal((len(links), actions if model else 0))
        self.kinds = np.array([SOFTMAX, ARGMAX, SOFTMAX, ARGMAX])
        self.epsilons, self.slots = np.array([0.0, 0.0, 0.25, 0.5]), np.array([2, 0, 1, 3])
        self.values = np.full((1 + 2 * POLICIES, rows), np.nan)
        self.mass, self.clipped = np.zeros((POLICIES, actions)), np.zeros(1, np.int64)

    def linear(self):
        weights = self.weights if self.with_model else self.weights[:, : POLICIES * self.actions]
        return kernels.LinearRules(
            kernels.padded(weights.astype(self.kind)),
            self.intercept.astype(self.kind),
            self.kinds,
            self.epsilons,
            self.slots,
            np.arange(1, 1 + POLICIES),
            np.arange(1 + POLICIES, 1 + 2 * POLICIES),
            self.model.astype(self.kind),
            np.array(self.links),
            np.array(LIMITS),
            0,
        )

    def run(self, fold=0, order=None, first=0, last=None, columns=None, listed=0, width=512, bits=None):
        """Observe some events. Columns are the contexts as they lie in memory; by default one of each type."""
        if columns is None:
            columns = [self.X[:, j].astype(kind) for j, kind in enumerate(kernels.KINDS[:2] * 2)]
        codes = [[c.ctypes.data, kernels.KINDS.index(c.dtype.name)] for c in columns]
        linear, bits = self.linear(), self.bits if bits is None else bits
        x = np.zeros((FEATURES, width + kernels.PAD), self.kind)
        scores = np.zeros((linear.weights.shape[1], width + kernels.PAD), self.kind)
        words = None if bits is None else np.empty((len(bits), width + kernels.PAD), np.uint32)
        events = self.action, bits, words, np.empty(0, np.int64) if order is None else order, first
        stop = self.rows if last is None else last
        memory = self.values, self.mass, self.clipped, x, scores, np.empty(self.actions)
        return kernels.observe(linear, fold, np.array(codes), listed, *events, stop, *memory)

    def reference(self, fold=0, X=None):
        """Naive observations, the mass of each policy, and the number of predictions outside of the limits."""
        K, X = self.actions, self.X if X is None else X
        scores = self.weights[fold] @ X.T
        able = self.mask / self.mask.sum(axis=0)
        rhat = np.zeros((K, self.rows))
        if self.with_model:
            rhat = scores[POLICIES * K :] + self.model[fold][:, None]
            rhat = {LOGISTIC: 1 / (1 + np.exp(-rhat)), NOTHING: 0 * rhat}.get(self.links[fold], rhat)
        clipped = (((rhat < LIMITS[0]) | (rhat > LIMITS[1])) & self.mask).sum() if self.with_model else 0
        rhat, at = rhat.clip(*LIMITS), (self.action, np.arange(self.rows))
        values, mass = [rhat[at]], np.zeros((POLICIES, K))
        for j in range(POLICIES):
            shifted = scores[j * K : (j + 1) * K] + self.intercept[j * K : (j + 1) * K, None]
            shifted[~self.mask] = -np.inf
            pi = softmax(shifted) if self.kinds[j] == SOFTMAX else np.eye(K)[shifted.argmax(axis=0)].T
            pi = (1 - self.epsilons[j]) * pi + self.epsilons[j] * able
            mass[self.slots[j]] = pi.sum(axis=1)
            values += [(pi[at], (pi * np.where(self.mask, rhat, 0)).sum(axis=0))]
        return np.array([values[0], *(v[0] for v in values[1:]), *(v[1] for v in values[1:])]), mass, clipped

    def check(self, fold=0, some=slice(None), mass=True):
        wanted, of_policies, clipped = self.reference(fold)
        rows = slice(None) if self.with_model else slice(1, 1 + POLICIES)
        near = ERROR[self.kind]
        np.testing.assert_allclose(self.values[rows, some], wanted[rows, some], rtol=near, atol=near)
        if mass:
            np.testing.assert_allclose(self.mass, of_policies, rtol=10 * near, atol=10 * near)
            assert self.clipped[0] == clipped


@pytest.mark.parametrize(
    ("rows", "actions", "kind", "sets", "model"),
    [
        (1, 1, np.float64, False, True),
        (511, 3, np.float32, True, True),
        (513, 10, np.float64, True, True),
        (1100, 3, np.float32, False, False),
        (600, 10 if PLAIN else 34, np.float32, False, True),
        (600, 10 if PLAIN else 70, np.float64, True, False),
    ],
)
def test_observations(rows, actions, kind, sets, model):
    case = Case(rows, actions, kind, sets, model, links=(IDENTITY,))
    assert case.run() == -1
    case.check()
    if not model:
        assert np.isnan(case.values[[0, *range(1 + POLICIES, 1 + 2 * POLICIES)]]).all()  # nothing is predicted


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("sets", [False, True])
def test_folds_have_models_of_their_own_and_events_an_order(kind, sets):
    case = Case(700, 3, kind, sets, links=(IDENTITY, LOGISTIC, NOTHING))
    order = np.random.default_rng(3).permutation(700)
    cuts = 0, 100, 650, 700
    for fold in range(3):
        assert case.run(fold, order, cuts[fold], cuts[fold + 1], width=64) == -1
    for fold in range(3):
        case.check(fold, order[cuts[fold] : cuts[fold + 1]], mass=False)


def test_columns_of_any_type_and_matrices_are_the_same():
    case = Case(600, 3, np.float32)
    case.X = np.round(case.X)
    found = []
    for types in (kernels.KINDS, ["float32"] * 4, ["int64"] * 4):
        assert case.run(columns=[case.X[:, j].astype(kind) for j, kind in enumerate(types)]) == -1
        found.append(case.values.tobytes())
    assert case.run(columns=[case.X.astype(np.float32)], listed=FEATURES) == -1
    backwards = np.arange(600)[::-1].copy()
    assert set(found) == {case.values.tobytes()}
    assert case.run(order=backwards, columns=[case.X.astype(np.float32)], listed=FEATURES) == -1
    case.check(mass=False)


@pytest.mark.parametrize("kind", TYPES)
def test_full_sets_are_none_to_the_last_bit(kind):
    case, full = Case(600, 35, kind), Case(600, 35, kind)
    assert case.run() == full.run(bits=bits_of(case.mask.T)) == -1
    assert case.values.tobytes() == full.values.tobytes()
    np.testing.assert_allclose(case.mass, full.mass, rtol=1e-6)  # of findings: its sums may be in another order


@pytest.mark.parametrize("kind", TYPES)
def test_a_tile_with_a_number_that_is_not_finite(kind):
    for bad in (np.nan, np.inf, -np.inf):
        case = Case(1100, 3, kind)
        case.X[[700, 1050], 1] = bad
        columns = [case.X[:, j].copy() for j in range(FEATURES)]
        assert case.run(columns=columns) == 512  # where the tile begins
        assert case.run(columns=[np.ascontiguousarray(case.X, kind)], listed=FEATURES) == 512
        case.X[[700, 1050], 1] = 0
    large = 1e30 if kind is np.float32 else 1e200
    for chosen, policies, model in ((SOFTMAX, 1.0, 0.0), (ARGMAX, 1.0, 0.0), (SOFTMAX, 0.0, 1.0)):
        case = Case(600, 3, kind, links=(IDENTITY,))  # finite contexts, and scores that are not
        case.kinds[:] = chosen
        case.weights[:, : POLICIES * 3] = policies * large
        case.weights[:, POLICIES * 3 :] = model * large
        case.X[:] = 0
        case.X[550] = large
        columns = [case.X[:, j].astype(kind) for j in range(FEATURES)]
        assert case.run(columns=columns) == 512


@pytest.mark.parametrize("actions", [2, 10, pytest.param(1_000, marks=not_plain)])
def test_softmax_in_float32_passes_the_check_of_probabilities(actions):
    rng = np.random.default_rng(actions)
    for scale in (0.01, 1, 30, 1000):
        case = Case(600, actions, np.float32, model=False)
        case.weights *= scale
        case.epsilons[:] = 0
        assert case.run() == -1
        assert abs(case.mass.sum(axis=1) - 600).max() < 600 * kernels.TOLERANCE / 2
        case.action[:] = rng.integers(0, actions, 600)
        assert case.run() == -1


@pytest.mark.parametrize("sets", [False, True])
def test_predictions_of_models_that_are_asked(sets):
    rng = np.random.default_rng(1)
    mask = random_mask(rng, 700, 3).T if sets else np.ones((3, 700), bool)
    bits, scores = bits_of(mask.T) if sets else None, 5 * rng.standard_normal((3, 700))
    action = np.array([rng.choice(np.flatnonzero(able)) for able in mask.T], np.int32)
    scores[~mask] = rng.choice([np.nan, -np.inf, 9.0], (~mask).sum())
    for low, high in ((-np.inf, np.inf), (0.1, 0.7)):
        rhat, out, clipped = scores.copy(), np.empty(700), np.zeros(1, np.int64)
        assert kernels.predict(rhat, np.array([low, high]), bits, action, out, clipped) == -1
        assert (rhat[mask] == scores.clip(low, high)[mask]).all()
        assert np.isfinite(rhat).all()
        assert (out == rhat[action, np.arange(700)]).all()
        assert clipped[0] == (((scores < low) | (scores > high)) & mask).sum()


def test_the_first_prediction_that_is_not_finite():
    rhat, out = np.zeros((3, 4)), np.empty(4)
    rhat[1, 2] = np.nan
    rhat[2, 0] = np.inf
    rest = None, np.zeros(4, np.int32), out, np.zeros(1, np.int64)
    assert kernels.predict(rhat, np.array([-np.inf, np.inf]), *rest) == 1 * 4 + 2


def test_first_improper_probabilities():
    good, mass = np.full((2, 600), 0.5), np.ones(2)
    assert kernels.first_improper(good, None, mass) == -1
    assert mass.tolist() == [301, 301]
    for column, bad in ((3, [0.5, 0.6]), (599, [1.5, -0.5]), (4, [np.nan, 0.5]), (0, [np.inf, -np.inf])):
        pi = good.copy()
        pi[:, column] = bad
        assert kernels.first_improper(pi, None, mass) == column
    mask = np.ones((2, 600), bool)
    mask[1, 570] = False
    assert kernels.first_improper(good, bits_of(mask.T), mass) == 570


def test_what_is_taken_from_probabilities():
    pi, out = np.array([[0.25, 1.0], [0.75, 0.0]]), np.empty(2)
    kernels.logged_probability(pi, np.array([1, 0], np.int32), out)
    assert out.tolist() == [0.75, 1.0]
    kernels.expect(pi, np.array([[4.0, 3.0], [8.0, 1.0]]), out)
    assert out.tolist() == [7.0, 3.0]
