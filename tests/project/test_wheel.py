"""The wheel: what is in it, and that it works in an empty environment, with the newest and the oldest dependencies.

The newest are those that tests run with: the environment finds them by a .pth file, which takes no time. For the
oldest, the variable DRSTREAM_OLDEST names a Python that has the lower bounds of pyproject.toml (CONTRIBUTING.md).
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import drstream as drs
from tests.helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = os.environ.get("DRSTREAM_OLDEST")
NEEDS_SETUPTOOLS = 77


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built from a copy of the repository's files, as users would."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "drstream", source / "drstream", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests", "bench"):  # they must not get into it
        (source / name).mkdir()
        (source / name / "__init__.py").write_text("")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    recent = int(metadata.version("setuptools").split(".")[0]) >= NEEDS_SETUPTOOLS
    how = ["--no-build-isolation"] if recent else []  # else pip fetches setuptools
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *how, "-w", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not recent and "setuptools" in done.stderr:
        pytest.skip(f"pip cannot fetch setuptools >= {NEEDS_SETUPTOOLS}, which builds the wheel")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def environment(folder, wheel, python):
    """An empty environment with the wheel, which finds the dependencies of another Python."""
    asked = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()['purelib']))"
    libraries = json.loads(subprocess.run([python, "-c", asked], capture_output=True, check=True).stdout)
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{libraries}\n")  # Python reads no .pth files there, so none of drstream
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    return folder / "bin", site


def run(place, words, cwd, **settings):
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT")}
    env = {**kept, **settings}
    done = subprocess.run(
        [str(place / words[0]), *words[1:]], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        about = email.message_from_bytes(file.read(next(name for name in names if name.endswith("METADATA"))))
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "drstream").rglob("*.py")}
    styles = {str(path.relative_to(ROOT)) for path in (ROOT / "drstream" / "report").glob("*.css")}
    schemas = {f"drstream/schemas/{path.name}" for path in (ROOT / "drstream" / "schemas").iterdir()}
    data = {"drstream/py.typed", *styles, *schemas}
    assert {name for name in names if ".dist-info/" not in name} == ours | data
    assert len(data) > 5
    assert about["Version"] == drs.__version__
    assert about["Requires-Python"] == PROJECT["requires-python"]
    assert any(name.endswith("LICENSE") for name in names)


def test_what_is_in_the_wheel_runs(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    program = "import drstream; from drstream.cli import main; print(drstream.__file__); main()"
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(tmp_path / "drstream" / "__init__.py"), f"drstream {drs.__version__}"]


def try_it(wheel, python, folder):
    place, site = environment(folder / "env", wheel, python)
    assert run(place, ["drstream", "--version"], folder) == f"drstream {drs.__version__}\n"
    where = "import drstream; print(drstream.__file__)"
    assert Path(run(place, ["python", "-c", where], folder).strip()).is_relative_to(site)
    # Kernels in plain Python: to compile them takes a minute
    shown = run(place, ["drstream", "demo", "--rows", "1000", "--threads", "1"], folder, NUMBA_DISABLE_JIT="1")
    assert "of 9 intervals miss the truth" in shown
    return place


@pytest.mark.slow
def test_in_an_empty_environment(wheel, tmp_path):
    assert PROJECT["scripts"] == {"drstream": "drstream.cli:main"}
    place = try_it(wheel, sys.executable, tmp_path)
    schema = "from importlib import resources as r; print((r.files('drstream') / 'schemas' / 'audit.json').is_file())"
    assert run(place, ["python", "-c", schema], tmp_path) == "True\n"


@pytest.mark.slow
@pytest.mark.skipif(OLDEST is None, reason="DRSTREAM_OLDEST names no Python with the oldest dependencies")
def test_with_the_oldest_dependencies(wheel, tmp_path):
    """That it really has the lower bounds, as far as they name a version, and works with them."""
    versions = "{d.name: d.version for d in metadata.distributions()}"
    asked = f"import json; from importlib import metadata; print(json.dumps({versions}))"
    found = json.loads(subprocess.run([OLDEST, "-c", asked], capture_output=True, check=True).stdout)
    for text in PROJECT["dependencies"]:
        name, _, bound = text.partition(">=")
        assert re.match(rf"{re.escape(bound)}(\.|$)", found[name]), f"{name} {found[name]}, not {bound}"
    try_it(wheel, OLDEST, tmp_path)
