from __future__ import annotations

import pytest

from cpcapp import (
    CPCAPlusPlus,
    Moments,
    count_components,
    noise_threshold,
)
from cpcapp.datasets import synthetic


class TestNoise:
    def test_the_threshold_is_near_the_largest_eigenvalue_of_noise(self, rng):
        X, B = rng.normal(size=(2000, 400)), rng.normal(size=(3000, 400))
        est = CPCAPlusPlus(1, loading="none").fit(X, background=B)
        assert est.eigenvalues_[0] == pytest.approx(noise_threshold(2000, 3000, 400), rel=0.03)

    @pytest.mark.parametrize(("n_f", "n_b", "m"), [(120, 150, 20), (15, 200, 30), (60, 45, 30)])
    def test_false_alarm_rate(self, rng, n_f, n_b, m):
        """Two samples of one population, of any covariance, are told apart at the stated rate."""
        mixing = rng.normal(size=(m, m))
        runs = 600
        alarms = sum(
            count_components(
                Moments.of(rng.normal(size=(n_f, m)) @ mixing),
                Moments.of(rng.normal(size=(n_b, m)) @ mixing),
                false_alarm_rate=0.1,
            )
            > 0
            for _ in range(runs)
        )
        # Binomial: 60 expected, standard deviation 7.3; Johnstone's law is good to a few percent.
        assert 0.06 < alarms / runs < 0.14

    def test_what_is_there_is_counted(self):
        for seed in range(5):
            data = synthetic(random_state=seed)
            target, background = Moments.of(data.target), Moments.of(data.background)
            assert count_components(target, background) == 2

    def test_bad_input(self):
        with pytest.raises(ValueError, match="target must be Moments with samples"):
            count_components(Moments(), Moments())
        with pytest.raises(ValueError, match="needs more than 31 background samples"):
            noise_threshold(100, 31, 30)
        with pytest.raises(ValueError, match="false_alarm_rate=0 must be between 0 and 1"):
            noise_threshold(100, 100, 30, false_alarm_rate=0)
