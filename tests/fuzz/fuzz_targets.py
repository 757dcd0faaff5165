"""What is done with a file of a stranger, and which errors are its documented answers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_seeds import seeds_of


@dataclass(frozen=True)
class Target:
    """A kind of file: what a user does with one, and whole files of it.

    Any error but those named, in one line, is a finding. ``suffixes`` has the ending of a file's
    name for its first bytes. ``share`` is that of the time, against the other targets.
    ``more_seconds`` may pass where each file is opened by a process that has to start.
    """

    use: Callable[[Path], Any]
    seeds: Callable[[], Sequence[bytes]]
    suffixes: tuple[tuple[bytes, str], ...]
    errors: tuple[str, ...] = ("ValueError", "FileNotFoundError")
    share: float = 1.0
    more_seconds: float = 0.0

    def suffix(self, data: bytes) -> str:
        return next(suffix for start, suffix in self.suffixes if data.startswith(start))


def _read_image(path: Path) -> None:
    from cpcapp.splicing import read_image

    assert read_image(path).pixels.ndim == 3


def _read_facts(path: Path) -> None:
    from cpcapp.splicing import read_image
    from cpcapp.splicing.photo.file_facts import read_file_facts
    from cpcapp.splicing.photo.formats import inspect_container

    data = path.read_bytes()
    contents = inspect_container(data)
    # The pixels are those of another photo: only what is said beside them counts here.
    image = replace(read_image(_photo()), metadata=contents.metadata, jpeg=contents.jpeg)
    facts = read_file_facts(data, image)
    text = json.dumps(facts.to_dict())
    assert text.isprintable()
    assert len(text) < 100_000
    assert all(label.isprintable() and text.isprintable() for label, text in facts.rows())
    _ = facts.thumbnail_png


def _read_coefficients(path: Path) -> None:
    from cpcapp.splicing.photo.read import read_coefficients

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
    from cpcapp.tables.model import load_model as load_table_model

    try:
        localizer = load_model(path)
    except ValueError as error:
        if "of this package" not in str(error):
            raise
        model = load_table_model(path)
        model.transform(np.zeros((2, len(model.features))))
        return
    found = localizer.localize(_photo())
    assert found.verdict
    _ = found.mask, found.edges


def _use_forest(path: Path) -> None:
    from cpcapp.splicing.measure.edges.detector import EdgeDetector

    EdgeDetector(path).detect(_photo())


def _use_moments(path: Path) -> None:
    from cpcapp import Moments, solve_contrast

    moments = Moments.load(path)
    background = Moments.of(np.random.default_rng(0).normal(size=(50, 5)))
    solve_contrast(moments, background, 1)
    _ = moments + background, moments.covariance()


def _targets() -> dict[str, Target]:
    image = ("ImageError",)
    found: dict[str, tuple[Any, ...]] = {
        "images": (_read_image, ".img", image, 2.0),
        "heif": (_read_image, ".heic", image, 2.0),
        "file_facts": (_read_facts, ".jpg", image),
        "jpeg_coefficients": (_read_coefficients, ".jpg", image),
        "h5ad": (_reduce_table, ".h5ad", Target.errors, 2.0, 20.0),
        "arrays": (_reduce_table, ((b"\x93", ".npy"), (b"", ".npz"))),
        "csv": (_reduce_table, ((b"\x1f\x8b", ".csv.gz"), (b"", ".csv"))),
        "excel": (_reduce_table, ".xlsx"),
        "parquet": (_reduce_table, ".parquet"),
        "models": (_use_model, ".safetensors", Target.errors, 2.0),
        "networks": (_use_model, ".safetensors", Target.errors, 0.5),
        "forest": (_use_forest, ".bin"),
        "moments": (_use_moments, ".moments"),
    }
    return {
        name: Target(
            use, partial(seeds_of, name), ((b"", end),) if isinstance(end, str) else end, *more
        )
        for name, (use, end, *more) in found.items()
    }


TARGETS = _targets()


def try_file(target: Target, path: Path) -> tuple[str, str]:
    """Use a file; return ``"accepted"``, ``"refused"``, ``"foreign"`` or ``"memory"``, and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.use(path)
    except MemoryError:
        return "memory", "MemoryError"
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        is_known = kinds.intersection(target.errors) and len(str(error).splitlines()) == 1
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return ("refused" if is_known else "foreign"), text
    return "accepted", ""
