"""Ctrl-C and SIGTERM are heard, whatever swallows them, and do not disturb who tidies up."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from drstream.cli import signals

SECONDS = 5.0


@pytest.fixture(autouse=True)
def _as_before():
    before = {number: signal.getsignal(number) for number in (*signals.WORDS, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def swallow(number):
    with suppress(BaseException):  # as callbacks of the compiler do
        signal.raise_signal(number)


class Finaliser:
    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


def in_an_import(number, folder):
    name = f"swallows{abs(hash(folder))}"
    (folder / f"{name}.py").write_text(f"from tests.cli.test_signals import swallow\nswallow({number})\n")
    sys.path.insert(0, str(folder))
    try:
        __import__(name)
    finally:
        sys.path.remove(str(folder))


def in_a_finaliser(number, folder):
    Finaliser(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", [in_an_import, in_a_finaliser])
def test_a_signal_that_was_swallowed_is_raised_again_soon(place, number, tmp_path):
    signals.end_at_once()  # as the command line does, while it starts

    def work():
        with signals.raised() as found:
            seen.append(found)
            place(number, tmp_path)
            time.sleep(SECONDS)

    started, seen = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < SECONDS / 2
    assert (seen[0].code, seen[0].word) == (128 + number, signals.WORDS[number])


def test_who_tidies_up_is_not_disturbed(tmp_path):
    def work():
        with signals.raised():
            try:
                in_an_import(signal.SIGINT, tmp_path)
                time.sleep(SECONDS)
            finally:
                time.sleep(2 * signals.AGAIN)
                done.append(True)

    done = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert done


def test_a_signal_that_is_taken_in_the_pass_does_not_come_back():
    """Until the end: a replay shows what was complete."""

    def work():
        with signals.raised():
            swallow(signal.SIGINT)
            time.sleep(2 * signals.AGAIN)
            sys.exit(130)

    with pytest.raises(SystemExit):
        work()
    with pytest.raises(KeyboardInterrupt), signals.raised():
        swallow(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_and_after_the_work_a_signal_ends_the_process(number):
    code = (
        "import os, time\nfrom drstream.cli import signals\nsignals.end_at_once()\n"
        f"with signals.raised(): pass\nos.kill(os.getpid(), {number:d})\ntime.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + number, f"{signals.WORDS[number]}\n")


def test_a_signal_that_is_ignored_stays_ignored():
    """As of commands that a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals.raised():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_exceptions_that_nobody_hears_of_are_shown(capsys):
    class Wrong:
        def __del__(self):
            raise ValueError("nobody hears of it")

    with signals.raised():
        Wrong()
    assert "nobody hears of it" in capsys.readouterr().err
