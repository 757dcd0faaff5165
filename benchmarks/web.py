"""How the page holds under load: latency, memory, lost jobs, and clients that misbehave.

    python benchmarks/web.py [--seconds 60] [--clients 64] [--output FILE]

The server is ``cpcapp serve`` in a process of its own, asked over loopback. Each client has an
address of its own (127.0.0.2, 127.0.0.3, ...), so that the limit for one client holds for each of
them as it does on a network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from _machine import describe_machine, load_average
from _report import Results, machine_line, table, targets_table
from _targets import at_least, at_most
from cpcapp.splicing.photo.files import image_files

EXAMPLES = Path(__file__).parents[1] / "src" / "cpcapp" / "splicing" / "examples"
_MODEL = "filters"
_PATIENCE = 120.0
# A page that answers within this feels immediate.
_PAGE_SECONDS = 0.2
_BROKEN_FILES = 1000


class ServedPage:
    """``cpcapp serve`` in a process, and what it takes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cpcapp", "serve", "--no-browser", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line}")
        self.address = found[0].rstrip("/")
        self.peak: Counter[str] = Counter()

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(number) for number in text.split()]

    def measure(self) -> None:
        """Note the memory that server and workers have now, if it is more than before."""
        server = _resident(self.process.pid)
        workers = [_resident(worker) for worker in self.workers]
        now = {
            "server_bytes": server,
            "largest_worker_bytes": max(workers, default=0),
            "all_bytes": server + sum(workers),
        }
        for name, value in now.items():
            self.peak[name] = max(self.peak[name], value)

    def stop(self) -> str:
        """End it as Ctrl-C does; return what it wrote to standard error."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=60)
        return errors


def _resident(process: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        sizes = [line.split()[1] for line in lines if line.startswith("VmRSS")]
        return 1024 * int(sizes[0]) if sizes else 0
    return 0


def find_photos() -> list[Path]:
    """Return real photos: some of Columbia and of the web, or the examples of the package."""
    data = Path(os.environ.get("CPCAPP_DATA", ""))
    found: list[Path] = []
    for name in ("columbia_dev/4cam_auth", "columbia_dev/4cam_splc", "photos_web"):
        folder = data / name
        if os.environ.get("CPCAPP_DATA") and folder.is_dir():
            found += sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".tif"))[
                :8
            ]
    return found or list(image_files(EXAMPLES))


async def watch_page(page: ServedPage, seen: dict[str, list[float]], stop: asyncio.Event) -> None:
    """Ask for the page and the state of the server again and again, as people do."""
    async with httpx.AsyncClient(base_url=page.address, timeout=_PATIENCE) as client:
        while not stop.is_set():
            for path in ("/", "/api/health", "/static/viewer.js"):
                start = time.perf_counter()
                answer = await client.get(path)
                seen[path].append(time.perf_counter() - start)
                answer.raise_for_status()
            page.measure()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.1)


async def post_photos(
    page: ServedPage, number: int, photos: list[tuple[str, bytes]], end: float, found: Results
) -> None:
    """Be one client: send a photo, wait for its result, look at it, send the next."""
    transport = httpx.AsyncHTTPTransport(verify=False, local_address=f"127.0.0.{2 + number}")
    async with httpx.AsyncClient(
        base_url=page.address, transport=transport, timeout=_PATIENCE
    ) as client:
        turn = number
        while time.monotonic() < end:
            photo = photos[turn % len(photos)]
            turn += 1
            start = time.perf_counter()
            answer = await client.post(
                "/api/localize?wait=false",
                files={"file": photo},
                data={"model": _MODEL},
            )
            found["status"][answer.status_code] += 1
            if answer.status_code != 202:
                if "Retry-After" not in answer.headers or not answer.json()["error"]["code"]:
                    found["unclear"] += 1
                wait = min(float(answer.headers.get("Retry-After", 1)), end - time.monotonic())
                await asyncio.sleep(max(0.05, wait))
                continue
            found["accepted"] += 1
            state = await _follow(client, answer.json()["id"])
            found["ended"][state["status"]] += 1
            found["seconds"].append(time.perf_counter() - start)
            if state["status"] == "done":
                picture = await client.get(state["result"]["previews"]["boundary"])
                found["pictures"] += picture.status_code == 200
                await client.delete(f"/api/jobs/{state['id']}")


async def _follow(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    """Read the events of a job to their end."""
    event = ""
    async with client.stream("GET", f"/api/jobs/{job}/events", timeout=None) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            if line.startswith("data: ") and event in ("done", "failed"):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return found
    return {"status": "lost", "id": job}


async def load(page: ServedPage, clients: int, seconds: float) -> Results:
    photos = [(path.name, path.read_bytes()) for path in find_photos()]
    found: Results = {
        "status": Counter(),
        "ended": Counter(),
        "accepted": 0,
        "unclear": 0,
        "pictures": 0,
        "seconds": [],
    }
    seen: dict[str, list[float]] = {"/": [], "/api/health": [], "/static/viewer.js": []}
    stop = asyncio.Event()
    watcher = asyncio.create_task(watch_page(page, seen, stop))
    end = time.monotonic() + seconds
    start = time.monotonic()
    await asyncio.gather(*(post_photos(page, n, photos, end, found) for n in range(clients)))
    passed = time.monotonic() - start
    stop.set()
    await watcher
    return {
        "clients": clients,
        "seconds": seconds,
        "seconds_until_all_ended": passed,
        "photos": len(photos),
        "accepted": found["accepted"],
        "done": found["ended"]["done"],
        "failed": found["ended"]["failed"],
        "lost": found["accepted"] - found["ended"]["done"] - found["ended"]["failed"],
        "done_without_pictures": found["ended"]["done"] - found["pictures"],
        "status": {str(code): count for code, count in sorted(found["status"].items())},
        "refused_without_reason": found["unclear"],
        "jobs_per_second": found["ended"]["done"] / passed,
        "median_seconds_of_a_job": statistics.median(found["seconds"] or [0.0]),
        "page": {path: _spread(times) for path, times in seen.items()},
    }


def _spread(times: list[float]) -> Results:
    ordered = sorted(times)
    return {
        "requests": len(ordered),
        "median_seconds": statistics.median(ordered),
        "p99_seconds": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "largest_seconds": ordered[-1],
    }


async def misbehave(page: ServedPage) -> Results:
    """Do what clients should not do, and look what is left."""
    photo = (EXAMPLES / "cat-with-helmet.png").read_bytes()
    form = {"files": {"file": ("cat.png", photo)}, "data": {"model": _MODEL}}
    found: Results = {}
    async with httpx.AsyncClient(base_url=page.address, timeout=_PATIENCE) as client:
        for _ in range(20):
            with suppress(httpx.TimeoutException):
                await client.post("/api/localize", timeout=0.05, **form)
        await _settle(client)
        found["hung_up_while_waiting"] = await _what_is_left(client)

        for _ in range(50):
            await _send_half(page.address)
        await _settle(client)
        found["half_uploads"] = await _what_is_left(client)

        codes: Counter[str] = Counter()
        start = time.perf_counter()
        for number in range(_BROKEN_FILES):
            # Cut at another place each time: the start of a real photo, or something else.
            broken = photo[: 40 * number] if number % 2 else os.urandom(2000)
            answer = await client.post("/api/localize", files={"file": broken})
            codes[f"{answer.status_code} {answer.json()['error']['code']}"] += 1
            if number % 50 == 0:
                page.measure()
        found["broken_files"] = {
            "answers": dict(codes),
            "seconds": time.perf_counter() - start,
            **await _what_is_left(client),
        }

        killed = await client.post("/api/localize?wait=false", **form)
        while (await client.get("/api/health")).json()["running"] == 0:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for worker in page.workers:
            os.kill(worker, signal.SIGKILL)
        state = await _follow(client, killed.json()["id"])
        after = await client.post("/api/localize", **form)
        found["killed_worker"] = {
            "job": state["status"],
            "code": (state["error"] or {}).get("code"),
            "next_job": after.status_code,
        }
    return found


async def _send_half(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /api/localize HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 500000\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    )
    writer.write(head.encode() + bytes(100_000))
    await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _settle(client: httpx.AsyncClient) -> None:
    for _ in range(1000):
        state = (await client.get("/api/health")).json()
        if state["waiting"] == state["running"] == state["uploading"] == 0:
            return
        await asyncio.sleep(0.05)


async def _what_is_left(client: httpx.AsyncClient) -> Results:
    state = (await client.get("/api/health")).json()
    return {"left": sum(state[name] for name in ("waiting", "running", "uploading", "kept"))}


def run(clients: int, seconds: float) -> Results:
    machine = describe_machine()
    with TemporaryDirectory() as name:
        folder = Path(name)
        page = ServedPage(folder, "--max-waiting", "32")
        try:
            page.measure()
            loaded = asyncio.run(load(page, clients, seconds))
            wrong = asyncio.run(misbehave(page))
            errors = page.stop()
        finally:
            page.process.kill()
            page.process.wait()
        left = [path.name for path in folder.iterdir()]
    refused = wrong["broken_files"]["answers"].get("422 unreadable", 0)
    server_errors = sum(
        count for code, count in loaded["status"].items() if code >= "500" and code != "503"
    )
    slowest = max(times["p99_seconds"] for times in loaded["page"].values())
    median = max(times["median_seconds"] for times in loaded["page"].values())
    leftovers = sum(wrong[case]["left"] for case in ("hung_up_while_waiting", "half_uploads"))
    killed = wrong["killed_worker"]
    memory = dict(page.peak)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "quick": seconds < 60,
        "machine": {**machine, "load_average_at_end": load_average()},
        "model": _MODEL,
        "load": loaded,
        "misbehaviour": wrong,
        "memory": memory,
        "stderr": errors.splitlines(),
        "left_on_disk": left,
        "targets": [
            at_most("answers of 5xx other than 503", server_errors, 0),
            at_most(
                "503 or 429 without Retry-After or a reason", loaded["refused_without_reason"], 0
            ),
            at_most("jobs that were lost", loaded["lost"], 0),
            at_most("jobs that failed", loaded["failed"], 0),
            at_most("median time of the page, s", median, _PAGE_SECONDS),
            at_most("99 % of the answers of the page, s", slowest, _PAGE_SECONDS),
            at_most("memory of the server, MB", memory["server_bytes"] / 1e6, 500.0),
            at_most("memory of a worker, MB", memory["largest_worker_bytes"] / 1e6, 1500.0),
            at_most("left by hang-ups and half uploads", leftovers, 0),
            at_least("broken files refused with 422", refused, _BROKEN_FILES),
            at_most("jobs lost after a killed worker", int(killed["next_job"] != 200), 0),
            at_most("files left on disk at the end", len(left), 0),
        ],
    }


def as_markdown(results: Results) -> str:
    loaded = results["load"]
    rows = [
        [
            f"`{path}`",
            f"{times['requests']:,}",
            f"{1000 * times['median_seconds']:.0f} ms",
            f"{1000 * times['p99_seconds']:.0f} ms",
            f"{1000 * times['largest_seconds']:.0f} ms",
        ]
        for path, times in loaded["page"].items()
    ]
    memory = results["memory"]
    parts = [
        "# The page under load",
        machine_line(results),
        f"{loaded['clients']} clients sent {loaded['photos']} different photos for "
        f"{loaded['seconds']:g} s (model `{results['model']}`): {loaded['accepted']} jobs were "
        f"accepted, {loaded['done']} done, {loaded['failed']} failed, {loaded['lost']} lost; "
        f"{loaded['jobs_per_second']:.2f} a second. Answers by status: "
        + ", ".join(f"{code}: {count}" for code, count in loaded["status"].items())
        + ". Meanwhile the page answered:",
        table(["asked for", "times", "median", "99 %", "longest"], rows),
        f"Memory at most: server {memory['server_bytes'] / 1e6:,.0f} MB, a worker "
        f"{memory['largest_worker_bytes'] / 1e6:,.0f} MB, all together "
        f"{memory['all_bytes'] / 1e6:,.0f} MB.",
        targets_table(results["targets"]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long clients send")
    parser.add_argument("--clients", type=int, default=64)
    default = Path(__file__).parent / "results" / "web.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    results = run(arguments.clients, arguments.seconds)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(as_markdown(results))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
