"""The verdict in words."""

from __future__ import annotations

from cpcapp.splicing.regions.region import MIN_REGION_SIDE

#: Largest false-alarm probability at which signs are reported.
ALARM_LEVEL = 0.05


def verdict_text(
    p_value: float | None,
    shape: tuple[int, ...],
    *,
    calibrated: bool = True,
    too_compressed: bool = False,
) -> str:
    """Return what there is to say of a photo, in words.

    Parameters
    ----------
    p_value : float or None
        None if the photo resembles too few of those the model was calibrated on.
    shape : (height, width)
    calibrated : bool, default=True
        Whether the model has learned to judge.
    too_compressed : bool, default=False
        Whether compression is stronger than the model was calibrated for.

    Returns
    -------
    str

    Examples
    --------
    >>> verdict_text(0.004, (480, 640))
    'signs of splicing'
    >>> verdict_text(0.4, (480, 640))
    'no signs found'
    >>> verdict_text(None, (480, 640))
    "can't tell (unlike anything it was calibrated on)"
    >>> verdict_text(0.4, (40, 640))
    "can't tell (too small)"
    """
    if min(shape[:2]) < MIN_REGION_SIDE:
        return "can't tell (too small)"
    if not calibrated:
        return "can't tell (the model has not learned to judge)"
    if p_value is not None and p_value <= ALARM_LEVEL:
        return "signs of splicing"
    if too_compressed:
        return "can't tell (too compressed)"
    if p_value is None:
        return "can't tell (unlike anything it was calibrated on)"
    return "no signs found"
