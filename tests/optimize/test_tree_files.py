"""Filter Tree and Offset Tree as files."""

import importlib.util
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import drstream as drs
from drstream.optimize.trees import FilterTree
from tests.helpers.logs import arrays, world
from tests.helpers.trees import LEARNERS, ROWS, STUMP, D, same

HAS_SKOPS = importlib.util.find_spec("skops") is not None
TREE = "sklearn.tree._tree.Tree"  # to skops, a type that can do harm
needs_skops = pytest.mark.skipif(not HAS_SKOPS, reason="skops, with which trees are saved, is not installed")


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


@pytest.fixture(scope="module", name="X")
def contexts(table):
    return arrays(table, D)[0]


def test_pickling(table, X):
    for learner in LEARNERS:
        got = learner().fit(drs.Log(table).split(0.5)[0])
        other = pickle.loads(pickle.dumps(got))
        same(other, got, X)
        assert other.fitted_on.splits == got.fitted_on.splits
        assert not got.fresh().fitted


@needs_skops
@pytest.mark.parametrize("base", [None, make_pipeline(StandardScaler(), LogisticRegression())], ids=["usual", "given"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_saving(table, X, tmp_path, learner, base):
    rows, path = tmp_path / "log.parquet", tmp_path / "tree.skops"
    names = np.array(["w", "x", "y", "z"])
    pq.write_table(table.set_column(0, "action", pa.array(names[table["action"].to_numpy()])), rows)
    train, test = drs.Log(rows, actions=["z", "y", "x", "w", "v"]).split(0.5)
    got = learner(base, sample=ROWS // 3, seed=3).fit(train)
    got.save(path)
    other = drs.optimize.load(path)
    assert type(other) is learner
    assert repr(other) == repr(got)
    assert vars(other).keys() == vars(got).keys()
    different = {"base", "classifiers_", "children_"}
    equal = vars(got).keys() - different
    assert {name: getattr(other, name) for name in equal} == {name: getattr(got, name) for name in equal}
    np.testing.assert_array_equal(other.children_, got.children_)
    np.testing.assert_array_equal(other.choose(X), got.choose(X))
    assert other.depth_ == got.depth_ == 3
    assert drs.evaluate(test, other)["ips"].value == drs.evaluate(test, got)["ips"].value
    with pytest.warns(UserWarning, match="learned from events that it is now evaluated on"):
        drs.evaluate(train, other)


@needs_skops
def test_trees_of_other_kinds_must_be_trusted(table, tmp_path):
    FilterTree(RandomForestClassifier(3, max_depth=2, random_state=0)).fit(table).save(tmp_path / "forest")
    with pytest.raises(drs.PolicyError, match=rf"holds types that could do harm.*trusted=\['{TREE}'\]"):
        drs.optimize.load(tmp_path / "forest")
    assert drs.optimize.load(tmp_path / "forest", trusted=[TREE]).depth_ == 2


@needs_skops
@pytest.mark.parametrize(
    ("array", "value"),
    [
        ("children_left", 10**6),
        ("children_left", -(10**9)),
        ("children_right", 0),
        ("children_right", -2),
        ("feature", 99),
    ],
)
def test_a_file_whose_nodes_lead_nowhere_is_refused(table, tmp_path, array, value):
    got = FilterTree(STUMP).fit(table)
    getattr(got.classifiers_[0].tree_, array)[0] = value
    got.save(tmp_path / "tree")
    with pytest.raises(drs.PolicyError, match="nodes lead nowhere: it is damaged"):
        drs.optimize.load(tmp_path / "tree")


@needs_skops
@pytest.mark.parametrize("wrong", [{"children_": [[-1, -2], [1, -3], [0, -4]]}, {"classifiers_": [0, 1]}])
def test_a_file_whose_tournament_is_another_is_refused(table, tmp_path, wrong):
    got = FilterTree(LogisticRegression()).fit(table)
    for name, value in wrong.items():
        setattr(got, name, np.array(value) if name == "children_" else value)
    got.save(tmp_path / "tree")
    with pytest.raises(drs.PolicyError, match="it is damaged"):
        drs.optimize.load(tmp_path / "tree")


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("logged", [[0, 1], [1, 3], [2]])
def test_actions_that_were_never_logged_are_not_taken(table, X, learner, logged):
    """Of a log with costs, an action that was not logged seems to cost nothing."""
    cost = pa.array(1 - table["reward"].to_numpy())
    costs = table.drop_columns(["reward"]).append_column("cost", cost)
    costs = costs.filter(pc.is_in(costs["action"], pa.array(logged, pa.int32())))
    assert set(learner().fit(drs.Log(costs, actions=4)).choose(X).tolist()) <= set(logged)


@needs_skops
def test_saving_nodes_that_are_constant(table, X, tmp_path):
    got = FilterTree().fit(table.set_column(1, "reward", pa.array(np.zeros(ROWS))))
    got.save(tmp_path / "tree")
    other = drs.optimize.load(tmp_path / "tree")
    assert other.classifiers_ == [0, 0, 0]
    assert not other.choose(X).any()
