from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing.examples import example_photos

torch = pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp.splicing.make.histories import (  # noqa: E402
    Step,
    blur,
    compress,
    quality_tables,
    remosaic,
)

PHOTO = example_photos()[0].image[:203, :301]


def as_tensor(pixels):
    return torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].float()


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("quality", [10, 50, 75, 90, 98, 100])
def test_jpeg_is_that_of_pillow(quality, subsampling):
    """Of photos whose sides are no multiples of a block too."""
    file = io.BytesIO()
    Image.fromarray(PHOTO).save(file, "JPEG", quality=quality, subsampling=subsampling)
    image = Image.open(file)
    tables = quality_tables(torch.tensor([float(quality)]))
    assert tables[0][0].flatten().tolist() == image.quantization[0]
    assert tables[1][0].flatten().tolist() == image.quantization[1]
    found = compress(as_tensor(PHOTO), *tables, subsample=subsampling == 2)
    expected = as_tensor(np.asarray(image))
    off = (found - expected).abs()
    assert (off <= 1).float().mean() > 0.999


def test_photos_of_a_batch_have_tables_of_their_own():
    x = as_tensor(PHOTO).repeat(2, 1, 1, 1)
    qualities = torch.tensor([30.0, 95.0])
    both = compress(x, *quality_tables(qualities), subsample=False)
    for number in (0, 1):
        tables = quality_tables(qualities[number : number + 1])
        alone = compress(x[:1], *tables, subsample=False)
        assert torch.equal(both[number : number + 1], alone)


@pytest.mark.parametrize("phase", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("demosaicer", ["bilinear", "gradient-corrected"])
def test_colours_that_the_sensor_sees_are_kept(phase, demosaicer):
    x = as_tensor(PHOTO)
    found = remosaic(x, phase, demosaicer)
    row, column = phase
    assert torch.equal(found[0, 0, row::2, column::2], x[0, 0, row::2, column::2])
    assert torch.equal(
        found[0, 2, 1 - row :: 2, 1 - column :: 2], x[0, 2, 1 - row :: 2, 1 - column :: 2]
    )
    assert torch.equal(found[0, 1, row::2, 1 - column :: 2], x[0, 1, row::2, 1 - column :: 2])
    assert not torch.equal(found, x)
    flat = torch.full((1, 3, 16, 16), 77.0)
    torch.testing.assert_close(remosaic(flat, phase, demosaicer), flat)


def test_blur_keeps_what_is_flat_and_its_variance_is_that_of_a_gaussian():
    flat = torch.full((1, 2, 30, 40), 3.0)
    torch.testing.assert_close(blur(flat, 1.3), flat)
    point = torch.zeros(1, 1, 41, 41)
    point[0, 0, 20, 20] = 1.0
    spread = blur(point, 2.0)[0, 0].sum(dim=0)
    variance = (spread * (torch.arange(41) - 20.0) ** 2).sum()
    assert variance.item() == pytest.approx(4.0, rel=0.05)


STEPS = [
    Step("noise", {"read": 2.0, "shot": 0.03, "grain": 0.0}),
    Step("noise", {"read": 2.0, "shot": 0.03, "grain": 0.8}),
    Step("mosaic", {"phase": (0, 1), "demosaicer": "bilinear"}),
    Step("denoise", {"sigma": 1.0, "threshold": 6.0}),
    Step("sharpen", {"amount": 0.8, "sigma": 1.0, "threshold": 0.0}),
    Step("sharpen", {"amount": 2.0, "sigma": 1.0, "threshold": 3.0}),
    Step("blur", {"sigma": 0.7}),
    Step("tone", {"gamma": 0.8, "balance": [1.05, 0.95, 1.0]}),
    Step("turn", {"angle": torch.tensor([0.2]), "zoom": torch.tensor([1.1])}),
    Step("resize", {"scale": 0.7, "kernel": "bicubic", "antialias": True}),
    Step("resize", {"scale": 0.7, "kernel": "area", "antialias": False}),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_steps_give_whole_levels_and_change_the_photo(step):
    x = as_tensor(PHOTO)
    found = step.apply(x, torch.Generator().manual_seed(0))
    assert torch.equal(found, found.round())
    assert 0.0 <= found.min() <= found.max() <= 255.0
    assert found.shape[2] == round(step.scale * x.shape[2])
    assert found.shape != x.shape or (found - x).abs().mean() > 0.1


def test_grain_has_the_spread_of_noise_without_it():
    flat = torch.full((1, 3, 200, 200), 120.0)
    plain, grainy = (
        Step("noise", {"read": 3.0, "shot": 0.0, "grain": grain}).apply(
            flat, torch.Generator().manual_seed(1)
        )
        for grain in (0.0, 0.8)
    )
    assert grainy.std().item() == pytest.approx(plain.std().item(), rel=0.05)
    neighbours = torch.corrcoef(
        torch.stack([grainy[0, 0, :, 1:].flatten(), grainy[0, 0, :, :-1].flatten()])
    )
    assert neighbours[0, 1] > 0.3


def test_noise_goes_and_edges_stay_when_a_camera_denoises():
    noisy = torch.full((1, 3, 80, 80), 60.0)
    noisy[..., 40:] = 180.0
    noisy += torch.randn(noisy.shape, generator=torch.Generator().manual_seed(2)) * 2.0
    found = Step("denoise", {"sigma": 1.5, "threshold": 8.0}).apply(noisy, torch.Generator())
    assert found[..., :30].std() < 0.5 * noisy[..., :30].std()
    step = found[..., 40].mean() - found[..., 39].mean()
    assert step == pytest.approx(120.0, rel=0.05)
