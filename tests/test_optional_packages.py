"""`make test` is green with what it installs, and says what else would be tested."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST_FILES = [ROOT / "conftest.py", *sorted((ROOT / "tests").rglob("*.py"))]


def normal_name(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()


def installed_with(requirements, extras):
    """Names of distributions, those in brackets too: dask[distributed] installs distributed."""
    names = set()
    for requirement in requirements:
        name, brackets = re.match(r"([\w.-]+)(?:\[(.*)\])?", requirement).groups()
        inner = re.findall(r"[\w-]+", brackets or "")
        if name == "cpcapp":
            names |= installed_with([r for extra in inner for r in extras[extra]], extras)
        else:
            names |= {normal_name(each) for each in (name, *inner)}
    return names


@pytest.fixture(scope="module")
def installed():
    """What `make test` installs, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], "cpcapp[dev]"]
    return installed_with(requirements, project["optional-dependencies"])


def imports_at_top(path):
    """What a file can not be imported without."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield statement.module.partition(".")[0]


def test_tests_import_only_what_they_install(installed):
    """All else, such as torch, needs `pytest.importorskip`, or an import within a test."""
    assert "torch" not in installed
    assert "numba" in installed
    ours = {"cpcapp", *(path.stem for path in TEST_FILES)}
    distributions = packages_distributions()
    missing = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in TEST_FILES
        for name in imports_at_top(path)
        if name not in ours | sys.stdlib_module_names
        and installed.isdisjoint(map(normal_name, distributions.get(name, ())))
    ]
    assert missing == []


def test_skips_take_one_line_for_each_reason(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text("from shared import nothing")
    (tmp_path / "shared.py").write_text(
        "import pytest; nothing = pytest.importorskip('no_such', reason='needs the extra torch')"
    )
    (tmp_path / "test_c.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_skipped(number):\n"
        "    pytest.skip('needs the extra torch' if number else 'needs a browser')\n"
        "def test_failed():\n"
        "    assert 1 == 2\n"
    )
    options = ("-p", "xdist", "-n", "1", "-c", ROOT / "pyproject.toml", "--rootdir=.")
    files = (f"test_{name}.py" for name in "abc")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "pythonpath=.", *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 1, done.stdout
    lines = done.stdout.splitlines()
    assert "1 test needs a browser" in lines
    assert "2 tests and 2 files need torch: pip install -e '.[torch]'" in lines
    assert "FAILED test_c.py::test_failed - assert 1 == 2" in lines
    assert "SKIPPED" not in done.stdout
