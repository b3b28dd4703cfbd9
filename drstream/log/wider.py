"""Policies and models of the user's own may know more actions than a log shows: then a pass starts again with these."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from drstream.errors import DrstreamError
from drstream.log.log import as_log

Function = TypeVar("Function", bound=Callable[..., Any])


def with_all_actions(function: Function) -> Function:
    """Call the function again if a policy or model gave K columns, and the log's fewer integer actions are in 0..K-1.

    Only the first result of the user's code tells how many columns there are. The function's first parameter is the
    log. The error stays an error where labels were given, are not such integers, or are 0, 1, 2, ... without a gap.
    """

    @functools.wraps(function)
    def run(log: Any, *args: Any, **options: Any) -> Any:
        log = as_log(log, propensities=options.get("propensity") is None, rankings=True)
        try:
            return function(log, *args, **options)
        except DrstreamError as error:
            if not error.n_actions or getattr(log.source, "spent", False):
                raise
            on_bad_row = options.get("on_bad_row")
            same = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
            wider = same.with_actions_up_to(error.n_actions)
            if wider is same or isinstance(same.labels, range):  # if none of 0..max is missing, it is rather a mistake
                raise
        return function(wider, *args, **options)

    return cast(Function, run)
