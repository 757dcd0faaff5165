from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from cpcapp.splicing.decide.evidence import LikelihoodTable, SeamEvidence
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.region import extract_borders
from cpcapp.splicing.decide.sides import SideContrast
from cpcapp.splicing.decide.superpixels import border_pixels
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicTrace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.train import cut_weights
from cpcapp.splicing.train.cut_weights import (
    CutTrial,
    learn_cut_weights,
    learn_sides,
)

TABLE = LikelihoodTable(np.array([-3.0, 3.0]), np.array([-3.0, 3.0]))
EVIDENCE = SeamEvidence((TABLE, TABLE), (0.5, 1.0))
OPTIONS = RegionOptions()
# Reads the first trace.
FIRST = SideContrast(np.eye(4)[:, :1], np.array([9.0]))


def made_trial(rng, *, told_by_traces, told_by_seam, rows=6, columns=7):
    """A chessboard of superpixels of 8 x 8 pixels, some of them pasted."""
    count = rows * columns
    labels = np.arange(count).reshape(rows, columns).repeat(8, axis=0).repeat(8, axis=1)
    pasted = np.zeros((rows, columns), dtype=bool)
    top, left = rng.integers(1, 3, 2)
    pasted[top : top + 3, left : left + 3] = True
    seen = pasted.ravel() if told_by_traces else rng.permutation(pasted.ravel())
    one, two = (labels.ravel()[pixels].astype(np.int32) for pixels in border_pixels(labels))
    across = pasted.ravel()[one] != pasted.ravel()[two]
    # All borders look alike, or those of the pasted part like a seam.
    odds = np.where(across, 2.5, -2.5) if told_by_seam else np.full(len(one), 0.9)
    vectors = rng.normal(scale=0.2, size=(count, 4))
    vectors[:, 0] += np.where(seen, 3.0, 0.0)
    area = np.full(count, 64.0)
    return CutTrial(
        one,
        two,
        np.stack([odds, odds]).astype(np.float16),
        np.zeros((count, 1)),
        np.zeros(count),
        vectors,
        area,
        np.where(pasted.ravel(), area, 0.0),
    )


def mean_f1(trials, evidence, sides):
    cuts = [trial.borders().find_cut(evidence, sides, OPTIONS)[0] for trial in trials]
    return np.mean([trial.f1(cut.side) for trial, cut in zip(trials, cuts, strict=True)])


def photo_with_traces(rng):
    """A lighter square in a photo, seen by filters, mosaic and network, all of them noisy."""
    image = np.full((150, 203, 3), 0.35, dtype=np.float32)
    image[48:104, 60:140] = 0.65
    mask = image[:, :, 0] > 0.5
    seam = rng.random(mask.shape, dtype=np.float32) * np.float32(0.2)
    seam[46:106, 58:142] += np.float32(0.6)
    seam[51:101, 63:137] -= np.float32(0.6)
    shape = (19, 26)
    blocks = mask[::8, ::8][: shape[0], : shape[1]]
    vectors = rng.normal(size=(*shape, 2)) + 2.0 * blocks[..., None]
    region, pasted = rng.normal(size=(2, *shape)).astype(np.float32)
    learned = LearnedTraces(8.0 * seam - 3.0, region, pasted, vectors.astype(np.float32))
    statistics = rng.normal(size=(12, 75, 101)).astype(np.float32)
    statistics[:, 24:52, 30:70] += 1.0
    mosaic = MosaicTrace(statistics, np.ones((75, 101), np.float32), np.ones((75, 101), bool))
    boundary = BoundaryMap(np.clip(seam, 0.0, 1.0), 1.0)
    return extract_borders(image, boundary, mosaic, learned=learned), mask


def test_a_trial_gives_the_cut_of_its_photo(rng):
    """Also where borders, mosaic and traces all count, in 16 bits."""
    borders, mask = photo_with_traces(rng)
    trial = CutTrial.measure(borders, mask)
    rule = SeamEvidence((TABLE, TABLE), (0.5, 1.0), mosaic_weight=0.01, trace_weight=0.01)
    expected, _, _ = borders.find_cut(rule, FIRST, OPTIONS)
    found, _, _ = trial.borders().find_cut(rule, FIRST, OPTIONS)
    np.testing.assert_array_equal(found.side, expected.side)
    assert expected.side.any()
    assert found.evidence == pytest.approx(expected.evidence, rel=1e-3)
    assert min(found.sides, found.seam) > 0.0


def test_f1_is_that_of_the_pixels(rng):
    """Against scikit-learn, of the better of the two sides."""
    borders, mask = photo_with_traces(rng)
    trial = CutTrial.measure(borders, mask)
    assert trial.pasted.sum() == mask.sum()
    for share in (0.2, 0.5, 0.9):
        side = rng.random(borders.count) < share
        marked = side[borders.labels].ravel()
        expected = max(f1_score(mask.ravel(), marked), f1_score(mask.ravel(), ~marked))
        assert trial.f1(side) == pytest.approx(expected)
        assert trial.f1(~side) == pytest.approx(expected)


def test_weights_are_learned_where_only_traces_tell_the_sides_apart(rng):
    trials = [made_trial(rng, told_by_traces=True, told_by_seam=False) for _ in range(3)]
    found = learn_cut_weights(trials, EVIDENCE, FIRST, OPTIONS)
    assert found.trace_weight > 0.0
    assert found.tables is EVIDENCE.tables
    assert found.weights == EVIDENCE.weights
    reached = mean_f1(trials, found, FIRST)
    assert reached > 0.95
    assert mean_f1(trials, found, None) < 0.5  # the borders say nothing


def test_traces_that_mislead_get_the_least_weight(rng):
    trials = [made_trial(rng, told_by_traces=False, told_by_seam=True) for _ in range(3)]
    # One that is far too high to begin with, and one that is not.
    tried = cut_weights._TRIED | {"trace_weight": (0.0, 5.0, 10.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut_weights, "_TRIED", tried)
        found = learn_cut_weights(trials, EVIDENCE, FIRST, OPTIONS)
    assert found.trace_weight == 0.0
    assert mean_f1(trials, found, FIRST) == 1.0


def test_of_values_that_can_not_be_told_apart_the_least_is_taken(rng):
    """The borders tell as much as the traces, so every weight of these is as good, and prior."""
    trials = [made_trial(rng, told_by_traces=True, told_by_seam=True) for _ in range(3)]
    found = learn_cut_weights(trials, EVIDENCE, FIRST, OPTIONS)
    for name in ("trace_weight", "prior"):
        assert getattr(found, name) == cut_weights._TRIED[name][0]
    assert mean_f1(trials, found, FIRST) == 1.0


def test_traces_keep_a_weight_that_photos_need(rng):
    """A lower one would lose more than a standard error."""
    trials = [made_trial(rng, told_by_traces=True, told_by_seam=False) for _ in range(6)]
    tried = cut_weights._TRIED | {"trace_weight": (0.0, 1e-5, 0.02, 0.05)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut_weights, "_TRIED", tried)
        found = learn_cut_weights(trials, EVIDENCE, FIRST, OPTIONS)
    assert found.trace_weight == 0.02
    assert mean_f1(trials, found, FIRST) > 0.95
    lower = replace(found, trace_weight=1e-5)
    assert mean_f1(trials, lower, FIRST) < 0.7


def test_without_trials_the_weights_are_in_the_middle():
    found = learn_cut_weights([], EVIDENCE, None, OPTIONS)
    for name, tried in cut_weights._TRIED.items():
        assert getattr(found, name) == tried[len(tried) // 2]


def test_sides_are_learned_from_superpixels_that_lie_on_one_of_them(rng):
    trials = [made_trial(rng, told_by_traces=True, told_by_seam=True) for _ in range(12)]
    # Half of a superpixel is no side, whatever its traces.
    for trial in trials:
        trial.pasted[0] = 30.0
        trial.vectors[0] = 1e3
    found = learn_sides(trials, 2)
    assert found.filters.shape == (4, 2)
    first = np.abs(found.filters[:, 0])
    assert first[0] > 10 * first[1:].max()
    assert found.eigenvalues[0] > 10 * found.eigenvalues[1]
    assert learn_sides([], 2) is None
    alike = trials[0]._replace(pasted=np.zeros_like(trials[0].pasted))
    assert learn_sides([alike], 2) is None
