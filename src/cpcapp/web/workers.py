"""Worker processes as the server sees them: a crash ends one job, never the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cpcapp._io.worker import PREFIX, START_SECONDS, command, encode, environment
from cpcapp.web.settings import Settings

# Of one message: a result has some hundred kilobytes at most.
_MAX_MESSAGE = 64 << 20
# The model that most jobs ask for, read before the first one comes.
_FIRST_MODEL = "default"


class WorkerDied(Exception):
    """A worker ended within a job, or could not be started."""


class WorkerProcess:
    """A process that does one job at a time; see `cpcapp.web.work`.

    Parameters
    ----------
    process : asyncio.subprocess.Process
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.n_jobs = 0

    @classmethod
    async def start(cls, settings: Settings) -> WorkerProcess:
        """Start a process and wait until it is ready."""
        options = {
            "jobs": settings.jobs,
            "memory": settings.worker_bytes,
            "model": _FIRST_MODEL,
        }
        # Each further arena of glibc reserves memory that counts against the limit.
        variables = {**environment(), "MALLOC_ARENA_MAX": "4"}
        process = await asyncio.create_subprocess_exec(
            *command("cpcapp.web.work", json.dumps(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=variables,
            # Ctrl-C on the terminal is for the server, which ends its workers.
            start_new_session=True,
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker._read()
        except BaseException:
            await worker.stop()
            raise
        return worker

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, as far as is known."""
        return self.process.returncode is None

    async def run(
        self, message: dict[str, Any], on_progress: Callable[[float, str], None]
    ) -> dict[str, Any]:
        """Do a job; return ``{"done": ...}`` or ``{"failed": ...}``."""
        started = False
        self.n_jobs += 1
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(encode(message))
            await self.process.stdin.drain()
            while True:
                answer = await self._read()
                if "share" in answer:
                    on_progress(float(answer["share"]), str(answer["step"]))
                elif "started" in answer:
                    started = True
                else:
                    return answer
        except (WorkerDied, OSError) as error:
            raise WorkerDied(started) from error

    async def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            size = int.from_bytes(await self.process.stdout.readexactly(PREFIX), "little")
            if size > _MAX_MESSAGE:
                raise WorkerDied(True)
            answer: dict[str, Any] = json.loads(await self.process.stdout.readexactly(size))
        except (ValueError, EOFError) as error:
            raise WorkerDied(True) from error
        return answer

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def stop(self) -> None:
        """End the process and wait until it has ended."""
        self.kill()
        await self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
