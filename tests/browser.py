"""A real browser for the tests of pages: headless Chromium, which is not Python's."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outside import program

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(*NAMES), args=["--no-sandbox"])
        yield browser
        browser.close()


class Page:
    """A page from a file, with what it logged and asked for.

    Attributes:
        page: playwright's.
        said: what its console and its errors said.
        asked: the addresses that it loaded.
    """

    def __init__(self, browser: Any, file: Path) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("body[data-painted]", state="attached", timeout=30_000)

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.page.inner_text(selector))

    def run(self, script: str) -> Any:
        """What an expression of the page is."""
        return self.page.evaluate(script)
