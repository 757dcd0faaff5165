"""Contrast tables in files: CSV, Parquet, Excel, arrays and AnnData. Needs the extra ``tables``.

A table goes through these modules in order: `reading`, `columns`, `cleaning`, `reduce` and
`results`. `apply` computes the components of new rows, and `compare` those of three methods.
``cpcapp reduce`` and ``cpcapp apply`` call the functions here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cpcapp.tables.apply import AppliedRows, apply_model
from cpcapp.tables.messages import TableError
from cpcapp.tables.model import TableModel, load_model
from cpcapp.tables.reading import Chunk, Table, open_table

if TYPE_CHECKING:
    from cpcapp.tables.compare import compare_methods
    from cpcapp.tables.describe import describe_tables
    from cpcapp.tables.reduce import Reduction, reduce_tables
    from cpcapp.tables.results.writing import Results, write_results

__all__ = [
    "AppliedRows",
    "Chunk",
    "Reduction",
    "Results",
    "Table",
    "TableError",
    "TableModel",
    "apply_model",
    "compare_methods",
    "describe_tables",
    "load_model",
    "open_table",
    "reduce_tables",
    "write_results",
]

# Imported on first use: they need scikit-learn, which takes a second to import, and a model is
# applied to new rows without it.
_ON_FIRST_USE = {
    "Reduction": "cpcapp.tables.reduce",
    "Results": "cpcapp.tables.results.writing",
    "compare_methods": "cpcapp.tables.compare",
    "describe_tables": "cpcapp.tables.describe",
    "reduce_tables": "cpcapp.tables.reduce",
    "write_results": "cpcapp.tables.results.writing",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'cpcapp.tables' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_ON_FIRST_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
