from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cpcapp import CPCAPlusPlus
from cpcapp.datasets import DataNotFoundError, mnist_over_grass


@pytest.fixture(scope="module")
def data(data_folder):
    return mnist_over_grass(300, 200, random_state=0, data_home=data_folder)


@pytest.fixture
def home(tmp_path, rng):
    """Ten digits of each class, sorted, and two photos of noise."""
    for name in ("mnist", "grass"):
        (tmp_path / name).mkdir()
    np.savez(
        tmp_path / "mnist" / "mnist.npz",
        x_train=rng.integers(256, size=(100, 28, 28), dtype=np.uint8),
        y_train=np.repeat(np.arange(10, dtype=np.uint8), 10),
    )
    for i in range(2):
        pixels = rng.integers(256, size=(40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "grass" / f"{i}.png")
    return tmp_path


def test_target_is_grass_and_a_digit(data, data_folder):
    assert data.target.shape == data.clean.shape == (300, len(data.feature_names))
    assert data.background.shape == (200, 784)
    assert data.label_names == ["0", "1"]
    grass = data.target - data.clean
    assert grass.min() > -1e-12 and grass.max() < 1 + 1e-12
    assert data.clean.min() >= 0.0 and data.clean.max() == pytest.approx(0.25)
    with np.load(data_folder / "mnist" / "mnist.npz") as archive:
        zeros = archive["x_train"][archive["y_train"] == 0].reshape(-1, 784)
    known = {row.tobytes() for row in zeros}
    used = np.rint(data.clean * 255 / 0.25).astype(np.uint8)
    assert [row.tobytes() in known for row in used] == (data.labels == 0).tolist()


def test_crops_are_pieces_of_the_photos(home):
    data = mnist_over_grass(5, 20, random_state=1, data_home=home)
    photos = [np.asarray(Image.open(p).convert("L")) for p in sorted(home.glob("grass/*"))]
    pieces = {
        photo[top : top + 28, left : left + 28].tobytes()
        for photo in photos
        for top in range(13)
        for left in range(23)
    }
    for crop in np.rint(255 * data.background).astype(np.uint8):
        assert crop.tobytes() in pieces


def test_the_seed_decides(home):
    one, two, other = (mnist_over_grass(9, 9, random_state=s, data_home=home) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.target, two.target)
    np.testing.assert_array_equal(one.background, two.background)
    assert not np.array_equal(one.target, other.target)


def test_digits_and_weight(home):
    data = mnist_over_grass(20, 1, digits=(7, 3), weight=0.5, random_state=0, data_home=home)
    assert data.label_names == ["7", "3"]
    assert np.bincount(data.labels).tolist() == [10, 10]  # each digit once
    with np.load(home / "mnist" / "mnist.npz") as archive:
        sevens = archive["x_train"][70:80].reshape(10, -1)
    used = np.rint(data.clean[data.labels == 0] * 255 / 0.5)
    assert {tuple(row) for row in used} == {tuple(row) for row in sevens}


def test_digits_come_apart_only_against_grass(data):
    def separation(scores):
        zero, one = (scores[data.labels == k] for k in (0, 1))
        return abs(zero.mean() - one.mean()) / np.sqrt((zero.var() + one.var()) / 2)

    contrast = CPCAPlusPlus(1).fit(data.target, background=data.background)
    plain = CPCAPlusPlus(1).fit(data.target)
    assert separation(contrast.transform(data.target)[:, 0]) > 2.0
    assert separation(plain.transform(data.target)[:, 0]) < 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"digits": ()}, r"digits=\(\) must be different numbers"),
        ({"digits": (0, 0)}, "different numbers"),
        ({"digits": (0, 10)}, "numbers from 0 to 9"),
        ({"weight": -1.0}, "weight=-1.0 must be"),
        ({"n_target": 0}, "n_target=0 must be at least 1"),
        ({"n_target": 21}, "n_target=21 must be at most 20"),
        ({"n_background": -1}, "n_background=-1"),
    ],
)
def test_bad_parameters(home, options, message):
    with pytest.raises(ValueError, match=message):
        mnist_over_grass(**{"n_target": 5, "n_background": 5, "data_home": home, **options})


def test_not_mnist(home):
    np.savez(home / "mnist" / "mnist.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="has no x_train and y_train; it is not MNIST"):
        mnist_over_grass(data_home=home)
    np.savez(home / "mnist" / "mnist.npz", x_train=np.zeros((3, 9)), y_train=np.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(3, 9\) and type float64"):
        mnist_over_grass(data_home=home)


def test_photos_that_are_too_small_or_none(home):
    for i in range(2):
        Image.new("RGB", (27, 90)).save(home / "grass" / f"{i}.png")
    with pytest.raises(DataNotFoundError, match=r"no photo .* of at least 28 x 28"):
        mnist_over_grass(data_home=home)
    (home / "grass" / "broken.jpg").write_bytes(b"no photo")
    with pytest.raises(ValueError, match=r"broken.jpg can't be read as a photo"):
        mnist_over_grass(data_home=home)


def test_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CPCAPP_OFFLINE", "1")
    with pytest.raises(DataNotFoundError, match=r"photos of grass are not here.*put") as caught:
        mnist_over_grass(data_home=tmp_path)
    assert str(tmp_path / "grass") in str(caught.value)
    (tmp_path / "grass").mkdir()
    Image.new("RGB", (30, 30)).save(tmp_path / "grass" / "1.jpg")
    with pytest.raises(DataNotFoundError, match=r"mnist.npz is not here.*storage.googleapis.com"):
        mnist_over_grass(data_home=tmp_path)
