"""Jobs: who waits, who is worked on, what came out, and when it is removed."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cpcapp.web.errors import LOGGER, ApiError, describe_error
from cpcapp.web.folders import ServerFolder
from cpcapp.web.settings import Settings
from cpcapp.web.workers import WorkerDied, WorkerProcess

Status = Literal["queued", "running", "done", "failed"]

# A new process now and then, in case a library loses memory.
_JOBS_PER_WORKER = 200
# A connection on which nothing is said is closed by some routers.
_SILENT_SECONDS = 15.0
# Before the first job has ended, nobody knows how long one takes.
_FIRST_GUESS_SECONDS = 5.0


@dataclass(eq=False)
class Job:
    """Something that a client asked for.

    Attributes
    ----------
    id : str
        Can't be guessed: who knows it may see the result.
    kind : {"photo", "tables"}
    name : str
        What the client calls it.
    client : str
        Its address.
    folder : Path
        Everything of the job is in here.
    request : dict
        What the worker is asked.
    keeps_files : bool
        Whether what was uploaded stays if the job fails, so that it can be asked again.
    """

    id: str
    kind: str
    name: str
    client: str
    folder: Path
    request: dict[str, Any]
    keeps_files: bool = False
    status: Status = "queued"
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

    async def changes(self) -> AsyncIterator[bool]:
        """Yield True whenever something has changed, and False if nothing has for a while."""
        while True:
            changed, finished = self._changed, self.is_finished
            yield True
            if finished:
                return
            while True:
                try:
                    await asyncio.wait_for(changed.wait(), _SILENT_SECONDS)
                    break
                except TimeoutError:
                    yield False

    async def wait(self) -> None:
        """Wait until it is finished."""
        while not self.is_finished:
            await self._changed.wait()


class Place:
    """A place in the queue, held while a file is uploaded.

    Attributes
    ----------
    id : str
        Of the job that it will be.
    folder : Path
        For what the client sends.
    """

    def __init__(self, jobs: JobQueue, client: str) -> None:
        self.id = secrets.token_urlsafe(18)
        self.folder = jobs.folder.path / self.id
        self.client = client
        self.job: Job | None = None
        self._jobs = jobs

    def submit(
        self, kind: str, name: str, request: dict[str, Any], *, keeps_files: bool = False
    ) -> Job:
        """Let the upload become a job."""
        self.job = Job(self.id, kind, name, self.client, self.folder, request, keeps_files)
        self._jobs.add(self.job)
        return self.job


class JobQueue:
    """All jobs of a server. Everything here runs in its event loop.

    Parameters
    ----------
    settings : Settings
    folder : ServerFolder
        For the files of all jobs.
    """

    def __init__(self, settings: Settings, folder: ServerFolder) -> None:
        self.settings = settings
        self.folder = folder
        self.stopped = False
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, WorkerProcess | None] = {}
        self._workers: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()
        self._uploads: Counter[str] = Counter()
        self._has_work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._seconds = _FIRST_GUESS_SECONDS

    # --- what requests do

    @asynccontextmanager
    async def reserve(self, client: str) -> AsyncIterator[Place]:
        """Give a place in the queue, or raise `ApiError` if there is none.

        If nothing is submitted, the place and its folder are gone at the end.
        """
        self._check_room(client)
        place = Place(self, client)
        place.folder.mkdir(mode=0o700)
        self._uploads[client] += 1
        try:
            yield place
        finally:
            self._uploads -= Counter([client])
            if place.job is None:
                _remove_folder(place.folder)

    def _check_room(self, client: str) -> None:
        if self.stopped:
            raise ApiError(503, "stopping", "The server is being stopped.")
        theirs = self._uploads[client]
        theirs += sum(job.client == client for job in (*self._waiting, *self._running))
        if theirs >= self.settings.max_per_client:
            raise ApiError(
                429,
                "too_many",
                f"{theirs} of your files are waiting already.",
                "Send the next one when one of them is done.",
                retry_after=self._guess_seconds(1),
            )
        if len(self._waiting) + self._uploads.total() >= self.settings.max_waiting:
            raise ApiError(
                503,
                "full",
                "The server is busy: too many files are waiting.",
                "Try again in a moment.",
                retry_after=self._guess_seconds(4),
            )

    def _guess_seconds(self, n_jobs: int) -> int:
        return min(60, max(1, round(self._seconds * n_jobs / self.settings.jobs)))

    def add(self, job: Job) -> None:
        """Put a job at the end of the queue; one that is done may come again with a new request."""
        self._jobs[job.id] = job
        self._waiting.append(job)
        job.update(status="queued", share=0.0, step="", result=None, error=None)
        self._has_work.set()

    def get(self, job_id: str) -> Job:
        """Return a job, or raise `ApiError`."""
        job = self._jobs.get(job_id)
        if job is None or job.abandoned:
            raise ApiError(
                404,
                "no_job",
                "There is no such job.",
                "Results are removed after a while: send the file again.",
            )
        job.touched = time.monotonic()
        return job

    def position(self, job: Job) -> int:
        """Return how many jobs come before it; 0 if it is worked on or finished."""
        return self._waiting.index(job) + 1 if job in self._waiting else 0

    def abandon(self, job: Job) -> None:
        """Forget a job that nobody waits for: at once if it is not worked on, else when done."""
        job.abandoned = True
        if job not in self._running:
            self.remove(job)

    def remove(self, job: Job) -> None:
        """Remove a job and its files. Whoever listens is told that it failed."""
        self._jobs.pop(job.id, None)
        with suppress(ValueError):
            self._waiting.remove(job)
        job.abandoned = True
        worker = self._running.get(job)
        if not job.is_finished:
            job.update(status="failed", error=describe_error("removed", "The job was removed."))
        if worker is not None:
            worker.kill()
        if job in self._running:
            return  # a worker writes into its folder until it has ended
        _remove_folder(job.folder)

    @property
    def worker_ids(self) -> list[int]:
        """The numbers of the worker processes."""
        return sorted(worker.process.pid for worker in self._workers if worker.is_alive)

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
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self.settings.jobs)]
        self._tasks.append(asyncio.create_task(self._sweep()))

    def stop_soon(self) -> None:
        """Take no more jobs, and end those that are there."""
        self.stopped = True
        for job in list(self._jobs.values()):
            if not job.is_finished:
                error = describe_error("stopping", "The server is being stopped.")
                job.update(status="failed", error=error)

    async def stop(self) -> None:
        """End the workers."""
        self.stop_soon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        worker: WorkerProcess | None = None
        try:
            # Ready before the first job: to import everything takes some seconds.
            worker = await self._start_worker()
            while True:
                job = await self._next()
                self._running[job] = worker
                try:
                    worker = await self._run(job, worker)
                finally:
                    del self._running[job]
                    if job.abandoned or job.id not in self._jobs:
                        self.remove(job)
                    else:
                        job.n_bytes = await asyncio.to_thread(_folder_bytes, job.folder)
                        self._make_room()
                if worker is not None and worker.n_jobs >= _JOBS_PER_WORKER:
                    await worker.stop()
                    worker = None
                if worker is None:
                    worker = await self._start_worker()
        finally:
            if worker is not None:
                await worker.stop()

    async def _next(self) -> Job:
        while not self._waiting or self.stopped:
            self._has_work.clear()
            await self._has_work.wait()
        return self._waiting.popleft()

    async def _start_worker(self) -> WorkerProcess | None:
        try:
            worker = await WorkerProcess.start(self.settings)
            self._workers.add(worker)
            return worker
        except (WorkerDied, OSError, TimeoutError):
            LOGGER.error("a worker process could not be started")
            return None

    async def _run(self, job: Job, worker: WorkerProcess | None) -> WorkerProcess | None:
        """Do a job; return the worker that can take the next one."""
        job.update(status="running")
        begin = time.monotonic()
        for attempt in (1, 2):
            if worker is None or not worker.is_alive:
                worker = await self._start_worker()
            if worker is None:
                break
            self._running[job] = worker
            try:
                async with asyncio.timeout(self.settings.job_seconds):
                    answer = await worker.run(self._message(job), _progress_of(job))
            except WorkerDied as died:
                await worker.stop()
                worker = None
                # One that had died before it began says nothing about the job.
                if attempt == 1 and died.args == (False,) and not job.abandoned:
                    continue
                break
            except TimeoutError:
                await worker.stop()
                _fail(
                    job,
                    "too_long",
                    f"It took more than {self.settings.job_seconds:g} seconds.",
                    "Make the photo smaller, or start the server with a larger --job-seconds.",
                )
                return None
            self._finish(job, answer, time.monotonic() - begin)
            return worker
        _fail(
            job,
            "worker_died",
            "The program that worked on it crashed or ran out of memory.",
            "Try again, or a smaller copy.",
        )
        return worker

    def _message(self, job: Job) -> dict[str, Any]:
        return {"kind": job.kind, "folder": str(job.folder), "request": job.request}

    def _finish(self, job: Job, answer: dict[str, Any], seconds: float) -> None:
        self._seconds += 0.2 * (seconds - self._seconds)
        if "trace" in answer:
            LOGGER.error("a job failed:\n%s", answer["trace"])
        if "done" in answer:
            result = answer["done"]
            files = result.pop("files", {})
            if not job.is_finished:
                job.update(status="done", share=1.0, step="", result=result, files=files)
        else:
            failed = answer["failed"]
            _fail(job, failed["code"], failed["message"], failed["help"])

    async def _sweep(self) -> None:
        """Remove results that nobody has asked for in a while."""
        while True:
            await asyncio.sleep(min(30.0, self.settings.keep_seconds / 4))
            now = time.monotonic()
            for job in self._finished():
                if now - job.touched > self.settings.keep_seconds:
                    self.remove(job)

    def _make_room(self) -> None:
        """Remove the oldest results if all of them take too much of the disk."""
        kept = self._finished()
        n_bytes = sum(job.n_bytes for job in kept)
        while kept[:-1] and (
            n_bytes > self.settings.keep_bytes or len(kept) > self.settings.max_kept
        ):
            oldest = kept.pop(0)
            n_bytes -= oldest.n_bytes
            self.remove(oldest)

    def _finished(self) -> list[Job]:
        """Return finished jobs, the one that was used last at the end."""
        jobs = [job for job in self._jobs.values() if job.is_finished and job not in self._running]
        return sorted(jobs, key=lambda job: job.touched)


def _progress_of(job: Job) -> Any:
    def update(share: float, step: str) -> None:
        if not job.is_finished:
            job.update(share=share, step=step)

    return update


def _fail(job: Job, code: str, message: str, help_text: str = "") -> None:
    if not job.keeps_files:
        _remove_folder(job.folder)
    if not job.is_finished:
        job.update(status="failed", error=describe_error(code, message, help_text))


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _folder_bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0
