"""New rows from Python; the command's tests have the rest."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cpcapp.tables import TableError, apply_model, open_table, reduce_tables


@pytest.fixture
def model(tmp_path):
    """The components are the two features; missing values are 7."""
    frame = pd.DataFrame({"a": [-9.0, 9.0, 0.0, 0.0], "b": [0.0, 0.0, -1.0, 1.0]})
    frame.to_csv(tmp_path / "m.csv", index=False)
    model = reduce_tables(tmp_path / "m.csv", None, 2, method="pca").model
    return replace(model, fill=np.full(2, 7.0))


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text("b,a,who\n" + "1,2,x\n" * 5 + "3,,y\n")
    return tmp_path / "t.csv"


def test_a_model_in_memory_and_a_stream(model, table):
    stream = io.BytesIO()
    applied = apply_model(model, open_table(table), stream, labels="who", missing="mean")
    assert applied.counts.n_used == 6
    found = pd.read_csv(io.BytesIO(stream.getvalue()))
    assert found.iloc[-1].tolist() == ["y", 7.0, 3.0]
    assert not stream.closed


def test_a_problem_in_a_later_chunk_stops_the_stream(model, table, monkeypatch):
    monkeypatch.setattr("cpcapp.tables.read.csv._MAX_BLOCK_BYTES", 12)
    monkeypatch.setattr("cpcapp.tables.read.csv._HEAD_BYTES", 12)
    stream = io.BytesIO()
    with pytest.raises(TableError, match="1 missing value"):
        apply_model(model, table, stream)
    found = pd.read_csv(io.BytesIO(stream.getvalue()))
    assert 0 < len(found) <= 5
    assert (found["component_1"] == 2).all()


def test_power_comes_without_p_where_the_background_was_too_small(tmp_path, rng):
    for name, n in (("t", 50), ("b", 12)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(n, 3)))
    model = reduce_tables(tmp_path / "t.npy", tmp_path / "b.npy", 1).model
    applied = apply_model(model, tmp_path / "t.npy", tmp_path / "o.csv")
    assert list(pd.read_csv(tmp_path / "o.csv")) == ["row", "component_1", "power"]
    assert "fewer than 20 background rows" in applied.notes()[0].text()
    with pytest.raises(TableError, match="too few background rows for p-values"):
        model.p_value(np.ones((3, 3)))
