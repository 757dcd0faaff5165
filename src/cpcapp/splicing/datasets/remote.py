"""Opening data sets that lie in a bucket or on a server."""

from __future__ import annotations

from functools import partial
from pathlib import PurePosixPath

from cpcapp.splicing.datasets.collector import is_white
from cpcapp.splicing.photo.files import list_folder, read_remote, read_remote_pixels
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet, SourcePhoto


def open_remote_pairs(url: str) -> SampleSet | None:
    """Open the folders ``images`` or ``photos``, ``masks`` and ``authentic`` of a bucket.

    As `cpcapp.splicing.datasets.folders.folder_pair` does; but nothing is read yet, so that a mask
    of another size than its photo shows only when it is read. None without masks and photos.
    """
    url = url.rstrip("/")
    masks = {_stem(mask).casefold(): mask for mask in list_folder(f"{url}/masks")}
    photos = list_folder(f"{url}/images") or list_folder(f"{url}/photos")
    if not masks or not photos:
        return None
    samples: dict[str, Sample] = {}
    problems = []
    for photo in photos:
        mask, name = masks.get(_stem(photo).casefold()), _stem(photo)
        if mask is None:
            problems.append(Problem(name, f"masks/{name} is missing"))
        elif name in samples:
            problems.append(Problem(name, f"{photo} has the same name as another photo"))
        else:
            read_mask = partial(_read_mask, mask)
            samples[name] = Sample.of_photo(name, partial(read_remote, photo), read_mask)
    for photo in list_folder(f"{url}/authentic"):
        name = f"authentic/{_stem(photo)}"
        samples[name] = Sample.of_photo(name, partial(read_remote, photo))
    return SampleSet(PurePosixPath(url).name, tuple(samples.values()), tuple(problems))


def open_remote_sources(url: str) -> list[SourcePhoto]:
    """Return the photos in a folder of a bucket, to make splices of."""
    photos = list_folder(url)
    if not photos:
        raise FileNotFoundError(f"{url} holds no photos; check the URL")
    return [
        SourcePhoto(photo, partial(read_remote_pixels, photo), open=partial(read_remote, photo))
        for photo in photos
    ]


def _read_mask(url: str) -> BoolArray:
    return is_white(read_remote_pixels(url))


def _stem(url: str) -> str:
    return PurePosixPath(url).stem
