"""What Dask and killed processes leave behind is collected here, where an open pipe is no error of ours."""

import gc
import warnings

import pytest


@pytest.fixture(autouse=True, scope="module")
def _collected():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
