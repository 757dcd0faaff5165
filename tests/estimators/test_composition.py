"""Pipelines, searches and routing: what works, and the two traps that must be loud."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from cpcapp import CPCA, CPCAPlusPlus, Moments
from cpcapp.datasets import synthetic


@pytest.fixture
def data():
    return synthetic(200, 200, random_state=3)


@pytest.fixture
def stacked(data):
    """Target and background in one matrix, with labels that are -1 for background."""
    X = np.vstack([data.target, data.background])
    mask = np.r_[np.zeros(200, bool), np.ones(200, bool)]
    return X, mask, np.r_[data.labels, np.full(200, -1)]


class Holder(BaseEstimator):
    """An estimator with a background of its own."""

    def __init__(self, background=None):
        self.background = background

    def fit(self, X, y=None):
        self.found_ = CPCAPlusPlus().fit(X, background=self.background)
        return self

    def score(self, X, y=None):
        return self.found_.power(X).mean()


class TestCutByFold:
    @pytest.mark.parametrize("n_jobs", [None, 2])
    def test_a_plain_array_of_equal_length_is_refused(self, data, n_jobs):
        search = GridSearchCV(
            make_pipeline(CPCAPlusPlus(), KNeighborsClassifier()),
            {"cpcaplusplus__n_components": [1, 2]},
            n_jobs=n_jobs,
            error_score="raise",
        )
        with pytest.raises(
            ValueError, match=r"as many rows as X .* which cuts such arrays by fold"
        ):
            search.fit(data.target, data.labels, cpcaplusplus__background=data.background)

    def test_what_an_estimator_holds_itself_was_not_cut(self, data):
        held = data.background[:160]  # as many rows as a fold leaves
        scores = cross_val_score(Holder(held), data.target, cv=5, error_score="raise")
        assert len(scores) == 5

    def test_in_cross_val_predict_too(self, data):
        model = make_pipeline(CPCA(alpha=1.0), KNeighborsClassifier())
        with pytest.raises(ValueError, match="which cuts such arrays by fold"):
            cross_val_predict(
                model, data.target, data.labels, params={"cpca__background": data.background}
            )

    @pytest.mark.parametrize("estimator", [CPCAPlusPlus(), CPCA(alpha=2.7)])
    def test_moments_go_through_whole(self, data, estimator):
        name = type(estimator).__name__.lower()
        search = GridSearchCV(
            make_pipeline(estimator, KNeighborsClassifier()),
            {f"{name}__n_components": [1, 2]},
            error_score="raise",
        )
        search.fit(data.target, data.labels, **{f"{name}__background": Moments.of(data.background)})
        assert search.best_params_ == {f"{name}__n_components": 2}
        assert search.best_score_ > 0.95
        if isinstance(estimator, CPCAPlusPlus):
            assert search.best_estimator_[0].n_samples_seen_ == (200, 200)

    def test_another_length_goes_through_whole(self, data):
        scores = cross_val_score(
            make_pipeline(CPCAPlusPlus(), KNeighborsClassifier()),
            data.target,
            data.labels,
            params={"cpcaplusplus__background": data.background[:150]},
            error_score="raise",
        )
        assert scores.mean() > 0.95

    @pytest.mark.parametrize("n_jobs", [None, 2])
    def test_a_background_as_long_as_a_fold_was_not_cut(self, data, n_jobs):
        """Of 200 rows 160 are left to train on: as many as this background has."""
        scores = cross_val_score(
            make_pipeline(CPCAPlusPlus(), KNeighborsClassifier()),
            data.target,
            data.labels,
            params={"cpcaplusplus__background": data.background[:160]},
            error_score="raise",
            n_jobs=n_jobs,
        )
        assert scores.mean() > 0.95

    def test_the_mask_is_cut_with_the_rows_and_that_is_right(self, stacked):
        X, mask, y = stacked
        scores = cross_val_score(
            make_pipeline(StandardScaler(), CPCAPlusPlus(), KNeighborsClassifier()),
            X,
            y,
            params={"cpcaplusplus__is_background": mask},
            error_score="raise",
        )
        assert scores.mean() > 0.7

    def test_equal_lengths_are_fine_elsewhere(self, data):
        CPCAPlusPlus().fit(data.target, background=data.background)
        CPCAPlusPlus().partial_fit(data.target, background=data.background)


class TestSkippedSteps:
    @pytest.mark.parametrize("as_moments", [False, True])
    def test_an_unscaled_background_is_refused(self, data, as_moments):
        background = Moments.of(data.background) if as_moments else data.background
        pipeline = make_pipeline(StandardScaler(), CPCAPlusPlus())
        message = "without standardscaler, which X went through"
        with pytest.raises(ValueError, match=message):
            pipeline.fit(data.target, cpcaplusplus__background=background)
        with pytest.raises(ValueError, match=message):
            pipeline.fit_transform(data.target, cpcaplusplus__background=background)

    def test_in_the_middle_too(self, data):
        pipeline = make_pipeline(StandardScaler(), CPCAPlusPlus(), KNeighborsClassifier())
        with pytest.raises(ValueError, match="without standardscaler"):
            pipeline.fit(data.target, data.labels, cpcaplusplus__background=data.background)

    def test_nothing_was_skipped(self, data):
        expected = CPCAPlusPlus().fit(data.target, background=data.background).components_
        for pipeline in (
            make_pipeline(CPCAPlusPlus(), FunctionTransformer()),
            Pipeline([("scale", "passthrough"), ("cpcaplusplus", CPCAPlusPlus())]),
        ):
            pipeline.fit(data.target, cpcaplusplus__background=data.background)
            np.testing.assert_array_equal(
                pipeline.named_steps["cpcaplusplus"].components_, expected
            )

    def test_transform_input_scales_both(self, data):
        with sklearn.config_context(enable_metadata_routing=True):
            pipeline = make_pipeline(
                StandardScaler(),
                CPCAPlusPlus().set_fit_request(background=True),
                transform_input=["background"],
            )
            pipeline.fit(data.target, background=data.background)
        scaler = StandardScaler().fit(data.target)
        expected = CPCAPlusPlus().fit(
            scaler.transform(data.target), background=scaler.transform(data.background)
        )
        np.testing.assert_allclose(pipeline[-1].components_, expected.components_, atol=1e-9)

    def test_the_mask_scales_both(self, stacked):
        X, mask, _ = stacked
        pipeline = make_pipeline(StandardScaler(), CPCAPlusPlus())
        pipeline.fit(X, cpcaplusplus__is_background=mask)
        Z = StandardScaler().fit_transform(X)
        expected = CPCAPlusPlus().fit(Z[~mask], background=Z[mask])
        np.testing.assert_allclose(pipeline[-1].components_, expected.components_, atol=1e-9)


class TestRouting:
    def test_the_mask_is_routed_through_a_search(self, stacked):
        X, mask, y = stacked
        with sklearn.config_context(enable_metadata_routing=True):
            search = GridSearchCV(
                make_pipeline(
                    StandardScaler(),
                    CPCAPlusPlus().set_fit_request(is_background=True),
                    KNeighborsClassifier(),
                ),
                {"cpcaplusplus__loading": ["auto", 0.1]},
                error_score="raise",
            )
            search.fit(X, y, is_background=mask)
        assert search.best_score_ > 0.7

    def test_an_unrequested_background_is_an_error_of_scikit_learn(self, data):
        with sklearn.config_context(enable_metadata_routing=True):
            pipeline = make_pipeline(CPCAPlusPlus())
            with pytest.raises(ValueError, match="background"):
                pipeline.fit(data.target, background=data.background)
