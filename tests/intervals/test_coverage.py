"""How often intervals hold the truth, in simulated logs with fixed seeds.

Of 400 intervals at 90 %, 90 % ± 4.5 % hold it: 3 standard errors of that share.
"""

import numpy as np
import pytest

from drstream.intervals import methods
from drstream.intervals.anytime import anytime_path
from drstream.intervals.statistic import Limits, Side
from tests.helpers.interval_logs import SMOOTHING, side, simulate, statistic

pytestmark = pytest.mark.slow

LOGS, EVENTS = 400, 600
LIMITS = Limits(0.9, (0.0, 1.0), 10.0, smoothing=SMOOTHING)
CASES = {
    "ips": (side("reward", "a"),),
    "dr": (side("robust", "a"),),
    "ips - logged": (side("reward", "a"), side("baseline", "", -1.0)),
    "dr - dr": (side("robust", "a"), side("robust", "b", -1.0)),
}


def shares(sides, names, *, ratio=False, each=1, limits=LIMITS):
    """The share of intervals that hold the truth, by method."""
    policies = {1: "a", 5: "b", None: ""}  # by the variable that is their weight
    held = dict.fromkeys(names, 0)
    label = np.arange(EVENTS) // each
    for seed in range(LOGS):
        events = simulate(EVENTS, seed, each=each)
        truth = sum(s.sign * events.truth[policies[s.weight]] for s in sides)
        stat = statistic(events.x, *sides, ratio=ratio, buckets=EVENTS // each, label=label)
        for name in names:
            low, high = methods.interval(methods.ALL[name], stat, limits)
            held[name] += low <= truth <= high
    return {name: count / LOGS for name, count in held.items()}


@pytest.mark.parametrize("sides", CASES.values(), ids=CASES)
def test_intervals_hold_the_truth_as_often_as_they_say(sides):
    """The likelihood allows for what the log may have missed, and so holds it more often; guarantees nearly always."""
    found = shares(sides, [name for name in methods.ALL if name not in ("bootstrap", "cluster")])
    assert 0.855 <= found["normal"] <= found["tails"] <= 0.96
    assert found["likelihood"] >= 0.855
    assert found["bernstein"] >= 0.98
    assert found["freedman"] >= 0.98
    assert found["anytime"] >= 0.98
    assert found["ls"] >= 0.95
    assert found["ix"] >= found["ls"]


@pytest.mark.parametrize("ratio", [False, True], ids=["ips", "snips"])
def test_resampling_whole_clusters_allows_for_dependent_events(ratio):
    """Each user has 6 events that are alike: an interval for independent events has √6 times too small a width."""
    found = shares(CASES["ips"], ("normal", "bootstrap", "cluster"), ratio=ratio, each=6)
    assert found["normal"] < 0.65
    assert 0.84 <= found["bootstrap"] <= 0.945  # 100 users
    assert 0.855 <= found["cluster"] <= 0.98  # a hull of two intervals


def learning_log(seed, stretches=15, size=40):
    """IPS of a policy that takes each of two actions half of the time. The logging policy learns which is better."""
    draw = np.random.default_rng(seed)
    clicks = np.array([0.1, 0.2])
    seen, rows = np.ones(2), []
    for _ in range(stretches):
        p = 0.1 + 0.8 * seen / seen.sum()
        action = draw.choice(2, size, p=p)
        r = (draw.random(size) < clicks[action]).astype(float)
        w = 0.5 / p[action]
        rows.append(np.stack([r, w, w * r], axis=1))
        np.add.at(seen, action, 3 * r)
    return np.concatenate(rows), clicks.mean()


def test_anytime_holds_at_all_times_at_once_while_the_logging_policy_learns():
    """At 60 %, a bound that held at one time only, or a one-sided error, would show in 400 logs."""
    ips = Side(1.0, "reward", 1, np.array([0.0, 0, 1]))
    missed = {None: 0, 5.0: 0}  # without and with a bound on the weights: 0.5 / 0.1
    for seed in range(LOGS):
        x, truth = learning_log(seed)
        for bound in missed:
            _, low, high = anytime_path(statistic(x, ips, stretches=15), Limits(0.6, (0.0, 1.0), bound))
            missed[bound] += not (low.max() <= truth <= high.min())
    assert all(0 < count <= 0.4 * LOGS for count in missed.values())


def test_widths():
    """With 20,000 events: the likelihood is about as wide as normal, Bernstein at most 3 times, anytime 2.5 times."""
    for sides in CASES.values():
        stat = statistic(simulate(20000, 1).x, *sides, stretches=50)
        width = {name: np.diff(methods.interval(method, stat, LIMITS))[0] for name, method in methods.ALL.items()}
        assert width["likelihood"] == pytest.approx(width["normal"], rel=0.2)
        assert width["normal"] < width["anytime"] < 2.5 * width["normal"]
        assert width["normal"] < width["bernstein"] < 3 * width["normal"]
