"""Plans: what they say, that it is what `evaluate` and `replay` then find, and errors."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.planning import simulation
from drstream.replaying.needed import FAILURE, events_needed, longest_horizon
from tests.helpers import reference
from tests.helpers.logs import arrays, world


@pytest.fixture(scope="module")
def log():
    return drs.Log(world(floor=0.02).table(40_000, seed=1))


# Widths


def widths(result, policy, estimator):
    found = result[policy, estimator]
    return found.high - found.low


def test_a_sample_of_everything_forecasts_what_evaluate_finds(log):
    """Every estimator, and intervals that are not normal: the forecast is the result, up to rounding."""
    train, test = log.split(0.3)
    policies = {"uniform": drs.policies.Uniform(), "one": drs.policies.Constant(1)}
    how = {
        "estimators": ["ips", "snips", "dr", "sndr", "ips-cv", "ips-capped", "dros", "dm"],
        "cap": 5.0,
        "lambda_": 9.0,
    }
    for more in ({}, {"interval": "normal"}, {"interval": "likelihood", "reward_range": (0, 1), "clamp": (0, 1)}):
        if more.get("interval") == "likelihood":
            how["estimators"] = ["ips", "snips", "dr"]
        model = drs.models.Ridge().fit(train)
        forecast = drs.plan(test, policies, model, sample=1.0, **how, **more)
        result = drs.evaluate(test, policies, model, **how, **more)
        assert [(w.policy, w.estimator) for w in forecast.widths] == [
            (p, e) for p in result.policies for e in result.estimators
        ]
        for one in forecast.widths:
            # the number of events is that of the rows: the split has a few more or less
            ratio = math.sqrt(result.n / forecast.events)
            wanted = widths(result, one.policy, one.estimator)
            assert one.width == pytest.approx(wanted * ratio, rel=1e-3, nan_ok=True)
            assert one.method == result[one.policy, one.estimator].method


def test_rows_that_halve_the_width(log):
    forecast = drs.plan(log, drs.policies.Constant(2), sample=0.2)
    for one in forecast.widths:
        assert one.rows_to_halve == pytest.approx(4 * 40_000, rel=0.05)  # skewness falls, too
    assert forecast.rows == forecast.events == 40_000
    rare = world(n_actions=10).table(8_000)  # few clicks of one action: a careful interval
    found = drs.plan(drs.Log(rare.slice(0, 400)), drs.policies.Constant(2), estimators="ips", sample=1.0)["ips"]
    if not math.isnan(found.width):
        assert 2 * 400 < found.rows_to_halve < 20 * 400


class Mixed(drs.synth.World):
    """The same world, whose logging policy explores more."""

    share = 0.0

    def logging(self, X):
        return (1 - self.share) * super().logging(X) + self.share / self.n_actions


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_exploration_halves_the_width(estimator):
    """A log of the policy that explores as much as the plan says has intervals half as wide, within 10 %."""
    mixed = Mixed(4, 1, floor=0.002, seed=0)
    mixed.habit = np.array([[0.0], [1.0], [3.0], [-6.0]])  # the last action is rare where x > 0
    mixed.kinds = np.abs(mixed.kinds)
    logged = mixed.table(200_000, seed=1)
    rarest = int(np.argmin(np.bincount(logged["action"].to_numpy())))
    policy, model = drs.policies.Constant(rarest), drs.models.Ridge().fit(drs.Log(mixed.table(20_000, seed=9)))
    found = drs.plan(drs.Log(logged), policy, model, estimators=estimator, sample=0.5)[estimator]
    assert 0 < found.exploration < 1
    assert found.narrowest < found.width / 2
    mixed.share = found.exploration
    before, after = (drs.evaluate(t, policy, model, estimator) for t in (logged, mixed.table(200_000, seed=2)))
    wide, half = (widths(result, "policy", estimator) for result in (before, after))
    assert half / wide == pytest.approx(0.5, rel=0.1)


def test_exploration_equals_the_naive_form(log):
    from drstream.planning.exploration import SHARES

    table = log.source.table.slice(0, 3000)
    X, a, r, p = arrays(table, 3)
    model = drs.models.Ridge().fit(drs.Log(log.source.table.slice(20_000)))
    rhat = model.predict(X)
    pi = np.full((3000, 4), 0.25)
    rows = np.arange(3000)
    parts = p, pi[rows, a] / p, r - rhat[rows, a], (pi * rhat).sum(axis=1)
    now = reference.explored_variance(*parts, 0.0, 4)
    variances = [reference.explored_variance(*parts, share, 4) for share in SHARES[::16]]
    found = drs.plan(table, drs.policies.Uniform(), model, sample=1.0, estimators="dr")["dr"]
    best = reference.explored_variance(*parts, found.best_exploration, 4)
    assert found.narrowest / found.width == pytest.approx(math.sqrt(best / now), rel=1e-6)
    assert min(variances) >= best * (1 - 1e-9)
    assert math.isnan(found.exploration) == (best > now / 4)


def test_exploration_within_eligible_sets():
    """Where random actions are those of the set, 1/K is 1 / its size."""
    table = world(eligible=0.5).table(3000, seed=1)
    size = np.array([len(row) for row in table["items"].to_pylist()])
    r, p = table["reward"].to_numpy(), table["propensity"].to_numpy()
    parts = p, 1 / size / p, r, np.zeros(3000)
    log = drs.Log(table, eligible="items", actions=4)
    found = drs.plan(log, drs.policies.Uniform(), sample=1.0, estimators="ips")["ips"]
    now, best = (reference.explored_variance(*parts, share, size) for share in (0.0, found.best_exploration))
    assert found.narrowest / found.width == pytest.approx(math.sqrt(best / now), rel=1e-6)
    logged = drs.Log(table.append_column("pi", pa.array(1 / size)), eligible="items", actions=4)
    unknown = drs.plan(logged, drs.policies.Column("pi"), sample=1.0, estimators="ips")["ips"]
    assert unknown.width == pytest.approx(found.width)
    assert math.isnan(unknown.best_exploration)  # the sets are not read


def test_replays_on_eligible_sets_are_planned():
    """As many events are accepted as on the whole log, and fewer than if all actions were eligible."""
    table = world(eligible=0.5, n_actions=6).table(6000, seed=1)
    log, policy = drs.Log(table, eligible="items", actions=6), drs.policies.EpsilonGreedy(0.2)
    (found,) = drs.plan(log, policy, horizon=30, sample=1.0, bias=0.05).replays
    assert found.acceptance == pytest.approx(drs.replay(log, policy, 30, bias=0.05).acceptance, rel=0.1)
    (without,) = drs.plan(drs.Log(table, actions=6), policy, horizon=30, sample=1.0, bias=0.05).replays
    assert abs(without.acceptance / found.acceptance - 1) > 0.2


@pytest.mark.slow
def test_the_error_of_a_width_is_its_spread():
    """Over 40 logs, the forecast widths of IPS spread as the plan says, within 40 %."""
    found = [
        drs.plan(world(floor=0.1).table(4000, seed=s), drs.policies.Uniform(), estimators="ips", sample=1.0)["ips"]
        for s in range(40)
    ]
    spread = np.std([one.width for one in found], ddof=1) / np.mean([one.width for one in found])
    assert spread == pytest.approx(np.mean([one.error for one in found]), rel=0.4)


def test_what_a_sample_does_not_tell_is_nan():
    """No click in the sample: an interval of width 0 would be a lie."""
    n = 30_000
    table = pa.table({"action": [0, 1] * (n // 2), "reward": np.zeros(n), "propensity": np.full(n, 0.5)})
    found = drs.plan(table, drs.policies.Constant(1), sample=0.1)
    for one in found.widths:
        assert math.isnan(one.width)
        assert math.isnan(one.rows_to_halve)
        assert one.advice == "unknown"
    heavy = np.full(n, 1.0)
    heavy[::2999] = 1e-4  # ten events decide
    clicks = pa.table({"action": np.zeros(n, int), "reward": np.ones(n), "propensity": heavy})
    found = drs.plan(drs.Log(clicks, actions=2), drs.policies.Constant(0), estimators="ips", sample=0.3)
    assert math.isnan(found["ips"].width)
    assert found["ips"].error > 0.2
    assert "few events" in [note.kind for note in found.notes]


def test_clusters_are_not_forecast(log):
    table = log.source.table.append_column("user", pa.array(np.arange(40_000) // 4))
    found = drs.plan(drs.Log(table), drs.policies.Uniform(), cluster="user")
    assert all(math.isnan(one.width) for one in found.widths)
    assert [note.kind for note in found.notes] == ["cluster"]


def test_down_sampled_logs(log):
    table = log.source.table.append_column("rate", pa.array(np.full(40_000, 0.5)))
    opened = drs.Log(table, sample_rate="rate")
    found, result = drs.plan(opened, drs.policies.Uniform(), sample=1.0), drs.evaluate(opened, drs.policies.Uniform())
    assert found["ips"].width == pytest.approx(widths(result, "policy", "ips"))
    assert found["ips"].advice == "unknown"
    with pytest.raises(drs.LogError, match="down-sampled"):
        drs.plan(opened, drs.policies.Uniform(), horizon=10)


def test_cross_fitted_models_are_fitted_on_the_sample(log):
    found = drs.plan(log, drs.policies.Uniform(), drs.models.Ridge(), crossfit=3, sample=0.2)
    wanted = drs.evaluate(log, drs.policies.Uniform(), drs.models.Ridge(), crossfit=3)
    assert found["dr"].width == pytest.approx(widths(wanted, "policy", "dr"), rel=0.2)
    assert "models" in [note.kind for note in found.notes]


# Replays


def test_the_longest_horizon_is_the_bound_turned_around():
    for m, n, rate in ((1, 3000, 0.1), (10, 3000, 0.1), (1, 20, 0.1), (3, 40_000, 0.013)):
        found = longest_horizon(m, n, rate)
        assert found == reference.longest_horizon(m, n, rate, FAILURE)
        assert events_needed(m, found + 1, rate) > n
        assert found == 0 or events_needed(m, found, rate) <= n


def test_bounds_of_a_forecast_agree_with_each_other(log):
    found = drs.plan(log, drs.policies.EpsilonGreedy(0.2), horizon=100, q=[0.0, 0.05], sample=0.1)
    assert [(one.level, one.horizon) for one in found.replays] == [("q 0", 100), ("q 0.05", 100)]
    for one in found.replays:
        assert one.events_for_one >= events_needed(1, 100, one.acceptance)  # replicates differ, so the rate does
        assert events_needed(10, 100, one.acceptance) <= one.events_for_ten < 10 * one.events_for_one
        assert 0 < one.longest_for_one <= longest_horizon(1, found.events, one.acceptance)
        assert one.pilot_events == 0
    targets = drs.plan(log, drs.policies.EpsilonGreedy(0.2), horizon=100, bias=0.05, sample=0.1)
    (one,) = targets.replays
    assert (one.bias, one.q != one.q) == (0.05, True)
    assert one.pilot_events > 0
    assert one.events_for_one > events_needed(1, 100, one.acceptance)


def test_events_for_one_replicate_are_enough(log):
    """With so many events as the plan says, nearly every replay is complete: 0.95 of 20, less 3 standard errors."""
    policy = drs.policies.EpsilonGreedy(0.2)
    (one,) = drs.plan(log, policy, horizon=200, q=0.05).replays
    rows = round(one.events_for_one)
    done = 0
    for seed in range(20):
        try:
            drs.replay(world(floor=0.02).table(rows, seed=50 + seed), policy, 200, q=0.05, seed=seed)
            done += 1
        except drs.NotEnoughEventsError:
            pass
    assert done >= 16


def test_the_width_of_a_replay(log):
    """From half of the log, the width of each target's interval within a third; from little of it, none."""
    policy = drs.policies.EpsilonGreedy(0.2)
    found = drs.plan(log, policy, horizon=50, sample=0.5)
    grid = drs.replay(log, policy, 50).grid.to_pylist()
    for one, row in zip(found.replays, grid, strict=True):
        assert one.width == pytest.approx(row["high"] - row["low"], rel=1 / 3)
    little = drs.plan(log, policy, horizon=1000, sample=0.02)
    assert all(math.isnan(one.width) for one in little.replays)


def test_policies_that_learn_and_fixed_ones(log):
    policies = {"fixed": drs.policies.Uniform(), "ucb": drs.policies.UCB1(0.3)}
    found = drs.plan(log, policies)
    assert {one.policy for one in found.widths} == {"fixed"}
    assert {one.policy for one in found.replays} == {"ucb"}
    assert found.horizon == 1000
    assert "horizon" in [note.kind for note in found.notes]
    both = drs.plan(log, policies, horizon=30)
    assert [len(both.replay(name)) for name in policies] == [4, 4]
    assert [one.bias for one in both.replay("ucb")] == [0.01, 0.02, 0.05, 0.1]
    only = drs.plan(log, drs.policies.Uniform())
    assert only.replays == []
    assert only.horizon is None


class Even:
    version = 0

    def reset(self):
        pass

    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)

    def update(self, x, action, reward):
        pass


def test_a_policy_in_python(log):
    found = drs.plan(log, {"even": Even(), "uniform": drs.policies.Uniform()}, horizon=100, bias=0.05, sample=0.1)
    (even,), (uniform,) = found.replay("even"), found.replay("uniform")
    assert even.acceptance == pytest.approx(uniform.acceptance, rel=1e-6)


def test_the_limit_of_a_simulation(log, monkeypatch):
    """Out of reach: the limit is told, and what the rate so far says."""
    monkeypatch.setattr(simulation, "MOST_PASSES", 3)
    found = drs.plan(log, drs.policies.Constant(1), horizon=39_000, bias=0.05, sample=0.05)
    (one,) = found.replays
    assert one.limited
    assert one.measured == 0
    assert one.passes == pytest.approx(3)
    assert one.replicates < 0.5
    assert one.events_for_one > 40_000
    assert one.longest_for_one < 39_000
    assert [note for note in found.notes if note.kind == "limit" and "no replicate was complete" in note]


def test_the_same_forecast_again(log):
    again = [drs.plan(log, drs.policies.UCB1(), horizon=50, threads=n, sample=0.05).to_dict() for n in (1, 2)]
    assert again[0] == again[1]


def test_splits_and_filters_scale_the_events(log):
    part = log.split(0.25)[0]
    found = drs.plan(part, drs.policies.Uniform(), horizon=50, sample=0.2)
    assert (found.rows, found.events) == (40_000, 10_000)
    grid = drs.replay(part, drs.policies.Uniform(), 50).grid["replicates"].to_pylist()
    for one, count in zip(found.replays, grid, strict=True):
        assert abs(one.replicates - count) <= max(1, 0.2 * count)


# Results


def test_results(log):
    found = drs.plan(log, {"a": drs.policies.Uniform(), "b": drs.policies.UCB1()}, horizon=100)
    table = found.to_arrow()
    assert table["run"].to_pylist() == ["evaluate"] * 2 + ["replay"] * 8
    assert table["estimator"].null_count == 8
    assert len(found.to_pandas()) == 10
    told = json.loads(found.to_json())
    assert told == json.loads(json.dumps(found.to_dict()))
    assert told["evaluate"][0]["width"] == found["a", "ips"].width
    for text in (
        "Forecast of 40,000 events",
        "evaluate 'a' by ips",
        "replay 'b', bias 0.01",
        "exploration to halve it",
    ):
        assert text in repr(found)
    with pytest.raises(KeyError, match="did you mean 'a, ips'"):
        found["a", "ipss"]
    with pytest.raises(KeyError, match="no replay of 'c' was forecast"):
        found.replay("c")
    with pytest.raises(KeyError):
        found.replay()


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0}, "horizon=0 must be a whole number of at least 1"),
        ({"horizon": 2.5}, r"horizon=2.5 must be a whole number"),
        ({"horizon": True}, r"horizon=True must be a whole number"),
        ({"policies": 3}, "policy 'policy' is a int: a policy is an object with probabilities"),
        ({"policies": {}}, "there is no policy to plan for"),
        ({"policies": drs.policies.Uniform}, "is a class: pass an instance"),
        ({"policies": {1: drs.policies.Uniform(), "1": drs.policies.UCB1()}}, "two policies have the same name"),
        ({"interval": "anytime", "reward_range": (0, 1)}, "its width on the whole log cannot be told from a sample"),
        ({"lambda_": "auto"}, "Give a number"),
        ({"cap": "auto"}, "cap=.auto.: which limit the whole log will choose"),
        ({"bias": 0.1, "q": 0.1, "horizon": 5}, "give one of them"),
        ({"bias": 2, "horizon": 5}, r"target of the bias mass must be in \(0, 1\)"),
        ({"estimators": "dr"}, "needs a reward model"),
        ({"confidence": 2}, "confidence"),
    ],
)
def test_errors(log, change, message):
    options = {"policies": drs.policies.Uniform(), **change}
    with pytest.raises(drs.DrstreamError, match=message):
        drs.plan(log, **options)


def test_an_interrupt_stops_it(log):
    class Impatient(Even):
        def update(self, x, action, reward):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drs.plan(log, Impatient(), horizon=10)
