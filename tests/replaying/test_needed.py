"""How many events a replay needs: the bound holds, and the one that is printed in the paper does not."""

import math

import numpy as np
import pytest

from drstream.replaying.needed import FAILURE, events_needed, replicates_expected
from tests.helpers.crossed import meeting

TRIALS = 20_000


def fails(events, steps, rate, seed=0):
    """Share of the trials in which so many events have fewer acceptances than steps."""
    return float((np.random.default_rng(seed).binomial(events, rate, TRIALS) < steps).mean())


def printed(steps, rate, failure):
    """Section 5.3: n α >= m T + ln(e / failure)."""
    return math.ceil((steps + math.log(math.e / failure)) / rate)


@meeting(2, failure=[0.01, 0.05, 0.2], rate=[0.003, 0.1, 0.6], steps=[(1, 1), (1, 30), (10, 30), (1, 5000)])
def test_so_many_events_are_enough_but_for_the_probability_of_failure(failure, rate, steps):
    """A share of 20,000 trials has a standard error below sqrt(failure / 20,000). Five of them are allowed."""
    replicates, horizon = steps
    found = events_needed(replicates, horizon, rate, failure)
    steps = replicates * horizon
    assert fails(found, steps, rate) <= failure + 5 * math.sqrt(failure / TRIALS)
    assert found * rate >= steps
    assert found * rate <= steps + 3 * math.log(1 / failure) + 2 * math.sqrt(2 * steps * math.log(1 / failure)) + 1


@pytest.mark.parametrize(("horizon", "rate", "about"), [(100, 0.1, 0.34), (300, 0.1, 0.40), (1000, 0.003, 0.44)])
def test_the_printed_bound_fails_more_often_than_it_says(horizon, rate, about):
    found = fails(printed(horizon, rate, FAILURE), horizon, rate)
    assert found > 5 * FAILURE
    assert found == pytest.approx(about, abs=0.02)  # five standard errors are 0.0177
    assert fails(events_needed(1, horizon, rate), horizon, rate) <= FAILURE


def test_more_replicates_and_lower_rates_need_more():
    assert events_needed(10, 300, 0.1) > 9 * events_needed(1, 300, 0.1)
    assert events_needed(1, 300, 0.01) == pytest.approx(10 * events_needed(1, 300, 0.1), abs=10)
    assert events_needed(1, 300, 0.1, 0.01) > events_needed(1, 300, 0.1)


def test_the_last_replicate_is_cut_off_halfway_on_average():
    """20,000 logs of 1,000 events, of which each accepts one in ten."""
    accepted = np.random.default_rng(1).binomial(1000, 0.1, TRIALS)
    mean, error = (accepted // 7).mean(), (accepted // 7).std() / math.sqrt(TRIALS)
    assert replicates_expected(1000, 7, 0.1) == pytest.approx(mean, abs=5 * error + 0.1)
    assert replicates_expected(5, 7, 0.1) == 0
