"""Which lines of a damaged gzip file are in doubt."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from cpcapp.tables import TableError, open_table
from cpcapp.tables.reading.gzip_damage import locate_gzip_damage

LINES = [f"{i},{i * 0.37:.3f},{i % 7}\n" for i in range(20_000)]
TEXT = ("a,b,c\n" + "".join(LINES)).encode()
WHOLE = gzip.compress(TEXT, mtime=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv.gz"


def test_a_wrong_checksum(path):
    path.write_bytes(WHOLE[:-8] + bytes([WHOLE[-8] ^ 1]) + WHOLE[-7:])
    with pytest.raises(TableError, match=r"t\.csv\.gz is damaged in line 20001 or before it: its"):
        list(open_table(path).chunks(["a"], []))


@pytest.mark.parametrize("end", [0.3, 0.7, 0.99])
def test_a_file_that_is_cut_off(path, end):
    cut = WHOLE[: int(len(WHOLE) * end)]
    path.write_bytes(cut)
    good = zlib.decompressobj(31).decompress(cut).count(b"\n")
    assert locate_gzip_damage(path) == f"after line {good}: it is cut off"
    with pytest.raises(TableError, match=f"is damaged after line {good}: it is cut off; use an"):
        list(open_table(path).chunks(["a"], []))


def test_damage_in_the_second_of_two(path):
    """Files that were put one behind the other are one text."""
    second = bytearray(WHOLE)
    second[2000:2100] = np.random.default_rng(3).bytes(100)
    path.write_bytes(WHOLE + second)
    place = locate_gzip_damage(path)
    first, _, _ = place.removeprefix("after line ").partition(":")
    # Some hundred bytes of noise may look like lines; what was before them is known to be good.
    good = zlib.decompressobj(31).decompress(WHOLE[:2000]).count(b"\n")
    assert TEXT.count(b"\n") + good <= int(first) <= TEXT.count(b"\n") + good + 400
