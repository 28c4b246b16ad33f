"""The house keeps its layers: tools/bazel/layers.bzl says which module may import which."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = "tools/bazel/layers.bzl"
PACKAGES = ("tpugraph", "passes")

# Imports each module in a process of its own; all are forked from one that has TensorFlow loaded already, because
# loading it for every module would take minutes.
IMPORT_EACH = """
import importlib, os, sys, traceback

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


class House:
    """The modules below a directory, the layer of each, and what each imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layers = read_layers(root / LAYERS)
        self.paths = {module_name(path.relative_to(root)): path for path in sources(root)}
        self.ranks: dict[str, list[int]] = {name: [] for name in self.paths}
        for rank, (_, patterns) in enumerate(self.layers):
            for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
                self.ranks[module_name(path.relative_to(root))].append(rank)

    def rank(self, name: str) -> int:
        return self.ranks[name][0]

    def imports(self, name: str) -> Iterator[tuple[str, int]]:
        """The modules of the house that a module names in an import statement, wherever it stands, and the lines."""
        path = self.paths[name]
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) + 1 - node.level]
                    base = ".".join([*above, base] if base else above)
                members = [f"{base}.{alias.name}" for alias in node.names]
                targets = [member if member in self.paths else base for member in members]
            else:
                continue
            for target in dict.fromkeys(targets):
                if target.partition(".")[0] in PACKAGES:
                    yield target, node.lineno

    def faults(self) -> list[str]:
        """Everything that breaks the order of the house, one sentence each."""
        homeless = [f"{name}: stands in {len(ranks)} layers" for name, ranks in self.ranks.items() if len(ranks) != 1]
        if homeless:
            return homeless
        found = []
        for name in self.paths:
            for target, line in self.imports(name):
                where = f"{self.paths[name].relative_to(self.root)}:{line}: imports {target}"
                if target not in self.paths:
                    found.append(f"{where}, which does not exist")
                elif self.rank(target) > self.rank(name):
                    layer = self.layers[self.rank(target)][0]
                    found.append(f"{where} from the layer {layer!r} above its own")
                elif name.startswith("passes.") and target.startswith("passes"):
                    found.append(f"{where}, but a pass imports no other pass")
                elif name.startswith("passes.") and target == "tpugraph.graphdef":
                    found.append(f"{where}, but a pass knows no protobuf")
        try:
            graphlib.TopologicalSorter({name: [to for to, _ in self.imports(name)] for name in self.paths}).prepare()
        except graphlib.CycleError as error:
            found.append(f"modules import each other: {' -> '.join(error.args[1])}")
        return found


def read_layers(path: Path) -> list[tuple[str, list[str]]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["LAYERS"]:
            table: list[tuple[str, list[str]]] = ast.literal_eval(node.value)
            return table
    raise ValueError(f"{path} has no table LAYERS")


def sources(root: Path) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def build(root: Path, files: dict[str, str]) -> House:
    """A house of a few modules, path and text of each, under the real table."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / LAYERS).parent.mkdir(parents=True)
    (root / LAYERS).write_bytes((ROOT / LAYERS).read_bytes())
    return House(root)


def test_every_module_stands_in_its_layer_and_imports_nothing_above_it() -> None:
    assert House(ROOT).faults() == []


def test_downward_imports_are_fine(tmp_path: Path) -> None:
    house = build(
        tmp_path,
        {
            "tpugraph/errors.py": "",
            "tpugraph/ir.py": "from tpugraph import errors\nfrom tpugraph.errors import Fault",
            "passes/__init__.py": "from passes.first import First",
            "passes/first.py": "from tpugraph.ir import Graph",
        },
    )
    assert house.faults() == []


@pytest.mark.parametrize(
    "statement",
    [
        "import tpugraph.ir",
        "from tpugraph import ir",
        "from tpugraph.ir import Graph",
        "from . import ir",
        "from .ir import Graph",
        "def late():\n    import tpugraph.ir",
    ],
)
def test_an_upward_import_is_found_in_every_spelling(tmp_path: Path, statement: str) -> None:
    (fault,) = build(tmp_path, {"tpugraph/errors.py": statement, "tpugraph/ir.py": ""}).faults()
    assert fault.startswith("tpugraph/errors.py:")
    assert fault.endswith("imports tpugraph.ir from the layer 'ir' above its own")


def test_the_face_of_the_package_is_above_its_modules(tmp_path: Path) -> None:
    files = {"tpugraph/__init__.py": "", "tpugraph/text.py": "from tpugraph import Graph"}
    (fault,) = build(tmp_path, files).faults()
    assert fault == "tpugraph/text.py:1: imports tpugraph from the layer 'command' above its own"


def test_a_pass_imports_no_pass_and_no_protobuf(tmp_path: Path) -> None:
    house = build(
        tmp_path,
        {
            "tpugraph/graphdef.py": "",
            "passes/first.py": "",
            "passes/second.py": "from passes import first\nfrom tpugraph import graphdef",
        },
    )
    assert house.faults() == [
        "passes/second.py:1: imports passes.first, but a pass imports no other pass",
        "passes/second.py:2: imports tpugraph.graphdef, but a pass knows no protobuf",
    ]


def test_a_cycle_within_a_layer_is_found(tmp_path: Path) -> None:
    files = {"tpugraph/ops/record.py": "import tpugraph.attrs", "tpugraph/attrs.py": "import tpugraph.ops.record"}
    (fault,) = build(tmp_path, files).faults()
    assert fault.startswith("modules import each other: ")


def test_a_module_outside_the_table_is_found(tmp_path: Path) -> None:
    assert build(tmp_path, {"tpugraph/attic.py": ""}).faults() == ["tpugraph.attic: stands in 0 layers"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on a checkout, with warnings as errors."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_module_can_be_the_first_one_imported() -> None:
    names = [name for name in House(ROOT).paths if not name.endswith("__main__")]
    fork_warning = (
        "ignore:This process:DeprecationWarning"  # of Python 3.12 and later; a fork that only imports is safe
    )
    done = run("-W", fork_warning, "-c", IMPORT_EACH, *names)
    assert done.returncode == 0, done.stderr[-5000:]


def test_importing_tpugraph_does_not_load_tensorflow() -> None:
    done = run("-c", "import sys, tpugraph; sys.exit('tensorflow' in sys.modules)")
    assert done.returncode == 0, done.stderr or "import tpugraph loads TensorFlow"
