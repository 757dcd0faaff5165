"""What a file says about itself, from files as cameras, editors and strangers write them."""

from __future__ import annotations

import hashlib
import io
import json
import struct

import cv2
import numpy as np
import pillow_heif
import pytest
from PIL import Image, PngImagePlugin

from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.photo.file_facts import read_file_facts
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.read import read_image


@pytest.fixture(scope="module")
def photo():
    return example_photos()[-1].image


def facts_of(data, name=""):
    file = io.BytesIO(data)
    file.name = name
    return read_file_facts(data, read_image(file))


def saved(image, form, **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, form, **options)
    return file.getvalue()


def camera_exif(**changes):
    exif = Image.Exif()
    exif[271], exif[272] = "Canon", "Canon EOS 5D"
    exif[305], exif[306] = "Firmware 1.0.4", "2020:05:01 10:00:07"
    details = {36867: "2020:05:01 10:00:05", 42036: "EF 50mm f/1.8", 40962: 512, 40963: 512}
    exif.get_ifd(34665).update(details)
    for tag, value in changes.items():
        exif[int(tag[1:])] = value
    return exif


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def with_segments(data, *segments):
    return data[:2] + b"".join(segment(*one) for one in segments) + data[2:]


def with_thumbnail(data, small, orientation=1):
    """Put EXIF data with a thumbnail into a JPEG file; Pillow writes none."""
    first = struct.pack("<HHHII", 1, 274, 3, 1, orientation) + struct.pack("<I", 26)
    second = struct.pack("<H", 2) + struct.pack("<HHII", 513, 4, 1, 56)
    second += struct.pack("<HHII", 514, 4, 1, len(small)) + bytes(4)
    tiff = b"II*\0" + struct.pack("<I", 8) + first + second
    assert len(tiff) == 56
    return with_segments(data, (0xE1, b"Exif\0\0" + tiff + small))


def xmp_segment(text):
    return 0xE1, b"http://ns.adobe.com/xap/1.0/\0" + text.encode()


def resource(number, content):
    pad = b"\0" * (len(content) % 2)
    return b"8BIM" + struct.pack(">HHI", number, 0, len(content)) + content + pad


def photoshop_segment(*resources):
    return 0xED, b"Photoshop 3.0\0" + b"".join(resources)


class TestCameras:
    def test_a_photo_of_a_camera(self, photo):
        data = saved(photo, "JPEG", quality=85, exif=camera_exif())
        facts = facts_of(data)
        assert facts.to_dict() == {
            "format": "JPEG",
            "width": 512,
            "height": 512,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
            "camera": "Canon EOS 5D",
            "lens": "EF 50mm f/1.8",
            "taken": "2020-05-01 10:00:05",
            "changed": "2020-05-01 10:00:07",
            "software": "Firmware 1.0.4",
            "editor": None,
            "gps": False,
            "profile": None,
            "jpeg": {
                "quality": 85,
                "tables": "standard tables at quality 85",
                "subsampling": "4:2:0",
                "progressive": False,
            },
            "thumbnail": None,
            "looks_like_photo": True,
            "reason": facts.reason,
            "warnings": [],
            "remarks": [],
        }
        assert json.loads(json.dumps(facts.to_dict())) == facts.to_dict()
        rows = dict(facts.rows())
        assert rows["Camera"] == "Canon EOS 5D"
        assert rows["Place"] == "none stored"
        assert rows["JPEG tables"] == "standard tables at quality 85"
        assert "Editor" not in rows

    @pytest.mark.parametrize("form", ["PNG", "TIFF", "WebP", "AVIF", "HEIC"])
    def test_other_formats(self, photo, form):
        exif = camera_exif()
        if form == "HEIC":
            file = io.BytesIO()
            pillow_heif.from_pillow(Image.fromarray(photo)).save(file, exif=exif.tobytes())
            data = file.getvalue()
        else:
            data = saved(photo, form, exif=exif.tobytes())
        facts = facts_of(data)
        assert facts.format == form
        assert (facts.camera, facts.lens) == ("Canon EOS 5D", "EF 50mm f/1.8")
        assert facts.jpeg is None
        assert facts.remarks == ()

    def test_the_place_is_said_to_be_stored_and_not_shown(self, photo):
        exif = camera_exif()
        exif.get_ifd(34853).update({1: "N", 2: (48.0, 51.0, 29.0), 3: "E", 4: (2.0, 17.0, 40.0)})
        facts = facts_of(saved(photo, "JPEG", exif=exif))
        assert facts.gps
        assert facts.remarks == ("The file stores the place where it was taken.",)
        shown = json.dumps(facts.to_dict()) + str(facts.rows())
        assert "48" not in shown.replace(facts.sha256, "").replace(facts.md5, "").replace(
            str(facts.n_bytes), ""
        ).replace(f"{facts.n_bytes:,}", "")

    def test_changed_later_and_earlier(self, photo):
        later = facts_of(saved(photo, "JPEG", exif=camera_exif(_306="2021:01:01 00:00:00")))
        assert later.remarks[0].startswith(
            "The file was changed after the photo was taken: taken 2"
        )
        earlier = facts_of(saved(photo, "JPEG", exif=camera_exif(_306="2019:01:01 00:00:00")))
        assert earlier.remarks[0].startswith("Its times contradict each other")

    def test_a_crop_whose_exif_data_were_kept(self, photo):
        facts = facts_of(saved(photo[:300], "JPEG", exif=camera_exif()))
        assert facts.remarks == (
            "Its EXIF data speak of 512 × 512 pixels, the photo has 512 × 300: it was cropped or "
            "resized by a program that did not renew them.",
        )

    @pytest.mark.parametrize("form", ["JPEG", "TIFF", "PNG", "BMP"])
    def test_no_metadata_at_all(self, photo, form):
        facts = facts_of(saved(photo, form))
        assert len(facts.remarks) == 1
        assert facts.remarks[0].startswith("The file names no camera and no program.")


class TestPrograms:
    @pytest.mark.parametrize(
        ("software", "is_editor"),
        [
            ("Adobe Photoshop 25.0 (Windows)", True),
            ("GIMP 2.10.34", True),
            ("Snapseed 2.0", True),
            ("Adobe Photoshop Lightroom Classic 12.0 (Macintosh)", True),
            ("paint.net 5.0", True),
            ("Ver.1.00", False),
            ("iOS 16.1.1", False),
            ("HDR+ 1.0.345618096zd", False),
            ("Nikon Transfer 1.1 W", False),
            ("MediaTek Camera Application", False),
        ],
    )
    def test_software(self, photo, software, is_editor):
        facts = facts_of(saved(photo, "JPEG", exif=camera_exif(_305=software)))
        assert facts.software == software
        assert facts.editor == (software if is_editor else None)
        assert facts.remarks == ((f"Saved by {software}.",) if is_editor else ())

    def test_xmp(self, photo):
        plain = encode_jpeg(photo, 90)
        data = with_segments(plain, xmp_segment('<a xmp:CreatorTool="Canva 1.0"/>'))
        assert facts_of(data).editor == "Canva 1.0"
        data = with_segments(plain, xmp_segment("<xmp:CreatorTool>GIMP 2.10</xmp:CreatorTool>"))
        assert facts_of(data).editor == "GIMP 2.10"

    def test_the_history_of_xmp_names_an_editor_that_the_camera_data_do_not(self, photo):
        history = (
            '<rdf:li stEvt:softwareAgent="Adobe Photoshop 24.0 (Windows)"/>'
            '<rdf:li stEvt:softwareAgent="Adobe Photoshop 25.0 (Windows)"/>'
        )
        data = saved(photo, "JPEG", exif=camera_exif())
        facts = facts_of(with_segments(data, xmp_segment(history)))
        assert facts.software == "Firmware 1.0.4"
        assert facts.editor == "Adobe Photoshop 25.0 (Windows)"
        assert facts.remarks[0] == "Saved by Adobe Photoshop 25.0 (Windows)."
        assert facts.warnings == facts.remarks[:1]
        assert facts.to_dict()["warnings"] == list(facts.warnings)

    def test_photoshop_records_its_quality(self, photo):
        data = with_segments(
            encode_jpeg(photo, 90), photoshop_segment(resource(0x0406, b"\0\4\0\0\0\1\1"))
        )
        assert facts_of(data).remarks[0] == "Saved by Adobe Photoshop (quality 8 of 12)."

    @pytest.mark.parametrize(
        ("comment", "editor"),
        [
            ("Created with GIMP", "GIMP"),
            ("File written by Adobe Photoshop® 4.0", "Adobe Photoshop® 4.0"),
            ("A holiday in Spain", None),
        ],
    )
    def test_comments_name_editors(self, photo, comment, editor):
        facts = facts_of(saved(photo, "JPEG", comment=comment.encode()))
        assert facts.editor == editor
        assert facts.warnings == (() if editor is None else (f"Saved by {editor}.",))

    def test_facebook_and_whatsapp(self, photo):
        iptc = resource(0x0404, b"\x1c\2\x28\0\x10FBMD01000a9a0000")
        data = with_segments(encode_jpeg(photo, 90), photoshop_segment(iptc))
        assert (
            "Saved by Facebook or Instagram, says a mark that they leave." in facts_of(data).remarks
        )
        named = facts_of(encode_jpeg(photo, 90), "IMG-20190102-WA0003.jpg")
        assert named.remarks[0] == "Its name is of the kind that WhatsApp gives to photos."
        assert len(facts_of(encode_jpeg(photo, 90), "IMG_20190102.jpg").remarks) == 1

    @pytest.mark.parametrize(
        ("text", "meaning"),
        [
            ("trainedAlgorithmicMedia", "an AI generator made it"),
            ("compositeWithTrainedAlgorithmicMedia", "parts of it were made by an AI generator"),
        ],
    )
    @pytest.mark.parametrize("form", ['="{}"', ">{}<", ' rdf:resource="{}"'])
    def test_generators_that_say_so(self, photo, text, meaning, form):
        address = form.format(f"http://cv.iptc.org/newscodes/digitalsourcetype/{text}")
        data = with_segments(
            encode_jpeg(photo, 90), xmp_segment(f"<a Iptc4xmpExt:DigitalSourceType{address}/>")
        )
        assert facts_of(data).remarks[0] == (
            f"The file itself says that {meaning} (IPTC digital source type)."
        )

    def test_a_camera_that_says_so(self, photo):
        address = "http://cv.iptc.org/newscodes/digitalsourcetype/digitalCapture"
        data = with_segments(
            encode_jpeg(photo, 90), xmp_segment(f'<a Iptc4xmpExt:DigitalSourceType="{address}"/>')
        )
        assert not any("IPTC" in text for text in facts_of(data).remarks)

    def test_texts_of_png(self, photo):
        texts = PngImagePlugin.PngInfo()
        texts.add_text("Software", "GIMP 2.10", zip=True)
        texts.add_text("parameters", "a cat\nSteps: 20, Sampler: Euler a")
        texts.add_itxt("XML:com.adobe.xmp", '<a xmp:CreatorTool="Krita 5"/>', zip=True)
        facts = facts_of(saved(photo, "PNG", pnginfo=texts))
        assert (facts.software, facts.editor) == ("GIMP 2.10", "GIMP 2.10")
        assert facts.remarks[0] == (
            "The file holds the settings of the AI generator Stable Diffusion."
        )

    def test_content_credentials(self, photo):
        data = with_segments(encode_jpeg(photo, 90), (0xEB, b"JP\0\1jumb....c2pa"))
        assert any("C2PA" in text for text in facts_of(data).remarks)
        # Cameras write them too: no warning.
        assert facts_of(data).warnings == ()

    def test_a_colour_profile(self, photo):
        from PIL import ImageCms

        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        for form in ("JPEG", "PNG", "WebP", "TIFF"):
            assert facts_of(saved(photo, form, icc_profile=profile)).profile == "sRGB built-in"


class TestThumbnails:
    def small(self, photo, **options):
        return encode_jpeg(cv2.resize(photo, (160, 160), interpolation=cv2.INTER_AREA), 80)

    def test_the_same_photo(self, photo):
        facts = facts_of(with_thumbnail(encode_jpeg(photo, 90), self.small(photo)))
        assert facts.to_dict()["thumbnail"]["width"] == 160
        assert facts.thumbnail.differs is False
        assert facts.thumbnail.difference < 0.3
        with Image.open(io.BytesIO(facts.thumbnail_png)) as image:
            assert (image.format, image.size) == ("PNG", (160, 160))
        assert dict(facts.rows())["Thumbnail"] == "160 × 160 pixels, shows the same photo"

    def test_a_changed_part(self, photo):
        small = self.small(photo)
        changed = photo.copy()
        changed[60:200, 180:320] = photo[300:440, 20:160]
        facts = facts_of(with_thumbnail(encode_jpeg(changed, 90), small))
        assert facts.thumbnail.differs
        assert facts.remarks[0] == "The thumbnail in the file shows something else than the photo."

    @pytest.mark.parametrize("orientation", [3, 6, 8])
    def test_it_is_turned_with_the_photo(self, photo, orientation):
        wide = np.ascontiguousarray(photo[:300])
        small = encode_jpeg(cv2.resize(wide, (160, 94), interpolation=cv2.INTER_AREA), 80)
        facts = facts_of(with_thumbnail(encode_jpeg(wide, 90), small, orientation))
        assert not facts.thumbnail.differs
        upright = facts.thumbnail.size
        assert upright == ((160, 94) if orientation == 3 else (94, 160))

    def test_black_bars(self, photo):
        wide = np.ascontiguousarray(photo[100:400])
        small = np.zeros((120, 160, 3), np.uint8)
        small[13:107] = cv2.resize(wide, (160, 94), interpolation=cv2.INTER_AREA)
        facts = facts_of(with_thumbnail(encode_jpeg(wide, 90), encode_jpeg(small, 80)))
        assert not facts.thumbnail.differs

    @pytest.mark.parametrize("small", [b"rubbish", b"\xff\xd8\xff\xd9", b"\xff\xd8" + bytes(99)])
    def test_a_damaged_one_is_left_out(self, photo, small):
        facts = facts_of(with_thumbnail(encode_jpeg(photo, 90), small))
        assert facts.thumbnail is None
        assert facts.thumbnail_png is None

    def test_a_tiny_one_is_left_out(self, photo):
        small = encode_jpeg(photo[:10, :10], 80)
        assert facts_of(with_thumbnail(encode_jpeg(photo, 90), small)).thumbnail is None


class TestHostileMetadata:
    def test_control_characters_are_removed_and_texts_are_short(self, photo):
        exif = camera_exif(_271="", _272="Evil\x1b[31m\x07 camera\r\n", _305="x" * 5000)
        facts = facts_of(saved(photo, "JPEG", exif=exif))
        assert facts.camera == "Evil [31m camera"
        assert len(facts.software) == 200
        tool = xmp_segment('<a xmp:CreatorTool="\u202etrevni\u202c\u2028GIMP"/>')
        assert facts_of(with_segments(encode_jpeg(photo, 90), tool)).editor == "trevni GIMP"
        assert all(label.isprintable() and text.isprintable() for label, text in facts.rows())

    def test_directories_that_point_at_themselves(self, photo):
        entry = struct.pack("<HHII", 34665, 4, 1, 8) + struct.pack("<HHII", 34853, 4, 1, 8)
        tiff = b"II*\0" + struct.pack("<IH", 8, 2) + entry + struct.pack("<I", 8)
        facts = facts_of(with_segments(encode_jpeg(photo, 90), (0xE1, b"Exif\0\0" + tiff)))
        assert facts.camera is None

    def test_a_bomb_of_text(self, photo):
        """Little data that unpacks to much."""
        texts = PngImagePlugin.PngInfo()
        texts.add_text("Software", "a" * 30_000_000, zip=True)
        texts.add_text("Comment", "b" * 1000)
        data = saved(photo, "PNG", pnginfo=texts)
        assert facts_of(data).software == "a" * 200

    @pytest.mark.parametrize("kind", ["<I", ">I"])
    def test_every_cut_of_the_exif_data(self, photo, kind):
        exif = camera_exif()
        exif.endian = kind[0]
        whole = exif.tobytes()
        plain = encode_jpeg(photo[:64, :64], 90)
        for size in range(6, len(whole), 3):
            found = read_image(with_segments(plain, (0xE1, whole[:size]))).metadata.exif
            assert found.make in ("", "Canon"[: len(found.make)])

    def test_a_file_that_is_none(self, photo):
        facts = read_file_facts(b"", read_image(photo))
        assert facts.n_bytes == 0
        assert facts.jpeg is None


class TestJpegTables:
    @pytest.mark.parametrize("quality", [1, 10, 49, 50, 51, 75, 90, 99, 100])
    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    def test_standard_ones(self, photo, quality, subsampling):
        data = saved(photo[:32, :32], "JPEG", quality=quality, subsampling=subsampling)
        found = facts_of(data).jpeg
        assert (found.quality, found.tables) == (quality, f"standard tables at quality {quality}")
        assert found.subsampling == ("4:4:4", "4:2:2", "4:2:0")[subsampling]

    @pytest.mark.parametrize("encoder", ["opencv", "grey", "progressive"])
    def test_other_encoders(self, photo, encoder):
        if encoder == "opencv":
            found = facts_of(encode_jpeg(photo, 77)).jpeg
        elif encoder == "grey":
            found = facts_of(saved(photo[..., 0], "JPEG", quality=77)).jpeg
            assert found.subsampling == "grey"
        else:
            found = facts_of(saved(photo, "JPEG", quality=77, progressive=True)).jpeg
        assert found.progressive == (encoder == "progressive")
        assert found.tables == "standard tables at quality 77"

    @pytest.mark.parametrize(
        ("preset", "name"), [("medium", "quality 5 of 12"), ("web_high", '"save for web" high')]
    )
    def test_those_of_photoshop(self, photo, preset, name):
        facts = facts_of(saved(photo, "JPEG", quality=preset))
        assert facts.jpeg.tables.startswith("Adobe Photoshop's tables")
        assert facts.jpeg.tables.endswith(name)
        assert facts.remarks[0].startswith("Its JPEG tables are those of Adobe's programs")

    def test_unknown_ones_are_not_guessed(self, photo):
        steps = [list(range(2, 66)), list(range(3, 67))]
        facts = facts_of(saved(photo, "JPEG", qtables=steps))
        assert facts.jpeg.tables is None
        rows = dict(facts.rows())
        assert rows["JPEG tables"] == "of a camera or an editor, not standard"
        assert rows["JPEG quality"].startswith("about ")

    def test_a_table_off_by_one_is_not_standard(self, photo):
        image = Image.open(io.BytesIO(encode_jpeg(photo, 85)))
        steps = {key: list(table) for key, table in image.quantization.items()}
        steps[0][63] += 1
        assert facts_of(saved(photo, "JPEG", qtables=steps)).jpeg.tables is None


class TestKinds:
    def test_a_page_of_text(self):
        page = np.full((300, 400, 3), 255, np.uint8)
        for row in range(20, 290, 18):
            cv2.putText(page, "the quick brown fox jumps", (10, row), 0, 0.5, (0, 0, 0), 1)
        for data in (saved(page, "PNG"), saved(page, "JPEG", quality=80)):
            facts = facts_of(data)
            assert not facts.looks_like_photo
            assert facts.reason.startswith("It looks like a screenshot or a drawing: ")
            assert [text.partition(":")[0] for text in facts.warnings] == [
                "It looks like a screenshot or a drawing, not a photo"
            ]

    def test_one_colour(self):
        facts = facts_of(saved(np.full((64, 64, 3), 7, np.uint8), "PNG"))
        assert not facts.looks_like_photo

    def test_a_photo_with_a_white_frame_is_a_photo(self, photo):
        page = np.full((512, 512, 3), 255, np.uint8)
        page[32:480, 32:480] = photo[32:480, 32:480]
        assert facts_of(saved(page, "PNG")).looks_like_photo

    def test_all_example_photos_are(self):
        for sample in example_photos():
            assert read_file_facts(b"", sample.photo).looks_like_photo

    def test_a_large_photo_is_sampled(self, photo):
        large = np.tile(photo, (5, 4, 1))
        assert read_file_facts(b"", read_image(large)).looks_like_photo

    @pytest.mark.parametrize("shape", [(1, 1), (3, 900), (7, 7), (8, 8)])
    def test_tiny_images(self, shape):
        facts = read_file_facts(b"", read_image(np.zeros((*shape, 3), np.uint8)))
        assert facts.reason.endswith(".")


def test_real_cameras(data_folder):
    """Of 30 photos of cameras, none is a drawing, and no thumbnail is said to differ."""
    folder = data_folder / "real_dev" / "authentic" / "cameras"
    n_thumbnails = 0
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if len(data) > 300_000:
            continue
        facts = read_file_facts(data, read_image(data))
        assert facts.camera
        assert facts.looks_like_photo
        assert facts.editor is None
        if facts.thumbnail is not None:
            n_thumbnails += 1
            assert not facts.thumbnail.differs, path.name
    assert n_thumbnails >= 20
