"""A table goes one way through the modules, also in imports within functions."""

from __future__ import annotations

import re
from pathlib import Path

import cpcapp.tables

ORDER = [
    *("messages", "read.table", "read.numbers", "read.csv", "read.arrays", "read.excel"),
    *("read.h5ad", "read", "columns", "cleaning", "model", "sample_sets", "reduce", "scores"),
    *("results", "apply"),
]
ROOT = Path(cpcapp.tables.__file__).parent


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        name = name.removesuffix("__init__").removesuffix(".")
        if name:
            yield name, path.read_text()


def test_every_module_has_a_place_in_the_order():
    assert {name for name, _ in modules()} == set(ORDER)


def test_no_import_points_backwards():
    for name, text in modules():
        found = re.findall(r"^\s*from cpcapp\.tables\.(\S+) import", text, re.MULTILINE)
        found += re.findall(r"^\s*import cpcapp\.tables\.(\S+)", text, re.MULTILINE)
        for other in found:
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}"


def test_the_library_knows_no_options():
    for name, text in modules():
        assert re.findall(r"(?<![-\w])--[a-z]\S*", text) == [], name


def test_public_names():
    classes = "AppliedRows Chunk Reduction Results Table TableError TableModel"
    functions = "apply_model load_model open_table reduce_tables write_results"
    assert cpcapp.tables.__all__ == f"{classes} {functions}".split()
    for name in cpcapp.tables.__all__:
        assert getattr(cpcapp.tables, name).__doc__
    assert set(cpcapp.tables.__all__) <= set(dir(cpcapp.tables))
