"""Fetching, against a real server on this machine and with the real files."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cpcapp.datasets import DataNotFoundError, DownloadError, UnverifiedDownloadWarning, _fetch
from cpcapp.datasets._fetch import HASHES_FILE, cache_folder, fetch, home_folders
from cpcapp.datasets._registry import MHEALTH, MICE, MNIST, RemoteFile, tenx_sample
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


def remote(server, content=None, known="published"):
    published = sha256(server.content if content is None else content) if known else None
    return RemoteFile("mice/table.csv", server.address, published)


def left_over(cache):
    return sorted(p.name for p in cache.rglob("*") if p.is_file() and p.name != ".fetching.lock")


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
    monkeypatch.setattr(_fetch, "_RETRIES", 1)
    with serving(table, break_after=400_000) as server:
        assert fetch(remote(server)).read_bytes() == table
        assert server.requests == 2
    assert left_over(cache) == ["table.csv"]
    assert capfd.readouterr() == ("", "")


def test_a_connection_that_breaks_each_time(table, cache):
    with serving(table, break_after=400_000) as server:
        with pytest.raises(DownloadError) as caught:
            fetch(remote(server))
        place = cache / "mice" / "table.csv"
        assert str(caught.value) == (
            f"fetching {server.address} broke off in each of 1 attempts; try again, or get that "
            f"file on another machine and put it at {place}"
        )
        assert left_over(cache) == []
        assert fetch(remote(server)).read_bytes() == table


def test_a_server_that_does_not_say_how_long_the_file_is(table):
    with serving(table, length=False) as server:
        assert fetch(remote(server)).read_bytes() == table


@pytest.mark.parametrize("length", [True, False])
def test_more_bytes_than_the_file_can_have(table, cache, length):
    with serving(table, length=length) as server:
        file = replace(remote(server), max_bytes=100_000)
        with pytest.raises(DownloadError, match=r"is not the file it should be: it has more than"):
            fetch(file)
    assert left_over(cache) == []


def test_a_server_that_sends_a_byte_now_and_then(table, cache, monkeypatch):
    """Each comes in time, but the file never ends."""
    monkeypatch.setattr(_fetch, "_MAX_SECONDS", 0.3)
    with (
        serving(table, pause=0.02) as server,
        pytest.raises(DataNotFoundError, match=r"it is not whole after 0.3 seconds"),
    ):
        fetch(remote(server))
    assert server.sent < 10_000
    assert left_over(cache) == []


def test_leftovers_of_a_killed_download_are_removed(table, cache):
    (cache / "mice").mkdir(parents=True)
    (cache / "mice" / "table.csv.0123456789abcdef.part").write_bytes(table[:1000])
    with serving(table) as server:
        fetch(remote(server))
    assert left_over(cache) == ["table.csv"]


def test_another_file_in_its_place(table, cache):
    with serving(table[::-1]) as server:
        with pytest.raises(DownloadError, match=r"table.csv from http\S+ is not the file it") as e:
            fetch(remote(server, content=table))
        for digest in (sha256(table), sha256(table[::-1])[7:]):
            assert digest in str(e.value)
        assert "\n" not in str(e.value)
        assert left_over(cache) == []
        server.content = table
        assert fetch(remote(server)).read_bytes() == table


def test_another_page_in_its_place(table, cache):
    """As the network of a hotel has it, where no hash could tell."""
    with serving(b"<html>Welcome") as server:
        file = RemoteFile("mice/table.csv", server.address, None, magic=b"MouseID")
        with pytest.raises(DownloadError, match=r"begins with b'<html>W' instead of b'MouseID'"):
            fetch(file)
        assert left_over(cache) == []
        server.content = table
        with pytest.warns(UnverifiedDownloadWarning):
            assert fetch(file).read_bytes() == table


def test_a_folder_that_is_none(cache, table):
    cache.write_text("a file")
    with (
        serving(table) as server,
        pytest.raises(DataNotFoundError, match=r"name another folder by CPCAPP_CACHE or data_home"),
    ):
        fetch(remote(server))


def test_md5_where_nothing_better_is_published(table):
    with serving(table) as server:
        md5 = hashlib.md5(table).hexdigest()
        assert fetch(RemoteFile("t", server.address, f"md5:{md5}")).read_bytes() == table
        with pytest.raises(DownloadError, match=f"expected md5:{'0' * 32} but got {md5}"):
            fetch(RemoteFile("u", server.address, f"md5:{'0' * 32}"))


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
    with pytest.raises(DataNotFoundError) as caught:
        fetch(RemoteFile("mnist/mnist.npz", nowhere, "sha256:00"))
    assert type(caught.value) is DataNotFoundError
    place = cache / "mnist" / "mnist.npz"
    assert str(caught.value) == (
        f"mnist.npz is not here and can't be fetched from {nowhere} (no connection); get that "
        f"file on another machine and put it at {place}"
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
    with (
        serving(table, status=status) as server,
        pytest.raises(DataNotFoundError, match=f"the server answers {status} "),
    ):
        fetch(remote(server))
    assert left_over(cache) == []


def test_trust_on_first_use(table, cache):
    with serving(table) as server:
        file = remote(server, known=None)
        with pytest.warns(UnverifiedDownloadWarning, match="nobody is known to publish a hash"):
            fetch(file)
        lock = json.loads((cache / HASHES_FILE).read_text())
        assert lock["mice/table.csv"]["hash"] == sha256(table)
        assert lock["mice/table.csv"]["url"] == server.address

        fetch(file)
        assert server.requests == 1
        (cache / file.name).write_bytes(b"damaged")
        assert fetch(file).read_bytes() == table  # and no warning, as it is the same again

        (cache / file.name).unlink()
        server.content = b"changed at the source"
        with pytest.raises(DownloadError, match=sha256(table)[7:]):
            fetch(file)


def test_a_lock_file_that_is_none(table, cache):
    cache.mkdir()
    (cache / HASHES_FILE).write_text("{")
    with (
        serving(table) as server,
        pytest.raises(ValueError, match=f"{HASHES_FILE} can't be read .* remove it"),
    ):
        fetch(remote(server, known=None))


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
    assert home_folders() == [tmp_path / "named", cache]


def test_relative_folders_in_the_environment(tmp_path, monkeypatch, table):
    (tmp_path / "named" / "mice").mkdir(parents=True)
    (tmp_path / "named" / "mice" / "table.csv").write_bytes(table)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPCAPP_DATA", "named")
    monkeypatch.setenv("CPCAPP_CACHE", "kept")
    assert home_folders() == [tmp_path / "named", tmp_path / "kept"]
    with serving(table) as server:
        found = fetch(remote(server))
        assert server.requests == 0
    monkeypatch.chdir("elsewhere")
    assert found.read_bytes() == table


def test_the_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("CPCAPP_CACHE")
    assert cache_folder().name == "cpcapp"
    assert cache_folder().is_absolute()


def test_parallel_jobs_fetch_once(table):
    with serving(table) as server, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fetch, [remote(server)] * 4))
        assert len(set(found)) == 1
        assert server.requests == 1


FETCH = (
    "import sys\n"
    "from cpcapp.datasets._fetch import fetch\n"
    "from cpcapp.datasets._registry import RemoteFile\n"
    "fetch(RemoteFile('mice/table.csv', sys.argv[1], sys.argv[2]))\n"
)


def command(server):
    return [sys.executable, "-c", FETCH, server.address, sha256(server.content)]


def test_ctrl_c_leaves_nothing_behind(table, cache):
    with serving(table, break_after=400_000, stall=threading.Event()) as server:
        process = subprocess.Popen(command(server), stderr=subprocess.PIPE)
        while not server.sent:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode != 0
        assert left_over(cache) == []
        assert fetch(remote(server)).read_bytes() == table


def test_a_bar_on_a_terminal_only(table, cache):
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    with serving(table) as server:
        main, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        subprocess.run(command(server), stderr=terminal, check=True)
        os.close(terminal)
        with os.fdopen(main, "rb", buffering=0) as screen:
            assert b"100%" in screen.read(100_000)
        (cache / "mice" / "table.csv").unlink()
        piped = subprocess.run(command(server), capture_output=True, check=True)
    assert piped.stdout == piped.stderr == b""


def test_without_the_extra(cache, nowhere):
    code = f"import sys\nsys.modules['pooch'] = None\n{FETCH}"
    done = subprocess.run(
        [sys.executable, "-c", code, nowhere, "sha256:00"], capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert f"DataNotFoundError: table.csv is not here; to fetch it from {nowhere}, install" in last
    assert "pip install 'cpcapp[datasets]'" in last
    assert str(cache / "mice" / "table.csv") in last


def test_the_registry():
    for file in (MNIST, MICE, MHEALTH, tenx_sample("aml027_pre_transplant")):
        assert file.url.startswith("https://")
        if file.published_hash is None:
            continue
        algorithm, digest = file.published_hash.split(":")
        assert len(bytes.fromhex(digest)) == hashlib.new(algorithm).digest_size
        assert file.hash_source


def test_no_warning_where_the_hash_is_published(table):
    with serving(table) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        fetch(remote(server))
