"""Damage to files: in their bytes, and in the structures of their formats.

A structure-aware mutator takes a file apart, changes one piece and puts it together again, with
lengths and checksums that fit: so the damage gets past the first check.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

Random = np.random.Generator
# What repeats pieces would make any amount of such a file.
_LARGE = 1 << 20
Mutator = Callable[[bytes, Random], bytes]

_EDGES = (0, 1, 7, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_NUMBERS = (
    *("0", "-1", "7", "1000", "100000", "10000000", "1e308", "-1e308", "1e-320", "1e999"),
    *("9" * 400, "NaN", "Infinity", "2147483648", "4294967296", "9223372036854775807", "0.5"),
)


def _pick(items: Sequence[Any], rng: Random) -> Any:
    return items[int(rng.integers(len(items)))]


def _edit(
    pieces: list[Any], rng: Random, changes: Sequence[Callable[[Any], Any]], most_copies: int
) -> None:
    """Change one piece of a file by one of ``changes``, or repeat, move or remove it."""
    i = int(rng.integers(len(pieces)))
    action = int(rng.integers(len(changes) + 3))
    if action < len(changes):
        pieces[i] = changes[action](pieces[i])
    elif action == len(changes):
        pieces[i:i] = [pieces[i]] * int(rng.integers(1, most_copies))
    else:
        piece = pieces.pop(i)
        if action == len(changes) + 1:
            pieces.insert(int(rng.integers(len(pieces) + 1)), piece)


# -- bytes ---------------------------------------------------------------------------------


def flip_bits(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def set_number(data: bytes, rng: Random) -> bytes:
    """Put a number of 1 to 8 bytes that is often wrong somewhere, more often near the start."""
    out = bytearray(data)
    where = int(len(out) * rng.random() ** (1 + 2 * rng.integers(2)))
    code = _pick(["<B", "<H", ">H", "<I", ">I", "<Q", ">Q"], rng)
    number = _pick(_EDGES, rng) % (1 << 8 * struct.calcsize(code))
    out[where : where + struct.calcsize(code)] = struct.pack(code, number)
    return bytes(out)


def cut(data: bytes, rng: Random) -> bytes:
    return data[: int(rng.integers(len(data)))]


def remove_piece(data: bytes, rng: Random) -> bytes:
    a, b = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return data[:a] + data[min(b, a + 64) :]


def repeat_piece(data: bytes, rng: Random) -> bytes:
    a, b = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    piece = data[a : min(b, a + 256)]
    return data[:b] + piece * int(rng.integers(1, 20)) + data[b:]


def insert_noise(data: bytes, rng: Random) -> bytes:
    a = int(rng.integers(len(data) + 1))
    return data[:a] + rng.bytes(int(rng.integers(1, 200))) + data[a:]


def flip_at_end(data: bytes, rng: Random) -> bytes:
    """Where Parquet, zip and HDF5 keep their directories."""
    near = min(len(data), 2000)
    return data[:-near] + flip_bits(data[-near:], rng)


BYTES: tuple[Mutator, ...] = (
    flip_bits,
    set_number,
    cut,
    remove_piece,
    repeat_piece,
    insert_noise,
    flip_at_end,
)


def damage(data: bytes, rng: Random) -> bytes:
    """Apply one of the mutators of bytes."""
    return _pick(BYTES, rng)(data, rng) if data else rng.bytes(5)


# -- images --------------------------------------------------------------------------------


def jpeg_segment(data: bytes, rng: Random) -> bytes:
    """Change, repeat or remove a segment of a JPEG file, with a length that fits."""
    segments, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        segments.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    if not segments:
        return damage(data, rng)
    changes = (
        lambda segment: (segment[0], damage(segment[1], rng)),
        lambda segment: (_pick(range(0xC0, 0x100), rng), segment[1]),
        lambda segment: (segment[0], set_number(segment[1] or b"\0", rng)),
    )
    _edit(segments, rng, changes, 2000)
    head = b"".join(
        b"\xff" + bytes([kind]) + struct.pack(">H", (2 + len(body)) % 65536) + body
        for kind, body in segments
    )
    return data[:2] + head + data[at:]


def jpeg_closed_early(data: bytes, rng: Random) -> bytes:
    """Cut a JPEG file off and close it again."""
    start = max(2, data.find(b"\xff\xda"))
    return data[: int(rng.integers(start, len(data)))] + b"\xff\xd9"


def jpeg_scans(data: bytes, rng: Random) -> bytes:
    """Repeat a scan of a JPEG file many times, and let it claim some megapixels."""
    start = data.find(b"\xff\xda", 1 + data.find(b"\xff\xda"))
    frame = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    if start < 0 or frame < 0:
        return jpeg_segment(data, rng)
    height, width = (int(side) for side in rng.integers(8, 3000, 2))
    large = data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 : start]
    return large + data[start:-2] * int(rng.integers(1, 40)) + b"\xff\xd9"


def png_chunk(data: bytes, rng: Random) -> bytes:
    """Change, repeat, move or remove a chunk of a PNG file, with its checksum."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length

    def enlarge(chunk: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        if chunk[0] != b"IDAT":
            return b"zTXt", b"k\0\0" + zlib.compress(b"a" * int(rng.integers(1 << 24)))
        try:
            rows = zlib.decompressobj().decompress(chunk[1], _LARGE)
        except zlib.error:
            rows = chunk[1]
        copies = min(int(rng.integers(1, 2000)), 1 + 16 * _LARGE // max(len(rows), 1))
        return b"IDAT", zlib.compress(rows * copies, 1)

    changes = (enlarge, lambda chunk: (chunk[0], damage(chunk[1], rng)))
    _edit(chunks, rng, changes, 3000)
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def tiff_entry(data: bytes, rng: Random) -> bytes:
    """Change or repeat an entry of the first directory of a TIFF file."""
    order = "<" if data[:2] == b"II" else ">"
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    place, counted, size, head = ("Q", "Q", 20, 8) if big else ("I", "H", 12, 4)
    start = struct.unpack_from(order + place, data, head)[0]
    width = struct.calcsize(counted)
    if start + width > len(data):
        return damage(data, rng)
    count = struct.unpack_from(order + counted, data, start)[0]
    entries = [
        data[start + width + size * i : start + width + size * (i + 1)]
        for i in range(min(count, 99))
    ]
    entries = [entry for entry in entries if len(entry) == size]
    if not entries:
        return damage(data, rng)

    def other_number(entry: bytes) -> bytes:
        """Keep tag and type, and change the count or the value."""
        where = int(_pick([4, 8], rng))
        number = struct.pack(order + "I", _pick(_EDGES, rng) % 2**32)
        return entry[:where] + number + entry[where + 4 :]

    _edit(entries, rng, (other_number, lambda entry: set_number(entry, rng)[:size]), 65000)
    entries = entries[:65000]
    # A new directory at the end: nothing else has to move.
    moved = (
        data[:head] + struct.pack(order + place, len(data)) + data[head + struct.calcsize(place) :]
    )
    table = struct.pack(order + counted, len(entries)) + b"".join(entries)
    return moved + table + struct.pack(order + place, 0)


def riff_chunk(data: bytes, rng: Random) -> bytes:
    """Change the length or the content of a chunk of a WebP file."""
    out = bytearray(data)
    places = [at for at in range(12, len(out) - 8) if out[at : at + 4].isalnum()][:40] or [12]
    at = int(_pick(places, rng))
    out[at + 4 : at + 8] = struct.pack("<I", _pick(_EDGES, rng) % 2**32)
    return bytes(out)


def bmp_field(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    at = int(_pick([2, 10, 14, 18, 22, 26, 28, 30, 34, 46, 50], rng))
    code = _pick(["<H", "<i"], rng)
    number = _pick(_EDGES, rng) % (1 << (8 * struct.calcsize(code) - 1))
    out[at : at + struct.calcsize(code)] = struct.pack(
        code, number * int(_pick([1, -1], rng)) if code == "<i" else number
    )
    return bytes(out)


def heif_box(data: bytes, rng: Random) -> bytes:
    """Change, repeat or remove a box of a HEIC or AVIF file; its parents get the right length."""
    containers = {b"meta": 12, b"iprp": 8, b"ipco": 8, b"iinf": 14, b"iref": 12, b"moov": 8}
    boxes: list[tuple[int, int, list[int]]] = []

    def walk(at: int, end: int, parents: list[int]) -> None:
        while at + 8 <= end:
            size, kind = struct.unpack_from(">I4s", data, at)
            if size < 8 or at + size > end:
                return
            boxes.append((at, size, parents))
            if kind in containers:
                walk(at + containers[kind], at + size, [*parents, at])
            at += size

    walk(0, len(data), [])
    at, size, parents = _pick(boxes, rng)
    body = data[at + 8 : at + size]
    kind = data[at + 4 : at + 8]
    action = int(rng.integers(5))
    if action <= 1:
        # Pixels or a property: a number that is often wrong, or any damage.
        body = (set_number if action else damage)(body or b"\0", rng)
    elif action == 2:
        kind = data[(other := _pick(boxes, rng)[0]) + 4 : other + 8]
    changed = struct.pack(">I", len(body) + 8) + kind + body
    if action == 3:
        changed = b""
    elif action == 4:
        changed *= int(rng.integers(2, 300))
    out = bytearray(data[:at] + changed + data[at + size :])
    for parent in parents:
        old = struct.unpack_from(">I", out, parent)[0]
        struct.pack_into(">I", out, parent, (old + len(changed) - size) % 2**32)
    return bytes(out)


def exif_entry(data: bytes, rng: Random) -> bytes:
    """Change an entry of the EXIF data of a JPEG file, or the other metadata."""
    start = data.find(b"Exif\0\0") + 6
    if start < 6 or not rng.integers(3):
        return jpeg_segment(data, rng)
    length = int.from_bytes(data[start - 8 : start - 6], "big")
    tiff = tiff_entry(data[start : start + length - 8], rng)[: 65535 - 8]
    head = data[: start - 8] + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0"
    return head + tiff + data[start + length - 8 :]


def image_structure(data: bytes, rng: Random) -> bytes:
    """Change a structure of whatever format it is."""
    if data[:2] == b"\xff\xd8":
        kinds = [jpeg_segment, jpeg_segment, jpeg_segment, jpeg_closed_early, jpeg_scans]
        return _pick(kinds, rng)(data, rng)
    if data[:4] == b"\x89PNG":
        return png_chunk(data, rng)
    if data[:2] in (b"II", b"MM"):
        return tiff_entry(data, rng)
    if data[:4] == b"RIFF":
        return riff_chunk(data, rng)
    if data[:2] == b"BM":
        return bmp_field(data, rng)
    return damage(data, rng)


# -- arrays and tables ---------------------------------------------------------------------


def npy_header(data: bytes, rng: Random) -> bytes:
    """Change what the header of a .npy file says of type and shape."""
    if data[:6] != b"\x93NUMPY":
        return damage(data, rng)
    length = int.from_bytes(data[8:10], "little")
    header, body = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    changes: list[Callable[[], str]] = [
        lambda: header.replace("'shape': (", f"'shape': ({_pick(_NUMBERS, rng)}, "),
        lambda: header.replace(
            "<f8", _pick(["|O", "<U99999999", "|V8", "<c16", "<M8[ns]", "|b1", "f", ""], rng)
        ),
        lambda: header.replace("False", _pick(["True", "None", "0", "'yes'", "[" * 500], rng)),
        lambda: header.replace("{", "{" * int(rng.integers(1, 3000)), 1),
        lambda: header.replace("'descr'", _pick(["'shape'", "'x'", "descr", "__import__"], rng)),
        lambda: damage(header.encode("latin1"), rng).decode("latin1"),
    ]
    new = _pick(changes, rng)().encode("latin1")[:60000]
    return data[:8] + struct.pack("<H", len(new)) + new + body


def zip_member(data: bytes, rng: Random, change: Callable[[bytes], bytes] | None = None) -> bytes:
    """Change, repeat, move or remove a member of a zip archive, and write the archive anew."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    names = ("../x.npy", "x", "_", "format.npy", "rows.npy", "long" * 50)
    bodies: tuple[Mutator, ...] = (npy_header, npy_header, damage, set_value, _other_array, _pad)
    changes: list[Callable[[Any], Any]] = [lambda member: (_pick(names, rng), member[1])]
    if change is None:
        changes += [lambda member, to=to: (member[0], to(member[1], rng)) for to in bodies]
    else:
        changes += [lambda member: (member[0], change(member[1]))] * 5
    _edit(members, rng, changes, 3)
    out = io.BytesIO()
    method = _pick([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2], rng)
    with zipfile.ZipFile(out, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, body in members:
            archive.writestr(name, body)
    return out.getvalue()


def _pad(data: bytes, rng: Random) -> bytes:
    return data + b"\0" * int(rng.integers(1 << 22))


def _other_array(_: bytes, rng: Random) -> bytes:
    shapes = [(0,), (3, 0), (0, 3), (2, 2, 2), (5,)]
    arrays = [np.zeros(shape, _pick(["f8", "f4", "c16", "U4", "?"], rng)) for shape in shapes]
    arrays += [np.array(value) for value in (np.inf, np.nan, 2.0**63, -1)]
    out = io.BytesIO()
    np.save(out, _pick([*arrays, np.full((5, 5), 1e308), np.array([100000, -5, 2**31 - 1])], rng))
    return out.getvalue()


def set_value(data: bytes, rng: Random) -> bytes:
    """Put an odd number in place of one in a .npy file, with a header that fits."""
    array, out = np.load(io.BytesIO(data), allow_pickle=False), io.BytesIO()
    _set_odd(array, rng)
    np.save(out, array)
    return out.getvalue()


def _set_odd(array: Any, rng: Random) -> None:
    numbers = [-1, 0, 7, 1000, 10**5, 10**7, 2**31 - 1]
    if array.dtype.kind == "f":
        numbers += [np.inf, np.nan, 1e308, 1e-308]
    with np.errstate(all="ignore"):
        array.flat[int(rng.integers(array.size))] = _pick(numbers, rng)


def array_structure(data: bytes, rng: Random) -> bytes:
    return npy_header(data, rng) if data[:1] == b"\x93" else zip_member(data, rng)


# Readers disagree about these.
_MARKS = list("\r\n\0\"',;\t\ufeff\x85\u2028#- é")
_CELLS = ['""', "١٢", "１２", "1.234", "1,5", "=1+1", "NaN", "inf", "1e999", "0x10", "1_000"]
_CSV_PIECES = [*_MARKS, *_CELLS, "\r\n", "a" * 70_000, "," * 5000, "9" * 5000]


def csv_text(data: bytes, rng: Random) -> bytes:
    """Put a piece of text that readers disagree about into a table."""
    packed = data[:2] == b"\x1f\x8b"
    text = gzip.decompress(data) if packed else data
    for _ in range(int(rng.integers(1, 4))):
        a = int(rng.integers(len(text) + 1))
        piece = _pick(_CSV_PIECES, rng).encode(_pick(["utf-8", "utf-16", "utf-8"], rng), "replace")
        text = text[:a] + piece + text[a + int(rng.integers(3)) :]
    return gzip.compress(text, mtime=0) if packed else text


def gzip_stream(data: bytes, rng: Random) -> bytes:
    """Damage a compressed stream; of plain text make a compressed one first."""
    packed = data if data[:2] == b"\x1f\x8b" else gzip.compress(data, mtime=0)
    return damage(packed, rng)


def parquet_footer(data: bytes, rng: Random) -> bytes:
    """Change bytes of the footer, which says where everything is, or its length."""
    length = int.from_bytes(data[-8:-4], "little")
    if length + 8 > len(data):
        return damage(data, rng)
    body, footer = data[: -8 - length], data[-8 - length : -8]
    if rng.random() < 0.1:
        return data[:-8] + struct.pack("<I", _pick(_EDGES, rng) % 2**32) + data[-4:]
    footer = _pick([flip_bits, set_number, flip_bits], rng)(footer, rng)
    return body + footer + struct.pack("<I", len(footer)) + data[-4:]


def h5_dataset(data: bytes, rng: Random) -> bytes:
    """Change a value, a shape or an attribute of an HDF5 file by its own library."""
    import h5py

    out = io.BytesIO(data)
    with h5py.File(out, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        sparse = [name for name in names if name.endswith(("indices", "indptr", "data"))]
        name = _pick(sparse, rng) if sparse and rng.random() < 0.6 else _pick(names, rng)
        item = file[name]
        action = int(rng.integers(5))
        values = item[...] if isinstance(item, h5py.Dataset) and item.size else None
        if action <= 1 and values is not None and values.dtype.kind in "iuf":
            _set_odd(values, rng)
            item[...] = values
        elif action == 2 and item.attrs:
            odd = ["", "csr_matrix", "array", "dataframe", 5, [7, 7], [0, 0], [10**9, 10**9], -1.5]
            item.attrs[_pick([*item.attrs], rng)] = _pick(odd, rng)
        elif action == 3 and name != "X":
            del file[name]
        elif values is not None and values.ndim == 1:
            shorter = values[: int(rng.integers(len(values) + 1))]
            resized = _pick([shorter, np.concatenate([values, values])], rng)
            other = _pick(["f8", "i8", "u1"], rng) if values.dtype.kind in "iuf" else values.dtype
            del file[name]
            file[name] = resized.astype(other)
    return out.getvalue()


# -- safetensors and YAML ------------------------------------------------------------------


def _odd_json(value: Any, rng: Random) -> Any:
    """Change one value somewhere in what JSON holds."""
    odd = [None, True, -1, 0, 1e308, -1e308, 10**30, 1e-320, "", "text", [], {}, [[[]]], "9" * 99]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = _pick(sorted(value), rng)
        if rng.random() < 0.07:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _odd_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        if rng.random() < 0.1:
            return value * int(rng.integers(0, 50))
        if rng.random() < 0.1 and isinstance(value[0], int | float):
            return [_pick([1e308, -1e308, 0, 1e-300], rng)] * len(value)
        i = int(rng.integers(len(value)))
        return [*value[:i], _odd_json(value[i], rng), *value[i + 1 :]]
    return _pick(odd, rng)


def tensor_header(data: bytes, rng: Random) -> bytes:
    """Change a value in the header of a safetensors file, or in our own header inside it."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    if rng.random() < 0.75:
        inner = _odd_json(json.loads(header["__metadata__"]["cpcapp"]), rng)
        header["__metadata__"]["cpcapp"] = json.dumps(inner)
    else:
        header = _odd_json(header, rng)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def tensor_values(data: bytes, rng: Random) -> bytes:
    """Change numbers of the tensors only: to NaN, infinity or huge."""
    out, start = bytearray(data), 8 + int.from_bytes(data[:8], "little")
    if start >= len(out) - 8:
        return damage(data, rng)
    patterns = [b"\xff" * 4, b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\xef\x7f", b"\0" * 4]
    for _ in range(int(rng.integers(1, 6))):
        at = start + 4 * int(rng.integers((len(out) - start) // 4))
        out[at : at + 4] = _pick(patterns, rng)
    return bytes(out)


def moments_values(data: bytes, rng: Random) -> bytes:
    """Change numbers of a file of moments, with a checksum that fits."""
    arrays = safetensors.numpy.load(data)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["cpcapp"])
    _set_odd(arrays[_pick(sorted(arrays), rng)], rng)
    header["crc32"] = 0
    for name in sorted(arrays):
        header["crc32"] = zlib.crc32(arrays[name].tobytes(), header["crc32"])
    return safetensors.numpy.save(arrays, {"cpcapp": json.dumps(header)})


def yaml_number(data: bytes, rng: Random) -> bytes:
    """Change a number in the text of a forest."""
    words = data.split(b" ")
    places = [i for i, word in enumerate(words) if word.strip(b",\n-]").isdigit()]
    if not places:
        return damage(data, rng)
    i = _pick(places, rng)
    words[i] = _pick(_NUMBERS, rng).encode() + (b"," if b"," in words[i] else b"")
    return b" ".join(words)


def forest_structure(data: bytes, rng: Random) -> bytes:
    packed = data[:2] == b"\x1f\x8b"
    if packed:
        data = gzip.decompress(data)
    changed = (
        yaml_number(data, rng)
        if data.startswith(b"%YAML")
        else _pick([tensor_header, tensor_values], rng)(data, rng)
    )
    return gzip.compress(changed, mtime=0) if packed else changed


_XML_CHANGES = (
    (
        rb'r="[A-Z]+(\d+)"',
        [rb'r="ZZZ\1"', rb'r="A\1"', b'r="XFD1048576"', b'r="A0"', b'r="5"', b""],
    ),
    (rb'<row r="\d+"', [b'<row r="1048576"', b'<row r="999999999"', b'<row r="0"', b"<row"]),
    (rb"<v>[^<]*</v>", [b"<v>1e999</v>", b"<v>x</v>", b"<v/>", b"", b"<v>99999999999</v>"]),
    (rb' t="\w+"', [b' t="s"', b' t="d"', b' t="b"', b' t="inlineStr"', b' t="e"', b' t="n"']),
    (rb' s="\d+"', [b' s="14"', b' s="9999"', b' s="-1"']),
    (rb'ref="[^"]*"', [b'ref="A1:XFD1048576"', b'ref="B2:A1"', b'ref=":"']),
    (rb'name="[^"]*"', [b'name=""', b'name="../x"', b'name="a" state="hidden"']),
    (rb'Target="[^"]*"', [b'Target="../../x"', b'Target="/xl/workbook.xml"', b'Target=""']),
    (rb"<worksheet", [b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]><worksheet', b"<chartsheet"]),
    (rb"</c>", [b"<f>1+1</f></c>", b"</c>" * 3, b"</row>"]),
)


def workbook_part(data: bytes, rng: Random) -> bytes:
    """Change the XML of one part of a workbook."""

    def change(body: bytes) -> bytes:
        fitting = [(pattern, to) for pattern, to in _XML_CHANGES if re.search(pattern, body)]
        if not fitting or not rng.integers(4):
            return damage(body, rng)
        for _ in range(int(rng.integers(1, 4))):
            pattern, changes = _pick(fitting, rng)
            body = re.sub(pattern, _pick(changes, rng), body, count=int(_pick([1, 1, 5, 0], rng)))
        return body

    return zip_member(data, rng, change)


# Of each target, by name.
MUTATORS: dict[str, dict[str, Mutator]] = {
    "images": {"bytes": damage, "structure": image_structure},
    "heif": {"bytes": damage, "box": heif_box},
    "file_facts": {"bytes": damage, "segment": jpeg_segment, "exif": exif_entry},
    "jpeg_coefficients": {
        "bytes": damage,
        "segment": jpeg_segment,
        "closed early": jpeg_closed_early,
    },
    "h5ad": {"bytes": damage, "dataset": h5_dataset},
    "arrays": {"bytes": damage, "structure": array_structure},
    "csv": {"bytes": damage, "text": csv_text, "gzip": gzip_stream},
    "excel": {"bytes": damage, "part": workbook_part, "member": zip_member},
    "parquet": {"bytes": damage, "footer": parquet_footer},
    "models": {"bytes": damage, "header": tensor_header, "values": tensor_values},
    "networks": {"bytes": damage, "header": tensor_header, "values": tensor_values},
    "forest": {"bytes": damage, "structure": forest_structure},
    "moments": {"bytes": damage, "header": tensor_header, "values": moments_values},
}


def mutate(target: str, seeds: Sequence[bytes], number: int) -> tuple[str, bytes]:
    """Return the kinds of damage and the file of a number, the same in every run."""
    rng = np.random.default_rng([sum(target.encode()), number])
    data, applied = _pick(seeds, rng), []
    known = MUTATORS[target]
    for _ in range(int(_pick([1, 1, 1, 2, 3], rng))):
        if applied and len(data) > _LARGE:
            break
        kind = _pick(sorted(known), rng)
        # HDF5 itself may crash on what is damaged already.
        kind = "bytes" if kind == "dataset" and applied else kind
        try:
            data = known[kind](data, rng) if data else rng.bytes(9)
        except Exception:  # it can't be taken apart any more
            data = damage(data, rng)
        applied.append(kind)
    return "+".join(applied), data
