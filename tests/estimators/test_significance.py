"""What takes the data once more: held-out contrasts, and stability of directions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cpcapp import CPCA, CPCAPlusPlus, Moments, bootstrap, held_out_contrasts
from cpcapp.estimators import NoComponentsWarning


def one_direction(rng, n, p, contrast):
    """Two sets that differ in the variance of one feature."""
    X, B = rng.normal(size=(n, p)), rng.normal(size=(n, p))
    X[:, 0] *= np.sqrt(contrast)
    return X, B


class TestHeldOutContrasts:
    def test_unbiased_where_the_contrast_of_the_fit_is_far_too_high(self, rng):
        fitted, held = [], []
        for _ in range(15):
            X, B = one_direction(rng, 60, 40, 9.0)
            est = CPCAPlusPlus(1).fit(X, background=B)
            # What the filter is worth on many new rows is the truth to compare with.
            new, other = one_direction(rng, 20_000, 40, 9.0)
            true = est.transform(new).var() / est.transform(other).var()
            fitted.append(est.contrast_[0] / true)
            held.append(held_out_contrasts(est, X, B).contrasts[0] / true)
        assert np.median(fitted) > 1.6
        assert 0.7 < np.median(held) < 1.3

    def test_intervals_hold_the_truth(self, rng):
        inside = 0
        for _ in range(40):
            X, B = one_direction(rng, 300, 10, 5.0)
            est = CPCAPlusPlus(1).fit(X, background=B)
            low, high = held_out_contrasts(est, X, B).intervals[0]
            inside += low < 5.0 < high
        assert inside >= 34

    def test_as_the_estimator_was_fitted(self, rng):
        X, B = one_direction(rng, 200, 6, 9.0)
        w = rng.integers(1, 4, 200)
        est = CPCAPlusPlus(2).fit(X, background=B, sample_weight=w)
        found = held_out_contrasts(est, X, B, sample_weight=w)
        assert found.contrasts.shape == (2,)
        assert found.intervals.shape == (2, 2)
        assert not np.allclose(found.contrasts, held_out_contrasts(est, X, B).contrasts)
        both, mask = np.vstack([X, B]), np.arange(400) >= 200
        marked = held_out_contrasts(
            est, both, is_background=mask, sample_weight=np.r_[w, np.ones(200)]
        )
        np.testing.assert_allclose(marked.contrasts, found.contrasts)

    def test_bad_input(self, rng):
        X, B = one_direction(rng, 50, 6, 9.0)
        est = CPCAPlusPlus(1).fit(X, background=B)
        with pytest.raises(TypeError, match="must be a CPCAPlusPlus, not CPCA"):
            held_out_contrasts(CPCA(1).fit(X, background=B), X, B)
        with pytest.raises(ValueError, match="folds=1 must be at least 2"):
            held_out_contrasts(est, X, B, folds=1)
        for arguments, message in (
            ((X,), "there is no background"),
            ((X[:, :3], B[:, :3]), "X has 3 features, but the estimator was fitted to 6"),
            ((X, Moments.of(B, form="scatter")), "only its moments"),
            ((X, B[:3]), "at least 4 rows"),
        ):
            with pytest.raises(ValueError, match=message):
                held_out_contrasts(est, *arguments)
        with pytest.raises(ValueError, match="level=2 must be between 0 and 1"):
            held_out_contrasts(est, X, B, level=2)
        for name in ("missing", "weights"):
            with pytest.raises(TypeError, match=f"'{name}' can't be given; fit takes sample_weigh"):
                held_out_contrasts(est, X, B, **{name: None})


class TestBootstrap:
    def test_groups_are_drawn_whole(self, rng):
        """Copies of few rows are no more than those rows."""
        X, B = one_direction(rng, 30, 5, 4.0)
        est = CPCAPlusPlus(1).fit(np.repeat(X, 8, axis=0), background=np.repeat(B, 8, axis=0))
        copies = np.repeat(X, 8, axis=0), np.repeat(B, 8, axis=0)
        labels = np.repeat(np.arange(30), 8)
        alone = bootstrap(est, *copies, n=60)
        together = bootstrap(est, *copies, n=60, groups=labels, background_groups=labels)
        assert together.angles.mean() > 1.5 * alone.angles.mean()

    def test_a_clear_direction_stays(self, rng):
        X, B = one_direction(rng, 300, 5, 9.0)
        names = list("abcde")
        est = CPCAPlusPlus(1).fit(
            pd.DataFrame(X, columns=names), background=pd.DataFrame(B, columns=names)
        )
        found = bootstrap(
            est, pd.DataFrame(X, columns=names), pd.DataFrame(B, columns=names), n=50, n_top=1
        )
        assert found.top_frequency[0, 0] == 1.0
        assert np.quantile(found.angles, 0.9) < 20.0
        assert found.atom_intervals.shape == (1, 5, 2)

    def test_nothing_to_resample(self, rng):
        X, B = rng.normal(size=(2, 50, 6))
        with pytest.warns(NoComponentsWarning):
            est = CPCAPlusPlus("auto").fit(X, background=B)
        with pytest.raises(ValueError, match="has no components"):
            bootstrap(est, X, B)
