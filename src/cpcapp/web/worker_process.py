"""Worker processes as the server sees them: a crash ends one job, never the server."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cpcapp._io.worker import PREFIX, START_SECONDS, command, encode, environment
from cpcapp.web.errors import LOGGER, describe_error
from cpcapp.web.settings import Settings

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
            LOGGER.error("a worker process could not be started")
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
                return {"failed": describe_error("too_long", text, advice)}
            except (EOFError, OSError, ValueError):
                await self.stop()
                if started or self._killed:
                    break
        text = "The program that worked on it crashed or ran out of memory."
        return {"failed": describe_error("worker_died", text, "Try again, or a smaller copy.")}

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
