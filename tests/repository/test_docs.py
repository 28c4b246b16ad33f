"""The documents say what is true: generated pages are current, links lead somewhere, examples run as shown."""

import contextlib
import importlib.util
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tpugraph import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name != "modules.md"]  # made on demand, and as old as that
RUNS = "<!-- runs -->"
BLOCK = re.compile(r"(?P<mark>^<!-- runs -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Example:
    """A block that runs, and what the block behind it says that it prints ("" where none follows)."""

    language: str
    source: str
    prints: str


def examples(page: Path) -> list[Example]:
    """The marked blocks of a page; a ``text`` block right behind one is its output."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    found = []
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if not block["mark"]:
            continue
        behind = (
            following is not None
            and following["language"] == "text"
            and not text[block.end() : following.start()].strip()
        )
        found.append(Example(block["language"], block["body"], following["body"] if behind and following else ""))
    return found


def commands(source: str) -> Iterator[list[str]]:
    """The tpugraph commands of a shell block, without what installs."""
    for line in source.replace("\\\n", " ").splitlines():
        for part in line.split("&&"):
            words = shlex.split(part, comments=True)
            if words and words[0] == "tpugraph":
                yield words[1:]


def masked(text: str) -> list[str]:
    """The lines without progress and numbers, which differ from machine to machine."""
    lines = [re.sub(r"\d[\d,.]*", "#", line).rstrip() for line in text.strip().splitlines()]
    return [line for line in lines if not line.startswith("step ")]


@pytest.fixture
def in_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to write in that looks like the root of a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_current() -> None:
    for name, text in script("tools/make_docs.py").documents().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name} is stale: run python tools/make_docs.py"


@pytest.mark.skipif(not (ROOT / "LICENSE").exists(), reason="Bazel shows the tests a part of the checkout")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        place, _, anchor = target.partition("#")
        if "://" in place:
            continue
        other = (page.parent / place).resolve() if place else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


@pytest.mark.parametrize(
    "page", [page for page in PAGES if RUNS in page.read_text(encoding="utf-8")], ids=lambda p: p.name
)
def test_examples_run_and_print_what_the_page_shows(
    page: Path, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "documentation"}
    for example in examples(page):
        if example.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(example.source, str(page), "exec", dont_inherit=True), names)
            assert printed.getvalue().strip() == example.prints.strip()
            continue
        fails = example.prints.startswith("error:")
        for words in commands(example.source):
            assert cli.main(words) == 2 * fails, words
        out, err = capsys.readouterr()
        if fails:
            assert err.strip() == example.prints.strip()
        elif example.prints:
            assert masked(out) == masked(example.prints)
    for name in [name for name in names if name.startswith("test_")]:
        names[name]()


def test_the_example_program_runs(in_checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("examples/rewrite_a_graph.py").main("leaky.pb")
    assert "leaky-rectifiers: +0 -0 ~4, 427 nodes" in capsys.readouterr().out
    assert (in_checkout / "leaky.pb").exists()


def test_the_documents_name_no_place_of_one_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(root|home|tmp|work)/", page.read_text(encoding="utf-8")), page.name
