"""A user's own estimators: objects with functions and weights of their own, beside those of the package."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation.derivatives import gradient
from drstream.evaluation.estimators import ALL, IMPORTANCE, Estimator, TermMeans, Weight
from tests.helpers import reference
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, evaluate
from tests.helpers.logs import arrays


def tempered(pi, p, exponent, out):
    """(ν / p) to a power, in plain NumPy."""
    np.power(pi / p, exponent, out=out)


def first_mean(sample):
    return sample.mean[0]


def ratio(sample):
    return sample.pivot + sample.mean[1] / sample.mean[0]


TEMPERED = Weight("tempered", tempered, (("lambda_", 1.0),))
OWN_DR = Estimator("tempered dr", ("robust",), TEMPERED, first_mean)
OWN_SNIPS = Estimator("tempered snips", ("weight", "centred"), TEMPERED, ratio)
MIXED = Estimator(  # of a term that has no weight and one that has
    "half dm, half dr", ("predicted", "robust"), IMPORTANCE, lambda s: s.mean.mean()
)
MODEL = drs.models.Constant([0.1, 0.2, 0.3, 0.4])


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1)


@pytest.fixture(scope="module")
def naive(table):
    X, a, r, p = arrays(table, D)
    pi = POLICY.probabilities(X)
    return a, r, p, pi, np.tile([0.1, 0.2, 0.3, 0.4], (len(r), 1))


def same(got, psi):
    assert got.value == pytest.approx(reference.mean(psi), rel=1e-10)
    assert got.stderr == pytest.approx(reference.standard_error(psi), rel=1e-9)


def test_own_weights_in_plain_numpy(table, naive):
    a, r, p, pi, rhat = naive
    exponent = 0.6
    result = evaluate(table, POLICY, MODEL, ["ips", OWN_DR, OWN_SNIPS, "dros"], lambda_=exponent)
    assert result.estimators == ["ips", "tempered dr", "tempered snips", "dros"]
    rows = np.arange(len(r))
    w = (pi[rows, a] / p) ** exponent
    psi = (pi * rhat).sum(axis=1) + w * (r - rhat[rows, a])
    same(result["tempered dr"], psi)
    same(result.difference("policy", estimator="tempered dr"), psi - r)
    value = (w * r).sum() / w.sum()
    same(result["tempered snips"], value + w * (r - value) / w.mean())
    for name in ("tempered dr", "tempered snips"):
        assert result[name].ess == pytest.approx(reference.effective_sample_size(w), rel=1e-10)
        assert result[name].max_weight == pytest.approx(w.max(), rel=1e-14)
        assert result[name].capped == np.mean(w < pi[rows, a] / p)
    for name in ("ips", "dros"):  # as without the others
        alone = evaluate(table, POLICY, MODEL, [name], lambda_=exponent)
        assert alone[name] == result[name]


def refusing(sample):
    return sample.pivot + math.exp(math.log(abs(sample.mean[1])) - math.log(sample.mean[0]))


def dropping(sample):
    return sample.pivot + abs(sample.mean[1]) / float(sample.mean[0])


def half(sample):
    """The imaginary part of one mean is lost, and nothing says so."""
    return sample.pivot + sample.mean[1] / abs(sample.mean[0])


@pytest.mark.parametrize("value", [refusing, dropping, half])
def test_functions_that_do_not_take_complex_numbers(table, value):
    """Their derivatives are central differences."""
    mine = Estimator("mine", ("weight", "centred"), IMPORTANCE, value)
    result = evaluate(table, {"new": POLICY, "old": drs.policies.Uniform()}, MODEL, ["snips", mine])
    for policy in result.policies:
        one, other = result[policy, "mine"], result[policy, "snips"]
        assert (one.value, one.stderr) == pytest.approx((other.value, other.stderr), rel=1e-9)
    gaps = [result.difference("new", "old", name).stderr for name in ("mine", "snips")]
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-9)


@pytest.mark.parametrize("scale", [1e-120, 1e-3, 1.0, 1e120])
def test_derivatives_are_those_of_calculus(scale):
    """Of the package's functions, at means that are far from each other in size."""
    m = np.random.default_rng(0).uniform(0.5, 2.0, 3) * [scale, 1.0, 1.0]
    covariance = np.array([[2.0, 0.3], [0.3, 1.0]]) * [[scale**2, scale], [scale, 1.0]]
    wanted = {
        "ips": [0.7, 1.0],
        "snips": [-m[1] / m[0] ** 2, 1 / m[0]],
        "dr": [0.0, 1.0],
        "sndr": [-m[2] / m[0] ** 2, 1.0, 1 / m[0]],
        "ips-cv": [-0.15 / scale, 1.0],
        "dm": [1.0],
    }

    def derivatives(name, terms):
        def value(means):
            return ALL[name].value(TermMeans(means[:terms], covariance, 0.7))

        return gradient(value, m, range(terms), checked=False)

    for name, slopes in wanted.items():
        assert derivatives(name, len(slopes)) == pytest.approx(slopes, rel=1e-14, abs=1e-300), name


def test_own_function_of_the_packages_terms(table):
    result = evaluate(table, {"new": POLICY, "old": drs.policies.Uniform()}, MODEL, ["dm", "dr", MIXED])
    dm, dr, mixed = (result["new", name].value for name in ("dm", "dr", MIXED.name))
    assert mixed == pytest.approx((dm + dr) / 2, rel=1e-12)
    gap = result.difference("new", "old", MIXED.name).value
    wanted = (result.difference("new", "old", "dm").value + result.difference("new", "old", "dr").value) / 2
    assert gap == pytest.approx(wanted, rel=1e-10)
    assert MIXED.name in repr(result)
    assert {row["estimator"] for row in result.rows()} == {"dm", "dr", MIXED.name}


def test_one_alone_and_one_that_is_the_headline(table):
    alone = evaluate(table, POLICY, MODEL, OWN_DR, lambda_=0.5)
    assert alone.estimators == [OWN_DR.name]
    first = Estimator("mine", ("reward",), IMPORTANCE, first_mean, headline=True)
    result = evaluate(table, POLICY, estimators=["snips", first])
    assert result.difference("policy") == result.difference("policy", estimator="mine")
    assert result["mine"] == evaluate(table, POLICY, estimators="ips")["ips"]


def test_a_name_of_the_packages_may_be_taken(table):
    mine = Estimator("ips", ("robust",), IMPORTANCE, first_mean)
    got = evaluate(table, POLICY, MODEL, [mine])["ips"]
    assert got == evaluate(table, POLICY, MODEL, ["dr"])["dr"]
    copy = pickle.loads(pickle.dumps(mine))
    assert copy == mine
    assert copy is not ALL["ips"]


def test_pickling():
    for estimator in ALL.values():
        assert pickle.loads(pickle.dumps(estimator)) is estimator
    for estimator in (OWN_DR, OWN_SNIPS):
        assert pickle.loads(pickle.dumps(estimator)) == estimator
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(MIXED)  # its functions cannot be


@pytest.mark.parametrize("estimator", [OWN_DR, OWN_SNIPS], ids=lambda e: e.name)
def test_results_can_be_pickled_if_the_functions_can(table, estimator):
    result = evaluate(table, POLICY, MODEL, estimator, lambda_=0.5)
    assert pickle.loads(pickle.dumps(result)).rows() == result.rows()


def test_processes_give_the_same_bits(table, processes):
    def run(**options):
        return evaluate(table, POLICY, MODEL, [OWN_DR, OWN_SNIPS], lambda_=0.5, **options).rows()

    assert run(executor=processes) == run()


def test_terms_that_there_are_not():
    with pytest.raises(drs.DrstreamError, match=r"estimator 'mine': there is no term 'rewards': did you mean 'reward'"):
        Estimator("mine", ("weight", "rewards"), IMPORTANCE, first_mean)
    with pytest.raises(drs.DrstreamError, match=r"no term 'x': there are: predicted, weight, reward, centred"):
        Estimator("mine", ("x",), IMPORTANCE, first_mean)
    with pytest.raises(drs.DrstreamError, match="estimator 'mine': the term 'reward' needs a weight, and it has none"):
        Estimator("mine", ("reward",), None, first_mean)


def test_two_of_one_name(table):
    mine = Estimator("dr", ("reward",), IMPORTANCE, first_mean)
    with pytest.raises(drs.DrstreamError, match="two estimators are called 'dr': give one of them another name"):
        evaluate(table, POLICY, MODEL, ["dr", mine])
    twice = evaluate(table, POLICY, MODEL, ["dr", "DR", ALL["dr"]])  # the same one, which is no harm
    assert twice.estimators == ["dr"]


def test_two_weights_of_one_name(table):
    """Their terms would be taken for each other's."""
    mine = Estimator("mine", ("reward",), Weight(IMPORTANCE.name, tempered, (("lambda_", 1.0),)), first_mean)
    with pytest.raises(drs.DrstreamError, match="two weights are called 'w': give one of them another name"):
        evaluate(table, POLICY, MODEL, ["ips", mine], lambda_=0.5)


def test_what_an_own_estimator_lacks(table):
    with pytest.raises(drs.DrstreamError, match="estimator 'tempered dr' needs a reward model: pass model="):
        evaluate(table, POLICY, estimators=[OWN_DR], lambda_=0.5)
    with pytest.raises(drs.DrstreamError, match="estimator 'tempered snips' needs a limit: pass lambda_="):
        evaluate(table, POLICY, estimators=[OWN_SNIPS])
    bare = drs.Log(table.drop_columns(["propensity"]), propensity=None)
    with pytest.raises(drs.DrstreamError, match="estimator 'tempered snips' needs propensities, and the log has none"):
        evaluate(bare, POLICY, estimators=[OWN_SNIPS], lambda_=0.5)


# Those of the package that take lambda_


@pytest.mark.parametrize("name", ["dros", "switch-dr"])
def test_what_estimators_with_lambda_lack(table, name):
    with pytest.raises(
        drs.DrstreamError, match=f"estimator '{name}' needs a limit: pass lambda_= \\(how large a weight"
    ):
        evaluate(table, POLICY, MODEL, [name])
    with pytest.raises(drs.DrstreamError, match=f"estimator '{name}' needs a limit"):
        evaluate(table, POLICY, MODEL, [name], cap=2.0, floor=0.1)  # which are not its own
    with pytest.raises(drs.DrstreamError, match=f"estimator '{name}' needs a reward model: pass model="):
        evaluate(table, POLICY, estimators=[name], lambda_=1.0)


def test_what_ips_cv_lacks(table):
    bare = drs.Log(table.drop_columns(["propensity"]), propensity=None)
    with pytest.raises(drs.DrstreamError, match="estimator 'ips-cv' needs propensities, and the log has none"):
        evaluate(bare, POLICY, estimators="ips-cv")
    assert evaluate(table, POLICY, estimators="ips-cv").estimators == ["ips-cv"]


@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, "1", True])
def test_lambdas_that_are_none(table, value):
    what = "a finite number" if value == math.inf else "a number"
    with pytest.raises(drs.DrstreamError, match=f"lambda_={value!r} must be {what} above 0"):
        evaluate(table, POLICY, MODEL, ["dros"], lambda_=value)


def test_lambda_adds_its_estimators_to_the_default_ones(table):
    before = evaluate(table, POLICY, MODEL).estimators
    after = evaluate(table, POLICY, MODEL, lambda_=2.0).estimators
    assert set(after) - set(before) == {"dros", "switch-dr"}
    assert evaluate(table, POLICY, lambda_=2.0).estimators == evaluate(table, POLICY).estimators  # no model


def test_an_event_of_another_action_only():
    """No weight at all: there is no value, neither the model's nor 0, and no interval."""
    table = pa.table({"action": [0, 0], "reward": [1.0, 0.0], "propensity": [0.5] * 2})
    log, model = drs.Log(table, actions=2), drs.models.Constant([0.25, 0.75])
    result = evaluate(log, drs.policies.Constant(1), model, ["dros", "switch-dr", "ips-cv"], lambda_=1.0)
    for name in ("dros", "switch-dr", "ips-cv"):
        assert math.isnan(result[name].value)
        assert math.isnan(result[name].low)
