"""Where things stand: the repository, and real data where it is at hand (set DRSTREAM_DATA, or have ../shared/data)."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DRSTREAM_DATA", ROOT.parent / "shared" / "data"))


def data(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set DRSTREAM_DATA to the folder that holds it")
    return path
