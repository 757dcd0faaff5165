"""Lines of C libraries are caught; what others print comes through."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.library_output import catch_library_output, jpeg_warning
from trace_networks import textured


def test_only_lines_of_libraries_are_kept(capfd):
    with catch_library_output() as output:
        os.write(2, b"LZWDecode: Not enough data at scanline 0 (short 172 bytes).\n")
        sys.stderr.write("\r 37 % of photos")
    assert output.text.startswith(b"LZWDecode: ")
    assert capfd.readouterr().err == "\r 37 % of photos"


def test_an_error_within_is_not_kept_back(capfd):
    with pytest.raises(KeyError), catch_library_output():
        raise KeyError("x")
    sys.stderr.write("after\n")
    assert capfd.readouterr().err == "after\n"


def test_what_libjpeg_says():
    whole = encode_jpeg(textured(120, 160), quality=90)
    assert jpeg_warning([whole]).text == b""
    cut = whole[: len(whole) // 2] + b"\xff\xd9"
    assert jpeg_warning([whole, cut]).says_cut_off
    assert jpeg_warning([b"no photo"]).text == b""


def test_a_process_without_standard_error():
    code = """
import os
os.close(2)
from cpcapp.splicing.photo.library_output import catch_library_output
with catch_library_output() as output:
    pass
print(output.text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "b''\n"
