"""Pictures that show a person where the seam is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.result import Localization

Picture = NDArray[np.uint8]

# Blue of Okabe and Ito: no common kind of colour vision takes it for a colour of the ramp.
LINE_COLOUR = (86, 180, 233)
PINK = (255, 20, 147)
# How strongly a painted part is covered: chosen by eye.
_PAINT = 0.6

# How much of the photo's own colour and light is left under the map: chosen by eye.
_SATURATION, _BRIGHTNESS = 0.35, 0.7
# The same for a map without colours, which are easily lost on a light photo.
_GREY_BRIGHTNESS = 0.5
# How much each of the values 0, 1/255, ..., 1 of a map covers of the photo. Exponent chosen by eye:
# a little more than in proportion, so that a weak seam is seen; much more would lay a veil over
# photos where the map is nowhere quite 0.
_COVER = np.linspace(0.0, 1.0, 256, dtype=np.float32) ** np.float32(0.7)
# Light of red, green and blue (ITU-R BT.709).
_LUMA = np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)

# Values of the map and their colours, chosen by eye. Each is lighter than the one before, so that
# the order survives any colour vision and a grey print; none is dark, as the weakest part of the
# map has to be seen on a dark photo too.
_RAMP_VALUES = (0.0, 0.35, 0.6, 0.8, 1.0)
_RAMP = ((126, 26, 128), (196, 50, 106), (238, 98, 60), (250, 165, 40), (250, 250, 140))
# Share of pixels that an overlay shows at its lightest: chosen by eye on the example photos.
_LIGHTEST_SHARE = 0.003
# Pixels handled at once: little enough for a cache, whatever the size of the photo.
_STRIP = 1 << 18


def draw_overlay(
    image: ArrayLike,
    boundary: ArrayLike,
    threshold: float | None = None,
    *,
    white: float = 1.0,
    opacity: float = 1.0,
    colours: bool = True,
) -> Picture:
    """Lay a boundary map over its photo.

    `draw_localization` chooses all options by what was found.

    The photo is dimmed and nearly grey. The map is drawn in colours that get lighter with it,
    from purple over orange to light yellow, and that people with any common kind of colour
    vision can order. Where it is 0 the photo shines through, where it is ``white`` it covers
    the photo.

    Parameters
    ----------
    image : array-like of shape (height, width, 3), uint8 or uint16
        RGB, upright, as `cpcapp.splicing.photo.read.read_image` gives it.
    boundary : array-like of shape (height, width)
        From 0 to 1, high where a seam is likely.
    threshold : float, optional
        Draws a blue line around the parts of the map of at least this, from 0 to 1.
    white : float, default=1.0
        The value of the map that gets the lightest colour, as all above do.
    opacity : float, default=1.0
        How much of this is laid over the photo, line included, from 0 (the photo is as it was)
        to 1.
    colours : bool, default=True
        Without them the photo is grey, whatever the opacity, and the map white.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.full((5, 9, 3), 200, dtype=np.uint8)
    >>> boundary = np.zeros((5, 9), dtype=np.float32)
    >>> boundary[2, 4] = 1.0
    >>> picture = draw_overlay(photo, boundary)
    >>> picture[0, 0], picture[2, 4]
    (array([140, 140, 140], dtype=uint8), array([250, 250, 140], dtype=uint8))
    >>> draw_overlay(photo, boundary, threshold=0.5)[2, 3]
    array([ 86, 180, 233], dtype=uint8)
    >>> draw_overlay(photo, boundary, opacity=0.0)[2, 4]
    array([200, 200, 200], dtype=uint8)
    """
    pixels, values = _check_photo(image), _check_map(boundary)
    if pixels.shape[:2] != values.shape:
        raise ValueError(
            f"boundary has shape {values.shape}; it must be that of image, {pixels.shape[:2]}"
        )
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold={threshold!r} must be from 0 to 1, or None for no line")
    # Below, 255 / white is no number of float32 any more.
    if not 1e-30 <= white <= 1.0:
        raise ValueError(f"white={white!r} must be from 1e-30 to 1")
    if not 0.0 <= opacity <= 1.0:
        raise ValueError(f"opacity={opacity!r} must be from 0 to 1")
    ramp = build_ramp() if colours else np.full((256, 3), 255, dtype=np.float32)
    saturation, brightness = (_SATURATION, _BRIGHTNESS) if colours else (0.0, _GREY_BRIGHTNESS)
    # A wide photo is shown at a smaller size, where a line of one pixel would vanish.
    reach = max(1, round(max(values.shape) / 2000))
    picture = np.empty(pixels.shape, dtype=np.uint8)
    for rows in _split_rows(*values.shape):
        photo, level = as_unit_float(pixels[rows]), draw_boundary(values[rows], white=white)
        light = (photo @ _LUMA)[..., None]
        drawn = light + np.float32(saturation) * (photo - light)
        drawn *= np.float32(brightness * 255)
        drawn += _COVER[level][..., None] * (ramp[level] - drawn)
        if threshold is not None:
            drawn[_find_outline(values, rows, threshold, reach)] = LINE_COLOUR
        if opacity < 1.0:
            photo = (photo if colours else light) * np.float32(255)
            drawn = photo + np.float32(opacity) * (drawn - photo)
        picture[rows] = np.rint(drawn, out=drawn).astype(np.uint8)
    return picture


def draw_localization(
    image: ArrayLike, found: Localization, threshold: float, *, line: bool = True
) -> Picture:
    """Lay what was found over its photo, as strongly as the verdict speaks.

    What is shown for which verdict is said by `Localization.display`.

    Parameters
    ----------
    image : array-like of shape (height, width, 3), uint8 or uint16
    found : Localization
        Of this image.
    threshold : float
        Of the model.
    line : bool, default=True
        Whether to draw the line around what reaches the threshold at all.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing import Localization
    >>> from cpcapp.splicing.decide.verdict import Rank
    >>> photo = np.full((80, 90, 3), 200, dtype=np.uint8)
    >>> boundary = np.eye(80, 90, dtype=np.float32)
    >>> found = Localization(boundary, rank=Rank(0.5, 1, 3), calibrated=True)
    >>> found.verdict, bool((draw_localization(photo, found, 0.5) == photo).all())
    ('no signs found', True)
    """
    display = found.display
    return draw_overlay(
        image,
        found.boundary,
        threshold if line and display.outline else None,
        white=choose_overlay_white(found.boundary, threshold),
        opacity=display.strength,
        colours=display.colours,
    )


def draw_pictures(image: NDArray[Any], result: Localization) -> Iterator[tuple[str, Picture]]:
    """Draw all that is written for a photo, one picture after the other, with the name of each."""
    yield "overlay", draw_localization(image, result, result.threshold)
    white = choose_boundary_white(result.boundary, result.threshold)
    yield "boundary", draw_boundary(result.boundary, white=white)
    if result.mask is not None:
        yield "region", np.where(result.mask, np.uint8(255), np.uint8(0))


def draw_boundary(boundary: NDArray[np.float32], *, white: float = 1.0) -> Picture:
    """Return a boundary map as a grey picture in which ``white`` and all above are white.

    It is the map as it is: no verdict fades it, and that of a genuine photo has bright spots too.

    >>> draw_boundary(np.array([[0.0, 0.02, 0.1]], dtype=np.float32), white=0.1)
    array([[  0,  51, 255]], dtype=uint8)
    """
    return np.asarray(cv2.convertScaleAbs(boundary, alpha=255 / white))


def draw_part(image: ArrayLike, part: NDArray[np.bool_]) -> Picture:
    """Paint a part of a photo pink; the rest is dimmed and nearly grey.

    >>> photo = np.full((1, 2, 3), 200, dtype=np.uint8)
    >>> draw_part(photo, np.array([[False, True]]))
    array([[[140, 140, 140],
            [209,  68, 144]]], dtype=uint8)
    """
    picture = draw_overlay(image, np.zeros(np.shape(part)))
    picture[part] = np.rint((1 - _PAINT) * picture[part] + _PAINT * np.array(PINK))
    return picture


def choose_boundary_white(boundary: NDArray[np.float32], threshold: float) -> float:
    """Return the value of a map that its grey picture shows white.

    Models differ in how high their maps are, so it is the maximum. But of a map that does not
    reach the threshold, nothing may look like a seam.
    """
    return max(float(boundary.max()), threshold) or 1.0


def choose_overlay_white(boundary: NDArray[np.float32], threshold: float) -> float:
    """Return the value of a map that an overlay shows in its lightest colour.

    A few pixels are much higher than the rest of a seam, and an overlay has to show all of it.
    So the highest three of a thousand pixels look alike.
    """
    highest = float(np.quantile(boundary, 1 - _LIGHTEST_SHARE))
    return max(round(highest, 6), threshold) or 1.0


def encode_png(picture: Picture, *options: int) -> bytes:
    """Return an RGB or grey picture as the content of a PNG file; options are OpenCV's."""
    if picture.ndim == 3:
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(".png", picture, options)[1])


@cache
def build_ramp() -> NDArray[np.float32]:
    """Return the colour of each of the values 0, 1/255, ..., 1."""
    wanted = np.linspace(0.0, 1.0, 256)
    channels = [np.interp(wanted, _RAMP_VALUES, channel) for channel in zip(*_RAMP, strict=True)]
    return np.stack(channels, axis=1).astype(np.float32)


def _check_photo(image: ArrayLike) -> NDArray[Any]:
    pixels = np.asarray(image)
    is_rgb = pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size > 0
    if not is_rgb or pixels.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"image has shape {pixels.shape} and dtype {pixels.dtype}; it must be an RGB photo: "
            "(height, width, 3), uint8 or uint16"
        )
    return pixels


def _check_map(boundary: ArrayLike) -> NDArray[np.float32]:
    values = np.asarray(boundary)
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "fb":
        raise ValueError(
            f"boundary has shape {values.shape} and dtype {values.dtype}; it must be "
            "(height, width), float"
        )
    values = values.astype(np.float32, copy=False)
    # Written so that NaN, which no comparison holds for, is refused too.
    if not (values.min() >= 0.0 and values.max() <= 1.0):
        raise ValueError(
            f"boundary lies in [{values.min():g}, {values.max():g}]; it must lie in [0, 1], "
            "without NaN"
        )
    return values


def _find_outline(
    values: NDArray[np.float32], rows: slice, threshold: float, reach: int
) -> NDArray[np.bool_]:
    """Return, for some rows, the pixels just outside the parts of at least the threshold."""
    top = max(0, rows.start - reach)
    above = (values[top : rows.stop + reach] >= threshold).astype(np.uint8)
    around = cv2.dilate(above, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)) > above
    return np.asarray(around[rows.start - top :][: rows.stop - rows.start])


def _split_rows(height: int, width: int) -> Iterator[slice]:
    step = max(1, _STRIP // width)
    for top in range(0, height, step):
        yield slice(top, min(top + step, height))
