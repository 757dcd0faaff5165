"""Scoring methods and controls on a data set: their maps, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.collector import read_with_mask
from cpcapp.splicing.decide.words import ALARM_LEVEL, WEAK_LEVEL
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.photo.pixels import BoolArray, FloatMap, Pixels
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet
from cpcapp.splicing.score.controls import FILE_CONTROLS
from cpcapp.splicing.score.protocols import (
    ImageScore,
    ProtocolScores,
    check_protocols,
    score_map,
)


class Maps(Protocol):
    """What a method says of a photo: at least this, as `localize` does."""

    @property
    def boundary(self) -> FloatMap:
        """How likely each pixel lies on the seam, (height, width)."""

    @property
    def region(self) -> FloatMap | None:
        """How likely each pixel is pasted, (height, width), if the method tells."""


class Localizer(Protocol):
    """Sees a photo with what its file says of it."""

    def localize(self, image: Any) -> Maps:
        """Return the maps of a `ReadImage`."""


#: A localizer, or a function of the pixels alone.
Method = Localizer | Callable[[Pixels], Maps]
Control = Callable[[Pixels, FloatMap], FloatMap]


class Case(NamedTuple):
    """A photo that was scored: its pixels, mask and edges, and by method its maps and scores.

    The edges are zeros where neither a method nor a control has asked for them.
    """

    sample: Sample
    image: Pixels
    mask: BoolArray
    edges: FloatMap
    maps: dict[str, Maps]
    scores: dict[str, dict[str, ImageScore]]


@dataclass(frozen=True)
class Evaluation:
    """The scores of methods and controls on a data set, by their names and that of the protocol.

    Authentic photos have no seam: they are counted and not scored. ``problems`` are photos that
    could not be used: when the data set was opened, or now.
    """

    dataset: str
    scores: dict[str, dict[str, ProtocolScores]]
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
            "methods": {
                method: {protocol: of.to_dict() for protocol, of in scores.items()}
                for method, scores in self.scores.items()
            },
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
    ``edges``, else the package's own.

    ``protocols``: names from ``PROTOCOLS``. Those of the edge are about ``boundary``, those of the
    surface about ``region`` and left out for a method that gives none.

    ``thresholds``: for each method the threshold for ``"edge-fixed"``, which is left out for the
    others.

    ``on_case``: called with each `Case` by the thread that scored it, in no particular order.
    """
    methods = dict(methods) if isinstance(methods, Mapping) else {"method": methods}
    controls, thresholds = dict(controls or {}), dict(thresholds or {})
    if both := methods.keys() & controls.keys():
        raise ValueError(f"methods and controls both have {sorted(both)}; rename one of them")
    if unknown := thresholds.keys() - methods.keys():
        raise ValueError(f"thresholds has {sorted(unknown)}; it may have {', '.join(methods)}")
    chosen = check_protocols(protocols)
    names = [protocol.name for protocol in chosen]
    by_file = any(control in FILE_CONTROLS for control in controls.values())

    def score_photo(sample: Sample) -> dict[str, dict[str, ImageScore]] | Problem:
        """Return the scores of a photo by method and protocol."""
        try:
            photo, mask = read_with_mask(sample)
            maps = {name: ask(method, photo) for name, method in methods.items()}
            coefficients = sample.coefficients if by_file else None
        except (OSError, ValueError) as error:
            return _problem(sample, error)
        given = (getattr(result, "edges", None) for result in maps.values())
        edges: FloatMap | None = next((edges for edges in given if edges is not None), None)
        if edges is None:
            edges = detect_edges(photo.pixels) if controls else np.zeros(mask.shape, np.float32)

        def score(name: str, values: FloatMap | None, *kinds: str) -> dict[str, ImageScore]:
            threshold = thresholds.get(name)
            wanted = [
                protocol.name
                for protocol in chosen
                if ("surface" if protocol.radius is None else "edge") in kinds
                and (threshold is not None or protocol.threshold != "given")
            ]
            if values is None or not wanted:
                return {}
            return score_map(values, mask, wanted, threshold=threshold, name=sample.name)

        scores = {
            name: score(name, result.boundary, "edge") | score(name, result.region, "surface")
            for name, result in maps.items()
        }
        surface = not maps or any(result.region is not None for result in maps.values())
        kinds = ("edge", "surface") if surface else ("edge",)
        for name, control in controls.items():
            file = (coefficients,) if control in FILE_CONTROLS else ()
            scores[name] = score(name, control(photo.pixels, edges, *file), *kinds)
        if on_case is not None:
            on_case(Case(sample, photo.pixels, mask, edges, maps, scores))
        return scores

    spliced = [sample for sample in samples if not sample.authentic]
    results = list(map_threads(score_photo, spliced, jobs=jobs, progress=progress))
    cases = [result for result in results if not isinstance(result, Problem)]
    unread = [result for result in results if isinstance(result, Problem)]
    scores = {}
    for method in (*methods, *controls):
        images = {p: tuple(c[method][p] for c in cases if p in c[method]) for p in names}
        # Of nothing scored there is still the name, but not of what does not apply.
        scores[method] = {p: ProtocolScores(p, i) for p, i in images.items() if i or not cases}
    return Evaluation(
        getattr(samples, "name", ""),
        scores,
        len(cases),
        len(samples) - len(spliced),
        (*getattr(samples, "problems", ()), *unread),
    )


def ask(method: Method, photo: ReadImage) -> Maps:
    """Return what a method says of a photo."""
    return method(photo.pixels) if callable(method) else method.localize(photo)


def _problem(sample: Sample, error: Exception) -> Problem:
    return Problem(sample.name, " ".join(str(error).split()))


# -- verdicts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhotoVerdict:
    """The verdict on one photo, and the truth."""

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
        return _problem(sample, error)


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
    >>> verdicts = VerdictScores(tuple(photos))
    >>> verdicts.auc(), verdicts.auc(same_size=True)
    (0.5, 1.0)
    >>> verdicts.alarms(), verdicts.alarms(authentic=False)
    (0.5, 1.0)
    """

    photos: tuple[PhotoVerdict, ...]

    def _with_score(self, authentic: bool) -> list[PhotoVerdict]:
        return [p for p in self.photos if p.score is not None and p.authentic is authentic]

    def auc(self, *, same_size: bool = False) -> float | None:
        """Return how often a spliced photo scores higher than an authentic one.

        ``same_size``: count only pairs of the same height and width: where cameras differ, the size
        of a photo alone can tell.
        """
        rows, columns = (
            np.array([(p.score, p.height, p.width) for p in self._with_score(kind)]).reshape(-1, 3)
            for kind in (False, True)
        )
        ahead = rows[:, None, 0] - columns[None, :, 0]
        pairs = (ahead > 0.0) + 0.5 * (ahead == 0.0)
        if same_size:
            pairs = pairs[(rows[:, None, 1:] == columns[None, :, 1:]).all(axis=2)]
        return float(pairs.mean()) if pairs.size else None

    def alarms(self, *, authentic: bool = True) -> float | None:
        """Return the share of authentic, or of spliced photos with signs of splicing.

        A photo without a p-value, which is like too few of those of the calibration, counts as one
        without alarm. None if no photo has a score.
        """
        return self._share(authentic, -np.inf, ALARM_LEVEL)

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
        spliced, authentic = (len(self._with_score(kind)) for kind in (False, True))
        line = (
            f"verdict: signs of splicing (p <= {ALARM_LEVEL}) in "
            f"{_percent(self.alarms(authentic=False))} of {spliced} spliced photos"
        )
        weak = f", weak signs (p <= {WEAK_LEVEL}) in {_percent(self.weak_signs(authentic=False))}"
        if not authentic:
            return line + weak + "; no authentic ones"
        line += f" and {_percent(self.alarms())} of {authentic} authentic ones"
        line += f"{weak} and {_percent(self.weak_signs())}"
        for what, area in (("", self.auc()), (" over pairs of one size", self.auc(same_size=True))):
            if area is not None:
                line += f", area under the ROC curve{what} {area:.3f}"
        return line

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        scored = [photo for photo in self.photos if photo.score is not None]
        return {
            "n_spliced": len(self._with_score(False)),
            "n_authentic": len(self._with_score(True)),
            "n_without_score": len(self.photos) - len(scored),
            "n_without_p_value": sum(photo.p_value is None for photo in scored),
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


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
