"""Imports the modules of one layer where nothing above them can be found.

Bazel runs it with only the layer and what is below it in the runfiles; the arguments are paths of modules. An
installed tpugraph (editable or not) would hide an upward import, so every other place that offers one is left out.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path.cwd()  # where Bazel starts a test: the root of its runfiles
PACKAGES = ("tpugraph", "passes")


def module_name(path: str) -> str:
    """The import name of the module in a file."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class OnlyRunfiles:
    """A finder that answers for our packages from the runfiles alone."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module in the runfiles; an error if it is one of ours and not there."""
        if name.partition(".")[0] not in PACKAGES:
            return None
        parent = ROOT.joinpath(*name.split(".")[:-1])
        spec = PathFinder.find_spec(name, [str(parent)], target)
        if spec is None:
            raise ModuleNotFoundError(f"no module named {name!r} in this layer or below it", name=name)
        return spec


def main(paths: list[str]) -> int:
    """Imports each module; the exit status."""
    sys.meta_path.insert(0, OnlyRunfiles())
    for name in map(module_name, paths):
        importlib.import_module(name)
        print("ok", name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
