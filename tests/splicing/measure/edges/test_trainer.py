"""Training on drawings whose edges are known, and on a few real photos."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import pytest

from cpcapp.splicing.datasets.sources import bsds_photos
from cpcapp.splicing.measure.edges import EdgeDetector
from cpcapp.splicing.measure.edges.features import EdgeOptions
from cpcapp.splicing.measure.edges.trainer import _edge_bins, train_forest


@dataclass(frozen=True)
class Drawing:
    """Ellipses of one grey on a ground of another, with noise that has no outline."""

    seed: int

    def segmentations(self):
        rng = np.random.default_rng(self.seed)
        segments = np.zeros((96, 120), dtype=np.uint8)
        for number in range(1, 5):
            centre = (int(rng.integers(10, 110)), int(rng.integers(10, 86)))
            axes = (int(rng.integers(8, 30)), int(rng.integers(8, 30)))
            cv2.ellipse(segments, centre, axes, float(rng.uniform(0, 180)), 0, 360, number, -1)
        return [segments.astype(np.uint16)]

    def boundaries(self):
        segments = self.segmentations()[0]
        edge = np.zeros(segments.shape, dtype=bool)
        edge[:-1] |= segments[1:] != segments[:-1]
        edge[:, :-1] |= segments[:, 1:] != segments[:, :-1]
        return [edge]

    def image(self):
        rng = np.random.default_rng(self.seed + 1000)
        grey = rng.uniform(0.1, 0.9, size=(5, 3)).astype(np.float32)[self.segmentations()[0]]
        noise = rng.normal(scale=0.05, size=grey.shape).astype(np.float32)
        return np.clip(grey + noise, 0, 1)


OPTIONS = EdgeOptions(numberOfTrees=2, numberOfTreesToEvaluate=2)


@pytest.fixture(scope="module")
def forest():
    return train_forest([Drawing(i) for i in range(12)], OPTIONS, n_samples=3000, seed=3)


def test_learns_to_find_outlines(forest, tmp_path):
    forest.save(tmp_path / "f.yml.gz")
    detector = EdgeDetector(tmp_path / "f.yml.gz")
    new = Drawing(99)
    edges = detector.detect(new.image())
    near = cv2.distanceTransform((~new.boundaries()[0]).astype(np.uint8), cv2.DIST_L2, 5)
    assert edges[near < 1].mean() > 8 * edges[near > 8].mean()


def test_same_seed_same_forest_whatever_the_jobs(forest):
    drawings = [Drawing(i) for i in range(12)]
    again = train_forest(drawings, OPTIONS, n_samples=3000, seed=3, jobs=1)
    np.testing.assert_array_equal(again.childs, forest.childs)
    np.testing.assert_array_equal(again.thresholds, forest.thresholds)
    np.testing.assert_array_equal(again.edgeBins, forest.edgeBins)
    other = train_forest(drawings, OPTIONS, n_samples=3000, seed=4)
    assert not np.array_equal(other.featureIds, forest.featureIds)


def test_trees_differ_and_use_both_kinds_of_features(forest):
    assert not np.array_equal(forest.featureIds[0], forest.featureIds[1])
    used = forest.featureIds[forest.childs != 0]
    assert (used < OPTIONS.n_regular).any()
    assert (used >= OPTIONS.n_regular).any()


def test_progress_goes_from_start_to_end():
    seen = []
    train_forest([Drawing(1), Drawing(2)], OPTIONS, n_samples=500, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_edge_pixels_lie_on_both_sides_in_opencvs_order():
    patch = np.zeros((16, 16), dtype=np.uint8)
    patch[:, 8:] = 1
    rows, cols = np.meshgrid(np.arange(16), [7, 8], indexing="ij")
    assert sorted(_edge_bins(patch)) == sorted((cols * 16 + rows).ravel())
    assert len(_edge_bins(np.zeros((16, 16), dtype=np.uint8))) == 0


def test_bsds_reads_photos_and_every_annotator(data_folder):
    photos = bsds_photos(data_folder / "bsds500", ["train", "val"])
    assert len(photos) == 300
    photo = photos[0]
    assert photo.image().shape[:2] == photo.boundaries()[0].shape == photo.segmentations()[0].shape
    assert len(photo.boundaries()) >= 4
    assert 0.0 <= photo.image().min() <= photo.image().max() <= 1.0


def test_folders_that_are_not_bsds(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not BSDS500: it has no folder images/train"):
        bsds_photos(tmp_path, ["train"])
    (tmp_path / "images" / "train").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="has no photos in train"):
        bsds_photos(tmp_path, ["train"])
    (tmp_path / "images" / "train" / "1.jpg").write_bytes(b"no")
    with pytest.raises(FileNotFoundError, match="has no ground truth"):
        bsds_photos(tmp_path, ["train"])
    (tmp_path / "groundTruth" / "train").mkdir(parents=True)
    (tmp_path / "groundTruth" / "train" / "1.mat").write_bytes(b"no")
    photo = bsds_photos(tmp_path, ["train"])[0]
    with pytest.raises(ValueError, match=r"1\.jpg: is not a JPEG"):
        photo.image()
    with pytest.raises(OSError, match="is not a BSDS500 ground truth"):
        photo.boundaries()
