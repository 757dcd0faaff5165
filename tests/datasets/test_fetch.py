"""Fetching, against a real server on this machine and with the real files."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile

import pytest

from cpcapp.datasets import DataNotFoundError, DownloadError, UnverifiedDownloadWarning, _fetch
from cpcapp.datasets._fetch import RemoteFile, fetch, home_folders
from loopback import serving


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no other place for files, and no proxy before this machine."""
    for name in ("CPCAPP_DATA", "CPCAPP_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("CPCAPP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_fetch, "_RETRIES", 0)  # pooch waits a second before each
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def table(data_folder) -> bytes:
    """The real table of the mice, about a megabyte."""
    return (data_folder / "mice_protein" / "Data_Cortex_Nuclear.csv").read_bytes()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def remote(server, content=None):
    known = sha256(server.content if content is None else content)
    return RemoteFile("mice/table.csv", server.address, known)


def left_over(cache):
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["mnist/mnist.npz", "mice_protein/Data_Cortex_Nuclear.csv"])
def test_a_real_file_comes_whole_and_once(data_folder, cache, name, capfd):
    content = (data_folder / name).read_bytes()
    listed = (data_folder / "SHA256SUMS").read_text().splitlines()
    (known,) = [line.split()[0] for line in listed if line.endswith(f"./{name}")]
    with serving(content) as server:
        file = RemoteFile(name, server.address, f"sha256:{known}")
        assert fetch(file) == cache / name == fetch(file)
        assert server.requests == 1
    assert (cache / name).read_bytes() == content
    assert left_over(cache) == [name.rpartition("/")[2]]
    assert capfd.readouterr() == ("", "")


def test_a_broken_connection_is_tried_again(table, cache, monkeypatch, capfd):
    with serving(table, break_after=400_000) as server:
        with pytest.raises(DownloadError, match=r"table.csv is not here and can't be fetched from"):
            fetch(remote(server))
        assert left_over(cache) == []
        server.break_after = 400_000
        monkeypatch.setattr(_fetch, "_RETRIES", 1)
        assert fetch(remote(server)).read_bytes() == table
        assert server.requests == 3
    assert left_over(cache) == ["table.csv"]
    assert capfd.readouterr() == ("", "")


def test_another_file_in_its_place(table, cache):
    with serving(table[::-1]) as server:
        with pytest.raises(DownloadError, match=r"put it at .*table\.csv$") as caught:
            fetch(remote(server, content=table))
        for digest in (sha256(table), sha256(table[::-1])[7:]):
            assert digest in str(caught.value)
        assert "\n" not in str(caught.value)
        assert left_over(cache) == []


def test_a_half_written_file_in_the_cache_is_replaced(table, cache):
    (cache / "mice").mkdir(parents=True)
    (cache / "mice" / "table.csv").write_bytes(table[:1000])
    with serving(table) as server:
        assert fetch(remote(server)).read_bytes() == table
    assert left_over(cache) == ["table.csv"]


@pytest.fixture
def nowhere():
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}/mnist.npz"


def test_offline(cache, nowhere):
    with pytest.raises(DownloadError) as caught:
        fetch(RemoteFile("mnist/mnist.npz", nowhere, "sha256:00"))
    assert str(caught.value) == (
        f"mnist.npz is not here and can't be fetched from {nowhere} (no connection); get that "
        f"file on another machine and put it at {cache / 'mnist' / 'mnist.npz'}"
    )


def test_offline_by_choice(cache, monkeypatch, table):
    monkeypatch.setenv("CPCAPP_OFFLINE", "1")
    with serving(table) as server:
        with pytest.raises(DataNotFoundError, match="CPCAPP_OFFLINE=1 forbids"):
            fetch(remote(server))
        (cache / "mice").mkdir(parents=True)
        (cache / "mice" / "table.csv").write_bytes(table)
        assert fetch(remote(server)).read_bytes() == table
        assert server.requests == 0


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_that_says_no(table, status, cache):
    with serving(table, status=status) as server, pytest.raises(DownloadError, match=f"{status} "):
        fetch(remote(server))
    assert left_over(cache) == []


def test_without_a_published_hash_an_archive_is_taken_with_a_warning(cache):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    with serving(b"<html>Welcome to our hotel") as server:
        file = RemoteFile("leukemia/cells.tar.gz", server.address, None)
        with pytest.raises(DownloadError, match="did not send an archive; try again from another"):
            fetch(file)
        assert left_over(cache) == []
        server.content = content.getvalue()
        with pytest.warns(UnverifiedDownloadWarning, match=sha256(server.content)[7:]):
            fetch(file)
        assert fetch(file).read_bytes() == server.content  # and no second warning
        assert server.requests == 2


def test_files_at_hand_come_first_and_as_they_are(tmp_path, cache, monkeypatch, table):
    for name in ("named", "given"):
        (tmp_path / name / "mice").mkdir(parents=True)
        (tmp_path / name / "mice" / "table.csv").write_text(name)
    monkeypatch.setenv("CPCAPP_DATA", str(tmp_path / "named"))
    with serving(table) as server:
        assert fetch(remote(server)).read_text() == "named"
        assert fetch(remote(server), tmp_path / "given").read_text() == "given"
        assert fetch(remote(server), tmp_path / "new").read_bytes() == table
        assert server.requests == 1
    assert (tmp_path / "new" / "mice" / "table.csv").exists()
    assert not cache.exists()


def test_relative_folders_in_the_environment_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPCAPP_DATA", "named")
    monkeypatch.setenv("CPCAPP_CACHE", "kept")
    assert home_folders() == [tmp_path / "named", tmp_path / "kept"]
    monkeypatch.delenv("CPCAPP_CACHE")
    assert home_folders()[1].name == "cpcapp"
    assert home_folders()[1].is_absolute()


def test_a_bar_on_a_terminal_only(table, cache):
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    code = (
        "import sys\n"
        "from cpcapp.datasets._fetch import RemoteFile, fetch\n"
        "fetch(RemoteFile('mice/table.csv', sys.argv[1], sys.argv[2]))\n"
    )
    with serving(table) as server:
        command = [sys.executable, "-c", code, server.address, sha256(server.content)]
        main, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        subprocess.run(command, stderr=terminal, check=True)
        os.close(terminal)
        with os.fdopen(main, "rb", buffering=0) as screen:
            assert b"100%" in screen.read(100_000)
        (cache / "mice" / "table.csv").unlink()
        piped = subprocess.run(command, capture_output=True, check=True)
    assert piped.stdout == piped.stderr == b""


def test_without_the_extra(cache, nowhere, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataNotFoundError, match=r"pip install 'cpcapp\[datasets\]'.*put it at"):
        fetch(RemoteFile("mice/table.csv", nowhere, "sha256:00"))
