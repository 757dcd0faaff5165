from __future__ import annotations

import numpy as np
import pytest

from cpcapp import (
    CPCAPlusPlus,
    Moments,
    count_components,
    noise_threshold,
    power_p_value,
    wachter_edge,
)
from cpcapp.datasets import synthetic


class TestPower:
    def test_is_chi_squared_for_white_outputs(self, rng):
        p = power_p_value((rng.normal(size=(20_000, 3)) ** 2).sum(axis=1), np.eye(3))
        for level in (0.01, 0.1, 0.5):
            assert (p < level).mean() == pytest.approx(level, abs=4 * np.sqrt(level / 20_000))

    def test_correlated_outputs(self, rng):
        mixing = np.array([[1.0, 0.0], [0.8, 0.5]])
        p = power_p_value(
            ((rng.normal(size=(50_000, 2)) @ mixing.T) ** 2).sum(1), mixing @ mixing.T
        )
        assert (p < 0.05).mean() == pytest.approx(0.05, rel=0.15)

    def test_no_components(self):
        np.testing.assert_array_equal(power_p_value([0.0, 0.0], np.empty((0, 0))), 1.0)


class TestNoise:
    def test_the_edge_is_where_the_eigenvalues_end(self, rng):
        edge = wachter_edge(2000, 3000, 400)
        X, B = rng.normal(size=(2000, 400)), rng.normal(size=(3000, 400))
        est = CPCAPlusPlus(1, loading="none").fit(X, background=B)
        assert est.eigenvalues_[0] == pytest.approx(edge, rel=0.03)

    def test_the_threshold_closes_in_on_the_edge(self):
        small = noise_threshold(60, 80, 10) / wachter_edge(60, 80, 10)
        large = noise_threshold(60_000, 80_000, 10_000) / wachter_edge(60_000, 80_000, 10_000)
        assert 1.0 < large < 1.01 < small

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
