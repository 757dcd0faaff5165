"""Which patches of a training photo are target and background."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.patches import share_in_patch
from cpcapp.splicing.photo.pixels import FloatMap
from cpcapp.splicing.presets import PatchRules


def select_patches(
    mask: NDArray[np.bool_],
    edges: FloatMap,
    size: int,
    rules: PatchRules,
    rng: np.random.Generator,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose target and background patches of a photo.

    ``target, background``: First row and column of each patch: of patches across the seam, and of
    patches with edges but no seam.
    """
    if min(mask.shape) < size:
        nothing = np.empty((0, 2), dtype=np.intp)
        return nothing, nothing
    spliced = share_in_patch(mask, size)
    with_edges = share_in_patch(edges >= rules.edge_strength, size) >= rules.min_edges
    target = (spliced >= rules.min_spliced) & (spliced <= rules.max_spliced)
    background = ((spliced == 0.0) | (spliced == 1.0)) & with_edges
    return _draw(target, rules.per_photo, rng), _draw(background, rules.per_photo, rng)


def _draw(allowed: NDArray[np.bool_], n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    places = np.argwhere(allowed)
    if len(places) > n:
        places = places[np.sort(rng.choice(len(places), n, replace=False))]
    return places
