"""Processes that start at once: copies of one that has imported everything already.

To import anndata takes longer than to read most files. So one process imports it, and each file is
then read by a copy of that process, which is as much on its own as a new one.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

#: Whether a process can be copied, and open files handed to another one.
CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")
# Without a copy at work, it ends: it takes 150 MB.
_IDLE_SECONDS = 60.0
_NUMBER = struct.Struct("<q")
_START, _STOP = b"s", b"k"


class ForkedProcess:
    """A copy of a server, with the part of `subprocess.Popen` that `cpcapp._io.worker` needs."""

    def __init__(self, server: ForkServer, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin, self.stdout, self.pid = stdin, stdout, pid
        self.returncode: int | None = None
        self._server = server

    def kill(self) -> None:
        """End it, also if it hangs."""
        self._server.stop(self)

    def wait(self) -> int:
        """Return at once: what was killed has ended."""
        return self.returncode or 0


class ForkServer:
    """A process that copies itself; it ends with this one, and so do the copies.

    Parameters
    ----------
    command : sequence of str
        Starts it; its standard input is the socket for `serve`.
    environment : dict
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._lock = threading.Lock()
        self._owner = 0
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._close)

    def start(self, seconds: float) -> ForkedProcess | None:
        """Return a new copy; None if there was none after so many seconds."""
        with self._lock:
            # It may have ended meanwhile, having had nothing to do.
            for _ in range(2):
                if self._socket is None or self._owner != os.getpid():
                    self._open()
                process = self._ask_for_copy(seconds)
                if process is not None:
                    return process
                self._close()
        return None

    def stop(self, process: ForkedProcess) -> None:
        """End a copy and wait for it: until then nobody else can have its number."""
        with self._lock, suppress(OSError):
            if process.returncode is None and self._socket is not None:
                process.returncode = -signal.SIGKILL
                self._socket.sendall(_STOP + _NUMBER.pack(process.pid))
                self._receive_number()

    def _open(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
            )
        self._socket, self._owner = ours, os.getpid()

    def _close(self) -> None:
        # In a copy of this process, which was made by others, it is not ours.
        if self._socket is not None and self._process is not None and self._owner == os.getpid():
            # Not killed, so that it ends its copies.
            self._socket.close()
            self._process.wait()
            self._socket = self._process = None

    def _ask_for_copy(self, seconds: float) -> ForkedProcess | None:
        assert self._socket is not None
        reads, writes = os.pipe(), os.pipe()
        try:
            self._socket.settimeout(seconds)
            socket.send_fds(self._socket, [_START], [reads[0], writes[1]])
            pid = self._receive_number()
        except OSError:
            pid = None
        os.close(reads[0])
        os.close(writes[1])
        if pid is None:
            os.close(reads[1])
            os.close(writes[0])
            return None
        stdin, stdout = os.fdopen(reads[1], "wb"), os.fdopen(writes[0], "rb")
        return ForkedProcess(self, pid, stdin, stdout)

    def _receive_number(self) -> int | None:
        assert self._socket is not None
        data = b""
        while len(data) < _NUMBER.size:
            more = self._socket.recv(_NUMBER.size - len(data))
            if not more:
                return None
            data += more
        return int(_NUMBER.unpack(data)[0])


def serve(module: str) -> None:
    """Copy this process as often as standard input asks for it.

    Parameters
    ----------
    module : str
        Its function ``prepare`` is called once, and ``main`` in each copy.
    """
    # Who is interrupted is the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = socket.socket(fileno=os.dup(0))
    loaded = import_module(module)
    loaded.prepare()
    copies: set[int] = set()
    try:
        while _is_wanted(asked, copies):
            kind, files, _, _ = socket.recv_fds(asked, 1, 2)
            if kind == _START:
                pid = _fork(loaded.main, asked, files)
                for file in files:
                    os.close(file)
                copies.add(pid)
                asked.sendall(_NUMBER.pack(pid))
            elif kind == _STOP:
                (pid,) = _NUMBER.unpack(asked.recv(_NUMBER.size, socket.MSG_WAITALL))
                _end({pid} & copies)
                copies.discard(pid)
                asked.sendall(_NUMBER.pack(0))
            else:
                break
    finally:
        _end(copies)


def _is_wanted(asked: socket.socket, copies: set[int]) -> bool:
    """Wait for a request; False if there is none for long, and no copy at work."""
    while not select.select([asked], [], [], _IDLE_SECONDS)[0]:
        if not copies:
            return False
    return True


def _fork(main: Any, asked: socket.socket, files: Sequence[int]) -> int:
    with warnings.catch_warnings():
        # Libraries have threads of their own, which do nothing until they are asked to.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        asked.close()
        os.dup2(files[0], 0)
        os.dup2(files[1], 1)
        for file in files:
            os.close(file)
        main()
        status = 0
    finally:
        os._exit(status)


def _end(pids: set[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
