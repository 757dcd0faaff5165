"""The shipped model `filters` on real photos: it must neither get worse nor change unnoticed.

Twelve photos, named before they were looked at: one of each camera pair of Columbia, two of CASIA,
and four authentic ones. Localizing is deterministic; the bounds leave room for the rounding of
another processor, and are narrower than what any part of the method is worth on these photos.
After a change that is meant to change results, print the new ones with

    CPCAPP_DATA=... python tests/splicing/test_quality.py

and say in the commit why they are better.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from cpcapp.splicing import load_model
from cpcapp.splicing.datasets import casia, columbia
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.score.protocols import score_map


class Quality(NamedTuple):
    """What is pinned of a spliced photo: its seam, its region and its false-alarm probability."""

    seam_mcc: float
    region_f1: float
    mask_f1: float
    p_value: float


SPLICED = {
    "canong3_canonxt_sub_12": Quality(0.6388, 0.9901, 0.9893, 0.0009),
    "canong3_kodakdcs330_sub_12": Quality(0.6560, 0.9888, 0.9886, 0.0009),
    "canong3_nikond70_sub_12": Quality(0.6229, 0.9735, 0.9735, 0.0009),
    "canonxt_kodakdcs330_sub_12": Quality(0.7096, 0.9894, 0.9887, 0.0073),
    "nikond70_canonxt_sub_12": Quality(0.1464, 0.3784, 0.0000, 0.5245),  # missed
    "nikond70_kodakdcs330_sub_12": Quality(0.6961, 0.9910, 0.9910, 0.0073),
    "Tp_D_CRN_M_N_ani00069_ani00041_10035": Quality(0.3235, 0.3488, 0.0585, 0.8981),  # missed
    "Tp_D_CRN_M_N_ani10112_ani00100_11648": Quality(0.7633, 0.9561, 0.9561, 0.3844),
}
AUTHENTIC = {
    "canong3_02_sub_03": 0.2425,
    "canonxt_23_sub_03": 0.0073,  # a false alarm
    "Au_ani_00069": 0.8295,
    "Au_ani_10112": 0.6547,
}
CASIA_PHOTOS = (
    "Tp/Tp_D_CRN_M_N_ani00069_ani00041_10035.tif",
    "Au/Au_ani_00069.jpg",
    "Tp/Tp_D_CRN_M_N_ani10112_ani00100_11648.jpg",
    "Au/Au_ani_10112.jpg",
)
SCORE_TOLERANCE = 0.02
P_TOLERANCE = 0.1  # of p itself


@pytest.fixture(scope="module")
def photos(data_folder, tmp_path_factory) -> dict[str, Sample]:
    return read_photos(data_folder, tmp_path_factory.mktemp("casia"))


def read_photos(data: Path, folder: Path) -> dict[str, Sample]:
    """Open Columbia, and of CASIA the photos that are needed: its masks are computed."""
    for name in CASIA_PHOTOS:
        link = folder / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to((data / "casia2_pairs" / name).resolve())
    opened = (columbia(data / "columbia_dev"), casia(folder))
    return {sample.name: sample for samples in opened for sample in samples}


@pytest.fixture(scope="module")
def model():
    return load_model("filters")


def measure(model, sample: Sample) -> Quality:
    found, mask = model.localize(sample.image), sample.mask
    return Quality(
        score_map(found.boundary, mask, ["edge"])["edge"].mcc,
        score_map(found.region, mask, ["surface"])["surface"].f1,
        score_map(found.region, mask, ["surface-fixed"])["surface-fixed"].f1,
        found.p_value,
    )


@pytest.mark.parametrize("name", SPLICED)
def test_spliced_photos_keep_their_seam_region_and_p(name, photos, model):
    found, known = measure(model, photos[name]), SPLICED[name]
    assert found[:3] == pytest.approx(known[:3], abs=SCORE_TOLERANCE)
    assert found.p_value == pytest.approx(known.p_value, rel=P_TOLERANCE)


@pytest.mark.parametrize("name", AUTHENTIC)
def test_authentic_photos_keep_their_p(name, photos, model):
    assert model.localize(photos[name].image).p_value == pytest.approx(
        AUTHENTIC[name], rel=P_TOLERANCE
    )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        found = read_photos(Path(os.environ["CPCAPP_DATA"]), Path(scratch))
        shipped = load_model("filters")
        for name in SPLICED:
            print(name, Quality(*(round(v, 4) for v in measure(shipped, found[name]))))  # noqa: T201
        for name in AUTHENTIC:
            print(name, round(shipped.localize(found[name].image).p_value, 4))  # noqa: T201
