"""JPEG files: their segments, walked once, their pixels, and whose their tables are."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL.JpegImagePlugin import JpegImageFile

from cpcapp.splicing.photo.contents import CUT_OFF, DAMAGED, ImageError
from cpcapp.splicing.photo.jpeg import file_quality
from cpcapp.splicing.photo.jpeg_tables import STANDARD_COLOURS, STANDARD_TABLE

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_SEGMENTS = 100_000
_MAX_SCANS = 100
# Usual files have 10. Each scan passes over the whole picture, which takes 0.7 s for 100
# megapixels: if there are more scans, so many pixels in all.
_USUAL_SCANS = 12
_MAX_SCANNED = 600_000_000
# Followed by a segment, for libjpeg too: were a length read after another marker, scans could hide
# behind it.
_MARKER = re.compile(rb"\xff+([\x02-\xcf\xd8-\xfe])")
# Frames: all but the markers of Huffman tables, arithmetic coding and extensions.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# In the order of the file: each diagonal, up and down by turns.
_ZIGZAG = [
    8 * row + column
    for row, column in sorted(
        np.ndindex(8, 8), key=lambda place: (sum(place), place[0] if sum(place) % 2 else place[1])
    )
]

Table = tuple[int, ...]


@dataclass
class JpegFile:
    """The segments of a JPEG file."""

    file: bytes = b""  # what pixels need: without comments, EXIF data and what follows the picture
    size: tuple[int, int] = (0, 0)
    progressive: bool = False
    components: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # name, factors, table
    tables: dict[int, Table] = field(default_factory=dict)  # row by row
    scans: list[bytes] = field(default_factory=list)  # their headers
    segments: list[tuple[int, bytes]] = field(default_factory=list)  # that say something
    _spare: int = 16 << 20  # bytes of them that may still be kept

    @classmethod
    def read(cls, data: bytes) -> JpegFile:
        """Walk through a file, or raise if it is cut off or would take long to decode."""
        jpeg, head, first, place = cls(), [b"\xff\xd8"], 0, 2
        for _ in range(_MAX_SEGMENTS):
            marker = _MARKER.search(data, place)
            if not marker:
                raise ImageError(CUT_OFF)
            code, start = marker[1][0], marker.end()
            if code == 0xD9:
                if not first:
                    raise ImageError(CUT_OFF)
                break
            place = start + max(int.from_bytes(data[start : start + 2], "big"), 2)
            content = data[start + 2 : place]
            if code == 0xDA:
                first = first or marker.start()
                jpeg.scans.append(content)
                if len(jpeg.scans) > _MAX_SCANS:
                    raise ImageError(f"has more than {_MAX_SCANS} scans; save it anew")
            elif not first:
                jpeg._take(code, content)
                # Tables and frames, and the segments that give the colour space: JFIF and Adobe.
                if code < 0xD0 or code in (0xDB, 0xDD, 0xE0, 0xEE):
                    head.append(data[marker.start() : place])
        else:
            raise ImageError(f"has more than {_MAX_SEGMENTS} segments; save it anew")
        jpeg.file = b"".join([*head, memoryview(data)[first : marker.end()]])
        width, height = jpeg.size
        if not jpeg.components or not width * height:
            raise ImageError(DAMAGED)
        n_scans = len(jpeg.scans)
        if n_scans > _USUAL_SCANS and n_scans * width * height > _MAX_SCANNED:
            raise ImageError(
                f"has {n_scans} scans of {width} × {height} pixels, which would take long to read; "
                "save it anew"
            )
        return jpeg

    def _take(self, code: int, content: bytes) -> None:
        """Take what a segment in front of the pixels says."""
        if code == 0xDB:
            self._take_tables(content)
        elif code in _FRAMES and not self.components:
            height, width = (int.from_bytes(content[i : i + 2], "big") for i in (1, 3))
            self.size, self.progressive = (width, height), code in _PROGRESSIVE
            self.components = [
                (content[i], content[i + 1] >> 4, content[i + 1] & 15, content[i + 2])
                for i in range(6, min(len(content) - 2, 6 + 3 * content[5]), 3)
            ]
        elif code in (0xE0, 0xEE):
            self.segments.append((code, content[:16]))
        elif code > 0xE0 and self._spare >= len(content):
            self.segments.append((code, content))
            self._spare -= len(content)

    def _take_tables(self, content: bytes) -> None:
        place = 0
        while place < len(content):
            wide, number = content[place] >> 4, content[place] & 15
            size = 128 if wide else 64
            stored = np.frombuffer(content[place + 1 : place + 1 + size], np.uint8)
            place += 1 + size
            if len(stored) < size:
                return
            table = np.empty(64, int)
            table[_ZIGZAG] = stored.view(">u2") if wide else stored
            self.tables[number] = tuple(table.tolist())

    @property
    def light_table(self) -> Table | None:
        """The steps of the light, row by row."""
        return self.tables.get(self.components[0][3])

    @property
    def has_luminance(self) -> bool:
        """Whether the first component is luminance at the size of the photo."""
        if len(self.components) != 3:
            return len(self.components) == 1
        # By libjpeg: three components are luminance and colours, unless Adobe's segment or their
        # names say that they are red, green and blue.
        adobe = [c[11:12] for code, c in self.segments if code == 0xEE and c.startswith(b"Adobe")]
        marked = adobe or any(c.startswith(b"JFIF\0") for code, c in self.segments if code == 0xE0)
        names = bytes(name for name, *_ in self.components)
        if adobe[-1:] == [b"\0"] or (names == b"RGB" and not marked):
            return False
        _, across, down, _ = self.components[0]
        return all(across >= c[1] and down >= c[2] for c in self.components)

    @property
    def buffer_size(self) -> int:
        """Bytes that libjpeg takes: of several scans, all coefficients, 2 bytes each."""
        if len(self.scans) < 2:
            return 0
        most = max(max(across * down, 1) for _, across, down, _ in self.components)
        samples = sum(across * down for _, across, down, _ in self.components) / most
        return int(2 * samples * self.size[0] * self.size[1])

    def decode(self, colours: str) -> tuple[NDArray[np.uint8], list[str]]:
        """Return the pixels as "GRAY", "RGB" or "CMYK", and a note if they are damaged."""
        if not self._is_complete():
            raise ImageError(CUT_OFF)
        try:
            return simplejpeg.decode_jpeg(self.file, colours, strict=True), []
        except ValueError as error:
            problem = str(error)
        if "subsampling" in problem:
            # Of unusual factors, which that library does not know, Pillow says no damage.
            image = JpegImageFile(io.BytesIO(self.file))
            image.draft("L" if colours == "GRAY" else None, None)
            return np.asarray(image).reshape(*self.size[::-1], -1), []
        if is_cut_off(problem):
            raise ImageError(CUT_OFF)
        return simplejpeg.decode_jpeg(self.file, colours, strict=False), ["damaged JPEG data"]

    def _is_complete(self) -> bool:
        """Return whether the scans send every coefficient of every component to its last bit.

        libjpeg shows what there is: a picture without its last scans is blurred.
        """
        # Bits that are still missing, of each coefficient.
        missing = {name: np.full(64, 16) for name, *_ in self.components}
        for header in self.scans:
            count = header[0] if header else 0
            if len(header) != 4 + 2 * count:
                return False
            first, last, bits = header[-3:]
            for name in header[1 : 1 + 2 * count : 2]:
                if name in missing:
                    span = slice(first, last + 1) if self.progressive else slice(None)
                    missing[name][span] = bits & 15 if self.progressive else 0
        return not any(left.any() for left in missing.values())


def is_cut_off(problem: str) -> bool:
    """Return whether libjpeg says that data end too early."""
    return "premature end" in problem.lower()


def check_jpeg(file: Any) -> None:
    """Raise if a JPEG that is decoded elsewhere is cut off; at an eighth of its size."""
    try:
        simplejpeg.decode_jpeg(file, "GRAY", min_factor=8, strict=True)
    except ValueError as error:
        if is_cut_off(str(error)):
            raise ImageError(CUT_OFF) from error


# By N. Robidoux, for light and colours: what mozjpeg uses unless told otherwise.
_MOZJPEG = np.array(
    [
        *(16, 16, 16, 18, 25, 37, 56, 85),
        *(16, 17, 20, 27, 34, 40, 53, 75),
        *(16, 20, 24, 31, 43, 62, 91, 135),
        *(18, 27, 31, 40, 53, 74, 106, 156),
        *(25, 34, 43, 53, 69, 94, 131, 189),
        *(37, 40, 62, 74, 94, 124, 169, 238),
        *(56, 53, 91, 106, 131, 169, 226, 311),
        *(85, 75, 135, 156, 189, 238, 311, 418),
    ],
    dtype=np.float64,
).reshape(8, 8)
# Tables of Adobe Photoshop that Pillow ships as presets. That "medium" is quality 5 of 12 and
# "high" quality 8 stands in files of Photoshop that record their quality.
_PHOTOSHOP = {
    "low": ", low quality",
    "medium": " at quality 5 of 12",
    "high": " at quality 8 of 12",
    "maximum": ", maximum quality",
    "web_low": ', "save for web" low',
    "web_medium": ', "save for web" medium',
    "web_high": ', "save for web" high',
    "web_very_high": ', "save for web" very high',
    "web_maximum": ', "save for web" maximum',
}
# By the digest of both tables, seen in a file of Photoshop CC that records quality 12.
_PHOTOSHOP_BY_DIGEST = {"27a9c73da59c2fd2": " at quality 12 of 12"}
_FACTORS = {
    ((1, 1), (1, 1)): "4:4:4",
    ((2, 1), (1, 1)): "4:2:2",
    ((2, 2), (1, 1)): "4:2:0",
    ((1, 2), (1, 1)): "4:4:0",
    ((4, 1), (1, 1)): "4:1:1",
}


@dataclass(frozen=True)
class JpegFacts:
    """How a JPEG file was compressed."""

    #: By the table of the light, from 1 to 100: exact for standard tables, else that of standard
    #: tables with about the same mean step.
    quality: int | None
    tables: str | None  # whose they are, if that is known
    subsampling: str  # "4:4:4", "4:2:0", ..., "grey" or "unknown"
    progressive: bool

    @classmethod
    def of_file(cls, jpeg: JpegFile) -> JpegFacts:
        """Return what the segments of a file say."""
        used = [jpeg.tables.get(table) for *_, table in jpeg.components]
        light, colours = used[0], used[1] if len(used) == 3 else None
        name, quality = (None, None) if light is None else _name_tables(light, colours)
        if quality is None and light is not None and min(light) > 0:
            quality = file_quality(light)
        factors = [(across, down) for _, across, down, _ in jpeg.components]
        subsampling = "grey" if len(factors) == 1 else "unknown"
        if len(factors) == 3 and factors[1] == factors[2]:
            subsampling = _FACTORS.get((factors[0], factors[1]), "unknown")
        return cls(quality, name, subsampling, jpeg.progressive)


def _name_tables(light: Table, colours: Table | None) -> tuple[str | None, int | None]:
    """Return whose tables they are, and the quality if it is a standard one."""
    for kind, known in _scaled_tables().items():
        quality = known.get((light, colours))
        if quality is not None:
            return f"{kind} at quality {quality}", quality if kind.startswith("standard") else None
    digest = sha256(repr((light, colours)).encode()).hexdigest()[:16]
    name = _photoshop_tables().get((light, colours)) or _PHOTOSHOP_BY_DIGEST.get(digest)
    return name and f"Adobe Photoshop's tables{name}", None


@cache
def _scaled_tables() -> dict[str, dict[tuple[Table, Table | None], int]]:
    """Return the tables that follow from a quality by libjpeg's rule."""
    scaled: dict[str, dict[tuple[Table, Table | None], int]] = {}
    for kind, *bases in (
        ("standard tables", STANDARD_TABLE, STANDARD_COLOURS),
        ("tables of mozjpeg", _MOZJPEG, _MOZJPEG),
    ):
        known = scaled[kind] = {}
        # From high to low: the tables of the lowest qualities are equal, clipped at 255.
        for quality in range(100, 0, -1):
            percent = 5000 // quality if quality < 50 else 200 - 2 * quality
            for most in (255, 32767):
                steps = [np.clip((base * percent + 50) // 100, 1, most) for base in bases]
                light, colours = (tuple(table.astype(int).ravel().tolist()) for table in steps)
                # Grey photos have no colours, and some encoders use one table for all.
                for second in (colours, None, light):
                    known.setdefault((light, second), quality)
    return scaled


@cache
def _photoshop_tables() -> dict[tuple[Table, Table | None], str]:
    from PIL.JpegPresets import presets

    known: Any = presets
    tables = ((known[name]["quantization"], text) for name, text in _PHOTOSHOP.items())
    return {(tuple(light), tuple(colours)): text for (light, colours), text in tables}
