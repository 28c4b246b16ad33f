"""Files and functions fit a screen or two: no file of more than 300 lines, no function of more than 50."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES_OF_A_FILE = 300
MOST_LINES_OF_A_FUNCTION = 50

TABLES: dict[str, str] = {}
"""Files that may be longer, and why; pages of op records may be, too."""

LONG: set[str] = set()
"""Functions that are too long still; none comes in, and whoever shortens one takes it out."""


def sources() -> dict[str, str]:
    """The text of each module, by its path in the checkout."""
    files = [*(ROOT / "passes").rglob("*.py"), *(ROOT / "tpugraph").rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): path for path in sorted(files)}
    return {name: path.read_text() for name, path in found.items() if not name.startswith("tpugraph/passes/")}


def long_functions(text: str) -> list[str]:
    """The functions of a module that have too many lines, their decorators and docstrings counted."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]


def test_no_file_is_too_long() -> None:
    long = {name for name, text in sources().items() if len(text.splitlines()) > MOST_LINES_OF_A_FILE}
    assert long <= TABLES.keys()


def test_no_function_is_too_long() -> None:
    found = {f"{name}:{function}" for name, text in sources().items() for function in long_functions(text)}
    assert found <= LONG


def test_a_long_function_is_found() -> None:
    body = "    pass\n" * MOST_LINES_OF_A_FUNCTION
    assert long_functions(f"def short():\n{body[9:]}\n\ndef long():\n{body}") == ["long"]
