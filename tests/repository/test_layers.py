"""The house keeps its floors: tools/bazel/floors.bzl says which room may import which."""

import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONGEST
from forked import Programs

from house import FLOORS, House

ROOT = Path(__file__).parents[2]

# Imports each module in a process of its own; all are forked from one that has TensorFlow loaded already, because
# loading it for every module would take minutes.
IMPORT_EACH = """
import gc, importlib, os, sys, traceback, warnings

warnings.simplefilter("error")
warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # of Python 3.12: a fork that only imports is safe
gc.disable()  # a child that walks the objects of TensorFlow copies them

def imports(name):
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            print(f"importing {name} first:", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

import networkx, tensorflow
sys.exit(not all([imports(name) for name in sys.argv[1:]]))
"""


def build(root: Path, files: dict[str, str]) -> House:
    """A house of a few modules, path and text of each, under the real table."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / FLOORS).parent.mkdir(parents=True)
    (root / FLOORS).write_bytes((ROOT / FLOORS).read_bytes())
    return House(root)


@functools.cache
def checkout() -> House:
    """The house of this checkout; its modules are read once for all tests."""
    return House(ROOT)


def test_every_room_imports_from_below() -> None:
    assert checkout().faults() == []
    house = checkout()
    assert len(house.arrows()) <= 22
    assert len(house.floors) <= 13
    assert {f"test_{name}.py" for name in LONGEST} <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize(
    "statement",
    [
        "import tpugraph.ir",
        "from tpugraph import ir",
        "from tpugraph.ir import Graph",
        "from .. import ir",
        "from ..ir import Graph",
        "def late():\n    import tpugraph.ir",
    ],
)
def test_an_upward_import_is_found_in_every_spelling(tmp_path: Path, statement: str) -> None:
    (fault,) = build(tmp_path, {"tpugraph/support/errors.py": statement, "tpugraph/ir/__init__.py": ""}).faults()
    assert fault.startswith("tpugraph/support/errors.py:")
    assert fault.endswith("imports tpugraph.ir from the room 'ir', which is not below its own")


HOUSES: dict[str, tuple[dict[str, str], list[str]]] = {
    "downward imports": (
        {
            "tpugraph/support/errors.py": "",
            "tpugraph/ir/graph.py": "from tpugraph.support import errors\nfrom tpugraph.support.errors import Fault",
            "tpugraph/ir/__init__.py": "from tpugraph.ir.graph import Graph",
            "passes/__init__.py": "from tpugraph.passes.first import First",
            "passes/first.py": "from tpugraph.ir import Graph",
        },
        [],
    ),
    "the face of the package is above its modules": (
        {"tpugraph/__init__.py": "", "tpugraph/ir/text.py": "from tpugraph import Graph"},
        ["tpugraph/ir/text.py:1: imports tpugraph from the room '__init__.py', which is not below its own"],
    ),
    "a pass imports no pass and no protobuf": (
        {
            "tpugraph/ir/graphdef.py": "",
            "passes/first.py": "",
            "passes/second.py": "from tpugraph.passes import first\nfrom tpugraph.ir import graphdef",
        },
        ["passes/second.py:1: imports tpugraph.passes.first, but a pass imports no other pass",
         "passes/second.py:2: imports tpugraph.ir.graphdef, but a pass knows no protobuf"],
    ),
    "a module outside the table": (
        {"tpugraph/attic.py": "", "tpugraph/cellar/wine.py": ""},
        ["tpugraph.attic: the room 'attic.py' is on no floor", "tpugraph.cellar.wine: the room 'cellar' is on no floor"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "faults"), HOUSES.values(), ids=HOUSES)
def test_what_a_house_does_wrong_is_told(tmp_path: Path, files: dict[str, str], faults: list[str]) -> None:
    assert build(tmp_path, files).faults() == faults


def test_a_cycle_within_a_room_is_found(tmp_path: Path) -> None:
    files = {
        "tpugraph/ops/record.py": "import tpugraph.ops.shape",
        "tpugraph/ops/shape.py": "import tpugraph.ops.record",
    }
    (fault,) = build(tmp_path, files).faults()
    assert fault.startswith("modules import each other: ")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on a checkout, with warnings as errors."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_module_can_be_the_first_one_imported(new_process: Programs) -> None:
    """No module needs itself, and each package, which is imported before its modules, can be the first one."""
    house = checkout()
    needs = {name: {target for target, _ in house.imports(name)} for name in house.paths}
    assert set(graphlib.TopologicalSorter(needs).static_order()) >= set(house.paths)  # raises CycleError with the cycle
    names = [name for name, path in house.paths.items() if path.name == "__init__.py"]
    done = new_process("-c", IMPORT_EACH, *names)
    assert done.code == 0, done.err[-5000:]


def test_importing_tpugraph_does_not_load_tensorflow() -> None:
    done = run("-c", "import sys, tpugraph; sys.exit('tensorflow' in sys.modules)")
    assert done.returncode == 0, done.stderr or "import tpugraph loads TensorFlow"
