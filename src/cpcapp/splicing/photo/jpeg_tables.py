"""The tables of the JPEG standard; with NumPy alone, since networks are trained where little is."""

from __future__ import annotations

import numpy as np

# ITU-T T.81, table K.1: luminance, row by row. libjpeg scales it by the quality.
STANDARD_TABLE = np.array(
    [
        *(16, 11, 10, 16, 24, 40, 51, 61),
        *(12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56),
        *(14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77),
        *(24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101),
        *(72, 92, 95, 98, 112, 100, 103, 99),
    ],
    dtype=np.float64,
).reshape(8, 8)
# ITU-T T.81, table K.2: colour differences, row by row.
STANDARD_COLOURS = np.full((8, 8), 99, dtype=np.float64)
STANDARD_COLOURS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
