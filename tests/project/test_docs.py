"""README and docs are executed: a page's Python in one go, its commands one by one, and what they print is compared
with the ```text blocks under them.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.command import drstream, python
from tests.helpers.places import ROOT
from tests.helpers.printed import not_printed
from tests.helpers.published import write_hillstrom

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLAIN = ("README.md", "start.md", "tour.md")  # for those who have installed drstream and nothing else
QUICK = ("README.md", "start.md", "logs.md", "evaluate.md", "replay.md")
OBP = os.environ.get("DRSTREAM_BENCH_OBP")  # a Python that can import Open Bandit Pipeline, as in bench/
MARK = "\x1e"  # printed between a page's Python examples


class Example(NamedTuple):
    language: str
    text: str
    shown: list[str]  # the ```text blocks between it and the next example


def examples(page, language):
    """The page's examples in this language, in order. One that needs what is not here has that name instead."""
    found = []
    for kind, text in FENCE.findall(page.read_text()):
        if kind in ("python", "console"):
            needed = re.match(r"# needs (\w+)\n", text)
            lacking = needed is not None and importlib.util.find_spec(needed[1]) is None
            found.append(Example(needed[1] if lacking else kind, text, []))
        elif kind == "text" and found:
            found[-1].shown.append(text)
    return [example for example in found if example.language == language]


def commands(example):
    lines = [line for line in example.text.replace("\\\n", "").splitlines() if line.startswith("$ ")]
    return [line[2:].split("  #")[0].strip() for line in lines]


def run_python(page, folder):
    """What each of the page's Python examples printed."""
    texts = [example.text for example in examples(page, "python")]
    if not texts:
        return []
    code = f"\nprint({MARK!r})\n".join(texts)
    hidden = dict.fromkeys(("matplotlib", "pandas", "polars", "sklearn") if page.name in PLAIN else ())
    done = python(f"import sys; sys.modules.update({hidden})\n{code}", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(f"{MARK}\n")


def run(command, folder, **options):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def quick(command, folder):
    """What a command of ours printed, or None if it takes a shell: a process of its own takes a second to start."""
    if not command.startswith("drstream ") or set(command) & set("|<>&;$*~`"):
        return None
    done = drstream(*shlex.split(command)[1:], cwd=folder)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def check_output(example, printed):
    missing = not_printed("...\n".join(example.shown), printed)
    assert missing is None, f"the page shows\n\n{missing}\n\nwhere this was printed:\n\n{printed}"


def executed():
    pages = [page for page in PAGES if examples(page, "python") or examples(page, "console")]
    return [pytest.param(p, id=p.name, marks=() if p.name in QUICK else pytest.mark.slow) for p in pages]


@pytest.mark.parametrize("page", executed())
def test_examples_and_commands(page, tmp_path):
    """First the Python, then the commands, one after the other in one folder: what one leaves, the next finds."""
    if "hillstrom.csv" in page.read_text() and examples(page, "python"):
        write_hillstrom(tmp_path)
    for example, printed in zip(examples(page, "python"), run_python(page, tmp_path), strict=True):
        check_output(example, printed)
    if OBP is not None:  # it has an environment of its own
        for example in examples(page, "obp"):
            check_output(example, run([OBP, "-W", "ignore", "-c", example.text], tmp_path))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    here = Path(sys.prefix) == ROOT / ".venv"
    for example in examples(page, "console"):
        printed = ""
        for command in commands(example):
            ours = command.startswith("scripts/")
            if ours and (command != "scripts/demo" or not here):
                continue  # makes or measures in .venv; to be run by hand
            folder = ROOT if ours else tmp_path
            shown = quick(command, folder) or run(["bash", "-c", command], folder, env={**os.environ, "PATH": path})
            assert shown or "savez" in command
            printed += shown
        check_output(example, printed)


PRINTED = "Log of x0: 50,142 rows\n  a    0.189562 [-0.186131, 1e-05]\n  b   2\nend\n"


@pytest.mark.parametrize(
    "shown",
    [
        "",
        PRINTED,
        "  b   2\n",
        "  a  0.1896 [-0.1861, 1e-05]\n",  # fewer digits, so other spaces
        "Log of x0: 50,150 rows\n...\nend\n",
    ],
)
def test_output_that_is_shown_was_printed(shown):
    assert not_printed(shown, PRINTED) is None


@pytest.mark.parametrize(
    "shown",
    [
        "  a    0.1899 [-0.186131, 1e-05]\n",  # another number
        "  a    0.189562 [0.186131, 1e-05]\n",  # another sign
        "  c   2\n",  # another word
        "Log of x1: 50,142 rows\n",  # a digit of a name is no number
        "Log of x0: 50,142 rows\n  b   2\n",  # a line left out without ...
        "  b   2\n...\n  a    0.189562 [-0.186131, 1e-05]\n",  # another order
        "end\n...\nend\n",  # printed once
        "  b   2 3\n",  # more
        "  b\n",  # less
    ],
)
def test_output_that_was_not_printed_is_found(shown):
    assert not_printed(shown, PRINTED) is not None


def test_pages_link_to_files_and_headings_that_exist():
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^):]+))?\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} -> {target}"
            assert not heading or heading in headings(there), f"{page.name} -> {target}#{heading}"


def headings(page):
    """The page's headings as links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|tmp|home|root)/", page.read_text()), page
