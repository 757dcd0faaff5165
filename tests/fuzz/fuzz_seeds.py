"""Small whole files of every kind that strangers can hand us, made by code."""

from __future__ import annotations

import gzip
import io
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from PIL import Image

from cpcapp import Moments


def _pixels(shape: tuple[int, ...] = (40, 56, 3)) -> Any:
    rng = np.random.default_rng(5)
    y, x = np.mgrid[: shape[0], : shape[1]]
    light = 110 + 50 * np.sin(x / 5) + 40 * (y > shape[0] / 2)
    grey = light if len(shape) == 2 else light[..., None]
    return (grey + rng.normal(scale=12.0, size=shape)).clip(0, 255).astype(np.uint8)


def _encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    return _saved(image.save, form, **options)


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[274], exif[271] = 6, "a camera"
    return exif


def jpegs() -> list[bytes]:
    rgb, grey = Image.fromarray(_pixels()), Image.fromarray(_pixels((40, 56)))
    cmyk = rgb.convert("CMYK")
    return [
        _encoded(rgb, "JPEG", quality=80, exif=_exif()),
        _encoded(rgb, "JPEG", quality=60, progressive=True),
        _encoded(rgb, "JPEG", quality=90, subsampling=0, restart_marker_rows=1),
        _encoded(grey, "JPEG", quality=75),
        _encoded(cmyk, "JPEG", quality=75),
    ]


def _tiled_tiff() -> bytes:
    """Write grey pixels in packed tiles, which Pillow reads and does not write."""
    pixels = np.pad(_pixels((40, 56)), ((0, 8), (0, 8)))
    tiles = [
        zlib.compress(pixels[y : y + 16, x : x + 16].tobytes())
        for y in range(0, 48, 16)
        for x in range(0, 64, 16)
    ]
    offsets = 8 + np.cumsum([0, *map(len, tiles)])
    body = b"".join(tiles) + bytes(offsets[-1] % 2)
    count, at = len(tiles), 8 + len(body)
    body += np.array([*offsets[:-1], *map(len, tiles)], "<u4").tobytes()
    entries = [(256, 56), (257, 40), (258, 8), (259, 8), (262, 1), (277, 1), (322, 16), (323, 16)]
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    for tag, place in ((324, at), (325, at + 4 * count)):
        directory += struct.pack("<HHII", tag, 4, count, place)
    head = b"II*\0" + struct.pack("<I", 8 + len(body))
    return head + body + struct.pack("<H", len(entries) + 2) + directory + bytes(4)


def images() -> list[bytes]:
    rgb, grey = Image.fromarray(_pixels()), Image.fromarray(_pixels((40, 56)))
    deep = Image.fromarray(_pixels((40, 56)).astype(np.uint16) << 8)
    clear = Image.fromarray(np.dstack([_pixels(), _pixels((40, 56))]))
    pages = [rgb.resize((20, 20)), grey.resize((9, 9))]
    return [
        *jpegs(),
        _encoded(rgb, "PNG", exif=_exif()),
        _encoded(clear, "PNG"),
        _encoded(deep, "PNG"),
        _encoded(rgb.quantize(16), "PNG", transparency=0),
        _encoded(rgb, "TIFF"),
        _encoded(rgb, "TIFF", compression="tiff_lzw"),
        _encoded(rgb, "TIFF", compression="jpeg"),
        _encoded(deep, "TIFF", compression="tiff_deflate"),
        _encoded(rgb, "TIFF", save_all=True, append_images=pages),
        _tiled_tiff(),
        _encoded(rgb, "WebP", quality=70, exif=_exif()),
        _encoded(clear, "WebP", lossless=True),
        _encoded(rgb, "BMP"),
        _encoded(rgb.quantize(16), "BMP"),
    ]


def heifs() -> list[bytes]:
    """HEIC and AVIF: plain, turned, grey, with transparency, of tiles, of 10 bits, several."""
    import pillow_heif

    rgb, grey = Image.fromarray(_pixels()), Image.fromarray(_pixels((40, 56)))
    clear = Image.fromarray(np.dstack([_pixels(), _pixels((40, 56))]))

    def heic(image: Any, **options: Any) -> bytes:
        return _saved(image.save, quality=60, **options)

    several = pillow_heif.from_pillow(rgb)
    several.add_from_pillow(grey.resize((24, 24)))
    deep = (_pixels().astype(np.uint16) << 8).tobytes()
    tiles = pillow_heif.from_pillow(rgb.resize((150, 100)))
    return [
        heic(pillow_heif.from_pillow(rgb), exif=_exif().tobytes()),
        heic(pillow_heif.from_pillow(grey)),
        heic(pillow_heif.from_pillow(clear)),
        heic(tiles, tile_size=64),
        heic(pillow_heif.from_bytes("RGB;16", (56, 40), deep)),
        heic(several, thumbnails=[16]),
        _encoded(rgb, "AVIF", exif=_exif(), quality=60),
        _encoded(clear, "AVIF", quality=60),
        _encoded(grey, "AVIF", quality=60),
        _encoded(rgb, "AVIF", save_all=True, append_images=[rgb.rotate(9)]),
    ]


def described() -> list[bytes]:
    """JPEG files with all the metadata that are looked at."""
    rgb = Image.fromarray(_pixels((160, 200, 3)))
    exif = _exif()
    exif[272], exif[305], exif[306] = "a model", "Adobe Photoshop 25.0", "2020:05:01 10:00:00"
    exif.get_ifd(34665).update({36867: "2020:04:01 10:00:00", 42036: "a lens", 40962: 400})
    exif.get_ifd(34853).update({1: "N", 2: (1.0, 2.0, 3.0), 3: "E", 4: (1.0, 2.0, 3.0)})
    small = _encoded(rgb.resize((80, 64)), "JPEG", quality=70)
    plain = _encoded(rgb, "JPEG", quality=85, comment="CREATOR: gd-jpeg v1.0", exif=exif)
    xmp = (
        b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmp:CreatorTool="GIMP 2.10">'
        b'<rdf:li stEvt:softwareAgent="Adobe Photoshop 25.0"/>DigitalSourceType='
        b'"http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"</x:xmpmeta>'
    )
    resources = b"Photoshop 3.0\0" + b"8BIM\4\6\0\0\0\0\0\7\0\4\0\0\0\1\1\0"
    resources += b"8BIM\4\4\0\0\0\0\0\10FBMD0123"

    def segment(marker: int, content: bytes) -> bytes:
        return b"\xff" + bytes([marker]) + (len(content) + 2).to_bytes(2, "big") + content

    extras = segment(0xE1, xmp) + segment(0xED, resources)
    # A directory with a thumbnail, which Pillow does not write.
    head = b"II*\0\x08\0\0\0" + b"\0\0" + (14).to_bytes(4, "little") + b"\2\0"
    entries = b"".join(
        tag.to_bytes(2, "little") + b"\4\0\1\0\0\0" + value.to_bytes(4, "little")
        for tag, value in ((513, 44), (514, len(small)))
    )
    tiff = head + entries + bytes(4)
    with_small = segment(0xE1, b"Exif\0\0" + tiff.ljust(44, b"\0") + small)
    return [plain[:2] + extras + plain[2:], plain[:2] + with_small + extras + plain[2:]]


def _rows(n: int = 40) -> Any:
    return np.random.default_rng(1).normal(size=(n, 5)) * [1, 2, 3, 1, 1]


def _saved(write: Callable[..., Any], *content: Any, **options: Any) -> bytes:
    """Return what a function writes into an open file."""
    out = io.BytesIO()
    write(out, *content, **options)
    return out.getvalue()


def arrays() -> list[bytes]:
    single = _rows().astype(np.float32)
    return [
        *(_saved(np.save, x) for x in (_rows(), np.asfortranarray(single), _rows(9).astype(">i2"))),
        _saved(np.savez, rows=_rows()),
        _saved(np.savez_compressed, x=single[:30]),
    ]


def csvs() -> list[bytes]:
    lines = [",".join(f"{value:.6g}" for value in row) for row in _rows(30)]
    plain = "a,b,c,d,e\n" + "\n".join(lines) + "\n"
    commas = '"x;""odd""";y\n' + "\n".join(f'"{i},5";-{i},25e-3' for i in range(20))
    tabs = plain.replace(",", "\t").replace("\n", "\r\n")
    missing = plain.replace(lines[3].split(",")[2], "NA").replace(lines[7].split(",")[0], "")
    texts = [plain.encode(), commas.encode("utf-8-sig"), tabs.encode(), missing.encode()]
    return [*texts, gzip.compress(plain.encode(), mtime=0), gzip.compress(tabs.encode(), mtime=0)]


def parquets() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _rows()
    columns: dict[str, Any] = {name: rows[:, i] for i, name in enumerate("abcde")}
    whole = pa.table(columns)
    counts, gaps = (
        pa.array(range(40), pa.int16()),
        [None if i % 7 == 0 else i / 2 for i in range(40)],
    )
    mixed = whole.append_column("count", counts).append_column("gap", pa.array(gaps))
    return [
        _saved(lambda out: pq.write_table(whole, out, compression="none")),
        _saved(lambda out: pq.write_table(whole, out, compression="snappy", row_group_size=9)),
        _saved(lambda out: pq.write_table(mixed, out, compression="zstd", version="1.0")),
        _saved(lambda out: pq.write_table(mixed, out, data_page_version="2.0")),
    ]


def workbooks() -> list[bytes]:
    import datetime

    import openpyxl

    plain, grouped = openpyxl.Workbook(), openpyxl.Workbook()
    for row in [list("abcde"), *_rows(30).tolist()]:
        plain.active.append(row)
    sheet, other = grouped.active, grouped.create_sheet("notes")
    for row in [["blood", None, "age"], ["iron", "salt", None], *_rows(30)[:, :3].tolist()]:
        sheet.append(row)
    sheet.merge_cells("A1:B1")
    sheet.merge_cells("C1:C2")
    sheet["B7"], sheet["C9"] = None, True
    other.append([datetime.date(2024, 5, 1), "text & more"])
    for book in (plain, grouped):
        # The time of making, which would be another in every run.
        book.properties.created = book.properties.modified = datetime.datetime(2024, 1, 1)
    return [_saved(book.save) for book in (plain, grouped)]


def h5ads() -> list[bytes]:
    import anndata

    counts = np.random.default_rng(2).poisson(0.8, size=(30, 5)).astype(np.float32)
    found = []
    for matrix in (counts, sp.csr_matrix(counts), sp.csc_matrix(counts)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = anndata.AnnData(matrix)
            data.var_names = [f"gene{i}" for i in range(5)]
            data.var["highly_variable"] = [True, True, False, True, True]
            data.obs["kind"] = ["a", "b"] * 15
            data.layers["other"] = matrix * 2
            found.append(_written("x.h5ad", data.write_h5ad))
    return found


def _written(name: str, write: Callable[[Path], Any]) -> bytes:
    """Return what a function writes into a file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def moments() -> list[bytes]:
    sparse = sp.random(30, 5, 0.3, format="csr", random_state=0)
    found = []
    for data, form in ((_rows(), "scatter"), (_rows(3), "auto"), (sparse, "auto")):
        plain = Moments(form=form).update(data)
        weighted = Moments(form=form).update(data, sample_weight=0.5)
        found += [_written("m", plain.save), _written("w", weighted.save)]
    return found


def models() -> list[bytes]:
    from cpcapp.tables import reduce_tables

    shipped = files("cpcapp.splicing.models")
    found = [(shipped / f"{name}.safetensors").read_bytes() for name in ("filters", "paper")]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.npy" for name in ("target", "background")]
        for path, scale in zip(paths, (3.0, 1.0), strict=True):
            np.save(path, _rows() * [scale, 1, 1, 1, 1])
        found.append(_written("model", reduce_tables(*paths, 2).model.save))
    return found


def networks() -> list[bytes]:
    """The model with a network: large, so only a few files are made of it."""
    return [(files("cpcapp.splicing.models") / "default.safetensors").read_bytes()]


def forests() -> list[bytes]:
    from cpcapp.splicing.measure.edges import Forest
    from cpcapp.splicing.measure.edges.features import EdgeOptions

    options = EdgeOptions(numberOfTrees=2, numberOfTreesToEvaluate=2)
    childs = np.array([[2, 0, 0, 0, 0], [2, 4, 0, 0, 0]], dtype=np.int32)
    ids = np.array([[7, 0, 0, 0, 0], [4000, 100, 0, 0, 0]], dtype=np.int32)
    thresholds = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    bins, bounds = np.arange(40, dtype=np.int32), np.linspace(0, 40, 11).astype(np.int32)
    forest = Forest(options, childs, ids, thresholds, bounds, bins)
    names = ("f.yml", "f.yml.gz", "f.safetensors", "f.safetensors.gz")
    return [_written(name, forest.save) for name in names]


_MAKERS: dict[str, Callable[[], list[bytes]]] = {
    "images": images,
    "heif": heifs,
    "file_facts": described,
    "jpeg_coefficients": jpegs,
    "h5ad": h5ads,
    "arrays": arrays,
    "csv": csvs,
    "excel": workbooks,
    "parquet": parquets,
    "models": models,
    "networks": networks,
    "forest": forests,
    "moments": moments,
}


@cache
def seeds_of(target: str) -> tuple[bytes, ...]:
    """Return the seeds of a target."""
    return tuple(_MAKERS[target]())
