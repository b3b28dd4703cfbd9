"""Settings of all tests: hypothesis has no deadline, as a first call may compile, and the same examples each run."""

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor

import hypothesis
import pytest

from drstream.kernels import _notice
from tests.helpers.passes import CHECKED, PLAIN

hypothesis.settings.register_profile("drstream", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.register_profile("kernels", deadline=None, max_examples=15, derandomize=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
_notice.silent = True  # what a test compiles depends on the tests before it
hypothesis.settings.load_profile("kernels" if PLAIN or CHECKED else "drstream")


@pytest.fixture(autouse=True)
def _drstream_in_doctests(doctest_namespace):
    import numpy as np

    doctest_namespace["np"] = np


if PLAIN:

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item):
        from tests.helpers import covering  # it needs coverage

        covering.note(item)


@pytest.fixture(scope="session")
def processes():
    """Two worker processes for all tests: one takes 3 s to start and to load kernels."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as found:
        yield found
