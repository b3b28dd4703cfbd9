"""The default interval and that of clusters: against their formulas over single events, and coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from drstream.intervals import methods, tails
from drstream.intervals.statistic import Groups, Limits, Side, Statistic
from tests.helpers.interval_logs import CENTRED_A, WA, WRA, R, side, simulate, statistic

LIMITS = Limits(0.9)
EVENTS = simulate(400, seed=5)


def bounds(name, stat, limits=LIMITS):
    return methods.interval(methods.ALL[name], stat, limits)


def naive_tails(influences, turn=0.0):
    """Skewness, carriers and turn, one event after the other."""
    second = math.fsum(e**2 for e in influences)
    third = math.fsum(e**3 for e in influences)
    fourth = math.fsum(e**4 for e in influences)
    size = len(influences)
    return third / second**1.5, 1 / (max(fourth / second**2 - 3 / size, 0) + 1 / size), turn


def naive_hull(value, stderr, shape, freedom, freedom_of_t, confidence):
    skewness, _, turn = shape
    curve, shift = skewness / 3 + turn / 2, skewness / 6
    found = []
    for sign in (1, -1):
        z = sign * stats.t(freedom).ppf((1 + confidence) / 2)
        of_hall = (np.cbrt(1 + 3 * curve * (z - shift)) - 1) / curve
        of_t = sign * stats.t(freedom_of_t).ppf((1 + confidence) / 2)
        found.append(value - stderr * (max if sign > 0 else min)(of_hall, of_t))
    return tuple(found)


@pytest.mark.parametrize("ratio", [False, True], ids=["mean", "ratio"])
@pytest.mark.parametrize("sides", [(side("reward", "a"),), (side("robust", "a"),)], ids=["ips", "dr"])
def test_the_default_is_a_hull_over_single_events(sides, ratio):
    got = statistic(EVENTS.x, *sides, ratio=ratio, buckets=400)
    n, w, score = 400, EVENTS.x[:, WA], EVENTS.x @ sides[0].score
    below = w.mean() if ratio else 1.0
    value = score.mean() / below
    e = (score - value * w if ratio else score - value) / below
    turn = -2 * (w * e).sum() / below / n / math.sqrt((e**2).sum()) if ratio else 0.0
    shape = naive_tails(e, turn)
    stderr = math.sqrt((e**2).sum() / (n - 1) / n)
    assert (got.tails.skewness, got.tails.carriers) == pytest.approx(shape[:2], rel=1e-9)
    assert got.tails.turn == pytest.approx(turn, abs=1e-3)  # a second difference
    wanted = naive_hull(value, stderr, shape, n - 1, min(shape[1], n - 1), 0.9)
    assert bounds("tails", got) == pytest.approx(wanted, abs=1e-3 * stderr)


def test_clusters_are_left_out_one_at_a_time():
    labels = np.arange(400) ** 2 % 31
    got = statistic(EVENTS.x, side("reward", "a"), ratio=True, buckets=50, label=labels)  # some buckets are empty
    used = sorted(set(labels.tolist()))

    def ratio(rows):
        return rows[:, WRA].sum() / rows[:, WA].sum()

    values = np.array([ratio(EVENTS.x[labels != label]) for label in used])
    away, size = values.mean() - values, len(used)
    stderr = math.sqrt((size - 1) / size * (away**2).sum())
    weights = np.array([EVENTS.x[labels == label][:, WA].sum() for label in used])
    counts = np.array([(labels == label).sum() for label in used])
    working = weights**2 / counts / (1 - weights / weights.sum())
    freedom = working.sum() ** 2 / (working**2).sum()
    shape = (*naive_tails(away)[:2], got.turn())
    wanted = naive_hull(got.value, stderr, shape, freedom, freedom, 0.9)
    assert bounds("cluster", got) == pytest.approx(wanted, abs=1e-9)


def test_five_rows_have_the_quantiles_of_four_degrees():
    x = simulate(5, seed=3, clicks=(0.5, 0.5, 0.5)).x
    got = statistic(x, side("baseline"), buckets=1024)
    half = stats.t(4).ppf(0.95) * x[:, R].std(ddof=1) / math.sqrt(5)
    low, high = bounds("tails", got)
    assert low <= got.value - half
    assert high >= got.value + half


def flat(*sides, reward=0.0, **more):
    x = EVENTS.x.copy()
    x[:, R], x[:, WRA], x[:, CENTRED_A] = reward, reward * x[:, WA], 0.0
    return statistic(x, *sides, **more)


@pytest.mark.parametrize("name", ["tails", "cluster"])
def test_no_variance_is_no_width_of_zero(name):
    without = flat(side("reward", "a"))
    assert np.isnan(bounds(name, without)).all()
    for limits in (Limits(0.9, (0.0, 1.0)), Limits(0.9, (0.0, 1.0), clicks=True)):
        limits = replace(limits, clustered=name == "cluster")
        low, high = bounds(name, without, limits)
        assert (low, high) == bounds("gamma", without, limits)
        assert low == 0 < high
    sure = flat(side("reward", "a"), reward=1.0, ratio=True)  # SNIPS of clicks alone
    assert np.isnan(bounds(name, sure)).all()
    low, high = bounds(name, sure, Limits(0.9, (0.0, 1.0), clicks=True, clustered=name == "cluster"))
    assert low < high == 1


@pytest.mark.parametrize("name", ["tails", "cluster"])
def test_a_policy_differs_from_itself_by_nothing(name):
    got = statistic(EVENTS.x, side("reward", "a"), side("reward", "a", -1.0))
    low, high = bounds(name, got, replace(LIMITS, clustered=name == "cluster"))
    assert low == pytest.approx(0, abs=1e-12)
    assert high == pytest.approx(0, abs=1e-12)


def test_few_clicks_have_a_gamma_interval_and_the_change_is_smooth():
    x = np.zeros((2000, 10))
    x[:, WA] = 1
    last, limits = math.inf, Limits(0.95, (0.0, 1.0), clicks=True)
    for clicks in range(1, 60):
        x[:, R] = 0
        x[np.arange(clicks) * (2000 // clicks), R] = 1
        x[:, WRA] = x[:, R]
        got = statistic(x, side("reward", "a"), buckets=2000)
        carriers, found = tails.few_clicks(got), bounds("tails", got, limits)
        alone, plain = bounds("gamma", got, limits), bounds("tails", got, replace(limits, clicks=False))
        if carriers <= tails.FEW:
            assert found == alone
        elif carriers >= tails.ENOUGH:
            assert found == plain
        else:
            assert min(alone[1], plain[1]) <= found[1] <= max(alone[1], plain[1])
        width = (found[1] - found[0]) / got.value
        assert width < 1.02 * last  # relative to the value, more clicks give a narrower interval
        last = width


def test_few_events_without_a_click_are_few_clicks():
    """SNIPS of an arm that clicked each time is 1, and varies in no event: the next one may be without a click."""
    x = simulate(2_000, seed=2, clicks=(1.0, 1.0, 1.0)).x
    without = np.flatnonzero(x[:, WA] == 0)[:8]  # events of the logging policy alone
    x[without, R] = x[without, WRA] = 0
    limits = Limits(0.95, (0.0, 1.0), clicks=True)
    got = statistic(x, side("reward", "a"), side("baseline", "", -1.0), ratio=False, buckets=2_000)
    assert tails.few_clicks(got) == 0
    low, high = bounds("tails", got, limits)
    assert (low, high) == bounds("gamma", got, limits)
    assert low < 0 < high


def test_bounds_stay_within_the_range_and_a_value_far_outside_has_none():
    limits = Limits(0.95, (0.0, 0.5))
    low, high = bounds("tails", statistic(EVENTS.x, side("reward", "a")), limits)
    assert 0 <= low < high <= 0.5
    x = EVENTS.x.copy()
    x[:, WRA] += 3
    assert np.isnan(bounds("tails", statistic(x, side("reward", "a")), limits)).all()


def test_a_forecast_for_four_times_the_events_is_half_as_wide_and_half_as_skewed():
    got = statistic(simulate(4000, seed=1).x, side("reward", "a"), ratio=True, buckets=1024)
    more = replace(got, n=4 * got.n, comoment=4 * got.comoment, buckets=replace(got.buckets, times=4.0))
    assert more.tails.skewness == pytest.approx(got.tails.skewness / 2)
    assert more.tails.turn == pytest.approx(got.tails.turn / 2, rel=0.01)
    assert more.tails.carriers == pytest.approx(4 * got.tails.carriers)
    for name, limits in (("tails", LIMITS), ("cluster", replace(LIMITS, clustered=True))):
        one, four = bounds(name, got, limits), bounds(name, more, limits)
        assert (one[1] - one[0]) / (four[1] - four[0]) == pytest.approx(2, rel=0.03)


def test_one_huge_weight_is_no_warning():
    x = EVENTS.x.copy()
    x[7, [WA, WRA, CENTRED_A]] = 1e200
    with np.errstate(all="ignore"):
        got = statistic(x, side("reward", "a"))
    low, high = bounds("tails", got)
    assert np.isnan(low) == np.isnan(high)


def mean_of(x, draw):
    """The statistic of a mean, with rows in hashed buckets."""
    n, bucket = len(x), draw.integers(0, 1024, len(x))
    events = x[:, None]
    count, sums = np.bincount(bucket, minlength=1024).astype(float), np.bincount(bucket, x, 1024)[:, None]
    means = events.mean(axis=0)
    unit = np.ones(1)
    sides = (Side(1.0, "reward", None, unit, unit, unit, 1.0),)
    comoment = np.array([[((x - means[0]) ** 2).sum()]])
    return Statistic(float(means[0]), n, means, comoment, unit, lambda m: m[0], sides, Groups(count, sums))


def lognormal(n, draw, sd):
    return (draw.random(n) < 0.05) * np.exp(3 + sd * draw.normal(size=n))


WORLDS = {  # rewards, their mean, rows; the study of the literature's worst cells chose them, not these tests
    "3 clicks": (lambda n, g: (g.random(n) < 0.003) * 1.0, 0.003, 1000),
    "20 clicks": (lambda n, g: (g.random(n) < 0.01) * 1.0, 0.01, 2000),
    "revenue": (lambda n, g: lognormal(n, g, 1.0), 0.05 * math.exp(3.5), 2000),
    "heavy revenue": (lambda n, g: lognormal(n, g, 1.5), 0.05 * math.exp(4.125), 20_000),
    "refunds": (
        lambda n, g: lognormal(n, g, 1.0) * np.where(g.random(n) < 0.1, -1, 1),
        0.04 * math.exp(3.5),
        2000,
    ),
    "noise": (lambda n, g: 1 + np.exp(1.2 * g.normal(size=n)) * g.standard_t(4, size=n), 1.0, 500),
    "30 % clicks, 50 rows": (lambda n, g: (g.random(n) < 0.3) * 1.0, 0.3, 50),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_default_covers(name):
    """Of 600 intervals at 95 %: 93 % or more, less 3 standard errors (3 %), at most 1.7 times as wide as need be.

    Where few clicks are all there is, intervals are wider.
    """
    draw_rewards, truth, n = WORLDS[name]
    draw, held, widths, values = np.random.default_rng(11), 0, [], []
    for _ in range(600):
        x = draw_rewards(n, draw)
        limits = Limits(0.95, clicks=True, reward_range=(0.0, 1.0)) if "clicks" in name else Limits(0.95)
        low, high = bounds("tails", mean_of(x, draw), limits)
        held += low <= truth <= high
        widths.append(high - low)
        values.append(x.mean())
    assert held / 600 >= 0.90
    most = 3.5 if name == "3 clicks" else 1.7
    assert np.median(widths) <= most * 2 * 1.96 * np.std(values)
