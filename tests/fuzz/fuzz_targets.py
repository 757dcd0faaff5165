"""What is done with a file of a stranger, and which errors are its documented answers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes
    ----------
    use : callable
        Opens a file as a user would, and computes with it.
    errors : callable
        Returns the documented errors: any other exception is a finding.
    suffix : callable
        Returns the ending of the name of a file with such content.
    share : float
        Of the time, against the other targets.
    """

    use: Callable[[Path], Any]
    errors: Callable[[], tuple[type[BaseException], ...]]
    suffix: Callable[[bytes], str]
    share: float = 1.0


def _image_errors() -> tuple[type[BaseException], ...]:
    from cpcapp.splicing.photo.read import ImageError

    return (ImageError,)


def _table_errors() -> tuple[type[BaseException], ...]:
    # What commands turn into one line.
    return (ValueError, FileNotFoundError)


def _read_image(path: Path) -> None:
    from cpcapp.splicing import read_image

    image = read_image(path)
    assert image.pixels.ndim == 3


def _read_facts(path: Path) -> None:
    from cpcapp.splicing.photo.file_facts import read_file_facts
    from cpcapp.splicing.photo.read import read_image

    data = path.read_bytes()
    # The pixels are those of another photo: only what is said beside them counts here.
    facts = read_file_facts(data, read_image(_photo()))
    text = json.dumps(facts.to_dict())
    assert text.isprintable()
    assert len(text) < 100_000
    assert all(label.isprintable() and text.isprintable() for label, text in facts.rows())
    _ = facts.thumbnail_png
    if not data.startswith(b"\xff\xd8"):
        raise _NoJpegError("has no JPEG header any more")


class _NoJpegError(Exception):
    """Counts as refused: facts themselves refuse nothing."""


def _facts_errors() -> tuple[type[BaseException], ...]:
    return (_NoJpegError,)


def _read_coefficients(path: Path) -> None:
    from cpcapp.splicing.photo.coefficients import read_coefficients

    read_coefficients(path)


def _reduce_table(path: Path) -> None:
    from cpcapp.tables import reduce_tables

    reduced = reduce_tables(path, None, 1, method="pca", missing="mean")
    for _ in reduced.scores(reduced.target, [], lambda share: None):
        pass


@cache
def _photo() -> Any:
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 255, (72, 80, 3), dtype=np.uint8)
    pixels[20:50, 30:60] //= 4
    return pixels


def _use_model(path: Path) -> None:
    from cpcapp.splicing import load_model

    try:
        localizer = load_model(path)
    except ValueError as error:
        if "of this package" not in str(error):
            raise
        from cpcapp.tables.model import load_model as load_table_model

        model = load_table_model(path)
        model.transform(np.zeros((2, len(model.features))))
        return
    found = localizer.localize(_photo())
    assert found.verdict
    _ = found.mask, found.hot_spots


def _use_forest(path: Path) -> None:
    from cpcapp.splicing.measure.edges.detector import EdgeDetector

    EdgeDetector(path).detect(_photo())


def _use_moments(path: Path) -> None:
    from cpcapp import Moments, solve_contrast

    moments = Moments.load(path)
    background = Moments.of(np.random.default_rng(0).normal(size=(50, 5)))
    solve_contrast(moments, background, 1)
    _ = moments + background, moments.covariance()


def _array_suffix(data: bytes) -> str:
    return ".npy" if data[:1] == b"\x93" else ".npz"


def _csv_suffix(data: bytes) -> str:
    return ".csv.gz" if data[:2] == b"\x1f\x8b" else ".csv"


def _constant(suffix: str) -> Callable[[bytes], str]:
    return lambda data: suffix


TARGETS: dict[str, Target] = {
    "images": Target(_read_image, _image_errors, _constant(".img"), 2.0),
    "heif": Target(_read_image, _image_errors, _constant(".heic"), 2.0),
    "file_facts": Target(_read_facts, _facts_errors, _constant(".jpg")),
    "jpeg_coefficients": Target(_read_coefficients, _image_errors, _constant(".jpg")),
    "h5ad": Target(_reduce_table, _table_errors, _constant(".h5ad"), 2.0),
    "arrays": Target(_reduce_table, _table_errors, _array_suffix),
    "csv": Target(_reduce_table, _table_errors, _csv_suffix),
    "excel": Target(_reduce_table, _table_errors, _constant(".xlsx")),
    "parquet": Target(_reduce_table, _table_errors, _constant(".parquet")),
    "models": Target(_use_model, _table_errors, _constant(".safetensors"), 2.0),
    "networks": Target(_use_model, _table_errors, _constant(".safetensors"), 0.5),
    "forest": Target(_use_forest, _table_errors, _constant(".bin")),
    "moments": Target(_use_moments, _table_errors, _constant(".npz")),
}


def try_file(target: Target, path: Path) -> tuple[str, str]:
    """Use a file; return ``"accepted"``, ``"refused"`` or ``"foreign"``, and an error's text.

    ``"memory"`` if there was not enough of it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.use(path)
    except target.errors() as error:
        return "refused", str(error)[:200]
    except MemoryError:
        return "memory", "MemoryError"
    except Exception as error:
        return "foreign", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return "accepted", ""
