from __future__ import annotations

import zipfile

import numpy as np
import pytest

from cpcapp.datasets import DataNotFoundError, mhealth
from published_data import mhealth_log


def log(rng, activities):
    """Return rows as they are published, and the signals."""
    signals = np.round(rng.normal(size=(len(activities), 23)) * np.arange(1, 24), 6)
    return mhealth_log(signals, activities), signals


LABELS = np.repeat([0, 3, 0, 8, 9, 8, 12], [5, 40, 3, 30, 25, 4, 6])


@pytest.fixture
def recorded(tmp_path, rng):
    """Logs of subjects 1, 2 and 10 in a folder, and what they hold."""
    folder = tmp_path / "logs" / "MHEALTHDATASET"
    folder.mkdir(parents=True)
    signals = {}
    for subject in (1, 2, 10):
        text, signals[subject] = log(rng, LABELS)
        (folder / f"mHealth_subject{subject}.log").write_text(text)
    (folder / "README.txt").write_text("about")
    return tmp_path / "logs", signals


@pytest.fixture
def archive(recorded, tmp_path):
    folder, _ = recorded
    path = tmp_path / "MHEALTHDATASET.zip"
    with zipfile.ZipFile(path, "w") as out:
        for file in folder.rglob("*.*"):
            out.write(file, file.relative_to(folder))
    return path


def test_the_papers_choice(recorded):
    folder, signals = recorded
    data = mhealth(folder, standardize=False)
    np.testing.assert_array_equal(data.target, signals[1][np.isin(LABELS, (8, 9))])
    np.testing.assert_array_equal(data.background, signals[1][LABELS == 3])
    assert data.labels.tolist() == [0] * 30 + [1] * 25 + [0] * 4
    assert data.label_names == ["knees bending", "cycling"]
    assert set(data.groups) == {1}


def test_signals_in_the_documented_order(recorded):
    names = mhealth(recorded[0]).feature_names
    assert len(names) == len(set(names)) == 23
    assert names[0] == "chest_acceleration_x"
    assert names[3:6] == ["ecg_lead_1", "ecg_lead_2", "left_ankle_acceleration_x"]
    assert names[11] == "left_ankle_magnetometer_x"
    assert names[14] == "right_lower_arm_acceleration_x"
    assert names[22] == "right_lower_arm_magnetometer_z"


def test_all_subjects_and_other_activities(recorded):
    folder, signals = recorded
    data = mhealth(folder, activities=(12,), background=0, subjects=None, standardize=False)
    expected = np.concatenate([signals[s][LABELS == 12] for s in (1, 2, 10)])
    np.testing.assert_array_equal(data.target, expected)
    assert data.groups.tolist() == [1] * 6 + [2] * 6 + [10] * 6
    assert len(data.background) == 24
    turned = mhealth(folder, activities=(9, 8), subjects=(10,))
    assert turned.label_names == ["cycling", "knees bending"]
    assert turned.labels.tolist() == [1] * 30 + [0] * 25 + [1] * 4


@pytest.mark.parametrize("name", ["MHEALTHDATASET.zip", "mhealth+dataset.zip"])
def test_found_in_a_data_folder(recorded, archive, tmp_path, name):
    expected = mhealth(recorded[0]).target
    for home in ("zipped", "unpacked"):
        (tmp_path / home).mkdir()
    (tmp_path / "zipped" / "mhealth").mkdir()
    archive.rename(tmp_path / "zipped" / "mhealth" / name)
    recorded[0].rename(tmp_path / "unpacked" / "mhealth")
    for home in ("zipped", "unpacked"):
        np.testing.assert_array_equal(mhealth(data_home=tmp_path / home).target, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activities": ()}, r"activities=\(\) must be different numbers"),
        ({"activities": (8, 8)}, "different numbers from 0 to 12"),
        ({"activities": (13,)}, "from 0 to 12"),
        ({"background": 8}, "background=8 must be a number from 0 to 12 that is not among"),
        ({"background": 13}, "background=13"),
        ({"subjects": (3,)}, r"subjects=\(3,\) must be of those in .*: 1, 2, 10"),
        ({"subjects": ()}, "must be of those in"),
        ({"activities": (5,)}, "have 0 rows of activities 5 and 40 of activity 3"),
    ],
)
def test_bad_parameters(recorded, options, message):
    with pytest.raises(ValueError, match=message):
        mhealth(recorded[0], **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t2\t3\n", "has 3 columns; logs of mHealth have 24"),
        ("\t".join(["1"] * 23 + ["99"]), "activities from 0 to 12"),
        ("\t".join(["1"] * 23 + ["3.5"]), "activities from 0 to 12"),
        ("\t".join(["1"] * 24) + "\n" + "\t".join(["1"] * 7), "is not a log of mHealth"),
        ("words", "is not a log of mHealth"),
    ],
)
def test_logs_that_are_none(tmp_path, text, message):
    (tmp_path / "mHealth_subject1.log").write_text(text)
    with pytest.raises(ValueError, match=message):
        mhealth(tmp_path)


def test_places_without_logs(tmp_path):
    with pytest.raises(ValueError, match=r"has no mHealth_subject\*.log"):
        mhealth(tmp_path)
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="neither a folder nor a zip archive"):
        mhealth(tmp_path / "a.zip")
    with pytest.raises(DataNotFoundError, match=r"does not exist; get mHealth from https://"):
        mhealth(tmp_path / "nowhere")


@pytest.fixture
def windows(tmp_path, rng):
    """Windows of subjects 2 and 5 in a data folder without logs."""
    signals = rng.normal(size=(12, 23)).astype(np.float32)
    activity = np.array([3, 3, 8, 9, 8, 12] * 2, dtype=np.int8)
    folder = tmp_path / "home" / "mhealth_windows"
    folder.mkdir(parents=True)
    subject = np.repeat(np.array([2, 5], dtype=np.int8), 6)
    np.savez(folder / "mhealth_windows.npz", X=signals, y=activity, subject=subject)
    return tmp_path / "home", signals


def test_windows_stand_in_for_logs_and_say_so(windows, recorded):
    home, signals = windows
    data = mhealth(data_home=home, subjects=(5,), standardize=False)
    np.testing.assert_array_equal(data.target, signals[[8, 9, 10]])
    np.testing.assert_array_equal(data.background, signals[[6, 7]])
    assert (data.labels.tolist(), data.groups.tolist()) == ([0, 1, 0], [5, 5, 5])
    assert "rows are means of 0.64 seconds" in data.source
    everybody = mhealth(home / "mhealth_windows" / "mhealth_windows.npz", subjects=None)
    assert everybody.groups.tolist() == [2, 2, 2, 5, 5, 5]
    with pytest.raises(ValueError, match=r"subjects=\(1,\) must be of those in .*: 2, 5"):
        mhealth(data_home=home)
    recorded[0].rename(home / "mhealth")
    assert "0.64" not in mhealth(data_home=home).source  # logs are preferred


@pytest.mark.parametrize(
    "arrays", [{"X": np.ones((2, 3)), "y": [1, 2], "subject": [1, 1]}, {"y": [1]}]
)
def test_windows_that_are_none(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=r"a\.npz has no windows of mHealth"):
        mhealth(tmp_path / "a.npz")


def test_the_real_windows(data_folder):
    place = data_folder / "mhealth_windows" / "mhealth_windows.npz"
    data = mhealth(place, subjects=None, standardize=False)
    assert (data.target.shape, data.background.shape) == ((1874, 23), (960, 23))
    assert np.unique(data.groups).tolist() == list(range(1, 11))
