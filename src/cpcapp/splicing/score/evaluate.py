"""Scoring methods and controls on a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.collector import read_with_mask
from cpcapp.splicing.decide.words import ALARM_LEVEL, WEAK_LEVEL
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.photo.pixels import BoolArray, Pixels
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet
from cpcapp.splicing.score.controls import FileControl
from cpcapp.splicing.score.protocols import (
    PROTOCOLS,
    ImageScore,
    MethodScores,
    ProtocolScores,
    check_protocols,
    score_map,
)

EDGE_PROTOCOLS = ("edge", "edge-r2", "edge-fixed")
SURFACE_PROTOCOLS = ("surface", "surface-fixed")


class Maps(Protocol):
    """What a method says of a photo: at least this, as `localize` does."""

    @property
    def boundary(self) -> NDArray[np.float32]:
        """How likely each pixel lies on the seam, (height, width)."""

    @property
    def region(self) -> NDArray[np.float32] | None:
        """How likely each pixel is pasted, (height, width), if the method tells."""


class Localizer(Protocol):
    """Sees a photo with what its file says of it."""

    def localize(self, image: Any) -> Maps:
        """Return what is found in a `ReadImage`."""


#: A localizer, or a function of the pixels alone.
Method = Localizer | Callable[[Pixels], Maps]
Control = Callable[[Pixels, NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Case:
    """A photo that was scored, with everything that led to its scores.

    Attributes
    ----------
    sample : Sample
    image : ndarray of shape (height, width, 3), uint8 or uint16
    mask : ndarray of shape (height, width), bool
    edges : ndarray of shape (height, width), float32
        All edges; zeros where neither a method nor a control has asked for them.
    maps : dict of str to Maps
        What each method found.
    scores : dict of str to dict of str to ImageScore
        By method or control, and protocol.
    """

    sample: Sample
    image: Pixels = field(repr=False)
    mask: BoolArray = field(repr=False)
    edges: NDArray[np.float32] = field(repr=False)
    maps: dict[str, Maps] = field(repr=False)
    scores: dict[str, dict[str, ImageScore]]


@dataclass(frozen=True)
class Evaluation:
    """The scores of methods and controls on a data set.

    Attributes
    ----------
    dataset : str
    scores : dict of str to MethodScores
        By the name of the method or control.
    n_scored, n_authentic : int
        Spliced photos that were scored, and authentic ones, which have no seam and were not.
    problems : tuple of Problem
        Photos that could not be used: when the data set was opened, or now.
    """

    dataset: str
    scores: dict[str, MethodScores]
    n_scored: int
    n_authentic: int
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "dataset": self.dataset,
            "n_scored": self.n_scored,
            "n_authentic": self.n_authentic,
            "problems": [asdict(problem) for problem in self.problems],
            "methods": {name: scores.to_dict() for name, scores in self.scores.items()},
        }


def evaluate(
    samples: SampleSet | Sequence[Sample],
    methods: Method | Mapping[str, Method],
    *,
    controls: Mapping[str, Control] | None = None,
    protocols: Iterable[str] = ("edge", "edge-r2"),
    thresholds: Mapping[str, float] | None = None,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    on_case: Callable[[Case], None] | None = None,
) -> Evaluation:
    """Score methods on the spliced photos of a data set.

    ``methods``: A localizer sees each photo with what its file says; a callable takes the pixels,
    (height, width, 3). Both return an object with the maps ``boundary`` and ``region``, both
    (height, width); ``region`` may be None. A photo that it refuses with a ValueError is a problem,
    and scored for no method. One without a name is called ``"method"``.

    ``controls``: each takes the pixels and all edges and returns one map, (height, width), which is
    scored by all protocols that a method is scored by; such as
    `cpcapp.splicing.score.controls.CONTROLS`. The edges are those of the first method that gives
    ``edges``, else the package's own. A `FileControl` is also given the coefficients of the
    sample's JPEG file.

    ``protocols``: names from ``PROTOCOLS``. Those of the edge are about ``boundary``, those of the
    surface about ``region`` and left out for a method that gives none.

    ``thresholds``: for each method the threshold for ``"edge-fixed"``, which is left out for the
    others.

    ``on_case``: called with each `Case` by the thread that scored it, in no particular order.
    """
    work = _Work(
        dict(methods) if isinstance(methods, Mapping) else {"method": methods},
        dict(controls or {}),
        [protocol.name for protocol in check_protocols(protocols)],
        dict(thresholds or {}),
        on_case,
    )
    if jobs < 1:
        raise ValueError(f"jobs={jobs!r} must be at least 1")
    spliced = [sample for sample in samples if not sample.authentic]
    results = list(map_threads(work.score, spliced, jobs=jobs, progress=progress))
    scored = [result for result in results if not isinstance(result, Problem)]
    unread = [result for result in results if isinstance(result, Problem)]
    scores = {}
    for name in (*work.methods, *work.controls):
        by_protocol = {}
        for protocol in work.protocols:
            images = tuple(one[name][protocol] for one in scored if protocol in one[name])
            # Of nothing scored there is still the name, but not of what does not apply.
            if images or not scored:
                by_protocol[protocol] = ProtocolScores(protocol, images)
        scores[name] = MethodScores(by_protocol)
    return Evaluation(
        getattr(samples, "name", ""),
        scores,
        len(scored),
        len(samples) - len(spliced),
        (*getattr(samples, "problems", ()), *unread),
    )


def ask(method: Method, photo: ReadImage) -> Maps:
    """Return what a method says of a photo."""
    if callable(method):
        return method(photo.pixels)
    return method.localize(photo)


@dataclass(frozen=True)
class _Work:
    """What is done to each photo."""

    methods: dict[str, Method]
    controls: dict[str, Control]
    protocols: list[str]
    thresholds: dict[str, float]
    on_case: Callable[[Case], None] | None

    def __post_init__(self) -> None:
        both = self.methods.keys() & self.controls.keys()
        if both:
            raise ValueError(f"methods and controls both have {sorted(both)}; rename one of them")
        unknown = self.thresholds.keys() - self.methods.keys()
        if unknown:
            raise ValueError(
                f"thresholds has {sorted(unknown)}; it may have {', '.join(self.methods)}"
            )

    def score(self, sample: Sample) -> dict[str, dict[str, ImageScore]] | Problem:
        try:
            photo, mask = read_with_mask(sample)
        except (OSError, ValueError) as error:
            return Problem(sample.name, str(error))
        return self._score(sample, photo, mask)

    def _score(
        self, sample: Sample, photo: ReadImage, mask: BoolArray
    ) -> dict[str, dict[str, ImageScore]] | Problem:
        try:
            maps = {name: ask(method, photo) for name, method in self.methods.items()}
            coefficients = sample.coefficients if self._needs_file() else None
        except ValueError as error:
            return Problem(sample.name, " ".join(str(error).split()))
        image = photo.pixels
        edges = self._find_edges(image, maps)
        scores = {
            name: {
                **self._score_protocols(EDGE_PROTOCOLS, found.boundary, mask, sample.name, name),
                **self._score_protocols(SURFACE_PROTOCOLS, found.region, mask, sample.name, name),
            }
            for name, found in maps.items()
        }
        surface = not maps or any(found.region is not None for found in maps.values())
        protocols = (*EDGE_PROTOCOLS, *SURFACE_PROTOCOLS) if surface else EDGE_PROTOCOLS
        for name, control in self.controls.items():
            if isinstance(control, FileControl):
                values = control(image, edges, coefficients)
            else:
                values = control(image, edges)
            scores[name] = self._score_protocols(protocols, values, mask, sample.name, name)
        if self.on_case is not None:
            self.on_case(Case(sample, image, mask, edges, maps, scores))
        return scores

    def _needs_file(self) -> bool:
        return any(isinstance(control, FileControl) for control in self.controls.values())

    def _score_protocols(
        self,
        group: Sequence[str],
        values: NDArray[np.float32] | None,
        mask: BoolArray,
        photo: str,
        method: str,
    ) -> dict[str, ImageScore]:
        threshold = self.thresholds.get(method)
        wanted = [
            name
            for name in self.protocols
            if name in group and (threshold is not None or PROTOCOLS[name].threshold != "given")
        ]
        if values is None or not wanted:
            return {}
        return score_map(values, mask, wanted, threshold=threshold, name=photo)

    def _find_edges(self, image: Pixels, maps: Mapping[str, Maps]) -> NDArray[np.float32]:
        for found in maps.values():
            edges: NDArray[np.float32] | None = getattr(found, "edges", None)
            if edges is not None:
                return edges
        if not self.controls:
            return np.zeros(image.shape[:2], dtype=np.float32)
        return detect_edges(image)


@dataclass(frozen=True)
class PhotoVerdict:
    """The verdict on one photo, and the truth.

    Attributes
    ----------
    name : str
    authentic : bool
    height, width : int
    score, p_value : float or None
    """

    name: str
    authentic: bool
    height: int
    width: int
    score: float | None
    p_value: float | None

    @classmethod
    def from_maps(cls, name: str, authentic: bool, maps: Maps) -> PhotoVerdict:
        """Return the verdict in what a method says of a photo; no score if it has none."""
        height, width = maps.boundary.shape
        score, p_value = (getattr(maps, key, None) for key in ("score", "p_value"))
        return cls(name, authentic, height, width, score, p_value)


@dataclass(frozen=True)
class VerdictScores:
    """The verdicts on the photos of a data set.

    Photos without a score are left out of all figures and counted.

    Examples
    --------
    >>> photos = [
    ...     PhotoVerdict("a", True, 10, 10, 0.1, 0.9),
    ...     PhotoVerdict("b", True, 20, 20, 0.7, 0.04),
    ...     PhotoVerdict("c", False, 10, 10, 0.5, 0.03),
    ... ]
    >>> found = VerdictScores(tuple(photos))
    >>> found.auc(), found.auc(same_size=True), found.alarms(), found.alarms(authentic=False)
    (0.5, 1.0, 0.5, 1.0)
    """

    photos: tuple[PhotoVerdict, ...]

    def _with_score(self, authentic: bool) -> list[PhotoVerdict]:
        return [p for p in self.photos if p.score is not None and p.authentic is authentic]

    def auc(self, *, same_size: bool = False) -> float | None:
        """Return how often a spliced photo scores higher than an authentic one.

        ``same_size``: count only pairs of the same height and width: where cameras differ, the size
        of a photo alone can tell.
        """
        spliced, authentic = self._with_score(False), self._with_score(True)
        if not spliced or not authentic:
            return None
        ahead = np.array([p.score for p in spliced])[:, None] - [p.score for p in authentic]
        counted = np.ones(ahead.shape, dtype=bool)
        if same_size:
            one, other = (_sizes(group) for group in (spliced, authentic))
            counted = (one[:, None] == other[None]).all(axis=2)
        if not counted.any():
            return None
        return float(((ahead > 0.0) + 0.5 * (ahead == 0.0))[counted].mean())

    def alarms(self, level: float = ALARM_LEVEL, *, authentic: bool = True) -> float | None:
        """Return the share of authentic, or of spliced photos with a p-value of at most a level.

        A photo without a p-value, which is like too few of those of the calibration, counts as one
        without alarm. None if no photo has a score.
        """
        return self._share(authentic, -np.inf, level)

    def weak_signs(self, *, authentic: bool = True) -> float | None:
        """Return the share of authentic, or of spliced photos with weak signs; see `alarms`."""
        return self._share(authentic, ALARM_LEVEL, WEAK_LEVEL)

    def _share(self, authentic: bool, above: float, up_to: float) -> float | None:
        inside = [
            photo.p_value is not None and above < photo.p_value <= up_to
            for photo in self._with_score(authentic)
        ]
        return float(np.mean(inside)) if inside else None

    def describe(self) -> str:
        """Return a sentence on how well spliced photos are told from authentic ones.

        >>> print(VerdictScores((PhotoVerdict("c", False, 10, 10, 0.5, 0.03),)).describe())
        verdict: signs of splicing (p <= 0.05) in 100 % of 1 spliced photos, weak signs (p <= 0.15)
        in 0 %; no authentic ones
        """
        spliced, authentic = self._with_score(False), self._with_score(True)
        line = (
            f"verdict: signs of splicing (p <= {ALARM_LEVEL}) in "
            f"{_percent(self.alarms(authentic=False))} of {len(spliced)} spliced photos"
        )
        weak = f", weak signs (p <= {WEAK_LEVEL}) in {_percent(self.weak_signs(authentic=False))}"
        if not authentic:
            return line + weak + "; no authentic ones"
        line += f" and {_percent(self.alarms())} of {len(authentic)} authentic ones"
        line += f"{weak} and {_percent(self.weak_signs())}"
        for what, area in (("", self.auc()), (" over pairs of one size", self.auc(same_size=True))):
            if area is not None:
                line += f", area under the ROC curve{what} {area:.3f}"
        return line

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "n_spliced": len(self._with_score(False)),
            "n_authentic": len(self._with_score(True)),
            "n_without_score": sum(p.score is None for p in self.photos),
            "n_without_p_value": sum(
                p.score is not None and p.p_value is None for p in self.photos
            ),
            "auc": self.auc(),
            "auc_same_size": self.auc(same_size=True),
            "alarm_level": ALARM_LEVEL,
            "alarms_on_authentic": self.alarms(),
            "found_of_spliced": self.alarms(authentic=False),
            "weak_level": WEAK_LEVEL,
            "weak_on_authentic": self.weak_signs(),
            "weak_of_spliced": self.weak_signs(authentic=False),
            "photos": [asdict(photo) for photo in self.photos],
        }


def judge_photos(
    samples: Sequence[Sample],
    method: Method,
    *,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[list[PhotoVerdict], list[Problem]]:
    """Ask a method for its verdict on photos."""
    results = list(map_threads(partial(_judge, method), samples, jobs=jobs, progress=progress))
    verdicts = [result for result in results if isinstance(result, PhotoVerdict)]
    return verdicts, [result for result in results if isinstance(result, Problem)]


def _judge(method: Method, sample: Sample) -> PhotoVerdict | Problem:
    try:
        return PhotoVerdict.from_maps(sample.name, sample.authentic, ask(method, sample.photo))
    except (OSError, ValueError) as error:
        return Problem(sample.name, " ".join(str(error).split()))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _sizes(photos: Sequence[PhotoVerdict]) -> NDArray[np.int64]:
    return np.array([(photo.height, photo.width) for photo in photos], dtype=np.int64)
