"""A browser's window in which nothing goes wrong unseen."""

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, WebError


def until(page: Page, condition: Callable[[], Any], within: float = 20.0, what: str = "") -> Any:
    """Wait, while the browser goes on, until the condition gives something true, and return that."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what or condition}"
        page.wait_for_timeout(50)
    return found


class Window:
    """One person's browser: its pages share cookies.

    Attributes:
        faults: what a page, its scripts or its policy complained of, what asked another host, and what opened a dialog.
    """

    def __init__(self, browser: Browser, address: str, **looks: Any) -> None:
        self.address = address
        self.faults: list[str] = []
        self._borne: list[str] = []
        self.context: BrowserContext = browser.new_context(base_url=address, **looks)
        self.context.set_default_timeout(20_000)
        self.context.on("console", self._said)
        self.context.on("weberror", self._failed)
        self.context.on("request", self._asked)
        self.context.on("dialog", self._opened)

    def page(self, path: str = "", **options: Any) -> Page:
        """A new page; with a path, loaded."""
        page = self.context.new_page()
        if path:
            page.goto(path, **options)
        return page

    def bears(self, pattern: str) -> None:
        """What is no fault in this test: a page that is refused says so in the browser's console, too."""
        self._borne.append(pattern)

    def close(self) -> None:
        """Close it; raises AssertionError where anything went wrong."""
        self.context.close()
        self.check()

    def check(self) -> None:
        """Raise AssertionError where anything went wrong since the last check."""
        found = [each for each in self.faults if not any(re.search(pattern, each) for pattern in self._borne)]
        self.faults.clear()
        assert found == [], found

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _failed(self, error: WebError) -> None:
        self.faults.append(f"script: {error.error}")

    def _asked(self, request: Request) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in ("data", "blob", "about") and asked.netloc != urlsplit(self.address).netloc:
            self.faults.append(f"another host: {request.url}")

    def _opened(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()
