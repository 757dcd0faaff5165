from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.localizer import Localization
from cpcapp.splicing.verdicts.wording import verdict_text

PHOTO = (300, 300)


@pytest.mark.parametrize(
    ("p_value", "facts", "words"),
    [
        (0.05, {}, "signs of splicing"),
        (0.051, {}, "no signs found"),
        (0.9, {"too_compressed": True}, "can't tell (too compressed)"),
        (0.01, {"too_compressed": True}, "signs of splicing"),
        (None, {}, "can't tell (unlike anything it was calibrated on)"),
        (None, {"too_compressed": True}, "can't tell (too compressed)"),
        (None, {"calibrated": False}, "can't tell (the model has not learned to judge)"),
    ],
)
def test_words_say_no_more_than_is_known(p_value, facts, words):
    assert verdict_text(p_value, PHOTO, **facts) == words


@pytest.mark.parametrize("shape", [(63, 300), (300, 63)])
def test_a_small_photo_has_no_verdict(shape):
    assert verdict_text(0.001, shape) == "can't tell (too small)"
    assert verdict_text(0.001, (64, 64)) == "signs of splicing"
    assert verdict_text(0.001, (64, 64, 3)) == "signs of splicing"  # as an array has it


@pytest.mark.parametrize(
    ("quality", "words"),
    [(59, "can't tell (too compressed)"), (60, "no signs found"), (None, "no signs found")],
)
def test_compression_is_judged_by_quality(quality, words):
    flat = np.zeros(PHOTO, dtype=np.float32)
    found = Localization(flat, flat, p_value=0.5, calibrated=True, jpeg_quality=quality)
    assert found.verdict == words
