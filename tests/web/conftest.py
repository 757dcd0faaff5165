"""What the tests of both pages share: windows of a browser, and pictures of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from serving import PATIENCE


class Windows:
    """Opens windows of their own; anything that a page complains about is a failure."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address
        self.contexts: list[Any] = []
        self.problems: list[str] = []
        # Answers that are errors are written to the console by the browser itself.
        self.expects_errors = False

    def open(self, path: str = "/", script: str = "", **options: Any) -> Any:
        """Open a page; the script runs before those of the page."""
        options = {"viewport": {"width": 1360, "height": 900}, "color_scheme": "light", **options}
        context = self.browser.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        self.contexts.append(context)
        context.add_init_script(script)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self._check_message(message))
        page.on("requestfailed", lambda request: self._check_failure(request))
        page.on("request", lambda request: self._check_address(request.url))
        page.goto(self.address + path)
        return page

    def _check_message(self, message: Any) -> None:
        expected = self.expects_errors and "Failed to load resource" in message.text
        if message.type == "error" and not expected:
            self.problems.append(message.text)

    def _check_failure(self, request: Any) -> None:
        # Who has heard all events of a job, or leaves the page, breaks off.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.problems.append(request.url)

    def _check_address(self, url: str) -> None:
        if not url.startswith((self.address, f"blob:{self.address}")):
            self.problems.append(f"asked for {url}")

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        assert self.problems == []


@pytest.fixture(scope="module")
def windows(browser, server):
    """Windows that stay open for all tests of a module."""
    opened = Windows(browser, server.address)
    yield opened
    opened.close()


@pytest.fixture
def new_windows(browser, server):
    """Windows of one test."""
    opened = Windows(browser, server.address)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def take_picture():
    """Take a picture of a page, if CPCAPP_SCREENSHOTS names a folder for it."""
    folder = os.environ.get("CPCAPP_SCREENSHOTS")

    def take(page: Any, name: str, **options: Any) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / name, **options)

    return take
