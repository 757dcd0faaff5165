"""``cpcapp localize`` as a user runs it, with a localizer that is quick and known."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import stand_in
from cpcapp import __version__
from cpcapp.splicing import load_model
from cpcapp.splicing import model as model_file
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.output.draw import (
    choose_overlay_white,
    draw_boundary,
    draw_overlay,
)
from pages import Page, pdf_text
from photo_folders import content, read

# Of the small photos here.
VERDICT = ": can't tell (too small)"
CODE = (
    "import sys, stand_in; stand_in.install()\n"
    "from cpcapp.cli import main; sys.exit(main(sys.argv[1:]))\n"
)


@pytest.fixture
def run(run_command, monkeypatch):
    monkeypatch.setattr(model_file, "load_model", stand_in.load_model)
    return partial(run_command, "localize")


def command(*arguments, seconds="0"):
    """Return what starts the command in a process of its own."""
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "STAND_IN_SECONDS": seconds,
    }
    call = [sys.executable, "-c", CODE, "localize", *map(str, arguments)]
    return {"args": call, "env": environment}


def picture(seed=0, shape=(40, 60)):
    """Return a square on a slope of light."""
    height, width = shape
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    pixels[:] = np.linspace(60, 90, width)[:, None] + seed
    pixels[height // 4 : height // 2, width // 4 : width // 2] = 220
    return pixels


def write_photo(path, seed=0, shape=(40, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), picture(seed, shape)[..., ::-1])
    return path


@pytest.fixture
def photos(tmp_path):
    for seed in (1, 2, 10):
        write_photo(tmp_path / "photos" / f"{seed}.png", seed)
    return tmp_path / "photos"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def entry(path):
    return json.loads(path.read_bytes())


def summary(folder):
    with (folder / "summary.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class TestResults:
    def test_pictures_entry_and_summary(self, run, photos, out):
        result = run(photos / "1.png", "-o", out)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""  # no progress bar in a pipe
        assert set(content(out)) == {
            *("1.overlay.png", "1.boundary.png", "1.thumbnail.jpg", "1.json"),
            *("summary.csv", "index.html"),
        }
        found = stand_in.StandIn().localize(picture(1))
        np.testing.assert_array_equal(
            read(out / "1.overlay.png"),
            draw_overlay(
                picture(1), found.boundary, 0.5, white=choose_overlay_white(found.boundary, 0.5)
            ),
        )
        np.testing.assert_array_equal(read(out / "1.boundary.png"), draw_boundary(found.boundary))
        told = entry(out / "1.json")
        assert told["file"] == str(photos / "1.png")
        assert told["sha256"] == hashlib.sha256((photos / "1.png").read_bytes()).hexdigest()
        assert (told["width"], told["height"], told["format"]) == (60, 40, "PNG")
        assert (told["model"]["name"], told["model"]["version"]) == ("stand-in", "7")
        assert told["cpcapp"] == __version__
        assert told["seconds"] == 0.25
        assert (told["score"], told["p_value"], told["notes"]) == (None, None, [])
        assert told["share_above_threshold"] == pytest.approx(
            (found.boundary >= 0.5).mean(), rel=1e-5
        )
        # The square is 10 by 15; its steps are seen on both sides.
        assert told["seam"]["strength"] == 1.0
        assert found.boundary[told["seam"]["row"], told["seam"]["column"]] == 1.0
        assert told["seam"]["box"] == [9, 14, 12, 17]
        (row,) = summary(out)
        assert row["file"] == str(photos / "1.png")
        assert (row["width"], row["height"], row["score"]) == ("60", "40", "")
        assert [row[f"box_{side}"] for side in ("top", "left", "height", "width")] == [
            *("9", "14", "12", "17")
        ]
        assert (row["overlay"], row["error"]) == ("1.overlay.png", "")

    def test_what_a_model_that_judges_adds(self, run, tmp_path, out, monkeypatch):
        """With the model that is shipped: a square of another camera on noise."""
        monkeypatch.setattr(model_file, "load_model", load_model)
        rng = np.random.default_rng(0)
        ours, theirs = (
            Camera(phase, shot_noise=3e-4).shoot(picture(0, (200, 300)), rng)
            for phase in ((0, 0), (0, 1))
        )
        ours[60:140, 90:200] = theirs[60:140, 90:200]
        cv2.imwrite(str(tmp_path / "spliced.png"), ours[..., ::-1])
        assert run(tmp_path / "spliced.png", "-o", out).returncode == 0
        whole = content(out)
        assert "spliced.region.png" in whole
        told, found = entry(out / "spliced.json"), load_model().localize(ours)
        np.testing.assert_array_equal(read(out / "spliced.region.png"), 255 * found.mask)
        assert told["region"] == "spliced.region.png"
        assert told["region_share"] == pytest.approx(found.mask.mean(), abs=1e-5)
        assert told["p_value"] == pytest.approx(found.p_value, rel=1e-4)
        assert (told["genuine_as_high"], told["genuine_photos"]) == found.rank[1:]
        (row,) = summary(out)
        assert float(row["region_share"]) == told["region_share"]
        assert (row["verdict"], row["verdict_code"]) == (found.verdict, found.verdict_code)
        assert told["verdict_code"] == found.verdict_code
        (out / "spliced.region.png").unlink()
        result = run(tmp_path / "spliced.png", "-o", out, "--resume")
        assert "made again: was not complete" in result.stdout
        assert "spliced.region.png" in content(out)

    def test_a_caption_is_called_one_and_a_page_of_text_no_photo(
        self, run, tmp_path, out, monkeypatch
    ):
        monkeypatch.setattr(model_file, "load_model", load_model)
        photo = Camera((0, 0), shot_noise=3e-4).shoot(
            picture(0, (200, 300)), np.random.default_rng(0)
        )
        photo[150:] = 0
        cv2.putText(photo, "The new bridge", (20, 184), 0, 1, (255, 255, 255), 2)
        page = np.full((200, 300, 3), 255, np.uint8)
        for row in range(20, 190, 20):
            cv2.putText(page, "the quick brown fox jumps", (10, row), 0, 0.5, (0, 0, 0), 1)
        cv2.imwrite(str(tmp_path / "caption.png"), photo)
        cv2.imwrite(str(tmp_path / "page.png"), page)
        result = run(tmp_path / "caption.png", tmp_path / "page.png", "-o", out)
        assert "; the marked part looks like a caption, a frame or a logo" in result.stdout
        assert "can't tell (not a photo)" in result.stdout
        assert entry(out / "caption.json")["part_kind"] == "graphic"
        told = entry(out / "page.json")
        assert (told["verdict_code"], told["part_kind"]) == ("unknown", None)

    def test_models_have_names_and_the_quick_one_an_option(self, run, tmp_path, out, monkeypatch):
        monkeypatch.setattr(model_file, "load_model", load_model)
        photo = write_photo(tmp_path / "photo.png", 0, (80, 90))
        names = {}
        for options in (["--fast"], ["--model", "filters"], ["--model", "paper"]):
            assert run(photo, "-o", out, "--force", *options).returncode == 0
            names[" ".join(options)] = entry(out / "photo.json")["model"]["name"]
        assert names == {
            "--fast": "filters",
            "--model filters": "filters",
            "--model paper": "paper",
        }
        assert "already done" in run(photo, "-o", out, "--resume", "--model", "paper").stdout
        assert "with another model" in run(photo, "-o", out, "--resume", "--fast").stdout

    def test_a_line_for_each_photo_in_the_order_in_which_people_count(self, run, photos, out):
        result = run(photos, "-o", out)
        lines = result.stdout.splitlines()
        assert lines[:3] == [
            f"{photos}/{name}.png -> {out}/{name}.overlay.png{VERDICT}" for name in (1, 2, 10)
        ]
        assert lines[3].startswith("3 of 3 photos in ")
        assert lines[3].endswith(f"-> {out}/index.html")
        assert [row["overlay"] for row in summary(out)] == [
            f"{name}.overlay.png" for name in (1, 2, 10)
        ]

    def test_the_default_folder(self, run, photos, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert run("photos/2.png").returncode == 0
        assert (tmp_path / "cpcapp-output" / "2.overlay.png").exists()

    def test_json_and_nothing_else(self, run, photos, out):
        (photos / "3.png").write_bytes(b"no photo")
        result = run(photos, "-o", out, "--json")
        assert result.returncode == 1
        told = json.loads(result.stdout)
        assert [Path(photo["file"]).name for photo in told] == ["1.png", "2.png", "3.png", "10.png"]
        assert told[0] == {
            **entry(out / "1.json"),
            "overlay": str(out / "1.overlay.png"),
            "boundary": str(out / "1.boundary.png"),
            "thumbnail": str(out / "1.thumbnail.jpg"),
        }
        assert set(told[2]) == {"file", "error"}
        assert json.loads(run(photos / "1.png", "-o", out, "--force", "--json").stdout)

    def test_jobs_change_nothing(self, run, tmp_path):
        for seed in range(8):
            # Large ones first, so that small ones are done before their turn.
            write_photo(tmp_path / "photos" / f"{seed}.png", seed, (400 - 40 * seed, 300))
        (tmp_path / "photos" / "broken.png").touch()
        results = [
            run(tmp_path / "photos", "-o", tmp_path / "out", "--force", "--jobs", jobs)
            for jobs in (1, 4)
        ]
        assert len({result.stderr for result in results}) == 1
        first, second = (result.stdout.splitlines()[:-1] for result in results)
        assert first == second
        assert len(first) == 8
        run(tmp_path / "photos", "-o", tmp_path / "one", "--jobs", 1)
        assert content(tmp_path / "one") == content(tmp_path / "out")

    def test_maps_lie_on_the_photo_as_it_is_shown(self, run, tmp_path, out):
        tags = Image.Exif()
        tags[274] = 6  # to be turned clockwise
        shown = picture()
        stored = np.rot90(shown)
        Image.fromarray(stored).save(tmp_path / "turned.png", exif=tags)
        assert run(tmp_path / "turned.png", "-o", out).returncode == 0
        told = entry(out / "turned.json")
        assert (told["width"], told["height"]) == (60, 40)
        assert told["notes"] == ["turned by the EXIF orientation"]
        assert told["seam"]["box"] == [9, 14, 12, 17]
        boundary = stand_in.StandIn().localize(shown).boundary
        np.testing.assert_array_equal(
            read(out / "turned.overlay.png"),
            draw_overlay(shown, boundary, 0.5, white=choose_overlay_white(boundary, 0.5)),
        )
        with Image.open(out / "turned.overlay.png") as file:
            assert 274 not in file.getexif()


class TestNames:
    @pytest.mark.parametrize("name", ["n" * 240, "й" * 110, "a b", "naïve", "1.overlay"])
    def test_unusual_names(self, run, tmp_path, out, name):
        Image.fromarray(picture()).save(tmp_path / f"{name}.png")
        result = run(tmp_path, "-o", out)
        assert result.returncode == 0, result.stderr
        assert len(content(out)) == 6
        assert entry(next(out.glob("*.json")))["file"] == str(tmp_path / f"{name}.png")

    @pytest.mark.skipif(sys.platform != "linux", reason="names must be text elsewhere")
    def test_names_that_are_no_text(self, run, tmp_path, out):
        path = os.fsencode(tmp_path) + b"/caf\xe9\n.png"
        Image.fromarray(picture()).save(tmp_path / "cafe.png")
        os.rename(tmp_path / "cafe.png", path)  # noqa: PTH104
        result = run(tmp_path, "-o", out, "--json")
        assert result.returncode == 0, result.stderr
        assert os.fsencode(json.loads(result.stdout)[0]["file"]) == path
        result = run(tmp_path, "-o", out, "--force")
        assert len(result.stdout.splitlines()) == 2
        assert "\\udce9\\n" in result.stdout
        assert len(summary(out)) == 1

    def test_folders_in_folders_and_patterns(self, run, photos, tmp_path, out):
        write_photo(photos / "deep" / "er" / "z.png")
        assert run(photos, "-o", tmp_path / "flat").returncode == 0
        assert not (tmp_path / "flat" / "z.json").exists()
        assert run(photos, "-o", out, "--recursive").returncode == 0
        assert (out / "z.json").exists()
        assert run(f"{photos}/1*.png", "-o", tmp_path / "some").returncode == 0
        assert {p.stem for p in (tmp_path / "some").glob("*.json")} == {"1", "10"}

    def test_pictures_of_an_earlier_run_are_no_photos(self, run, photos):
        assert run(photos, "-o", photos).returncode == 0
        before = content(photos)
        result = run(photos, "-o", photos, "--resume")
        assert result.returncode == 0, result.stderr
        assert content(photos) == before
        result = run(photos / "1.overlay.png", "-o", photos)
        assert result.returncode == 2
        assert "1.overlay.png is a picture of an earlier result; give photos" in result.stderr


class TestEarlierResults:
    def test_they_are_kept_unless_told_otherwise(self, run, photos, out):
        run(photos, "-o", out)
        before = content(out)
        result = run(photos, "-o", out)
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr == (
            f"cpcapp localize: {out}/1.overlay.png is there already, with 11 more; --resume to go "
            "on, --force to replace, or choose another -o\n"
        )
        assert content(out) == before

    def test_force_replaces_them(self, run, photos, out):
        run(photos, "-o", out)
        before = content(out)
        for name in ("1.json", "1.overlay.png", "1.thumbnail.jpg", "summary.csv", "index.html"):
            (out / name).write_bytes(b"broken")
        (out / "mine.txt").write_text("kept")
        assert run(photos, "-o", out, "--force").returncode == 0
        after = content(out)
        assert after.pop("mine.txt") == b"kept"
        assert after == before

    def test_going_on_leaves_out_what_is_done(self, run, photos, out):
        run(photos, "-o", out)
        whole = content(out)
        marked = entry(out / "1.json") | {"seconds": 77}
        (out / "1.json").write_text(json.dumps(marked))
        for name in ("2.boundary.png", "10.json"):
            (out / name).unlink()
        result = run(photos, "-o", out, "--resume")
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[:3] == [
            f"{photos}/1.png -> {out}/1.overlay.png{VERDICT} (already done)",
            f"{photos}/2.png -> {out}/2.overlay.png{VERDICT} (made again: was not complete)",
            f"{photos}/10.png -> {out}/10.overlay.png{VERDICT}",
        ]
        assert entry(out / "1.json") == marked
        assert [row["seconds"] for row in summary(out)] == ["77", "0.25", "0.25"]
        for name in ("2.boundary.png", "2.overlay.png", "10.json"):
            assert (out / name).read_bytes() == whole[name]
        told = json.loads(run(photos, "-o", out, "--resume", "--json").stdout)
        assert told[0]["seconds"] == 77

    def test_going_on_with_a_changed_photo(self, run, photos, out):
        run(photos, "-o", out)
        write_photo(photos / "2.png", 99)
        result = run(photos, "-o", out, "--resume")
        assert result.returncode == 0
        remarks = [line.rpartition(" (")[2] for line in result.stdout.splitlines()[:3]]
        assert remarks == ["already done)", "made again: the photo has changed)", "already done)"]
        digest = hashlib.sha256((photos / "2.png").read_bytes()).hexdigest()
        assert entry(out / "2.json")["sha256"] == digest

    def test_going_on_does_not_replace_the_result_of_another_photo(self, run, tmp_path, out):
        one = write_photo(tmp_path / "a" / "x.png", 1)
        other = write_photo(tmp_path / "b" / "x.png", 2)
        run(one, "-o", out)
        before = content(out)
        result = run(other, "-o", out, "--resume")
        assert result.returncode == 1
        assert result.stderr == (
            f"cpcapp localize: {other}: {out}/x.json is of another photo, {one}; choose another "
            "folder for the results, or force to replace it\n"
        )
        overviews = {"summary.csv": b"", "index.html": b""}
        assert {**content(out), **overviews} == {**before, **overviews}
        # A copy of the same photo is the same photo.
        other.write_bytes(one.read_bytes())
        assert "(already done)" in run(other, "-o", out, "--resume").stdout

    def test_no_photo_is_ever_replaced(self, run, tmp_path):
        write_photo(tmp_path / "x.png")
        photo = write_photo(tmp_path / "x.overlay.png", 5).read_bytes()
        result = run(tmp_path, "-o", tmp_path, "--force")
        assert result.returncode == 2
        assert "x.overlay.png is a photo and would be replaced" in result.stderr
        assert (tmp_path / "x.overlay.png").read_bytes() == photo


class TestReports:
    NAMES = ("1.report.html", "1.report.pdf")

    def test_they_are_written_beside_the_pictures(self, run, photos, out):
        result = run(photos, "-o", out, "--report")
        assert (result.returncode, result.stderr) == (0, "")
        wanted = {f"{name}.report.{kind}" for name in (1, 2, 10) for kind in ("html", "pdf")}
        assert {path.name for path in out.glob("*.report.*")} == wanted
        page = Page((out / "1.report.html").read_text())
        page.check_policy()
        sha256 = hashlib.sha256((photos / "1.png").read_bytes()).hexdigest()
        for text in (sha256, entry(out / "1.json")["model"]["sha256"], "1.png --model stand-in"):
            assert text in page.text
            assert "".join(text.split()) in pdf_text((out / "1.report.pdf").read_bytes())
        assert str(photos) not in page.text  # whose folders these are is nobody's business
        assert (summary(out)[0]["report"], summary(out)[0]["report_pdf"]) == self.NAMES
        assert {"1.report.html", "10.report.pdf"} < set(
            Page((out / "index.html").read_text()).links
        )

    def test_going_on_adds_those_that_are_missing(self, run, photos, out):
        run(photos / "1.png", "-o", out)
        before = content(out)
        result = run(photos, "-o", out, "--resume", "--report")
        remarks = [line.partition(VERDICT)[2] for line in result.stdout.splitlines()[:3]]
        assert remarks == [" (made again: with a report)", "", ""]
        assert content(out)["1.overlay.png"] == before["1.overlay.png"]
        # With or without the option, what is there stays.
        whole = content(out)
        for options in (["--report"], []):
            assert run(photos, "-o", out, "--resume", *options).stdout.count("already done") == 3
            assert content(out) == whole

    def test_a_result_that_is_made_again_without_one_leaves_none(self, run, photos, out):
        run(photos / "1.png", "-o", out, "--report")
        assert run(photos / "1.png", "-o", out, "--force").returncode == 0
        assert not list(out.glob("*.report.*"))
        assert "report" not in str(Page((out / "index.html").read_text()).links)


class TestProblems:
    def test_bad_photos_are_named_at_the_end_and_the_others_done(self, run, photos, out):
        (photos / "0.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
        (photos / "3.png").touch()
        cv2.imwrite(str(photos / "4.png"), np.zeros((5, 5, 3), np.uint8))
        result = run(photos, "-o", out)
        assert result.returncode == 1
        lines = result.stderr.splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(f"cpcapp localize: {photos}/0.jpg: ")
        assert lines[1] == (f"cpcapp localize: {photos}/3.png: is empty; use a complete copy")
        assert lines[2] == f"cpcapp localize: {photos}/4.png: image has 5 × 5 pixels; at least 8"
        assert "3 of 6 photos" in result.stdout
        assert {p.stem for p in out.glob("*.json")} == {"1", "2", "10"}
        rows = summary(out)
        assert [bool(row["error"]) for row in rows] == [True, False, False, True, True, False]
        assert rows[3]["error"].endswith("3.png: is empty; use a complete copy")
        assert rows[3]["overlay"] == ""

    def test_images_of_other_kinds_in_a_folder_are_named(self, run, photos, out):
        for name in ("3.CR2", "11.gif", "notes.txt", "summary.pdf"):
            (photos / name).write_bytes(b"something")
        result = run(photos, "-o", out)
        assert result.returncode == 1
        assert result.stderr.splitlines() == [
            f"cpcapp localize: {photos}/3.CR2: .CR2 files are not read; save it as JPEG or PNG",
            f"cpcapp localize: {photos}/11.gif: .gif files are not read; save it as JPEG or PNG",
        ]
        assert "3 of 5 photos" in result.stdout
        assert {p.stem for p in out.glob("*.json")} == {"1", "2", "10"}
        assert [Path(row["file"]).name for row in summary(out) if row["error"]] == [
            *("3.CR2", "11.gif")
        ]

    def test_a_photo_above_the_limit_of_pixels(self, run, photos, out):
        write_photo(photos / "2.png", shape=(50, 60))
        done = run(photos, "-o", out, "--max-megapixels", "0.0025")
        assert done.returncode == 1
        assert done.stderr == (
            f"cpcapp localize: {photos / '2.png'}: has 60 × 50 pixels, more than 0.0025 "
            "megapixels; make it smaller or raise --max-megapixels\n"
        )
        assert "2 of 3 photos" in done.stdout
        done = run(photos, "-o", out, "--resume", "--json", "--max-megapixels", "0.0025")
        assert "raise --max-megapixels" in json.loads(done.stdout)[1]["error"]
        assert run(photos, "-o", out, "--resume").returncode == 0

    def test_too_little_memory_for_one_photo(self, run, photos, out, monkeypatch):
        whole = stand_in.StandIn.localize

        def localize(self, image, *, progress=None):
            if image.name == "2.png":
                raise MemoryError
            return whole(self, image, progress=progress)

        monkeypatch.setattr(stand_in.StandIn, "localize", localize)
        result = run(photos, "-o", out)
        assert result.returncode == 1
        assert result.stderr.startswith(f"cpcapp localize: {photos}/2.png: needs more memory")
        assert (out / "10.json").exists()


class TestOtherProcesses:
    def test_interrupting_keeps_what_is_done(self, run, tmp_path, out):
        photos = tmp_path / "photos"
        for seed in range(30):
            write_photo(photos / f"{seed}.png", seed)
        call = command(photos, "-o", out, "--jobs", 2, seconds="0.2")
        with subprocess.Popen(
            **call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                first = process.stdout.readline()
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 128 + signal.SIGINT
        assert errors == "cpcapp localize: stopped\n"
        assert first.endswith(f"0.overlay.png{VERDICT}\n")
        done = {path.name.partition(".")[0] for path in out.glob("*.json")}
        assert "0" in done
        assert len(done) < 30
        # Whole files, and all four of each.
        assert len(content(out)) == 4 * len(done) + 2
        assert {row["overlay"].partition(".")[0] for row in summary(out)} >= {"0"}
        result = run(photos, "-o", out, "--resume")
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("(already done)") == len(done)
        assert len(summary(out)) == 30

    def test_a_closed_pipe_is_not_an_error_message(self, photos, out):
        process = subprocess.Popen(
            **command(photos, "-o", out, seconds="0.3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline().endswith(f"1.overlay.png{VERDICT}\n")
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=60) == 141
        assert errors == ""
        assert not list(out.glob("*.part"))

    def test_progress_on_a_terminal_leaves_the_lines_readable(self, photos, out):
        terminal, inside = os.openpty()
        process = subprocess.Popen(**command(photos, "-o", out), stdout=inside, stderr=inside)
        os.close(inside)
        shown = b""
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:
            pass  # Linux's way to say that the other end was closed
        finally:
            os.close(terminal)
        assert process.wait(timeout=60) == 0
        text = shown.decode().replace("\r\n", "\n")
        assert "localizing [" in text
        # What stays on a line is what was written after the last return to its beginning.
        stays = [line.rpartition("\r")[2] for line in text.split("\n")]
        for name in (1, 2, 10):
            assert f"{photos}/{name}.png -> {out}/{name}.overlay.png{VERDICT}" in stays
        assert "100 %" in text
