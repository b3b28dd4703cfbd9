"""What bad input to replay gets: a sentence that says what, where, the value and the remedy; and nothing lost."""

import math
import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.crossed import meeting
from tests.helpers.replays import bits, small_log


@pytest.fixture
def log():
    return drs.Log(small_log(0, 600, 3, 2), actions=3, context=["x0", "x1"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1.5}, r"q=1.5: the quantile level must be in \[0, 1\]"),
        ({"q": -0.1}, "q=-0.1"),
        ({"q": math.nan}, "q=nan"),
        ({"q": [0.1, 2]}, "q=2"),
        ({"q": []}, "at least one value"),
        ({"q": [0.1, 0.1]}, "none of them twice"),
        ({"q": "0.1"}, "q='0.1': it must be a number or a list of numbers"),
        ({"q": np.array(0.1)}, "a number or a list of numbers"),
        ({"seed": 2**64}, "seed=18446744073709551616 must be a whole number of 64 bits"),
        ({"horizon": 10**20}, "horizon=100000000000000000000"),
        ({"method": "rs", "q": [0.1, 0.2]}, "rs does not use q"),
        ({"executor": 4}, "executor=4"),
        ({"c_max": 0}, r"c_max=0: the largest multiplier must be in \(0, 1\]"),
        ({"c_max": 1.5}, "c_max=1.5"),
        ({"horizon": 0}, "horizon=0 must be a whole number of at least 1"),
        ({"horizon": 2.5}, "horizon=2.5"),
        ({"horizon": True}, "horizon=True"),
        ({"replicates": 0}, "replicates=0"),
        ({"shards": 0}, "shards=0"),
        ({"shards": 2}, "the log has 1 row group "),
        ({"seed": 0.5}, "seed=0.5 must be a whole number"),
        ({"method": "drns"}, "method='drns': did you mean 'dr-ns'"),
        ({"tracker": "exat"}, "did you mean 'exact'"),
        ({"threads": 0}, "threads=0"),
        ({"confidence": 2}, "confidence=2"),
        ({"method": "dm"}, "pass a reward model with model="),
        ({"model": 3}, "not a reward model"),
        ({"on_bad_row": "ignore"}, "on_bad_row"),
        ({"progress": 3}, "progress=3"),
    ],
)
def test_parameters(log, options, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.replay(log, drs.policies.UCB1(), **{"horizon": 5, **options})


def policy(**methods):
    """A Python policy of three actions, with some methods replaced."""
    plain = {
        "version": 0,
        "reset": lambda self: None,
        "probabilities": lambda self, X: np.full((len(X), 3), 1 / 3),
        "update": lambda self, x, a, r: None,
    }
    return type("Policy", (), {**plain, **methods})()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([math.nan, 0.5, 0.5], "gives NaN among its probabilities"),
        ([0.5, 0.5, 0.5], "gives probabilities that sum to 1.5, not 1,"),
        ([1.5, -0.5, 0.0], "gives a probability of -0.5"),
        ([math.inf, 0, 0], "gives probabilities that sum to inf, not 1,"),
    ],
)
def test_invalid_probabilities_are_named_with_t_and_row(log, bad, message):
    def once(self, X):
        out = np.full((len(X), 3), 1 / 3)
        out[X[:, 0] == target] = bad
        return out

    X = np.column_stack([log.head(600)[c].to_numpy() for c in ("x0", "x1")])
    target = X[37, 0]
    events = list(zip(X, *(log.head(600)[c].to_pylist() for c in ("action", "reward", "propensity")), strict=True))
    _, accepted, _ = naive_replay.replay(events, None, drs.uniforms(0, 0, 600), policy(), 10, 0.1, 1.0, "dr-ns")
    t = sum(row < 37 for row in accepted) % 10 + 1
    function = policy(probabilities=once).probabilities
    for broken in (policy(probabilities=once), function, drs.policies.Fixed(function)):
        with pytest.raises(drs.PolicyError, match=rf"policy 'policy' {message} at t = {t}, row 37: \["):
            drs.replay(log, broken, 10, q=0.1)


class Diverging(drs.policies.Compiled):
    def initial_state(self, n_actions, n_features):
        return np.zeros(1)

    @staticmethod
    def probabilities(state, x, out):
        out[:] = 1.0 / out.shape[0] if state[0] < 7 else np.nan

    @staticmethod
    def update(state, x, action, reward):
        state[0] += 1.0


def test_a_compiled_policy_that_gives_nan_is_named_with_t_and_row(log):
    with pytest.raises(drs.PolicyError, match=r"policy 'd' gives NaN .* at t = 8, row \d+: \[nan, nan, nan\]"):
        drs.replay(log, {"d": Diverging()}, 20, q=0.1)
    assert drs.replay(log, Diverging(), 7, q=0.1).complete > 1


@pytest.mark.parametrize("method", ["probabilities", "update", "reset"])
def test_a_python_policy_that_raises_keeps_its_traceback_with_t_and_row(log, method):
    def fail(self, *values):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        drs.replay(log, {"broken": policy(**{method: fail})}, 5, q=0.1)
    note = " ".join(caught.value.__notes__)
    assert f"raised by {method} of policy 'broken' at t = 1" in note
    assert method == "reset" or "row " in note


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda X: np.ones((len(X), 2)) / 2, r"shape \(\d+, 2\) for \d+ events and 3 actions"),
        (lambda X: np.ones(len(X)), "shape"),
        (lambda X: [["a"] * 3] * len(X), "where numbers are needed"),
    ],
)
def test_a_python_policy_that_returns_something_else(log, returned, message):
    with pytest.raises(drs.PolicyError, match=message):
        drs.replay(log, policy(probabilities=lambda self, X: returned(X)), 5)


class Liar(naive_replay.EpsilonGreedy):
    """Learns, but never says so."""

    def update(self, x, action, reward):
        super().update(x, action, reward)
        self.version = 0


def test_a_version_that_lies_is_found_in_debug_mode(log):
    drs.replay(log, Liar(3, 2), 20, q=0.1)  # it cannot be seen without asking again
    with pytest.raises(drs.PolicyError, match=r"changed its probabilities while its version stayed 0, at t = \d+, row"):
        drs.replay(log, Liar(3, 2), 20, q=0.1, debug=True)
    honest = drs.replay(log, naive_replay.EpsilonGreedy(3, 2), 20, q=0.1, debug=True)
    assert bits(honest) == bits(drs.replay(log, naive_replay.EpsilonGreedy(3, 2), 20, q=0.1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (drs.policies.UCB1, "is a class: pass an instance"),
        (policy(reset=None), "lacks reset"),
        (3, "a policy is an object"),
        ([drs.policies.UCB1()], "is a list: pass a mapping of names to policies"),
        ({}, "there is no policy"),
        (drs.policies.Column("propensity"), "logged action only; replay needs those of all actions"),
        (drs.policies.Linear(np.zeros((3, 5))), "weights of shape"),
        (drs.policies.Softmax(np.zeros((2, 2))), "weights of shape"),
    ],
)
def test_what_is_no_policy(log, given, message):
    with pytest.raises(drs.PolicyError, match=message):
        drs.replay(log, given, 5)


def test_a_policy_that_learns_is_for_replay(log):
    for given in (drs.policies.UCB1(), policy()):
        with pytest.raises(drs.PolicyError, match=r"learns while it runs; replay it with drs\.replay"):
            drs.evaluate(log, given, estimators="ips")
        with pytest.raises(drs.PolicyError, match="learns while it runs"):
            drs.policies.Fixed(given)


def test_a_policy_that_cannot_be_copied_serves_one_lane_only(log):
    held = policy()
    held.lock = threading.Lock()
    drs.replay(log, held, 5, q=0.01)
    drs.replay(log, held, 5, bias=0.05)
    message = r"policy 'policy' cannot be copied: .*lock.* bias='auto' has several targets.*__deepcopy__.*one bias= and"
    for levels in ({"q": [0.0, 0.1]}, {"bias": [0.1, 0.2]}, {}):
        with pytest.raises(drs.PolicyError, match=message):
            drs.replay(log, held, 5, **levels)


class Reuses(naive_replay.Learner):
    """Returns views of one array, and never learns."""

    def start(self):
        self.room = np.empty((5000, 3))

    def probabilities(self, X):
        out = self.room[: len(X)]
        out[:] = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.zeros(len(X))])
        return out

    def learn(self, x, action, reward):
        self.version -= 1  # which update adds


def test_debug_mode_does_not_accuse_a_policy_that_reuses_its_array(log):
    drs.replay(log, Reuses(3, 2), 5, q=0.1, debug=True)


def test_policies_that_break_are_reported_and_do_not_go_on_with_the_first_action():
    huge = pa.table({"x0": [1e200] * 60, "action": [0, 1] * 30, "reward": [1.0] * 60, "propensity": [0.5] * 60})
    with pytest.raises(drs.PolicyError, match="NaN among its probabilities at t = 2"):
        drs.replay(drs.Log(huge), drs.policies.LinUCB(), 20)


def test_two_policies_of_one_name(log):
    with pytest.raises(drs.PolicyError, match="two policies have the same name: 1, '1'"):
        drs.replay(log, {1: drs.policies.UCB1(), "1": drs.policies.Exp3()}, 5)


def test_a_direct_method_makes_no_claim_about_its_bias(log):
    for levels in ({"q": 0.01}, {"bias": 0.05}, {}):
        run = drs.replay(log, drs.policies.UCB1(), 5, drs.models.Constant(5.0), method="dm", **levels)
        assert math.isnan(run.bias_mass)
        assert math.isnan(run.bias_bound)
        assert "c w > 1; bias mass" not in repr(run)
        assert "bound" not in repr(run)


class Beyond(Diverging):
    @staticmethod
    def update(state, x, action, reward):
        state[action + 50] += 1.0


def test_an_index_beyond_the_state_is_found_in_debug_mode(log):
    """Without it, memory would be corrupted."""
    with pytest.raises(IndexError) as caught:
        drs.replay(log, {"beyond": Beyond()}, 5, q=0.1, debug=True)
    assert "raised by the compiled policy 'beyond' at t = 1, row " in caught.value.__notes__[0]


def test_compiled_policies_that_cannot_be_used(log):
    class Nothing(drs.policies.Compiled):
        pass

    class NoUpdate(Diverging):
        update = drs.policies.Compiled.update

    class Method(Diverging):
        def probabilities(self, state, x, out):
            pass

    class Strange(Diverging):
        def initial_state(self, n_actions, n_features):
            return [0.0]

    class Flat(Diverging):
        def initial_state(self, n_actions, n_features):
            return np.zeros((2, 2))

    for given, message in (
        (NoUpdate(), "has no static function update"),
        (Method(), r"takes \(self, state, x, out\); it must be a static function of \(state, x, out\)"),
        (Strange(), r"must return a flat array of float64; it returned \[0.0\]"),
        (Flat(), "float64, shape"),
        (Nothing(), "has no static function probabilities"),
    ):
        with pytest.raises(drs.PolicyError, match=message):
            drs.replay(log, given, 5)


def test_a_compiled_policy_that_numba_cannot_compile(log):
    class Strings(Diverging):
        @staticmethod
        def probabilities(state, x, out):
            out[:] = open("file")  # noqa: SIM115

    with pytest.raises(drs.PolicyError, match=r"'s': Strings\.probabilities cannot be compiled by Numba: "):
        drs.replay(log, {"s": Strings()}, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: drs.policies.EpsilonGreedy(1.5), "epsilon=1.5 must be a number at least 0 and at most 1"),
        (lambda: drs.policies.EpsilonGreedy(learning_rate=0), "learning_rate=0"),
        (lambda: drs.policies.EpsilonGreedy(loss="hinge"), "loss='hinge'"),
        (lambda: drs.policies.EpsilonGreedy("much"), "epsilon='much'"),
        (lambda: drs.policies.Boltzmann(0), "temperature=0"),
        (lambda: drs.policies.SquareCB(-1), "gamma=-1"),
        (lambda: drs.policies.LinUCB(ridge=0), "ridge=0"),
        (lambda: drs.policies.UCB1(math.inf), "scale=inf"),
        (lambda: drs.policies.Exp3(0), "gamma=0"),
    ],
)
def test_parameters_of_policies(make, message):
    with pytest.raises(drs.PolicyError, match=message):
        make()


def bernstein(steps, rate):
    """n α >= m T + L + sqrt(L² + 2 m T L), with L = ln(1 / 0.05)."""
    log = math.log(20)
    return math.ceil((steps + log + math.sqrt(log**2 + 2 * steps * log)) / rate)


def test_not_enough_events_says_how_far_it_came_and_what_it_takes(log, tmp_path):
    pq.write_table(small_log(0, 600, 3, 2), tmp_path / "log.parquet", row_group_size=300)
    sharded = drs.Log(tmp_path / "log.parquet", actions=3)
    with pytest.raises(drs.NotEnoughEventsError) as caught:
        drs.replay(log, drs.policies.Uniform(), 5000, q=0.0)
    error = caught.value
    assert 0 < error.steps < 600
    assert error.acceptance == error.steps / 600
    one, ten = (bernstein(steps, error.acceptance) for steps in (5000, 50_000))
    assert (error.events_for_one, error.events_for_ten) == (one, ten)
    for part in (
        f"600 events simulated {error.steps} steps", f"{one:,} events for one replicate and {ten:,} for ten", "q = 0",
        "with probability 95% if events are accepted at this rate", "or a larger q",
    ):  # fmt: skip
        assert part in str(error)
    with pytest.raises(drs.NotEnoughEventsError, match=r"events of each of 2 shards .* fewer shards"):
        drs.replay(sharded, drs.policies.Uniform(), 5000, q=0.0, shards=2)
    never = pa.table({"action": [0] * 50, "reward": [1.0] * 50, "propensity": [0.5] * 50})
    with pytest.raises(drs.NotEnoughEventsError, match="more than"):
        drs.replay(drs.Log(never, actions=2), drs.policies.Constant(1), 3, q=0.01)
    with pytest.raises(drs.NotEnoughEventsError, match="the log is empty"):
        drs.replay(drs.Log(never.slice(0, 0), actions=2), drs.policies.UCB1(), 3)


def test_bad_rows_stop_the_run_or_are_skipped_and_counted():
    table = small_log(0, 400, 3, 1)
    reward = table["reward"].to_numpy().copy()
    reward[123] = np.nan
    table = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(reward))
    log = drs.Log(table, actions=3, context=["x0"])
    with pytest.raises(drs.LogError, match="reward is not finite: got nan at row 123"):
        drs.replay(log, drs.policies.EpsilonGreedy(), 20, q=0.1)
    for threads in (1, 2):
        run = drs.replay(log, drs.policies.EpsilonGreedy(), 20, q=0.1, on_bad_row="skip", threads=threads)
        assert run.skipped == {"reward is not finite": 1}
        assert run.events == 399
        assert any("rows skipped" in note for note in run.notes)


def test_a_model_that_predicts_nan(log):
    model = drs.models.from_function(lambda X: np.full((len(X), 3), np.nan))
    with pytest.raises(drs.ModelError, match="predicts nan for action 0 at row 0"):
        drs.replay(log, drs.policies.UCB1(), 5, model)


def test_a_model_fitted_on_the_same_events_draws_a_warning(log):
    model = drs.models.Ridge().fit(log)
    with pytest.warns(UserWarning, match="fitted on events that it is now evaluated on") as caught:
        drs.replay(log, drs.policies.UCB1(), 5, model)
    assert caught[0].filename == __file__


def test_a_stream_cannot_be_cut_into_shards(log):
    table = small_log(0, 400, 3, 1)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(drs.LogError, match="cannot be cut into shards"):
        drs.replay(drs.Log(reader, actions=3), drs.policies.UCB1(), 5, shards=2)


def test_an_error_in_one_shard_or_lane_is_raised_and_ends_the_others(tmp_path):
    pq.write_table(small_log(0, 4000, 3, 2), tmp_path / "log.parquet", row_group_size=500)
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0", "x1"])
    threads = threading.active_count()
    with pytest.raises(drs.PolicyError, match="gives NaN among its probabilities"):
        drs.replay(log, Diverging(), 20, q=0.1, shards=4, threads=2)
    with pytest.raises(drs.PolicyError, match="gives NaN among its probabilities"):
        drs.replay(log, {"a": Diverging(), "b": drs.policies.UCB1()}, 20, q=0.1, threads=2)
    assert threading.active_count() == threads


# Ctrl-C


def interrupt_after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


class Slow(naive_replay.UCB1):
    def update(self, x, action, reward):
        time.sleep(0.005)
        super().update(x, action, reward)


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"threads": 2, "seed": [0, 1]}, {"shards": 2}])
def test_ctrl_c_returns_what_is_complete(tmp_path, options):
    pq.write_table(small_log(0, 20_000, 3, 1), tmp_path / "log.parquet", row_group_size=5000)
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0"])
    interrupt_after(1.0)
    runs = drs.replay(log, {"slow": Slow(3, 1)}, 10, q=0.1, **options)
    for run in runs:
        assert run.interrupted
        assert run.complete >= 1
        assert run.events < 20_000
        assert any("interrupted" in note for note in run.notes)
    if "shards" not in options:
        whole = drs.replay(log, naive_replay.UCB1(3, 1), 10, q=0.1, replicates=runs.runs[0].complete)
        assert repr(whole.replicates.to_pylist()) == repr(runs.runs[0].replicates.to_pylist())  # NaN is not NaN


def test_ctrl_c_before_anything_is_complete_says_how_far_it_came(log):
    interrupt_after(0.5)
    with pytest.raises(KeyboardInterrupt) as caught:
        drs.replay(log, Slow(3, 2), 500, q=0.5)
    assert "before any replicate of 500 steps was complete" in caught.value.__notes__[0]


@pytest.mark.parametrize("learner", [drs.policies.EpsilonGreedy, drs.policies.Boltzmann, drs.policies.SquareCB])
@pytest.mark.filterwarnings("ignore:.*encountered in reduce")  # the mean of such rewards overflows, too
def test_a_built_in_learner_whose_weights_overflow(learner):
    """Rewards of 1.7e308 make its scores infinite, and then NaN: an error, and no number."""
    rng = np.random.default_rng(0)
    rewards = 1.7e308 * rng.choice([-1.0, 1.0], 400)
    columns = {"action": rng.integers(0, 2, 400), "reward": rewards, "propensity": np.full(400, 0.5)}
    log = drs.Log(pa.table({**columns, "x0": 0.1 * rng.choice([-1.0, 1.0], 400), "x1": rng.normal(size=400)}))
    with pytest.raises(drs.PolicyError, match=r"gives .* at t = \d+, row \d+: \["):
        drs.replay(log, learner(), 50, q=0.05)


@meeting(
    2,
    value=[np.nan, np.inf, -np.inf],
    weights=[0.0, 1.0, 1e30],
    kind=[np.float32, np.float64],
    clamp=[None, (0, 1)],
    listed=[False, True],
)
def test_a_context_that_is_not_finite_is_found_where_only_predictions_tell(value, weights, kind, clamp, listed):
    """A ridge model's predictions show it, also with weights of 0, and before they are clamped."""
    events = small_log(0, 3000, 3, 2)
    X = np.column_stack([events[f"x{j}"].to_numpy() for j in range(2)]).astype(kind)

    def log():
        if listed:
            return drs.Log(
                events.select(["action", "reward", "propensity"]).append_column(
                    "x", pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 2)
                ),
                actions=3,
            )
        columns = {f"x{j}": pa.array(X[:, j]) for j in range(2)}
        return drs.Log(pa.table({**{name: events[name] for name in events.column_names}, **columns}), actions=3)

    model = drs.models.Ridge().fit(log())
    model.coef_ = np.full((3, 2), weights)
    X[2345, 1] = value
    with pytest.raises(drs.LogError, match=r"context .*(nan|inf) .*row 2345"):
        drs.replay(log(), drs.policies.EpsilonGreedy(), 20, model, q=0.1, clamp=clamp)
