"""The splice localizer: a photo is read, measured, and decided on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cpcapp.splicing.decide.decide import decide
from cpcapp.splicing.decide.verdict import Calibration, feature_names
from cpcapp.splicing.measure.filters import FilterBank
from cpcapp.splicing.measure.measure import measure
from cpcapp.splicing.measure.network import TraceMeter
from cpcapp.splicing.photo.jpeg import estimate_quality
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.presets import Preset
from cpcapp.splicing.result import Localization

# Of the time that a photo takes, for progress.
_NETWORK_SHARE = 0.75


class SpliceLocalizer:
    """Finds the seam in a spliced photo.

    Made by `cpcapp.splicing.train_localizer` or read from a file by `cpcapp.splicing.load_model`.

    Parameters
    ----------
    preset : Preset
    banks : sequence of FilterBank
        One for each of the preset's.
    threshold : float, default=0.5
        On the boundary map, chosen on training photos.
    calibration : Calibration, optional
        Without it there is a boundary, but no region and no verdict.
    facts : dict, optional
        What is known of the training, in types that JSON knows.
    network : TraceMeter, optional
        Measures learned traces; needed if the preset has a network.

    Attributes
    ----------
    file_sha256 : str or None
        SHA-256 of the file that `load_model` read it from, byte by byte. None if it comes from
        elsewhere.
    device : str or None
        Where its filters run, if `cpcapp.splicing.devices.to_device` moved them.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing import load_model
    >>> photo = np.random.default_rng(0).integers(90, 100, (80, 100, 3), dtype=np.uint8)
    >>> found = load_model("filters").localize(photo)
    >>> found.boundary.shape, found.boundary.dtype
    ((80, 100), dtype('float32'))
    """

    file_sha256: str | None = None
    device: str | None = None

    def __init__(
        self,
        preset: Preset,
        banks: Sequence[FilterBank],
        threshold: float = 0.5,
        calibration: Calibration | None = None,
        facts: dict[str, Any] | None = None,
        network: TraceMeter | None = None,
    ) -> None:
        if tuple(bank.options for bank in banks) != preset.banks:
            raise ValueError("banks do not belong to the preset: their options differ")
        if preset.network != (network is not None):
            raise ValueError(f"network={network} does not fit preset.network={preset.network}")
        n = len(feature_names(preset.network))
        if calibration and calibration.weights is not None and len(calibration.weights) != n:
            raise ValueError(
                f"calibration has {len(calibration.weights)} weights; it must have {n}"
            )
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold={threshold} must be in [0, 1]")
        self.preset = preset
        self.banks = tuple(banks)
        self.threshold = float(threshold)
        self.calibration = calibration
        self.facts = dict(facts or {})
        self.network = network

    def __repr__(self) -> str:
        return f"SpliceLocalizer(preset={self.name!r}, banks={len(self.banks)})"

    @property
    def name(self) -> str:
        """Name of the preset."""
        return self.preset.name

    @property
    def version(self) -> str:
        """Version of cpcapp that trained it."""
        return str(self.facts.get("cpcapp", "unknown"))

    def localize(
        self, image: Any, *, progress: Callable[[float], None] | None = None
    ) -> Localization:
        """Show where a photo was spliced.

        Parameters
        ----------
        image : path, bytes, PIL image, array of shape (height, width, 3), or ReadImage
            Of an array nobody knows how it was compressed: give the file where there is one.
        progress : callable, optional
            Called with the share done, from 0 to 1.

        Returns
        -------
        Localization

        Raises
        ------
        ImageError
            If the file can't be read as a photo.
        """
        start = time.perf_counter()
        read = image if isinstance(image, ReadImage) else read_image(image)
        notes, size = read.notes, self.preset.min_side
        if min(read.pixels.shape[:2]) < size:
            notes = (*notes, f"smaller than a patch of {size} pixels: no seam is seen")
        report = None if progress is None else lambda share: progress(_NETWORK_SHARE * share)
        measured = measure(read, self, report)
        decision = decide(measured, self)
        quality = read.jpeg_quality
        if progress is not None:
            progress(1.0)
        return Localization(
            **vars(decision),
            measured_edges=measured.edges,
            jpeg_quality=quality or estimate_quality(measured.image, measured.grid.offset),
            looks_like_photo=read.content_kind.looks_like_photo,
            notes=notes,
            options=self.preset.verdict,
            threshold=self.threshold,
            pixels=read.pixels,
            seconds=time.perf_counter() - start,
        )
