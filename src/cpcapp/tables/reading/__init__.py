"""Read tables of all formats: names of columns, and rows in chunks."""

from cpcapp.tables.reading.opening import open_table
from cpcapp.tables.reading.table import Chunk, Table

__all__ = ["Chunk", "Table", "open_table"]
