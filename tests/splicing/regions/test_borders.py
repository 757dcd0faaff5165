from __future__ import annotations

import numpy as np

from cpcapp.splicing.regions.borders import border_pixels, collect_borders


def test_borders_count_every_pixel_once():
    labels = np.array([[0, 0, 1], [2, 2, 1]], dtype=np.int32)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(3, one, two, np.ones(len(one)))
    found = {
        (int(i), int(j)): n
        for i, j, n in zip(borders.one, borders.two, borders.length, strict=True)
    }
    assert found == {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 1.0}
    assert borders.cut(np.array([True, False, False])) == (3.0, 3.0)
