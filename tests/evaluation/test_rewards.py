"""Several rewards in one pass, and down-sampled logs."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import drstream as drs
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS = 800 if PLAIN else 20_000
POLICIES = {"soft": drs.policies.Softmax(world().taste), "second": drs.policies.Constant(1)}


@pytest.fixture(scope="module")
def table():
    table = world().table(ROWS, seed=5)
    spend = table["reward"].to_numpy() * np.random.default_rng(0).exponential(size=ROWS)
    return table.append_column("spend", pa.array(spend))


def numbers(estimate):
    return [v for v in vars(estimate).values() if isinstance(v, float)]


class TestSeveralRewards:
    def test_each_is_what_it_gives_alone(self, table):
        log = drs.Log(table, reward=["reward", "spend"])
        both = evaluate(log, POLICIES, drs.models.Ridge(), crossfit=3)
        assert list(both.rewards) == ["reward", "spend"]
        assert both.rewards["reward"] is both
        for name in both.rewards:
            alone = evaluate(drs.Log(table, reward=name), POLICIES, drs.models.Ridge(), crossfit=3)
            for policy in POLICIES:
                for estimator in alone.estimators:
                    one, two = both.rewards[name][policy, estimator], alone[policy, estimator]
                    np.testing.assert_array_equal(numbers(one), numbers(two))

    def test_print_and_json_have_both(self, table):
        result = evaluate(drs.Log(table, reward=["reward", "spend"]), POLICIES)
        assert "for others, see rewards[...]: reward, spend" in repr(result)
        assert list(result.to_dict()["rewards"]) == ["spend"]
        assert "also spend" in repr(drs.Log(table, reward=["reward", "spend"]))

    def test_a_model_for_each(self, table):
        train = world().table(300, seed=6)
        train = train.append_column("spend", pa.array(train["reward"].to_numpy() * 2))
        models = {name: drs.models.Ridge().fit(drs.Log(train, reward=name)) for name in ("reward", "spend")}
        result = evaluate(drs.Log(table, reward=["reward", "spend"]), POLICIES, models)
        assert result.rewards["spend"]["soft", "dm"].value == pytest.approx(2 * result["soft", "dm"].value)
        with pytest.raises(drs.DrstreamError, match="has no model of the reward 'spend'"):
            evaluate(drs.Log(table, reward=["reward", "spend"]), POLICIES, {"reward": models["reward"]})

    def test_bad_names(self, table):
        for wrong, message in (
            (["reward", "spent"], "no column 'spent' for the reward: did you mean 'spend'"),
            (["reward", "reward"], "name one column, or several different ones"),
            ([], "name one column, or several different ones"),
            (["reward", "action"], "'action' is a reward: it cannot have another role"),
        ):
            with pytest.raises(drs.LogError, match=message):
                drs.Log(table, reward=wrong)

    def test_a_bad_value_of_the_second(self, table):
        spend = table["spend"].to_numpy().copy()
        spend[7] = np.nan
        bad = table.set_column(table.schema.get_field_index("spend"), "spend", pa.array(spend))
        with pytest.raises(drs.LogError, match=r"reward is not finite: got nan at row 7"):
            evaluate(drs.Log(bad, reward=["reward", "spend"]), POLICIES)
        result = evaluate(drs.Log(bad, reward=["reward", "spend"]), POLICIES, on_bad_row="skip")
        assert result.n == result.rewards["spend"].n == ROWS - 1
        assert result.rewards["spend"].skipped == {"reward is not finite": 1}


class TestDownSampled:
    """Clicks are kept, and one in five of the others."""

    @staticmethod
    def sampled(seed, rows=ROWS):
        table = world().table(rows, seed=seed)
        rate = np.where(table["reward"].to_numpy() > 0, 1.0, 0.2)
        keep = np.random.default_rng(10**6 + seed).random(rows) < rate
        return table.append_column("rate", pa.array(rate)).filter(pa.array(keep))

    def test_against_formulas(self):
        """Ratios of sums, with the delta method's standard error over rows."""
        table = self.sampled(1)
        log = drs.Log(table, sample_rate="rate", context="x?")
        result = evaluate(log, POLICIES)
        v = 1 / table["rate"].to_numpy()
        r, p, a = (table[name].to_numpy() for name in ("reward", "propensity", "action"))
        X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
        pi = POLICIES["soft"].probabilities(X)[np.arange(len(a)), a]
        w, n = pi / p, len(r)
        ips = (v * w * r).sum() / v.sum()
        psi = v * (w * r - ips) / v.mean()
        assert result["soft", "ips"].value == pytest.approx(ips, rel=1e-12)
        assert result["soft", "ips"].stderr == pytest.approx(np.std(psi, ddof=1) / np.sqrt(n), rel=1e-9)
        snips = (v * w * r).sum() / (v * w).sum()
        psi = v * w * (r - snips) / (v * w).mean()
        assert result["soft", "snips"].value == pytest.approx(snips, rel=1e-12)
        assert result["soft", "snips"].stderr == pytest.approx(np.std(psi, ddof=1) / np.sqrt(n), rel=1e-9)
        assert result["soft", "snips"].ess == pytest.approx((v * w).sum() ** 2 / ((v * w) ** 2).sum(), rel=1e-9)
        baseline = (v * r).sum() / v.sum()
        gain = v * (w * r - ips) / v.mean() - v * (r - baseline) / v.mean()
        difference = result.difference("soft", estimator="ips")
        assert difference.value == pytest.approx(ips - baseline, rel=1e-10)
        assert difference.stderr == pytest.approx(np.std(gain, ddof=1) / np.sqrt(n), rel=1e-9)

    def test_a_rate_of_one_changes_nothing(self):
        table = world().table(ROWS, seed=2)
        plain = evaluate(drs.Log(table), POLICIES, estimators=["ips", "snips", "ips-cv"])
        ones = table.append_column("rate", pa.array(np.ones(ROWS)))
        result = evaluate(drs.Log(ones, sample_rate="rate"), POLICIES, estimators=["ips", "snips", "ips-cv"])
        for policy in POLICIES:
            for estimator in plain.estimators:
                one, two = result[policy, estimator], plain[policy, estimator]
                assert (one.value, one.stderr) == pytest.approx((two.value, two.stderr), rel=1e-9)

    @pytest.mark.slow
    def test_unbiased_and_covered(self):
        """400 logs of 2,000 rows before sampling: the mean is within 4 standard errors, 95 % intervals cover."""
        policy, truth = POLICIES["soft"], world().value(POLICIES["soft"])
        model = drs.models.Ridge().fit(drs.Log(world().table(2000, seed=99)))
        values, inside = [], 0
        for seed in range(400):
            log = drs.Log(self.sampled(1000 + seed, 2000), sample_rate="rate")
            e = evaluate(log, {"soft": policy}, model, ["dr"], threads=1)["soft", "dr"]
            values.append(e.value)
            inside += e.low <= truth <= e.high
        assert abs(np.mean(values) - truth) < 4 * np.std(values) / 20
        assert inside / 400 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)

    def test_errors(self):
        table = self.sampled(3)
        with pytest.raises(drs.LogError, match="no column 'rates' for the sample_rate: did you mean 'rate'"):
            drs.Log(table, sample_rate="rates")
        with pytest.raises(drs.LogError, match="'action' is the sample rate: it cannot have another role"):
            drs.Log(table, sample_rate="action")
        with pytest.raises(drs.DrstreamError, match="'likelihood' is not known for a down-sampled log"):
            evaluate(drs.Log(table, sample_rate="rate"), POLICIES, interval="likelihood", reward_range=(0, 1))
        rates = table["rate"].to_numpy().copy()
        rates[4] = 0
        bad = table.set_column(table.schema.get_field_index("rate"), "rate", pa.array(rates))
        with pytest.raises(drs.LogError, match=r"sample rate is not in \(0, 1\]: got 0.0 at row 4"):
            evaluate(drs.Log(bad, sample_rate="rate"), POLICIES)
        result = evaluate(drs.Log(bad, sample_rate="rate"), POLICIES, on_bad_row="skip")
        assert result.skipped == {"sample rate is not in (0, 1]": 1}
        assert "sample rate rate" in repr(drs.Log(table, sample_rate="rate"))

    def test_replay_needs_every_event(self):
        with pytest.raises(drs.DrstreamError, match="down-sampled"):
            drs.replay(drs.Log(self.sampled(3), sample_rate="rate"), drs.policies.EpsilonGreedy(), horizon=10)


class Shifted(drs.models.Ridge):
    """It predicts otherwise than its weights say, so it is asked in Python."""

    def fill(self, block, out):
        super().fill(block, out)
        out += 0.25


def test_a_model_in_python_beside_a_compiled_one(table):
    """With folds, events are put in the order of folds for the model in Python, and both are right."""
    models = {"reward": drs.models.Ridge(), "spend": Shifted()}
    both = drs.evaluate(drs.Log(table, reward=["reward", "spend"]), POLICIES, models, crossfit=3)
    for name, model in models.items():
        alone = drs.evaluate(drs.Log(table, reward=name), POLICIES, model, crossfit=3)
        for policy in POLICIES:
            for estimator in ("dr", "dm", "ips"):
                one, two = both.rewards[name][policy, estimator], alone[policy, estimator]
                assert one.value == pytest.approx(two.value, rel=1e-12)


def test_models_of_different_rewards_may_know_different_actions():
    """Actions mean the same labels for all rewards, whichever model brings them."""
    rng = np.random.default_rng(0)
    n = 3_000
    action = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    table = pa.table(
        {
            "x0": rng.standard_normal(n),
            "action": action,
            "reward": (rng.random(n) < 0.3) * 1.0,
            "spend": rng.random(n) * (1 + (action == "b")),
            "propensity": np.full(n, 1 / 3),
        }
    )
    fewer = table.filter(pc.not_equal(table["action"], "a"))
    models = {
        "reward": drs.models.Constant(0.5),
        "spend": drs.models.Ridge().fit(drs.Log(table.slice(0, 500), context=["x0"], reward="spend")),
    }
    for names in (["reward", "spend"], ["spend", "reward"]):
        log = drs.Log(fewer.slice(400), context=["x0"], reward=names)
        both = drs.evaluate(log, drs.policies.Uniform(), models, ["dr", "ips"])
        for name in names:
            log = drs.Log(fewer.slice(400), context=["x0"], reward=name, actions=["a", "b", "c"])
            alone = drs.evaluate(log, drs.policies.Uniform(), models[name], ["dr", "ips"])
            assert repr(both.rewards[name].rows()) == repr(alone.rows())


def test_propensities_of_a_down_sampled_log_are_those_of_the_kept_rows():
    """All clicks are kept, and one in ten other events: fitted propensities are wrong, and the result says so."""
    table = world().table(4_000, seed=3)
    rate = np.where(table["reward"].to_numpy() > 0, 1.0, 0.1)
    kept = np.random.default_rng(0).random(len(rate)) < rate
    log = drs.Log(table.append_column("rate", pa.array(rate)).filter(kept), propensity=None, sample_rate="rate")
    result = drs.evaluate(log, drs.policies.Uniform(), propensity=drs.models.Propensity(), crossfit=2, estimators="ips")
    (found,) = [finding for finding in result.findings if finding.check == "propensity model"]
    assert found.level == "stop"
    assert "those of the rows that were kept" in found.message
