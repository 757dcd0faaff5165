"""Tests against a copy of the source with a fault in it, each run in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, TIMED_OUT = "passed", "failed", "timed out"
# A fault may ask for any amount.
_MAX_BYTES = 8 << 30
# What all runs import; nothing of cpcapp, which each run imports from its own copy.
_PRELOADED = [
    "cv2",
    "hypothesis",
    "numba",
    "numpy",
    "PIL.Image",
    "pytest",
    "safetensors.numpy",
    "scipy.ndimage",
    "scipy.stats",
    "sklearn.utils",
]


class SourceCopy:
    """A copy of ``src`` that faults are put into, never the source itself."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "src"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", self.path, ignore=ignored)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._context = context

    @contextmanager
    def changed(self, file: str, code: str) -> Iterator[None]:
        """Have a file below ``cpcapp/splicing`` hold other code for a while."""
        path = self.path / "cpcapp" / "splicing" / file
        before = path.read_text()
        path.write_text(code)
        try:
            yield
        finally:
            path.write_text(before)

    def run(self, tests: Sequence[str], limit: float) -> tuple[str, float]:
        """Run tests until one fails; return how it ended, and the seconds it took."""
        start = time.perf_counter()
        process = self._context.Process(target=_run_pytest, args=(str(self.path), list(tests)))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
            return TIMED_OUT, time.perf_counter() - start
        ended = PASSED if process.exitcode == 0 else FAILED
        return ended, time.perf_counter() - start


def _run_pytest(source: str, tests: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source
    sys.path.insert(0, source)
    # What is compiled is told apart by whole seconds and sizes: too coarse for faults.
    sys.dont_write_bytecode = True
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    import cv2
    import pytest

    cv2.setNumThreads(1)
    # Modules that were imported before pytest began are no fault.
    options = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
    code = pytest.main(["-x", "-q", *options, *tests])
    import cpcapp

    if not Path(cpcapp.__file__).is_relative_to(source):
        code = 3
    # Threads that hang must not keep the process.
    os._exit(int(code))
