from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from sklearn.covariance import OAS

from cpcapp import permutation_test
from cpcapp.inference.permutation import count_components_of
from cpcapp.moments.sample import make_sample, mix_samples

KINDS = ["Gaussian", "t5 rows", "lognormal", "rare binary"]


def draw(kind, rng, n, p):
    if kind == "Gaussian":
        return rng.normal(size=(n, p))
    if kind == "t5 rows":  # one scale for all features of a row
        return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    if kind == "lognormal":
        return np.exp(rng.normal(size=(n, p)))
    return (rng.random((n, p)) < 0.03).astype(float)


def alarms(pairs, **options):
    return sum(
        permutation_test(*pair, n_permutations=19, random_state=i, **options).n_components > 0
        for i, pair in enumerate(pairs)
    )


# Of 60 sets 3 are expected to raise a false alarm at .05; P(> 9) < .001.
SETS, MOST = 60, 9


class TestFalseAlarms:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("n_f", "n_b", "p"), [(10, 6, 50), (12, 12, 8), (25, 25, 40)])
    def test_small_samples(self, rng, kind, n_f, n_b, p):
        pairs = ((draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)) for _ in range(SETS))
        assert alarms(pairs) <= MOST

    @pytest.mark.parametrize("kind", KINDS)
    def test_means_apart(self, rng, kind):
        shift = 3.0 * rng.normal(size=40)
        pairs = ((draw(kind, rng, 25, 40) + shift, draw(kind, rng, 25, 40)) for _ in range(SETS))
        assert alarms(pairs) <= MOST

    @pytest.mark.parametrize("weigh", [np.ones_like, lambda x: 3.0 * x])
    def test_weights(self, rng, weigh):
        count = 0
        for _ in range(SETS):
            X, B = draw("lognormal", rng, 50, 20), draw("lognormal", rng, 50, 20)
            weights = {
                name: weigh(rng.exponential(size=50))
                for name in ("sample_weight", "background_sample_weight")
            }
            count += alarms([(X, B)], **weights)
        assert count <= MOST

    @pytest.mark.parametrize("kind", ["Gaussian", "lognormal", "rare binary"])
    @pytest.mark.parametrize(("n_f", "n_b"), [(200, 60), (40, 200)])
    def test_covariates_cost_degrees_of_freedom(self, rng, kind, n_f, n_b):
        """Twelve batches that differ, with few rows each in one of the sets."""
        count = 0
        for _ in range(SETS):
            effects = 3.0 * rng.normal(size=(12, 10))
            batches = [rng.integers(12, size=n) for n in (n_f, n_b)]
            X, B = (draw(kind, rng, len(b), 10) + effects[b] for b in batches)
            names = [b.astype(str) for b in batches]
            given = {"covariates": names[0], "background_covariates": names[1]}
            count += alarms([(X, B)], **given)
        assert count <= MOST

    def test_many_noise_covariates(self, rng):
        count = 0
        for i in range(20):
            X, B = draw("lognormal", rng, 100, 8), draw("lognormal", rng, 100, 8)
            noise = rng.normal(size=(2, 100, 40))
            count += (
                permutation_test(
                    X, B, covariates=noise[0], background_covariates=noise[1], random_state=i
                ).n_components
                > 0
            )
        assert count <= 4

    def test_several_backgrounds(self, rng):
        count = 0
        for i in range(SETS):
            parts = [make_sample(draw("lognormal", rng, 30, 20) + shift) for shift in (0.0, 5.0)]
            background = mix_samples(parts, np.array([0.5, 0.5]))
            target = make_sample(draw("lognormal", rng, 60, 20))
            found = count_components_of(target, background, n_permutations=19, random_state=i)
            count += found.n_components > 0
        assert count <= MOST

    def test_missing_values_in_one_set(self, rng):
        """Filled in, correlated features would lose their correlation in that set."""
        mixing = np.full((8, 8), 0.9) + 0.1 * np.eye(8)
        pairs = []
        for _ in range(SETS):
            X, B = (rng.normal(size=(80, 8)) @ np.linalg.cholesky(mixing).T for _ in "fb")
            X[rng.random(X.shape) < 0.3] = np.nan
            pairs.append((X, B))
        assert alarms(pairs, missing="pairwise") <= MOST

    def test_copies_of_rows_are_no_evidence(self, rng):
        labels = np.repeat(np.arange(15), 6)
        pairs = [
            tuple(np.repeat(rng.normal(size=(15, 8)), 6, axis=0) for _ in "fb") for _ in range(20)
        ]
        grouped = alarms(pairs, groups=labels, background_groups=labels)
        assert grouped <= 4 < 12 <= alarms(pairs)


class TestPower:
    @pytest.mark.parametrize("kind", ["Gaussian", "t5 rows"])
    @pytest.mark.parametrize("mixed", [False, True])
    def test_one_direction_is_counted_as_one(self, rng, kind, mixed):
        counts = []
        for i in range(12):
            X, B = draw(kind, rng, 80, 40), draw(kind, rng, 80, 40)
            X[:, 0] *= np.sqrt(8)
            mixing = np.linalg.qr(rng.normal(size=(40, 40))).Q if mixed else np.eye(40)
            counts.append(permutation_test(X @ mixing, B @ mixing, random_state=i).n_components)
        assert counts.count(1) >= 9
        assert 0 not in counts

    def test_three_directions_among_more_features_than_rows(self, rng):
        X, B = rng.normal(size=(60, 150)), rng.normal(size=(60, 150))
        X[:, :3] *= [7, 6, 5]
        found = permutation_test(X, B)
        assert found.n_components == 3
        assert found.p_values == (0.01, 1.0)  # all in one step
        assert found.p_value == 0.01
        assert set(np.abs(found.filters).argmax(axis=0)) <= {0, 1, 2}
        assert np.linalg.matrix_rank(found.filters[:3], tol=0.1 * np.abs(found.filters).max()) == 3

    def test_what_was_found_is_in_the_units_of_the_rows(self, rng):
        X, B = rng.normal(size=(200, 5)) * [4, 1, 3, 1, 1], rng.normal(size=(200, 5))
        scale = 10.0 ** np.arange(-4, 1)
        one, other = permutation_test(X, B), permutation_test(X * scale, B * scale)
        assert one.n_components == other.n_components == 2
        assert one.threshold == pytest.approx(other.threshold)
        np.testing.assert_allclose(np.abs(one.filters), np.abs(other.filters * scale[:, None]))
        ratio = (X @ one.filters).var(axis=0) / (B @ one.filters).var(axis=0)
        np.testing.assert_allclose(ratio, [16, 9], rtol=0.35)

    @pytest.mark.parametrize("p", [30, 200])
    @pytest.mark.parametrize("kind", ["rare", "once", "tiny noise"])
    def test_features_that_are_almost_constant_hide_nothing(self, rng, kind, p):
        """Shuffled, each of them would be constant in the background now and then."""
        rare = {
            "rare": lambda: (rng.random((100, p)) < 0.01).astype(float),
            "once": lambda: np.eye(100)[:, rng.integers(100, size=p)],
            "tiny noise": lambda: 5.0 + 1e-6 * rng.normal(size=(100, p)),
        }[kind]
        for _ in range(3):
            X, B = rng.normal(size=(100, 20)), rng.normal(size=(100, 20))
            X[:, 0] += 5.0 * rng.integers(2, size=100)
            found = permutation_test(np.hstack([X, rare()]), np.hstack([B, rare()]))
            assert found.n_components >= 1
            assert np.abs(found.filters[:, 0] * np.r_[X.std(axis=0), np.zeros(p)]).argmax() == 0

    def test_one_bad_cell_is_not_counted(self, rng):
        X, B = rng.normal(size=(60, 10)), rng.normal(size=(60, 10))
        X[7, 3] = 1e3
        assert permutation_test(X, B).n_components == 0


class TestStatistic:
    @pytest.mark.parametrize("p", [6, 70])  # in features, and in rows
    def test_is_the_largest_contrast_in_its_units(self, rng, p):
        """By scikit-learn's OAS and SciPy, on Gaussian rows none of which lies far out."""
        X, B = (np.clip(rng.normal(size=(30, p)), -1.5, 1.5) for _ in "fb")
        both = np.vstack([X, B])
        units = 0.9 * B.var(axis=0, ddof=1) + 0.1 * both.var(axis=0)
        R_f = np.cov((X / np.sqrt(units)).T)
        R_b = np.cov((B / np.sqrt(units)).T)
        share = (
            OAS(assume_centered=True)
            .fit((B - B.mean(axis=0)) / np.sqrt(units) * np.sqrt(30 / 29))
            .shrinkage_
        )
        loaded = (1 - share) * R_b + share * np.trace(R_b) / p * np.eye(p)
        expected = eigh(R_f, loaded, eigvals_only=True)[-1]
        assert permutation_test(X, B).largest == pytest.approx(expected, rel=1e-5)

    def test_p_value_is_a_rank(self, rng):
        X, B = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
        test = permutation_test(X, B, false_alarm_rate=0.5, n_permutations=39)
        below = test.p_value <= 0.5
        assert below == (test.n_components > 0) == (test.largest > test.threshold)

    @pytest.mark.parametrize("p", [15, 120])
    def test_sparse_is_dense(self, rng, p):
        X, B = rng.poisson(0.3, size=(40, p)) * 1.0, rng.poisson(0.3, size=(50, p)) * 1.0
        X[:, 0] *= 4.0
        dense = permutation_test(X, B)
        for kinds in ((sp.csr_array, sp.csr_array), (sp.csc_matrix, np.asarray)):
            assert permutation_test(kinds[0](X), kinds[1](B)) == dense

    def test_weights_of_zero_are_no_rows(self, rng):
        X, B = rng.normal(size=(40, 4)) * [3, 1, 1, 1], rng.normal(size=(40, 4))
        weights = np.repeat([1.0, 0.0], 20)
        found = permutation_test(X, B, sample_weight=weights)
        assert found == permutation_test(X[:20], B)

    def test_a_part_of_many_rows(self, rng):
        X, B = rng.normal(size=(30_000, 3)) * [2, 1, 1], rng.normal(size=(2000, 3))
        found = permutation_test(X, B, n_permutations=19)
        assert found.n_rows == (8000, 2000)
        assert found.n_components >= 1
        assert found.largest == pytest.approx(4.0, rel=0.15)

    def test_stops_early_where_there_is_nothing(self, rng):
        X, B = rng.normal(size=(50, 8)), rng.normal(size=(40, 8))
        found = permutation_test(X, B)
        assert found.n_permutations < 99
        assert found.n_components == 0
        assert 0.05 < found.p_value <= 1.0

    @pytest.mark.parametrize("p", [3, 100])
    def test_features_without_variance(self, p):
        found = permutation_test(np.ones((30, p)), np.ones((30, p)))
        assert (found.n_components, found.p_value) == (0, 1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": np.arange(6)}, "groups was given without background_groups"),
        ({"background_groups": np.arange(4)}, "background_groups was given without groups"),
        (
            {"groups": np.arange(5), "background_groups": np.arange(4)},
            r"groups has shape \(5,\); it must be \(6,\)",
        ),
        (
            {"groups": np.zeros(6), "background_groups": np.arange(4)},
            "groups has 1 group; at least 2",
        ),
        (
            {"groups": np.repeat([0, 1], 3), "background_groups": np.repeat([0, 1], 2)},
            "can be arranged in 6 ways only, too few for false_alarm_rate=0.05",
        ),
        (
            {"groups": np.full(6, np.nan), "background_groups": np.arange(4)},
            "groups contains NaN",
        ),
        ({"false_alarm_rate": 7}, "false_alarm_rate=7 must be between 0 and 1"),
        ({"false_alarm_rate": "5%"}, "false_alarm_rate='5%' must be between 0 and 1"),
        ({"n_permutations": 5}, "n_permutations=5 must be at least 19"),
        ({"sample_weight": np.ones(5)}, r"sample_weight has shape \(5,\)"),
        ({"background_sample_weight": [1, 0, 0, 0]}, "1 rows are too few"),
        ({"covariates": np.arange(6)}, "covariates without background_covariates"),
        (
            {"covariates": np.arange(6.0), "background_covariates": np.full(4, np.nan)},
            "background_covariates has NaN in 4 rows",
        ),
    ],
)
def test_bad_input(rng, given, message):
    X, B = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    with pytest.raises(ValueError, match=message):
        permutation_test(X, B, **given)


def test_shuffled_groups_of_fewer_rows_than_covariates(rng):
    groups = np.repeat(np.arange(6), [40, 1, 1, 1, 1, 1])
    X, B, Z, V = (rng.normal(size=(45, q)) for q in (6, 6, 8, 8))
    found = permutation_test(
        X, B, groups=groups, background_groups=groups, covariates=Z, background_covariates=V
    )
    assert found.n_components == 0


def test_bad_rows(rng):
    X = rng.normal(size=(6, 3))
    with pytest.raises(ValueError, match="background has 2 features, but X has 3"):
        permutation_test(X, X[:, :2])
    with pytest.raises(ValueError, match="X contains NaN or infinity in column 0"):
        permutation_test(np.where(X[0, 0] == X, np.inf, X), X)
