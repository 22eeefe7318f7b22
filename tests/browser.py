"""A headless Chromium, where there is one: Debian's, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no browser: apt-get install chromium, pip install playwright"
WAIT_MS = 10_000


def require() -> None:
    """Skip the test where there is no browser."""
    pytest.importorskip("playwright.sync_api", reason=MISSING)
    if CHROMIUM is None:
        pytest.skip(MISSING)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; whatever it opens is closed with it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the browser, and everything that went wrong in it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"locale": "en-GB", **options})
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on(
            "console",
            lambda it: self.problems.append(it.text) if it.type == "error" else None,
        )

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, url: str) -> Any:
        self.page.goto(url, wait_until="domcontentloaded")
        self.page.wait_for_selector("body[data-ready]")
        return self.page

    def close(self) -> None:
        self.context.close()

    def save(self, path: Path, **options: Any) -> None:
        self.page.screenshot(path=path, **options)
