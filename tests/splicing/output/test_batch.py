"""Localizing files from Python; tests/cli/test_localize.py has what the command shows of it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

import cpcapp.splicing.output
import stand_in
from cpcapp.splicing import (
    ModelError,
    ResultsError,
    load_model,
    localize_files,
    save_model,
)
from cpcapp.splicing import model as model_file
from cpcapp.splicing.model import find_model_file
from cpcapp.splicing.output import batch
from cpcapp.splicing.output.batch import open_model


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("1.png", "2.png", "10.png"):
        cv2.imwrite(str(folder / name), rng.integers(0, 255, (40, 60, 3), dtype=np.uint8))
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(model_file, "load_model", stand_in.load_model)


@pytest.mark.usefixtures("quick")
class TestResults:
    def test_they_come_in_order_as_they_are_done_and_together(self, photos, out):
        (photos / "3.gif").touch()
        (photos / "4.png").touch()
        seen, shares = [], []
        results = localize_files(photos, out, jobs=3, on_result=seen.append, progress=shares.append)
        assert seen == results
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert [result.photo.name for result in results] == [
            *("1.png", "2.png", "3.gif", "4.png", "10.png")
        ]
        assert [bool(result.error) for result in results] == [False, False, True, True, False]
        assert results[2].files is None
        assert results[2].error.startswith(f"{photos}/3.gif: .gif files are not read; ")
        assert results[0].entry == json.loads((out / "1.json").read_bytes())
        assert results[0].to_dict()["overlay"] == str(out / "1.overlay.png")
        assert results[0].verdict == "can't tell (too small)"

    @pytest.mark.parametrize("jobs", [1, 3])
    def test_progress_within_a_photo_is_told(self, photos, out, jobs, monkeypatch):
        """In tenths of a photo; a photo that fails halfway is done all the same."""
        whole = stand_in.StandIn.localize

        def localize(self, image, *, progress):
            for tenth in range(11):
                if (image.name, tenth) == ("2.png", 6):
                    raise ValueError("broken")
                progress(tenth / 10)
            return whole(self, image)

        monkeypatch.setattr(stand_in.StandIn, "localize", localize)
        shares = []
        results = localize_files(photos, out, jobs=jobs, progress=shares.append)
        assert [bool(result.error) for result in results] == [False, True, False]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, pytest.approx(1.0))
        steps = {round(30 * share) for share in shares}
        if jobs == 1:
            assert steps == {*range(16), *range(20, 31)}
            np.testing.assert_allclose(30 * np.array(shares), np.rint(30 * np.array(shares)))
        assert len(steps) > 20

    def test_an_error_of_the_caller_stops_it_and_what_is_done_is_kept(self, photos, out):
        def fail(result):
            raise ZeroDivisionError

        stopped = []
        with pytest.raises(ZeroDivisionError):
            localize_files(photos, out, on_result=fail, on_stop=lambda: stopped.append(True))
        assert stopped == [True]
        assert (out / "1.json").is_file()
        assert str(photos / "1.png") in (out / "summary.csv").read_text()

    def test_nobody_is_told_of_a_stop_when_all_are_done(self, photos, out):
        localize_files(photos, out, on_stop=lambda: pytest.fail("it was not stopped"))


@pytest.mark.usefixtures("quick")
class TestMistakes:
    def test_earlier_results(self, photos, out):
        localize_files(photos, out)
        message = re.escape(
            "1.overlay.png is there already, with 11 more; resume=True to go on, force=True to "
            "replace, or choose another folder"
        )
        with pytest.raises(ResultsError, match=message):
            localize_files(photos, out)
        assert [r.remark for r in localize_files(photos, out, resume=True)] == ["already done"] * 3
        assert [r.remark for r in localize_files(photos, out, force=True)] == [""] * 3

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"jobs": 0}, "jobs=0 must be at least 1"),
            ({"resume": True, "force": True}, "can't be combined"),
            ({"model": "nowhere"}, "can't use the model: there is no model file nowhere; give"),
        ],
    )
    def test_nothing_is_written(self, photos, out, options, message):
        with pytest.raises(ValueError, match=message):
            localize_files(photos, out, **options)
        assert not out.exists()

    def test_no_photos(self, tmp_path, out):
        with pytest.raises(ValueError, match="paths is empty; give files"):
            localize_files([], out)

    def test_a_folder_of_kinds_that_are_not_read_does_not_stop_the_others(self, photos, out):
        (photos / "phone").mkdir()
        (photos / "phone" / "a.gif").touch()
        results = localize_files([photos / "1.png", photos / "phone"], out)
        assert [bool(result.error) for result in results] == [False, True]

    @pytest.mark.parametrize("name", ["summary.csv", "index.html"])
    def test_table_or_page_can_not_be_written(self, photos, out, name):
        (out / name).mkdir(parents=True)
        with pytest.raises(ResultsError, match=rf"{name} is in the way: it is not a file"):
            localize_files(photos / "1.png", out)
        (out / name).rmdir()

        def block(result):
            (out / name).mkdir()

        with pytest.raises(ResultsError, match=rf"can't write .*{name}: "):
            localize_files(photos / "1.png", out, on_result=block)


@pytest.mark.usefixtures("quick")
class TestForeignFiles:
    """What others put into the folder is passed over, or named in one line."""

    @pytest.mark.parametrize(
        "content",
        [
            b"[" * 200_000,
            b'{"file": "a", "sha256": "b", "model": {}, "overlay": "c", "boundary": "d", %s}',
        ],
        ids=["deep", "fields"],
    )
    def test_json_of_others(self, photos, out, content):
        out.mkdir()
        odd = (b'"notes": 5', b'"seam": {"box": 1}', b'"p_value": 1e999', b'"score": NaN')
        fields = odd if b"%s" in content else (b"",)
        for number, field in enumerate(fields):
            (out / f"other{number}.json").write_bytes(content.replace(b"%s", field))
        (result,) = localize_files(photos / "1.png", out)
        assert not result.error
        assert len((out / "summary.csv").read_text().splitlines()) == 2

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
    @pytest.mark.parametrize("name", ["1.json", "1.overlay.png", "summary.csv"])
    def test_a_pipe_in_the_way(self, photos, out, name):
        out.mkdir()
        os.mkfifo(out / "other.json")
        (result,) = localize_files(photos / "1.png", out)
        assert not result.error
        (out / name).unlink()
        os.mkfifo(out / name)
        with pytest.raises(ResultsError, match=f"{name} is in the way: it is not a file"):
            localize_files(photos / "1.png", out, resume=True)

    def test_leftovers_of_a_killed_run_are_removed(self, photos, out):
        (out / "results.0123456789abcdef.part" / "new").mkdir(parents=True)
        (out / "summary.csv.0123456789abcdef.part").touch()
        localize_files(photos / "1.png", out)
        assert list(out.glob("*.part")) == []


@pytest.mark.usefixtures("quick")
class TestWhatIsRecorded:
    @pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
    def test_names_that_a_spreadsheet_would_compute(self, photos, out, monkeypatch, start):
        monkeypatch.chdir(photos)
        name = f"{start}1+1.png"
        (photos / "1.png").rename(photos / name)
        (result,) = localize_files([Path(name)], out)
        assert result.entry["file"] == name
        (row,) = csv.DictReader((out / "summary.csv").read_text().splitlines())
        assert row["file"] == f"'{name}"
        assert row["overlay"] == f"'{start}1+1.overlay.png"

    def test_the_hash_is_of_the_pixels_also_if_the_file_is_replaced_meanwhile(
        self, photos, out, monkeypatch
    ):
        photo, whole = photos / "1.png", batch.read_image
        first = photo.read_bytes()

        def read_later(source, **options):
            photo.write_bytes((photos / "2.png").read_bytes())
            return whole(source, **options)

        monkeypatch.setattr(batch, "read_image", read_later)
        seen = []
        localize = stand_in.StandIn.localize

        def keep(self, image, **options):
            seen.append(image)
            return localize(self, image, **options)

        monkeypatch.setattr(stand_in.StandIn, "localize", keep)
        (result,) = localize_files(photo, out)
        assert result.entry["sha256"] == hashlib.sha256(first).hexdigest()
        np.testing.assert_array_equal(seen[0].pixels, whole(first).pixels)
        assert seen[0].name == "1.png"


class TestModels:
    @pytest.fixture
    def path(self, tmp_path):
        save_model(load_model("filters"), tmp_path / "model")
        return tmp_path / "model"

    def test_one_model_in_memory_and_in_a_file_is_the_same(self, photos, path, out):
        localize_files(photos / "1.png", out, path)
        (result,) = localize_files(photos / "1.png", out, load_model(path), resume=True)
        assert result.remark == "already done"
        other = load_model(path)
        other.threshold = 0.5
        (result,) = localize_files(photos / "1.png", out, other, resume=True)
        assert result.remark == "made again: with another model"

    def test_a_file_that_is_no_model(self, photos, tmp_path, out):
        (tmp_path / "model").write_text("no model")
        with pytest.raises(ModelError, match="model is no model that can be used"):
            localize_files(photos, out, tmp_path / "model")

    def test_the_hash_is_of_the_model_that_is_used(self, path, monkeypatch):
        """Not that of a file that takes its place meanwhile."""
        with find_model_file("paper") as shipped:
            other = shipped.read_bytes()
        read, first = model_file.read_tensor_file, path.read_bytes()

        def read_and_replace(*arguments, **options):
            data = read(*arguments, **options)
            path.write_bytes(other)
            return data

        monkeypatch.setattr(model_file, "read_tensor_file", read_and_replace)
        for name, content in (("filters", first), ("paper", other)):
            _, identity = open_model(path)
            digest = hashlib.sha256(content).hexdigest()
            assert (identity["name"], identity["sha256"]) == (name, digest)


def test_the_library_knows_no_options():
    """But for the command that a report quotes."""
    for path in Path(cpcapp.splicing.output.__file__).parent.rglob("*.py"):
        text = path.read_text().replace(" --model {shlex.quote(model)} --report", "")
        assert re.findall(r"(?<![-\w])--[a-z]\S*", text) == [], path
