"""Which of the three passes of scripts/test this is."""

import os

import pytest

PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"  # kernels run as plain Python
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"  # kernels are compiled with checks of indices
not_plain = pytest.mark.skipif(PLAIN, reason="slow in plain Python, and the two compiled passes prove it")
