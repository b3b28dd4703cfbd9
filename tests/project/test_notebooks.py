"""The notebooks run, and print what they show. Their code is run as that of pages is, without Jupyter."""

import json

import pytest

from tests.helpers.command import python
from tests.helpers.places import ROOT
from tests.helpers.printed import not_printed
from tests.helpers.published import write_hillstrom, write_open_bandit

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
DATA = {"hillstrom": write_hillstrom, "open_bandit": write_open_bandit}  # others make their logs
MARK = "\x1e"
MOST = 20_000  # bytes of a notebook without pictures


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    if path.stem in DATA:
        DATA[path.stem](tmp_path)
    done = python(f"\nprint({MARK!r})\n".join("".join(cell["source"]) for cell in cells), tmp_path)
    assert done.returncode == 0, done.stderr
    for cell, printed in zip(cells, done.stdout.split(f"{MARK}\n"), strict=True):
        streams = [output for output in cell["outputs"] if output["output_type"] == "stream"]
        assert all(stream["name"] == "stdout" for stream in streams), "a warning"
        missing = not_printed("".join("".join(stream["text"]) for stream in streams), printed)
        assert missing is None, f"the notebook shows\n\n{missing}\n\nwhere this was printed:\n\n{printed}"


def test_outputs_are_small_and_name_no_machine():
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        text = path.read_text()
        pictures = sum(len(part) for part in text.split('"') if len(part) > 2_000)
        assert len(text) - pictures < MOST, path
        assert not any(f"/{place}/" in text for place in ("work", "tmp", "home", "root")), path
