"""The verdict, what pictures show for it, and the words.

Short labels stand also in ``web/static/photos.js`` and `cpcapp.splicing.output.folder`.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Protocol

from cpcapp.splicing.decide.part_kind import PartKind
from cpcapp.splicing.decide.region import MIN_REGION_SIDE
from cpcapp.splicing.decide.verdict import Rank

#: Largest p-value at which signs are reported: the usual level of a test.
ALARM_LEVEL = 0.05
#: Largest p-value at which weak signs are reported. Set by hand: one genuine photo in seven is
#: allowed here, so a weak sign is a reason to look and no more.
WEAK_LEVEL = 0.15
_LEVELS = (ALARM_LEVEL, WEAK_LEVEL)

# Strength of what is drawn at the end of "weak signs", and of the map of a photo that can't be
# judged: set by hand, so that both are seen, and neither is taken for signs.
_WEAKEST, _UNJUDGED = 0.4, 0.5
_LIT = "The lighter, the likelier; a blue line goes around what reaches the threshold."
# One sentence for all places that explain pictures of several photos.
FADING = (
    "Signs are drawn in full, weak signs fainter as p rises; without signs nothing is drawn, and "
    'where the verdict is "can\'t tell" the map is grey.'
)

VerdictCode = Literal["signs", "weak", "none", "unknown"]

#: What is said of a marked part that is no usual object.
PART_TEXTS: dict[str, str] = {
    "graphic": "the marked part looks like a caption, a frame or a logo",
    "collage": "the marked part ends in a straight line, as in a collage",
}


class Verdict(NamedTuple):
    """What there is to say of a photo.

    Attributes
    ----------
    code : {"signs", "weak", "none", "unknown"}
        For programs; it does not change from version to version.
    text : str
        For people. Of ``"unknown"`` it gives the reason.
    """

    code: VerdictCode
    text: str


class Judged(Protocol):
    """What the sentences are about: a `cpcapp.splicing.Localization`."""

    @property
    def verdict(self) -> str: ...  # noqa: D102
    @property
    def verdict_code(self) -> VerdictCode: ...  # noqa: D102
    @property
    def p_value(self) -> float | None: ...  # noqa: D102
    @property
    def rank(self) -> Rank | None: ...  # noqa: D102
    @property
    def jpeg_quality(self) -> int | None: ...  # noqa: D102
    @property
    def calibrated(self) -> bool: ...  # noqa: D102
    @property
    def part_kind(self) -> PartKind | None: ...  # noqa: D102


class Display(NamedTuple):
    """What pictures of a photo show, and what is said below them.

    Attributes
    ----------
    strength : float
        Of the seam map and its outline over the photo, from 0 to 1.
    colours : bool
        Whether the map is drawn in colours, or in white on grey.
    outline : bool
        Whether a line goes around what reaches the threshold.
    part : bool
        Whether the region is marked.
    seam_title, seam_text : str
        Of the picture with the map.
    part_text : str
        Of the picture with the region, or why there is none.
    """

    strength: float
    colours: bool
    outline: bool
    part: bool
    seam_title: str
    seam_text: str
    part_text: str


_SIGNS = Verdict("signs", "signs of splicing")
_WEAK = Verdict("weak", "weak signs of splicing")
_NONE = Verdict("none", "no signs found")
_NO_CALIBRATION = "the model has not learned to judge"
_NO_PHOTO = "not a photo"


def find_verdict(
    p_value: float | None,
    shape: tuple[int, ...],
    *,
    calibrated: bool = True,
    looks_like_photo: bool = True,
    too_compressed: bool = False,
) -> Verdict:
    """Return what there is to say of a photo.

    ``too_compressed``: whether compression is stronger than the model was calibrated for. It may
    hide a splice, so signs are reported, and their absence is not.
    """
    if min(shape[:2]) < MIN_REGION_SIDE:
        return _refuse("too small")
    if not looks_like_photo:
        return _refuse(_NO_PHOTO)
    if not calibrated or p_value is None:
        return _refuse(_NO_CALIBRATION)
    if p_value <= ALARM_LEVEL:
        return _SIGNS
    if p_value <= WEAK_LEVEL:
        return _WEAK
    if too_compressed:
        return _refuse("too compressed")
    return _NONE


def shown(
    code: VerdictCode,
    p_value: float | None,
    *,
    calibrated: bool = True,
    side_rule: str | None = None,
) -> Display:
    """Return what pictures show for a verdict: all of them ask here, and so never contradict it.

    >>> [round(shown(*weak).strength, 2) for weak in (("signs", 0.01), ("weak", 0.1))]
    [1.0, 0.62]
    >>> display = shown("none", 0.5)
    >>> display.strength, display.outline, display.part, display.seam_title
    (0.0, False, False, 'No seam is marked')
    """
    if not calibrated:
        return Display(
            1.0, True, True, False, "The likely seam", _LIT, "This model marks no part of a photo."
        )
    if code == "unknown":
        return Display(
            _UNJUDGED,
            False,
            False,
            False,
            "The seam map, without a verdict",
            "In white where the map is high, which means nothing by itself: this photo can't be "
            "judged.",
            "No part is marked, as this photo can't be judged.",
        )
    if code == "none":
        return Display(
            0.0,
            True,
            False,
            False,
            "No seam is marked",
            "Nothing is drawn, as there are no signs of splicing. Every photo has a highest spot "
            "of the map; that of genuine photos is often as high.",
            "No part is marked, as there are no signs of splicing.",
        )
    # In proportion to the logarithm of p
    faded = 0.0 if p_value is None else math.log(max(p_value, ALARM_LEVEL) / ALARM_LEVEL)
    faded /= math.log(WEAK_LEVEL / ALARM_LEVEL)
    side = (
        "The traces told which side of the seam it is."
        if side_rule == "network"
        else "It is the smaller side of the seam, which need not be the pasted one."
    )
    return Display(
        1.0 - (1.0 - _WEAKEST) * faded,
        True,
        True,
        True,
        "The likely seam",
        f"{_LIT} It is drawn faintly, as the signs are weak." if code == "weak" else _LIT,
        f"In pink: the part that may come from elsewhere. {side}",
    )


def format_p(p_value: float) -> str:
    """Return a p-value in two digits, or as many as show on which side of a level it is.

    >>> format_p(0.00412), format_p(0.0501)
    ('0.0041', '0.0501')
    """
    for digits in range(2, 18):
        shown = f"{p_value:.{digits}g}"
        if all((float(shown) <= level) == (p_value <= level) for level in _LEVELS):
            break
    return shown


def format_verdict(text: str, p_value: float | None) -> str:
    """Return a verdict with its p-value, if it has one."""
    return text if p_value is None else f"{text}, p = {format_p(p_value)}"


def verdict_sentence(found: Judged) -> str:
    """Return the verdict and its false-alarm probability in one plain sentence.

    >>> from types import SimpleNamespace
    >>> rank = Rank(0.01, 3, 620)
    >>> verdict_sentence(SimpleNamespace(verdict_code="signs", p_value=rank.p_value, rank=rank))
    'There are signs of splicing: 3 of 620 genuine photos scored as high (p = 0.01).'
    """
    if found.verdict_code == "unknown" or found.rank is None:
        _, _, reason = found.verdict.partition("(")
        said = _REASONS.get(reason.rstrip(")"), reason.rstrip(")"))
        return f"It can't be told whether this photo was spliced: {said}."
    begin = {
        "signs": "There are signs of splicing",
        "weak": "There are weak signs of splicing",
        "none": "No signs of splicing were found",
    }[found.verdict_code]
    p_value, as_high, total = found.rank
    count = f"{as_high} of {total}" if as_high else f"none of {total}"
    return f"{begin}: {count} genuine photos scored as high (p = {format_p(p_value)})."


def explain_verdict(found: Judged) -> str:
    """Return what the verdict means and what it does not, in a few plain sentences.

    >>> from types import SimpleNamespace
    >>> explain_verdict(SimpleNamespace(verdict_code="none", p_value=0.4)).partition(".")[0]
    'Nothing was learned about this photo: it may still be spliced'
    """
    sentences = _MEANINGS[found.verdict_code]
    if found.verdict_code == "unknown":
        advice = [text for reason, text in _ADVICE.items() if reason in found.verdict]
        sentences = (*sentences, *(advice or [_OTHER_COPY]))
    elif found.verdict_code != "none" and found.part_kind is not None:
        text = PART_TEXTS[found.part_kind]
        sentences = (f"{text[:1].upper()}{text[1:]}, which has a seam too.", *sentences)
    return " ".join(sentences)


def explain_limits(found: Judged | None = None) -> list[str]:
    """Return what can't be seen in a photo, a sentence each.

    >>> len(explain_limits())
    6
    >>> from types import SimpleNamespace
    >>> explain_limits(SimpleNamespace(jpeg_quality=71))[0].partition(":")[0]
    'This photo was compressed with a JPEG quality of about 71'
    """
    limits = list(_LIMITS)
    if found is not None and found.jpeg_quality is not None:
        limits.insert(
            0,
            f"This photo was compressed with a JPEG quality of about {found.jpeg_quality}: "
            "compression erases traces, and the lower the quality, the more splices are missed.",
        )
    return limits


# For "It can't be told whether this photo was spliced: ...".
_REASONS = {
    "too small": f"it is too small (a side is shorter than {MIN_REGION_SIDE} pixels)",
    "too compressed": "it was compressed so strongly that a splice may be hidden",
    _NO_CALIBRATION: "the model has not learned to judge photos",
    _NO_PHOTO: "it looks like a screenshot or a drawing, not a photo",
}

_NO_PROOF = (
    "p is not the probability that the photo is spliced, and 1 − p is not the probability that it "
    "is genuine.",
    "It is the share of genuine photos that scored as high, in the third of their collections "
    "where most did.",
)
_MEANINGS: dict[str, tuple[str, ...]] = {
    "signs": (
        "Few genuine photos score as high, which is a reason to investigate: look whether the "
        "marked part is one object that somebody would paste, get the original file, and ask "
        "where the photo comes from.",
        "It is no proof: about one genuine photo in twenty gets this verdict, and more of some "
        "cameras.",
        *_NO_PROOF,
    ),
    "weak": (
        "Some genuine photos score as high: a reason to take a second look, and no more.",
        "About one genuine photo in seven gets this verdict or a stronger one, and more of some "
        "cameras.",
        *_NO_PROOF,
    ),
    "none": (
        "Nothing was learned about this photo: it may still be spliced.",
        "This is not a confirmation that it is genuine.",
        *_NO_PROOF,
    ),
    "unknown": (
        "No verdict is possible for this photo with this model.",
        "It says nothing for and nothing against a splice.",
    ),
}
_OTHER_COPY = "Look for a larger or less compressed copy."
_ADVICE = {
    _NO_CALIBRATION: "Use a model that was calibrated, such as the default one.",
    _NO_PHOTO: "Only photos have the traces that are looked for. If a photo is part of it, look "
    "for the photo itself.",
}

# docs/verdicts.md has the same with the reasons.
_LIMITS = (
    "Parts that were copied within one photo, as both sides come from the same shot.",
    "Splices in photos that were strongly compressed or made smaller afterwards, as messengers "
    "and social networks do.",
    "Generated images, in part or as a whole: the model was not trained on them.",
    "Soft seams: cuts that were blurred or blended by hand.",
    "Parts from a camera of the same type whose colour pattern happens to be aligned.",
    "Everything else that can be wrong with a photo: a false caption, a staged scene, a "
    "misleading crop, changed colours, a removed person.",
)


def _refuse(reason: str) -> Verdict:
    return Verdict("unknown", f"can't tell ({reason})")
