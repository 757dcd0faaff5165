"""What the method promises on real measurements."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.datasets import mice_protein


@pytest.fixture(scope="module")
def mice(data_folder):
    """Shocked mice against unshocked control mice, as in the paper: 270 and 135 samples."""
    data = mice_protein(data_home=data_folder)
    return data.target, data.background, data.labels


def agreement(scores, labels):
    scores = np.asarray(scores) / np.std(scores, axis=0)
    return adjusted_rand_score(labels, KMeans(2, n_init=10, random_state=0).fit_predict(scores))


def test_mice_have_the_papers_counts(mice):
    target, background, labels = mice
    assert target.shape == (270, 77)
    assert background.shape == (135, 77)
    assert labels.sum() == 135


def test_down_syndrome_mice_come_apart_with_nothing_tuned(mice):
    target, background, labels = mice
    est = CPCAPlusPlus().fit(target, background=background)
    assert agreement(est.transform(target), labels) > 0.78
    assert agreement(CPCAPlusPlus().fit_transform(target), labels) < 0.2


def test_the_loading_is_what_makes_it_work(mice):
    """Two proteins are copies of each other: without loading there is no answer at all."""
    target, background, labels = mice
    with pytest.raises(ValueError, match="rank is 76 of 77"):
        CPCAPlusPlus(loading="none").fit(target, background=background)
    least = CPCAPlusPlus(loading="diagonal").fit(target, background=background)
    assert agreement(least.transform(target), labels) < 0.5


def test_how_many_components(mice):
    target, background, _ = mice
    est = CPCAPlusPlus("auto").fit(target, background=background)
    assert 2 <= est.n_components_ <= 15
    rng = np.random.default_rng(0)
    halves = rng.permutation(135)
    null = CPCAPlusPlus("permutation", false_alarm_rate=0.02)
    null.fit(background[halves[:67]], background=background[halves[67:]])
    assert null.n_components_ == 0


def test_cpca_offers_a_view_that_works(mice):
    target, background, labels = mice
    est = CPCA().fit(target, background=background)
    offered = [agreement(est.transform_at(target, a), labels) for a in est.selected_alphas_]
    assert max(offered) > 0.6
