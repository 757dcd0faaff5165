"""How well maps agree with where a photo was spliced, by named protocols.

===================  =============  ==========================  =================
protocol             truth          threshold                   inversion
===================  =============  ==========================  =================
``edge``             band, r = 4    best for each photo         no
``edge-r2``          band, r = 2    best for each photo         no
``edge-fixed``       band, r = 4    one, from training data     no
``surface``          mask           best for each photo         the better of two
``surface-fixed``    mask           0.5                         no
===================  =============  ==========================  =================

The band is `cpcapp.splicing.masks.boundary_band`. Figures of different protocols say different
things and are never put into one column: everything here is kept by the protocol's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.masks import boundary_band
from cpcapp.splicing.samples import Problem, Sample, SampleSet

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True)
class ScoringProtocol:
    """The rules by which a map is scored.

    Attributes
    ----------
    name : str
    radius : int or None
        Half the width of the band around the seam that is the truth; None if the truth is the
        mask.
    threshold : float, "best" or "given"
        From which value of the map on a pixel is marked: a number; the best for each photo
        and for each of F1 and MCC; or a number that comes with the method.
    inverts : bool
        Whether the inverted map is scored too, and the better of both counts.
    """

    name: str
    radius: int | None
    threshold: float | str
    inverts: bool = False


#: The protocols by name.
PROTOCOLS: dict[str, ScoringProtocol] = {
    protocol.name: protocol
    for protocol in (
        ScoringProtocol("edge", 4, "best"),
        ScoringProtocol("edge-r2", 2, "best"),
        ScoringProtocol("edge-fixed", 4, "given"),
        ScoringProtocol("surface", None, "best", inverts=True),
        ScoringProtocol("surface-fixed", None, 0.5),
    )
}
EDGE_PROTOCOLS = ("edge", "edge-r2", "edge-fixed")
SURFACE_PROTOCOLS = ("surface", "surface-fixed")


@dataclass(frozen=True)
class ImageScore:
    """How one map scores by one protocol.

    Attributes
    ----------
    name : str
        Of the photo.
    f1 : float
        2 TP / (2 TP + FN + FP), from 0 to 1; 0 where the truth has no pixel.
    f1_threshold : float or None
        Pixels are marked where the map is at least this; None: no pixel is.
    f1_inverted : bool
        Whether it is the other way round: marked where the map is at most the threshold.
    mcc : float
        The Matthews correlation coefficient, from −1 to 1; 0 where it is not defined, that is,
        if the truth or what is marked is everything or nothing. At the best threshold it is
        never below 0, since marking nothing is one of the choices.
    mcc_threshold : float or None
    mcc_inverted : bool
    auc : float or None
        Area under the ROC curve, which needs no threshold. With inversion, the better one. None
        where the truth is everything or nothing.
    """

    name: str
    f1: float
    f1_threshold: float | None
    f1_inverted: bool
    mcc: float
    mcc_threshold: float | None
    mcc_inverted: bool
    auc: float | None


@dataclass(frozen=True)
class MeanScore:
    """Mean scores over photos; None where there is none.

    Attributes
    ----------
    n : int
        How many photos.
    f1, mcc, auc : float or None
        The mean of ``auc`` is over the photos that have one.
    """

    n: int
    f1: float | None
    mcc: float | None
    auc: float | None


@dataclass(frozen=True)
class ProtocolScores:
    """The scores of one method by one protocol.

    Attributes
    ----------
    protocol : str
    images : tuple of ImageScore
    """

    protocol: str
    images: tuple[ImageScore, ...]

    @property
    def mean(self) -> MeanScore:
        """The mean over photos, each counting the same."""
        areas = [image.auc for image in self.images if image.auc is not None]
        return MeanScore(
            len(self.images),
            _mean([image.f1 for image in self.images]),
            _mean([image.mcc for image in self.images]),
            _mean(areas),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: ``{"mean": {...}, "images": [{...}, ...]}``."""
        return {"mean": asdict(self.mean), "images": [asdict(image) for image in self.images]}


@dataclass(frozen=True)
class Scores(Mapping[str, ProtocolScores]):
    """The scores of one method, by the names of the protocols.

    Attributes
    ----------
    protocols : dict of str to ProtocolScores

    Examples
    --------
    >>> image = ImageScore("one", 0.5, 0.1, False, 0.4, 0.2, False, 0.9)
    >>> scores = Scores({"edge": ProtocolScores("edge", (image,))})
    >>> scores["edge"].mean.mcc
    0.4
    >>> list(scores.to_dict()["edge"])
    ['mean', 'images']
    """

    protocols: dict[str, ProtocolScores]

    def __getitem__(self, protocol: str) -> ProtocolScores:
        return self.protocols[protocol]

    def __iter__(self) -> Iterator[str]:
        return iter(self.protocols)

    def __len__(self) -> int:
        return len(self.protocols)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: for each protocol its mean scores and those of each photo."""
        return {name: scores.to_dict() for name, scores in self.protocols.items()}


def score_map(
    values: ArrayLike,
    mask: BoolArray,
    protocols: Iterable[str] = ("edge",),
    *,
    threshold: float | None = None,
    name: str = "",
) -> dict[str, ImageScore]:
    """Score a map against the pasted part.

    Parameters
    ----------
    values : array-like of shape (height, width)
        The map: the higher, the likelier spliced. Any finite numbers.
    mask : ndarray of shape (height, width), bool
        True where something was pasted.
    protocols : iterable of str, default=("edge",)
        Names from ``PROTOCOLS``. Whether the map shows the seam or the pasted part is for the
        caller to know.
    threshold : float, optional
        For ``"edge-fixed"``, which needs it.
    name : str, default=""
        Of the photo, for the result.

    Returns
    -------
    dict of str to ImageScore
        By protocol.

    Notes
    -----
    The best threshold is exact: all distinct values of the map are tried, by sorting it once,
    and marking nothing besides. Of thresholds that score the same the highest is taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.masks import boundary_band
    >>> mask = np.zeros((40, 60), dtype=bool)
    >>> mask[10:30, 20:40] = True
    >>> seam = 0.2 + 0.5 * boundary_band(mask)
    >>> score_map(seam, mask)["edge"].f1_threshold
    0.7
    >>> score = score_map(seam, mask, ["edge-fixed"], threshold=0.9)["edge-fixed"]
    >>> score.f1, score.mcc
    (0.0, 0.0)
    >>> score_map(~mask, mask, ["surface"])["surface"].mcc_inverted
    True
    """
    chosen = _chosen(protocols)
    if threshold is None and any(protocol.threshold == "given" for protocol in chosen):
        raise ValueError("threshold=None must be a number for the protocol 'edge-fixed'")
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"threshold={threshold!r} must be a finite number")
    array = _checked_map(values, mask)
    ordered: dict[bool, _Ordered] = {}
    truths: dict[int | None, BoolArray] = {}
    scores = {}
    for protocol in chosen:
        radius = protocol.radius
        if radius not in truths:
            truths[radius] = mask if radius is None else boundary_band(mask, radius)
        found = []
        for inverted in (False, True) if protocol.inverts else (False,):
            if inverted not in ordered:
                ordered[inverted] = _Ordered(-array if inverted else array)
            at = threshold if protocol.threshold == "given" else protocol.threshold
            found.append(ordered[inverted].score(truths[radius], at))
        scores[protocol.name] = _better(name, found)
    return scores


@dataclass(frozen=True)
class _Found:
    """Scores of a map as it is given."""

    f1: float
    f1_threshold: float | None
    mcc: float
    mcc_threshold: float | None
    auc: float | None


class _Ordered:
    """A map, sorted once, to be scored against several truths."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        ordered = np.sort(values, axis=None)
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        # From the highest on, so that of equal scores argmax takes the one that marks least.
        self.distinct = ordered[starts][::-1]
        self.marked = (ordered.size - starts)[::-1]

    def score(self, truth: BoolArray, threshold: float | str | None) -> _Found:
        """Return the scores at a threshold, or at the best ones."""
        positives = np.sort(self.values[truth])
        hits = positives.size - np.searchsorted(positives, self.distinct)
        # In front, what marking nothing gives.
        tp = np.concatenate([[0], hits])
        marked = np.concatenate([[0], self.marked])
        total, wanted = self.values.size, positives.size
        auc = _area(tp, marked, wanted, total)
        if not isinstance(threshold, str):
            # Many values are below the threshold, or none: the last that reaches it.
            reached = np.count_nonzero(self.distinct >= threshold)
            tp, marked = tp[reached : reached + 1], marked[reached : reached + 1]
        f1 = _f1(tp, marked, wanted)
        mcc = _mcc(tp, marked, wanted, total)
        best_f1, best_mcc = int(f1.argmax()), int(mcc.argmax())
        if isinstance(threshold, str):
            at_f1, at_mcc = self._value(best_f1), self._value(best_mcc)
        else:
            at_f1 = at_mcc = threshold
        return _Found(float(f1[best_f1]), at_f1, float(mcc[best_mcc]), at_mcc, auc)

    def _value(self, place: int) -> float | None:
        return None if place == 0 else float(self.distinct[place - 1])


def _f1(tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int) -> FloatArray:
    """F1 = 2 TP / (2 TP + FN + FP); 0 where nothing is marked and nothing wanted."""
    return 2.0 * tp / np.maximum(marked + wanted, 1)


def _mcc(tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int, total: int) -> FloatArray:
    """MCC = (TP TN − FP FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)); 0 where that is not defined."""
    # TP TN − FP FN = TP n − (TP+FP)(TP+FN): whole numbers, exact for any photo that is read.
    covariance = tp * total - marked * wanted
    spread = np.sqrt(marked * (total - marked)) * np.sqrt(float(wanted) * (total - wanted))
    return np.asarray(np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), 0.0))


def _area(
    tp: NDArray[np.int64], marked: NDArray[np.int64], wanted: int, total: int
) -> float | None:
    """Return the area under the ROC curve: equal values of the map count half."""
    if wanted in (0, total):
        return None
    # Beyond the least threshold everything is marked, so the curve ends in (1, 1).
    fp = marked - tp
    twice = np.sum(np.diff(fp) * (tp[1:] + tp[:-1]), dtype=np.float64)
    return float(twice / (2.0 * wanted * (total - wanted)))


def _better(name: str, found: Sequence[_Found]) -> ImageScore:
    """Return the better of the scores of a map and, where there are two, its negative."""
    f1 = max(range(len(found)), key=lambda i: found[i].f1)
    mcc = max(range(len(found)), key=lambda i: found[i].mcc)
    areas = [one.auc for one in found if one.auc is not None]
    return ImageScore(
        name,
        found[f1].f1,
        _turned(found[f1].f1_threshold, bool(f1)),
        bool(f1),
        found[mcc].mcc,
        _turned(found[mcc].mcc_threshold, bool(mcc)),
        bool(mcc),
        max(areas) if areas else None,
    )


def _turned(threshold: float | None, inverted: bool) -> float | None:
    return -threshold if inverted and threshold is not None else threshold


def _chosen(protocols: Iterable[str]) -> list[ScoringProtocol]:
    if isinstance(protocols, str):
        protocols = (protocols,)
    names = list(dict.fromkeys(protocols))
    for name in names:
        if name not in PROTOCOLS:
            known = ", ".join(map(repr, PROTOCOLS))
            raise ValueError(f"protocols has {name!r}; it may have {known}")
    return [PROTOCOLS[name] for name in names]


def _checked_map(values: ArrayLike, mask: BoolArray) -> NDArray[Any]:
    array = np.asarray(values)
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool or mask.size == 0:
        raise ValueError(
            f"mask has shape {mask.shape} and dtype {mask.dtype}; it must be (height, width), bool"
        )
    if array.shape != mask.shape:
        raise ValueError(f"values have shape {array.shape}; the mask has {mask.shape}")
    if array.dtype.kind in "biu":
        # Whole numbers can't all be negated.
        array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"values of dtype {array.dtype} must be real and finite numbers")
    return array


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


class Maps(Protocol):
    """What a method says of a photo: at least this, as `localize` does."""

    @property
    def boundary(self) -> NDArray[np.float32]:
        """How likely each pixel lies on the seam, (height, width)."""

    @property
    def region(self) -> NDArray[np.float32] | None:
        """How likely each pixel is pasted, (height, width), if the method tells."""


Method = Callable[[Pixels], Maps]
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
    """Scores of methods and controls on a data set.

    Attributes
    ----------
    dataset : str
    scores : dict of str to Scores
        By the name of the method or control.
    n_scored, n_authentic : int
        Spliced photos that were scored, and authentic ones, which have no seam and were not.
    problems : tuple of Problem
        Photos that could not be used: when the data set was opened, or now.
    """

    dataset: str
    scores: dict[str, Scores]
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
    n_jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    on_case: Callable[[Case], None] | None = None,
) -> Evaluation:
    """Score methods on the spliced photos of a data set.

    Parameters
    ----------
    samples : SampleSet or sequence of Sample
        Authentic photos are counted and not read.
    methods : callable or dict of str to callable
        Each takes the pixels, (height, width, 3), and returns an object with the maps
        ``boundary`` and ``region``, both (height, width); ``region`` may be None. A photo that
        it refuses with a ValueError is a problem, and scored for no method. One without a name
        is called ``"method"``.
    controls : dict of str to callable, optional
        Each takes the pixels and all edges and returns one map, (height, width), which is
        scored by all protocols that a method is scored by; such as
        `cpcapp.splicing.controls.CONTROLS`. The edges are those of the first method that gives
        ``edges``, else the package's own.
    protocols : iterable of str, default=("edge", "edge-r2")
        Names from ``PROTOCOLS``. Those of the edge are about ``boundary``, those of the surface
        about ``region`` and left out for a method that gives none.
    thresholds : dict of str to float, optional
        For each method the threshold for ``"edge-fixed"``, which is left out for the others.
    n_jobs : int, default=1
        Photos at the same time.
    progress : callable, optional
        Called with the share done, from 0 to 1.
    on_case : callable, optional
        Called with each `Case` by the thread that scored it, in no particular order.

    Returns
    -------
    Evaluation
        With the photos in the order of the samples, whatever ``n_jobs``.

    Examples
    --------
    >>> from functools import partial
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from cpcapp.splicing.samples import Sample
    >>> mask = np.zeros((40, 60), dtype=bool)
    >>> mask[:, 30:] = True
    >>> photo = np.repeat(mask[..., None], 3, axis=2).astype(np.uint8) * 200
    >>> sample = Sample("half", False, partial(np.copy, photo), partial(np.copy, mask))
    >>> def steps(image):
    ...     step = np.abs(np.diff(image[..., 0].astype(np.float32), axis=1, append=200))
    ...     return SimpleNamespace(boundary=step / 255, region=None)
    >>> result = evaluate([sample], {"steps": steps})
    >>> round(result.scores["steps"]["edge"].mean.mcc, 3)  # one column of the eight in the band
    0.332
    """
    work = _Work(
        {"method": methods} if callable(methods) else dict(methods),
        dict(controls or {}),
        [protocol.name for protocol in _chosen(protocols)],
        dict(thresholds or {}),
        on_case,
    )
    if n_jobs < 1:
        raise ValueError(f"n_jobs={n_jobs!r} must be at least 1")
    spliced = [sample for sample in samples if not sample.authentic]
    results = _in_threads(work.score, spliced, n_jobs, progress)
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
        scores[name] = Scores(by_protocol)
    return Evaluation(
        getattr(samples, "name", ""),
        scores,
        len(scored),
        len(samples) - len(spliced),
        (*getattr(samples, "problems", ()), *unread),
    )


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
        # The loaders import this package's rooms, so theirs can't be imported above.
        from cpcapp.datasets.photos import readable

        problems: list[Problem] = []
        for _, image, mask in readable([sample], problems):
            return self._score(sample, image, mask)
        return problems[0]

    def _score(
        self, sample: Sample, image: Pixels, mask: BoolArray
    ) -> dict[str, dict[str, ImageScore]] | Problem:
        try:
            maps = {name: method(image) for name, method in self.methods.items()}
        except ValueError as error:
            return Problem(sample.name, " ".join(str(error).split()))
        edges = self._edges(image, maps)
        scores = {
            name: {
                **self._by(EDGE_PROTOCOLS, found.boundary, mask, sample.name, name),
                **self._by(SURFACE_PROTOCOLS, found.region, mask, sample.name, name),
            }
            for name, found in maps.items()
        }
        surface = not maps or any(found.region is not None for found in maps.values())
        protocols = (*EDGE_PROTOCOLS, *SURFACE_PROTOCOLS) if surface else EDGE_PROTOCOLS
        for name, control in self.controls.items():
            scores[name] = self._by(protocols, control(image, edges), mask, sample.name, name)
        if self.on_case is not None:
            self.on_case(Case(sample, image, mask, edges, maps, scores))
        return scores

    def _by(
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

    def _edges(self, image: Pixels, maps: Mapping[str, Maps]) -> NDArray[np.float32]:
        for found in maps.values():
            edges: NDArray[np.float32] | None = getattr(found, "edges", None)
            if edges is not None:
                return edges
        if not self.controls:
            return np.zeros(image.shape[:2], dtype=np.float32)
        from cpcapp.splicing.edges import detect_edges

        return detect_edges(image)


def _in_threads(
    call: Callable[[Sample], Any],
    samples: Sequence[Sample],
    n_jobs: int,
    progress: Callable[[float], None] | None,
) -> list[Any]:
    """Return what a function gives for each sample, in their order."""
    results: list[Any] = [None] * len(samples)
    left = iter(enumerate(samples))
    jobs: dict[Future[Any], int] = {}
    done = 0
    with ThreadPoolExecutor(n_jobs) as pool:
        try:
            while True:
                # Just enough to keep everybody busy: what is not begun need not be called off.
                for index, sample in islice(left, 2 * n_jobs - len(jobs)):
                    jobs[pool.submit(call, sample)] = index
                if not jobs:
                    return results
                finished, _ = wait(jobs, return_when=FIRST_COMPLETED)
                for job in finished:
                    results[jobs.pop(job)] = job.result()
                done += len(finished)
                if progress is not None:
                    progress(done / len(samples))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
