"""Every method against its formula over single events, what does not change its bounds, and messages."""

import math
from dataclasses import replace

import numpy as np
import pytest

from drstream import DrstreamError, intervals
from drstream.errors import for_command_line
from drstream.intervals import anytime, methods, resampling
from drstream.intervals.anytime import anytime_path
from drstream.intervals.ranges import score_range
from drstream.intervals.statistic import Groups, Limits, Side
from tests.helpers import naive_intervals as naive
from tests.helpers.crossed import meeting
from tests.helpers.interval_logs import (
    CENTRED_A,
    PIVOT,
    ROBUST_A,
    ROBUST_B,
    SMOOTHING,
    WA,
    WB,
    WRA,
    WRB,
    R,
    side,
    simulate,
    statistic,
)

SIDES = {
    "ips": (side("reward", "a"),),
    "dr": (side("robust", "a"),),
    "dm": (side("predicted", "a"),),
    "logged": (side("baseline"),),
    "ips - logged": (side("reward", "a"), side("baseline", "", -1.0)),
    "logged - ips": (side("baseline"), side("reward", "a", -1.0)),
    "dr - logged": (side("robust", "a"), side("baseline", "", -1.0)),
    "dm - logged": (side("predicted", "a"), side("baseline", "", -1.0)),
    "ips - ips": (side("reward", "a"), side("reward", "b", -1.0)),
    "dr - dr": (side("robust", "a"), side("robust", "b", -1.0)),
}
EVENTS = simulate(400, seed=5)
LIMITS = Limits(0.9, (0.0, 1.0), 10.0, seed=3, smoothing=SMOOTHING)


def bounds(name, stat, limits=LIMITS):
    return methods.interval(methods.ALL[name], stat, limits)


def scores(x, sides):
    return (x @ sum(s.sign * s.score for s in sides)).tolist()


def test_the_package_offers_what_the_module_did():
    assert intervals.normal(1.0, 0.5, 0.95) == pytest.approx((0.02, 1.98), abs=1e-3)
    assert intervals.student(np.array([1.0, 2.0, 3.0]), 0.95)[:2] == pytest.approx((2, 3**-0.5))
    assert intervals.standard_error(np.ones(1), np.ones((1, 1)), 2) == pytest.approx(0.5**0.5)
    assert list(methods.ALL)[:4] == ["tails", "normal", "bootstrap", "cluster"]


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_normal(sides):
    got, ref = statistic(EVENTS.x, *sides), scores(EVENTS.x, sides)
    assert bounds("normal", got) == pytest.approx(naive.t_interval(ref, 0.9), abs=1e-12)


def ratio(events):
    return naive.mean([e[WRA] for e in events]) / naive.mean([e[WA] for e in events])


def test_draws_are_poisson_and_a_function_of_seed_bucket_and_replicate():
    got = resampling.draws(7, 40)
    assert all(got[b, g] == naive.poisson(7, g, b) for b in range(0, 200, 13) for g in range(0, 40, 3))
    assert (resampling.draws(7, 100)[:, :40] == got).all()
    assert (resampling.draws(8, 40) != got).any()
    assert (resampling.draws(-1, 40) == resampling.draws(2**64 - 1, 40)).all()
    many = resampling.draws(1, 2000)  # 400,000 draws: 5 standard errors of mean, variance and correlations
    assert many.mean() == pytest.approx(1, abs=0.008)
    assert many.var() == pytest.approx(1, abs=0.014)
    assert np.mean((many[1:] - 1) * (many[:-1] - 1)) == pytest.approx(0, abs=0.008)
    assert np.mean((many[:, 1:] - 1) * (many[:, :-1] - 1)) == pytest.approx(0, abs=0.008)


def test_bootstrap_replicates_count_every_bucket_as_often_as_drawn():
    labels = np.arange(400) * 7 % 30
    got = resampling.replicates(statistic(EVENTS.x, *SIDES["ips"], ratio=True, buckets=30, label=labels), seed=3)
    assert len(got) == 200
    for b in (0, 100, 199):
        drawn = [e for e, g in zip(EVENTS.x.tolist(), labels, strict=True) for _ in range(naive.poisson(3, int(g), b))]
        assert got[b] == pytest.approx(ratio(drawn), abs=1e-12)


def test_bootstrap_is_about_normal_for_many_events():
    stat = statistic(simulate(20000, seed=1).x, *SIDES["ips"], buckets=500)
    low, high = bounds("bootstrap", stat)
    ref = bounds("normal", stat)
    assert low == pytest.approx(ref[0], abs=0.15 * (ref[1] - ref[0]))
    assert high == pytest.approx(ref[1], abs=0.15 * (ref[1] - ref[0]))
    assert bounds("bootstrap", stat, replace(LIMITS, seed=4)) != (low, high)
    wide = bounds("bootstrap", stat, replace(LIMITS, confidence=0.9999))
    assert wide[1] - wide[0] == pytest.approx((ref[1] - ref[0]) * 3.89 / 1.645, rel=0.25)


RANGES = {  # of rewards in [-1, 3] and weights up to 10
    "ips": (-10, 30),
    "dr": (-41, 43),
    "dm": (-1, 3),
    "logged": (-1, 3),
    "ips - logged": (-9, 27),
    "logged - ips": (-27, 9),
    "dr - logged": (-40, 40),
    "dm - logged": (-4, 4),
    "ips - ips": (-30, 30),
    "dr - dr": (-44, 44),
}


@pytest.mark.parametrize("name", SIDES)
def test_bernstein(name):
    events = simulate(400, seed=2, low=-1.0, high=3.0)
    assert score_range(SIDES[name], 10.0, -1.0, 3.0) == pytest.approx(RANGES[name])
    found = scores(events.x, SIDES[name])
    assert RANGES[name][0] <= min(found) <= max(found) <= RANGES[name][1]
    stat = statistic(events.x, *SIDES[name])
    got = methods.ALL["bernstein"].bounds(stat, Limits(0.9, (-1.0, 3.0), 10.0))
    assert got == pytest.approx(naive.bernstein(found, *RANGES[name], 0.9), abs=1e-12)


def test_bernstein_of_a_ratio_is_about_the_mean_score():
    plain, divided = (statistic(EVENTS.x, *SIDES["ips"], ratio=ratio) for ratio in (False, True))
    assert bounds("bernstein", plain) == bounds("bernstein", divided)


@meeting(2, n=[60, 400], seed=range(4), limits=[(0.0, 1.0), (-2.0, 3.0)])
def test_likelihood_with_a_bound_on_the_weights(n, seed, limits):
    """The mean weight is above 1 with some seeds and below with others."""
    low, high = limits
    x = simulate(n, seed, low=low, high=high).x
    got = methods.ALL["likelihood"].bounds(statistic(x, *SIDES["ips"]), Limits(0.9, (low, high), 8.0))
    ref = naive.likelihood(x[:, WA].tolist(), x[:, WRA].tolist(), low, high, 0.9, 8.0)
    assert got == pytest.approx(ref, abs=1e-9)


def test_likelihood_as_published():
    """Values of the implementation that its authors published."""
    w = np.array([0, 0, 2, 2, 0.5, 1, 0, 1])
    r = np.array([1.5, -1, 2, 0, 1, 1, 0, 0.25])
    stat = statistic(np.stack([r, w, w * r], axis=1), Side(1.0, "reward", 1, np.array([0.0, 0, 1])), stretches=1)
    got = bounds("likelihood", stat, Limits(0.95, (-1.0, 2.0)))
    assert got == pytest.approx((-0.8198160514143629, 2), abs=1e-12)
    got = bounds("likelihood", stat, Limits(0.8, (-1.0, 2.0), 3.0))
    assert got == pytest.approx((-0.453587658020338, 1.779707649787429), abs=1e-12)


@meeting(1, name=SIDES, seed=range(3))
def test_likelihood_without_a_bound_is_the_limit_of_large_bounds(name, seed):
    stat = statistic(simulate(300, seed).x, *SIDES[name])
    far = methods.ALL["likelihood"].bounds(stat, Limits(0.9, (0.0, 1.0), 1e4))
    assert methods.ALL["likelihood"].bounds(stat, Limits(0.9, (0.0, 1.0))) == pytest.approx(far, abs=3e-3)


CORNERS = {  # pseudo-events of the lower and of the upper bound, with clicks and weights up to 10
    "ips": ([(0, 0), (10, 0)], [(0, 0), (10, 10)]),
    "dr": ([(0, 0), (10, -10)], [(0, 1), (10, 11)]),
    "ips - logged": ([(0, -1), (10, 0)], [(0, 0), (10, 9)]),
    "logged - ips": ([(0, 0), (10, -9)], [(0, 1), (10, 0)]),
    "dr - logged": ([(0, -1), (10, -10)], [(0, 1), (10, 10)]),
    "ips - ips": (
        [(0, 0, 0), (10, 0, 0), (0, 10, -10), (10, 10, 0)],
        [(0, 0, 0), (10, 0, 10), (0, 10, 0), (10, 10, 0)],
    ),
    "dr - dr": (
        [(0, 0, -1), (10, 0, -11), (0, 10, -11), (10, 10, -11)],
        [(0, 0, 1), (10, 0, 11), (0, 10, 11), (10, 10, 11)],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_likelihood_sees_every_corner(name):
    x, (lower, upper) = EVENTS.x, CORNERS[name]
    weights = [x[:, s.weight].tolist() for s in SIDES[name] if s.weight is not None]
    y = scores(x, SIDES[name])
    low = naive.likelihood_bound(weights, y, lower, 0.9, 10.0)
    high = -naive.likelihood_bound(weights, [-s for s in y], [(*w, -end) for *w, end in upper], 0.9, 10.0)
    got = methods.ALL["likelihood"].bounds(statistic(x, *SIDES[name]), LIMITS)
    assert got == pytest.approx((low, high), abs=1e-9)


def test_likelihood_with_two_weights_is_about_as_wide_as_normal():
    stat = statistic(simulate(2000, 1).x, *SIDES["ips - ips"])
    low, high = bounds("likelihood", stat)
    ref = bounds("normal", stat)
    assert high - low < 1.1 * (ref[1] - ref[0])
    assert low < stat.value < high


def test_likelihood_of_a_policy_and_itself_is_a_point():
    twice = (side("reward", "a"), Side(-1.0, "reward", WB, np.eye(10)[WRB]))
    x = EVENTS.x.copy()
    x[:, WB], x[:, WRB] = x[:, WA], x[:, WRA]
    for bound in (None, 10.0):
        low, high = bounds("likelihood", statistic(x, *twice), replace(LIMITS, max_weight_bound=bound))
        assert low <= 1e-9
        assert high >= -1e-9
        if bound is not None:
            assert high - low < 0.15


def test_likelihood_of_no_weight_is_the_whole_range():
    x = EVENTS.x.copy()
    x[:, [WA, WRA]] = 0
    assert bounds("likelihood", statistic(x, *SIDES["ips"]), Limits(0.9, (0.0, 1.0))) == (0, 1)


@pytest.mark.parametrize("clicks", [(0.1, 0.3, 0.2), (0.01, 0.03, 0.02)])
def test_anytime(clicks):
    x = simulate(4000, seed=5, clicks=clicks).x
    r, w, y, other, z = (x[:, place] for place in (R, WA, ROBUST_A, WB, ROBUST_B))
    cases = {  # φ of the lower and of the upper bound with its k, and the upper bound of the rescaled value
        "ips": ([(w * r, 0), (1 - w * (1 - r), 9)], [(w * (1 - r), 0), (1 - w * r, 9)], 1),
        "dr": ([(y, 10)], [(1 - y, 10)], 1),
        "logged": ([(r, 0)], [(1 - r, 0)], 1),
        "ips - logged": ([((w - 1) * r, 1), ((1 - w) * (1 - r), 9)], [((w - 1) * (1 - r), 1), ((1 - w) * r, 9)], 0),
        "dr - logged": ([(y - r, 10)], [(r - y, 10)], 0),
        "ips - ips": (
            [((w - other) * r, 10), ((other - w) * (1 - r), 10)],
            [((other - w) * r, 10), ((w - other) * (1 - r), 10)],
            0,
        ),
        "dr - dr": ([(y - z, 11)], [(z - y, 11)], 0),
    }
    for bounded in (True, False):
        limits = LIMITS if bounded else replace(LIMITS, max_weight_bound=None)
        for name, (lower, upper, most) in cases.items():
            if bounded or name in ("ips", "logged", "ips - logged"):
                low, high = (anytime_reference(forms[: 2 if bounded else 1], most) for forms in (lower, upper))
                events, *got = anytime_path(statistic(x, *SIDES[name]), limits)
                assert events.tolist() == list(range(200, 4001, 200))
                assert got[0] == pytest.approx(np.maximum(low, most - 1), abs=1e-12), name
                assert got[1] == pytest.approx(np.minimum(most - np.array(high), 1), abs=1e-12), name


def anytime_reference(forms, most):
    ends = list(range(0, 4001, 200))
    forms = [(scores.tolist(), k) for scores, k in forms]
    return naive.anytime_lower(forms, ends, most / 2, 0.9, anytime.FIRST_VARIANCE, anytime.PRIOR_VARIANCE)


def test_anytime_with_a_bound_on_the_weights_is_narrower_for_rare_clicks():
    stat = statistic(simulate(20000, seed=5, clicks=(0.01, 0.03, 0.02)).x, *SIDES["ips"], stretches=50)
    free, bounded = (np.diff(bounds("anytime", stat, Limits(0.9, (0.0, 1.0), top)))[0] for top in (None, 10.0))
    assert bounded < 0.5 * free


def test_anytime_differences_without_a_bound_give_each_side_half_of_the_risk():
    limits = Limits(0.9, (0.0, 1.0))
    a, b = (statistic(EVENTS.x, side("reward", name)) for name in "ab")
    low_a, high_a = bounds("anytime", a, replace(limits, confidence=0.95))
    low_b, high_b = bounds("anytime", b, replace(limits, confidence=0.95))
    got = bounds("anytime", statistic(EVENTS.x, *SIDES["ips - ips"]), limits)
    assert got == pytest.approx((low_a - high_b, high_a - low_b), abs=1e-12)


def test_anytime_ignores_stretches_without_events():
    stat = statistic(EVENTS.x, *SIDES["ips"])
    parts = stat.stretches
    order = [0, *range(20)]
    groups = Groups(parts.count[order], parts.sums[order], parts.gram[order])
    groups.count[0], groups.sums[0], groups.gram[0] = 0, 0, 0
    events, low, high = anytime_path(replace(stat, stretches=groups), LIMITS)
    assert (events[0], low[0], high[0]) == (0, 0, 1)
    assert (low[-1], high[-1]) == pytest.approx(bounds("anytime", stat), abs=1e-12)


@pytest.mark.parametrize("name", ["bernstein", "freedman", "anytime", "likelihood"])
def test_scores_about_a_pivot_change_nothing(name):
    """The score of IPS may be written as w (r - c) + c w."""
    plain = statistic(EVENTS.x, *SIDES["ips"])
    about = np.zeros(10)
    about[CENTRED_A], about[WA] = 1, PIVOT
    centred = statistic(EVENTS.x, Side(1.0, "reward", WA, about))
    assert bounds(name, centred) == pytest.approx(bounds(name, plain), abs=1e-12)


ABOUT_ANY_ORIGIN = [(name, kind) for name in methods.ALL for kind in ("dr", "dr - dr", "dm - logged")]
ABOUT_ANY_ORIGIN += [("anytime", kind) for kind in SIDES] + [("likelihood", kind) for kind in SIDES]


@pytest.mark.parametrize(("name", "kind"), ABOUT_ANY_ORIGIN)
def test_rewards_in_another_unit(name, kind):
    """Rewards 2 + 3 r instead of r move and stretch the interval. For w r, few methods do not depend on the origin."""
    clicks = simulate(400, seed=5)
    other = simulate(400, seed=5, low=2.0, high=5.0)
    low, high = bounds(name, statistic(clicks.x, *SIDES[kind]))
    offset = 2 * sum(s.sign for s in SIDES[kind])
    got = bounds(name, statistic(other.x, *SIDES[kind], ends=(2, 5)), replace(LIMITS, reward_range=(2.0, 5.0)))
    assert got == pytest.approx((offset + 3 * low, offset + 3 * high), abs=1e-9)


def test_the_order_of_buckets_does_not_matter_to_the_jackknife():
    stat = statistic(EVENTS.x, *SIDES["ips"], ratio=True)
    order = np.random.default_rng(0).permutation(64)
    shuffled = Groups(stat.buckets.count[order], stat.buckets.sums[order])
    assert bounds("cluster", replace(stat, buckets=shuffled)) == pytest.approx(bounds("cluster", stat), abs=1e-13)


@pytest.mark.parametrize("name", ["bootstrap", "cluster"])
def test_empty_buckets_do_not_matter(name):
    stat = statistic(EVENTS.x, *SIDES["ips"], ratio=True)
    more = Groups(np.append(stat.buckets.count, [0, 0]), np.vstack([stat.buckets.sums, np.zeros((2, 10))]))
    assert bounds(name, replace(stat, buckets=more)) == pytest.approx(bounds(name, stat), abs=1e-13)


@meeting(1, name=methods.ALL, sides=SIDES.values())
def test_bounds_lie_in_the_possible_range_and_order(name, sides):
    if name == "gamma" and all(side.clicks is None for side in sides):
        pytest.skip("DM has no clicks")
    tiny = statistic(simulate(12, 0).x, *sides, buckets=6, stretches=3)
    least = 0 if len(sides) == 1 else -1
    low, high = bounds(name, tiny)
    assert least <= low <= high <= 1
    wide = bounds(name, tiny, replace(LIMITS, confidence=0.99))
    assert wide[0] <= low + 1e-12
    assert wide[1] >= high - 1e-12


def test_clipping_never_widens_and_needs_a_side():
    stat = statistic(EVENTS.x, *SIDES["ips"])
    plain = bounds("normal", stat, Limits(0.9))
    assert bounds("normal", stat, Limits(0.9, (-5.0, 5.0))) == plain
    assert bounds("normal", stat, Limits(0.9, (0.0, plain[1] - 0.01))) == (plain[0], plain[1] - 0.01)
    assert bounds("normal", replace(stat, sides=()), Limits(0.9, (0.0, 0.1))) == plain
    assert np.isnan(bounds("normal", stat, Limits(0.9, (0.0, 0.01)))).all()  # it misses the range


@pytest.mark.parametrize("name", methods.ALL)
def test_undefined(name):
    stat = statistic(EVENTS.x, *SIDES["ips"])
    for undefined in (replace(stat, value=math.nan), replace(stat, n=1), replace(stat, n=0)):
        assert np.isnan(bounds(name, undefined)).all()
    lacking = replace(stat, sides=(), buckets=None, stretches=None)
    assert np.isnan(bounds(name, lacking)).all() == (name != "normal")
    no_weight = replace(stat, gradient=np.full(10, math.nan))
    assert np.isnan(bounds(name, no_weight)).all() == (name in ("normal", "tails", "bootstrap", "cluster", "gamma"))
    one = replace(stat, buckets=Groups(np.array([400.0, 0]), np.array([EVENTS.x.sum(axis=0), np.zeros(10)])))
    assert np.isnan(bounds(name, one)).all() == (name in ("tails", "bootstrap", "cluster"))


@pytest.mark.parametrize("name", methods.ALL)
def test_weights_beyond_all_bounds_are_no_warning(name):
    x = EVENTS.x[:, :4].copy()
    x[7, 1:] = 1e200
    with np.errstate(all="ignore"):
        stat = statistic(x, Side(1.0, "reward", WA, np.eye(4)[WRA]))
    low, high = bounds(name, stat)
    assert np.isnan(low) == np.isnan(high)


def test_bounds_that_exclude_each_other_are_undefined():
    """The rewards of 20,000 events are 1, then 0: no value is compatible with both halves."""
    x = simulate(20000, 0).x
    x[:, R] = np.arange(20000) < 5000
    assert np.isnan(bounds("anytime", statistic(x, side("baseline"), stretches=100))).all()


def test_choose():
    assert [m.name for m in methods.choose("cluster")] == ["cluster"]
    assert [m.name for m in methods.choose(["tails", "normal", "tails"])] == ["tails", "normal"]
    with pytest.raises(DrstreamError, match="interval='bernstien': no such interval; did you mean 'bernstein'"):
        methods.choose(["normal", "bernstien"])


def test_needs():
    def check(name, reward_range=None, max_weight_bound=None, cluster=None):
        methods.check_needs(methods.ALL[name], reward_range, max_weight_bound, cluster)

    for name in ("tails", "normal", "bootstrap"):
        check(name)
    check("cluster", cluster="user")
    check("anytime", (0, 1))
    check("likelihood", (0, 1))
    check("bernstein", (0, 1), 10)
    check("freedman", (0, 1), 10)
    message = r"interval='bernstein' needs the range of the rewards: pass reward_range=\(low, high\), e.g. \(0, 1\) for"
    with pytest.raises(DrstreamError, match=message) as raised:
        check("bernstein", None, 10)
    assert "--interval bernstein needs" in for_command_line(raised.value.message)
    assert "pass --reward-range, e.g. from 0 to 1" in for_command_line(raised.value.message)
    with pytest.raises(DrstreamError, match=r"pass max_weight_bound=\.\.\., e.g. 1 / the smallest probability"):
        check("bernstein", (0, 1))
    with pytest.raises(
        DrstreamError, match=r"interval='cluster' needs .* pass cluster='user_id', the name of a column"
    ):
        check("cluster")
    with pytest.raises(DrstreamError, match=r"max_weight_bound=0\.5 must be a number at least 1"):
        check("normal", None, 0.5)
    with pytest.raises(DrstreamError, match="reward_range="):
        check("normal", (1, 0))


def test_ranges_of_rewards():
    assert methods.check_range(None) is None
    assert methods.check_range([0, 1]) == (0.0, 1.0)
    for wrong in ((1, 0), (0, 0), (0, math.inf), (math.nan, 1), (0, 1, 2), 3, "ab", ("a", "b")):
        with pytest.raises(DrstreamError, match="it must be two finite numbers"):
            methods.check_range(wrong)


def test_some_sides_need_a_bound_on_the_weights():
    limits = Limits(0.9, (0.0, 1.0), smoothing=SMOOTHING)
    for name, sides in SIDES.items():
        stat = statistic(EVENTS.x, *sides)
        for method in methods.ALL.values():
            weighted = any(s.weight is not None for s in sides)
            if (method.name in ("bernstein", "freedman") and weighted) or (method.name == "anytime" and "dr" in name):
                for function in (methods.check_statistic, methods.interval):
                    with pytest.raises(DrstreamError, match="pass max_weight_bound="):
                        function(method, stat, limits)
            else:
                methods.check_statistic(method, stat, limits)
                methods.interval(method, stat, limits)
        for method in ("bernstein", "freedman", "anytime", "likelihood", "ls", "ix"):
            with pytest.raises(DrstreamError, match="pass reward_range="):
                bounds(method, stat, Limits(0.9))


def test_names_for_help_texts_are_those_of_the_registry():
    from drstream.intervals.names import NAMES

    assert tuple(methods.ALL) == NAMES


def test_an_effective_number_of_made_up_weights_is_a_number():
    """Also of weights that no log has: a file may hold any numbers."""
    for weights in ([1e-300, -1e300], [-1e300, -1e300], [5e-324, 1e300], [0.0, 0.0]):
        assert 0 <= resampling.effective_number(np.array(weights)) <= 2
