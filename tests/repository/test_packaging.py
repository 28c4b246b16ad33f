"""The source distribution holds what a reader and a build need, and the metadata says whose it is."""

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).absolute().parents[2]
PARTS = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "docs",
    "examples",
    "pyproject.toml",
    "tpugraph",
)

pytestmark = pytest.mark.skipif(not (ROOT / "LICENSE").exists(), reason="Bazel shows the tests a part of the checkout")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.fail("setuptools is too old to build tpugraph: python -m pip install -e '.[dev]'")
    checkout, made = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("made")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, checkout / part)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(made)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True, capture_output=True, timeout=120)
    (archive,) = made.iterdir()
    with tarfile.open(archive) as held:
        held.extractall(made, filter="data")
    return made / archive.name.removesuffix(".tar.gz")


def files(root: Path, *below: str) -> set[str]:
    """Files of some folders, without what Python made."""
    found = (path for part in below for path in (root / part).rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in found if "__pycache__" not in path.parts}


def test_all_sources_documents_and_examples_are_in_it(built: Path) -> None:
    parts = [part for part in PARTS if (ROOT / part).is_dir()]
    ours = files(ROOT, *parts) | {f"tpugraph/passes/{path.name}" for path in (ROOT / "passes").glob("*.py")}
    assert files(built, *parts) == ours
    assert {part for part in PARTS if not (built / part).exists()} == set()


def test_the_metadata_names_its_authors_licence_and_command(built: Path) -> None:
    said = (built / "PKG-INFO").read_text()
    assert "Author: The tpugraph maintainers" in said
    assert "License-Expression: Apache-2.0 AND MIT" in said
    assert "License-File: tpugraph/views/assets/vendor/cytoscape.LICENSE" in said
    assert "# tpugraph" in said
    assert "Project-URL" not in said  # there is no public address, and none is made up
    assert "tpugraph = tpugraph.cli:main" in (built / "tpugraph.egg-info" / "entry_points.txt").read_text()
