"""The rules of the house: what may import what, where names may stand, and that tests import no tests."""

import ast

import pytest

from tests.helpers.places import ROOT

PACKAGE = ROOT / "drstream"
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def dotted(path):
    """drstream/log/events.py is drstream.log.events."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path):
    """Dotted names of all that a file imports: at its top, inside functions and for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import from drstream..., not from dots"
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def uses(name):
    """The modules of drstream that a module imports, without "drstream."."""
    found = set()
    for full in imported(MODULES[name]):
        if full.split(".")[0] == "drstream":
            module = full if full in MODULES else full.rpartition(".")[0]
            found.add(module.removeprefix("drstream").removeprefix("."))
    return found - {""}


def room(module):
    """The folder that a module is in, or the file at the top of the package."""
    return module.split(".")[0]


# What a room may import besides itself, from the top of the house to its cellar: the data's way, backwards.
BASICS = {"errors", "types", "findings", "views"}
LOG = {*BASICS, "parameters", "sampling", "kernels", "sources"}
TOOLS = {*LOG, "log", "running", "intervals", "moments", "results", "states", "provenance"}
POLICIES = {*TOOLS, "buffers", "frames", "shared"}
MODELS = {*POLICIES, "policies"}
USES = {*MODELS, "models"}  # of models and policies
MAY_IMPORT = {
    "cli": {*USES, "running", "evaluation", "replaying", "planning", "optimize", "auditing", "converting", "synth"},
    "report": {"errors", "findings", "results", "states", "evaluation", "replaying", "planning", "auditing"},
    "planning": {*USES, "evaluation", "replaying"},
    "spark": {*USES, "evaluation"},
    "synth": {*MODELS},
    "optimize": {*USES, "replaying"},  # the progressive validation policy is learned by a replay
    "evaluation": USES,
    "replaying": USES,
    "auditing": TOOLS,
    "converting": TOOLS,
    "models": MODELS,
    "policies": POLICIES,
    "shared": {*LOG, "log", "buffers"},
    "buffers": {*LOG, "log"},
    "frames": {*BASICS, "log"},
    "running": {*LOG, "log"},
    "states": {"errors", "findings", "log", "parameters", "provenance", "sources"},
    "provenance": {"errors", "log", "recipe", "sources"},
    "recipe": {"errors", "log", "sources", "types"},
    "log": LOG,
    "sources": {"errors"},
    "moments": {"types", "kernels"},
    "intervals": {*BASICS, "parameters"},
    "results": BASICS,
    "sampling": {"types", "kernels"},
    "parameters": {"errors"},
    "kernels": set(),
    "errors": set(),
    "findings": {"errors"},
    "types": set(),
    "views": set(),
}
EXCEPTIONS = {  # not at the top of the file
    ("drstream.models.saved", "models.trained"),  # for types only: a file holds what was fitted, which saves itself
    ("drstream.log.log", "auditing.result"),  # for types only, as the next one
    ("drstream.log.log", "auditing.audit"),  # log.audit() opens the room above, when it is called
    ("drstream.log.log", "auditing.description"),  # and so does log.describe()
    ("drstream.views", "report.kinds"),  # and result.report(), result.plot()
    ("drstream.views", "report.notebook"),  # and a notebook
}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "drstream"])  # drstream offers all of it
def test_imports_lead_down_the_house(name):
    here = room(name.removeprefix("drstream."))
    assert here in MAY_IMPORT, f"say in MAY_IMPORT what {here} may import"
    wrong = {
        used for used in uses(name) if room(used) not in {here, *MAY_IMPORT[here]} and (name, used) not in EXCEPTIONS
    }
    assert not wrong, f"{name} imports {', '.join(sorted(wrong))}"


def test_the_table_of_imports_goes_one_way():
    """No room may import one that may import it, be it by a third."""
    order = {}

    def visit(here, above):
        assert here not in above, f"{' -> '.join([*above, here])}"
        if here not in order:
            for other in MAY_IMPORT[here]:
                visit(other, [*above, here])
            order[here] = len(order)

    for here in MAY_IMPORT:
        visit(here, [])
    assert set(order) == set(MAY_IMPORT) == {room(name.removeprefix("drstream.")) for name in MODULES} - {"drstream"}


def test_exceptions_are_not_at_the_top_of_a_file_and_still_needed():
    for name, used in EXCEPTIONS:
        assert used in uses(name), f"{name} imports {used} no more: take it from EXCEPTIONS"
        for node in ast.parse(MODULES[name].read_text()).body:
            assert not (isinstance(node, ast.ImportFrom) and node.module == f"drstream.{used}")


def test_imports_of_modules_are_no_circle():
    """Also within a room; what is imported for types or inside a function counts, but for the exceptions."""
    done = set()

    def visit(name, above):
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for used in uses(name):
                if (name, used) not in EXCEPTIONS:
                    visit(f"drstream.{used}", [*above, name])
            done.add(name)

    for name in MODULES:
        visit(name, [])


RESULTS = (
    "results",
    "evaluation.result",
    "replaying.result",
    "replaying.comparison",
    "auditing.result",
    "planning.result",
    "converting.result",
)
ENGINE = {"evaluation.evaluate", "evaluation.plan", "evaluation.terms", "evaluation.program", "evaluation.sums"}
ENGINE |= {f"replaying.{name}" for name in ("replay", "plan", "shards", "lanes", "chunks")}
ENGINE |= {f"planning.{name}" for name in ("plan", "sample", "widths", "exploration", "simulation")}
ENGINE |= {f"converting.{name}" for name in ("convert", "columns", "events", "readers", "writing")}
ENGINE |= {"auditing.audit", "auditing.checks", "auditing.view", "auditing.tally"}


@pytest.mark.parametrize("name", RESULTS)
def test_results_know_no_engine(name):
    """A result can be read, and pickled, without what made it."""
    for used in uses(f"drstream.{name}"):
        assert room(used) != "kernels", used
        assert used not in ENGINE, used


def test_few_files_import_numba():
    found = {
        str(path.relative_to(PACKAGE))
        for path in MODULES.values()
        if any(name.split(".")[0] in ("numba", "llvmlite") for name in imported(path))
    }
    assert found == {"kernels/_jit.py", "kernels/_machine.py", "kernels/_types.py"}


def test_a_warning_is_a_finding():
    """`doubt` makes both. An interrupted replay has a note of its own."""
    found = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "warn_user(" in path.read_text()}
    assert found == {"errors.py", "findings.py", "replaying/replay.py"}
    found = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "warnings.warn(" in path.read_text()}
    assert found == {"errors.py"}


def test_kernels_are_one_folder():
    """The digest of the kernel cache looks at one level."""
    assert [path for path in (PACKAGE / "kernels").rglob("*.py") if path.parent != PACKAGE / "kernels"] == []


def literals(path):
    """The strings of a file, but for docstrings, with their lines; those of f-strings, too."""
    tree = ast.parse(path.read_text())
    documented = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {id(n.body[0].value) for n in documented if ast.get_docstring(n, clean=False) is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_an_estimators_name_stands_in_one_file():
    """Not "ips", "dm" and "dr": losses and replay have methods of these names."""
    from drstream.evaluation.estimators import ALL

    names = set(ALL) - {"ips", "dm", "dr"}
    assert {"snips", "sndr", "ips-capped", "dr-capped", "ips-cv", "dros", "switch-dr", "dr-minvar"} <= names
    for path in MODULES.values():
        if path != PACKAGE / "evaluation" / "estimators.py":
            for line, text in literals(path):
                assert names.isdisjoint(text.lower().replace(",", " ").split()), f"{path}:{line}"


def test_no_module_imports_a_test_module():
    """What two test modules share stands in tests/helpers."""
    assert TESTS
    for path in TESTS:
        for name in imported(path):
            assert not any(part.startswith("test_") for part in name.split(".")), (
                f"{path.relative_to(ROOT)} imports {name}: move what it needs to tests/helpers"
            )


MOST_AT_THE_TOP = 15  # modules beside the rooms
MOST_NAMES_TWICE = 16  # names of public classes that two modules give to two things
LINES = {  # most lines of a room, about a twentieth more than it has
    "auditing": 2_750,
    "cli": 4_150,
    "converting": 1_560,
    "evaluation": 7_950,
    "intervals": 2_000,
    "kernels": 6_000,
    "log": 7_200,
    "models": 5_000,
    "optimize": 2_100,
    "planning": 1_200,
    "policies": 2_650,
    "replaying": 4_000,
    "report": 2_600,
    "running": 620,
    "sources": 1_650,
    "states": 1_240,
}


def test_few_modules_stand_at_the_top():
    found = sorted(path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py")
    assert len(found) <= MOST_AT_THE_TOP, found


def test_rooms_do_not_grow():
    """Where a room needs more lines, others should go, or its number rises, with a reason in the commit."""
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(LINES)
    for name in rooms:
        lines = sum(len(path.read_text().splitlines()) for path in (PACKAGE / name).rglob("*.py"))
        assert lines <= LINES[name], f"{name} has {lines} lines"


def test_one_name_means_one_thing():
    found = {}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.name)
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert len(twice) <= MOST_NAMES_TWICE, twice
