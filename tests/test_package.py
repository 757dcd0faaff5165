from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import cpcapp

ROOT = Path(__file__).parents[1]
PUBLIC_MODULES = [
    *("cpcapp", "cpcapp.datasets", "cpcapp.plotting", "cpcapp.contrast"),
    *("cpcapp.tables", "cpcapp.anndata"),
]


def test_public_names():
    assert cpcapp.__all__ == sorted(cpcapp.__all__, key=lambda n: (n.lower() == n, n))
    assert cpcapp.__all__ == [
        "CPCA",
        "CPCAPlusPlus",
        "Contrast",
        "Loading",
        "Moments",
        "count_components",
        "glrt_detects",
        "log_glrt",
        "noise_threshold",
        "permutation_threshold",
        "power_p_value",
        "solve_contrast",
        "wachter_edge",
    ]
    for name in cpcapp.__all__:
        assert hasattr(cpcapp, name)


def test_version_is_that_of_the_installed_package():
    assert version("cpcapp") == cpcapp.__version__


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_functions_are_documented_with_an_example(name):
    module = importlib.import_module(name)
    for label, member in inspect.getmembers(module):
        if label.startswith("_") or not inspect.isfunction(member):
            continue
        if not member.__module__.startswith("cpcapp") or label == "check_n_components":
            continue
        assert ">>>" in (member.__doc__ or ""), f"{name}.{label} has no example"
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
        "'pyarrow', 'pandas', 'anndata', 'safetensors'}\n"
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


def test_dependencies_point_one_way():
    """moments ← loading ← contrast ← detection ← estimators ← tables, splicing ← ... ← cli."""
    order = [
        *("plotting", "moments", "loading", "contrast", "detection", "estimators", "tables"),
        *("anndata", "splicing", "datasets", "experiments", "cli"),
    ]
    for module in pkgutil.walk_packages(cpcapp.__path__, "cpcapp."):
        room = module.name.split(".")[1]
        if room not in order:
            continue
        source = inspect.getsource(importlib.import_module(module.name))
        imports = [line for line in source.splitlines() if line.startswith(("from ", "import "))]
        for later in order[order.index(room) + 1 :]:
            assert not [line for line in imports if f"cpcapp.{later}" in line], module.name


def test_the_wheel_is_typed_and_licensed():
    assert (Path(cpcapp.__file__).parent / "py.typed").exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "BSD-3-Clause"
    wanted = {"splicing", "datasets", "web", "plot", "dask", "torch", "all", "test", "dev"}
    assert wanted <= set(project["optional-dependencies"])
    assert "torch" not in project["optional-dependencies"]["all"][0]
