"""Logs whose logging policy learned as it went: what is unbiased on them, and what is not."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import drstream as drs
from drstream.log.rows import Blocks
from tests.helpers import naive_adaptive, reference
from tests.helpers.adaptive import REWARDS, learned_log, narrowing_log
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

LOGS, KINDS, VISITS = 60, 100, 16
BEST = 1  # the action whose value is estimated


@pytest.fixture(scope="module")
def errors():
    """The errors of DR over many logs: with the true r̂, by folds of the whole log, and with earlier events only."""
    policy, found = drs.policies.Constant(BEST), []
    for seed in range(LOGS):
        log = drs.Log(learned_log(KINDS, VISITS, 0.1, seed), context="x", actions=2)

        def dr(model, log=log, **options):
            return evaluate(log, policy, model, "dr", **options)["dr"].value - REWARDS[BEST]

        folds, forward = (dr(drs.models.Ridge(0.1), crossfit=c) for c in (2, f"forward:{KINDS}"))
        found.append((dr(drs.models.Constant(list(REWARDS))), folds, forward))
    return np.array(found).T


def standard_errors(x):
    """How many standard errors a mean lies from 0."""
    return x.mean() / (x.std(ddof=1) / np.sqrt(len(x)))


@pytest.mark.slow
def test_folds_of_a_log_that_learned_are_biased_and_earlier_events_are_not(errors):
    """An early event changes what the logger takes later, and so r̂ of later events: r̂ and w depend on each other.

    Means over logs are compared in standard errors. DR with the true r̂ has no bias; the difference to it has less noise
    than the estimate itself.
    """
    exact, folds, forward = errors
    assert abs(standard_errors(exact)) < 4
    assert standard_errors(folds - exact) < -4
    assert (folds - exact).mean() < -0.015  # at a value of 0.5
    assert abs(standard_errors(forward - exact)) < 4
    assert abs(standard_errors(forward)) < 4
    assert abs((forward - exact).mean()) < 0.3 * abs((folds - exact).mean())


# Weights of stretches of time

POWERS = {"dr-stablevar": 0.5, "dr-minvar": 1.0}
ROWS = 700 if PLAIN else 6_000
K, D = 4, 3
WORLD = world(kinds=None)
POLICIES = {"soft": drs.policies.Softmax(WORLD.taste), "one": drs.policies.Constant(2)}


@pytest.fixture(scope="module")
def table():
    """A logging policy that goes from random to its habit."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((ROWS, D))
    late = np.arange(ROWS)[:, None] / ROWS
    mu = (1 - late) / K + late * WORLD.logging(X)
    action = (mu.cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(max=K - 1).astype(np.int32)
    logged = np.arange(ROWS), action
    reward = (rng.random(ROWS) < WORLD.reward(X)[logged]).astype(float)
    columns = {"action": action, "reward": reward, "propensity": mu[logged], "mu": list(mu)}
    rhat = {"rhat": list(WORLD.reward(X) + 0.1)}
    alone = {f"mu{k}": mu[:, k] for k in range(K)}
    return pa.table({**columns, **rhat, **alone, **{f"x{j}": X[:, j] for j in range(D)}})


def open_log(table, propensities="mu", **options):
    return drs.Log(table, context="x?", propensities=propensities, **options)


def naive(table, policy, power, rows):
    X, a, r, p = arrays(table, D)
    pi = POLICIES[policy].probabilities(X) if policy == "soft" else np.tile(np.eye(K)[2], (len(X), 1))
    mu, rhat = (np.array(table[name].to_pylist()) for name in ("mu", "rhat"))
    return naive_adaptive.estimate(power, rows, r, p, a, pi, rhat, mu)


@pytest.mark.parametrize("name", POWERS)
def test_weights_of_stretches_equal_reference(table, name):
    """Propensities that are one column of lists, and a column for each action."""
    wanted = {policy: naive(table, policy, POWERS[name], range(ROWS)) for policy in POLICIES}
    paired = [x - y for x, y in zip(wanted["soft"][2], wanted["one"][2], strict=True)]
    for given in ("mu", [f"mu{k}" for k in range(K)]):
        result = evaluate(open_log(table, given), POLICIES, drs.models.Column("rhat"), [name])
        for policy, (value, stderr, _) in wanted.items():
            assert result[policy, name].value == pytest.approx(value, rel=1e-10)
            assert result[policy, name].stderr == pytest.approx(stderr, rel=1e-9)
            assert result[policy, name].capped == 0
        difference = result.difference("soft", "one", name)
        assert difference.stderr == pytest.approx(reference.standard_error(paired), rel=1e-9)


@pytest.mark.parametrize("name", POWERS)
def test_stretches_without_events(table, name):
    """The stretch before is then the last one that has some."""
    numbered = table.append_column("row", pa.array(np.arange(ROWS)))
    row = pc.field("row")
    log = open_log(numbered, filter=(row < 30) | (row >= 600), actions=K)
    rows = [k for k in range(ROWS) if k < 30 or k >= 600]
    result = evaluate(log, POLICIES, drs.models.Column("rhat"), [name])
    for policy in POLICIES:
        value, stderr, _ = naive(table.take(rows), policy, POWERS[name], rows)
        assert result[policy, name].value == pytest.approx(value, rel=1e-10)
        assert result[policy, name].stderr == pytest.approx(stderr, rel=1e-9)


def test_a_logging_policy_that_never_changes(table):
    """All stretches then weigh the same, and both estimators are DR."""
    uniform = table.set_column(2, "propensity", pa.array(np.full(ROWS, 1 / K)))
    uniform = uniform.set_column(3, "mu", pa.array([[1 / K] * K] * ROWS))
    result = evaluate(open_log(uniform), POLICIES["one"], drs.models.Column("rhat"), ["dr", *POWERS])
    for name in POWERS:
        assert result[name].value == pytest.approx(result["dr"].value, rel=1e-12)
        assert result[name].stderr == pytest.approx(result["dr"].stderr, rel=1e-9)


def test_down_sampled_logs_segments_and_resampling(table):
    """All of them work on means, and so on h, too."""
    rate = np.where(np.arange(ROWS) % 3 == 0, 1.0, 0.25)
    country = pa.array(np.where(np.arange(ROWS) % 2 == 0, "DE", "FR"))
    more = table.append_column("rate", pa.array(rate)).append_column("country", country)
    model, one = drs.models.Column("rhat"), POLICIES["one"]
    _, a, r, p = arrays(table, D)
    rhat, mu = (np.array(table[name].to_pylist()) for name in ("rhat", "mu"))
    pi = np.tile(np.eye(K)[2], (ROWS, 1))
    h = np.array(naive_adaptive.shares(range(ROWS), pi, mu, 1.0))
    score = rhat[:, 2] + (a == 2) / p * (r - rhat[np.arange(ROWS), a])
    sampled = evaluate(open_log(more, sample_rate="rate"), one, model, "dr-minvar")
    assert sampled["dr-minvar"].value == pytest.approx((h / rate) @ score / (h / rate).sum(), rel=1e-10)
    result = evaluate(open_log(more), one, model, "dr-minvar", by="country", interval=["normal", "bootstrap"])
    even = np.arange(ROWS) % 2 == 0
    wanted = h[even] @ score[even] / h[even].sum()
    assert result.segment(country="DE")["dr-minvar"].value == pytest.approx(wanted, rel=1e-10)
    low, high = result["dr-minvar"].intervals["bootstrap"]
    assert high - low == pytest.approx(result["dr-minvar"].high - result["dr-minvar"].low, rel=0.3)


def test_together_with_models_of_earlier_rows(table):
    first = ROWS // 7
    log = open_log(table)
    found = evaluate(log, POLICIES, drs.models.Ridge(), ["dr", *POWERS], crossfit=f"forward:{first}")
    ends = [*Blocks(first, ROWS).starts.tolist(), ROWS]
    X = arrays(table, D)[0]
    rhat = np.zeros((ROWS, K))
    for start, end in itertools.pairwise(ends[1:]):
        rhat[start:end] = drs.models.Ridge().fit(log.rows_before(start)).predict(X[start:end])
    columns = table.drop_columns(["rhat"]).append_column("rhat", pa.array(list(rhat)))
    for name in POWERS:
        value, stderr, _ = naive(columns, "soft", POWERS[name], range(ROWS))
        assert found["soft", name].value == pytest.approx(value, rel=1e-8)
        assert found["soft", name].stderr == pytest.approx(stderr, rel=1e-7)


def test_the_role_is_shown_and_the_estimators_are_not_default(table):
    log = open_log(table)
    assert "propensity  propensity; of all actions: mu" in repr(log)
    assert not set(POWERS) & set(evaluate(log, POLICIES, drs.models.Column("rhat")).estimators)


# Bad input


@pytest.mark.parametrize(
    ("value", "message", "reason"),
    [
        ([0.25, 0.25, 0.5], "have another length: got .*0.5.* at row 7, column 'mu'. There are 4", "another length"),
        (None, "propensities are null at row 7", "null"),
        ([0.25, None, 0.25, 0.25], "propensities are null: got .* at row 7", "null"),
        ([0.25, 0.25, 0.25, 0.5], "do not sum to 1: got .* at row 7", "do not sum to 1"),
        ([1.25, 0.25, -0.25, -0.25], "do not sum to 1: got .* at row 7", "do not sum to 1"),
        ([float("nan"), 0.25, 0.25, 0.5], "do not sum to 1: got .* at row 7", "do not sum to 1"),
        (
            [0.1, 0.1, 0.1, 0.7],
            "propensity differs from .*, where 'propensity' holds 0.* at row 7",
            "differs",
        ),
    ],
)
def test_bad_lists(table, value, message, reason):
    lists = table["mu"].to_pylist()
    lists[7] = value
    broken = table.set_column(3, "mu", pa.array(lists, pa.list_(pa.float64())))
    with pytest.raises(drs.LogError, match=message):
        evaluate(open_log(broken), POLICIES, drs.models.Column("rhat"), ["dr-minvar"])
    skipping = open_log(broken, on_bad_row="skip", actions=K)
    result = evaluate(skipping, POLICIES, drs.models.Column("rhat"), ["dr-minvar"])
    ((why, count),) = result.skipped.items()
    assert reason in why
    assert (count, result.n) == (1, ROWS - 1)
    assert evaluate(open_log(broken), POLICIES, drs.models.Column("rhat"), ["dr"]).n == ROWS  # not read


def test_bad_columns(table):
    for given, message in (
        ("nu", "the log has no column 'nu' for the propensities"),
        ("mu0", r"propensities column 'mu0' has type double: name one column of lists"),
        (["mu", "mu1"], "propensities column 'mu' has type list"),
        (["mu0", "mu0"], "name one column of lists, or one for each action"),
        ([], "name one column of lists, or one for each action"),
        (["mu0", "reward"], "column 'reward' is one of the propensities: it cannot have another role"),
    ):
        with pytest.raises(drs.LogError, match=message):
            open_log(table, given)
    with pytest.raises(drs.LogError, match="propensities= names 2 columns, and there are 4 actions"):
        evaluate(open_log(table, ["mu0", "mu1"]), POLICIES, drs.models.Column("rhat"), "dr-minvar")


def test_what_they_need(table):
    for log, options in ((open_log(table, None), {}), (open_log(table), {"propensity": drs.policies.Uniform()})):
        with pytest.raises(drs.DrstreamError, match="'dr-minvar' needs the propensities of all actions, as logged"):
            evaluate(log, POLICIES, drs.models.Column("rhat"), "dr-minvar", **options)
    with pytest.raises(drs.DrstreamError, match="'dr-minvar' needs a reward model"):
        evaluate(open_log(table), POLICIES, estimators="dr-minvar")


def test_a_policy_where_the_propensity_is_zero(table):
    lists = np.array(table["mu"].to_pylist())
    action = table["action"].to_numpy()
    k = int(np.flatnonzero(action[300:] != 2)[0]) + 300
    lists[k, action[k]] += lists[k, 2]
    lists[k, 2] = 0.0
    p = np.array(table["propensity"].to_numpy())
    p[k] = lists[k, action[k]]
    broken = table.set_column(3, "mu", pa.array(list(lists))).set_column(2, "propensity", pa.array(p))
    with pytest.raises(drs.PolicyError, match=rf"'one' gives action 2 the probability 1 at row {k}, where its prop"):
        evaluate(open_log(broken), {"one": POLICIES["one"]}, drs.models.Column("rhat"), "dr-minvar")
    zero = drs.policies.Constant(int(action[k]))
    assert evaluate(open_log(broken), zero, drs.models.Column("rhat"), "dr-minvar").n == ROWS  # it takes another


def test_a_policy_that_returns_no_probabilities(table):
    bad = {"bad": lambda X: np.full((len(X), K), 0.5)}
    with pytest.raises(drs.PolicyError, match="policy 'bad' gives probabilities that sum to 2, not 1"):
        evaluate(open_log(table), bad, drs.models.Column("rhat"), "dr-minvar")


# Statistics


@pytest.fixture(scope="module")
def studies():
    """DR, its weighted forms, and the form whose weights depend on contexts, over many logs: errors and coverage."""
    names = ["dr", *POWERS]
    errors, hits, by_context = [], np.zeros(3), []
    for seed in range(250):
        table, truth = narrowing_log(3_000, seed)
        log = drs.Log(table, context="x?", propensities="mu", actions=2)
        result = evaluate(log, drs.policies.Constant(0), drs.models.Constant(0.4), names)
        errors.append([result[name].value - truth for name in names])
        hits += [result[name].low <= truth <= result[name].high for name in names]
        w = (table["action"].to_numpy() == 0) / table["propensity"].to_numpy()
        score = 0.4 + w * (table["reward"].to_numpy() - 0.4)
        h = np.array(table["mu"].to_pylist())[:, 0]  # 1 / Σ_a ν²/μ of the event itself
        by_context.append((h @ score) / h.sum() - truth)
    return np.array(errors).T, hits / len(errors), np.array(by_context)


@pytest.mark.slow
def test_weights_of_stretches_lower_the_variance_without_bias(studies):
    """On logs of a learner that explores less and less. Weights by event are about other contexts, and far off."""
    errors, covered, by_context = studies
    for found in errors:
        assert abs(standard_errors(found)) < 4
    assert standard_errors(by_context) > 20
    deviation = errors.std(axis=1)
    assert deviation[1] < 0.75 * deviation[0]
    assert deviation[2] < deviation[1]
    error = 4 * np.sqrt(0.05 * 0.95 / 250)
    assert (abs(covered[1:] - 0.95) < error).all()
