"""``cpcapp demo`` on the photos that come with the package."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

import stand_in
from cpcapp.cli import main
from cpcapp.splicing import model as model_file
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.score.protocols import boundary_band

NAMES = [photo.name.partition(".")[0] for photo in example_photos()]


class Oracle(stand_in.StandIn):
    """Knows the seams, or else marks a corner."""

    def __init__(self, wrong=False, blind=False):
        super().__init__("oracle")
        self.wrong, self.blind = wrong, blind

    def localize(self, image, *, progress=None):
        photo = next(p for p in example_photos() if np.array_equal(p.image, image.pixels))
        boundary = np.zeros(photo.mask.shape, dtype=np.float32)
        if not self.blind:
            boundary[0, 0] = 0.9 if self.wrong or photo.authentic else 0.0
            boundary[boundary_band(photo.mask, 1)] = 0.7
        return replace(super().localize(image), boundary=boundary, threshold=self.threshold)


@pytest.fixture
def run(capsys, monkeypatch):
    def run(model, *arguments):
        monkeypatch.setattr(model_file, "load_model", lambda: model)
        returncode = main(["demo", *map(str, arguments)])
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, returncode, captured.out, captured.err)

    return run


def demo_of(make_model, folder):
    """Return the folder of a demo, and what it said."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(model_file, "load_model", make_model)
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        returncode = main(["demo", "-o", str(folder)])
    texts = out.getvalue(), errors.getvalue()
    return folder, subprocess.CompletedProcess((), returncode, *texts)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A demo of the oracle, to look at."""
    return demo_of(Oracle, tmp_path_factory.mktemp("demo") / "new" / "folder")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """One that marks a corner."""
    return demo_of(lambda: Oracle(wrong=True), tmp_path_factory.mktemp("wrong"))


def test_pictures_of_every_photo_and_one_of_all(shared):
    folder, result = shared
    assert (result.returncode, result.stderr) == (0, "")
    kinds = ("overlay.png", "boundary.png", "thumbnail.jpg", "json", "report.html", "report.pdf")
    wanted = {f"{name}.{kind}" for name in NAMES for kind in kinds}
    overviews = {"demo.png", "index.html", "summary.csv"}
    assert {path.name for path in folder.iterdir()} == wanted | overviews
    assert f"pictures in {folder}:" in result.stdout
    end = "".join(result.stdout.splitlines()[-3:])
    assert f"Open {folder}/index.html in a browser" in end
    assert "cpcapp serve" in end
    assert "'cpcapp[web]'" in end
    for photo in example_photos():
        picture = imread(folder / f"{photo.name.partition('.')[0]}.boundary.png")
        assert picture.shape == photo.mask.shape
        assert (picture > 0).any() or photo.authentic


def test_the_picture_shows_photo_truth_edges_and_result(shared):
    folder, _ = shared
    demo = np.rint(255 * imread(folder / "demo.png")[..., :3]).astype(int)
    white = (demo == 255).all(axis=2)
    # Photos lie in rows, with white between them; the rows of text are above.
    rows = np.flatnonzero(np.diff(white[:, 200].astype(int)))
    assert len(rows[-8:]) == 8
    columns = np.flatnonzero(np.diff(white[rows[-1] - 5].astype(int)))
    assert len(columns) == 10
    panels = [
        [
            demo[rows[-8 + 2 * i] + 1 : rows[-7 + 2 * i], columns[2 * j] + 1 : columns[2 * j + 1]]
            for j in range(4)
        ]
        for i in range(4)
    ]
    for (photo, truth, edges, result), sample in zip(panels, example_photos(), strict=True):
        height, width = sample.mask.shape
        assert photo.shape[1] / photo.shape[0] == pytest.approx(width / height, rel=0.02)
        assert np.abs(photo.mean(axis=(0, 1)) - sample.image.mean(axis=(0, 1))).max() < 3
        pink = (truth[..., 0] - truth[..., 1] > 80) & (truth[..., 2] > truth[..., 1] + 40)
        assert pink.mean() == pytest.approx(sample.mask.mean(), abs=0.01)
        assert np.ptp(edges, axis=2).max() == 0
        warm = (result[..., 0] - result[..., 2] > 90) & (result[..., 0] > 150)
        assert warm.any() == (not sample.authentic)


def test_words_tell_how_good_it_is(run, shared, wrong, tmp_path, monkeypatch):
    # Words are the same without the PDF, which takes the longest.
    monkeypatch.setitem(sys.modules, "reportlab", None)

    def told(model):
        return seams_of(run(model, "-o", tmp_path))

    def seams_of(result):
        lines = result.stdout.splitlines()
        about = [next(line for line in lines if f"{name}." in line) for name in NAMES]
        seams, verdicts = zip(*(line.split("; ") for line in about), strict=True)
        assert set(verdicts) == {"can't tell (the model has not learned to judge)"}
        return seams

    assert [line.rpartition(": ")[2] for line in seams_of(shared[1])] == [
        *["on the seam"] * 3,
        "marked, though nothing was pasted",
    ]
    careful = Oracle()
    careful.threshold = 0.95
    assert told(careful)[3].endswith("below the threshold, rightly, as nothing was pasted")
    for line in seams_of(wrong[1])[:3]:
        assert re.search(r"row 0, column 0: \d{2,3} pixels from the seam", line)
    assert all(line.endswith("nothing is marked") for line in told(Oracle(blind=True)))


def test_without_reportlab_there_is_the_rest(run, shared, tmp_path, monkeypatch):
    shutil.copytree(shared[0], tmp_path, dirs_exist_ok=True)
    assert len(list(tmp_path.glob("*.pdf"))) == 4
    monkeypatch.setitem(sys.modules, "reportlab", None)
    result = run(Oracle(), "-o", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "no PDF without reportlab: pip install 'cpcapp[report]'" in result.stdout
    assert len(list(tmp_path.glob("*.report.html"))) == 4
    # Those of the first demo would be of another result.
    assert not list(tmp_path.glob("*.pdf"))


@pytest.mark.parametrize("name", ["index.html", "summary.csv"])
def test_a_page_of_somebody_else_is_kept(run, tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = run(Oracle(), "-o", tmp_path)
    assert result.returncode == 2
    assert re.fullmatch(
        rf"cpcapp demo: {tmp_path}/{name} is not a (page|table) of results; choose another -o\n",
        result.stderr,
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_second_demo_replaces_the_first(run, shared, wrong, tmp_path, monkeypatch):
    def files(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    shutil.copytree(wrong[0], tmp_path, dirs_exist_ok=True)
    assert files(tmp_path) != files(shared[0])
    run(Oracle(), "-o", tmp_path)
    assert files(tmp_path) == files(shared[0])


def test_a_full_disk(run, tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cpcapp.splicing.output.folder.atomic_write", full)
    result = run(Oracle(), "-o", tmp_path)
    assert result.returncode == 2
    assert result.stderr == f"cpcapp demo: can't write to {tmp_path}: No space left on device\n"
