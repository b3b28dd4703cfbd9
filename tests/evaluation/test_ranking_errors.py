"""What rankings cannot have is refused before the pass, and what does not fit is named with its row."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LinearRegression

import drstream as drs
from tests.helpers.rankings import NEW, PREDICTED, ROLES, log_of, table_of

pytestmark = pytest.mark.covers

M, P = drs.models, drs.policies
ONE = {"items": [4, 7], "p": [0.5, 0.25], "pi": [0.25, 0.25], "r": [1.0, 0.0], "q": [0.5, 0.5], "e": [0.5, 0.25]}
TWO = {name: values[:1] for name, values in ONE.items()}
LISTS = [ONE, TWO, ONE, TWO]
EVENTS = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "x0": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("pi", [0.5, 1.5], r"policy 'new': column 'new' holds the probability 1.5 at row 2 \(row 0 of row group 1"),
        ("pi", [-0.5, 1.0], "policy 'new': column 'new' holds the probability -0.5 at row 2"),
        ("pi", [np.nan, 1.0], "policy 'new': column 'new' holds the probability nan at row 2"),
        ("pi", [0.5], r"policy 'new': column 'new' holds 1 numbers at row 2 .*, where 2 items were shown"),
        ("pi", [0.5, 0.1, 0.1], r"policy 'new': column 'new' holds 3 numbers at row 2"),
        ("pi", None, "policy 'new': column 'new' is null at row 2"),
        ("pi", [0.5, None], "policy 'new': column 'new' holds a null at row 2"),
        ("q", [0.5], r"the reward model's column 'q' holds 1 numbers at row 2 .*, where 2 items were shown"),
        ("q", [0.5, np.inf], "the reward model's column 'q' holds inf at row 2 .*: predictions must be finite"),
        ("e", None, "the reward model's column 'q_new' is null at row 2"),
        ("e", [0.5, None], "the reward model's column 'q_new' holds a null at row 2"),
    ],
)
def test_policies_and_predictions_that_do_not_fit_name_the_row(column, value, message, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(table_of([ONE, TWO, {**ONE, column: value}, TWO]), path, row_group_size=2)
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(drs.Log(path, **ROLES, on_bad_row="skip"), {"new": NEW}, PREDICTED)


@pytest.mark.parametrize("value", [None, 1.5, -0.1, np.nan])
def test_probabilities_of_whole_lists_name_the_row(value):
    numbers = pa.table({"items": [[1], [2]], "p": [0.5, 0.5], "r": [1.0, 0.0], "new": pa.array([0.5, value])})
    shown = "null" if value is None else f"the probability {value}"
    with pytest.raises(drs.PolicyError, match=f"policy 'policy': column 'new' holds {shown} at row 1"):
        drs.evaluate(drs.Log(numbers, **ROLES), NEW)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (P.Uniform(), "'new' is a Uniform, and this is a log of rankings: name a column that holds lists of the prob"),
        (P.Epsilon(NEW, 0.1), "'new' is a Epsilon"),
        (lambda X: X, "'new' is a Function"),
        (P.Column("day"), "column 'day' has type int64. The log has a propensity for each item, so it must hold lists"),
        (P.Column("names"), r"column 'names' has type list<.*string>"),
        (P.Column("old"), "the log has no column 'old' for the policy 'new'"),
        (P.EpsilonGreedy(), "learns while it runs"),
    ],
)
def test_policies_of_rankings_are_columns_of_lists(policy, message):
    table = table_of(LISTS, day=pa.array([1, 2, 3, 4]), names=pa.array([["a", "b"], ["a"]] * 2))
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(drs.Log(table, **ROLES), {"new": policy})


def test_a_policy_has_the_form_of_the_propensities():
    numbers = pa.table({"items": [[1], [2]], "p": [0.5, 0.5], "r": [1.0, 0.0], "new": [[0.5], [0.5]]})
    with pytest.raises(drs.PolicyError, match="one propensity for each list, so it must hold the probabilities of the"):
        drs.evaluate(drs.Log(numbers, **ROLES), NEW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"propensity": P.Uniform()}, "Leave out propensity=, which is about events with one action"),
        ({"crossfit": 2, "model": M.Ridge()}, "Leave out crossfit="),
        ({"clamp": (0, 1)}, "Leave out clamp="),
        ({"propensity_error": 0.1}, "Leave out propensity_error="),
        ({"explain": True}, "Leave out explain="),
        ({"model": M.Ridge()}, "Ridge predicts rewards of single actions, and this is a log of rankings"),
        ({"model": M.Constant(0.5)}, "drs.models.Positions"),
        ({"estimators": ["dr"]}, "estimator 'dr' is about events with one action, and this is a log of rankings"),
        ({"estimators": ["dm"]}, "estimator 'dm' is about events with one action"),
        ({"estimators": ["dros"], "lambda_": 2.0}, "estimator 'dros' is about events with one action"),
        ({"estimators": ["dr-minvar"]}, "estimator 'dr-minvar' is about events with one action"),
        ({"estimators": ["balanced-ips"]}, "estimator 'balanced-ips' is about events with one action"),
        ({"estimators": ["iip"]}, "there is no estimator 'iip': did you mean 'iips'"),
        ({"estimators": ["cascade-dr"]}, "estimator 'cascade-dr' needs predicted rewards by position"),
        ({"estimators": ["ips-capped"]}, "estimator 'ips-capped' needs a limit"),
        ({"interval": "gamma"}, "reward_range"),
        ({"by": "x0"}, "x0"),
    ],
)
def test_options_of_events_are_refused(options, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(log_of(LISTS), NEW, **options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (M.Positions("q", {"old": "q_new"}), "has no column for policy 'new': "),
        (M.Positions("q", "nothing"), "the log has no column 'nothing' for the reward model"),
        (M.Positions("day", "q_new"), "the reward model's column 'day' has type int64: it must hold lists of numbers"),
    ],
)
def test_predictions_are_columns_of_lists(model, message):
    log = drs.Log(table_of(LISTS, day=pa.array([1, 2, 3, 4])), **ROLES)
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(log, {"new": NEW}, model)
    drs.evaluate(log, {"new": NEW}, model, ["rips"])  # which needs none


def test_each_policy_needs_its_own_expectation():
    with pytest.raises(drs.ModelError, match="has the column 'q_new' for one policy, and there are 2: give a mapping"):
        drs.evaluate(log_of(LISTS), {"new": NEW, "old": P.Column("p")}, PREDICTED)


USERS = {
    "replay": lambda log: drs.replay(log, P.EpsilonGreedy(), horizon=2),
    "plan": lambda log: drs.plan(log, P.Uniform()),
    "audit": lambda log: log.audit(),
    "labels": lambda log: log.labels,
    "ridge": lambda log: M.Ridge().fit(log),
    "logistic": lambda log: M.Logistic().fit(log),
    "propensity": lambda log: M.Propensity().fit(log),
    "sklearn": lambda log: M.from_sklearn(LinearRegression()).fit(log),
    "losses": lambda log: drs.optimize.FilterTree().fit(log, log),
    "tree": lambda log: drs.optimize.OffsetTree().fit(log),
    "progressive": lambda log: drs.optimize.ProgressivePolicy(P.EpsilonGreedy(), horizon=2).fit(log),
}


@pytest.mark.parametrize("user", USERS)
def test_what_takes_one_action_an_event_refuses_rankings(user):
    with pytest.raises(drs.LogError, match=r"column 'items' holds lists, so this is a log of rankings\. Only"):
        USERS[user](log_of(LISTS))


def test_events_have_no_estimators_of_rankings():
    for name in ("iips", "RIPS", drs.rankings.ALL["pi"]):
        with pytest.raises(drs.DrstreamError, match="is about rankings, and this log has one action for each event"):
            drs.evaluate(drs.Log(EVENTS), P.Uniform(), estimators=[name])
    with pytest.raises(drs.ModelError, match=r"models.Positions\(...\) predicts rewards of rankings, and this log has"):
        drs.evaluate(drs.Log(EVENTS), P.Uniform(), PREDICTED)


@pytest.mark.parametrize(
    ("positions", "fit", "refused"),
    [
        (
            "marginal",
            ["iips"],
            {"rips": "given the items above", "ips": "given the items above", "pi": "independently"},
        ),
        ("conditional", ["rips", "ips", "snips"], {"iips": "of an item at its position", "pi": "independently"}),
        ("independent", ["rips", "iips", "pi", "ips", "snips"], {}),
        (None, ["rips", "iips", "pi", "ips", "snips"], {}),
    ],
)
def test_estimators_fit_the_kind_of_propensities(positions, fit, refused):
    """By default, those that fit. If the log does not say, all of them, and a finding."""
    log = log_of(LISTS, positions=positions)
    result = drs.evaluate(log, NEW)
    assert result.estimators == fit
    found = [finding for finding in result.findings if finding.check == "positions"]
    assert len(found) == (positions is None)
    if found:
        assert found[0].level == "look"
        assert "rips, ips, snips: conditional or independent; iips: marginal or independent" in found[0].message
    for name, words in refused.items():
        with pytest.raises(drs.DrstreamError, match=f"estimator '{name}' needs propensities .*{words}, and positions="):
            drs.evaluate(log, NEW, estimators=[name])


def test_one_number_for_a_list_is_not_enough_for_positions():
    total = table_of(LISTS, total=pa.array([1.0, 1.0, 1.0, 1.0]), joint=pa.array([0.5] * 4), whole=pa.array([0.5] * 4))
    log = drs.Log(total, **{**ROLES, "reward": "total"})
    assert drs.evaluate(log, NEW).estimators == ["pi", "ips", "snips"]
    for name in ("iips", "rips", "cascade-dr", "sniips", "snrips"):
        with pytest.raises(
            drs.DrstreamError, match=f"estimator '{name}' needs a reward for each item, and this log has"
        ):
            drs.evaluate(log, NEW, PREDICTED, [name])
    log = drs.Log(total, **{**ROLES, "propensity": "joint"})
    assert drs.evaluate(log, P.Column("whole")).estimators == ["ips", "snips"]
    for name in ("iips", "rips", "pi", "snpi"):
        with pytest.raises(
            drs.DrstreamError, match=f"estimator '{name}' needs a propensity for each item, and this log"
        ):
            drs.evaluate(log, P.Column("whole"), estimators=[name])
    with pytest.raises(drs.DrstreamError, match="need propensities, and the log has none: name their column of lists"):
        drs.evaluate(drs.Log(total, **{**ROLES, "propensity": None}), NEW)


def test_terms_of_positions_are_limited():
    long = {"items": list(range(65)), "p": [0.5] * 65, "pi": [0.5] * 65, "r": [0.0] * 65}
    with pytest.raises(drs.DrstreamError, match="sniips take lists of up to 64 items, and the longest one has 65"):
        drs.evaluate(log_of([long]), NEW, estimators=["iips", "sniips"])
    short = {name: values[:3] for name, values in long.items()}
    table = table_of([long, short], n=pa.array([65, 3]))
    log = drs.Log(table, **ROLES, filter="n < 9")
    assert drs.evaluate(log, NEW, estimators=["sniips"])["sniips"].value == 0


def test_what_a_result_says():
    log = log_of([ONE, TWO] * 200, positions="conditional")
    result = drs.evaluate(log, {"same": P.Column("p")}, estimators=["rips", "ips"])
    lines = repr(result).splitlines()
    assert lines[0].startswith("Evaluation of 400 rankings of 1 to 2 items; logging policy's mean reward of a list 1 ")
    assert "  assumed by rips: users go from top to bottom" in repr(result)
    assert "  assumed by ips: nothing about users" in repr(result)
    assert result.to_dict()["rankings"]["assumptions"] == result.assumptions
    assert result.headline == "rips"
    assert result.provenance["columns"]["positions"] == "conditional"
    assert drs.evaluate(log_of([TWO] * 9), NEW, estimators=["ips"]).lists.__str__() == "1 item"
    with pytest.raises(drs.DrstreamError, match="explain: it is about events with one action"):
        result.explain()
    events = drs.evaluate(drs.Log(EVENTS), P.Uniform(), estimators=["ips"])
    assert (events.lists, events.assumptions) == (None, {})


def test_findings_are_about_each_kind_of_weight():
    """Weights of whole lists explode with their length, those by position do not. No overlap at the top is a stop."""
    rng = np.random.default_rng(0)
    lists = []
    for _ in range(400):
        items = rng.integers(0, 4, 8)
        policy = np.array([0.7, 0.1, 0.1, 0.1])[items]
        lists.append({"items": items, "p": [0.25] * 8, "pi": policy, "r": rng.integers(0, 2, 8).astype(float)})
    result = drs.evaluate(log_of(lists, positions="independent"), {"new": NEW})
    found = {
        (finding.check, finding.message.partition("new by ")[2].split(" ")[0]): finding for finding in result.findings
    }
    assert found["ess", "ips,"].level == "look"
    assert found["ess", "iips"].level == "ok"
    assert found["ess", "ips,"].value == result["ips"].ess
    assert result["ips"].ess < 0.3 * result["iips"].ess
    assert found["mean weight by position", "iips"].level == "ok"
    nothing = [{**one, "pi": [0.0] * 8} for one in lists]
    result = drs.evaluate(log_of(nothing, positions="independent"), {"new": NEW})
    for name in result.estimators:
        assert np.isnan(result[name].value)
    assert {f.level for f in result.findings if f.check == "ess"} == {"stop"}
    assert any("it never shows the items that were shown" in f.message for f in result.findings)
