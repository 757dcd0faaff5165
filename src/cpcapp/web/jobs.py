"""Jobs: who waits, who is worked on, what came out, and when it is removed."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cpcapp._io.worker import PREFIX, START_SECONDS, command, encode, environment
from cpcapp.web.errors import PageError
from cpcapp.web.settings import Settings

_LOGGER = logging.getLogger(__name__)
# Of one message: a result has some hundred kilobytes at most.
_MAX_MESSAGE = 64 << 20
# The model that most jobs ask for, read before the first one comes.
_FIRST_MODEL = "default"
# A new process now and then, in case a library loses memory.
_JOBS_PER_PROCESS = 200


class WorkerProcess:
    """Does one job at a time in a process, `cpcapp.web.worker_main`; another follows if it ends."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process: Process | None = None
        self.n_jobs = 0
        self._is_ready = self._killed = False

    @property
    def is_alive(self) -> bool:
        """Whether the process can take a job, as far as is known."""
        return self._is_ready and self.process is not None and self.process.returncode is None

    async def make_ready(self) -> None:
        """Start a process if there is none, and wait until it can take a job."""
        if self.is_alive and self.n_jobs < _JOBS_PER_PROCESS:
            return
        await self.stop()
        settings = self.settings
        options = {"jobs": settings.jobs, "memory": settings.worker_bytes, "model": _FIRST_MODEL}
        self.n_jobs = 0
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command("cpcapp.web.worker_main", json.dumps(options)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                # Each further arena of glibc reserves memory that counts against the limit.
                env={**environment(), "MALLOC_ARENA_MAX": "4"},
                # Ctrl-C on the terminal is for the server, which ends its workers.
                start_new_session=True,
            )
            async with asyncio.timeout(START_SECONDS):
                await self._read()
            self._is_ready = True
        except (EOFError, OSError, TimeoutError):
            _LOGGER.error("a worker process could not be started")
            await self.stop()

    async def run(
        self, message: dict[str, Any], on_progress: Callable[[float, str], None]
    ) -> dict[str, Any]:
        """Do a job; return ``{"done": ...}`` or ``{"failed": ...}``."""
        started = self._killed = False
        # A process that had died before it began says nothing about the job.
        for _ in range(2):
            await self.make_ready()
            try:
                async with asyncio.timeout(self.settings.job_seconds):
                    await self._write(message)
                    while "share" in (answer := await self._read()):
                        started = True
                        on_progress(float(answer["share"]), str(answer["step"]))
                    return answer
            except TimeoutError:
                await self.stop()
                text = f"It took more than {self.settings.job_seconds:g} seconds."
                advice = "Make the photo smaller, or start the server with a larger --job-seconds."
                return {"failed": PageError("too_long", text, advice).detail}
            except (EOFError, OSError, ValueError):
                await self.stop()
                if started or self._killed:
                    break
        text = "The program that worked on it crashed or ran out of memory."
        error = PageError("worker_died", text, "Try again, or a smaller copy.")
        return {"failed": error.detail}

    async def _write(self, message: dict[str, Any]) -> None:
        if self.process is None or self.process.stdin is None:
            raise EOFError
        self.n_jobs += 1
        self.process.stdin.write(encode(message))
        await self.process.stdin.drain()

    async def _read(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        size = int.from_bytes(await self.process.stdout.readexactly(PREFIX), "little")
        if size > _MAX_MESSAGE:
            raise EOFError
        answer: dict[str, Any] = json.loads(await self.process.stdout.readexactly(size))
        return answer

    def kill(self) -> None:
        """End the process at once; a job that it does is not tried again."""
        self._killed = True
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()

    async def stop(self) -> None:
        """End the process and wait until it has ended."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process, self._is_ready = None, False


# A connection on which nothing is said is closed by some routers.
_SILENT_SECONDS = 15.0
# Before the first job has ended, nobody knows how long one takes.
_FIRST_GUESS_SECONDS = 5.0


@dataclass(eq=False)
class Job:
    """Something that a client asked for. Its id can't be guessed: who knows it may see the result.

    ``name`` is what the client calls it, ``client`` the address. Everything of it is in ``folder``.
    """

    kind: Literal["photo", "tables"]
    client: str
    folder: Path
    name: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    status: Literal["queued", "running", "done", "failed"] = "queued"
    share: float = 0.0
    step: str = ""
    result: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    files: dict[str, str] = field(default_factory=dict)
    abandoned: bool = False
    touched: float = field(default_factory=time.monotonic)
    n_bytes: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def id(self) -> str:
        """Where it is found: the name of its folder."""
        return self.folder.name

    @property
    def keeps_files(self) -> bool:
        """Whether what was uploaded stays if the job fails, so that it can be asked again."""
        return self.kind == "tables"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will change."""
        return self.status in ("done", "failed")

    def update(self, **values: Any) -> None:
        """Change what is known of it, and tell who listens."""
        for name, value in values.items():
            setattr(self, name, value)
        self.touched = time.monotonic()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def report(self, share: float, step: str) -> None:
        """Say how far it is."""
        if not self.is_finished:
            self.update(share=share, step=step)

    def fail(self, error: dict[str, str]) -> None:
        """End it without a result."""
        if not self.is_finished:
            self.update(status="failed", error=error)

    async def changes(self) -> AsyncIterator[bool]:
        """Yield True whenever something has changed, and False if nothing has for a while."""
        finished = False
        while not finished:
            changed, finished = self._changed, self.is_finished
            yield True
            while not finished and not changed.is_set():
                try:
                    await asyncio.wait_for(changed.wait(), _SILENT_SECONDS)
                except TimeoutError:
                    yield False

    async def wait(self) -> None:
        """Wait until it is finished."""
        while not self.is_finished:
            await self._changed.wait()


class JobQueue:
    """All jobs of a server, with their files in ``folder``. All of it runs in its event loop."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.stopped = False
        self._jobs: dict[str, Job] = {}
        self._running: dict[Job, WorkerProcess] = {}
        self._workers = [WorkerProcess(settings) for _ in range(settings.jobs)]
        self._uploads: Counter[str] = Counter()
        self._has_work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._seconds = _FIRST_GUESS_SECONDS

    # --- what requests do

    @asynccontextmanager
    async def reserve(self, kind: Literal["photo", "tables"], client: str) -> AsyncIterator[Job]:
        """Give a place in the queue, or raise `PageError` if there is none.

        If the job is not added, it and its folder are gone at the end.
        """
        self._check_room(client)
        job = Job(kind, client, self.folder / secrets.token_urlsafe(18))
        job.folder.mkdir(mode=0o700)
        self._uploads[client] += 1
        try:
            yield job
        finally:
            self._uploads -= Counter([client])
            if job.id not in self._jobs:
                _remove_folder(job.folder)

    def _check_room(self, client: str) -> None:
        if self.stopped:
            raise PageError("stopping", "The server is being stopped.")
        theirs = self._uploads[client]
        theirs += sum(job.client == client for job in (*self._waiting, *self._running))
        if theirs >= self.settings.max_per_client:
            raise PageError(
                "too_many",
                f"{theirs} of your files are waiting already.",
                "Send the next one when one of them is done.",
                retry_after=self._guess_seconds(1),
            )
        if len(self._waiting) + self._uploads.total() >= self.settings.max_waiting:
            raise PageError(
                "full",
                "The server is busy: too many files are waiting.",
                "Try again in a moment.",
                retry_after=self._guess_seconds(4),
            )

    def _guess_seconds(self, n_jobs: int) -> int:
        return min(60, max(1, round(self._seconds * n_jobs / self.settings.jobs)))

    def add(self, job: Job, name: str, request: dict[str, Any]) -> None:
        """Put a job at the end of the queue; one that is done may come again with a new request."""
        job.name, job.request = name, request
        self._jobs.pop(job.id, None)
        self._jobs[job.id] = job  # the last one
        job.update(status="queued", share=0.0, step="", result=None, error=None)
        self._has_work.set()

    def get(self, job_id: str) -> Job:
        """Return a job, or raise `PageError`."""
        job = self._jobs.get(job_id)
        if job is None or job.abandoned:
            raise PageError(
                "no_job",
                "There is no such job.",
                "Results are removed after a while: send the file again.",
            )
        job.touched = time.monotonic()
        return job

    @property
    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.status == "queued"]

    def position(self, job: Job) -> int:
        """Return how many jobs come before it; 0 if it is worked on or finished."""
        return self._waiting.index(job) + 1 if job.status == "queued" else 0

    def abandon(self, job: Job) -> None:
        """Forget a job that nobody waits for: at once if it is not worked on, else when done."""
        job.abandoned = True
        if job not in self._running:
            self.remove(job)

    def remove(self, job: Job) -> None:
        """Remove a job and its files. Whoever listens is told that it failed."""
        self._jobs.pop(job.id, None)
        job.abandoned = True
        job.fail(PageError("removed", "The job was removed.").detail)
        if job in self._running:
            self._running[job].kill()
        else:  # a worker writes into its folder until it has ended
            _remove_folder(job.folder)

    @property
    def worker_ids(self) -> list[int]:
        """The numbers of the worker processes."""
        processes = [worker.process for worker in self._workers if worker.is_alive]
        return sorted(process.pid for process in processes if process is not None)

    def describe(self) -> dict[str, int]:
        """Return how busy the server is."""
        return {
            "waiting": len(self._waiting),
            "uploading": self._uploads.total(),
            "running": len(self._running),
            "kept": len(self._jobs),
        }

    # --- what goes on behind

    async def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._work(worker)) for worker in self._workers]
        self._tasks.append(asyncio.create_task(self._sweep()))

    def stop_soon(self) -> None:
        """Take no more jobs, and end those that are there."""
        self.stopped = True
        for job in list(self._jobs.values()):
            job.fail(PageError("stopping", "The server is being stopped.").detail)

    async def stop(self) -> None:
        """End the workers."""
        self.stop_soon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, worker: WorkerProcess) -> None:
        try:
            while True:
                # Ready before a job comes: to import everything takes some seconds.
                await worker.make_ready()
                while not (waiting := self._waiting) or self.stopped:
                    self._has_work.clear()
                    await self._has_work.wait()
                job = waiting[0]
                job.update(status="running")
                self._running[job] = worker
                try:
                    await self._run(job, worker)
                finally:
                    del self._running[job]
                    if job.abandoned:
                        self.remove(job)
                job.n_bytes = await asyncio.to_thread(_folder_bytes, job.folder)
                self._make_room()
        finally:
            await worker.stop()

    async def _run(self, job: Job, worker: WorkerProcess) -> None:
        begin = time.monotonic()
        message = {"kind": job.kind, "folder": str(job.folder), "request": job.request}
        answer = await worker.run(message, job.report)
        self._seconds += 0.2 * (time.monotonic() - begin - self._seconds)
        if "trace" in answer:
            _LOGGER.error("a job failed:\n%s", answer["trace"])
        if "failed" in answer:
            if not job.keeps_files:
                _remove_folder(job.folder)
            job.fail(answer["failed"])
        elif not job.is_finished:
            result = answer["done"]
            files = result.pop("files")
            job.update(status="done", share=1.0, step="", result=result, files=files)

    async def _sweep(self) -> None:
        """Remove results that nobody has asked for in a while."""
        while True:
            await asyncio.sleep(min(30.0, self.settings.keep_seconds / 4))
            for job in self._finished():
                if time.monotonic() - job.touched > self.settings.keep_seconds:
                    self.remove(job)

    def _make_room(self) -> None:
        """Remove the oldest results if all of them take too much of the disk."""
        kept, settings = self._finished(), self.settings
        while kept[:-1] and (
            sum(job.n_bytes for job in kept) > settings.keep_bytes or len(kept) > settings.max_kept
        ):
            self.remove(kept.pop(0))

    def _finished(self) -> list[Job]:
        """Return finished jobs, the one that was used last at the end."""
        jobs = [job for job in self._jobs.values() if job.is_finished and job not in self._running]
        return sorted(jobs, key=lambda job: job.touched)


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _folder_bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0
