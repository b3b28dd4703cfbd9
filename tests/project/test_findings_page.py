"""docs/findings.md has all checks of an evaluation, and no others."""

import ast
import importlib
import re

from tests.helpers.places import ROOT

MADE_BY = {
    "Finding": 1,
    "_finding": 1,
    "doubt": 1,
    "_say": 1,
}  # functions that make findings, and where the check stands
ROOMS = ("evaluation", "log", "models", "policies", "states")


def checks():
    """The names of the checks in the package."""
    found = set()
    for room in ROOMS:
        for path in sorted((ROOT / "drstream" / room).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MADE_BY:
                    found |= set(names(node.args[MADE_BY[node.func.id]], module))
    return found


def names(node, module):
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Name):
        value = getattr(importlib.import_module(module), node.id, None)
        if value is not None:  # a local variable: its values are constants in the same function
            yield value


def test_the_page_has_all_checks():
    page = (ROOT / "docs" / "findings.md").read_text()
    rows = re.findall(r"^\| ([a-z_, ]+) \|", page, re.MULTILINE)
    listed = {name for row in rows for name in row.split(", ")} - {"check"}
    local = {"unlogged", "unlogged categories", "mean weight", "mean balanced weight", "mean marginal weight"}
    assert checks() | local == listed
