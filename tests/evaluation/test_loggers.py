"""Several loggers in one log: balanced estimators, weights by logger, findings, errors."""

import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from tests.helpers import naive_loggers
from tests.helpers.cut import cut_log
from tests.helpers.logs import MODEL_COLUMN, POLICY_COLUMN, as_table, events
from tests.helpers.passes import PLAIN
from tests.helpers.places import data

BALANCED = ["balanced-ips", "balanced-snips", "balanced-dr"]
P = {"a": np.array([0.8, 0.1, 0.1]), "b": np.array([0.1, 0.2, 0.7])}  # two loggers of three actions
RATES = np.array([0.1, 0.5, 0.3])  # mean rewards of the actions
COLUMNS = {"a": "p_a", "b": "p_b"}


def two_loggers(rows, seed=0, shares=(0.3, 0.7), fixed=False, policies=P, rates=RATES):
    """Events of loggers a and b, with the propensities of both. With `fixed`, chance does not decide on the logger."""
    rng = np.random.default_rng(seed)
    who = (
        np.where(np.arange(rows) < round(shares[0] * rows), "a", "b")
        if fixed
        else rng.choice(["a", "b"], rows, p=shares)
    )
    u = rng.random(rows)
    a = np.where(who == "a", *(np.searchsorted(policies[j].cumsum(), u * policies[j].sum()) for j in "ab"))
    p = {j: policies[j][a] for j in "ab"}
    return pa.table(
        {
            "who": who,
            "action": a.astype(np.int32),
            "reward": (rng.random(rows) < rates[a]).astype(float),
            "propensity": np.where(who == "a", p["a"], p["b"]),
            "p_a": p["a"],
            "p_b": p["b"],
            "day": np.arange(rows) % 7,
        }
    )


def balanced_log(table, **options):
    return cut_log(table, **{"logger": "who", "logger_propensities": COLUMNS, "actions": 3, **options})


def evaluated(table, estimators="balanced-ips", policy=None, log=None, **options):
    return drs.evaluate(
        balanced_log(table, **(log or {})), policy or drs.policies.Constant(1), None, estimators, **options
    )


def naive_ips(table):
    """Balanced IPS of always taking action 1."""
    who, r = table["who"].to_pylist(), table["reward"].to_numpy()
    pi = np.eye(3)[np.ones(len(r), int)]
    p_of = {j: table[name].to_numpy() for j, name in COLUMNS.items()}
    return naive_loggers.balanced("balanced-ips", r, table["action"].to_numpy(), pi, who, p_of)[0]


# Values


@st.composite
def logged_by_several(draw):
    log = draw(events())
    n = len(log["reward"])
    loggers = draw(st.integers(1, 3))
    who = draw(st.lists(st.integers(0, loggers - 1), min_size=n, max_size=n))
    p = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(1e-3, 1.0))
    p_of = {j: np.array(draw(st.lists(p, min_size=n, max_size=n))) for j in sorted(set(who))}
    for k, j in enumerate(who):
        p_of[j][k] = log["propensity"][k]
    return log, who, p_of


@given(found=logged_by_several())
def test_balanced_estimators_and_the_table_equal_the_naive_ones(found):
    log, who, p_of = found
    table = as_table(log).append_column("who", pa.array(who))
    for j, p in p_of.items():
        table = table.append_column(f"p{j}", pa.array(p))
    opened = drs.Log(
        table, actions=log["pi"].shape[1], logger="who", logger_propensities=[f"p{j}" for j in sorted(p_of)]
    )
    policy, model = drs.policies.Column(POLICY_COLUMN), drs.models.Column(MODEL_COLUMN)
    result = drs.evaluate(opened, {"new": policy}, model, BALANCED)
    r, a, pi, rhat = (log[name] for name in ("reward", "action", "pi", "rhat"))
    for name in BALANCED:
        value, stderr, w = naive_loggers.balanced(name, r, a, pi, who, p_of, rhat)
        scale = max(1.0, 2e3 * w.max() / (w.mean() if name == "balanced-snips" and w.any() else 1.0))
        got = result["new", name]
        assert got.value == pytest.approx(value, rel=1e-9, abs=1e-12 * scale, nan_ok=True)
        assert got.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-13 * scale**2, nan_ok=True)
        assert got.max_weight == pytest.approx(w.max(), rel=1e-14)
        assert got.ess == pytest.approx(w.sum() ** 2 / (w**2).sum() if w.any() else math.nan, rel=1e-9, nan_ok=True)
        assert got.capped == 0
    for got, wanted in zip(
        result.loggers.to_pylist(), naive_loggers.table(r, log["propensity"], a, pi, who), strict=True
    ):
        scale = max(1.0, 1e3 * wanted["max_weight"])
        for name, value in wanted.items():
            power = 2 if "stderr" in name else 1
            assert got[name] ** power == pytest.approx(value**power, rel=1e-8, abs=1e-12 * scale**power, nan_ok=True), (
                name
            )


def test_a_policy_that_no_event_fits_is_undefined():
    table = two_loggers(200).filter(pc.field("action") != 1)
    result = evaluated(table, ["balanced-ips", "balanced-snips"])
    assert math.isnan(result["balanced-ips"].value)
    assert math.isnan(result["balanced-ips"].low)
    assert math.isnan(result["balanced-snips"].value)
    assert result.loggers["max_weight"].to_pylist() == [0.0, 0.0]


def test_one_logger_gives_plain_ips_up_to_rounding():
    table = two_loggers(500).filter(pc.field("who") == "a")
    result = evaluated(table, ["ips", "balanced-ips"])
    assert result["balanced-ips"].value == pytest.approx(result["ips"].value, rel=1e-14)
    assert result["balanced-ips"].stderr == pytest.approx(result["ips"].stderr, rel=1e-12)


def test_they_are_among_the_defaults_where_their_inputs_are():
    table = two_loggers(200)
    assert evaluated(table, None).estimators == ["ips", "snips", "balanced-ips", "balanced-snips"]
    log = drs.Log(table, logger="who")
    assert drs.evaluate(log, drs.policies.Uniform()).estimators == ["ips", "snips"]
    model = drs.models.Constant(0.3)
    assert "balanced-dr" in drs.evaluate(balanced_log(table), drs.policies.Uniform(), model).estimators


# The number of events of each logger


def test_counts_are_those_of_the_rows_that_are_evaluated():
    table = two_loggers(3000, seed=1)
    by_day = table.filter(pc.field("day") < 3)
    log = balanced_log(table, filter=pc.field("day") < 3)
    policy = drs.policies.Constant(1)
    wanted = pytest.approx(naive_ips(by_day), rel=1e-12)
    assert drs.evaluate(log, policy, estimators="balanced-ips")["balanced-ips"].value == wanted
    for part in log.split(0.4, seed=3):
        result = drs.evaluate(part, policy, estimators="balanced-ips")
        rows = part.head(3000)
        assert result.n == len(rows)
        assert result["balanced-ips"].value == pytest.approx(naive_ips(rows), rel=1e-12)
    early = balanced_log(table).rows_before(777)
    got = drs.evaluate(early, policy, estimators="balanced-ips")
    assert got["balanced-ips"].value == pytest.approx(naive_ips(table.slice(0, 777)), rel=1e-12)


def test_a_filter_that_leaves_one_logger_out():
    table = two_loggers(1000, seed=2)
    result = evaluated(table, log={"filter": pc.field("who") == "b", "logger_propensities": ["p_a", "p_b"]})
    assert result["balanced-ips"].value == pytest.approx(naive_ips(table.filter(pc.field("who") == "b")), rel=1e-12)
    assert result.loggers["logger"].to_pylist() == ["b"]


def test_skipped_rows_do_not_count_be_they_of_another_reward():
    table = two_loggers(1000, seed=3)
    bad = np.arange(1000) % 5 == 0
    table = table.append_column("spend", pa.array(np.where(bad, np.nan, table["reward"].to_numpy() * 2)))
    good = table.filter(pa.array(~bad))
    result = evaluated(table, log={"reward": ["reward", "spend"], "on_bad_row": "skip"})
    assert result.skipped == {"reward is not finite": 200}
    assert result["balanced-ips"].value == pytest.approx(naive_ips(good), rel=1e-12)
    assert result.rewards["spend"]["balanced-ips"].value == pytest.approx(2 * naive_ips(good), rel=1e-12)


def test_folds_do_not_change_the_counts():
    table = two_loggers(2000, seed=4)
    log, policy = balanced_log(table), drs.policies.Constant(1)
    wanted = drs.evaluate(log, policy, estimators="balanced-ips")["balanced-ips"].value
    result = drs.evaluate(log, policy, drs.models.Ridge(), ["balanced-ips", "balanced-dr"], crossfit=3)
    assert result["balanced-ips"].value == pytest.approx(wanted, rel=1e-12)
    assert abs(result["balanced-dr"].value - wanted) < 0.1


def bits(result):
    rows = [[v for v in row.values() if isinstance(v, float)] for row in result.rows() + result.loggers.to_pylist()]
    return [[v.hex() for v in row] for row in rows]


def test_threads_batch_sizes_and_executors_give_the_same_bits(tmp_path):
    rows = 600 if PLAIN else 150_000
    path = tmp_path / "log.parquet"
    pq.write_table(two_loggers(rows, seed=5), path, row_group_size=rows // 5)

    def run(size=None, **options):
        log = balanced_log(path, batch_size=size, filter=pc.field("day") > 0)
        return bits(
            drs.evaluate(log, drs.policies.Constant(1), drs.models.Constant(0.2), ["ips", *BALANCED], **options)
        )

    wanted = run(threads=1)
    assert run(threads=3) == run(size=777) == run(size=4096, threads=2) == wanted
    with ThreadPoolExecutor(2) as pool:
        assert run(executor=pool) == wanted


def test_text_integers_booleans_and_dictionaries_are_loggers():
    table = two_loggers(400, seed=6)
    wanted = evaluated(table)["balanced-ips"].value
    who = table["who"].combine_chunks()
    is_b = pc.equal(who, "b")
    forms = {"dictionary": (who.dictionary_encode(), COLUMNS), "large": (who.cast(pa.large_string()), COLUMNS)}
    forms |= {"boolean": (is_b, {False: "p_a", True: "p_b"}), "int": (is_b.cast(pa.int8()), {0: "p_a", 1: "p_b"})}
    for column, names in forms.values():
        other = table.set_column(0, "who", column)
        for form in (names, list(names.values())):
            assert evaluated(other, log={"logger_propensities": form})["balanced-ips"].value == wanted
    as_text = {"0": "p_a", "1": "p_b"}  # as the command line has them
    other = table.set_column(0, "who", is_b.cast(pa.int8()))
    assert evaluated(other, log={"logger_propensities": as_text})["balanced-ips"].value == wanted


# Variance and coverage


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed n_j", "random n_j"])
def test_coverage_and_variance(fixed):
    """600 logs of 500 events. A share of 0.95 has a standard error of 0.009; the bounds are 3.4 of them.

    The variance of a standard deviation over 600 logs is some 3 % of it: balanced IPS must be clearly better than IPS.
    """
    policy, truth = drs.policies.Constant(1), RATES[1]
    names = ["ips", "balanced-ips", "balanced-snips"]
    found = {name: [] for name in names}
    for seed in range(600):
        result = evaluated(two_loggers(500, seed, fixed=fixed), names, policy, interval="normal", threads=1)
        for name in names:
            found[name].append(
                (result[name].value, result[name].stderr, result[name].low <= truth <= result[name].high)
            )
    values, errors, inside = ({name: np.array([row[i] for row in found[name]]) for name in names} for i in range(3))
    for name in names:
        assert abs(values[name].mean() - truth) < 4 * values[name].std() / math.sqrt(600)
        assert 0.95 - 0.03 <= inside[name].mean() <= 0.95 + 0.03
        assert errors[name].mean() == pytest.approx(values[name].std(), rel=0.1)
    assert values["balanced-ips"].std() < 0.97 * values["ips"].std()


@pytest.mark.slow
def test_the_stratified_error_is_right_where_the_pooled_one_is_too_large():
    """Loggers that share no actions: given n_j, nearly all of the pooled variance is a difference between loggers."""
    apart = {"a": np.array([0.98, 0.01, 0.01]), "b": np.array([0.01, 0.5, 0.49])}
    values, stratified, pooled = [], [], []
    for seed in range(300):
        table = two_loggers(600, seed, shares=(0.5, 0.5), fixed=True, policies=apart, rates=np.ones(3))
        result = evaluated(table, interval="normal", threads=1)
        w = (table["action"].to_numpy() == 1) / (0.5 * table["p_a"].to_numpy() + 0.5 * table["p_b"].to_numpy())
        values.append(result["balanced-ips"].value)
        stratified.append(result["balanced-ips"].stderr)
        pooled.append(w.std(ddof=1) / math.sqrt(600))
        assert stratified[-1] <= pooled[-1] * (1 + 1e-3)
    assert np.mean(stratified) == pytest.approx(np.std(values), rel=0.13)  # three standard errors of a deviation
    assert np.mean(pooled) > 1.2 * np.std(values)


def test_the_difference_of_two_policies_is_stratified_too():
    table = two_loggers(800, seed=7)
    policies = {"one": drs.policies.Constant(1), "two": drs.policies.Constant(2)}
    result = drs.evaluate(balanced_log(table), policies, estimators="balanced-ips")
    p = naive_loggers.mixture(table["who"].to_pylist(), {j: table[c].to_numpy() for j, c in COLUMNS.items()})
    a, r = table["action"].to_numpy(), table["reward"].to_numpy()
    psi = ((a == 1).astype(float) - (a == 2)) / np.array(p) * r
    got = result.difference("one", "two", "balanced-ips")
    assert got.value == pytest.approx(psi.mean(), rel=1e-12)
    assert got.stderr == pytest.approx(naive_loggers.stratified_error(psi, table["who"].to_pylist()), rel=1e-10)
    gain = result.difference("one", estimator="balanced-ips")
    psi = (a == 1) / np.array(p) * r - r
    assert gain.stderr == pytest.approx(naive_loggers.stratified_error(psi, table["who"].to_pylist()), rel=1e-10)


def test_intervals_that_need_scores_of_single_events_are_not_known():
    table = two_loggers(500, seed=8)
    result = evaluated(table, ["ips", "balanced-ips"], interval=["normal", "bernstein", "anytime"], **BOUNDS)
    assert math.isnan(result["balanced-ips"].intervals["anytime"][0])
    assert math.isnan(result["balanced-ips"].intervals["bernstein"][0])
    assert not math.isnan(result["ips"].intervals["anytime"][0])
    assert any("no bernstein or anytime intervals of balanced-ips" in f.message for f in result.findings)


BOUNDS = {"reward_range": (0, 1), "max_weight_bound": 20}


def test_clusters_and_bootstrap():
    table = two_loggers(2000, seed=9)
    result = evaluated(table.append_column("user", pa.array(np.arange(2000) // 4)), cluster="user", interval="cluster")
    assert 0 < result["balanced-ips"].stderr < 0.1
    assert 0 < result.loggers["stderr"][0].as_py() < 0.2
    boot = evaluated(table, interval="bootstrap")["balanced-ips"]
    assert boot.high - boot.low == pytest.approx(2 * 1.96 * boot.stderr, rel=0.2)


def test_results_pickle_and_plans_take_balanced_estimators():
    table = two_loggers(20_000, seed=10)
    result = pickle.loads(pickle.dumps(evaluated(table, ["ips", "balanced-ips"])))
    assert len(result.loggers) == 2
    forecast = drs.plan(balanced_log(table), {"one": drs.policies.Constant(1)}, sample=0.5, estimators=["balanced-ips"])
    got = result["balanced-ips"]
    assert forecast["balanced-ips"].width == pytest.approx(got.high - got.low, rel=0.1)


# Findings


def found(result, check):
    return next((f for f in result.findings if f.check == check), None)


def test_loggers_that_agree():
    result = evaluated(two_loggers(20_000), None)
    for check in ("logger overlap", "logger weights", "loggers agree", "mean balanced weight"):
        assert found(result, check).level == "ok", check
    assert "loggers" in result.to_dict()


def test_a_logger_without_overlap():
    alone = {"a": np.array([1.0, 0.0, 0.0]), "b": P["b"]}
    result = evaluated(two_loggers(20_000, policies=alone), None)
    finding = found(result, "logger overlap")
    assert (finding.level, finding.value) == ("look", pytest.approx(0.3, abs=0.02))
    assert "No event of logger 'a' has weight" in finding.message
    assert found(result, "mean weight").level == "stop"  # plain weights take the rewards of a's rows as 0
    assert found(result, "mean balanced weight").level == "ok"
    assert abs(result["balanced-ips"].value - RATES[1]) < 4 * result["balanced-ips"].stderr
    only = evaluated(two_loggers(20_000, policies=alone))  # nothing of it rests on plain weights
    assert all(f.level != "stop" for f in only.findings)
    assert found(only, "mean balanced weight").level == "ok"


def test_mean_weights_that_cancel_each_other():
    """Propensities of a are half of what they should be, and those of b twice: the mean over all is near 1."""
    table = two_loggers(40_000, shares=(0.35, 0.65))
    p, is_a = table["propensity"].to_numpy(), np.array(table["who"].to_pylist()) == "a"
    wrong = np.where(is_a, p / 1.65, np.minimum(p / 0.65, 1.0))
    result = drs.evaluate(
        drs.Log(table.set_column(3, "propensity", pa.array(wrong)), logger="who"), drs.policies.Constant(1)
    )
    assert found(result, "mean weight").level == "ok"
    finding = found(result, "logger weights")
    assert finding.level == "stop"
    assert "for logger 'a'" in finding.message
    assert "for logger 'b'" in finding.message


def test_loggers_that_disagree():
    table = two_loggers(20_000)
    is_a = np.array(table["who"].to_pylist()) == "a"
    worse = np.where(is_a, table["reward"].to_numpy() * 0.5, table["reward"].to_numpy())
    result = evaluated(table.set_column(2, "reward", pa.array(worse)), ["ips"])
    finding = found(result, "loggers agree")
    assert finding.level == "look"
    assert finding.value < 1e-4
    assert "disagree about policy" in finding.message


def test_wrong_propensities_of_another_logger_show_in_the_balanced_weight():
    table = two_loggers(20_000)
    is_a = np.array(table["who"].to_pylist()) == "a"
    wrong = np.where(is_a, table["p_b"].to_numpy() / 10, table["p_b"].to_numpy())
    result = evaluated(table.set_column(5, "p_b", pa.array(wrong)), ["ips", "balanced-ips"])
    assert found(result, "mean weight").level == "ok"
    assert found(result, "mean balanced weight").level == "stop"


# Wrong input


@pytest.mark.parametrize(
    ("column", "value", "message", "reason"),
    [
        ("who", None, "logger is null at row 7, column 'who'", "logger is null"),
        (
            "who",
            "bb",
            "logger has no propensities: got 'bb' at row 7, column 'who'. logger_propensities= is about 'a', 'b'",
            "logger has no prop",
        ),
        ("p_b", math.nan, "is not in [0, 1]: got nan at row 7, column 'p_b'", "propensity of a logger is not"),
        ("p_b", None, "is not in [0, 1] at row 7, column 'p_b'", "propensity of a logger is not"),
        ("p_a", 1.5, "is not in [0, 1]: got 1.5 at row 7, column 'p_a'", "propensity of a logger is not"),
        (
            "p_a",
            0.123,
            "propensity differs from that of its logger: got 0.123, where 'propensity' holds 0.8 and 'who' holds 'a'",
            "prop",
        ),
    ],
)
def test_bad_rows_are_an_error_or_skipped_and_counted(column, value, message, reason):
    table = two_loggers(50, fixed=True)  # row 7 is one of a
    table = table.set_column(1, "action", pa.array(np.where(np.arange(50) == 7, 0, table["action"].to_numpy())))
    table = table.set_column(
        3, "propensity", pa.array(np.where(np.arange(50) == 7, 0.8, table["propensity"].to_numpy()))
    )
    table = table.set_column(4, "p_a", pa.array(np.where(np.arange(50) == 7, 0.8, table["p_a"].to_numpy())))
    place = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    good = table.filter(pa.array(np.arange(50) != 7))
    table = table.set_column(place, column, pa.array([*values[:7], value, *values[8:]]))
    with pytest.raises(drs.LogError) as error:
        evaluated(table)
    assert message in str(error.value)
    assert "row 7" in str(error.value)
    result = evaluated(table, on_bad_row="skip")
    assert list(result.skipped.values()) == [1]
    assert next(iter(result.skipped)).startswith(reason)
    assert result["balanced-ips"].value == pytest.approx(naive_ips(good), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logger": "whoo"}, "no column 'whoo' for the logger: did you mean 'who'"),
        ({"logger": None}, "name the column that says which one logged a row, with logger="),
        ({"logger_propensities": "p_a"}, "name a column for each logger"),
        ({"logger_propensities": []}, "name one column for each logger"),
        ({"logger_propensities": ["p_a", "p_a"]}, "name one column for each logger"),
        ({"logger_propensities": ["p_a", "p_c"]}, "no column 'p_c' for the logger's propensities: did you mean"),
        ({"logger_propensities": ["p_a", "who"]}, "must hold the logger's probability"),
        ({"logger": "propensity"}, "must hold text, integers or booleans"),
        (
            {"logger": "day", "logger_propensities": {"x": "p_a"}},
            "names the logger 'x', but the column of loggers holds",
        ),
        ({"logger": "day", "logger_propensities": {1: "p_a", "1": "p_b"}}, "names the logger 1 more than once"),
        ({"context": ["p_a"]}, "column 'p_a' is one of the propensities: it cannot have another role"),
        (
            {"logger": "day", "logger_propensities": None, "context": ["day"]},
            "column 'day' is the logger: it cannot have another role",
        ),
    ],
)
def test_wrong_roles(options, message):
    with pytest.raises(drs.LogError, match=re.escape(message)):
        balanced_log(two_loggers(20), **options)


def test_a_constant_propensity_must_be_that_of_each_rows_logger():
    even = {"a": np.full(3, 1 / 3), "b": np.full(3, 1 / 3)}
    result = evaluated(two_loggers(900, policies=even), ["ips", "balanced-ips"], log={"propensity": 1 / 3})
    assert result["balanced-ips"].value == pytest.approx(result["ips"].value, rel=1e-12)
    with pytest.raises(drs.LogError, match=r"differs from that of its logger: got 0\.\d, where 'who' holds '[ab]'"):
        evaluated(two_loggers(50), log={"propensity": 1 / 3})


def test_columns_for_another_number_of_loggers():
    with pytest.raises(
        drs.LogError, match=r"names 2 columns, and column 'day' has 7 loggers \(0, 1, 2, 3, 4, 5, ...\)"
    ):
        evaluated(two_loggers(20), log={"logger": "day", "logger_propensities": ["p_a", "p_b"]})


def test_an_identifier_is_no_logger():
    table = two_loggers(1100).append_column("id", pa.array(np.arange(1100)))
    with pytest.raises(drs.LogError, match="more than 1,000 different values"):
        drs.evaluate(drs.Log(table, logger="id"), drs.policies.Uniform())


@pytest.mark.parametrize(
    ("log", "options", "message"),
    [
        ({"logger_propensities": None}, {}, "needs the propensities of all loggers"),
        ({}, {"by": "day"}, "a segment may have other shares"),
        ({"sample_rate": "rate"}, {}, "not known for a down-sampled log"),
        ({}, {"propensity": drs.policies.Uniform()}, "needs the propensities of all loggers"),
    ],
)
def test_where_balanced_estimators_are_not_known(log, options, message):
    table = two_loggers(50).append_column("rate", pa.array(np.full(50, 0.5)))
    with pytest.raises(drs.DrstreamError, match=message):
        evaluated(table, log=log, **options)
    names = evaluated(table, None, log=log, **options).estimators  # by default, they are left out
    assert not set(names) & set(BALANCED)


def test_a_stream_that_can_be_read_once_is_held_for_the_second_pass():
    table = two_loggers(50)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert repr(evaluated(reader).rows()) == repr(evaluated(table).rows())


def test_globs_leave_loggers_out_and_print_shows_them():
    log = balanced_log(two_loggers(20), context="*")
    assert log.roles.context == ("day",)
    assert "logger      who; propensities p_a of 'a', p_b of 'b'" in repr(log)
    assert log.loggers == ("a", "b")
    assert drs.Log(two_loggers(20), logger="who").loggers == ("a", "b")


# Real data


def test_open_bandit_by_logger():
    log = drs.Log(data("obd_all.parquet"), logger="policy", context=[])
    rows = drs.evaluate(log, {"uniform": drs.policies.Uniform()}).loggers.to_pylist()
    assert [(row["logger"], row["rows"]) for row in rows] == [(0, 10_000), (1, 10_000)]
    assert rows[0]["max_weight"] == pytest.approx(1.0)
    assert rows[1]["max_weight"] > 100
    assert abs(rows[1]["mean_weight"] - 1) < 4 * rows[1]["mean_weight_stderr"]
