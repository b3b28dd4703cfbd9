"""README and docs are executed: the Python blocks of a page in one go, console commands one by one, beside a log."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.jit_only  # the pages speak to users, whose kernels are compiled
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    found = []
    for page in PAGES:
        for block in blocks(page, "console"):
            found += [(page.name, line[2:].split("  #")[0]) for line in block.splitlines() if line.startswith("$ ")]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the pages are followed: what one block or command leaves, the next finds."""
    folder = tmp_path_factory.mktemp("docs")
    for page in PAGES:
        if "console" in page.read_text():
            run_python(page, folder)
    return folder


def run_python(page, folder):
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_examples(page, tmp_path):
    run_python(page, tmp_path)


@pytest.mark.parametrize(("page", "command"), commands(), ids=lambda x: x)
def test_commands(page, command, folder):
    inside = Path(sys.prefix) == ROOT / ".venv"
    if command.strip() == "scripts/test":
        pytest.skip("this is scripts/test")
    if command.startswith("scripts/"):
        if not inside or command.strip() != "scripts/demo":
            pytest.skip("makes or measures in .venv; run it by hand")
        folder = ROOT
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or "savez" in command


def test_pages_link_to_files_that_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|tmp|home|root)/", page.read_text()), page
