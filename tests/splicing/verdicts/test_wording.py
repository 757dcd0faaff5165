from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpcapp.splicing.localizer import Localization
from cpcapp.splicing.verdicts.wording import ALARM_LEVEL, WEAK_LEVEL, find_verdict, format_verdict

PHOTO = (300, 300)


@pytest.mark.parametrize(
    ("p_value", "facts", "words"),
    [
        (0.05, {}, "signs of splicing"),
        (0.051, {}, "weak signs of splicing"),
        (0.15, {}, "weak signs of splicing"),
        (0.151, {}, "no signs found"),
        (0.9, {"too_compressed": True}, "can't tell (too compressed)"),
        (0.01, {"too_compressed": True}, "signs of splicing"),
        (0.1, {"too_compressed": True}, "weak signs of splicing"),
        (None, {}, "can't tell (unlike anything it was calibrated on)"),
        (None, {"too_compressed": True}, "can't tell (too compressed)"),
        (None, {"calibrated": False}, "can't tell (the model has not learned to judge)"),
    ],
)
def test_words_say_no_more_than_is_known(p_value, facts, words):
    assert find_verdict(p_value, PHOTO, **facts).text == words


@pytest.mark.parametrize(
    ("p_value", "facts", "code", "shown"),
    [
        (0.05, {}, "signs", True),
        (0.06, {}, "weak", True),
        (0.2, {}, "none", False),
        (None, {}, "unknown", False),
        (0.2, {"too_compressed": True}, "unknown", False),
        (0.001, {"calibrated": False}, "unknown", False),
    ],
)
def test_programs_read_a_code_and_regions_are_shown_with_signs_only(p_value, facts, code, shown):
    verdict = find_verdict(p_value, PHOTO, **facts)
    assert (verdict.code, verdict.shows_region) == (code, shown)


@given(st.floats(1e-9, 1))
@example(0.0501)
@example(0.15 + 1e-12)
def test_a_rounded_p_value_is_on_the_side_of_the_level_that_the_words_say(p_value):
    text = format_verdict("text", p_value)
    shown = float(text.removeprefix("text, p = "))
    for level in (ALARM_LEVEL, WEAK_LEVEL):
        assert (shown <= level) == (p_value <= level)
    assert shown == pytest.approx(p_value, rel=0.05)


@pytest.mark.parametrize("shape", [(63, 300), (300, 63)])
def test_a_small_photo_has_no_verdict(shape):
    assert find_verdict(0.001, shape).text == "can't tell (too small)"
    assert find_verdict(0.001, (64, 64)).text == "signs of splicing"
    assert find_verdict(0.001, (64, 64, 3)).text == "signs of splicing"  # as an array has it


@pytest.mark.parametrize(
    ("quality", "words"),
    [(59, "can't tell (too compressed)"), (60, "no signs found"), (None, "no signs found")],
)
def test_compression_is_judged_by_quality(quality, words):
    flat = np.zeros(PHOTO, dtype=np.float32)
    found = Localization(flat, flat, p_value=0.5, calibrated=True, jpeg_quality=quality)
    assert found.verdict == words


@pytest.mark.parametrize(
    ("p_value", "code"), [(0.01, "signs"), (0.1, "weak"), (0.5, "none"), (None, "unknown")]
)
def test_the_mask_is_empty_unless_the_words_say_signs(p_value, code):
    flat = np.zeros(PHOTO, dtype=np.float32)
    region = np.where(np.arange(300) < 100, np.float32(0.9), np.float32(0.2)) + flat
    found = Localization(flat, flat, region, p_value=p_value, calibrated=True)
    assert found.verdict_code == code
    assert found.mask.dtype == bool
    assert found.mask.sum() == (30_000 if code in ("signs", "weak") else 0)
    np.testing.assert_array_equal(found.region, region)  # as it was found, whatever the words
