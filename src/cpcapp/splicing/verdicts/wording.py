"""The verdict in words, and as a code for programs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cpcapp.splicing.regions.region import MIN_REGION_SIDE

#: Largest p-value at which signs are reported: the usual level of a test.
ALARM_LEVEL = 0.05
#: Largest p-value at which weak signs are reported. Set by hand: one genuine photo in seven is
#: allowed here, so a weak sign is a reason to look and no more.
WEAK_LEVEL = 0.15
_LEVELS = (ALARM_LEVEL, WEAK_LEVEL)

VerdictCode = Literal["signs", "weak", "none", "unknown"]


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

    @property
    def shows_region(self) -> bool:
        """Whether there are signs, strong or weak: only then is a region shown."""
        return self.code in ("signs", "weak")


_SIGNS = Verdict("signs", "signs of splicing")
_WEAK = Verdict("weak", "weak signs of splicing")
_NONE = Verdict("none", "no signs found")


def find_verdict(
    p_value: float | None,
    shape: tuple[int, ...],
    *,
    calibrated: bool = True,
    too_compressed: bool = False,
) -> Verdict:
    """Return what there is to say of a photo.

    Parameters
    ----------
    p_value : float or None
        None if the photo resembles too few of those the model was calibrated on.
    shape : (height, width)
    calibrated : bool, default=True
        Whether the model has learned to judge.
    too_compressed : bool, default=False
        Whether compression is stronger than the model was calibrated for. It may hide a splice,
        so signs are reported, and their absence is not.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> find_verdict(0.004, (480, 640))
    Verdict(code='signs', text='signs of splicing')
    >>> find_verdict(0.1, (480, 640)).text
    'weak signs of splicing'
    >>> find_verdict(0.4, (480, 640)).text
    'no signs found'
    >>> find_verdict(None, (480, 640))
    Verdict(code='unknown', text="can't tell (unlike anything it was calibrated on)")
    >>> find_verdict(0.4, (40, 640)).text
    "can't tell (too small)"
    """
    if min(shape[:2]) < MIN_REGION_SIDE:
        return _refuse("too small")
    if not calibrated:
        return _refuse("the model has not learned to judge")
    if p_value is not None and p_value <= ALARM_LEVEL:
        return _SIGNS
    if p_value is not None and p_value <= WEAK_LEVEL:
        return _WEAK
    if too_compressed:
        return _refuse("too compressed")
    if p_value is None:
        return _refuse("unlike anything it was calibrated on")
    return _NONE


def format_verdict(text: str, p_value: float | None) -> str:
    """Return a verdict with its p-value, if it has one.

    Two digits are enough, but never so few that p seems to be on the other side of a level.

    Examples
    --------
    >>> format_verdict("signs of splicing", 0.00412)
    'signs of splicing, p = 0.0041'
    >>> format_verdict("no signs found", 0.1519)
    'no signs found, p = 0.152'
    >>> format_verdict("can't tell (too small)", None)
    "can't tell (too small)"
    """
    if p_value is None:
        return text
    for digits in range(2, 18):
        shown = f"{p_value:.{digits}g}"
        if all((float(shown) <= level) == (p_value <= level) for level in _LEVELS):
            break
    return f"{text}, p = {shown}"


def _refuse(reason: str) -> Verdict:
    return Verdict("unknown", f"can't tell ({reason})")
