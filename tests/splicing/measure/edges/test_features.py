from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.measure.edges import Forest
from cpcapp.splicing.measure.edges.features import EdgeOptions, feature_maps, feature_table


@pytest.mark.parametrize("feature", [0, 5, 16, 300, 3327, 3328, 3500, 7000, 7227])
def test_our_features_are_those_that_opencv_uses(rng, tmp_path, feature):
    """A one-question tree run by OpenCV answers as our own table and maps do, at every patch."""
    options = EdgeOptions(numberOfTrees=1, numberOfTreesToEvaluate=1)
    image = cv2.GaussianBlur(rng.random((60, 70, 3), dtype=np.float32), (0, 0), 2)
    regular, similar = feature_maps(image, options)
    table = feature_table(options)
    r1, c1, z = table.rows1[feature], table.cols1[feature], table.channels[feature]
    r2, c2 = table.rows2[feature], table.cols2[feature]
    n_rows, n_cols = (60 - 16) // 2, (70 - 16) // 2
    rows, cols = np.mgrid[:n_rows, :n_cols]
    if feature < options.n_regular:
        values = regular[rows + r1, cols + c1, z]
    else:
        values = similar[rows + r1, cols + c1, z] - similar[rows + r2, cols + c2, z]
    threshold = np.float32(np.median(values))
    # The right leaf marks the pixel in row 3 and column 5 of its patch, the left one nothing.
    forest = Forest(
        options,
        np.array([[2, 0, 0]], dtype=np.int32),
        np.array([[feature, 0, 0]], dtype=np.int32),
        np.array([[threshold, 0, 0]], dtype=np.float32),
        np.array([0, 0, 0, 1], dtype=np.int32),
        np.array([5 * 16 + 3], dtype=np.int32),
    )
    forest.save(tmp_path / "f.yml")
    engine = cv2.ximgproc.createStructuredEdgeDetection(str(tmp_path / "f.yml"))
    found = engine.detectEdges(image)
    votes = np.zeros((60, 70), dtype=np.float32)
    votes[2 * rows + 3, 2 * cols + 5] = (values >= threshold) * (2.0 * 4 / 256)
    p = 12.0 / 3 - 2
    kernel = np.array([1, p, 1], dtype=np.float32) / (p + 2)
    expected = cv2.sepFilter2D(votes, -1, kernel, kernel)
    np.testing.assert_allclose(found, expected, atol=1e-6)
