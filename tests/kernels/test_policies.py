"""From scores to probabilities and predictions: kernels against NumPy, in float32 and in float64."""

import numpy as np
import pytest

from drstream.kernels import policies
from drstream.kernels.policies import ARGMAX, IDENTITY, LOGISTIC, READY, SOFTMAX
from drstream.log.kinds.eligible.reading import bits_of
from tests.helpers.eligible import random_mask
from tests.helpers.passes import PLAIN, not_plain

TYPES = np.float32, np.float64
NO_SETS = np.empty((0, 0), np.uint32)
ERROR = {np.float32: 2e-6, np.float64: 1e-13}  # relative


def softmax(scores):
    likely = np.exp(scores - scores.max(axis=0))
    return likely / likely.sum(axis=0)


def words(mask):
    """The bits of a mask (K, n)."""
    return bits_of(mask.T)


class Block:
    """Scores of three policies, predictions, and actions, drawn from a seed. With sets, events could choose some."""

    def __init__(self, rows, actions, kind, model_kind, sets=False):
        rng = np.random.default_rng([rows, actions])
        self.actions, self.rows = actions, rows
        self.scores = (3 * rng.standard_normal((3 * actions, rows))).astype(kind)
        self.intercept = rng.standard_normal(3 * actions).astype(kind)
        self.mask = random_mask(rng, rows, actions).T if sets else np.ones((actions, rows), bool)
        self.bits = words(self.mask) if sets else NO_SETS
        ready = softmax(np.where(self.mask, rng.standard_normal((actions, rows)), -np.inf))
        self.scores[2 * actions :] = ready
        self.rhat = rng.standard_normal((actions, rows)).astype(model_kind)
        self.action = np.array([rng.choice(np.flatnonzero(able)) for able in self.mask.T], np.int32)
        if sets:  # what policies and models say about other actions does not matter
            outside = np.concatenate([~self.mask, ~self.mask])
            self.scores[: 2 * actions][outside] = rng.choice([np.nan, np.inf, 1e9], outside.sum())
        self.kinds, self.slots = np.array([SOFTMAX, ARGMAX, READY]), np.array([2, 0, 1])
        self.places = np.array([4, 1, 3])
        self.mass, self.logged, self.terms = np.zeros((3, actions)), np.zeros((3, rows)), np.zeros((5, rows))

    def probabilities(self, epsilons):
        K = self.actions
        shifted = (self.scores + np.where(np.arange(3 * K) < 2 * K, self.intercept, 0)[:, None]).astype(np.float64)
        shifted[: 2 * K][np.concatenate([~self.mask, ~self.mask])] = -np.inf
        best = np.eye(K)[shifted[K : 2 * K].argmax(axis=0)].T
        pi = np.stack([softmax(shifted[:K]), best, shifted[2 * K :]])
        return (1 - epsilons[:, None, None]) * pi + epsilons[:, None, None] * self.mask / self.mask.sum(axis=0)

    def observe(self, epsilons, rhat):
        about = self.intercept, self.kinds, epsilons, self.slots, self.places, rhat, self.bits, self.action
        return policies.observe(self.scores.copy(), *about, self.mass, self.logged, self.terms)


@pytest.mark.parametrize("rows", [1, 511, 513, 1100])
@pytest.mark.parametrize("actions", [1, 3, 10 if PLAIN else 34])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("model_kind", TYPES)
@pytest.mark.parametrize("sets", [False, True])
def test_what_policies_say(rows, actions, kind, model_kind, sets):
    block = Block(rows, actions, kind, model_kind, sets)
    for epsilons in (np.zeros(3), np.array([0.2, 0.5, 0.0])):
        block.mass[:] = 0
        pi = block.probabilities(epsilons)
        assert block.observe(epsilons, block.rhat) == -1
        near = ERROR[kind] if kind == model_kind else ERROR[np.float32]
        wanted = pi[:, block.action, np.arange(rows)]
        np.testing.assert_allclose(block.logged[block.slots], wanted, rtol=near, atol=near / 100)
        expected = (pi * block.rhat).sum(axis=1)
        np.testing.assert_allclose(block.terms[block.places], expected, rtol=near, atol=10 * near)
        plain = block.probabilities(np.zeros(3)).sum(axis=2)  # random actions are added once, after the pass
        np.testing.assert_allclose(block.mass[block.slots], plain, rtol=near, atol=near)
    assert (block.terms[[0, 2]] == 0).all()


@pytest.mark.parametrize("kind", TYPES)
def test_full_sets_are_none_to_the_last_bit(kind):
    found = []
    for full in (False, True):
        block = Block(600, 35, kind, kind)
        block.bits = words(block.mask) if full else NO_SETS
        assert block.observe(np.array([0.1, 0.5, 0.0]), block.rhat) == -1
        found.append((block.logged.tobytes(), block.terms.tobytes(), block.mass))
    assert found[0][:2] == found[1][:2]
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-12)  # of findings: its sums may be in another order


@pytest.mark.parametrize("kind", TYPES)
def test_probabilities_outside_of_a_set_are_found(kind):
    block = Block(1100, 40, kind, kind, sets=True)
    for event in (1050, 700):
        outside, inside = np.argmin(block.mask[:, event]), np.argmax(block.mask[:, event])
        block.scores[2 * 40 : 3 * 40, event] = 0
        block.scores[2 * 40 + outside, event], block.scores[2 * 40 + inside, event] = 0.25, 0.75
    assert block.observe(np.zeros(3), block.rhat) == 2 * 1100 + 700
    pi = np.ascontiguousarray(block.scores[2 * 40 :], np.float64)
    assert policies.first_improper(pi, block.bits, np.zeros(40)) == 700
    assert policies.first_improper(pi, NO_SETS, np.zeros(40)) == -1


@pytest.mark.parametrize("kind", TYPES)
def test_without_a_model_nothing_is_predicted(kind):
    block = Block(600, 3, kind, kind)
    assert block.observe(np.array([0.1, 0.0, 0.3]), block.rhat[:0]) == -1
    assert (block.terms == 0).all()
    assert (block.logged > 0).any(axis=1).all()


@pytest.mark.parametrize("kind", TYPES)
def test_the_first_invalid_event_of_any_policy(kind):
    for policy, bad in ((0, np.nan), (0, np.inf), (1, -np.inf), (1, np.nan), (2, -0.5), (2, 1.5), (2, np.nan)):
        block = Block(1100, 3, kind, kind)
        for event in (1050, 700):
            block.scores[3 * policy + 1, event] = bad
        assert block.observe(np.zeros(3), block.rhat) == policy * 1100 + 700


@pytest.mark.parametrize("actions", [2, 10, pytest.param(1_000, marks=not_plain)])
def test_softmax_in_float32_passes_the_check_of_probabilities(actions):
    rng = np.random.default_rng(actions)
    for scale in (0.01, 1, 30, 1000):
        scores = (scale * rng.standard_normal((actions, 600))).astype(np.float32)
        one = np.zeros(1, np.int64)
        about = np.zeros(actions, np.float32), np.array([SOFTMAX]), np.zeros(1), one, one, scores[:0], NO_SETS
        mass, logged = np.zeros((1, actions)), np.zeros((1, 600))
        assert policies.observe(scores, *about, np.zeros(600, np.int32), mass, logged, np.zeros((1, 600))) == -1
        assert abs(scores.sum(axis=0, dtype=np.float64) - 1).max() < policies.TOLERANCE / 2
        assert mass.sum() == pytest.approx(600, rel=1e-6)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("link", [IDENTITY, LOGISTIC])
@pytest.mark.parametrize("sets", [False, True])
def test_predictions(kind, link, sets):
    rng = np.random.default_rng(link)
    mask = random_mask(rng, 700, 3).T if sets else np.ones((3, 700), bool)
    bits = words(mask) if sets else NO_SETS
    scores, intercept = (5 * rng.standard_normal((3, 700))).astype(kind), rng.standard_normal(3).astype(kind)
    action = rng.integers(0, 3, 700).astype(np.int32)
    wanted = scores + intercept[:, None]
    if link == LOGISTIC:
        wanted = 1 / (1 + np.exp(-wanted.astype(np.float64)))
    scores[~mask] = rng.choice([np.nan, -np.inf, 9.0], (~mask).sum())
    for low, high in ((-np.inf, np.inf), (0.1, 0.7)):
        rhat, out, clipped = scores.copy(), np.empty(700), np.zeros(1, np.int64)
        assert policies.predict(rhat, intercept, link, low, high, bits, action, out, clipped) == -1
        assert np.isfinite(rhat).all()
        near = {"rtol": ERROR[kind], "atol": ERROR[kind] / 10}
        np.testing.assert_allclose(rhat[mask], wanted.clip(low, high)[mask], **near)
        assert (out == rhat[action, np.arange(700)]).all()
        assert clipped[0] == (((wanted < low) | (wanted > high)) & mask).sum()


@pytest.mark.parametrize("kind", TYPES)
def test_predictions_that_need_no_intercept_keep_to_the_sets(kind):
    mask = np.array([[True, False], [True, True]])
    rhat, out = np.array([[0.5, np.nan], [0.25, 2.0]], kind), np.empty(2)
    about = np.empty(0, kind), IDENTITY, -np.inf, np.inf, words(mask), np.array([0, 1], np.int32)
    assert policies.predict(rhat, *about, out, np.zeros(1, np.int64)) == -1
    assert out.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("kind", TYPES)
def test_the_first_prediction_that_is_not_finite(kind):
    rhat = np.zeros((3, 4), kind)
    rhat[1, 2] = np.nan
    rhat[2, 0] = np.inf
    rest = -np.inf, np.inf, NO_SETS, np.zeros(4, np.int32), np.empty(4), np.zeros(1, np.int64)
    assert policies.predict(rhat, np.zeros(0, kind), LOGISTIC, *rest) == 1 * 4 + 2


def test_first_improper_probabilities():
    good = np.full((2, 600), 0.5)
    mass = np.ones(2)
    assert policies.first_improper(good, NO_SETS, mass) == -1
    assert mass.tolist() == [301, 301]
    for column, bad in ((3, [0.5, 0.6]), (599, [1.5, -0.5]), (4, [np.nan, 0.5]), (0, [np.inf, -np.inf])):
        pi = good.copy()
        pi[:, column] = bad
        assert policies.first_improper(pi, NO_SETS, mass) == column


def test_logged_probabilities():
    pi, out = np.array([[0.25, 1.0], [0.75, 0.0]]), np.empty(2)
    policies.logged_probability(pi, np.array([1, 0], np.int32), out)
    assert out.tolist() == [0.75, 1.0]
