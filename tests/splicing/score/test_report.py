"""The folder of results while it is being made, and as other programs use it."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from cpcapp._io.files import FolderInUseError
from cpcapp.splicing import load_model
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.read import read_image
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet, SourcePhoto
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.evaluate import evaluate
from cpcapp.splicing.score.report import evaluate_localizer, open_album


def test_a_folder_in_use_is_kept(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FolderInUseError, match=r"is not empty; .* replace=True") as caught:
        open_album(tmp_path).__enter__()
    assert caught.value.reason == f"{tmp_path} is not empty"
    with open_album(tmp_path, replace=True):
        assert (tmp_path / "mine.txt").exists()


def scene(seed):
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    noise = rng.integers(0, 20, (96, 128, 3), dtype=np.uint8)
    return np.maximum(np.kron(blocks, np.ones((16, 16, 1), np.uint8)), noise)


@pytest.fixture
def samples():
    spliced = SpliceMaker(
        [SourcePhoto(str(seed), partial(scene, seed)) for seed in range(4)]
    ).samples(3)
    authentic = [Sample(f"whole {seed}", True, partial(scene, seed)) for seed in (5, 6)]
    return SampleSet("mine", (*spliced, *authentic), (Problem("lost", "it is missing"),))


def test_scores_verdicts_and_controls_in_one_report(samples):
    shares = [], []
    report = evaluate_localizer(
        samples,
        load_model("filters"),
        jobs=2,
        progress=shares[0].append,
        judging_progress=shares[1].append,
    )
    assert (shares[0][-1], shares[1][-1]) == (1.0, 1.0)
    expected = evaluate(samples, {"ours": load_model("filters").localize}, protocols=["edge"])
    assert report.evaluation.scores["cPCA++"]["edge"] == expected.scores["ours"]["edge"]
    assert set(report.evaluation.scores) == {"cPCA++", *CONTROLS}
    found = report.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["problems"] == [{"name": "lost", "reason": "it is missing"}]
    photos = found["verdict"]["photos"]
    assert [photo["authentic"] for photo in photos] == [False] * 3 + [True] * 2
    for photo, sample in zip(photos, [*samples], strict=True):
        assert photo["score"] == load_model("filters").localize(sample.image).score


def test_a_localizer_sees_what_the_file_says_and_a_function_the_pixels(tmp_path):
    """The tables and the grid of a JPEG file that was turned."""
    mask = np.zeros((96, 128), dtype=bool)
    mask[20:60, 30:80] = True
    tags = Image.Exif()
    tags[274] = 3
    Image.fromarray(scene(1)[:93, :125]).save(tmp_path / "a.jpg", quality=70, exif=tags)
    sample = Sample.of_photo(
        "a", partial(read_image, tmp_path / "a.jpg"), partial(np.copy, mask[:93, :125])
    )
    seen = []

    class Looks:
        def localize(self, image):
            seen.append(image)
            return flat(image.pixels)

    def flat(pixels):
        seen.append(pixels)
        return SimpleNamespace(boundary=pixels[..., 0].astype(np.float32) / 255, region=None)

    looks = Looks()
    found = evaluate([sample], {"localizer": looks, "function": flat})
    assert found.n_scored == 1
    photo, pixels = seen[0], seen[-1]
    assert photo.jpeg_quality == 70
    np.testing.assert_array_equal(photo.jpeg_table, read_image(tmp_path / "a.jpg").jpeg_table)
    assert photo.jpeg_offset == (93 % 8, 125 % 8)
    np.testing.assert_array_equal(pixels, photo.pixels)
    assert isinstance(pixels, np.ndarray)
    assert found.scores["localizer"] == found.scores["function"]
    assert evaluate([sample], looks).scores["method"] == found.scores["function"]
