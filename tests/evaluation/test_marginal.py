"""Estimators that weigh by the category of an action: mips, snmips, offcem, and the finding about what they assume."""

import math
import os
import pickle
import subprocess

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation.estimators import ALL
from drstream.intervals.methods import ALL as INTERVALS
from tests.helpers import naive_marginal
from tests.helpers.evaluations import MARGINAL
from tests.helpers.logs import MODEL_COLUMN, POLICY_COLUMN, as_table, events
from tests.helpers.passes import PLAIN

P = drs.policies
PLAIN_OF = {"mips": "ips", "snmips": "snips", "offcem": "dr"}  # with each action in a category of its own


@st.composite
def of_categories(draw):
    """Events whose logging policy is known for all actions, some of which it never takes, and their categories."""
    log = draw(events())
    n, actions = log["pi"].shape
    raw = np.array(draw(st.lists(st.integers(0, 9), min_size=n * actions, max_size=n * actions)), float)
    mu = raw.reshape(n, actions)
    mu[np.arange(n), log["action"]] += 1
    mu /= mu.sum(axis=1, keepdims=True)
    log["mu"], log["propensity"] = mu, mu[np.arange(n), log["action"]]
    names = draw(st.lists(st.sampled_from("abc"), min_size=actions, max_size=actions))
    return log, dict(enumerate(names))


def open_log(log, **options):
    table = as_table(log).append_column("mu", pa.array(list(log["mu"])))
    return drs.Log(table, actions=log["pi"].shape[1], propensities="mu", **options)


@given(found=of_categories())
def test_estimators_and_findings_equal_the_naive_ones(found):
    log, categories = found
    policy, model = P.Column(POLICY_COLUMN), drs.models.Column(MODEL_COLUMN)
    result = drs.evaluate(open_log(log), {"new": policy}, model, MARGINAL, embedding=categories)
    r, a, pi, mu, rhat = (log[name] for name in ("reward", "action", "pi", "mu", "rhat"))
    of_events = [list(categories.values())] * len(r)
    for name in MARGINAL:
        value, stderr, w = naive_marginal.estimate(name, r, pi, mu, a, of_events, rhat)
        scale = max(1.0, 2e3 * max(w) / (np.mean(w) if name == "snmips" and any(w) else 1.0))
        got = result["new", name]
        assert got.value == pytest.approx(value, rel=1e-9, abs=1e-12 * scale, nan_ok=True)
        assert got.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-13 * scale**2, nan_ok=True)
        assert got.max_weight == pytest.approx(max(w), rel=1e-14)
        squares = math.fsum(v * v for v in w)
        assert got.ess == pytest.approx(math.fsum(w) ** 2 / squares if squares else math.nan, rel=1e-9, nan_ok=True)
        assert got.capped == 0
    centre = drs.Log(as_table(log)).typical_reward
    for name, y in (("mips", r - centre), ("offcem", r - rhat[np.arange(len(a)), a])):
        effect, stderr = naive_marginal.direct_effect(y, pi, mu, a, of_events)
        direct = result._facts_of(0, ALL[name]).direct[name]
        size = 4e3 / mu[np.arange(len(a)), a].min()
        assert direct.bias == pytest.approx(effect, rel=1e-9, abs=1e-12 * size)
        assert direct.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-13 * size**2, nan_ok=True)


# A log of many actions in a few categories

K, GROUPS, D = 24, 4, 3
ROWS = 300 if PLAIN else 20_000
CATEGORY = np.arange(K) % GROUPS
EMBEDDING = dict(enumerate(CATEGORY.tolist()))
APPEAL = np.linspace(-1, 1, K)


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Shop:
    """Rewards depend on the context and the category; with `within`, also on the action itself."""

    def __init__(self, rows=ROWS, seed=0, within=0.0, never=(), kind=np.float64):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(rows, D)).astype(kind)
        self.logging, self.taste = np.random.default_rng(9).normal(size=(2, K, D)) * 0.4
        self.mu = softmax(self.X.astype(float) @ self.logging.T)
        self.mu[:, list(never)] = 0
        self.mu /= self.mu.sum(axis=1, keepdims=True)
        self.a = (rng.random((rows, 1)) > self.mu.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
        self.mean = 0.2 + 0.15 * CATEGORY[None, :] + 0.1 * np.tanh(self.X[:, :1]) + within * APPEAL
        self.r = self.mean[np.arange(rows), self.a] + 0.3 * rng.normal(size=rows)
        self.pi = self.new(self.X)

    def new(self, X):
        """The policy that is evaluated: of each category, it prefers the last actions."""
        return softmax(np.asarray(X, float) @ self.taste.T + APPEAL)

    @property
    def policy(self):
        return P.Softmax(self.taste, APPEAL)

    def table(self, **more):
        rows = np.arange(len(self.a))
        columns = {f"x{j}": self.X[:, j] for j in range(D)}
        columns |= {"action": self.a, "reward": self.r, "propensity": self.mu[rows, self.a], "mu": list(self.mu)}
        columns |= {"category": [f"c{c}" for c in CATEGORY[self.a]], "pi": list(self.pi)}
        return pa.table({**columns, **more})

    def log(self, **options):
        return drs.Log(self.table(), **{"actions": K, "propensities": "mu", **options})


@pytest.fixture(scope="module")
def shop():
    return Shop()


def value_of(shop, pi):
    """The value of a policy, given the contexts of the log."""
    return float((pi * shop.mean).sum(axis=1).mean())


def test_each_action_its_own_category_is_the_estimator_without_categories(shop):
    """Bit for bit, whatever way probabilities are computed in, and also where the list of propensities is rounded."""
    policies = {
        "softmax": shop.policy,
        "linear": P.Linear(shop.taste),
        "epsilon": P.Epsilon(P.Linear(shop.taste), 0.3),
        "uniform": P.Uniform(),
        "constant": P.Constant(3),
        "column": P.Column("pi"),
        "function": shop.new,
    }
    rounded = shop.table(mu=list(shop.mu.round(8)))
    alone = {k: k for k in range(K)}
    for table, kind in ((rounded, None), (Shop(kind=np.float32).table(), None), (rounded, "float64")):
        log = drs.Log(table, actions=K, propensities="mu")
        names = [*PLAIN_OF, *PLAIN_OF.values()]
        found = drs.evaluate(log, policies, drs.models.Ridge(), names, crossfit=2, embedding=alone, precision=kind)
        for policy in policies:
            for name, plain in PLAIN_OF.items():
                assert found[policy, name] == found[policy, plain]
        assert not any(finding.check == "embedding" for finding in found.findings)  # there is nothing to compare


def test_one_category_for_all_actions_is_the_logged_mean(shop):
    found = drs.evaluate(shop.log(), shop.policy, estimators="mips", embedding=dict.fromkeys(range(K), "all"))
    assert found["mips"].value == pytest.approx(shop.r.mean(), rel=1e-12)
    assert found["mips"].ess == pytest.approx(len(shop.r))


def test_policies_in_the_stack_are_those_that_are_not(shop):
    """Linear policies of float32 contexts are multiplied together, in float32; columns have float64."""
    single = Shop(kind=np.float32)
    pi = {
        "softmax": (shop.policy, single.pi),
        "linear": (P.Linear(shop.taste), np.eye(K)[(single.X.astype(float) @ shop.taste.T).argmax(axis=1)]),
    }
    pi["epsilon"] = P.Epsilon(P.Linear(shop.taste), 0.2), 0.8 * pi["linear"][1] + 0.2 / K
    table = single.table(**{f"pi_{name}": list(found) for name, (_, found) in pi.items()})
    log = drs.Log(table, actions=K, propensities="mu")
    policies = {name: policy for name, (policy, _) in pi.items()}
    policies |= {f"pi_{name}": P.Column(f"pi_{name}") for name in pi}
    found = drs.evaluate(log, policies, estimators=["mips"], embedding=EMBEDDING)
    for name in pi:
        assert found[name, "mips"].value == pytest.approx(found[f"pi_{name}", "mips"].value, rel=1e-5)
        assert found[name, "mips"].ess == pytest.approx(found[f"pi_{name}", "mips"].ess, rel=1e-5)


def test_where_the_logging_policy_is_known_from(shop):
    """Lists in the log, the logging policy, a column as the logging policy: the same numbers. And uniform loggers."""
    policy, options = shop.policy, {"estimators": ["mips", "snmips"], "embedding": "category"}
    wanted = drs.evaluate(shop.log(), policy, **options)
    bare = shop.log(propensities=None)
    for logger in (P.Softmax(shop.logging), P.Column("mu")):
        found = drs.evaluate(bare, policy, propensity=logger, **options)
        assert found["mips"].value == pytest.approx(wanted["mips"].value, rel=1e-9)
        assert found["snmips"].stderr == pytest.approx(wanted["snmips"].stderr, rel=1e-9)
    several = [shop.table()["mu"].combine_chunks().flatten().to_numpy().reshape(-1, K)[:, k] for k in range(K)]
    wide = shop.table(**{f"mu_{k}": column for k, column in enumerate(several)})
    found = drs.evaluate(drs.Log(wide, actions=K, propensities=[f"mu_{k}" for k in range(K)]), policy, **options)
    assert found["mips"] == wanted["mips"]

    uniform = drs.Log(shop.table(), actions=K, propensity="uniform")
    listed = drs.Log(shop.table(flat=[[1 / K] * K] * len(shop.r)), actions=K, propensity="uniform", propensities="flat")
    found = [drs.evaluate(log, policy, **options)["mips"].value for log in (uniform, listed)]
    found.append(drs.evaluate(bare, policy, propensity=P.Uniform(), **options)["mips"].value)
    assert found[0] == found[1] == pytest.approx(found[2], rel=1e-12)


def test_an_estimated_logging_policy(shop):
    """Its floor and its inflation are those of all actions; findings say that it is estimated."""
    model = drs.models.Propensity(floor=0.01, inflation=1.1)
    log, options = shop.log(propensities=None), {"propensity": model, "crossfit": 2}
    alone = drs.evaluate(log, P.Column("pi"), None, ["mips", "ips"], embedding={k: k for k in range(K)}, **options)
    assert alone["mips"] == alone["ips"]
    fitted = drs.models.Propensity(floor=0.01, inflation=1.1).fit(Shop(seed=5).log())
    found = drs.evaluate(log, P.Column("pi"), None, "mips", embedding=EMBEDDING, propensity=fitted)
    mu = np.maximum(1.1 * fitted.probabilities(shop.X), 0.01)
    wanted = naive_marginal.estimate("mips", shop.r, shop.pi, mu, shop.a, [CATEGORY.tolist()] * len(shop.r))[0]
    assert found["mips"].value == pytest.approx(wanted, rel=1e-9)
    assert any(finding.check == "estimated propensities" for finding in found.findings)


@pytest.mark.parametrize("propensity", ["uniform", "propensity"])
def test_eligible_sets(shop, propensity):
    """Policies, and uniform loggers, act on the actions that an event could choose from."""
    rng = np.random.default_rng(2)
    n, rows = len(shop.r), np.arange(len(shop.r))
    mask = rng.random((n, K)) < 0.4
    mask[rows, shop.a] = True
    mu = np.where(mask, 1.0 if propensity == "uniform" else shop.mu, 0)
    mu /= mu.sum(axis=1, keepdims=True)
    scores = np.where(mask, shop.X.astype(float) @ shop.taste.T, -np.inf)
    best = np.eye(K)[scores.argmax(axis=1)]
    even = mask / mask.sum(axis=1, keepdims=True)
    wanted = {"softmax": softmax(scores), "epsilon": 0.7 * best + 0.3 * even, "uniform": even}
    policies = {"softmax": P.Softmax(shop.taste), "epsilon": P.Epsilon(P.Linear(shop.taste), 0.3)}
    policies["uniform"] = P.Uniform()
    more = {"set": [np.flatnonzero(row).tolist() for row in mask], "propensity": mu[rows, shop.a], "mu": list(mu)}
    of_all = {} if propensity == "uniform" else {"propensities": "mu"}
    log = drs.Log(shop.table(**more), actions=K, eligible="set", propensity=propensity, **of_all)
    found = drs.evaluate(log, policies, estimators=["mips"], embedding=EMBEDDING)
    for name, pi in wanted.items():
        args = shop.r, pi, mu, shop.a, [CATEGORY.tolist()] * n
        value, stderr, w = naive_marginal.estimate("mips", *args)
        assert found[name, "mips"].value == pytest.approx(value, rel=1e-9)
        assert found[name, "mips"].stderr == pytest.approx(stderr, rel=1e-9)
        assert found[name, "mips"].max_weight == pytest.approx(max(w), rel=1e-12)
    model, alone = drs.models.Propensity(floor=0.01), {k: k for k in range(K)}
    options = {"estimators": ["mips", "ips"], "embedding": alone, "crossfit": 2}
    by_model = drs.evaluate(log.without_propensities(), policies, propensity=model, **options)
    assert by_model["epsilon", "mips"] == by_model["epsilon", "ips"]


# What is true


def test_mips_is_right_where_rewards_depend_on_the_category_alone(shop):
    found = drs.evaluate(shop.log(), {"new": shop.policy}, embedding="category")
    truth = value_of(shop, shop.pi)
    for name in ("ips", "mips", "snmips"):
        assert abs(found["new", name].value - truth) < 4 * found["new", name].stderr
    assert found["new", "mips"].stderr ** 2 < 0.4 * found["new", "ips"].stderr ** 2
    assert found["new", "mips"].ess > 2 * found["new", "ips"].ess
    about = next(finding for finding in found.findings if finding.check == "embedding")
    assert about.level == "ok", about


def test_mips_is_wrong_where_actions_matter_beside_their_category_and_a_finding_says_so():
    """The finding also tells by how much. A model that knows the rest repairs it."""
    shop = Shop(within=0.25)
    table = shop.table(rest=list(np.tile(0.25 * APPEAL, (len(shop.r), 1))))
    log = drs.Log(table, actions=K, propensities="mu")
    found = drs.evaluate(log, {"new": shop.policy}, drs.models.Column("rest"), embedding="category")
    truth = value_of(shop, shop.pi)
    bias = found["new", "mips"].value - truth
    assert abs(bias) > 8 * found["new", "mips"].stderr
    for name in ("ips", "offcem"):
        assert abs(found["new", name].value - truth) < 4 * found["new", name].stderr
    about = next(finding for finding in found.findings if finding.check == "embedding")
    assert about.level == "stop"
    assert "mips of new is off by about" in about.message
    direct = found._facts_of(0, ALL["mips"]).direct
    assert abs(direct["mips"].bias - bias) < 4 * (direct["mips"].stderr + found["new", "mips"].stderr)
    assert abs(direct["offcem"].bias) < 4 * direct["offcem"].stderr
    with_model = drs.evaluate(log, shop.policy, drs.models.Column("rest"), ["offcem"], embedding="category")
    about = next(finding for finding in with_model.findings if finding.check == "embedding")
    assert about.level == "ok"
    assert "beyond what the model predicts" in about.message


def test_an_action_that_was_never_logged_whose_category_was():
    """IPS cannot see it. MIPS is right, and no finding stops it: neither overlap, nor the check of its assumption."""
    never = [1, 5, 9, 13]  # of category 1
    shop = Shop(never=never)
    pi = np.full_like(shop.mu, 0.2 / K)
    pi[:, never] += 0.2
    table = shop.table(pi=list(pi))
    log = drs.Log(table, actions=K, propensities="mu")
    found = drs.evaluate(log, {"new": P.Column("pi")}, None, ["ips", "mips"], embedding=EMBEDDING)
    truth = value_of(shop, pi)
    assert abs(found["new", "mips"].value - truth) < 4 * found["new", "mips"].stderr
    assert abs(found["new", "ips"].value - truth) > 20 * found["new", "ips"].stderr
    levels = {finding.check: finding.level for finding in found.findings}
    assert levels["unlogged"] == "stop"
    assert levels["unlogged categories"] == "ok"
    assert levels["embedding"] == "ok"
    assert "83% of its mass on actions" in found["new", "ips"].warning
    assert not found["new", "mips"].warning
    alone = drs.evaluate(log, P.Column("pi"), None, ["mips", "snmips"], embedding=EMBEDDING)
    assert all(finding.level == "ok" for finding in alone.findings if finding.check != "interval")
    only = drs.evaluate(log, P.Constant(1), None, ["ips", "mips"], embedding=EMBEDDING)
    assert math.isnan(only["ips"].value)
    assert abs(only["mips"].value - shop.mean[:, 1].mean()) < 4 * only["mips"].stderr


def test_a_category_that_was_never_logged():
    shop = Shop(never=[k for k in range(K) if CATEGORY[k] == 2])
    found = drs.evaluate(shop.log(), {"new": P.Constant(2)}, None, ["mips"], embedding=EMBEDDING)
    assert math.isnan(found["mips"].value)
    levels = {finding.check: finding for finding in found.findings}
    assert levels["unlogged categories"].level == "stop"
    assert "categories that were never logged (2)" in str(found)
    assert "ess" not in levels  # it has the same cause
    mixed = drs.evaluate(shop.log(), {"new": P.Uniform()}, None, ["ips", "mips"], embedding=EMBEDDING)
    assert mixed["mips"].warning == "25% of its mass on categories that were never logged"
    assert mixed["ips"].warning == "25% of its mass on actions that were never logged"


# With other features of `evaluate`


def test_segments_filters_and_rewards(shop):
    """A segment has the numbers of its rows alone; so has a second reward."""
    third = np.arange(len(shop.r)) % 3
    table = shop.table(third=third, other=2 * shop.r + 1)
    log = drs.Log(table, actions=K, propensities="mu", reward=["reward", "other"])
    options = {"estimators": ["mips", "snmips"], "embedding": EMBEDDING}
    found = drs.evaluate(log, shop.policy, by="third", **options)
    for part in range(3):
        only = drs.Log(table, actions=K, propensities="mu", filter=f"third == {part}")
        alone = drs.evaluate(only, shop.policy, **options)
        assert found.segment(third=part)["mips"].value == pytest.approx(alone["mips"].value, rel=1e-9)
        assert found.segment(third=part)["mips"].stderr == pytest.approx(alone["mips"].stderr, rel=1e-9)
        of_segment, of_alone = (
            next(f for f in one.findings if f.check == "embedding") for one in (found.segment(third=part), alone)
        )
        assert of_segment.value == pytest.approx(of_alone.value, rel=1e-6, abs=1e-9)
    second = drs.evaluate(log.for_reward("other"), shop.policy, **options)
    assert found.rewards["other"]["mips"] == second["mips"]


def test_down_sampled_rows_count_several_times(shop):
    """A rate of 1/2 is as each row twice. Standard errors are not: those rows would be the same events."""
    table = shop.table(rate=np.where(np.arange(len(shop.r)) % 2, 0.5, 1.0))
    twice = pa.concat_tables([table, table.filter(pa.array(np.arange(len(shop.r)) % 2 == 1))])
    options = {"estimators": MARGINAL, "embedding": EMBEDDING}
    results = [
        drs.evaluate(
            drs.Log(source, actions=K, propensities="mu", **more), P.Column("pi"), drs.models.Constant(0.3), **options
        )
        for source, more in ((table, {"sample_rate": "rate"}), (twice, {}))
    ]
    for name in MARGINAL:
        assert results[0][name].value == pytest.approx(results[1][name].value, rel=1e-9)
    effects = [result._facts_of(0, ALL["offcem"]).direct["offcem"].bias for result in results]
    assert effects[0] == pytest.approx(effects[1], rel=1e-6)


def test_clusters_loggers_and_explanations(shop):
    table = shop.table(user=np.arange(len(shop.r)) // 3, who=np.arange(len(shop.r)) % 2)
    log = drs.Log(table, actions=K, propensities="mu", logger="who")
    options = {"estimators": ["mips", "offcem", "ips"], "embedding": EMBEDDING}
    model = drs.models.Constant(0.3)
    found = drs.evaluate(log, {"new": P.Column("pi")}, model, cluster="user", explain=True, **options)
    assert found["new", "mips"].method == "cluster"
    assert found["new", "mips"].stderr > 0
    assert set(found.loggers["logger"].to_pylist()) == {0, 1}
    whole = drs.evaluate(log, {"new": P.Column("pi")}, model, **options)
    assert whole["new", "mips"].value == found["new", "mips"].value
    parts = found.explain("new", "mips")
    n = len(shop.r)
    assert parts.contexts + parts.importance == pytest.approx(whole["new", "mips"].stderr ** 2 * (n - 1), rel=1e-9)
    assert found.unexplained == []


def test_every_interval(shop):
    """The weights of categories have a mean of 1, and are at most the largest weight of an action."""
    w = (shop.pi / shop.mu).max()
    clicks = drs.Log(shop.table(reward=(shop.r > 0.5).astype(float)), actions=K, propensities="mu")
    found = drs.evaluate(
        clicks,
        P.Column("pi"),
        None,
        ["mips"],
        embedding=EMBEDDING,
        interval=[name for name in INTERVALS if name != "cluster"],
        reward_range=(0, 1),
        max_weight_bound=w * 1.001,
        propensity_error=0.01,
    )
    for name, (low, high) in found["mips"].intervals.items():
        assert low < found["mips"].value < high, name


def test_policies_are_compared_in_pairs(shop):
    policies = {"new": P.Column("pi"), "old": P.Column("mu")}
    found = drs.evaluate(shop.log(), policies, None, ["mips"], embedding=EMBEDDING)
    of_events = [CATEGORY.tolist()] * len(shop.r)
    w = np.array(naive_marginal.weights(shop.pi, shop.mu, shop.a, of_events))
    terms = w * shop.r - shop.r  # the weights of the logging policy itself are 1
    gain = found.difference("new", "old", "mips")
    assert gain.value == pytest.approx(terms.mean(), rel=1e-9)
    assert gain.stderr == pytest.approx(terms.std(ddof=1) / np.sqrt(len(terms)), rel=1e-9)


def test_bad_rows_are_named_or_skipped(shop):
    lists = [list(row) for row in shop.mu]
    lists[7][0] += 0.3
    table = shop.table(mu=lists)
    options = {"estimators": "mips", "embedding": EMBEDDING}
    with pytest.raises(drs.LogError, match=r"propensities do not sum to 1.* at row 7"):
        drs.evaluate(drs.Log(table, actions=K, propensities="mu"), P.Column("pi"), **options)
    log = drs.Log(table, actions=K, propensities="mu", on_bad_row="skip")
    found = drs.evaluate(log, P.Column("pi"), **options)
    assert found.skipped == {"propensities do not sum to 1": 1}
    assert found.n == len(shop.r) - 1


@pytest.mark.covers
def test_a_plan_takes_categories(shop):
    forecast = drs.plan(
        shop.log(),
        {"new": P.Column("pi")},
        drs.models.Constant(0.3),
        estimators=["mips", "ips", "offcem"],
        embedding=EMBEDDING,
        sample=0.5,
    )
    assert forecast["new", "offcem"].width < forecast["new", "ips"].width
    assert forecast["new", "mips"].width < forecast["new", "ips"].width
    assert math.isnan(forecast["new", "mips"].exploration)  # known for weights ν / p alone


def test_a_result_is_pickled_and_says_what_it_was_made_from(shop):
    found = drs.evaluate(shop.log(), {"new": P.Column("pi")}, None, ["mips"], embedding="category")
    assert pickle.loads(pickle.dumps(found))["mips"] == found["mips"]
    assert found.provenance["parameters"]["embedding"] == "category"
    mapped = drs.evaluate(shop.log(), {"new": P.Column("pi")}, None, ["mips"], embedding=EMBEDDING)
    assert len(mapped.provenance["parameters"]["embedding"]) <= 300
    assert mapped["mips"] == found["mips"]


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": "mips"}, "estimator 'mips' needs the categories of actions: pass embedding="),
        ({"embedding": 3}, "embedding= must be a mapping of actions to categories, or a column: got int"),
        ({"embedding": {0: "a"}}, "embedding= has no category of action 1"),
        ({"embedding": {**EMBEDDING, 3: None}}, "embedding= has None as the category of action 3"),
        ({"embedding": {**EMBEDDING, 3: math.nan}}, "embedding= has nan as the category of action 3"),
        ({"embedding": {**EMBEDDING, 3: ["a"]}}, r"has \['a'\] as the category of action 3: a category is a text"),
        ({"embedding": "categry"}, "no column 'categry' for the embedding: did you mean 'category'"),
        ({"embedding": "mu"}, "lists are for logs with candidates="),
        ({"embedding": "x0"}, "has type double: categories are integers or text"),
        ({"embedding": "third"}, "has two categories of action .*: An action has one category".replace(": An", ". An")),
    ],
)
def test_categories_that_are_none(shop, options, message):
    log = drs.Log(shop.table(third=np.arange(len(shop.r)) % 3), actions=K, propensities="mu")
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(log, P.Uniform(), **{"estimators": ["mips"], **options})


def test_actions_that_a_column_of_categories_does_not_show(shop):
    seen = drs.Log(shop.table(), actions=K + 1, propensities=None, propensity="uniform")
    with pytest.raises(drs.DrstreamError, match=f"no category of action {K}, because it was never logged: pass a map"):
        drs.evaluate(seen, P.Uniform(), estimators="mips", embedding="category")
    column = [None if k % 2 else f"c{c}" for k, c in enumerate(CATEGORY[shop.a])]
    found = drs.evaluate(
        drs.Log(shop.table(category=column), actions=K, propensities="mu"),
        P.Column("pi"),
        None,
        "mips",
        embedding="category",
    )
    assert found["mips"] == drs.evaluate(shop.log(), P.Column("pi"), None, "mips", embedding=EMBEDDING)["mips"]


def test_a_log_without_the_propensities_of_all_actions(shop):
    message = "needs the logging policy's propensities of all actions, not of the logged one alone: .*propensities="
    for options in ({"estimators": "mips"}, {}):
        with pytest.raises(drs.DrstreamError, match=f"estimator 'mips' {message}"):
            drs.evaluate(shop.log(propensities=None), P.Uniform(), embedding=EMBEDDING, **options)
    none = drs.Log(shop.table(), actions=K, propensity=None)
    with pytest.raises(drs.DrstreamError, match="estimator 'mips' needs propensities, and the log has none"):
        drs.evaluate(none, P.Uniform(), drs.models.Constant(0.1), embedding=EMBEDDING)
    logged = drs.Log(shop.table(new=shop.pi[np.arange(len(shop.a)), shop.a]), actions=K, propensities="mu")
    with pytest.raises(drs.PolicyError, match=r"enough for estimators without categories\. Those with them need the"):
        drs.evaluate(logged, P.Column("new"), estimators="mips", embedding=EMBEDDING)


def test_rankings_have_no_categories():
    table = pa.table(
        {"action": [[1, 2], [2, 3]], "propensity": [[0.5, 0.5]] * 2, "reward": [[1.0, 0.0]] * 2, "pi": [[0.5, 0.5]] * 2}
    )
    log = drs.Log(table, context=[])
    with pytest.raises(drs.DrstreamError, match="estimator 'mips' is about events with one action"):
        drs.evaluate(log, P.Column("pi"), estimators="mips")
    with pytest.raises(drs.DrstreamError, match="Leave out embedding=, which is about events with one action"):
        drs.evaluate(log, P.Column("pi"), embedding={1: "a"})


# Open Bandit Pipeline's number

OBP = """
import sys
import numpy as np
from obp.ope import MarginalizedInverseProbabilityWeighting as Mips
from obp.ope import SelfNormalizedMarginalizedInverseProbabilityWeighting as Snmips

found = np.load(sys.argv[1])
groups = found["category"].max() + 1
p_e_a = np.zeros((len(found["category"]), groups, 1))
p_e_a[np.arange(len(found["category"])), found["category"], 0] = 1
given = dict(reward=found["r"], action=found["a"], action_embed=found["category"][found["a"]][:, None], p_e_a=p_e_a)
given |= dict(pi_b=found["mu"][:, :, None], action_dist=found["pi"][:, :, None])
for kind in (Mips, Snmips):
    print(repr(float(kind(n_actions=len(found["category"])).estimate_policy_value(**given))))
"""


@pytest.mark.skipif(
    not os.environ.get("DRSTREAM_BENCH_OBP"), reason="DRSTREAM_BENCH_OBP names no Python with Open Bandit Pipeline"
)
def test_open_bandit_pipeline_has_the_same_numbers(shop, tmp_path):
    np.savez(tmp_path / "log.npz", r=shop.r, a=shop.a, mu=shop.mu, pi=shop.pi, category=CATEGORY)
    command = [os.environ["DRSTREAM_BENCH_OBP"], "-W", "ignore", "-c", OBP, str(tmp_path / "log.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = [float(line) for line in done.stdout.splitlines()[-2:]]
    ours = drs.evaluate(shop.log(), P.Column("pi"), None, ["mips", "snmips"], embedding=EMBEDDING)
    assert [ours["mips"].value, ours["snmips"].value] == pytest.approx(theirs, rel=1e-10)


def test_row_groups_and_sources_do_not_matter(shop, tmp_path):
    table = shop.table()
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=max(1, len(shop.r) // 5))
    found = [
        drs.evaluate(drs.Log(source, actions=K, propensities="mu"), shop.policy, None, "mips", embedding="category")[
            "mips"
        ].value
        for source in (
            table,
            tmp_path / "log.parquet",
            pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        )
    ]
    assert found[0] == found[2] == pytest.approx(found[1], rel=1e-12)
