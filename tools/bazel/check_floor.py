"""Imports the modules of one floor where nothing above them can be found.

Bazel runs it with only the floor and what is below it in the runfiles; the arguments are paths of modules. An
installed tpugraph (editable or not) would hide an upward import, so every other place that offers one is left out.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

ROOT = Path.cwd()  # where Bazel starts a test: the root of its runfiles


class OnlyRunfiles:
    """A finder that answers for our packages from the runfiles alone."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in ("tpugraph", "passes"):
            return None
        spec = PathFinder.find_spec(name, [str(ROOT.joinpath(*name.split(".")[:-1]))])
        if spec is None:
            raise ModuleNotFoundError(f"no module named {name!r} in this floor or below it", name=name)
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, OnlyRunfiles())
    for parts in (Path(path).with_suffix("").parts for path in sys.argv[1:]):
        importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        print("ok", *parts)
