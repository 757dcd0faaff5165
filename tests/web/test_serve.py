"""``cpcapp serve`` as a user starts and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from cpcapp.cli import main
from cpcapp.web import server as server_module
from cpcapp.web.security import AllowedHosts
from cpcapp.web.server import open_socket, spell_address
from cpcapp.web.settings import Settings
from serving import EXAMPLES, children_of, command, is_running, wait_until

PHOTO = EXAMPLES / "cat-with-helmet.png"


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    with command("--port", "0", TMPDIR=str(tmp_path)) as (process, address):
        post = {"files": {"file": PHOTO.read_bytes()}, "timeout": 60}
        job = httpx.post(f"{address}api/localize?wait=false", **post).json()
        assert [path.name[:13] for path in tmp_path.iterdir()] == ["cpcapp-serve-"]
        workers = wait_until(lambda: children_of(process.pid))
        heard = []

        def listen():
            with httpx.stream("GET", f"{address}api/jobs/{job['id']}/events", timeout=60) as stream:
                heard.extend(stream.iter_lines())

        thread = threading.Thread(target=listen)
        thread.start()
        wait_until(lambda: httpx.get(f"{address}api/health").json()["running"])
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        thread.join(60)
    assert process.returncode == 130
    assert errors == "cpcapp serve: stopped\n"
    assert output == ""
    assert "event: failed" in heard
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def test_a_killed_server_leaves_no_process_and_the_next_one_tidies_up(tmp_path):
    with command("--port", "0", TMPDIR=str(tmp_path)) as (process, address):
        health = f"{address}api/health"
        httpx.post(f"{address}api/localize?wait=false", files={"file": PHOTO.read_bytes()})
        wait_until(lambda: httpx.get(health).json()["running"])
        workers = children_of(process.pid)
        process.kill()
        process.wait()
    (left,) = tmp_path.iterdir()
    wait_until(lambda: not any(is_running(worker) for worker in workers))
    with command("--port", "0", TMPDIR=str(tmp_path)) as (process, _):
        wait_until(lambda: not left.exists())
        wait_until(lambda: list(tmp_path.iterdir()))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors == ""
    assert list(tmp_path.iterdir()) == []


def test_other_hosts_are_explained_in_one_line():
    with command("--port", "0", "--host", "0.0.0.0") as (process, address):
        lines = process.said.splitlines()
        assert len(lines) == 2
        assert "Others on the network can use this page and send photos" in lines[0]
        assert "no login" in lines[0]
        assert address.startswith("http://127.0.0.1:")
        own = {"Host": f"{socket.gethostname()}:80"}
        assert httpx.get(f"{address}api/health", headers=own).status_code == 200
        other = {"Host": "evil.example"}
        assert httpx.get(f"{address}api/health", headers=other).status_code == 421


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(capsys):
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--no-browser", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cpcapp serve: can't listen on 127.0.0.1:{port}: ")
    assert len(error.splitlines()) == 1


def test_without_a_port_the_next_free_one_is_taken(monkeypatch):
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(server_module, "DEFAULT_PORT", port)
        with open_socket("127.0.0.1") as found:
            assert port < found.getsockname()[1] < port + 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["--jobs", "0"],
        ["--max-megabytes", "0"],
        ["--max-megapixels", "-1"],
        ["--job-seconds", "nan"],
        ["--memory-gigabytes", "0"],
        ["--keep-minutes", "0"],
        ["--port", "70000"],
        ["--host", "203.0.113.7"],
        ["--max-megabytes", "inf"],
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, capsys):
    assert main(["serve", "--no-browser", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cpcapp serve: ")
    assert len(error.splitlines()) == 1


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from cpcapp.cli import main; sys.exit(main(['serve', '--no-browser']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == (
        "cpcapp serve: needs fastapi; install it with: pip install 'cpcapp[web]'\n"
    )


def test_the_browser_is_opened_unless_told_otherwise(monkeypatch):
    opened, served = [], []
    monkeypatch.setattr("webbrowser.open", opened.append)

    def run_server(settings, listening, on_start):
        served.append(settings)
        listening.close()
        if on_start is not None:
            on_start()

    monkeypatch.setattr(server_module, "run_server", run_server)
    assert main(["serve", "--port", "0", "--jobs", "2", "--max-megabytes", "5"]) == 0
    wait_until(lambda: opened)
    assert opened[0].startswith("http://127.0.0.1:")
    assert main(["serve", "--port", "0", "--no-browser"]) == 0
    assert len(opened) == 1
    assert (served[0].jobs, served[0].max_bytes) == (2, 5_000_000)


def test_addresses_are_spelled_for_browsers():
    if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):  # noqa: PTH110
        with open_socket("::1", 0) as listening:
            assert spell_address(listening).startswith("http://[::1]:")
    with open_socket("0.0.0.0", 0) as listening:
        assert spell_address(listening).startswith("http://127.0.0.1:")


def test_who_may_ask_depends_on_where_the_server_listens():
    here, network = AllowedHosts("127.0.0.1"), AllowedHosts("192.168.1.5", ["Press.example"])
    anywhere = AllowedHosts("0.0.0.0")
    cases = {
        "127.0.0.1:8000": (True, True, True),
        "192.168.1.5:8000": (False, True, True),
        "10.0.0.9": (False, False, True),
        "[fe80::1]:8000": (False, False, True),
        "press.example": (False, True, False),
        "evil.example": (False, False, False),
        "localhost.evil.example": (False, False, False),
        "localhost:80:80": (False, False, False),
        "user@localhost": (False, False, False),
    }
    for host, expected in cases.items():
        assert tuple(hosts.allow(host) for hosts in (here, network, anywhere)) == expected, host
    assert not Settings().is_open and Settings(host="192.168.1.5").is_open
