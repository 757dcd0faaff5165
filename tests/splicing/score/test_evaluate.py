from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from cpcapp.splicing.score.evaluate import PhotoVerdict, VerdictScores


def photo(name, authentic, score, size=(10, 20), p_value=0.5):
    return PhotoVerdict(name, authentic, *size, score, p_value)


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
)
def test_the_area_is_scikit_learns(spliced, authentic):
    photos = [photo(f"s{i}", False, float(v)) for i, v in enumerate(spliced)]
    photos += [photo(f"a{i}", True, float(v)) for i, v in enumerate(authentic)]
    wanted = roc_auc_score([1] * len(spliced) + [0] * len(authentic), spliced + authentic)
    found = VerdictScores(tuple(photos))
    assert found.auc() == pytest.approx(wanted)
    assert found.auc(same_size=True) == pytest.approx(wanted)


def test_a_score_that_only_sees_the_size_is_worth_nothing():
    """Large photos score high: good over all pairs, chance over pairs of one size."""
    rng = np.random.default_rng(0)
    photos = []
    for i in range(200):
        large, authentic = i % 4 != 0, i % 2 == 0
        side = 100 if large else 50
        photos.append(photo(str(i), authentic, side + rng.random(), (side, side)))
    found = VerdictScores(tuple(photos))
    assert found.auc() > 0.7
    assert found.auc(same_size=True) == pytest.approx(0.5, abs=0.1)


def test_photos_without_a_score_are_counted_apart():
    photos = (photo("a", True, None), photo("b", True, 1.0, p_value=0.01), photo("c", False, 2.0))
    told = VerdictScores(photos).to_dict()
    assert (told["n_spliced"], told["n_authentic"], told["n_without_score"]) == (1, 1, 1)
    assert told["alarms_on_authentic"] == 1.0
    assert told["found_of_spliced"] == 0.0


def test_weak_signs_are_counted_apart_from_signs():
    p_values = (0.05, 0.06, 0.1, 0.15, 0.16, None, 0.01, 0.9)
    photos = tuple(photo(str(i), False, 1.0, p_value=p) for i, p in enumerate(p_values))
    found = VerdictScores((*photos, photo("a", True, 1.0, p_value=0.1)))
    assert (found.alarms(authentic=False), found.weak_signs(authentic=False)) == (2 / 8, 3 / 8)
    told = found.to_dict()
    assert (told["weak_level"], told["weak_on_authentic"], told["weak_of_spliced"]) == (
        *(0.15, 1.0, 3 / 8),
    )
    assert "25 % of 8 spliced photos and 0 % of 1 authentic ones" in found.describe()
    assert "weak signs (p <= 0.15) in 38 % and 100 %" in found.describe()


def test_nothing_to_compare_gives_nothing():
    found = VerdictScores((photo("a", False, 1.0),))
    assert found.auc() is None
    assert found.alarms() is None
    sizes = VerdictScores((photo("a", False, 1.0, (1, 2)), photo("b", True, 1.0, (2, 1))))
    assert sizes.auc(same_size=True) is None


def test_photos_without_a_p_value_raise_no_alarm():
    """They are photos all the same: of four authentic ones with one alarm it is a quarter."""
    p_values = (0.01, 0.5, None, None)
    photos = [PhotoVerdict(str(i), True, 9, 9, 1.0, p) for i, p in enumerate(p_values)]
    scores = VerdictScores((*photos, PhotoVerdict("small", True, 9, 9, None, None)))
    assert scores.alarms() == 0.25
    assert scores.weak_signs() == 0.0
    assert scores.to_dict()["n_without_p_value"] == 2
    assert scores.to_dict()["n_without_score"] == 1
