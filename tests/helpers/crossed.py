"""Some of all combinations of parameters, where all of them would say little more."""

from itertools import combinations, product

import pytest


def meeting(count, **parameters):
    """Parametrize a test so that any values of `count` parameters meet in a case: with 1, each value is in one."""
    lists = [list(values) for values in parameters.values()]
    places = list(combinations(range(len(lists)), count))
    every = {
        case: {(at, tuple(case[i] for i in at)) for at in places} for case in product(*(range(len(x)) for x in lists))
    }
    left, cases = set().union(*every.values()), []
    while left:
        best = max(every, key=lambda case: len(left & every[case]))
        cases.append(tuple(values[i] for values, i in zip(lists, best, strict=True)))
        left -= every[best]
    return pytest.mark.parametrize(tuple(parameters), cases)
