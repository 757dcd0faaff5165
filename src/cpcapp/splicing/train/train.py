"""Training a localizer: patches of seams and of authentic edges, streamed into moments."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.files import remove_leftovers
from cpcapp._io.threads import map_threads
from cpcapp.contrast.solve import Contrast, InsufficientRankError, solve_contrast, subspace_overlap
from cpcapp.moments.dask import sum_in_order
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import (
    BankOptions,
    FilterBank,
    gather,
    image_planes,
    share_in_patch,
)
from cpcapp.splicing.measure.network import TraceMeter
from cpcapp.splicing.model import load_model, save_model
from cpcapp.splicing.photo.pixels import BoolArray, FloatMap, as_unit_float
from cpcapp.splicing.photo.samples import Problem, Sample, choose_evenly
from cpcapp.splicing.presets import PRESETS, PatchRules, Preset
from cpcapp.splicing.score.protocols import boundary_band, score_map
from cpcapp.splicing.train.calibrate import calibrate, map_photos
from cpcapp.splicing.train.checkpoint import Checkpoint, Rows, TrainingState

# Steps of 0.01: finer ones change F1 by less than photos differ.
_LEVELS = np.arange(1, 100) / 100.0
# Photos whose patches are added at once. It decides where sums are rounded, and so belongs to
# the result: a run that was stopped goes on with the same groups.
_PHOTOS_PER_UPDATE = 16
# Chosen by hand for their time, not tuned.
_PHOTOS_TO_CALIBRATE = 240
_PHOTOS_FOR_THRESHOLD = 40
_PHOTOS_TO_HASH = 8
# The paper compares the subspaces of as many principal components.
_PAPER_OVERLAP = 50
# A direction in which seams vary a hundred times less than authentic edges is no direction of
# seams: of patches with equal channels, say, such eigenvalues are rounding.
_MIN_EIGENVALUE = 1e-2
# Of the largest: about the rounding of float32.
_MIN_VARIANCE = 1e-7


def train_localizer(
    samples: Sequence[Sample],
    preset: str | Preset = "default",
    *,
    network: TraceMeter | None = None,
    seed: int = 0,
    jobs: int = 2,
    checkpoint: str | os.PathLike[str] | None = None,
    save_to: str | os.PathLike[str] | None = None,
    restart: bool = False,
    progress: Callable[[float], None] | None = None,
    facts: dict[str, Any] | None = None,
    calibrate_on: Sequence[Sample] | None = None,
    calibration_progress: Callable[[float], None] | None = None,
    device: str | None = None,
    client: Any = None,
) -> SpliceLocalizer:
    """Train a localizer on spliced photos.

    Parameters
    ----------
    samples : sequence of Sample
        Spliced photos; authentic ones add to the background. Photos that can't be read are left
        out and listed in ``facts["problems"]``.
    preset : {"default", "filters", "paper"} or Preset, default="default"
    network : TraceMeter, optional
        For a preset with a network; by default that of the package's default model. It is used as
        it is: what is learned are the contrast over its traces and the score.
    seed : int, default=0
        Decides which patches are taken.
    jobs : int, default=2
        Threads that read photos. The result does not depend on it.
    checkpoint : path, optional
        A folder in which to keep the state: while photos are read every 15 seconds, after the
        last one, and after every 16 photos of calibration. If it holds that of the same training,
        the training goes on from there and ends with the same model. Removed once the model is
        written to ``save_to``. Without ``save_to`` it stays: remove it when you have the model on
        disk.
    save_to : path, optional
        A file to write the model to.
    restart : bool, default=False
        Begin anew, even if the checkpoint holds a state.
    progress : callable, optional
        Called with the share done, from 0 to 1.
    facts : dict, optional
        More to say in the model file, in types that JSON knows.
    calibrate_on : sequence of Sample, optional
        Spliced and authentic photos that show what a finding means: see
        `cpcapp.splicing.train.calibrate`. By default at most 240 of the samples.
    calibration_progress : callable, optional
        Like ``progress``, for these photos.
    device : str, optional
        Where patches are added up, the filters are found, and photos are calibrated on,
        such as ``"cuda"``; needs the extra ``torch``. By default the CPU, without torch. Products
        are float64, so that eigenvalues are the same to 1e-5.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers read the photos and can open the same paths. The result
        is the same but for the rounding of sums. ``jobs`` counts here only for what is left to do.

    Returns
    -------
    SpliceLocalizer

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.photo.samples import SourcePhoto
    >>> from cpcapp.splicing.make.splices import SpliceMaker
    >>> from cpcapp.splicing.presets import BankOptions, PatchRules, Preset
    >>> def noise(seed):
    ...     def read():
    ...         rng = np.random.default_rng(seed)
    ...         return rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
    ...     return SourcePhoto(f"noise {seed}", read)
    >>> rules = PatchRules(min_edges=0.0)
    >>> small = Preset("small", (BankOptions(size=4, n_filters=3),), rules=rules)
    >>> splices = SpliceMaker([noise(i) for i in range(4)], seed=1).samples(6)
    >>> train_localizer(splices, small)
    SpliceLocalizer(preset='small', banks=1)
    """
    if not isinstance(preset, Preset):
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r} must be one of {', '.join(PRESETS)}, or a Preset")
        preset = PRESETS[preset]
    network = (network or load_model("default").network) if preset.network else None
    if device is not None and client is not None:
        raise ValueError(f"device={device!r} can't be used with a cluster; give only one of them")
    store = None
    if checkpoint is not None:
        fingerprint = _fingerprint(samples, calibrate_on, preset, seed, network)
        store = Checkpoint(Path(checkpoint), fingerprint)
        if restart:
            store.remove()
    state = (store.load(preset) if store else None) or TrainingState.empty(preset)
    if device is not None:
        from cpcapp.moments.torch import DeviceMoments

        move = partial(DeviceMoments.of, device=device, double=True)
        state = replace(state, moments=[(move(one), move(two)) for one, two in state.moments])
    if client is None:
        states = _learn(samples, preset, seed, jobs, state)
    else:
        states = _learn_on_cluster(samples, preset, seed, client, state)
    for n_read, state in states:
        if store and n_read == len(samples):
            store.save(state)
        elif store and n_read == state.next_photo:
            store.save_if_due(state)
        if progress:
            progress(n_read / len(samples))
    banks, counts = _solve(preset, state)
    readable = [s for s in samples if s.name not in {p.name for p in state.problems}]
    filters_only = _on_device(SpliceLocalizer(preset, banks, network=network), device)
    calibration = calibrate(
        filters_only,
        calibrate_on or _choose_both_kinds(readable),
        jobs=jobs,
        progress=calibration_progress,
        checkpoint=store,
        client=client,
    )
    finder = SpliceLocalizer(preset, banks, calibration=calibration, network=network)
    finder = _on_device(finder, device)
    chosen = choose_evenly([s for s in readable if not s.authentic], _PHOTOS_FOR_THRESHOLD)
    choice = choose_threshold(map_photos(partial(_find_boundary, finder), chosen, jobs, client))
    known = {
        **(facts or {}),
        "banks": counts,
        "cpcapp": __version__,
        "seed": seed,
        "photos": {"used": state.n_used, "given": len(samples)},
        "problems": [str(problem) for problem in state.problems],
    }
    if choice is not None:
        known["scores"] = {
            "on": f"{choice.n_photos} of the training photos",
            "edge": {"f1": round(choice.f1, 4), "mcc": round(choice.mcc, 4)},
        }
    threshold = 0.5 if choice is None else choice.threshold
    localizer = SpliceLocalizer(preset, banks, threshold, calibration, known, network)
    if save_to is not None:
        remove_leftovers(Path(save_to).parent, Path(save_to).name)
        save_model(localizer, save_to)
        # Only now: a model that could not be written is a training lost.
        if store:
            store.remove()
    return localizer


def _on_device(localizer: SpliceLocalizer, device: str | None) -> SpliceLocalizer:
    if device is None:
        return localizer
    from cpcapp.splicing.devices import to_device

    return to_device(localizer, device)


def _choose_both_kinds(samples: Sequence[Sample]) -> list[Sample]:
    """Return as many spliced as authentic photos, evenly over the samples."""
    return [
        sample
        for authentic in (False, True)
        for sample in choose_evenly(
            [s for s in samples if s.authentic is authentic], _PHOTOS_TO_CALIBRATE // 2
        )
    ]


def _find_boundary(localizer: SpliceLocalizer, sample: Sample) -> tuple[FloatMap, BoolArray]:
    return localizer.localize(sample.photo).boundary, sample.mask


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


def _collect(preset: Preset, seed: int, numbered: tuple[int, Sample]) -> Rows | Problem:
    """Return the target and background patches of a photo, for each bank."""
    number, sample = numbered
    try:
        image, mask = sample.read()
        if image.shape[:2] != mask.shape:
            raise ValueError(f"its mask has shape {mask.shape}, the photo {image.shape[:2]}")
    except (OSError, ValueError) as error:
        return Problem(sample.name, str(error))
    if not preset.banks:
        return []
    pixels = as_unit_float(image)
    edges = detect_edges(pixels)
    rows = []
    for bank in preset.banks:
        rng = np.random.default_rng([seed, number])
        planes = image_planes(pixels, bank.channels)
        target, background = select_patches(mask, edges, bank.size, preset.rules, rng)
        rows.append((gather(planes, target, bank.size), gather(planes, background, bank.size)))
    return rows


def _learn(
    samples: Sequence[Sample], preset: Preset, seed: int, jobs: int, state: TrainingState
) -> Iterator[tuple[int, TrainingState]]:
    """Yield how many photos are read, and the state, which a group of them is added to at once."""
    group: list[Rows | Problem] = []
    left = list(enumerate(samples))[state.next_photo :]
    photos = map_threads(partial(_collect, preset, seed), left, jobs=jobs)
    for n_read, photo in enumerate(photos, start=state.next_photo + 1):
        group.append(photo)
        if n_read % _PHOTOS_PER_UPDATE == 0 or n_read == len(samples):
            state.add(group)
            group = []
        yield n_read, state


def _learn_on_cluster(
    samples: Sequence[Sample], preset: Preset, seed: int, client: Any, state: TrainingState
) -> Iterator[tuple[int, TrainingState]]:
    """Do as `_learn` does; a task returns the state after one group of photos."""
    left = list(enumerate(samples))[state.next_photo :]
    groups = [list(group) for _, group in groupby(left, lambda one: one[0] // _PHOTOS_PER_UPDATE)]
    for _, part in sum_in_order(client, partial(_learn_group, preset, seed), groups):
        state = state + part
        yield state.next_photo, state


def _learn_group(preset: Preset, seed: int, group: Sequence[tuple[int, Sample]]) -> TrainingState:
    state = TrainingState.empty(preset)
    state.add([_collect(preset, seed, numbered) for numbered in group])
    return state


def _solve(preset: Preset, state: TrainingState) -> tuple[list[FilterBank], list[dict[str, Any]]]:
    """Return the filters, and what to say of the patches they were learned from."""
    banks, counts = [], []
    for options, (target, background) in zip(preset.banks, state.moments, strict=True):
        for kind, moments in (("a seam", target), ("an authentic edge", background)):
            if moments.n_samples < 2 * options.n_filters:
                raise ValueError(
                    f"only {moments.n_samples} patches with {kind} were found, but "
                    f"{options.n_filters} filters need at least {2 * options.n_filters}; "
                    "give more spliced photos"
                )
        contrast = _solve_filters(target, background, options)
        overlap, k = _measure_overlap(target, background)
        counts.append(
            {
                "target_patches": target.n_samples,
                "background_patches": background.n_samples,
                "subspace_overlap": round(overlap, 6),
                "overlap_dimensions": k,
                "loading": [contrast.loading.weight, float(contrast.loading.diagonal.mean())]
                if contrast.loading
                else None,
            }
        )
        banks.append(FilterBank(options, contrast.filters.astype(np.float32), contrast.eigenvalues))
    return banks, counts


def _solve_filters(target: Any, background: Any, options: BankOptions) -> Contrast:
    contrast = _solve_up_to(options.n_filters, target, background)
    rank = int((contrast.eigenvalues >= _MIN_EIGENVALUE).sum()) if contrast else 0
    if contrast is None or rank < options.n_filters:
        raise ValueError(
            f"the {options.channels} patches with a seam vary in only {rank} independent "
            f"directions, too few for {options.n_filters} filters; give more varied photos, in "
            "colour (grey ones have a third of the directions)"
        )
    return contrast


def _solve_up_to(
    k: int, target: Any, background: Any, scaling: str = "background"
) -> Contrast | None:
    """Return up to ``k`` filters: as many as there are directions."""
    try:
        # Seams are faint, so the contrast may be as large as it will.
        return solve_contrast(target, background, k, loading="oas", scaling=scaling)
    except InsufficientRankError as error:
        return _solve_up_to(error.rank, target, background, scaling) if error.rank else None


def _measure_overlap(target: Any, background: Any) -> tuple[float, int]:
    """Return the overlap of the main subspaces, and of how many dimensions they are."""
    assert target.n_features is not None
    k = min(_PAPER_OVERLAP, target.n_features, target.n_samples - 1, background.n_samples - 1)
    for moments in (target, background):
        main = _solve_up_to(k, moments, None, "unit")
        assert main is not None  # there are filters, so both vary
        k = int((main.eigenvalues > _MIN_VARIANCE * main.eigenvalues[0]).sum())
    return subspace_overlap(target, background, k), k


class ThresholdChoice(NamedTuple):
    """A threshold, and how maps score at their own best thresholds: means by the protocol edge."""

    threshold: float
    f1: float
    mcc: float
    n_photos: int


def choose_threshold(maps: Iterable[tuple[FloatMap, BoolArray]]) -> ThresholdChoice | None:
    """Return the threshold with the best mean F1 over some photos."""
    f1, scores = [], []
    for boundary, mask in maps:
        band = boundary_band(mask)
        # Pixels at or above each level, on the band and everywhere.
        hits, marked = (
            np.histogram(values, np.append(_LEVELS, np.inf))[0][::-1].cumsum()[::-1]
            for values in (boundary[band], boundary)
        )
        f1.append(2.0 * hits / np.maximum(marked + band.sum(), 1))
        score = score_map(boundary, mask, ["edge"])["edge"]
        scores.append((score.f1, score.mcc))
    if not f1:
        return None
    best = float(_LEVELS[np.mean(f1, axis=0).argmax()])
    means = np.mean(scores, axis=0)
    return ThresholdChoice(best, float(means[0]), float(means[1]), len(scores))


def _fingerprint(
    samples: Sequence[Sample],
    calibrate_on: Sequence[Sample] | None,
    preset: Preset,
    seed: int,
    network: TraceMeter | None,
) -> str:
    """Return a hash of everything that decides the result."""
    names = [[sample.name for sample in given] for given in (samples, calibrate_on or [])]
    content = [__version__, preset.to_dict(), seed, _PHOTOS_PER_UPDATE, names]
    content += [_hash_some(samples), _hash_some(calibrate_on or [])]
    graphs = network.stages if network is not None else {}
    content += [hashlib.sha256(graph).hexdigest() for graph in graphs.values()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _hash_some(samples: Sequence[Sample]) -> list[str]:
    """Return hashes of some of the photos: others can have the same names, as splices do."""
    hashes = []
    for sample in choose_evenly(samples, _PHOTOS_TO_HASH):
        try:
            pixels = sample.image.tobytes()
        except (OSError, ValueError):
            hashes.append("not readable")
        else:
            hashes.append(hashlib.sha256(pixels).hexdigest())
    return hashes
