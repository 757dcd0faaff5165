"""Errors name the parameters of the library; a command spells them in its own way."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import cpcapp.tables
from cpcapp.tables import TableError
from cpcapp.tables.messages import MissingPackageError, require_package


def test_names_with_braces_are_no_parameters():
    error = TableError("column '{x}' is text", "use {labels} or {drop}", labels=["{x}"])
    assert str(error) == "column '{x}' is text; use labels=['{x}'] or drop"
    assert error.message.text(lambda name, value: f"<{name}>") == (
        "column '{x}' is text; use <labels> or <drop>"
    )


def test_errors_travel_between_processes():
    error = TableError("2 bad rows", "leave them out with {skip_bad_rows}", skip_bad_rows=True)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingPackageError, match=r"pip install 'cpcapp\[tables\]'"):
        require_package("no_such_package_at_all", "tables")


def test_the_library_knows_no_options():
    for module in pkgutil.walk_packages(cpcapp.tables.__path__, "cpcapp.tables."):
        if module.name != "cpcapp.tables.messages":  # its examples show both spellings
            text = Path(importlib.import_module(module.name).__file__).read_text()
            assert re.findall(r"(?<![-\w])--[a-z]\S*", text) == [], module.name
