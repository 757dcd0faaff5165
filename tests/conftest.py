"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from helpers import EXAMPLES_TIMES

# Examples are the same on every run, unless CPCAPP_EXAMPLES asks for more of them: then they are
# others each time. A slow machine is not a failure.
settings.register_profile(
    "cpcapp",
    max_examples=50 * EXAMPLES_TIMES,
    deadline=None,
    derandomize=EXAMPLES_TIMES == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cpcapp")


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# It asks for nothing from elsewhere, and needs no graphics card.
_BROWSER_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]

# A job in the background of a script is born deaf to Ctrl-C, and so are the commands that tests
# start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    """Let torch use one thread, in processes that run tests: others need not import it.

    Small tensors gain nothing by threads, and lose much where cores are shared.
    """
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Keep what stays to the end out of the search for garbage, which else takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190121)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the real data sets, named by CPCAPP_DATA."""
    name = os.environ.get("CPCAPP_DATA", "")
    if name and Path(name).is_dir():
        return Path(name).absolute()  # tests may go to another folder
    problem = "needs real data: set CPCAPP_DATA to the folder that holds them (docs/datasets.md)"
    if name:
        problem += f"; {name!r} is not a folder"
    if os.environ.get("CPCAPP_REQUIRE_DATA") == "1":
        pytest.fail(problem)
    pytest.skip(problem)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium or Chrome without a window, driven by playwright.

    Of a module only: its event loop would be in the way of tests that have one of their own.
    """
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, _BROWSERS)), None)
        try:
            found = playwright.chromium.launch(executable_path=path, args=_BROWSER_ARGUMENTS)
        except sync_api.Error as error:
            problem = "needs a browser: playwright install chromium"
            if path is not None:
                problem = f"needs a browser that starts: {path} does not ({error.message[:200]})"
            if os.environ.get("CPCAPP_REQUIRE_BROWSER") == "1":
                pytest.fail(problem)
            pytest.skip(problem)
        yield found
        found.close()
