"""What the method promises on real measurements."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.datasets import mice_protein
from cpcapp.estimators import NoComponentsWarning


@pytest.fixture(scope="module")
def mice(data_folder):
    """Shocked mice against unshocked control mice, as in the paper: 270 and 135 samples."""
    data = mice_protein(data_home=data_folder)
    return data.target, data.background, data.labels


@pytest.fixture(scope="module")
def digits_over_grass(data_folder):
    """Zeros and ones at a quarter of their brightness over grass, against other grass."""
    rng = np.random.default_rng(0)
    with np.load(data_folder / "mnist" / "mnist.npz") as archive:
        chosen = rng.choice(np.flatnonzero(archive["y_train"] <= 1), 5000, replace=False)
        digits, labels = archive["x_train"][chosen] / 255.0, archive["y_train"][chosen]
    photos = [
        np.asarray(Image.open(path).convert("L")) / 255.0
        for path in sorted((data_folder / "grass").glob("*.jpg"))
    ]

    def crops(n):
        for _ in range(n):
            photo = photos[rng.integers(len(photos))]
            top, left = (rng.integers(size - 27) for size in photo.shape)
            yield photo[top : top + 28, left : left + 28].ravel()

    grass = np.array(list(crops(10_000)))
    return grass[:5000] + 0.25 * digits.reshape(5000, -1), grass[5000:], labels


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
    least = CPCAPlusPlus(loading=1e-6).fit(target, background=background)
    assert agreement(least.transform(target), labels) < 0.5


def test_how_many_components(mice):
    target, background, _ = mice
    est = CPCAPlusPlus("auto").fit(target, background=background)
    assert 2 <= est.n_components_ <= 15
    rng = np.random.default_rng(0)
    halves = rng.permutation(135)
    null = CPCAPlusPlus("permutation", false_alarm_rate=0.02)
    with pytest.warns(NoComponentsWarning):
        null.fit(background[halves[:67]], background=background[halves[67:]])
    assert null.n_components_ == 0


def test_cpca_works_with_nothing_tuned(mice):
    target, background, labels = mice
    est = CPCA().fit(target, background=background)
    assert agreement(est.transform(target), labels) > 0.6


def test_digits_come_out_of_the_grass_with_nothing_tuned(digits_over_grass):
    target, background, labels = digits_over_grass
    est = CPCAPlusPlus().fit(target, background=background)
    ours = agreement(est.transform(target), labels)
    assert ours > 0.8
    # No worse than cPCA with the labels to choose α by, and the plain ratio falls short.
    other = {
        a: agreement(CPCA(alpha=a).fit(target, background=background).transform(target), labels)
        for a in (2.0, 4.0, 6.0, 10.0, 16.0)
    }
    assert ours > max(other.values()) - 0.02
    plain = CPCAPlusPlus(loading="oas").fit(target, background=background)
    assert agreement(plain.transform(target), labels) < ours - 0.05
    assert agreement(CPCAPlusPlus().fit_transform(target), labels) < 0.1
