"""Tables of users: what ``cpcapp reduce`` and ``cpcapp apply`` do. Needs the extra ``tables``."""

from cpcapp.tables._table import Chunk, Table, TableError
from cpcapp.tables.model import TableModel, load_model
from cpcapp.tables.opening import open_table

__all__ = ["Chunk", "Table", "TableError", "TableModel", "load_model", "open_table"]
