"""The table of the Estimator API names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "LICENSE").exists(), reason="Bazel shows the tests a part of the checkout")
def test_every_row_names_a_test() -> None:
    text = (ROOT / "docs" / "estimator_api.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    named = re.findall(r"\| (test_\w+)::(test_\w+) \|$", "\n".join(rows), re.MULTILINE)
    assert len(named) == len(rows)
    tests = {file: _functions(ROOT / "tests" / f"{file}.py") for file, _ in named}
    for file, test in named:
        assert test in tests[file], f"{file}::{test}"


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
