"""NumPy archives that claim more than they hold, and other damage."""

from __future__ import annotations

import tracemalloc
import zipfile

import numpy as np
import pytest

from cpcapp.tables.read.npy_files import open_npy, read_npz


def header(text, version=1):
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


def promise(shape, descr="<f8"):
    return header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")


@pytest.mark.parametrize(
    "start",
    [
        promise("(4611686018427387904, 4611686018427387904)"),  # the product wraps around to 0
        promise("(1000000000000,)"),
        promise("(-3, -4)"),
        promise("(2,)", "|O"),
        promise("(2,)", "no type"),
        header("(" * 5000),
        header("{'descr': '<f8', 'shape': (1,)}"),
        header("\0\0\0\0"),
        header("{'descr': '<f8',\n  'fortran_order'\n "),
        header("{}", version=2)[:9],
        header("{}").replace(b"\x01\x00", b"\x09\x00", 1),
        b"",
        b"\x93NUMPY",
    ],
)
def test_headers_that_promise_what_is_not_there(start, tmp_path):
    (tmp_path / "a.npy").write_bytes(start + bytes(96))
    with pytest.raises(ValueError, match=r"its header|it holds Python objects"):
        open_npy(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", start + bytes(96))
    with pytest.raises(ValueError, match=r"'a.npy' is damaged: (its header|it holds Python)"):
        read_npz(tmp_path / "a.npz")


def test_ordinary_files_are_read(tmp_path):
    for array in (np.ones((3, 4)), np.asfortranarray(np.ones((3, 4))), np.array("text")):
        np.save(tmp_path / "a.npy", array)
        np.testing.assert_array_equal(open_npy(tmp_path / "a.npy"), array)


def test_an_archive_that_unpacks_to_a_hundred_times_its_size_is_refused_unread(tmp_path):
    path = tmp_path / "large.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        member.write(promise("(40000000,)"))
        for _ in range(320):
            member.write(bytes(1_000_000))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"its 0 MB unpack to 305 MB; .*without compression"):
            read_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_members_that_can_not_be_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.arange(1000.0))
    whole = bytearray(path.read_bytes())
    damaged = bytearray(whole)
    damaged[200:300] = bytes(100)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"its member 'a\.npy' is damaged"):
        read_npz(path)
    encrypted = bytearray(whole)
    encrypted[6] |= 1  # in the member's own header, and in the directory
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(encrypted)
    with pytest.raises(ValueError, match="encrypted, password required"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "")
    with pytest.raises(ValueError, match=r"'notes\.txt' is damaged"):
        read_npz(path)


def test_flipped_bytes_are_a_value_error_or_change_nothing(tmp_path, rng):
    path = tmp_path / "a.npz"
    array = rng.normal(size=(9, 7))
    np.savez_compressed(path, a=array)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            found = read_npz(path)
        except ValueError:
            continue
        if "a" in found:
            np.testing.assert_array_equal(found["a"], array)
