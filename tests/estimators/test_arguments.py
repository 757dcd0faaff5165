"""No argument changes what a number means in silence."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from cpcapp import (
    CPCAPlusPlus,
    LawOfNoiseWarning,
    Moments,
    NoComponentsWarning,
    pairwise_moments,
    permutation_test,
)


@pytest.fixture
def null():
    """Two samples of one heavy-tailed population."""
    rng = np.random.default_rng(1)
    return rng.lognormal(size=(120, 12)), rng.lognormal(size=(90, 12))


def fit_quietly(est, X, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoComponentsWarning)
        return est.fit(X, **arguments)


def counted(X, **arguments):
    options = {"missing": arguments.pop("missing", "error")}
    est = CPCAPlusPlus("auto", calibrate=True, **options)
    return fit_quietly(est, X, arguments)


SAME = {
    "weights of one": lambda X, B: {
        "background": B,
        "sample_weight": np.ones(len(X)),
        "background_sample_weight": np.full(len(B), 7.0),
    },
    "one background in a list": lambda X, B: {"background": [B]},
    "each row its own group": lambda X, B: {
        "background": B,
        "groups": np.arange(len(X)),
        "background_groups": np.arange(len(B)),
    },
    "nothing missing": lambda X, B: {"background": B, "missing": "pairwise"},
    "a mask": lambda X, B: {"is_background": np.arange(len(X) + len(B)) >= len(X)},
    "sparse": lambda X, B: {"background": sp.csr_array(B)},
    "an iterator of chunks": lambda X, B: {"background": iter([B[:50], B[50:]])},
    "a data frame": lambda X, B: {"background": pd.DataFrame(B)},
}


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("signal", [False, True])
def test_the_same_rows_give_the_same_test_and_the_same_p_values(null, kind, signal):
    X, B = null
    if signal:
        X = X * np.r_[6.0, np.ones(11)]
    plain = counted(X, background=B)
    given = np.vstack([X, B]) if kind == "a mask" else X
    found = counted(given, **SAME[kind](X, B))
    assert found.n_components_ == plain.n_components_ == int(signal)
    np.testing.assert_allclose(
        found.permutation_test_.p_values, plain.permutation_test_.p_values, atol=1e-12
    )
    np.testing.assert_allclose(found.p_value(X), plain.p_value(X), atol=1e-12)


@pytest.mark.parametrize("kind", ["noise covariate", "batches", "two backgrounds", "missing"])
def test_false_alarms_with_each_argument(rng, kind):
    """At .05; each of these was above .5 when another law was used for it in silence."""
    alarms = 0
    for _ in range(30):
        X, B = rng.lognormal(size=(80, 10)), rng.lognormal(size=(60, 10))
        arguments = {"background": B}
        if kind == "noise covariate":
            arguments |= {"covariates": rng.normal(size=80)}
            arguments |= {"background_covariates": rng.normal(size=60)}
        elif kind == "batches":
            batches = [rng.integers(0, 6, n).astype(str) for n in (80, 60)]
            arguments |= {"covariates": batches[0], "background_covariates": batches[1]}
        elif kind == "two backgrounds":
            arguments = {"background": [B, rng.lognormal(size=(50, 10)) + 3.0]}
        else:
            arguments |= {"missing": "pairwise"}
            X, B = (np.where(rng.random(rows.shape) < 0.1, np.nan, rows) for rows in (X, B))
            arguments["background"] = B
        est = CPCAPlusPlus("auto", missing=arguments.pop("missing", "error"))
        alarms += fit_quietly(est, X, arguments).n_components_ > 0
    assert alarms <= 6  # 1.5 are expected; P(more than 6) is 1e-4


@pytest.mark.parametrize("n", [(40, 300), (300, 40)])
def test_covariates_cost_the_smaller_set_no_more_than_the_larger(rng, n):
    """At .05; with the target the smaller set it was .9."""
    alarms = 0
    for _ in range(30):
        X, B, C, D = (rng.normal(size=(size, q)) for q in (8, 12) for size in n)
        alarms += permutation_test(X, B, covariates=C, background_covariates=D).n_components > 0
    assert alarms <= 6


def test_covariates_of_groups(rng):
    """At .05; with what patients differ by as covariates of their cells it was .25."""
    alarms = 0
    for _ in range(30):
        sides = []
        for n in (15, 18):
            labels = np.repeat(np.arange(n), 8)
            rows = rng.normal(size=(n, 10))[labels] + rng.normal(size=(8 * n, 10))
            sides.append((rows, labels, rng.normal(size=(n, 5))[labels]))
        (X, g, C), (B, h, D) = sides
        given = {"groups": g, "background_groups": h, "covariates": C, "background_covariates": D}
        alarms += permutation_test(X, B, **given).n_components > 0
    assert alarms <= 4


@pytest.mark.parametrize("n", [99.5, "99", True])
def test_the_number_of_permutations_is_whole(rng, n):
    with pytest.raises(TypeError, match=r"n_permutations=.* must be a whole number"):
        permutation_test(*rng.normal(size=(2, 30, 4)), n_permutations=n)


def test_a_law_for_gaussian_samples_says_so(rng):
    X, B = rng.normal(size=(200, 10)) * np.r_[4.0, np.ones(9)], rng.normal(size=(300, 10))
    with pytest.warns(LawOfNoiseWarning, match="only moments are at hand"):
        est = CPCAPlusPlus("auto").fit_moments(Moments.of(X), Moments.of(B))
    assert est.n_components_ == 1
    with pytest.raises(ValueError, match="calibrate=True needs the rows of both sets"):
        CPCAPlusPlus(1, calibrate=True).fit_moments(Moments.of(X), Moments.of(B))


def test_p_values_are_refused_where_they_can_not_hold(rng):
    X, B = rng.normal(size=(50, 5)), rng.normal(size=(19, 5))
    with pytest.raises(ValueError, match="at least 20 background rows, not 19"):
        CPCAPlusPlus(1, calibrate=True).fit(X, background=B)
    labels = {"groups": np.arange(50), "background_groups": np.arange(60) // 4}
    with pytest.raises(ValueError, match="at least 20 background groups, not 15"):
        CPCAPlusPlus(1, calibrate=True).fit(X, background=rng.normal(size=(60, 5)), **labels)
    est = CPCAPlusPlus(1).fit(X, background=B)
    assert est.smallest_p_value_ is None
    with pytest.raises(ValueError, match="calibrate=True"):
        est.p_value(X)
    with pytest.raises(ValueError, match="calibrate='auto' must be True or False"):
        CPCAPlusPlus(1, calibrate="auto").fit(X, background=B)
    with pytest.raises(ValueError, match="false_alarm_rate=7"):
        CPCAPlusPlus("auto", false_alarm_rate=7).fit(X, background=B)


def test_fewer_components_are_the_first_of_more(rng):
    X = rng.normal(size=(300, 20)) * np.r_[5.0, 4.0, 3.0, np.ones(17)]
    B = rng.normal(size=(300, 20))
    many = CPCAPlusPlus(10).fit(X, background=B)
    for k in (1, 2, 5):
        few = CPCAPlusPlus(k).fit(X, background=B)
        np.testing.assert_allclose(few.components_, many.components_[:k], atol=1e-7)


class TestNotes:
    @pytest.fixture
    def clean(self, rng):
        return rng.normal(size=(200, 8)), rng.normal(size=(200, 8))

    def test_one_bad_cell(self, clean):
        X, B = clean
        X[17, 3] = 1e3
        frame = pd.DataFrame(X, columns=list("abcdefgh"))
        est = CPCAPlusPlus(1).fit(frame, background=pd.DataFrame(B, columns=list("abcdefgh")))
        assert [note.code for note in est.notes_] == ["one-row"]
        assert "row 17 (feature 'd' = 1000) has 99 % of its variance" in est.notes_[0].text

    def test_a_single_one_in_a_feature_of_zeros(self, clean):
        X, B = clean
        X[:, 5], B[:, 5] = 0.0, 0.0
        X[40, 5] = 1.0
        est = CPCAPlusPlus(1).fit(X, background=B)
        assert "row 40" in est.notes_[0].text
        assert "'x5'" in est.notes_[0].text

    def test_components_that_both_sets_share(self, clean):
        X, B = clean
        X[:, 0] *= 4.0
        shared = np.r_[1.0, 30.0, 30.0, np.ones(5)]
        est = CPCAPlusPlus(3, loading=1.0).fit(X * shared, background=B * shared)
        assert [note.code for note in est.notes_] == ["no-contrast"]
        assert "no more in the target than in the background" in est.notes_[0].text
        assert CPCAPlusPlus(3).fit(X).notes_ == []  # without a background there is no contrast

    def test_nothing_to_say(self, clean):
        X, B = clean
        X[:, 2] *= 3.0
        for k in (1, "auto"):
            assert CPCAPlusPlus(k).fit(X, background=B).notes_ == []


class TestPandasObjectsGoByTheirLabels:
    @pytest.fixture
    def tables(self, rng):
        X, B = pd.DataFrame(rng.normal(size=(60, 4))), pd.DataFrame(rng.normal(size=(50, 4)))
        X[0] *= 3.0
        return X, B.set_axis([f"row{i}" for i in range(50)])

    @pytest.mark.parametrize("name", ["sample_weight", "groups", "covariates"])
    def test_what_belongs_to_rows(self, rng, tables, name):
        X, B = tables
        values = [pd.Series(rng.integers(1, 40, size=len(t)), t.index) for t in (X, B)]
        mixed = [one.sample(frac=1.0, random_state=0) for one in values]

        def fit(pair):
            est = CPCAPlusPlus(2, calibrate=True)
            est.fit(X, background=B, **dict(zip((name, f"background_{name}"), pair, strict=True)))
            return est.p_value(X), est.components_

        np.testing.assert_array_equal(fit(values)[0], fit(mixed)[0])
        np.testing.assert_array_equal(fit(values)[1], fit(mixed)[1])

    def test_a_mask(self, tables):
        both = pd.concat([tables[0], tables[1]])
        mask = pd.Series(np.arange(110) >= 60, both.index)
        expected = CPCAPlusPlus(2).fit(both, is_background=mask)
        found = CPCAPlusPlus(2).fit(both, is_background=mask[::-1])
        np.testing.assert_array_equal(found.components_, expected.components_)

    def test_moments_partial_fits_and_effects(self, rng, tables):
        X, B = tables
        weights = pd.Series(rng.random(60), X.index)
        one, other = (Moments.of(X, sample_weight=w) for w in (weights, weights[::-1]))
        np.testing.assert_array_equal(one.mean, other.mean)
        X.iloc[0, 0] = np.nan
        one, other = (pairwise_moments(X, w) for w in (weights, weights[::-1]))
        np.testing.assert_array_equal(one.mean, other.mean)
        X = X.fillna(0.0)
        one, other = (
            CPCAPlusPlus(2).partial_fit(X, background=B, sample_weight=w)
            for w in (weights, weights[::-1])
        )
        np.testing.assert_array_equal(one.components_, other.components_)
        est = CPCAPlusPlus(2).fit(X, background=B, covariates=weights, background_covariates=B[0])
        np.testing.assert_array_equal(
            est.remove_covariates(X, weights[::-1]), est.remove_covariates(X, weights)
        )

    def test_other_labels_are_refused(self, tables):
        X, B = tables
        with pytest.raises(ValueError, match="sample_weight has other labels in its index"):
            CPCAPlusPlus(2).fit(X, background=B, sample_weight=pd.Series(1.0, X.index + 1))
        with pytest.raises(ValueError, match="background_groups has other labels"):
            CPCAPlusPlus(2).fit(
                X, background=B, groups=X.index, background_groups=pd.Series(range(50))
            )
        CPCAPlusPlus(2).fit(X, background=B, sample_weight=np.ones(60))  # arrays go by position


def test_weights_of_partial_fit_may_be_a_list(rng):
    X, B = rng.normal(size=(60, 4)) * [9.0, 1.0, 1.0, 1.0], rng.normal(size=(50, 4))
    weights = [0.0, 2.0] * 30
    found = CPCAPlusPlus("auto").partial_fit(X, background=B, sample_weight=weights)
    expected = CPCAPlusPlus("auto").partial_fit(X, background=B, sample_weight=np.array(weights))
    assert found.permutation_test_ == expected.permutation_test_
