"""Training a localizer: patches of seams and of authentic edges, streamed into moments."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._files import written_whole
from cpcapp.contrast import Contrast, InsufficientRankError, solve_contrast, subspace_overlap
from cpcapp.moments import Moments
from cpcapp.splicing._arrays import as_unit_float
from cpcapp.splicing._parallel import in_order
from cpcapp.splicing.calibration import calibrate
from cpcapp.splicing.channels import planes_of
from cpcapp.splicing.edges import detect_edges
from cpcapp.splicing.localizer import FilterBank, SpliceLocalizer
from cpcapp.splicing.masks import boundary_band
from cpcapp.splicing.patches import FloatMap, gather, share_in_patch
from cpcapp.splicing.presets import PRESETS, BankOptions, PatchRules, Preset
from cpcapp.splicing.samples import Problem, Sample
from cpcapp.splicing.scoring import score_map

# Photos whose patches are added at once. It decides where sums are rounded, and so belongs to
# the result: a run that was stopped goes on with the same groups.
_PHOTOS_TOGETHER = 16
_PHOTOS_FOR_THRESHOLD = 40
_PHOTOS_TO_CALIBRATE = 240
_PHOTOS_FOR_GLIMPSE = 8
_PAPER_OVERLAP = 50
# A direction in which seams vary a hundred times less than authentic edges is no direction of
# seams: of patches with equal channels, say, such eigenvalues are rounding.
_LEAST_EIGENVALUE = 1e-2
_LEAST_VARIANCE = 1e-7


@dataclass
class TrainingState:
    """What a training has learned so far.

    Attributes
    ----------
    next_photo : int
    moments : list of (Moments, Moments)
        Target and background of each bank.
    problems : list of Problem
        Photos that could not be read.
    n_used : int
        Photos that gave patches.
    """

    next_photo: int
    moments: list[tuple[Moments, Moments]]
    problems: list[Problem] = field(default_factory=list)
    n_used: int = 0

    @classmethod
    def empty(cls, preset: Preset) -> TrainingState:
        """Return the state before the first photo."""
        return cls(0, [(Moments(form="scatter"), Moments(form="scatter")) for _ in preset.banks])


def train_localizer(
    samples: Sequence[Sample],
    preset: str | Preset = "default",
    *,
    seed: int = 0,
    jobs: int = 2,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[float], None] | None = None,
    facts: dict[str, Any] | None = None,
    calibrate_on: Sequence[Sample] | None = None,
    judging: Callable[[float], None] | None = None,
) -> SpliceLocalizer:
    """Train a localizer on spliced photos.

    Parameters
    ----------
    samples : sequence of Sample
        Spliced photos; authentic ones add to the background. Photos that can't be read are left
        out and listed in ``facts["problems"]``.
    preset : {"default", "paper"} or Preset, default="default"
    seed : int, default=0
        Decides which patches are taken.
    jobs : int, default=2
        Threads that read photos. The result does not depend on it.
    checkpoint : path, optional
        A folder in which to keep the state. If it holds that of the same training, the training
        goes on from there and ends with the same filters. Removed at the end.
    progress : callable, optional
        Called with the share done, from 0 to 1.
    facts : dict, optional
        More to say in the model file, in types that JSON knows.
    calibrate_on : sequence of Sample, optional
        Spliced and authentic photos that show what a finding means: see
        `cpcapp.splicing.calibration`. By default at most 240 of the samples.
    judging : callable, optional
        Like ``progress``, for these photos.

    Returns
    -------
    SpliceLocalizer

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.splices import SourcePhoto, SpliceMaker
    >>> from cpcapp.splicing.presets import BankOptions, PatchRules, Preset
    >>> def noise(seed):
    ...     def read():
    ...         rng = np.random.default_rng(seed)
    ...         return rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
    ...     return SourcePhoto(f"noise {seed}", read)
    >>> rules = PatchRules(least_edges=0.0)
    >>> small = Preset("small", (BankOptions(size=4, n_filters=3),), rules=rules)
    >>> splices = SpliceMaker([noise(i) for i in range(4)], seed=1).samples(6)
    >>> train_localizer(splices, small)
    SpliceLocalizer(preset='small', banks=1)
    """
    preset = _find(preset)
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    store = None
    if checkpoint is not None:
        store = Checkpoint(Path(checkpoint), _fingerprint(samples, preset, seed))
    state = (store.load(preset) if store else None) or TrainingState.empty(preset)
    state = _accumulate(samples, preset, seed, jobs, state, store, progress)
    localizer = _solve(preset, state)
    localizer.facts |= dict(facts or {}) | {
        "cpcapp": __version__,
        "seed": seed,
        "photos": {"used": state.n_used, "given": len(samples)},
        "problems": [str(problem) for problem in state.problems],
    }
    unreadable = {problem.name for problem in state.problems}
    calibrate(localizer, calibrate_on or _some(samples, unreadable), jobs=jobs, progress=judging)
    _choose_threshold(localizer, samples, unreadable)
    if store:
        store.remove()
    return localizer


def _some(samples: Sequence[Sample], unreadable: set[str]) -> list[Sample]:
    """Return as many spliced as authentic photos, evenly over the samples."""
    chosen: list[Sample] = []
    for authentic in (False, True):
        kind = [s for s in samples if s.authentic is authentic and s.name not in unreadable]
        chosen += kind[:: max(1, len(kind) * 2 // _PHOTOS_TO_CALIBRATE)][
            : _PHOTOS_TO_CALIBRATE // 2
        ]
    return chosen


def _find(preset: str | Preset) -> Preset:
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise ValueError(f"preset={preset!r} must be one of {', '.join(PRESETS)}, or a Preset")
    return PRESETS[preset]


def select_patches(
    mask: NDArray[np.bool_],
    edges: FloatMap,
    size: int,
    rules: PatchRules,
    rng: np.random.Generator,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose target and background patches of a photo.

    Parameters
    ----------
    mask : ndarray of shape (height, width), bool
        The pasted part.
    edges : ndarray of shape (height, width), float32
    size : int
        Side of a patch.
    rules : PatchRules
    rng : numpy.random.Generator

    Returns
    -------
    target, background : ndarray of shape (n, 2)
        First row and column of each patch: of patches across the seam, and of patches with
        edges but no seam.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.presets import PatchRules
    >>> mask = np.zeros((40, 60), dtype=bool)
    >>> mask[:, 30:] = True
    >>> everywhere = np.ones(mask.shape, dtype=np.float32)
    >>> rng = np.random.default_rng(0)
    >>> target, background = select_patches(mask, everywhere, 10, PatchRules(), rng)
    >>> int(target[:, 1].min()), int(target[:, 1].max())
    (23, 27)
    >>> sorted(set((background[:, 1] + 10 <= 30) | (background[:, 1] >= 30)))
    [np.True_]
    """
    if min(mask.shape) < size:
        nothing = np.empty((0, 2), dtype=np.intp)
        return nothing, nothing
    spliced = share_in_patch(mask, size)
    with_edges = share_in_patch(edges >= rules.edge_strength, size) >= rules.least_edges
    target = (spliced >= rules.least_spliced) & (spliced <= rules.most_spliced)
    background = ((spliced == 0.0) | (spliced == 1.0)) & with_edges
    return _draw(target, rules.per_photo, rng), _draw(background, rules.per_photo, rng)


def _draw(allowed: NDArray[np.bool_], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    places = np.argwhere(allowed)
    if len(places) > most:
        places = places[np.sort(rng.choice(len(places), most, replace=False))]
    return places


Rows = list[tuple[FloatMap, FloatMap]]


def _collect(samples: Sequence[Sample], preset: Preset, seed: int, number: int) -> Rows | Problem:
    """Return the target and background patches of a photo, for each bank."""
    sample = samples[number]
    try:
        image, mask = sample.image, sample.mask
        if image.shape[:2] != mask.shape:
            raise ValueError(f"its mask has shape {mask.shape}, the photo {image.shape[:2]}")
    except (OSError, ValueError) as error:
        return Problem(sample.name, str(error))
    pixels = as_unit_float(image)
    edges = detect_edges(pixels)
    rows = []
    for bank in preset.banks:
        rng = np.random.default_rng([seed, number])
        planes = planes_of(pixels, bank.channels)
        places = select_patches(mask, edges, bank.size, preset.rules, rng)
        rows.append(tuple(gather(planes, p, bank.size) for p in places))
    return rows  # type: ignore[return-value]


def _accumulate(
    samples: Sequence[Sample],
    preset: Preset,
    seed: int,
    jobs: int,
    state: TrainingState,
    store: Checkpoint | None,
    progress: Callable[[float], None] | None,
) -> TrainingState:
    group: list[Rows] = []
    with ThreadPoolExecutor(jobs) as pool:
        numbers = range(state.next_photo, len(samples))
        collect = partial(_collect, samples, preset, seed)
        for found in in_order(pool, collect, numbers, 2 * jobs):
            if isinstance(found, Problem):
                state.problems.append(found)
            else:
                group.append(found)
            state.next_photo += 1
            last = state.next_photo == len(samples)
            if state.next_photo % _PHOTOS_TOGETHER == 0 or last:
                _add(state, group)
                group = []
                if store and not last:
                    store.save_now_and_then(state)
            if progress:
                progress(state.next_photo / len(samples))
    return state


def _add(state: TrainingState, group: list[Rows]) -> None:
    for number, pair in enumerate(state.moments):
        for side, moments in enumerate(pair):
            blocks = [rows[number][side] for rows in group if len(rows[number][side])]
            if blocks:
                moments.update(np.concatenate(blocks))
    state.n_used += sum(any(len(side) for pair in rows for side in pair) for rows in group)


def _solve(preset: Preset, state: TrainingState) -> SpliceLocalizer:
    banks, counts = [], []
    for options, (target, background) in zip(preset.banks, state.moments, strict=True):
        for kind, moments in (("a seam", target), ("an authentic edge", background)):
            if moments.n_samples < 2 * options.n_filters:
                raise ValueError(
                    f"only {moments.n_samples} patches with {kind} were found, but "
                    f"{options.n_filters} filters need at least {2 * options.n_filters}; "
                    "give more spliced photos"
                )
        found = _filters(target, background, options)
        overlap, k = _overlap(target, background)
        counts.append(
            {
                "target_patches": target.n_samples,
                "background_patches": background.n_samples,
                "subspace_overlap": round(overlap, 6),
                "overlap_dimensions": k,
                "loading": [found.loading.weight, float(found.loading.diagonal.mean())]
                if found.loading
                else None,
            }
        )
        banks.append(FilterBank(options, found.filters.astype(np.float32), found.eigenvalues))
    return SpliceLocalizer(preset, banks, threshold=0.5, facts={"banks": counts})


def _filters(target: Moments, background: Moments, options: BankOptions) -> Contrast:
    found = _at_most(options.n_filters, target, background, options.scaling)
    rank = int((found.eigenvalues >= _LEAST_EIGENVALUE).sum()) if found else 0
    if found is None or rank < options.n_filters:
        raise ValueError(
            f"the {options.channels} patches with a seam vary in only {rank} independent "
            f"directions, too few for {options.n_filters} filters; give more varied photos, in "
            "colour (grey ones have a third of the directions)"
        )
    return found


def _at_most(k: int, target: Moments, background: Moments | None, scaling: str) -> Contrast | None:
    """Return up to ``k`` filters: as many as there are directions."""
    try:
        # Seams are faint, so the contrast may be as large as it will.
        return solve_contrast(target, background, k, loading="oas", scaling=scaling)
    except InsufficientRankError as error:
        return _at_most(error.rank, target, background, scaling) if error.rank else None


def _overlap(target: Moments, background: Moments) -> tuple[float, int]:
    """Return the overlap of the main subspaces, and of how many dimensions they are."""
    assert target.n_features is not None
    k = min(_PAPER_OVERLAP, target.n_features, target.n_samples - 1, background.n_samples - 1)
    for moments in (target, background):
        main = _at_most(k, moments, None, "unit")
        assert main is not None  # there are filters, so both vary
        k = int((main.eigenvalues > _LEAST_VARIANCE * main.eigenvalues[0]).sum())
    return subspace_overlap(target, background, k), k


def _choose_threshold(
    localizer: SpliceLocalizer, samples: Sequence[Sample], unreadable: set[str]
) -> None:
    """Take the threshold with the best mean F1 over some training photos, and score them."""
    spliced = [s for s in samples if not s.authentic and s.name not in unreadable]
    some = spliced[:: max(1, len(spliced) // _PHOTOS_FOR_THRESHOLD)][:_PHOTOS_FOR_THRESHOLD]
    levels = np.arange(1, 100) / 100.0
    f1, best = [], []
    for sample in some:
        found, mask = localizer.localize(sample.image), sample.mask
        band = boundary_band(mask)
        # Pixels at or above each level, on the band and everywhere.
        hits, marked = (
            np.histogram(values, np.append(levels, np.inf))[0][::-1].cumsum()[::-1]
            for values in (found.boundary[band], found.boundary)
        )
        f1.append(2.0 * hits / np.maximum(marked + band.sum(), 1))
        score = score_map(found.boundary, mask, ["edge"])["edge"]
        best.append((score.f1, score.mcc))
    if some:
        localizer.threshold_ = float(levels[np.mean(f1, axis=0).argmax()])
        means = np.mean(best, axis=0)
        localizer.facts["scores"] = {
            "on": f"{len(some)} of the training photos",
            "edge": {"f1": round(float(means[0]), 4), "mcc": round(float(means[1]), 4)},
        }


def _fingerprint(samples: Sequence[Sample], preset: Preset, seed: int) -> str:
    """Return a number for everything that decides the result."""
    names = [sample.name for sample in samples]
    content = [__version__, preset.to_dict(), seed, _PHOTOS_TOGETHER, names, _glimpse(samples)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _glimpse(samples: Sequence[Sample]) -> list[str]:
    """Return what some of the photos are: others can have the same names, as splices do."""
    seen = []
    for number in range(0, len(samples), max(1, len(samples) // _PHOTOS_FOR_GLIMPSE)):
        try:
            pixels = samples[number].image.tobytes()
        except (OSError, ValueError):
            seen.append("not readable")
        else:
            seen.append(hashlib.sha256(pixels).hexdigest())
    return seen


class Checkpoint:
    """The state of a training in a folder, whole at any moment.

    The moments of a state are files of their own, named by its photo; ``state.json`` is
    replaced last and says which files count.

    Parameters
    ----------
    folder : Path
    fingerprint : str
        Of the training; a checkpoint of another one is an error.
    every : float
        Seconds between two states.
    """

    def __init__(self, folder: Path, fingerprint: str, every: float = 15.0) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.every = every
        self.last = time.monotonic()

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    def _file(self, photo: int, bank: int, side: int) -> Path:
        return self.folder / f"moments-{photo}-{bank}-{side}.npz"

    def load(self, preset: Preset) -> TrainingState | None:
        """Return the state, or None if there is none yet."""
        if not self._state.exists():
            return None
        try:
            content = json.loads(self._state.read_text())
            if content["fingerprint"] != self.fingerprint:
                raise ValueError(
                    "it belongs to another training (other photos, preset, seed or version)"
                )
            photo = int(content["next_photo"])
            moments = []
            for bank, kept in enumerate(content["kept"]):
                pair = [
                    Moments.load(self._file(photo, bank, side)) if k else Moments(form="scatter")
                    for side, k in enumerate(kept)
                ]
                moments.append((pair[0], pair[1]))
            if len(moments) != len(preset.banks):
                raise ValueError("it has another number of banks")
            problems = [Problem(str(name), str(why)) for name, why in content["problems"]]
            return TrainingState(photo, moments, problems, int(content["n_used"]))
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise ValueError(
                f"checkpoint {self.folder} can't be used: {error}; remove it to start anew"
            ) from error

    def save_now_and_then(self, state: TrainingState) -> None:
        """Write the state if the last one is old enough."""
        if time.monotonic() - self.last >= self.every:
            self.save(state)

    def save(self, state: TrainingState) -> None:
        """Write the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = []
        for bank, pair in enumerate(state.moments):
            kept.append([moments.n_samples > 0 for moments in pair])
            for side, moments in enumerate(pair):
                if moments.n_samples:
                    moments.save(self._file(state.next_photo, bank, side))
        content = {
            "fingerprint": self.fingerprint,
            "next_photo": state.next_photo,
            "kept": kept,
            "problems": [[p.name, p.reason] for p in state.problems],
            "n_used": state.n_used,
        }
        with written_whole(self._state) as file:
            file.write(json.dumps(content).encode())
        self._clean(keep=state.next_photo)
        self.last = time.monotonic()

    def remove(self) -> None:
        """Remove the checkpoint and, if nothing else is in it, its folder."""
        self._state.unlink(missing_ok=True)
        self._clean(keep=None)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _clean(self, keep: int | None) -> None:
        for file in self.folder.glob("moments-*.npz*"):
            if keep is None or not file.name.startswith(f"moments-{keep}-"):
                file.unlink(missing_ok=True)
