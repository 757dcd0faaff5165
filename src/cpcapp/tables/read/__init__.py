"""Read tables of all formats: names of columns, and rows in chunks."""

from cpcapp.tables.read.opening import open_table
from cpcapp.tables.read.table import Chunk, Table

__all__ = ["Chunk", "Table", "open_table"]
