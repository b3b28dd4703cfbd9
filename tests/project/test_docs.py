"""README and docs are executed: the Python blocks of a page in one go, console commands one by one, beside a log."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.jit_only  # the pages speak to users, whose kernels are compiled
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page):
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line[2:].split("  #")[0].strip() for line in lines if line.startswith("$ ")]


def run(command, folder, **options):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python") or commands(p)], ids=lambda p: p.name)
def test_examples_and_commands(page, tmp_path):
    """First the Python, then the commands, one after the other in one folder: what one leaves, the next finds."""
    if blocks(page, "python"):
        run([sys.executable, "-W", "error", "-c", "\n".join(blocks(page, "python"))], tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    here = Path(sys.prefix) == ROOT / ".venv"
    for command in commands(page):
        ours = command.startswith("scripts/")
        if ours and (command != "scripts/demo" or not here):
            continue  # makes or measures in .venv; to be run by hand
        shown = run(["bash", "-c", command], ROOT if ours else tmp_path, env={**os.environ, "PATH": path})
        assert shown or "savez" in command


def test_pages_link_to_files_that_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|tmp|home|root)/", page.read_text()), page
