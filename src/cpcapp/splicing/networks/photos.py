"""Reading photos to train a network on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cpcapp._io.threads import map_threads
from cpcapp.splicing.make.splices import split_readable
from cpcapp.splicing.networks.loop import Photos
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.samples import Problem, SourcePhoto


def read_training_photos(
    sources: Sequence[SourcePhoto],
    *,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> tuple[Photos, list[Problem]]:
    """Read photos into memory, with the segmentation of medium detail of each.

    >>> from functools import partial
    >>> grey = SourcePhoto("grey", partial(np.full, (40, 60, 3), 128, np.uint8))
    >>> photos, problems = read_training_photos([grey])
    >>> photos.images[0].shape, photos.segments, problems
    (torch.Size([3, 40, 60]), [None], [])
    """
    readable, problems = split_readable(sources, jobs=jobs)
    images, segments = [], []
    for image, labels in map_threads(_read, readable, jobs=jobs, progress=progress):
        images.append(image)
        segments.append(labels)
    return Photos(images, segments, tuple(source.name for source in readable)), problems


def _read(source: SourcePhoto) -> tuple[torch.Tensor, torch.Tensor | None]:
    pixels = as_bytes(np.asarray(source.read()))
    image = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    if source.segments is None:
        return image, None
    maps = sorted(source.segments(), key=lambda labels: int(labels.max()))
    return image, torch.from_numpy(maps[len(maps) // 2].astype(np.int32))
