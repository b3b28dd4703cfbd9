"""Logs whose logging policy learned as it went: what is unbiased on them, and what is not."""

import numpy as np
import pytest

import drstream as drs
from tests.helpers.adaptive import REWARDS, learned_log

LOGS, KINDS, VISITS = 60, 100, 16
BEST = 1  # the action whose value is estimated


@pytest.fixture(scope="module")
def errors():
    """The errors of DR over many logs: with the true r̂, by folds of the whole log, and with earlier events only."""
    policy, found = drs.policies.Constant(BEST), []
    for seed in range(LOGS):
        log = drs.Log(learned_log(KINDS, VISITS, 0.1, seed), context="x", actions=2)

        def dr(model, log=log, **options):
            return drs.evaluate(log, policy, model, "dr", **options)["dr"].value - REWARDS[BEST]

        folds, forward = (dr(drs.models.Ridge(0.1), crossfit=c) for c in (2, f"forward:{KINDS}"))
        found.append((dr(drs.models.Constant(list(REWARDS))), folds, forward))
    return np.array(found).T


def standard_errors(x):
    """How many standard errors a mean lies from 0."""
    return x.mean() / (x.std(ddof=1) / np.sqrt(len(x)))


@pytest.mark.jit_only
def test_folds_of_a_log_that_learned_are_biased_and_earlier_events_are_not(errors):
    """An early event changes what the logger takes later, and so r̂ of later events: r̂ and w depend on each other.

    Means over logs are compared in standard errors. DR with the true r̂ has no bias; the difference to it has less noise
    than the estimate itself.
    """
    exact, folds, forward = errors
    assert abs(standard_errors(exact)) < 4
    assert standard_errors(folds - exact) < -4
    assert (folds - exact).mean() < -0.015  # at a value of 0.5
    assert abs(standard_errors(forward - exact)) < 4
    assert abs(standard_errors(forward)) < 4
    assert abs((forward - exact).mean()) < 0.3 * abs((folds - exact).mean())
