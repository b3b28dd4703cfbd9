"""What Algorithm 1 of the paper (section 5.3) computes for one event, and what it adds up until the next acceptance.

`Terms` are of one event. A `Tally` has the sums over events that `lanes.LANE` keeps. A loop may load it, add the terms
of many events and store it, so that the sums stay in registers. Comments such as "(4)" number lines of Algorithm 1.
"""

from typing import Any, NamedTuple

from drstream.kernels import masses, quantiles
from drstream.kernels._jit import inlined
from drstream.kernels.sums import two_sum

ROUNDING = 1e-12  # at the event that c comes from, c w is 1 up to rounding, which is no violation
DOUBLY_ROBUST, DIRECT, REJECTION = 0, 1, 2  # how the value of an event is estimated
CONSTANT, EXACT, SKETCH, MASS = 0, 1, 2, 3  # where c comes from: it stays, a quantile of Q, a target of the bias mass


class Event(NamedTuple):
    """What Algorithm 1 needs to know about one event."""

    pi: Any  # π_t(a_k|x_k)
    propensity: Any
    expected: Any  # r̂(x_k, π_t)
    prediction: Any  # r̂(x_k, a_k)
    reward: Any
    uniform: Any
    row: Any


class Terms(NamedTuple):
    value: Any  # V_k
    weight: Any  # w = π/p
    chance: Any  # c w
    ratio: Any  # p/π, which Q is made of


class Tally(NamedTuple):
    events: Any  # since it was loaded
    value: Any  # sum of V_k since the last acceptance
    carry: Any  # what rounding took from it
    mass: Any  # sum of (c w - 1)+ since the last acceptance
    importance: Any  # sum of c w since the last acceptance
    last_value: Any
    violations: Any  # events with c w > 1
    least_reward: Any
    largest_reward: Any
    largest_weight: Any


@inlined
def terms_of(kind, c, event):
    pi = event.pi
    p = event.propensity
    w = pi / p
    value = event.expected
    if kind == DOUBLY_ROBUST:
        value += w * (event.reward - event.prediction)  # (1)
    return Terms(value, w, c * pi / p, p / pi)


@inlined
def load(s):
    """The tally of a lane, s."""
    steps = s.step_value, s.step_value_carry, s.step_mass, s.step_importance, s.last_value
    return Tally(0, *steps, s.all_violations, s.least_reward, s.largest_reward, s.largest_weight)


@inlined
def add(tally, terms, r):
    """The tally with one more event."""
    value, error = two_sum(tally.value, terms.value)
    return Tally(
        tally.events + 1,
        value,
        tally.carry + error,
        tally.mass + max(terms.chance - 1.0, 0.0),
        tally.importance + terms.chance,
        terms.value,
        tally.violations + (terms.chance > 1.0 + ROUNDING),
        min(tally.least_reward, r),
        max(tally.largest_reward, r),
        max(tally.largest_weight, terms.weight),
    )


@inlined
def store(s, tally):
    s.events += tally.events
    s.all_events += tally.events
    s.step_events += tally.events
    s.step_value = tally.value
    s.step_value_carry = tally.carry
    s.step_mass = tally.mass
    s.step_importance = tally.importance
    s.last_value = tally.last_value
    s.all_violations = tally.violations
    s.least_reward = tally.least_reward
    s.largest_reward = tally.largest_reward
    s.largest_weight = tally.largest_weight


@inlined
def track(tracking, q, mass, low, high, terms):
    """(4): add p/π to Q, or to what is known about the bias mass."""
    if tracking == EXACT:
        quantiles.insert_exactly(q, low, high, terms.ratio)
    elif tracking == SKETCH:
        quantiles.insert_roughly(q, low, terms.ratio)
    elif tracking == MASS:
        masses.insert(mass, low, high, terms.ratio, terms.weight)


@inlined
def accepts(uniform, terms):
    """(5) and (6). The weight is 0 if π is."""
    return uniform <= terms.chance and terms.weight > 0.0
