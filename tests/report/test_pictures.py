"""Rows of pictures: curves in few points, axes that one wide interval does not spoil, ticks."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.report import replays, svg
from drstream.report.pictures import Column, Spans, tick_label, ticks
from tests.helpers import reports


def spans(*ends):
    rows = [{"label": f"{i}", "value": sum(e) / 2, "low": e[0], "high": e[1]} for i, e in enumerate(ends)]
    return Spans("title", "caption", "alt", rows, [Column("value", "value")])


def test_points_of_a_short_curve_are_those_of_the_result():
    run = reports.replay()
    steps, table = replays._steps(run), run.curve.to_pylist()
    assert len(steps) == run.horizon == 40
    for name in ("t", "average", "average_low", "average_high", "c", "reward"):
        np.testing.assert_allclose([row[name] for row in steps], [row[name] for row in table], rtol=1e-12)
    assert min(row["bias_mass"] for row in steps) <= run.bias_mass <= max(row["bias_mass"] for row in steps)


def test_a_long_curve_is_pooled():
    run = drs.replay(drs.Log(reports.table(), context="x?"), drs.policies.Uniform(), 500, bias=0.1)
    steps, curve = replays._steps(run), run._outcome.curve
    assert len(steps) == replays.POINTS
    assert steps[-1]["t"] == 500
    assert steps[-1]["average"] == run.curve["average"].to_pylist()[-1]
    ends = [0, *(int(row["t"]) for row in steps)]
    for row, (first, last) in zip(steps, pairwise(ends), strict=True):
        piece = curve[first:last]
        assert row["reward"] == pytest.approx(sum(piece["mean_reward"]) / sum(piece["mean_weight"]))
        assert row["bias_mass"] == pytest.approx(sum(piece["all_mass"]) / sum(piece["all_importance"]))


def test_one_very_wide_interval_is_cut_off():
    narrow = [(0.1 + i / 100, 0.2 + i / 100) for i in range(4)]
    assert spans(*narrow, (-50, 50)).limits() == spans(*narrow).limits()
    drawn = svg.draw(spans(*narrow, (-50, 50)), svg.WIDE)
    assert drawn.count("<polygon") == 2  # arrows at both ends
    assert svg.draw(spans(*narrow), svg.WIDE).count("<polygon") == 0
    nothing = spans((math.nan, math.nan))
    assert nothing.limits()[0] < nothing.limits()[1]
    assert "nan" not in svg.draw(nothing, svg.NARROW)


@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-9, 1e9), count=st.integers(2, 8))
def test_ticks_are_few_in_order_and_inside(low, span, count):
    high = low + span
    if not high > low:
        return
    found = ticks(low, high, count)
    room = 1e-6 * (high - low) + 1e-9 * abs(low)
    assert len(found) <= count + 1
    assert all(low - room <= tick <= high + room for tick in found)
    assert found == sorted(found)
    if len(found) > 1 and span > 1e-6 * abs(low):
        labels = [tick_label(tick, found[1] - found[0]) for tick in found]
        assert len(set(labels)) == len(labels)
