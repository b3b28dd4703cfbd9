"""A Ctrl-C while kernels load is not lost, whatever swallows it."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from drstream.kernels._interrupts import interrupts_kept

pytestmark = pytest.mark.covers


def swallow() -> None:
    with suppress(BaseException):  # as callbacks of the compiler do
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_was_swallowed_is_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        swallow()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_raised_at_once_where_nothing_swallows_it() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        signal.raise_signal(signal.SIGINT)


def test_no_interrupt_is_none() -> None:
    with interrupts_kept():
        pass


def test_handlers_of_the_user_stay() -> None:
    seen: list[int] = []

    def mine(number: int, frame: Any) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, mine)
    try:
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_signals() -> None:
    done = []

    def work() -> None:
        with interrupts_kept():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
