"""The detector against OpenCV's own, which reads the same forests from YAML."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.measure.edges import EdgeDetector, Forest
from cpcapp.splicing.measure.edges.features import EdgeOptions, feature_maps, feature_table

MARGIN = 16


def scene(height, width):
    """Blurred blocks and noise, with something everywhere."""
    rng = np.random.default_rng(height)
    blocks = rng.random((height // 20 + 1, width // 20 + 1, 3), dtype=np.float32)
    image = cv2.resize(blocks, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.clip(image + rng.normal(0, 0.03, image.shape), 0, 1).astype(np.float32)


def grown(options, n_questions, seed=0):
    """A forest of crooked trees; their questions divide the patches of a photo evenly."""
    rng = np.random.default_rng(seed)
    maps, table = feature_maps(scene(120, 120), options), feature_table(options)
    shape = (options.numberOfTrees, 2 * n_questions + 1)
    childs = np.zeros(shape, np.int32)
    for tree in childs:
        leaves = [0]
        for first in range(1, 2 * n_questions, 2):
            # Of two that are drawn the later one: some paths are much longer than others.
            asks = leaves.pop(max(rng.integers(len(leaves), size=2)))
            tree[asks] = first + 1
            leaves += [first, first + 1]
    ids = rng.integers(0, options.n_features, shape).astype(np.int32)
    thresholds = np.empty(shape, np.float32)
    for place, feature in np.ndenumerate(ids):
        regular = feature < options.n_regular
        z = table.channels[feature]
        seen = maps[0 if regular else 1][:40, :40, z]
        other = maps[1][5:45, :40, z]
        thresholds[place] = rng.choice((seen if regular else seen - other).ravel())
    # Some leaves see no edge.
    counts = (
        rng.integers(0, 40, childs.size) * (childs.ravel() == 0) * rng.integers(0, 2, childs.size)
    )
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    bins = rng.integers(0, options.patchInnerSize**2, bounds[-1]).astype(np.int32)
    return Forest(options, childs, ids, thresholds, bounds, bins)


def opencv(forest, image, folder):
    """Return what OpenCV finds in all of a photo at once."""
    forest.save(folder / "forest.yml")
    odd = [n % 2 for n in image.shape[:2]]
    wide = cv2.copyMakeBorder(
        image, MARGIN, MARGIN + odd[0], MARGIN, MARGIN + odd[1], cv2.BORDER_REFLECT
    )
    found = cv2.ximgproc.createStructuredEdgeDetection(str(folder / "forest.yml")).detectEdges(wide)
    return found[MARGIN : MARGIN + image.shape[0], MARGIN : MARGIN + image.shape[1]]


OPTIONS = {
    "as shipped": EdgeOptions(),
    "one tree": EdgeOptions(numberOfTrees=1, numberOfTreesToEvaluate=1),
    "all trees": EdgeOptions(numberOfTrees=4, numberOfTreesToEvaluate=4),
    "wide stride": EdgeOptions(stride=4),
    "not shrunk": EdgeOptions(stride=1, shrinkNumber=1, patchSize=16, patchInnerSize=8),
    "smoother": EdgeOptions(gradientSmoothingRadius=2, ssFeatureSmoothingRadius=12),
    "small patches": EdgeOptions(patchSize=24, patchInnerSize=12),
}


@pytest.mark.parametrize("shape", [(60, 70), (61, 133), (150, 1), (1, 1)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_finds_what_opencv_finds(options, shape, tmp_path):
    forest, image = grown(options, n_questions=60), scene(*shape)
    expected = opencv(forest, image, tmp_path)
    found = EdgeDetector(forest).detect(image)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    if min(shape) > 50:
        assert np.unique(found).size > 20


def test_edge_pixels_of_all_channels_are_added_up(tmp_path):
    """Our trainer writes the first channel only, other forests have more."""
    forest = grown(EdgeOptions(), n_questions=10)
    rng = np.random.default_rng(1)
    forest.edgeBins[:] = rng.integers(0, 256 * 13, forest.edgeBins.size)
    image = scene(60, 70)
    expected = opencv(forest, image, tmp_path)
    np.testing.assert_allclose(EdgeDetector(forest).detect(image), expected, atol=1e-6)
