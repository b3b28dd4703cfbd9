"""The documentation site builds without a warning, and needs nothing but its own files."""

import re
import subprocess
import sys

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.jit_only  # it reads pages and calls no kernel
pytest.importorskip("sphinx", reason="the extra docs is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder with the site; a warning, such as a link to a page or heading that is not there, fails."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", folder / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "html"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
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
