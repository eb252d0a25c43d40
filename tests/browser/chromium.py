"""Debian's Chromium, driven by Playwright: no browser is ever downloaded."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: It asks nobody on the network, and looks the same on every machine.
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--hide-scrollbars",
    "--font-render-hinting=none",
)


def found() -> str | None:
    """Where it lies."""
    return shutil.which("chromium")


def missing() -> str | None:
    """Why no page can be opened here and what to do about it, or None if one can."""
    if find_spec("playwright") is None:
        return "no browser: Playwright is missing (`make .venv/.installed`)"
    if found() is None:
        return "no browser: chromium is missing (on Debian: apt install chromium)"
    return None


@contextmanager
def chromium() -> Iterator["Browser"]:
    """One that runs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found(), headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
