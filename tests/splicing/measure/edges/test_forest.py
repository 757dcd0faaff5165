from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, fields, replace

import cv2
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save

from cpcapp.splicing.measure.edges import Forest, ForestError
from cpcapp.splicing.measure.edges.features import EdgeOptions


@pytest.fixture
def forest(rng):
    """Two trees: a root with two leaves, and a deeper one."""
    options = EdgeOptions(numberOfTrees=2, numberOfTreesToEvaluate=2)
    childs = np.array([[2, 0, 0, 0, 0], [2, 4, 0, 0, 0]], dtype=np.int32)
    ids = np.array([[7, 0, 0, 0, 0], [4000, 100, 0, 0, 0]], dtype=np.int32)
    thresholds = rng.normal(size=(2, 5)).astype(np.float32)
    bins = np.arange(40, dtype=np.int32)
    bounds = np.linspace(0, 40, 11).astype(np.int32)
    return Forest(options, childs, ids, thresholds, bounds, bins)


ARRAYS = ["childs", "featureIds", "thresholds", "edgeBoundaries", "edgeBins"]


NAMES = ["f.yml", "f.yml.gz", "f.safetensors", "f.safetensors.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load_give_the_same(forest, tmp_path, name):
    forest.save(tmp_path / name)
    again = Forest.load(tmp_path / name)
    assert again.options == forest.options
    questions = forest.childs != 0
    for array in ARRAYS:
        found, expected = getattr(again, array), getattr(forest, array)
        assert found.dtype == expected.dtype
        if array in ("featureIds", "thresholds") and "safetensors" in name:
            found, expected = found[questions], expected[questions]  # of others none are kept
        np.testing.assert_array_equal(found, expected)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_opencv_reads_it(forest, tmp_path, rng):
    forest.save(tmp_path / "f.yml.gz")
    storage = cv2.FileStorage(str(tmp_path / "f.yml.gz"), cv2.FILE_STORAGE_READ)
    assert storage.getNode("options").getNode("patchSize").real() == 32
    tree = storage.getNode("thresholds").at(1)
    read = [tree.at(i).real() for i in range(tree.size())]
    np.testing.assert_array_equal(np.float32(read), forest.thresholds[1])
    engine = cv2.ximgproc.createStructuredEdgeDetection(str(tmp_path / "f.yml.gz"))
    assert engine.detectEdges(rng.random((64, 64, 3), dtype=np.float32)).max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"childs": [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]}, "outside its tree or before it"),
        ({"childs": [[6, 0, 0, 0, 0], [0, 0, 0, 0, 0]]}, "outside its tree or before it"),
        ({"childs": [[-3, 0, 0, 0, 0], [0, 0, 0, 0, 0]]}, "outside its tree or before it"),
        ({"featureIds": [[7228, 0, 0, 0, 0]] * 2}, "feature's number"),
        ({"featureIds": [[-1, 0, 0, 0, 0]] * 2}, "feature's number"),
        ({"edgeBins": np.full(40, 16 * 16 * 13)}, "outside its patch"),
        ({"edgeBins": np.full(40, -1)}, "outside its patch"),
        ({"edgeBins": np.arange(30)}, "do not ascend within edgeBins"),
        ({"edgeBoundaries": np.arange(11)[::-1]}, "do not ascend within edgeBins"),
        ({"edgeBoundaries": np.arange(5)}, "do not fit its nodes"),
        ({"thresholds": [[np.nan] * 5] * 2}, "not all finite"),
        (
            {"edgeBoundaries": [0, *[4000] * 10], "edgeBins": np.zeros(4000)},
            "more edge pixels than a patch",
        ),
    ],
)
def test_indices_that_lead_outside_are_refused(forest, change, message):
    arrays = {
        name: np.array(values, dtype=np.float32 if name == "thresholds" else np.int32)
        for name, values in change.items()
    }
    with pytest.raises(ForestError, match=message):
        replace(forest, **arrays)


@pytest.mark.parametrize("name", [f.name for f in fields(EdgeOptions)])
@pytest.mark.parametrize("value", [-1, 100_000])
def test_options_out_of_range_are_refused(forest, name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be from"):
        replace(forest.options, **{name: value})


class TestDamagedFiles:
    @pytest.fixture
    def path(self, forest, tmp_path):
        forest.save(tmp_path / "f.yml.gz")
        return tmp_path / "f.yml.gz"

    def refused(self, path, content, message="is not a forest of edges"):
        path.write_bytes(content)
        with pytest.raises(ForestError, match=message):
            Forest.load(path)

    def test_cut_off_anywhere(self, path):
        whole = path.read_bytes()
        text = gzip.decompress(whole)
        for n in range(0, len(whole), 7):
            self.refused(path, whole[:n])
        for n in range(0, len(text) - 5, 11):
            self.refused(path, text[:n])

    def test_another_format(self, path):
        self.refused(path, b"\x89PNG\r\n\x1a\n" + bytes(100))
        self.refused(path, b"%YAML:1.0\n---\na: 1\n", "it has no options")
        self.refused(path, gzip.compress(b"hello"))
        self.refused(path, bytes(range(256)))

    def test_a_bomb_is_not_unpacked(self, path, monkeypatch):
        monkeypatch.setattr("cpcapp.splicing.measure.edges.forest._MAX_BYTES", 10_000)
        engine = zlib.compressobj(wbits=31)
        self.refused(path, engine.compress(bytes(100_000)) + engine.flush(), "unpacks to more")

    @pytest.mark.parametrize("bad", [b"1e99", b"99999999999", b"x", b"1.5", b"[", b"nan"])
    def test_numbers_that_are_none(self, path, bad):
        text = gzip.decompress(path.read_bytes())
        self.refused(path, text.replace(b"- [ 2, 0", b"- [ " + bad + b", 0", 1))

    def test_an_option_that_is_missing(self, path):
        text = gzip.decompress(path.read_bytes())
        self.refused(path, text.replace(b"   stride: 2\n", b""), "its options have no stride")


class TestDamagedTensors:
    @pytest.fixture
    def path(self, forest, tmp_path):
        forest.save(tmp_path / "f.safetensors")
        return tmp_path / "f.safetensors"

    def refused(self, path, content, message="is not a forest of edges"):
        path.write_bytes(content)
        with pytest.raises(ForestError, match=message):
            Forest.load(path)

    def rewritten(self, path, header=None, **tensors):
        """The same file with something else in it."""
        old = json.loads(read_metadata(path)["cpcapp"])
        new = json.dumps({**old, **(header or {})})
        return save({**load_file(path), **tensors}, metadata={"cpcapp": new})

    def test_cut_off_anywhere(self, path):
        whole = path.read_bytes()
        for n in range(0, len(whole), 5):
            self.refused(path, whole[:n])
        packed = gzip.compress(whole)
        for n in range(0, len(packed), 9):
            self.refused(path, packed[:n])

    def test_what_is_not_of_this_package(self, path):
        for content, message in (
            (self.rewritten(path, {"format": "other"}), "its format is 'other'"),
            (self.rewritten(path, {"format_version": 2}), "of version 2"),
            (save({"a": np.zeros(3)}), "neither OpenCV's YAML nor a file of this package"),
        ):
            self.refused(path, content, message)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"stride": 2}, "its options have no"),
            ({**asdict(EdgeOptions()), "more": 1}, "its options have no"),
            ({**asdict(EdgeOptions()), "stride": 2.0}, "not whole numbers"),
            ({**asdict(EdgeOptions()), "stride": "2"}, "not whole numbers"),
            ({**asdict(EdgeOptions()), "stride": 10**9}, "stride=1000000000 must be"),
            (7, "neither"),
        ],
    )
    def test_options(self, path, options, message):
        self.refused(path, self.rewritten(path, {"options": options}), message)

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"childs": np.full((2, 5), 0.5, np.float32)}, "its childs are not whole numbers"),
            ({"thresholds": np.zeros((2, 5), bool)}, "its thresholds hold a number out of range"),
            ({"edgeBins": np.full(40, 2**40, np.uint64)}, "out of range"),
            ({"edgeBoundaries": np.full(10, 2**31 - 1, np.uint32)}, "out of range"),
            ({"edgeBoundaries": np.full(10, 9, np.uint32)}, "do not ascend within edgeBins"),
            ({"childs": np.full((2, 5), 6, np.uint8)}, "outside its tree"),
            ({"featureIds": np.full((2, 5), 7228, np.uint16)}, "feature's number"),
            ({"childs": np.zeros(10, np.uint8)}, "trees"),
            ({"thresholds": np.zeros((2, 4), np.float32)}, "differ in shape"),
        ],
    )
    def test_arrays(self, path, tensors, message):
        self.refused(path, self.rewritten(path, **tensors), message)


def read_metadata(path):
    with safe_open(path, "np") as file:
        return file.metadata()
