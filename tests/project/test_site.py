"""The documentation site builds without a warning, and needs nothing but its own files."""

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
import zlib

import pytest

import drstream as drs
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow  # it builds all pages
pytest.importorskip("sphinx", reason="the extra docs is not installed")
spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "_ext" / "docstrings.py")
docstrings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docstrings)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder with the site; a warning, such as a link to a page or heading that is not there, fails."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"  # one for all workers
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "html").exists():
            options = ["-q", "-W", "--keep-going", "-b", "html", "-d", folder / "doctrees"]
            command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "unfinished"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            (folder / "unfinished").rename(folder / "html")
    return folder / "html"


def test_every_page_is_in_the_site(site):
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        assert (site / page.with_suffix(".html")).exists(), page


def test_nothing_is_loaded_from_the_network(site):
    """Fonts, scripts, styles and images are files of the site; links for readers may lead elsewhere."""
    loads = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']*""")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import )["']?(?:https?:)?//""", style.read_text()), style


def test_files_outside_of_the_folder_are_pages(site):
    """The changelog and others become pages, and their links lead to pages."""
    assert "Unreleased" in (site / "changelog.html").read_text()
    text = (site / "contributing.html").read_text()
    assert 'href="extending.html"' in text
    assert 'href="measuring.html"' in text


MODULES = ("", "estimators.", "models.", "optimize.", "policies.", "rankings.", "spark.", "synth.")


@pytest.fixture(scope="module")
def listed(site):
    """All names of Python that the site has an entry for. Sphinx leaves out what has no docstring."""
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    return {line.split(" ")[0] for line in inventory.splitlines() if " py:" in line}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(listed, module):
    """What __all__ names has an entry in a page of docs/api/; a module that is a public name has entries of its own."""
    room = getattr(drs, module[:-1]) if module else drs
    names = {f"drstream.{module}{name}" for name in room.__all__ if f"{name}." not in MODULES}
    assert names
    assert names <= listed, f"add to a page of docs/api/: {sorted(names - listed)}"


def test_members_that_pages_name_are_in_the_reference(listed):
    named = re.compile(r"autoclass:: (\S+)\n   :members: (.+)")
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    wanted = {f"{name}.{member}" for name, members in named.findall(text) for member in members.split(", ")}
    assert len(wanted) > 50
    assert wanted <= listed, f"add docstrings to {sorted(wanted - listed)}"


def test_docstrings_become_restructured_text():
    """Definitions from aligned names, links from backticks, and nothing special left in plain text."""
    lines = [
        "Says |x| and *y*, as `drs.Log` and coef_ do.",
        "",
        "short     One",
        "          and two.",
        "eightnine Three.",
        "cap, floor, inflation",
        "          `f(x)` of docs/models.md.",
        "update(state, x)  Learns.",
        "",
        "    a = b",
        "",
        ">>> 1 * 2",
        "2",
    ]
    assert [line for line in docstrings.restructured(lines) if line] == [
        r"Says \|x\| and \*y\*, as :py:obj:`drs.Log <drstream.Log>` and coef\_ do.",
        *("``short``", "    One", "    and two."),
        *("``eightnine``", "    Three."),
        *("``cap``, ``floor``, ``inflation``", "    ``f(x)`` of :doc:`/models`."),
        *("``update(state, x)``", "    Learns."),
        *("::", "    a = b"),
        *(">>> 1 * 2", "2"),
    ]
