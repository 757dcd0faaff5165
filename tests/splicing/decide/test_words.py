from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpcapp.splicing.decide.verdict import Rank
from cpcapp.splicing.decide.words import (
    ALARM_LEVEL,
    WEAK_LEVEL,
    explain_limits,
    explain_verdict,
    find_verdict,
    format_verdict,
    shown,
    verdict_sentence,
)
from cpcapp.splicing.result import Localization

PHOTO = (300, 300)


def localization(p_value, shape=PHOTO, region=None, **options):
    """What a model says; ``p_value``: with it, 3 of 620 genuine photos scored as high."""
    rank = None if p_value is None else Rank(p_value, 3, 620)
    flat = np.zeros(shape, dtype=np.float32)
    return Localization(flat, region, **{"rank": rank, "calibrated": True, **options})


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
        (None, {}, "can't tell (the model has not learned to judge)"),
        (None, {"calibrated": False}, "can't tell (the model has not learned to judge)"),
    ],
)
def test_words_say_no_more_than_is_known(p_value, facts, words):
    assert find_verdict(p_value, PHOTO, **facts).text == words


@pytest.mark.parametrize(
    ("p_value", "facts", "code"),
    [
        (0.05, {}, "signs"),
        (0.06, {}, "weak"),
        (0.2, {}, "none"),
        (None, {}, "unknown"),
        (0.2, {"too_compressed": True}, "unknown"),
        (0.001, {"calibrated": False}, "unknown"),
    ],
)
def test_programs_read_a_code(p_value, facts, code):
    assert find_verdict(p_value, PHOTO, **facts).code == code


class TestDisplay:
    """What pictures show follows from the words, for all outputs alike."""

    def test_signs_in_full_weak_signs_fainter_but_seen(self):
        strengths = [shown("signs", p).strength for p in (1e-4, 0.05)]
        strengths += [shown("weak", p).strength for p in (0.0501, 0.08, 0.1, 0.15)]
        assert strengths[:2] == [1.0, 1.0]
        assert strengths[1:] == sorted(strengths[1:], reverse=True)
        assert strengths[-1] >= 0.35
        for display in (shown("signs", 0.01), shown("weak", 0.1)):
            assert display.outline and display.part and display.colours

    @pytest.mark.parametrize("p_value", [0.151, 0.3, 1.0])
    def test_without_signs_nothing_is_drawn_and_the_picture_says_so(self, p_value):
        display = shown("none", p_value)
        assert (display.strength, display.outline, display.part) == (0.0, False, False)
        assert "no signs" in display.seam_text and "no signs" in display.part_text

    def test_what_can_not_be_judged_is_not_called_a_likely_seam(self):
        display = shown("unknown", None)
        assert not (display.outline or display.part or display.colours)
        assert display.strength < 1.0
        assert "likely" not in display.seam_title
        assert "no signs" not in display.part_text

    def test_a_model_that_does_not_judge_shows_its_map(self):
        display = shown("unknown", None, calibrated=False)
        assert display.strength == 1.0 and display.outline and not display.part


@given(st.floats(1e-9, 1))
@example(0.0501)
@example(0.15 + 1e-12)
def test_a_rounded_p_value_is_on_the_side_of_the_level_that_the_words_say(p_value):
    text = format_verdict("text", p_value)
    printed = float(text.removeprefix("text, p = "))
    for level in (ALARM_LEVEL, WEAK_LEVEL):
        assert (printed <= level) == (p_value <= level)
    assert printed == pytest.approx(p_value, rel=0.05)


@pytest.mark.parametrize("facts", [{}, {"calibrated": False}, {"too_compressed": True}])
def test_what_is_no_photo_has_no_verdict(facts):
    judged = find_verdict(0.001, PHOTO, looks_like_photo=False, **facts)
    assert judged == ("unknown", "can't tell (not a photo)")
    assert find_verdict(0.001, (9, 9), looks_like_photo=False).text == "can't tell (too small)"


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
    assert localization(0.5, jpeg_quality=quality).verdict == words


@pytest.mark.parametrize(
    ("p_value", "code"), [(0.01, "signs"), (0.1, "weak"), (0.5, "none"), (None, "unknown")]
)
def test_the_mask_is_empty_unless_the_words_say_signs(p_value, code):
    region = np.zeros(PHOTO, np.float32) + np.where(np.arange(300) < 100, np.float32(0.9), 0.2)
    found = localization(p_value, region=region)
    assert found.verdict_code == code
    assert found.mask.dtype == bool
    assert found.mask.sum() == (30_000 if code in ("signs", "weak") else 0)
    np.testing.assert_array_equal(found.region, region)  # as it was found, whatever the words


class TestSentences:
    @pytest.mark.parametrize(
        ("rank", "sentence"),
        [
            (
                Rank(0.0033, 2, 900),
                "There are signs of splicing: 2 of 900 genuine photos scored as high (p = 0.0033).",
            ),
            (
                Rank(0.11, 11, 99),
                "There are weak signs of splicing: 11 of 99 genuine photos scored as high "
                "(p = 0.11).",
            ),
            (
                Rank(0.05, 0, 19),
                "There are signs of splicing: none of 19 genuine photos scored as high (p = 0.05).",
            ),
            (
                Rank(1.0, 50, 50),
                "No signs of splicing were found: 50 of 50 genuine photos scored as high (p = 1).",
            ),
        ],
    )
    def test_genuine_photos_that_scored_as_high_are_counted(self, rank, sentence):
        assert verdict_sentence(localization(None, rank=rank)) == sentence

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"shape": (40, 300)}, "it is too small (a side is shorter than 64 pixels)."),
            (
                {"rank": Rank(0.5, 3, 9), "jpeg_quality": 30},
                "it was compressed so strongly that a splice may be hidden.",
            ),
            ({"looks_like_photo": False}, "a screenshot or a drawing, not a photo."),
            ({"calibrated": False}, "the model has not learned to judge photos."),
        ],
    )
    def test_why_nothing_can_be_told(self, options, reason):
        said = verdict_sentence(localization(None, **options))
        assert said.startswith("It can't be told whether this photo was spliced: ")
        assert reason in said


class TestExplanations:
    @pytest.mark.parametrize("p_value", [0.01, 0.1, 0.6])
    def test_nobody_may_take_p_for_a_proof(self, p_value):
        meaning = explain_verdict(localization(p_value))
        assert "p is not the probability that the photo is spliced" in meaning

    def test_each_verdict_has_its_own(self):
        meanings = [explain_verdict(localization(p)) for p in (0.01, 0.1, 0.6)]
        meanings.append(explain_verdict(localization(None, shape=(40, 300))))
        assert len(set(meanings)) == 4
        assert "a reason to investigate" in meanings[0]
        assert "it may still be spliced" in meanings[2]
        assert "Look for a larger" in meanings[3]
        assert "calibrated" in explain_verdict(localization(None, calibrated=False))

    @pytest.mark.parametrize("p_value", [0.01, 0.1, 0.6])
    def test_a_marked_caption_is_called_one(self, p_value):
        pixels = np.random.default_rng(0).integers(0, 255, (*PHOTO, 3)).astype(np.uint8)
        pixels[260:] = 0
        region = np.zeros(PHOTO, np.float32)
        region[260:] = 1
        found = localization(p_value, region=region, pixels=pixels)
        sentence = "The marked part looks like a caption, a frame or a logo, which has a seam too."
        assert explain_verdict(found).startswith(sentence) == (p_value < 0.15)
        assert found.part_kind == ("graphic" if p_value < 0.15 else None)

    def test_what_can_not_be_seen(self):
        assert any("Generated images" in limit for limit in explain_limits())
        assert explain_limits(localization(0.5)) == explain_limits()
        limits = explain_limits(localization(0.5, jpeg_quality=71))
        assert "JPEG quality of about 71" in limits[0]
        assert limits[1:] == explain_limits()
