"""What the server does when clients, files and workers misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading

import cv2
import httpx
import numpy as np
import pytest

from serving import EXAMPLES, is_running, serving, wait_until

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops workers by signals")

PHOTO = (EXAMPLES / "cat-with-helmet.png").read_bytes()
SMALL = cv2.imencode(".png", np.random.default_rng(0).integers(0, 99, (80, 90, 3), np.uint8))[1]
SMALL = SMALL.tobytes()


@pytest.fixture(scope="module")
def server():
    with serving(max_waiting=4, max_per_client=3, stall_seconds=0.3) as running:
        running.wait_for_worker()
        yield running


@pytest.fixture
def stopped(server):
    """A server whose worker does not go on, and jobs wait."""
    worker = server.wait_for_worker()
    os.kill(worker, signal.SIGSTOP)
    yield server
    if is_running(worker):
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: server.health()["running"] == server.health()["waiting"] == 0)


def folders(server) -> set[str]:
    return {path.name for path in server.folder.iterdir()}


def test_one_client_can_not_fill_the_queue(stopped):
    jobs = [stopped.post(SMALL, wait=False) for _ in range(3)]
    assert [job.status_code for job in jobs] == [202] * 3
    full = stopped.post(SMALL, wait=False)
    assert full.status_code == 429
    assert full.json()["error"]["code"] == "too_many"
    assert int(full.headers["retry-after"]) >= 1
    positions = [
        stopped.client.get(f"/api/jobs/{job.json()['id']}").json()["position"] for job in jobs
    ]
    assert positions == [0, 1, 2]
    other = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=stopped.address, transport=other) as client:
        answers = [
            client.post(
                "/api/localize?wait=false", files={"file": SMALL}, data={"model": "filters"}
            )
            for _ in range(3)
        ]
    # Of four places two were free: the first job is worked on, and waits no more.
    assert [answer.status_code for answer in answers] == [202, 202, 503]
    assert answers[-1].json()["error"]["code"] == "full"
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_full_queue_hears_a_large_file_out_before_it_answers(stopped):
    """A connection closed on a client that still sends would be an error, and not an answer."""
    for _ in range(3):
        assert stopped.post(SMALL, wait=False).status_code == 202
    for _ in range(5):
        refused = stopped.post(os.urandom(8_000_000), wait=False)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many"


def test_who_hangs_up_while_waiting_leaves_nothing(stopped):
    before = folders(stopped)
    first = stopped.post(SMALL, wait=False).json()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{stopped.address}/api/localize",
            files={"file": SMALL},
            data={"model": "filters"},
            timeout=0.3,
        )
    wait_until(lambda: stopped.health()["waiting"] == 0)
    assert folders(stopped) == before | {first["id"]}


def test_who_hangs_up_while_it_is_worked_on_leaves_nothing(server):
    worker = server.wait_for_worker()
    before = folders(server)
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.address}/api/localize",
            files={"file": SMALL},
            data={"model": "filters"},
            timeout=0.3,
        )
    os.kill(worker, signal.SIGCONT)
    wait_until(lambda: server.health()["running"] == 0)
    wait_until(lambda: folders(server) == before)
    assert server.workers == [worker]


def test_half_an_upload_leaves_nothing(server):
    before = folders(server)
    host, port = server.address.removeprefix("http://").split(":")
    head = (
        f"POST /api/localize HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    ).encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + bytes(5000))
        wait_until(lambda: server.health()["uploading"] == 1)
    wait_until(lambda: server.health()["uploading"] == 0)
    assert folders(server) == before
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + bytes(5000))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b" 408 " in answer and b"too_slow" in answer
    assert folders(server) == before


def test_a_worker_that_died_before_it_began_costs_no_job(stopped):
    jobs = [stopped.post(SMALL, wait=False).json() for _ in range(2)]
    wait_until(lambda: stopped.health()["running"] == 1)
    worker = stopped.workers[0]
    os.kill(worker, signal.SIGKILL)
    assert [_wait_for(stopped, job["id"])["status"] for job in jobs] == ["done", "done"]
    assert worker not in stopped.workers


def test_a_worker_killed_within_a_job_fails_it(server):
    """The photo takes seconds; the worker dies after its first word."""
    server.wait_for_worker()
    large = cv2.resize(cv2.imdecode(np.frombuffer(PHOTO, np.uint8), 1), (2000, 1400))
    content = cv2.imencode(".png", large)[1].tobytes()
    job = server.post(content, wait=False).json()
    with server.client.stream("GET", f"/api/jobs/{job['id']}/events") as stream:
        lines = stream.iter_lines()
        for line in lines:
            if '"Looking for seams"' in line:
                os.kill(server.workers[0], signal.SIGKILL)
                break
        assert "event: failed" in list(lines)
    state = server.client.get(f"/api/jobs/{job['id']}").json()
    assert state["error"]["code"] == "worker_died"
    assert not (server.folder / job["id"]).exists()
    assert server.post(SMALL).status_code == 200


def test_a_worker_that_died_idle_costs_no_job(server):
    worker = server.wait_for_worker()
    os.kill(worker, signal.SIGKILL)
    assert server.post(SMALL).status_code == 200
    assert server.workers != [worker]


def test_a_job_that_is_worked_on_can_be_removed(stopped):
    job = stopped.post(SMALL, wait=False).json()
    wait_until(lambda: stopped.health()["running"] == 1)
    listening = threading.Event()
    heard = []

    def listen():
        with httpx.stream("GET", f"{stopped.address}/api/jobs/{job['id']}/events") as stream:
            for line in stream.iter_lines():
                heard.append(line)
                listening.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert listening.wait(30)
    assert stopped.client.delete(f"/api/jobs/{job['id']}").status_code == 204
    thread.join(30)
    assert "event: failed" in heard
    assert json.loads(heard[-2].removeprefix("data: "))["error"]["code"] == "removed"
    wait_until(lambda: not (stopped.folder / job["id"]).exists())
    assert stopped.post(SMALL).status_code == 200


def test_a_job_may_not_take_forever():
    with serving(job_seconds=0.5) as server:
        os.kill(server.wait_for_worker(), signal.SIGSTOP)
        answer = server.post(SMALL)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "too_long"
        assert folders(server) == set()


def test_a_job_may_not_take_all_memory():
    with serving(worker_bytes=60 << 20) as server:
        large = np.random.default_rng(0).integers(0, 255, (1500, 2000, 3), np.uint8)
        content = cv2.imencode(".jpg", large)[1].tobytes()
        answer = server.post(content)
        assert answer.json()["error"]["code"] in ("too_much_memory", "worker_died"), answer.text
        assert answer.status_code in (413, 500)
        assert server.post(b"no photo").json()["error"]["code"] == "unreadable"


def test_results_are_removed_after_a_while():
    with serving(keep_seconds=1.0) as server:
        job = server.post(SMALL).json()
        assert folders(server) == {job["id"]}
        wait_until(lambda: folders(server) == set())
        assert server.client.get(f"/api/jobs/{job['id']}").status_code == 404
        assert server.health()["kept"] == 0


def test_results_take_only_so_much_disk():
    with serving(keep_bytes=60_000) as server:
        ids = [server.post(SMALL).json()["id"] for _ in range(4)]
        wait_until(lambda: server.health()["kept"] < 4)
        assert ids[-1] in folders(server)
        assert ids[0] not in folders(server)


def _wait_for(server, job_id: str) -> dict:
    def finished():
        job = server.client.get(f"/api/jobs/{job_id}").json()
        return job if job["status"] in ("done", "failed") else None

    return wait_until(finished)
