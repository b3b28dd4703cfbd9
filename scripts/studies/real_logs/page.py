"""Writes docs/real_logs.md from the results."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from drstream.storage import atomic_path
from scripts.studies.real_logs.contents import LOGS

HEAD = """# Real logs

`scripts/real_logs` evaluates policies on real logs whose truth is known, and writes this page. Every number on it comes
from the files in [real_logs/](real_logs/). Intervals have a confidence level of 95 % and are those that `drs.evaluate`
chooses by default, unless the text says otherwise. "Inside" says whether the truth lies in the interval. A truth that
was measured on other events has an error of its own. "Agree" says whether 0 lies in the interval of the difference,
which allows for both errors. `--data FOLDER` names the folder that holds the data.
"""
WIDTH = 120


def write(folder: Path, page: Path) -> None:
    """Writes the page, with a section for each log that has results in the folder."""
    text = [HEAD]
    for name, log in LOGS.items():
        path = folder / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text())
            text += [log.section(found), _how(name, found["about"])]
    with atomic_path(page) as unfinished:
        unfinished.write_text(wrapped("\n".join(text)))


def _how(name: str, about: dict[str, Any]) -> str:
    quick = ", quick form" if about["quick"] else ""
    seconds, workers = about["seconds"], about["workers"]
    return f"*`scripts/real_logs {name}`{quick}: {seconds:.0f} s on {workers} cores, {about['date']}.*\n"


def wrapped(text: str) -> str:
    """Wraps paragraphs and the points of lists. Headings and tables stay as they are."""
    return "\n\n".join(map(_wrapped_block, text.strip().split("\n\n"))) + "\n"


def _wrapped_block(block: str) -> str:
    first = block.lstrip()[0]
    if first in "#|":
        return block.strip()
    if first == "-":
        points = [" ".join(point.split()) for point in f"\n{block.strip()}".split("\n- ") if point]
        return "\n".join(textwrap.fill(f"- {p}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) for p in points)
    return textwrap.fill(" ".join(block.split()), WIDTH, break_on_hyphens=False)
