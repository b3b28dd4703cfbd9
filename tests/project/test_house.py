"""The rules of the tests' own house."""

import ast

import pytest

from tests.helpers.places import ROOT

MODULES = sorted((ROOT / "tests").rglob("*.py"))


def imported(path):
    """Dotted names of all that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


@pytest.mark.jit_only  # it reads files and calls no kernel
def test_no_module_imports_a_test_module():
    """What two test modules share stands in tests/helpers."""
    assert MODULES
    for path in MODULES:
        for name in imported(path):
            assert not any(part.startswith("test_") for part in name.split(".")), (
                f"{path.relative_to(ROOT)} imports {name}: move what it needs to tests/helpers"
            )
