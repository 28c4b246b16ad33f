"""The page of `tpugraph view` in a real browser: its size, and the time from opening it to the first picture.

Headless Chromium opens the page from a file, several times; the least time counts. Needs Chromium on PATH and playwright.

python benchmarks/first_paint.py [--nodes 10000,20000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import _measure
from _graphs import write_training_graph
from playwright.sync_api import sync_playwright

from tpugraph.compiler.tpu_check import view

_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="10000,20000")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sizes = [int(size) for size in options.nodes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        found = [_one(Path(folder), size, options.repeats) for size in sizes]
    smallest, largest = found[0], found[-1]
    code = _measure.verdict(f"megabytes of a page of {sizes[0]:,} nodes", smallest[0] / 1e6, 5, most=True)
    return code | _measure.verdict(f"seconds to the first picture of {sizes[-1]:,} nodes", largest[1], 2, most=True)


def _one(folder: Path, size: int, repeats: int) -> tuple[int, float]:
    """Bytes of the page of a graph, and seconds until it is drawn."""
    model, page = folder / f"{size}.pb", folder / f"{size}.html"
    write_training_graph(model, size)
    view(model).save(page)
    seconds = _painted(page, repeats)
    print(f"{size:,} nodes: {page.stat().st_size:,} bytes, drawn after {seconds:.2f} s")
    return page.stat().st_size, seconds


def _painted(page: Path, repeats: int) -> float:
    browser_file = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser_file is None:
        raise SystemExit(f"no browser: apt-get install {_BROWSERS[0]}")
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        for _ in range(repeats):
            tab = browser.new_page(viewport={"width": 1400, "height": 900})
            tab.goto(page.as_uri())
            tab.wait_for_selector("body[data-painted]", state="attached")
            taken.append(float(tab.evaluate("document.body.dataset.painted")) / 1000)
            tab.close()
        browser.close()
    return min(taken)


if __name__ == "__main__":
    raise SystemExit(main())
