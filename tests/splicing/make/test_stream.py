from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import label

from cpcapp.splicing.examples import example_photos

torch = pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp.splicing.make.histories import cosine_matrix  # noqa: E402
from cpcapp.splicing.make.stream import SpliceStream, StreamOptions  # noqa: E402


@pytest.fixture(scope="module")
def photos():
    images = [torch.from_numpy(p.image.copy()).permute(2, 0, 1) for p in example_photos()]
    return images, [
        torch.arange(image.shape[2])[None].repeat(image.shape[1], 1) // 64 for image in images
    ]


OPTIONS = StreamOptions(size=96, group=4)


def make(photos, seed=0, **changes):
    options = StreamOptions(**{"size": 96, "group": 4, **changes})
    return SpliceStream(*photos, options, seed=seed)


def test_the_same_seed_gives_the_same_splices(photos):
    one, same, other = (make(photos, seed).draw(4) for seed in (1, 1, 2))
    for mine, theirs in zip(one, same, strict=True):
        assert torch.equal(mine, theirs)
    assert not torch.equal(one.image, other.image)


def test_levels_are_whole_and_masks_exact(photos):
    batch = make(photos).draw(12)
    assert torch.equal(batch.image, batch.image.round())
    assert 0.0 <= batch.image.min() <= batch.image.max() <= 255.0
    assert set(batch.mask.unique().tolist()) == {0.0, 1.0}
    assert batch.image.shape[2:] == batch.mask.shape[2:] == (96, 96)


def test_as_many_are_authentic_as_asked_for(photos):
    nothing = make(photos, authentic_share=1.0).draw(8)
    assert not nothing.mask.any()
    spliced = make(photos, authentic_share=0.0).draw(12)
    assert (spliced.mask.mean(dim=(1, 2, 3)) > 0).float().mean() > 0.9


def test_a_known_table_is_that_of_the_pixels(photos):
    """Frequencies of 8 x 8 blocks are whole multiples of its steps, up to rounding of pixels."""
    batch = make(photos, known_table_share=1.0, group=8).draw(32)
    known = batch.table[:, 0] > 0
    assert 0.5 < known.float().mean() < 1.0
    cosines = cosine_matrix()
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    light = (batch.image[known] * weights).sum(dim=1) - 128.0
    blocks = light.reshape(len(light), 12, 8, 12, 8).permute(0, 1, 3, 2, 4)
    levels = cosines @ blocks @ cosines.T
    steps = batch.table[known].view(-1, 1, 1, 8, 8)
    large = (steps >= 8).expand_as(levels)
    assert large.any()
    off = (levels / steps - torch.round(levels / steps)).abs()[large]
    assert off.mean() < 0.1  # a quarter by chance


def test_a_collage_is_no_splice(photos):
    """It changes what is shown, and never what counts as pasted."""
    plain, collage = (
        make(photos, seed=4, authentic_share=1.0, collage_share=share, group=8).draw(16)
        for share in (0.0, 1.0)
    )
    assert not collage.mask.any()
    assert not torch.equal(plain.image, collage.image)


def test_a_part_that_was_changed_in_place_differs_from_its_photo_there_only(photos):
    shares = {"same_photo_share": 1.0, "feather_share": 0.0, "retouched_share": 0.0}
    stream = make(photos, seed=2, colour_match_share=0.0, **shares)
    host = stream._draw_photos([], 96, aligned=True, large=False)
    donor = stream._draw_donor(host, [], 96, aligned=True, large=False)
    assert donor[0].shape == host[0].shape
    assert torch.equal(donor[1], host[1])
    # The same content: what differs is noise, sharpness or compression.
    assert 0.0 < (donor[0] - host[0]).abs().mean() < 20.0


def test_what_is_out_of_focus_is_smoother(photos):
    stream = make(photos, seed=1)
    sharp, labels = stream._draw_photos([], 96, aligned=True, large=False)
    soft = stream._defocus(sharp, labels)
    detail = [(x[..., 1:] - x[..., :-1]).abs().mean().item() for x in (sharp, soft)]
    assert detail[1] < 0.95 * detail[0]
    assert soft.mean().item() == pytest.approx(sharp.mean().item(), abs=1.0)


def test_small_parts_are_small_and_lie_anywhere(photos):
    batch = make(photos, small_share=1.0, authentic_share=0.0, segment_share=0.0).draw(32)
    shares = batch.mask.mean(dim=(1, 2, 3))
    assert shares.min() > 0.0 and shares.max() < 0.06
    assert batch.mask.amax(dim=0).mean() > 0.15


def test_several_parts_lie_apart(photos):
    shares = {"small_share": 1.0, "authentic_share": 0.0, "segment_share": 0.0}
    counts = [
        [label(mask)[1] for mask in make(photos, seed=3, several_share=share, **shares).draw(16)[1]]
        for share in (0.0, 1.0)
    ]
    assert np.mean(counts[0]) < 1.3
    assert np.mean(counts[1]) > 1.8


def test_some_photos_as_they_were_found_are_not_changed(photos):
    """Those to which nothing happens in the end, either."""
    images = [torch.randint(0, 256, (3, 96, 112), dtype=torch.uint8) for _ in range(2)]
    options = StreamOptions(size=64, group=2, as_found_share=1.0, authentic_share=1.0)
    batch = SpliceStream(images, [None, None], options, seed=5).draw(32)
    crops = [
        way[:, top : top + 64, left : left + 64].float()
        for image in images
        for way in (image, image.flip(2))
        for top in range(0, 33, 8)
        for left in range(0, 49, 8)
    ]
    same = sum(any(torch.equal(photo, crop) for crop in crops) for photo in batch.image)
    assert 2 <= same <= 16


def test_senders_make_a_splice_smaller_and_compress_it(photos):
    batch = make(photos, laundered_share=1.0, known_table_share=1.0).draw(16)
    assert batch.image.shape == (16, 3, 96, 96)
    # The last thing that a sender does.
    assert (batch.table > 0).all()


def test_a_photo_is_drawn_as_often_as_its_weight_says(photos):
    images = [torch.full((3, 96, 96), level, dtype=torch.uint8) for level in (0, 100, 200)]
    options = StreamOptions(size=32, group=4, as_found_share=1.0, authentic_share=1.0)
    stream = SpliceStream(images, [None] * 3, options, seed=1, weights=[3.0, 0.0, 1.0])
    levels = stream.draw(200).image.mean(dim=(1, 2, 3))
    assert 0.65 < (levels < 40).float().mean() < 0.85
    assert not ((levels > 60) & (levels < 140)).any()


def test_splices_of_all_kinds_are_as_sound_as_the_others(photos):
    batch = SpliceStream(*photos, OPTIONS.of_more_kinds(), seed=1).draw(64)
    assert batch.image.shape == (64, 3, 96, 96)
    assert torch.equal(batch.image, batch.image.round())
    assert 0.0 <= batch.image.min() <= batch.image.max() <= 255.0
    assert set(batch.mask.unique().tolist()) == {0.0, 1.0}


def test_things_are_found_where_little_is_outlined(photos):
    images = [torch.randint(0, 256, (3, 96, 96), dtype=torch.uint8) for _ in range(2)]
    labels = torch.full((96, 96), -1)
    labels[10:50, 10:50] = 0
    counts = []
    for tries in (1, 4):
        options = StreamOptions(size=96, group=64, segment_share=1.0, outline_tries=tries)
        stream = SpliceStream(images, [labels] * 2, options, seed=2)
        given = labels[None, None].repeat(64, 1, 1, 1).float()
        masks = stream._draw_masks(given, 96)
        counts.append(sum(torch.equal(mask, (given[0] == 0).float()) for mask in masks))
    assert counts[0] < 25 < 30 < counts[1]
