"""The example photos, with the model that is shipped."""

from __future__ import annotations

import numpy as np
from PIL import Image

from cpcapp.splicing.output.demo import localize_examples, measure_distance_to_seam
from cpcapp.splicing.score.protocols import boundary_band


def test_the_default_model_finds_what_was_pasted_and_nothing_else(tmp_path):
    shares = []
    results = localize_examples(tmp_path, progress=shares.append)
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [result.photo.authentic for result in results] == [False, False, False, True]
    assert [result.distance is None for result in results] == [False, False, False, True]
    assert results[1].distance <= 8  # the cup, which every model so far has found
    assert results[1].seam["strength"] >= results[1].found.threshold
    for result in results[:3]:
        assert result.found.verdict_code in ("signs", "weak"), result.photo.name
        shown, pasted = result.found.mask, result.photo.mask
        assert (shown & pasted).sum() > 0.5 * (shown | pasted).sum()
        marked, band = result.found.boundary, boundary_band(pasted)
        assert marked[band].mean() > 2 * marked[~band].mean()
    assert results[3].found.verdict_code == "none"
    assert not results[3].found.mask.any()
    names = {path.name for path in tmp_path.iterdir()}
    assert {"demo.png", "astronaut.region.png"} < names


def test_pictures_say_what_the_words_say(tmp_path, capsys):
    """Of a genuine photo nothing is shown, of a spliced one with p <= 0.05 its pasted part."""

    def read(name, kind):
        with Image.open(tmp_path / f"{name.partition('.')[0]}.{kind}.png") as file:
            return np.asarray(file).astype(int)

    results = {result.photo.name: result for result in localize_examples(tmp_path, "filters")}
    assert capsys.readouterr().err == ""
    for name, result in results.items():
        if not result.photo.authentic:
            marked, band = read(name, "boundary"), boundary_band(result.photo.mask)
            assert marked[band].mean() > 2 * marked[~band].mean()
    genuine, cup = results["astronaut.jpg"], results["cup-in-the-sky.png"]
    assert genuine.found.verdict == "no signs found"
    assert np.abs(read("astronaut", "overlay") - genuine.photo.image).mean() < 6
    assert not read("astronaut", "region").any()
    assert read("astronaut", "boundary").max() == 255  # the map as it is
    assert cup.found.p_value <= 0.05
    shown, pasted = read("cup-in-the-sky", "region") > 0, cup.photo.mask
    assert (shown & pasted).sum() > 0.7 * (shown | pasted).sum()
    warm = read("cup-in-the-sky", "overlay")
    warm = (warm[..., 0] > 200) & (warm[..., 0] - warm[..., 2] > 90)
    assert warm.sum() > 300
    near = [measure_distance_to_seam(pasted, *at) for at in np.argwhere(warm)[::50]]
    assert np.median(near) < 4
