"""Errors name the parameters of the library; a command spells them in its own way."""

from __future__ import annotations

import pickle

import pytest

from cpcapp.tables import TableError
from cpcapp.tables.messages import require_package


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
    with pytest.raises(ImportError, match=r"pip install 'cpcapp\[tables\]'"):
        require_package("no_such_package_at_all", "tables")
