"""The table of the Estimator API names tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "LICENSE").exists(), reason="Bazel shows the tests a part of the checkout")
def test_every_row_names_a_test() -> None:
    text = (ROOT / "docs" / "estimator_api.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    named = re.findall(r"\| (test_\w+)::(test_\w+) \|$", "\n".join(rows), re.MULTILINE)
    assert len(named) == len(rows)
    for file, test in named:
        (path,) = (ROOT / "tests").rglob(f"{file}.py")
        assert f"\ndef {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"
