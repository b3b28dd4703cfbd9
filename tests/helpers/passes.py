"""Which of the three passes of scripts/test this is."""

import os

PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"  # kernels run as plain Python
