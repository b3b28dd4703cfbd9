"""What bad input to a replay on candidates gets: a sentence before the pass, or one with the row."""

import math
import re

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.candidate_replays import CANDIDATES, Shared, open_log, small_log
from tests.helpers.passes import not_plain
from tests.helpers.replays import small_log as dense_log

pytestmark = pytest.mark.covers

P = drs.policies
TABLE = small_log(0, 300)[0]


@pytest.fixture
def log():
    return open_log(TABLE)


class Mine(P.CompiledShared):
    """Counts what it has learned, and prefers nobody."""

    def initial_state(self, n_context, n_item_features):
        return np.zeros(1)

    @staticmethod
    def probabilities(state, x, Z, out):
        for k in range(out.shape[0]):
            out[k] = 1.0 / out.shape[0]

    @staticmethod
    def update(state, x, z, reward):
        state[0] += 1.0


class Broken(Mine):
    @staticmethod
    def probabilities(state, x, Z, out):
        for k in range(out.shape[0]):
            out[k] = 1.0 / out.shape[0]
        if state[0] == 3.0:
            out[0] = np.nan


class Known(P.Compiled):
    pass


class Own(P.EpsilonGreedy):
    """A learner with a function of its own, which the shared form would not know."""

    @staticmethod
    def update(state, x, action, reward):
        pass


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (P.UCB1(), "UCB1 learns about actions that all events share"),
        (P.Exp3(), "Exp3 learns about actions that all events share.*use EpsilonGreedy, Boltzmann, SquareCB or LinUCB"),
        (Known(), "Known learns about actions.*or write a CompiledShared"),
        (Own(), "Own learns about actions"),
        (P.Constant(-1), "takes -1: in this log, it must be a position, from 0"),
        (P.Constant(99), "takes 99, which is not among the candidates at row 0"),
        (P.Linear(np.ones((3, 2))), "a row of weights for each action"),
        (naive_replay.UCB1(3, 2), r"probabilities of UCB1 takes \(X.*must take \(X, Z, starts\)"),
        (P.Retrained(object.__new__(type("Model", (), {"fit": None}))), "Retrained, which has a model for each action"),
        (P.Column("propensity"), "the probability of the logged action only"),
    ],
    ids=["ucb1", "exp3", "compiled", "subclass", "constant", "position", "linear", "python", "retrained", "column"],
)
def test_policies_of_known_actions_are_refused_before_the_pass(log, policy, message):
    with pytest.raises(drs.DrstreamError, match=re.compile(message, re.DOTALL)):
        drs.replay(log, policy, 5)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Mine(), "Mine scores candidates by their features, and this log has no candidates="),
        (P.EpsilonGreedy(interactions=True), r"EpsilonGreedy\(interactions=True\) learns from products"),
        (P.LinUCB(interactions=True), r"LinUCB\(interactions=True\) learns from products"),
    ],
    ids=["shared", "greedy", "linucb"],
)
def test_policies_of_candidates_are_refused_on_other_logs(policy, message):
    log = drs.Log(dense_log(0, 100, 3, 2), actions=3, context=["x0", "x1"])
    with pytest.raises(drs.PolicyError, match=message):
        drs.replay(log, policy, 5)


def test_what_takes_too_much_memory_is_refused_before_the_pass(log, monkeypatch):
    from drstream.running import execution

    monkeypatch.setattr(execution, "physical_memory", lambda: 10_000.0)
    assert drs.replay(log, P.LinUCB(), 5, q=0.1).complete
    with pytest.raises(drs.DrstreamError, match=r"2 features of contexts and 3 of candidates need about .* GB in all"):
        drs.replay(log, P.LinUCB(interactions=True), 5)


def test_rows_whose_candidates_are_bad_are_skipped_and_counted():
    columns = TABLE.to_pydict()
    columns["action"][3] = 99
    bad = open_log(pa.table(columns, schema=TABLE.schema))
    with pytest.raises(drs.LogError, match=r"got 99, where 'items' holds \[.*\], at row 3"):
        drs.replay(bad, P.EpsilonGreedy(), 5)
    run = drs.replay(bad, P.EpsilonGreedy(), 5, q=0.1, on_bad_row="skip")
    assert run.skipped == {"action is not a position among its candidates": 1}
    assert run.events == 299


def test_a_progressive_policy_needs_known_actions(log):
    with pytest.raises(drs.LogError, match=r"ProgressivePolicy needs one set of actions.*Replay the learner itself"):
        drs.optimize.ProgressivePolicy(P.EpsilonGreedy()).fit(log)


def test_interactions_are_true_or_false():
    with pytest.raises(drs.PolicyError, match="LinUCB: interactions=2 must be True or False"):
        P.LinUCB(interactions=2)
    with pytest.raises(drs.PolicyError, match="Boltzmann: interactions='yes'"):
        P.Boltzmann(interactions="yes")


def test_learners_need_features_of_candidates_and_dense_contexts():
    bare = drs.Log(TABLE, context=[], candidates=drs.Candidates("items", action_is="position"))
    with pytest.raises(drs.PolicyError, match="SquareCB learns from features of candidates, and those of this"):
        drs.replay(bare, P.SquareCB(), 5)
    assert drs.replay(bare, P.Uniform(), 5, q=0.1).complete

    class Blind:
        """Candidates have no features, so it is given none."""

        def reset(self):
            self.seen = []

        def probabilities(self, X, Z, starts):
            assert Z is None
            return np.repeat(1 / np.diff(starts), np.diff(starts))

        def update(self, x, z, reward):
            assert z is None

    assert drs.replay(bare, Blind(), 5, q=0.1).complete
    sparse = TABLE.append_column("at", pa.array([[0, 2]] * 300, pa.list_(pa.int32())))
    sparse = sparse.append_column("values", pa.array([[1.0, 2.0]] * 300))
    some = drs.Log(sparse, context=drs.Sparse("at", "values", 5), candidates=CANDIDATES)
    with pytest.raises(drs.PolicyError, match=r"LinUCB takes dense contexts beside candidates.*are sparse"):
        drs.replay(some, P.LinUCB(), 5)

    class Looks(Shared):
        def choose(self, x, Z):
            assert x.shape == (5,)
            return [1 / len(Z)] * len(Z)

        def update(self, x, z, reward):
            assert x.shape == (1, 5)

    looks = Looks(naive_replay.EpsilonGreedy)
    assert drs.replay(some, looks, 5, q=0.1).complete
    blind = type("Blind", (Mine,), {"uses_context": False})()
    assert drs.replay(some, {"blind": blind, "fixed": P.Softmax(np.ones(8))}, 5, q=0.1)["blind"].complete


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda starts: np.ones((len(starts) - 1, 3)), r"shape \(16, 3\) for 16 events with \d+ candidates, at t = 1"),
        (lambda starts: np.ones(len(starts) - 1), r"shape \(16,\) for 16 events with \d+ candidates"),
        (lambda starts: np.array(["a"] * starts[-1]), "where numbers are needed"),
    ],
    ids=["dense", "one an event", "text"],
)
def test_what_a_python_policy_returns_is_checked(log, answer, message, monkeypatch):
    from drstream.replaying import lanes

    monkeypatch.setattr(lanes, "MOST_AHEAD", 16)

    class Wrong(Shared):
        def probabilities(self, X, Z, starts):
            return answer(starts)

    with pytest.raises(drs.PolicyError, match=message):
        drs.replay(log, Wrong(naive_replay.EpsilonGreedy), 5, q=0.1)


def test_invalid_probabilities_are_named_with_their_row(log):
    class Lost(Shared):
        def choose(self, x, Z):
            found = super().choose(x, Z)
            return [math.nan, *found[1:]] if self.version == 2 else found

    with pytest.raises(drs.PolicyError, match=r"'policy' gives NaN among its probabilities at t = 3, .*row \d+.*\[nan"):
        drs.replay(log, Lost(naive_replay.EpsilonGreedy), 5, q=0.1)
    with pytest.raises(
        drs.PolicyError, match=r"'policy' gives NaN among its probabilities at t = 4, .*row \d+"
    ) as found:
        drs.replay(log, Broken(), 5, q=0.1)
    row = int(re.search(r"row (\d+)", str(found.value))[1])
    shown = re.search(r"\[(.*)\]", str(found.value))[1].split(", ")
    assert len(shown) == len(TABLE["items"][row].as_py())
    twice = TABLE.append_column("twice", pa.array([[2 * p for p in pi] for pi in TABLE["pi"].to_pylist()]))
    with pytest.raises(drs.PolicyError, match=r"sum to 2, not 1, at t = 1, row 0"):
        drs.replay(open_log(twice), P.Column("twice"), 5, q=0.1)


def test_what_a_python_policy_raises_keeps_its_place(log):
    class Raises(Shared):
        def update(self, x, z, reward):
            raise KeyError("no")

    with pytest.raises(KeyError) as found:
        drs.replay(log, Raises(naive_replay.EpsilonGreedy), 5, q=0.1)
    assert "raised by update of policy 'policy' at t = 1, row" in found.value.__notes__[0]


def test_a_python_policy_cannot_change_the_log():
    """Features that are integers in the log are converted, so their array is no view of Arrow's memory."""

    class Greedy(Shared):
        def probabilities(self, X, Z, starts):
            assert not X.flags.writeable
            assert not Z.flags.writeable
            assert Z.dtype == np.float64
            return super().probabilities(X, Z, starts)

        def update(self, x, z, reward):
            assert not z.flags.writeable
            super().update(x, z, reward)

    whole = pa.array([[[1, 2]] * len(items) for items in TABLE["items"].to_pylist()])
    log = open_log(TABLE.set_column(TABLE.column_names.index("z"), "z", whole))
    assert drs.replay(log, Greedy(naive_replay.EpsilonGreedy), 5, q=0.1).complete


def test_debug_checks_the_version_of_a_python_policy(log):
    class Silent(Shared):
        def update(self, x, z, reward):
            super().update(x, z, reward)
            self.version = 0

    wrong = Silent(naive_replay.EpsilonGreedy, rate=0.5)
    with pytest.raises(drs.PolicyError, match=r"changed its probabilities while its version stayed 0, at t = \d+, row"):
        drs.replay(log, wrong, 20, q=0.1, debug=True)
    right = Shared(naive_replay.EpsilonGreedy, rate=0.5)
    assert drs.replay(log, right, 20, q=0.1, debug=True).complete


def test_what_a_compiled_policy_lacks_is_said(log):
    class Half(P.CompiledShared):
        def initial_state(self, n_context, n_item_features):
            return np.zeros(1)

    class Other(Mine):
        @staticmethod
        def update(state, x, action, reward, more):
            pass

    class Lists(Mine):
        def initial_state(self, n_context, n_item_features):
            return [0.0]

    for policy, message in (
        (Half(), "Half has no static function probabilities"),
        (Other(), r"Other.update takes \(state, x, action, reward, more\); it must be .* \(state, x, z, reward\)"),
        (Lists(), "initial_state must return a flat array of float64"),
    ):
        with pytest.raises(drs.PolicyError, match=message):
            drs.replay(log, policy, 5, q=0.1)
    with pytest.raises(NotImplementedError, match=r"no initial_state\(n_context, n_item_features\)"):
        drs.replay(log, type("None", (Mine,), {"initial_state": P.CompiledShared.initial_state})(), 5, q=0.1)


@not_plain
def test_debug_checks_the_bounds_of_a_compiled_policy(log):
    class Beyond(Mine):
        @staticmethod
        def update(state, x, z, reward):
            state[int(reward) + 5] = 1.0

    with pytest.raises(IndexError) as found:
        drs.replay(log, Beyond(), 5, q=0.1, debug=True)
    assert "raised by the compiled policy 'policy' at t = 1" in found.value.__notes__[0]


def test_a_policy_of_the_users_own_learns_in_replay_as_in_python(log):
    """It sees x, all Z and the chosen z in float64, and forgets when a replicate ends."""

    class InPython(Shared):
        def choose(self, x, Z):
            return [1 / len(Z)] * len(Z)

        def update(self, x, z, reward):
            self.version += 1

    compiled = drs.replay(log, Mine(), 5, q=0.1)
    python = drs.replay(log, InPython(naive_replay.EpsilonGreedy), 5, q=0.1)
    np.testing.assert_allclose(compiled.replicates["average"], python.replicates["average"], rtol=1e-12)


def test_a_policy_whose_update_wants_an_action_is_refused(log):
    class Of(type("Base", (), {"reset": lambda self: None, "probabilities": lambda self, X, Z, starts: None})):
        def update(self, x, action, reward):
            pass

    with pytest.raises(drs.PolicyError, match=r"update of Of takes \(x, action, reward\).*must take \(x, z, reward\)"):
        drs.replay(log, Of(), 5)
    with pytest.raises(drs.PolicyError, match=r"on a log of candidates, .*update\(x, z, reward\)\. Half lacks reset"):
        drs.replay(log, type("Half", (), {"probabilities": print, "update": print})(), 5)
