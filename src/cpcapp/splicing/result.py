"""What a localizer says of a photo: maps of where it was spliced, and a verdict."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.part_kind import PartKind, find_part_kind
from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.decide.words import Display, Verdict, VerdictCode, find_verdict, shown
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.photo.pixels import BoolArray, FloatMap


@dataclass(frozen=True)
class Localization:
    """Where a photo was spliced.

    Attributes
    ----------
    boundary : ndarray of shape (height, width), float32 in [0, 1]
        Bright where the seam is likely.
    region : ndarray of shape (height, width), float32 in [0, 1], or None
        Above a half where the photo is likely to come from elsewhere, whatever the verdict: of a
        genuine photo too. None if the model finds none: cPCA++ without a calibration.
    score : float or None
        How much speaks for a splice, on one scale for all photos.
    rank : Rank or None
        Where it stands among genuine photos: ``p_value``, and ``n_as_high`` of ``n_photos`` that
        scored as high. None if there is nothing to compare with.
    side_rule : {"network", "smaller"} or None
        What told which of the two sides of the seam was pasted: the traces, or that it is the
        smaller one. None if there is no region.
    jpeg_quality : int or None
        By the tables of the file or, without a file, estimated from the pixels. None if no
        compression shows.
    calibrated : bool
        Whether the model has learned to judge photos.
    looks_like_photo : bool
        Of a screenshot or a drawing there is no verdict.
    notes : tuple of str
        What was done to the photo when it was read.
    seconds : float
        Time taken, reading included.
    options : VerdictOptions
        How the photo was judged.
    threshold : float
        Of the model, on the boundary map: what reaches it is outlined in pictures.
    pixels : ndarray of shape (height, width, 3), uint8 or uint16, or None
        The photo, to draw on. Not a copy: of an array it is the array that was given.
    measured_edges : ndarray of shape (height, width), float32 in [0, 1], or None
        If the model needed them; see `edges`.
    """

    boundary: FloatMap = field(repr=False)
    region: FloatMap | None = field(default=None, repr=False)
    side_rule: str | None = None
    score: float | None = None
    rank: Rank | None = None
    jpeg_quality: int | None = None
    calibrated: bool = False
    looks_like_photo: bool = True
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    options: VerdictOptions = field(default_factory=VerdictOptions, repr=False)
    threshold: float = 0.5
    pixels: NDArray[Any] | None = field(default=None, repr=False)
    measured_edges: FloatMap | None = field(default=None, repr=False)

    @property
    def p_value(self) -> float | None:
        """Share of genuine photos that scored as high; None if there is nothing to compare with."""
        return None if self.rank is None else self.rank.p_value

    @cached_property
    def edges(self) -> FloatMap:
        """All edges of the photo, seam or not: (height, width), float32 in [0, 1]."""
        if self.measured_edges is not None:
            return self.measured_edges
        if self.pixels is None:
            raise ValueError("edges are found in pixels, and there are none")
        return detect_edges(self.pixels)

    @cached_property
    def mask(self) -> BoolArray | None:
        """The region as a mask, (height, width); None if there is no region map.

        True nowhere if the verdict is neither "signs of splicing" nor "weak signs of splicing":
        what is shown to people never contradicts the words. `region` is there whatever they say.
        """
        if self.region is None:
            return None
        return (self.region > 0.5) & self.display.part

    @cached_property
    def part_kind(self) -> PartKind | None:
        """What the marked part looks like: ``"graphic"`` (caption, frame, logo) or ``"collage"``.

        None for all usual objects, and if nothing is marked.
        """
        if self.pixels is None or self.mask is None or not self.mask.any():
            return None
        return find_part_kind(self.pixels, self.mask)

    @property
    def verdict(self) -> str:
        """What there is to say of the photo, in words; see `cpcapp.splicing.decide.words`."""
        return self._judgement.text

    @property
    def verdict_code(self) -> VerdictCode:
        """The same for programs: ``"signs"``, ``"weak"``, ``"none"`` or ``"unknown"``."""
        return self._judgement.code

    @property
    def display(self) -> Display:
        """What pictures show of this, how strongly, and the words below them."""
        return shown(
            self.verdict_code,
            self.p_value,
            calibrated=self.calibrated,
            side_rule=self.side_rule,
        )

    def plot(self) -> Any:
        """Draw the photo, the likely seam and the likely part beside each other.

        The part is drawn only if there are signs, strong or weak.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            Without matplotlib, which the extra ``plot`` installs.
        ValueError
            If there are no ``pixels``.

        Examples
        --------
        >>> from cpcapp.splicing import load_model
        >>> from cpcapp.splicing.examples import example_photos
        >>> found = load_model("filters").localize(example_photos()[1].photo)
        >>> [axes.get_title() for axes in found.plot().axes]
        ['The photo', 'The likely seam', 'The likely part']
        """
        return _notebook().plot_localization(self)

    def save(self, folder: str | os.PathLike[str], *, name: str = "photo") -> list[Path]:
        """Write the pictures of ``cpcapp localize`` to a folder.

        They are the overlay, the boundary map and, of a calibrated model, the region.
        Files of these names are replaced. For a JSON file and a report, use
        `cpcapp.splicing.localize_files`.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        name : str, default="photo"
            What the names of the files begin with.

        Returns
        -------
        list of Path

        Raises
        ------
        ValueError
            If there are no ``pixels``, or the name has a folder in it.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> flat = np.zeros((80, 90), dtype=np.float32)
        >>> found = Localization(flat, pixels=np.zeros((80, 90, 3), dtype=np.uint8))
        >>> [path.name for path in found.save(tempfile.mkdtemp(), name="black")]
        ['black.overlay.png', 'black.boundary.png']
        """
        return _notebook().save_localization(self, folder, name)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        """Show the photo with the likely seam, and the verdict, in a notebook."""
        return _notebook().localization_html(self)  # type: ignore[no-any-return]

    def _repr_png_(self) -> bytes | None:
        return _notebook().localization_png(self)  # type: ignore[no-any-return]

    @property
    def _judgement(self) -> Verdict:
        quality = self.jpeg_quality
        return find_verdict(
            self.p_value,
            self.boundary.shape,
            calibrated=self.calibrated,
            looks_like_photo=self.looks_like_photo,
            too_compressed=quality is not None and quality < self.options.min_quality,
        )


def _notebook() -> Any:
    """Return what draws results; by name, since it is made of results."""
    return import_module("cpcapp.splicing.output.notebook")
