from __future__ import annotations

import json
import threading
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet
from cpcapp.splicing.score.evaluate import Evaluation, evaluate
from cpcapp.splicing.score.protocols import (
    PROTOCOLS,
    ImageScore,
    ProtocolScores,
    boundary_band,
    score_map,
)
from helpers import examples


def disk(shape=(120, 160), centre=(60, 80), radius=30):
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    return np.hypot(rows - centre[0], cols - centre[1]) <= radius


class TestBoundaryBand:
    @pytest.mark.parametrize("radius", [1, 2, 4, 7])
    def test_lies_within_reach_on_both_sides_of_the_seam(self, radius):
        mask = disk()
        band = boundary_band(mask, radius)
        inward, outward = distance_transform_edt(mask), distance_transform_edt(~mask)
        # OpenCV's ellipse has rounder corners than a circle, by less than a fifth.
        assert band[(inward + outward) <= 0.9 * radius].all()
        assert not band[(inward + outward) > 1.2 * radius + 1].any()
        assert (band & mask).sum() == pytest.approx((band & ~mask).sum(), rel=0.3)

    def test_default_radius_is_four(self):
        np.testing.assert_array_equal(boundary_band(disk()), boundary_band(disk(), 4))

    @pytest.mark.parametrize("turns", range(4))
    def test_there_is_no_seam_along_the_photos_border(self, turns):
        mask = np.zeros((60, 80), dtype=bool)
        mask[:, 40:] = True
        expected = np.zeros_like(mask)
        expected[:, 37:43] = True
        mask, expected = np.rot90(mask, turns), np.rot90(expected, turns)
        np.testing.assert_array_equal(boundary_band(mask, 3), expected)

    def test_a_photo_pasted_as_a_whole_or_not_at_all_has_no_seam(self):
        assert not boundary_band(np.ones((20, 30), dtype=bool)).any()
        assert not boundary_band(np.zeros((20, 30), dtype=bool)).any()
        assert boundary_band(np.zeros((0, 4), dtype=bool)).shape == (0, 4)

    @pytest.mark.parametrize(
        "mask", [np.zeros((4, 4)), np.zeros(4, bool), np.zeros((4, 4, 3), bool)]
    )
    def test_bad_mask(self, mask):
        with pytest.raises(ValueError, match="mask has shape"):
            boundary_band(mask)


def marking(truth, marked):
    """Return F1 and MCC by scikit-learn."""
    truth, marked = truth.ravel(), marked.ravel()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A single label was found")
        return f1_score(truth, marked, zero_division=0), matthews_corrcoef(truth, marked)


def all_markings(values, *, inverts=False):
    """Yield everything that a threshold can mark."""
    yield np.zeros(values.shape, dtype=bool)
    for value in np.unique(values):
        yield values >= value
        if inverts:
            yield values <= value


few_levels = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0])


@st.composite
def maps_and_masks(draw, values=few_levels, least=1, most=12):
    shape = draw(array_shapes(min_dims=2, max_dims=2, min_side=least, max_side=most))
    found = draw(arrays(np.float32, shape, elements=values))
    return found, draw(arrays(bool, shape))


any_values = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


class TestAgainstScikitLearn:
    @given(maps_and_masks() | maps_and_masks(any_values, most=5))
    @examples(30)
    def test_best_threshold(self, pair):
        found, mask = pair
        for protocol in ("edge-r2", "surface"):
            radius, inverts = PROTOCOLS[protocol].radius, PROTOCOLS[protocol].inverts
            truth = mask if radius is None else boundary_band(mask, radius)
            score = score_map(found, mask, [protocol])[protocol]
            possible = [marking(truth, m) for m in all_markings(found, inverts=inverts)]
            assert score.f1 == pytest.approx(max(f1 for f1, _ in possible))
            assert score.mcc == pytest.approx(max(mcc for _, mcc in possible), abs=1e-12)

    @given(maps_and_masks(any_values))
    @examples(50)
    def test_the_thresholds_give_the_scores(self, pair):
        found, mask = pair
        score = score_map(found, mask, ["surface"])["surface"]
        for metric, (at, inverted, expected) in enumerate(
            [
                (score.f1_threshold, score.f1_inverted, score.f1),
                (score.mcc_threshold, score.mcc_inverted, score.mcc),
            ]
        ):
            marked = found <= at if inverted else found >= (np.inf if at is None else at)
            assert marking(mask, marked)[metric] == pytest.approx(expected, abs=1e-12)

    @given(maps_and_masks(), st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0, 2.0]))
    @examples(50)
    def test_fixed_threshold(self, pair, threshold):
        found, mask = pair
        scores = score_map(found, mask, ["edge-fixed", "surface-fixed"], threshold=threshold)
        edge, surface = scores["edge-fixed"], scores["surface-fixed"]
        # In float32, as the map is: a tenth in float64 is another number.
        expected = marking(boundary_band(mask, 4), found >= np.float32(threshold))
        assert (edge.f1, edge.mcc) == pytest.approx(expected, abs=1e-12)
        assert edge.f1_threshold == edge.mcc_threshold == threshold
        assert (surface.f1, surface.mcc) == pytest.approx(marking(mask, found >= 0.5), abs=1e-12)
        assert surface.f1_threshold == 0.5

    @given(maps_and_masks(few_levels, least=2))
    @examples(50)
    def test_area_under_the_curve(self, pair):
        found, mask = pair
        mask[0, 0], mask[-1, -1] = True, False
        expected = roc_auc_score(mask.ravel(), found.ravel())
        assert score_map(found, mask, ["surface-fixed"])["surface-fixed"].auc == pytest.approx(
            expected
        )
        # With inversion the better one counts.
        assert score_map(found, mask, ["surface"])["surface"].auc == pytest.approx(
            max(expected, 1 - expected)
        )


def square(shape=(40, 60)):
    mask = np.zeros(shape, dtype=bool)
    mask[10:30, 20:40] = True
    return mask


class TestScoreMap:
    def test_neighbouring_numbers_are_told_apart(self):
        mask = square()
        low = np.float32(0.7)
        found = np.where(boundary_band(mask), np.nextafter(low, np.float32(1)), low)
        score = score_map(found.astype(np.float32), mask)["edge"]
        assert (score.f1, score.mcc, score.auc) == (1.0, pytest.approx(1.0), 1.0)
        np.testing.assert_array_equal(found >= score.f1_threshold, boundary_band(mask))

    def test_the_truth_of_each_protocol(self):
        mask = square()
        for protocol, truth in {
            "edge": boundary_band(mask, 4),
            "edge-r2": boundary_band(mask, 2),
            "surface": mask,
        }.items():
            scores = score_map(truth, mask, list(PROTOCOLS), threshold=0.5)
            assert [name for name, score in scores.items() if score.f1 == 1.0] == {
                "edge": ["edge", "edge-fixed"],
                "edge-r2": ["edge-r2"],
                "surface": ["surface", "surface-fixed"],
            }[protocol]

    def test_a_constant_map_marks_everything_or_nothing(self):
        mask = square()
        share = boundary_band(mask).mean()
        score = score_map(np.full(mask.shape, 0.3, np.float32), mask)["edge"]
        assert score.f1 == pytest.approx(2 * share / (1 + share))
        assert score.f1_threshold == np.float32(0.3)
        assert (score.mcc, score.mcc_threshold, score.auc) == (0.0, None, 0.5)

    def test_only_the_surface_may_be_inverted(self):
        mask = square()
        wrong = score_map(~boundary_band(mask), mask)["edge"]
        assert (wrong.mcc, wrong.mcc_threshold, wrong.auc) == (0.0, None, 0.0)
        scores = score_map(1.0 - mask, mask, ["surface", "surface-fixed"])
        found = scores["surface"]
        assert (found.f1, found.mcc, found.auc) == (1.0, pytest.approx(1.0), 1.0)
        assert found.f1_inverted
        assert found.mcc_inverted
        assert found.f1_threshold == found.mcc_threshold == 0.0
        assert scores["surface-fixed"].f1 == 0.0
        assert scores["surface-fixed"].mcc == pytest.approx(-1.0)

    def test_of_equal_scores_the_one_that_marks_least(self):
        mask = np.array([[True, False, True, False]])
        found = np.array([[3.0, 2.0, 1.0, 0.0]])  # MCC is the same at 3 and at 1
        score = score_map(found, mask, ["surface"])["surface"]
        assert score.mcc == pytest.approx(3**-0.5)
        assert score.mcc_threshold == 3.0

    @pytest.mark.parametrize("pasted", [False, True])
    def test_without_a_seam(self, pasted):
        mask = np.full((8, 9), pasted)
        found = np.arange(72.0).reshape(8, 9)
        scores = score_map(found, mask, ["edge", "surface"])
        assert (scores["edge"].f1, scores["edge"].mcc, scores["edge"].auc) == (0.0, 0.0, None)
        assert scores["surface"].f1 == float(pasted)
        assert (scores["surface"].mcc, scores["surface"].auc) == (0.0, None)

    @pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.float16, np.float64])
    def test_kinds_of_numbers(self, dtype):
        score = score_map(square().astype(dtype), square(), ["surface"])["surface"]
        assert (score.f1, score.f1_threshold, score.f1_inverted) == (1.0, 1.0, False)

    @pytest.mark.parametrize(
        ("values", "mask", "options", "message"),
        [
            (np.zeros((3, 4)), square(), {}, r"values have shape \(3, 4\); the mask has \(40, 60"),
            (np.full((40, 60), np.nan), square(), {}, "must be real and finite numbers"),
            (np.zeros((40, 60), complex), square(), {}, "values of dtype complex128 must be real"),
            (np.zeros((40, 60)), square() * 1.0, {}, r"mask has shape \(40, 60\) and dtype float"),
            (np.zeros((0, 4)), np.zeros((0, 4), bool), {}, "mask has shape"),
            (
                np.zeros((40, 60)),
                square(),
                {"protocols": ["egde"]},
                "'egde'; it may have 'edge', 'edge-r2', 'edge-fixed', 'surface', 'surface-fixed'",
            ),
            (
                np.zeros((40, 60)),
                square(),
                {"protocols": ["edge-fixed"]},
                "threshold=None must be a number for the protocol 'edge-fixed'",
            ),
            (
                np.zeros((40, 60)),
                square(),
                {"protocols": ["edge-fixed"], "threshold": np.nan},
                "threshold=nan must be a finite number",
            ),
        ],
    )
    def test_bad_input(self, values, mask, options, message):
        with pytest.raises(ValueError, match=message):
            score_map(values, mask, **options)


class TestScores:
    def test_means_are_over_photos_and_stay_with_their_protocol(self):
        def image(name, f1, mcc, auc):
            return ImageScore(name, f1, 0.1, False, mcc, None, False, auc)

        edge = ProtocolScores("edge", (image("a", 0.2, 0.4, 0.9), image("b", 0.6, 0.5, None)))
        none = ProtocolScores("surface", ())
        mean = edge.mean
        assert (mean.n, mean.f1, mean.mcc, mean.auc) == (2, 0.4, pytest.approx(0.45), 0.9)
        assert none.mean.f1 is None
        found = json.loads(json.dumps(edge.to_dict(), allow_nan=False))
        assert found["mean"] == {"n": 2, "f1": 0.4, "mcc": 0.45, "auc": 0.9}
        assert found["images"][1] == {
            "name": "b",
            "f1": 0.6,
            "f1_threshold": 0.1,
            "f1_inverted": False,
            "mcc": 0.5,
            "mcc_threshold": None,
            "mcc_inverted": False,
            "auc": None,
        }


def photo(seed, shape=(40, 60)):
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def spliced(name, seed=0, mask=None):
    mask = square() if mask is None else mask
    return Sample(name, False, partial(photo, seed), partial(np.copy, mask))


def red_channel(image, region=None):
    return SimpleNamespace(boundary=image[..., 0] / np.float32(255), region=region)


class TestEvaluate:
    def test_scores_are_those_of_each_map(self):
        samples = SampleSet("mine", (spliced("one", 1), spliced("two", 2)))
        result = evaluate(samples, {"red": red_channel})
        assert isinstance(result, Evaluation)
        assert (result.dataset, result.n_scored, result.problems) == ("mine", 2, ())
        assert list(result.scores["red"]) == ["edge", "edge-r2"]
        for sample, image in zip(samples, result.scores["red"]["edge"].images, strict=True):
            expected = score_map(red_channel(sample.image).boundary, sample.mask)["edge"]
            assert (image.name, image.mcc) == (sample.name, expected.mcc)

    def test_the_order_is_that_of_the_samples_however_many_jobs(self):
        samples = [spliced(f"{i}", i) for i in range(7)]
        release = threading.Event()

        def slow_first(image):
            # The first photo is done only when another one is.
            if np.array_equal(image, photo(0)):
                assert release.wait(30)
            else:
                release.set()
            return red_channel(image)

        one = evaluate(samples, red_channel)
        assert evaluate(samples, slow_first, jobs=3) == one
        names = [image.name for image in one.scores["method"]["edge"].images]
        assert names == [str(i) for i in range(7)]

    def test_authentic_photos_are_counted_and_not_read(self):
        def never():
            raise AssertionError

        samples = [Sample("authentic", True, never), spliced("one")]
        result = evaluate(samples, red_channel)
        assert (result.n_scored, result.n_authentic) == (1, 1)
        assert len(result.scores["method"]["edge"].images) == 1

    def test_goes_on_past_photos_that_can_not_be_used(self):
        def refuses_the_third(image):
            if np.array_equal(image, photo(3)):
                raise ValueError("is too\nsmall")
            return red_channel(image)

        samples = SampleSet(
            "mine",
            (
                Sample("lost", False, partial(open, "lost.png"), square),
                spliced("all", mask=np.ones((40, 60), dtype=bool)),
                spliced("third", 3),
                spliced("good"),
            ),
            (Problem("earlier", "is missing"),),
        )
        result = evaluate(samples, refuses_the_third, jobs=2)
        assert result.n_scored == 1
        assert [p.name for p in result.problems] == ["earlier", "lost", "all", "third"]
        assert result.problems[3].reason == "is too small"
        assert [i.name for i in result.scores["method"]["edge"].images] == ["good"]

    def test_mistakes_in_programs_are_not_hidden(self):
        def wrong(image):
            raise TypeError("a bug")

        with pytest.raises(TypeError, match="a bug"):
            evaluate([spliced("one")], wrong)
        with pytest.raises(ValueError, match="values have shape"):
            evaluate([spliced("one")], lambda image: red_channel(image[1:]))

    def test_each_protocol_has_its_map(self):
        mask = square()

        def knows_all(image):
            return SimpleNamespace(boundary=boundary_band(mask), region=mask)

        result = evaluate(
            [spliced("one")],
            {"all": knows_all, "edge only": red_channel},
            controls={"surface": lambda image, edges: mask.astype(np.float32)},
            protocols=PROTOCOLS,
            thresholds={"all": 0.5},
        )
        means = {
            name: {protocol: found.mean.f1 for protocol, found in scores.items()}
            for name, scores in result.scores.items()
        }
        assert means["all"]["edge"] == means["all"]["edge-fixed"] == 1.0
        assert means["all"]["surface"] == means["all"]["surface-fixed"] == 1.0
        assert means["all"]["edge-r2"] < 1.0
        assert list(means["edge only"]) == ["edge", "edge-r2"]
        assert list(means["surface"]) == ["edge", "edge-r2", "surface", "surface-fixed"]
        assert means["surface"]["surface"] == 1.0

    def test_controls_see_the_edges_of_the_method_or_the_packages_own(self):
        own = np.full((40, 60), 0.25, np.float32)

        def with_edges(image):
            return SimpleNamespace(boundary=own, region=None, edges=own)

        seen = []

        def control(image, edges):
            seen.append(edges)
            return edges

        evaluate([spliced("one")], with_edges, controls={"control": control})
        evaluate([spliced("one")], red_channel, controls={"control": control})
        np.testing.assert_array_equal(seen[0], own)
        np.testing.assert_array_equal(seen[1], detect_edges(photo(0)))

    def test_progress_and_cases(self):
        shares, cases = [], []
        result = evaluate(
            [spliced("one", 1), spliced("two", 2)],
            red_channel,
            progress=shares.append,
            on_case=cases.append,
        )
        assert shares[-1] == 1.0
        assert shares == sorted(set(shares))
        assert [case.sample.name for case in cases] == ["one", "two"]
        np.testing.assert_array_equal(cases[1].image, photo(2))
        np.testing.assert_array_equal(cases[1].mask, square())
        np.testing.assert_array_equal(
            cases[1].maps["method"].boundary, red_channel(photo(2)).boundary
        )
        expected = result.scores["method"]["edge"].images[1]
        assert cases[1].scores["method"]["edge"] == expected

    def test_nothing_to_score(self):
        result = evaluate([], red_channel, protocols=["edge"])
        assert result.n_scored == 0
        assert result.scores["method"]["edge"].mean.mcc is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"jobs": 0}, "jobs=0 must be at least 1"),
            ({"protocols": ["edges"]}, "protocols has 'edges'"),
            ({"controls": {"method": None}}, "methods and controls both have"),
            ({"thresholds": {"other": 0.5}}, r"thresholds has \['other'\]; it may have method"),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(ValueError, match=message):
            evaluate([spliced("one")], red_channel, **options)
