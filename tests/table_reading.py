"""Read whole tables, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.tables import open_table


def read_all(path: Any, features: Any = ("c,d", "a b"), kept: Any = ("who",)) -> Any:
    """Return values, kept columns and row numbers."""
    chunks = list(open_table(str(path)).chunks(list(features), list(kept)))
    assert not any(chunk.bad or chunk.unreadable for chunk in chunks)
    values = [c.values.toarray() if sp.issparse(c.values) else c.values for c in chunks]
    columns = {name: [v for c in chunks for v in c.kept[name].to_pylist()] for name in kept}
    return np.concatenate(values), columns, np.concatenate([c.rows for c in chunks])
