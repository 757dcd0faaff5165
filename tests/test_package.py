from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import cpcapp

ROOT = Path(__file__).parents[1]
PUBLIC_MODULES = [
    *("cpcapp", "cpcapp.tables", "cpcapp.splicing"),
    *("cpcapp.anndata", "cpcapp.plotting", "cpcapp.datasets", "cpcapp.experiments"),
]


def test_public_names():
    assert cpcapp.__all__ == sorted(cpcapp.__all__, key=lambda n: (n.lower() == n, n))
    assert cpcapp.__all__ == [
        "CPCA",
        "CPCAPlusPlus",
        "ComponentStability",
        "Contrast",
        "HeldOutContrasts",
        "LawOfNoiseWarning",
        "Loading",
        "MixedBackground",
        "Moments",
        "NoComponentsWarning",
        "PermutationTest",
        "RankedBackground",
        "SparseFilters",
        "bootstrap",
        "combine_backgrounds",
        "count_components",
        "find_sparse_filters",
        "glrt_detects",
        "held_out_contrasts",
        "log_glrt",
        "noise_threshold",
        "pairwise_moments",
        "partial_out",
        "permutation_test",
        "solve_contrast",
        "suitable_background",
    ]
    for name in cpcapp.__all__:
        assert hasattr(cpcapp, name)


def test_the_reference_lists_the_public_names_and_no_others():
    """What it lists is kept as the stability policy says; all else may change."""
    page = (ROOT / "docs" / "api.md").read_text()
    listed = []
    for block in re.findall(r"currentmodule:: ([\w.]+)\n(.*?)```", page, re.DOTALL):
        names = re.findall(r"^   (\w+)$", block[1], re.MULTILINE)
        listed += [f"{block[0]}.{name}" for name in names]
    public = []
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        public += [f"{name}.{member}" for member in module.__all__]
    assert sorted(listed) == sorted(public)
    assert len(public) <= 100


def test_version_is_that_of_the_installed_package():
    assert version("cpcapp") == cpcapp.__version__


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_functions_are_documented_with_an_example(name):
    module = importlib.import_module(name)
    for label in module.__all__:
        member = getattr(module, label)
        if not callable(member):
            continue
        assert member.__doc__, f"{name}.{label} has no docstring"
        if not inspect.isfunction(member):
            continue
        assert ">>>" in member.__doc__, f"{name}.{label} has no example"
        positional = [
            p
            for p in inspect.signature(member).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        assert len(positional) <= 4, f"{name}.{label} takes too many positional arguments"


def test_the_core_needs_no_extra():
    code = (
        "import sys, cpcapp, cpcapp.datasets, cpcapp.cli\n"
        "extras = {'matplotlib', 'cv2', 'PIL', 'torch', 'dask', 'starlette', 'pooch', 'h5py', "
        "'pyarrow', 'pandas', 'anndata', 'safetensors', 'onnxruntime', 'onnx', 'fastapi', "
        "'uvicorn', 'pydantic', 'jinja2', 'reportlab', 'python_multipart'}\n"
        "loaded = extras & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_photo_needs_neither_scipy_nor_scikit_learn():
    """Which take longer to import than a photo to look at."""
    code = (
        "import sys, cpcapp.cli, numpy\n"
        "from cpcapp.splicing import load_model\n"
        "load_model().localize(numpy.zeros((40, 50, 3), dtype='uint8'))\n"
        "loaded = {'sklearn', 'scipy', 'numba', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'PCAPlus'"):
        cpcapp.PCAPlus  # noqa: B018
    assert set(cpcapp.__all__) <= set(dir(cpcapp))


# Rooms may import those before them. The private modules beside them (`_files`, `_parallel`, ...)
# are for everybody and import nothing but each other.
ROOMS = [
    *("moments", "contrast", "inference", "estimators"),
    *("plotting", "tables", "anndata", "reports", "splicing", "datasets", "experiments", "web"),
    "cli",
]
SPLICING_ROOMS = [
    *(
        "photo",
        "datasets",
        "make",
        "measure",
        "decide",
        "presets",
        "result",
        "localizer",
        "model",
    ),
    *("examples", "networks", "devices", "output", "score", "train"),
]
SOURCE = Path(cpcapp.__file__).parent


def imports_of_the_package():
    """Yield each module and what it imports, at the top or inside a function."""
    for path in SOURCE.rglob("*.py"):
        module = (path.relative_to(SOURCE.parent).with_suffix("")).parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} has a relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                if name.split(".")[0] == "cpcapp":
                    yield module, tuple(name.split("."))


@pytest.mark.parametrize(
    ("above", "rooms"), [(("cpcapp",), ROOMS), (("cpcapp", "splicing"), SPLICING_ROOMS)]
)
def test_dependencies_point_one_way(above, rooms):
    """Imports inside functions count too: a cycle that is hidden is still a cycle."""
    at = len(above)
    for module, imported in imports_of_the_package():
        if module[:at] != above or imported[:at] != above or len(imported) <= at:
            continue
        here, there = module[at], imported[at]
        if here not in rooms or there not in rooms:
            continue
        wrong = rooms.index(there) > rooms.index(here)
        assert not wrong, f"{'.'.join(module)} imports {'.'.join(imported)}"


def test_every_room_has_its_place():
    for above, rooms in ((SOURCE, ROOMS), (SOURCE / "splicing", SPLICING_ROOMS)):
        names = {path.stem for path in above.iterdir() if path.suffix == ".py" or path.is_dir()}
        public = {name for name in names if not name.startswith("_")}
        assert public - {"py", "models"} <= set(rooms), public - set(rooms)


def test_only_its_command_knows_the_page():
    for module, imported in imports_of_the_package():
        if imported[:2] == ("cpcapp", "web"):
            assert module[:2] == ("cpcapp", "web") or module == ("cpcapp", "cli", "serve"), module


def test_private_modules_need_no_room():
    for module, imported in imports_of_the_package():
        if len(module) == 2 and module[1].startswith("_") and not module[1].startswith("__"):
            assert imported[1].startswith("_"), f"{module} imports {imported}"


def test_the_wheel_is_typed_and_licensed():
    assert (Path(cpcapp.__file__).parent / "py.typed").exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "BSD-3-Clause"
    extras = project["optional-dependencies"]
    assert {"splicing", "datasets", "plot", "tables", "all", "test", "dev"} <= set(extras)
    assert "torch" not in str(extras["all"])  # gigabytes: always a choice of its own


def test_extras_install_only_what_is_used():
    names = {
        "opencv-contrib-python-headless": "cv2",
        "pillow": "PIL",
        "pillow-heif": "pillow_heif",
        "python-calamine": "python_calamine",
        "protobuf": "google.protobuf",
        "python-multipart": "python_multipart",
        "urllib3": "requests",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for extra, requirements in project["optional-dependencies"].items():
        if extra in ("test", "dev", "bench"):
            continue
        for requirement in requirements:
            name = re.split(r"[<>=\[]", requirement)[0]
            module = names.get(name, name)
            used = re.search(rf"^\s*(import|from) {module}\b", source, re.MULTILINE)
            by_name = f'"{module}"' in source  # import_module, require
            assert name == "cpcapp" or used or by_name, f"{extra} installs {name}"
