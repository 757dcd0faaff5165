"""Which model a result is of."""

from __future__ import annotations

import hashlib

import pytest

from cpcapp.splicing import load_model
from cpcapp.splicing import model as model_file
from cpcapp.splicing.model import ModelError, find_model_file, save_model
from cpcapp.splicing.output.model_identity import open_model


@pytest.fixture
def path(tmp_path):
    save_model(load_model("filters"), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_the_hash_is_that_of_the_file(path):
    localizer, identity = open_model(path)
    assert identity["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert localizer.file_sha256 == identity["sha256"]
    with find_model_file("paper") as shipped:
        expected = hashlib.sha256(shipped.read_bytes()).hexdigest()
    assert open_model("paper")[1]["sha256"] == expected


def test_a_file_that_is_replaced_meanwhile(path, monkeypatch):
    """The hash is that of the model that is used, not that of another one with its name."""
    with find_model_file("paper") as shipped:
        other = shipped.read_bytes()
    read, first = model_file.read_tensor_file, path.read_bytes()

    def read_and_replace(*arguments, **options):
        data = read(*arguments, **options)
        path.write_bytes(other)
        return data

    monkeypatch.setattr(model_file, "read_tensor_file", read_and_replace)
    _, identity = open_model(path)
    assert (identity["name"], identity["sha256"]) == ("filters", hashlib.sha256(first).hexdigest())
    _, identity = open_model(path)
    assert (identity["name"], identity["sha256"]) == ("paper", hashlib.sha256(other).hexdigest())


def test_a_localizer_is_known_by_what_it_would_be_saved_as(path):
    localizer = load_model(path)
    assert open_model(localizer)[1]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    localizer.threshold /= 2
    assert open_model(localizer)[1]["sha256"] != localizer.file_sha256


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match="there is no model file"):
        open_model(tmp_path / "none")
