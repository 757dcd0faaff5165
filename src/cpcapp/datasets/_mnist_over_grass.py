"""Handwritten digits under grass: the paper's first real example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.packages import require_packages
from cpcapp.datasets._contrast_data import ContrastData, check_classes
from cpcapp.datasets._fetch import (
    MNIST,
    DataNotFoundError,
    PathLike,
    fetch,
    find,
    home_folders,
)
from cpcapp.moments.rows import FloatArray

SIDE = 28
_SUFFIXES = {".jpg", ".jpeg", ".png"}


def mnist_over_grass(
    n_target: int = 5000,
    n_background: int = 5000,
    *,
    digits: Sequence[int] = (0, 1),
    weight: float = 0.25,
    random_state: int | np.random.Generator | None = None,
    data_home: PathLike | None = None,
) -> ContrastData:
    """Lay handwritten digits over photos of grass; the background is grass alone.

    Each row is a grey 28 × 28 picture with values from 0 (black). The grass is a crop at a random
    place of a random photo, in [0, 1]. In the target a digit of MNIST's training set, scaled to
    [0, 1], is added with a weight. No digit is used twice. Crops are drawn with replacement.

    Parameters
    ----------
    n_target, n_background : int, default=5000
    digits : sequence of int, default=(0, 1)
        Which digits lie in the target: two or more of 0 to 9, or one alone.
    weight : float, default=0.25
        How strongly the digits show. At 0.25 a person can hardly read them.
    random_state : int, Generator or None
    data_home : path, optional
        The folder with ``mnist/mnist.npz``, which is fetched if need be, and ``grass/*.jpg``,
        which is not; see :doc:`/datasets`.

    Returns
    -------
    ContrastData
        With 784 features. ``clean`` has the weighted digits alone, and ``labels`` counts through
        ``digits``.

    Raises
    ------
    DataNotFoundError
        If MNIST or the photos are not here.

    Examples
    --------
    >>> import tempfile
    >>> from cpcapp.datasets import DataNotFoundError
    >>> try:
    ...     data = mnist_over_grass(random_state=0, data_home=tempfile.mkdtemp())
    ... except DataNotFoundError as error:
    ...     print("grass" in str(error))
    True
    """
    classes = check_classes("digits", digits, 9)
    for name, n in (("n_target", n_target), ("n_background", n_background)):
        if n < 1:
            raise ValueError(f"{name}={n} must be at least 1")
    if not (np.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"weight={weight} must be a number of 0 or more")
    photos = _grass_photos(data_home)
    images, digit = _training_digits(fetch(MNIST, data_home))
    rng = np.random.default_rng(random_state)
    of_classes = np.flatnonzero(np.isin(digit, classes))
    if n_target > len(of_classes):
        raise ValueError(
            f"n_target={n_target} must be at most {len(of_classes)}, the number of pictures of "
            f"the digits {tuple(classes)} in MNIST's training set"
        )
    chosen = rng.choice(of_classes, n_target, replace=False)
    clean = weight / 255.0 * images[chosen].reshape(n_target, -1)
    return ContrastData(
        _crops(photos, n_target, rng) + clean,
        _crops(photos, n_background, rng),
        np.argmax(digit[chosen, None] == np.asarray(classes), axis=1),
        [f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)],
        label_names=[str(label) for label in classes],
        clean=clean,
        source="MNIST (LeCun, Cortes, Burges) over photos of grass",
    )


def _training_digits(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        if not {"x_train", "y_train"} <= set(archive.files):
            raise ValueError(f"{path} has no x_train and y_train; it is not MNIST")
        images, labels = archive["x_train"], archive["y_train"]
    if images.shape != (len(labels), SIDE, SIDE) or images.dtype != np.uint8:
        raise ValueError(
            f"x_train of {path} has shape {images.shape} and type {images.dtype}; MNIST has "
            f"({len(labels)}, {SIDE}, {SIDE}) and uint8"
        )
    return images, labels


def _grass_photos(data_home: PathLike | None) -> list[FloatArray]:
    """Return photos in grey from 0 to 1; those smaller than a digit are left out."""
    folders = find(data_home, "grass/")
    if not folders:
        raise DataNotFoundError(
            "photos of grass are not here, and no free source of those of the paper is known; put "
            "photos of grass of your own (.jpg, .png) into "
            f"{home_folders(data_home)[0] / 'grass'}"
        )
    require_packages("datasets", "PIL", purpose="reading photos of grass")
    from PIL import Image

    photos = []
    for path in sorted(p for p in folders[0].iterdir() if p.suffix.lower() in _SUFFIXES):
        try:
            with Image.open(path) as photo:
                photos.append(np.asarray(photo.convert("L"), dtype=np.float64) / 255.0)
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path} can't be read as a photo: {error}") from error
    photos = [photo for photo in photos if min(photo.shape) >= SIDE]
    if not photos:
        raise DataNotFoundError(
            f"{folders[0]} has no photo (.jpg, .png) of at least {SIDE} x {SIDE} pixels; put some "
            "of grass there"
        )
    return photos


def _crops(photos: list[FloatArray], n: int, rng: np.random.Generator) -> FloatArray:
    crops = np.empty((n, SIDE * SIDE))
    for crop in crops:
        photo = photos[rng.integers(len(photos))]
        top, left = (rng.integers(size - SIDE + 1) for size in photo.shape)
        crop[:] = photo[top : top + SIDE, left : left + SIDE].ravel()
    return crops
