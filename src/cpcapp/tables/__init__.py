"""Contrast tables in files: CSV, Parquet, Excel, arrays and AnnData. Needs the extra ``tables``.

A table goes through these modules in order: `read`, `columns`, `cleaning`, `sample_sets`, `reduce`
and `results`. `apply` computes the components of new rows. ``cpcapp reduce`` and ``cpcapp apply``
call the functions here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.tables.apply import AppliedRows, apply_model
    from cpcapp.tables.messages import TableError
    from cpcapp.tables.model import TableModel, load_model
    from cpcapp.tables.read import Chunk, Table, open_table
    from cpcapp.tables.reduce import Reduction, reduce_tables
    from cpcapp.tables.results import Results, write_results

__all__ = [
    "AppliedRows",
    "Chunk",
    "Reduction",
    "Results",
    "Table",
    "TableError",
    "TableModel",
    "apply_model",
    "load_model",
    "open_table",
    "reduce_tables",
    "write_results",
]

# Imported on first use: some need scikit-learn, which takes a second to import, and the processes
# that read damaged files need next to nothing.
_MODULES = {
    "apply": ("AppliedRows", "apply_model"),
    "messages": ("TableError",),
    "model": ("TableModel", "load_model"),
    "read": ("Chunk", "Table", "open_table"),
    "reduce": ("Reduction", "reduce_tables"),
    "results": ("Results", "write_results"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"cpcapp.tables.{module}"), name)
            return value
    raise AttributeError(f"module 'cpcapp.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
