"""New rows from Python; the command's tests have the rest."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from cpcapp.tables import TableError, TableModel, apply_model, open_table


@pytest.fixture
def model():
    one = np.ones(2)
    return TableModel(["a", "b"], np.eye(2), np.eye(2), one, 0 * one, one, 7 * one)


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


def test_nothing_is_written_before_the_first_rows_are_good(model, table):
    stream = io.BytesIO()
    with pytest.raises(TableError, match=r"1 missing value in 1 row: line 7: .* missing='zero'"):
        apply_model(model, table, stream)
    assert stream.getvalue() == b""


def test_a_problem_in_a_later_chunk_stops_the_stream(model, table, monkeypatch):
    monkeypatch.setattr("cpcapp.tables.read.csv._MAX_BLOCK_BYTES", 12)
    stream = io.BytesIO()
    with pytest.raises(TableError, match="1 missing value"):
        apply_model(model, table, stream)
    found = pd.read_csv(io.BytesIO(stream.getvalue()))
    assert 0 < len(found) <= 5
    assert (found["component_1"] == 2).all()


def test_means_are_those_of_the_model_file(model, table, tmp_path):
    model.save(tmp_path / "m.safetensors")
    apply_model(tmp_path / "m.safetensors", table, tmp_path / "o.csv", missing="mean")
    assert pd.read_csv(tmp_path / "o.csv")["component_1"].iloc[-1] == 7.0
    with pytest.raises(TableError, match="overwrite=True"):
        apply_model(model, table, tmp_path / "o.csv", missing="mean")
