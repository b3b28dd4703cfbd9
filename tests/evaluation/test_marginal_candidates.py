"""Estimators that weigh by category on candidates, and lists of the propensities of all of them."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation.estimators import ALL
from tests.helpers import naive_candidates as naive
from tests.helpers import naive_marginal
from tests.helpers.candidate_logs import DZ, NAMES, D, events, items_of, table_of
from tests.helpers.evaluations import BY_TIME, MARGINAL
from tests.helpers.passes import not_plain

pytestmark = pytest.mark.covers

P, M = drs.policies, drs.models
WEIGHTS = np.random.default_rng(5).normal(size=D + DZ)
PLAIN_OF = {"mips": "ips", "snmips": "snips", "offcem": "dr"}  # with each candidate in a category of its own


@st.composite
def ragged(draw):
    """Events with one to five candidates, some of which are never logged, in up to three categories."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=25))
    number = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
    found = {name: [] for name in ("pi", "mu", "rhat", "kind", "action", "reward", "propensity")}
    for size in sizes:
        a = draw(st.integers(0, size - 1))
        raw, other = (np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), float) for _ in "ab")
        raw[0] += raw.sum() == 0
        other[a] += 1
        found["pi"].append((raw / raw.sum()).tolist())
        found["mu"].append((other / other.sum()).tolist())
        found["rhat"].append(draw(st.lists(number, min_size=size, max_size=size)))
        found["kind"].append(draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size)))
        found["action"].append(a)
        found["reward"].append(draw(st.one_of(st.sampled_from([0.0, 1.0]), number)))
        found["propensity"].append(found["mu"][-1][a])
    return found


@given(log=ragged())
def test_estimators_equal_the_naive_ones(log):
    table = pa.table({**log, "ids": [list(range(len(p))) for p in log["pi"]]})
    opened = drs.Log(table, context=[], candidates=drs.Candidates("ids"), propensities="mu")
    result = drs.evaluate(opened, {"new": P.Column("pi")}, M.Column("rhat"), MARGINAL, embedding="kind")
    args = log["reward"], log["pi"], log["mu"], log["action"], log["kind"], log["rhat"]
    for name in MARGINAL:
        value, stderr, w = naive_marginal.estimate(name, *args)
        scale = max(1.0, 2e3 * max(w) / (np.mean(w) if name == "snmips" and any(w) else 1.0))
        got = result["new", name]
        assert got.value == pytest.approx(value, rel=1e-9, abs=1e-12 * scale, nan_ok=True)
        assert got.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-13 * scale**2, nan_ok=True)
        assert got.max_weight == pytest.approx(max(w), rel=1e-14)
    residual = [r - one[a] for r, one, a in zip(log["reward"], log["rhat"], log["action"], strict=True)]
    for name, y in (("mips", np.array(log["reward"]) - opened.typical_reward), ("offcem", residual)):
        effect, stderr = naive_marginal.direct_effect(y, log["pi"], log["mu"], log["action"], log["kind"])
        size = 4e3 / min(log["propensity"])
        direct = result._facts_of(0, ALL[name]).direct[name]
        assert direct.bias == pytest.approx(effect, rel=1e-9, abs=1e-12 * size)
        assert direct.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-13 * size**2, nan_ok=True)


def with_propensities(found, seed=0):
    """The same events, logged by a policy whose probabilities of all candidates are known."""
    rng = np.random.default_rng(seed)
    found = {**found, "mu": [rng.dirichlet(np.ones(len(s))).tolist() for s in found["sets"]]}
    found["position"] = [int(rng.choice(len(p), p=p)) for p in found["mu"]]
    found["propensity"] = np.array([p[a] for p, a in zip(found["mu"], found["position"], strict=True)])
    found["kind"] = {id: f"k{k % 3}" for k, id in enumerate(found["ids"])}
    return found


FOUND = with_propensities(events(rows=300, seed=6))


def open_log(found=FOUND, form="lists", more=None, **options):
    table, candidates = table_of(found, form)
    lists = [[found["kind"][found["ids"][i]] for i in s] for s in found["sets"]]
    structs = [[{"kind": kind} for kind in one] for one in lists]
    columns = {"mu": found["mu"], "kinds": lists, "structs": structs, **(more or {})}
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return drs.Log(table, **{"candidates": candidates, "propensities": "mu", **options})


def test_each_candidate_its_own_category_is_the_estimator_without_categories():
    pi = naive.softmax(naive.scores(FOUND, WEIGHTS))
    rounded = [np.round(p, 9).tolist() for p in FOUND["mu"]]
    own = [[FOUND["ids"][i] for i in s] for s in FOUND["sets"]]
    log = open_log(more={"pi": pi, "rounded": rounded, "own": own}, propensities="rounded")
    policies = {
        "softmax": P.Softmax(WEIGHTS),
        "epsilon": P.Epsilon(P.Linear(WEIGHTS), 0.3),
        "uniform": P.Uniform(),
        "column": P.Column("pi"),
    }
    names = [*PLAIN_OF, *PLAIN_OF.values()]
    found = drs.evaluate(log, policies, M.Ridge(), names, crossfit=2, embedding="own")
    for policy in policies:
        for name, plain in PLAIN_OF.items():
            one, other = (vars(found[policy, estimator]) for estimator in (name, plain))
            for what in ("value", "stderr", "low", "high", "ess", "max_weight"):  # sums of groups of other terms
                assert one[what] == pytest.approx(other[what], rel=1e-12, nan_ok=True)


def test_categories_from_lists_structs_and_items():
    items = items_of(FOUND).append_column("kind", pa.array(list(FOUND["kind"].values())))
    candidates = drs.Candidates("items", drs.Items(items, features=NAMES))
    found = [
        drs.evaluate(log, P.Softmax(WEIGHTS), M.Ridge(), crossfit=2, embedding=embedding).rows()
        for log, embedding in (
            (open_log(), "kinds"),
            (open_log(), "structs.kind"),
            (open_log(form="items", candidates=candidates), "kind"),
        )
    ]
    assert all(rows == found[0] for rows in found)
    numbers = with_propensities(events(rows=50, text=False, seed=2))
    items = items_of(numbers).append_column("kind", pa.array(list(numbers["kind"].values())))
    log = open_log(numbers, "items", candidates=drs.Candidates("items", drs.Items(items, features=NAMES)))
    got = drs.evaluate(log, P.Uniform(), estimators="mips", embedding="kind")
    assert got["mips"] == drs.evaluate(open_log(numbers), P.Uniform(), estimators="mips", embedding="kinds")["mips"]


def test_where_the_logging_policy_is_known_from():
    """Lists in the log, a policy, and uniform loggers."""
    options = {"estimators": ["mips"], "embedding": "kinds"}
    wanted = drs.evaluate(open_log(), P.Softmax(WEIGHTS), **options)["mips"].value
    bare = open_log(propensities=None)
    found = drs.evaluate(bare, P.Softmax(WEIGHTS), propensity=P.Column("mu"), **options)["mips"].value
    assert found == pytest.approx(wanted, rel=1e-12)
    uniform = [
        drs.evaluate(bare, P.Softmax(WEIGHTS), propensity=P.Uniform(), **options)["mips"].value,
        drs.evaluate(open_log(propensities=None, propensity="uniform"), P.Softmax(WEIGHTS), **options)["mips"].value,
        drs.evaluate(
            open_log(propensity="uniform", more={"flat": naive.uniform(FOUND)}, propensities="flat"),
            P.Softmax(WEIGHTS),
            **options,
        )["mips"].value,
    ]
    assert uniform == pytest.approx([uniform[0]] * 3, rel=1e-12)


def test_a_log_of_actions_gives_the_same_numbers():
    """All events have the same four candidates."""
    rng = np.random.default_rng(0)
    n, K = 400, 4
    z, x = rng.normal(size=(K, DZ)), rng.normal(size=(n, D))
    mu = rng.dirichlet(np.ones(K), n)
    a = np.array([rng.choice(K, p=p) for p in mu])
    pi = rng.dirichlet(np.ones(K), n)
    columns = {"action": a, "reward": rng.random(n), "propensity": mu[np.arange(n), a], "x0": x[:, 0], "x1": x[:, 1]}
    columns |= {"mu": list(mu), "pi": list(pi), "rhat": list(rng.random((n, K))), "items": [list(range(K))] * n}
    table = pa.table({**columns, "z": [z.tolist()] * n})
    kinds = {0: "a", 1: "b", 2: "a", 3: "b"}
    table, names = table.append_column("kinds", pa.array([list(kinds.values())] * n)), ["dm", "ips", *MARGINAL]
    both = [
        drs.evaluate(drs.Log(table, propensities="mu", **more), P.Column("pi"), M.Column("rhat"), names, embedding=one)
        for more, one in (({"actions": K}, kinds), ({"candidates": drs.Candidates("items", "z")}, "kinds"))
    ]
    for name in names:
        assert both[0][name].value == pytest.approx(both[1][name].value, rel=1e-12)
        assert both[0][name].stderr == pytest.approx(both[1][name].stderr, rel=1e-12)


@not_plain
def test_mips_is_right_where_rewards_depend_on_the_category_alone():
    """Items of a large catalogue, two hundred of which were never logged; their categories were."""
    rng = np.random.default_rng(1)
    n, catalogue, kinds = 20_000, 1000, 5
    kind, new = np.arange(catalogue) % kinds, np.arange(catalogue) >= 800
    value = np.array([0.1, 0.3, 0.5, 0.2, 0.7])
    first = rng.integers(0, 160, (n, kinds)) * kinds + np.arange(kinds)  # an item of each category that can be logged
    second = (first + kinds * rng.integers(1, 160, (n, kinds))) % 800  # and another
    recent = 800 + (rng.integers(0, 200, (n, 1)) + np.array([0, 67, 131])) % 200
    sets = np.concatenate([first, second, recent], axis=1)
    mu = (rng.dirichlet(np.ones(sets.shape[1]) * 0.5, n) + 5e-3) * ~new[sets]
    mu /= mu.sum(axis=1, keepdims=True)
    a = (rng.random((n, 1)) > mu.cumsum(axis=1)).sum(axis=1).clip(0, 9)
    pi = np.where(kind[sets] >= 2, 3.0, 1.0) * np.where(new[sets], 5.0, 1.0)
    pi /= pi.sum(axis=1, keepdims=True)
    rows = np.arange(n)
    table = {
        "action": sets[rows, a],
        "reward": (rng.random(n) < value[kind[sets[rows, a]]]).astype(float),
        "propensity": mu[rows, a],
        "items": list(sets),
        "mu": list(mu),
        "pi": list(pi),
        "kind": list(kind[sets]),
    }
    log = drs.Log(pa.table(table), context=[], candidates=drs.Candidates("items"), propensities="mu")
    found = drs.evaluate(log, {"new": P.Column("pi")}, estimators=["ips", "mips", "snmips"], embedding="kind")
    truth = (pi * value[kind[sets]]).sum(axis=1).mean()
    mips, ips = found["new", "mips"], found["new", "ips"]
    assert abs(mips.value - truth) < 4 * mips.stderr
    assert abs(ips.value - truth) > 8 * ips.stderr
    about = next(finding for finding in found.findings if finding.check == "embedding")
    assert about.level == "ok", about


# Mistakes


def changed(column, row, value):
    """A log whose column has another value in one row."""
    table, candidates = table_of(FOUND)
    columns = {
        "mu": list(FOUND["mu"]),
        "kinds": [[FOUND["kind"][FOUND["ids"][i]] for i in s] for s in FOUND["sets"]],
    }
    columns[column][row] = value(columns[column][row])
    for name, found in columns.items():
        table = table.append_column(name, pa.array(found))
    return table, candidates


def run(table, candidates, **options):
    log = drs.Log(table, candidates=candidates, propensities="mu", **options)
    return drs.evaluate(log, P.Uniform(), estimators="mips", embedding="kinds")


ROW = next(k for k, s in enumerate(FOUND["sets"]) if k > 4 and len(s) > 2)


@pytest.mark.parametrize(
    ("reason", "value"),
    [
        ("propensities are null", lambda p: None),
        ("propensities are null", lambda p: [None, *p[1:]]),
        ("propensities have another length", lambda p: [*p, 0.0]),
        ("propensities do not sum to 1", lambda p: [2 * v for v in p]),
        ("propensities do not sum to 1", lambda p: [-p[0], p[1] + 2 * p[0], *p[2:]]),
        ("propensity differs from the propensities of all actions", lambda p: [p[-1], *p[:-1]]),
    ],
)
def test_bad_propensities_are_named_or_skipped_and_counted(reason, value):
    table, candidates = changed("mu", ROW, value)
    with pytest.raises(drs.LogError, match=f"{reason}.* at row {ROW}, column 'mu'"):
        run(table, candidates)
    found = run(table, candidates, on_bad_row="skip")
    assert found.skipped == {reason: 1}
    assert found.n == len(FOUND["sets"]) - 1


def test_bad_candidates_beside_bad_propensities():
    """Rows that are bad for both reasons count once; all bad rows leave no event."""
    table, candidates = changed("mu", ROW, lambda p: None)
    items = table["items"].to_pylist()
    items[ROW], items[1] = [], None
    table = table.set_column(table.column_names.index("items"), "items", pa.array(items))
    assert run(table, candidates, on_bad_row="skip").skipped == {
        "candidates are null": 1,
        "there are no candidates": 1,
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda kinds: None, "is null at row {row}: each candidate has a category"),
        (lambda kinds: [None, *kinds[1:]], "holds a null at row {row}: each candidate has a category"),
        (lambda kinds: [*kinds, "a"], "holds {more} categories at row {row}, where there are {size} candidates"),
    ],
)
def test_lists_of_categories_that_do_not_fit(value, message):
    size = len(FOUND["sets"][ROW])
    with pytest.raises(drs.LogError, match=message.format(row=ROW, size=size, more=size + 1)):
        run(*changed("kinds", ROW, value))


def test_what_is_refused():
    log = open_log()
    for embedding, message in (
        ({"item-3": "a"}, "must be a column in a log of candidates, with lists of categories or of the table of items"),
        ("nope", "no column 'nope' for the embedding"),
        ("x0", "has type float: it must hold a list, one entry a candidate"),
        ("z", "categories are integers or text"),
    ):
        with pytest.raises(drs.DrstreamError, match=message):
            drs.evaluate(log, P.Uniform(), estimators="mips", embedding=embedding)
    with pytest.raises(drs.DrstreamError, match="needs the logging policy's propensities of all actions"):
        drs.evaluate(open_log(propensities=None), P.Uniform(), estimators="mips", embedding="kinds")
    with pytest.raises(drs.LogError, match=r"propensities= names 2 columns.*: name one column of lists"):
        open_log(propensities=["x0", "x1"])
    for name in BY_TIME:
        with pytest.raises(drs.DrstreamError, match="known for logs with one set of actions for all events only"):
            drs.evaluate(log, P.Uniform(), M.Constant(0.1), estimators=name)
