"""The rooms and floors of the house, counted from the imports of the code.

    python tools/house.py            prints every floor with its rooms, and which rooms each room imports
    python tools/house.py --check    exit code 1, and what is wrong, where the order of the house is broken

A room is a package below ``tpugraph`` with its subpackages, or a module that stands there alone. ``tools/bazel/floors.bzl``
says on which floor a room is; a room imports from floors below its own, and no module imports one that imports it.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

FLOORS = "tools/bazel/floors.bzl"
_FOLDERS = {"tpugraph": "tpugraph", "passes": "tpugraph.passes"}
"""The folders of the sources, and the package that each is imported as."""

_ALONE = {"__main__.py": "cli", "export.py": "__init__.py"}
"""Modules directly below ``tpugraph`` that belong to a room."""


class House:
    """The modules of a checkout, the room of each, and what each imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.floors = [
            (floor, [room for room in rooms if room not in _ALONE]) for floor, rooms in _floors(root / FLOORS)
        ]
        self.paths = {
            _module(package, path.relative_to(root / folder)): path
            for folder, package in _FOLDERS.items()
            for path in sorted((root / folder).rglob("*.py"))
            if not (root / folder / path.relative_to(root / folder).parts[0]).is_symlink()
        }
        self._floor_of = {room: place for place, (_, rooms) in enumerate(self.floors) for room in rooms}

    def room(self, name: str) -> str:
        """The room of a module: its first package below ``tpugraph``, or the file where it stands there alone."""
        path = self.paths[name]
        if path.parent == self.root / "tpugraph":
            return _ALONE.get(path.name, path.name)
        return name.split(".")[1]

    def modules(self, room: str) -> list[str]:
        """The modules of a room."""
        return [name for name in self.paths if self.room(name) == room]

    def imports(self, name: str) -> list[tuple[str, int]]:
        """The modules of the house that a module names in an import statement, wherever it stands, and the lines."""
        return self._imports[name]

    @cached_property
    def _imports(self) -> dict[str, list[tuple[str, int]]]:
        """What each module imports; each is read once, whatever is asked of the house."""
        return {name: list(self._read_imports(name)) for name in self.paths}

    def _read_imports(self, name: str) -> Iterator[tuple[str, int]]:
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
                if target.partition(".")[0] == "tpugraph":
                    yield target, node.lineno

    def arrows(self) -> dict[str, set[str]]:
        """For each room the rooms that its modules import."""
        found: dict[str, set[str]] = {self.room(name): set() for name in self.paths}
        for name in self.paths:
            for target, _ in self.imports(name):
                if target in self.paths and self.room(target) != self.room(name):
                    found[self.room(name)].add(self.room(target))
        return found

    def heights(self) -> dict[str, int]:
        """How many rooms stand below each room, one on the other: the floor on which it is by its imports, from 1."""
        arrows, heights = self.arrows(), dict[str, int]()
        for room in graphlib.TopologicalSorter(arrows).static_order():
            heights[room] = 1 + max((heights[below] for below in arrows[room]), default=0)
        return heights

    def faults(self) -> list[str]:
        """Everything that breaks the order of the house, one sentence each."""
        homeless = [
            f"{name}: the room {self.room(name)!r} is on no floor"
            for name in self.paths
            if self.room(name) not in self._floor_of
        ]
        if homeless:
            return homeless
        found = [
            fault
            for name in self.paths
            for target, line in self.imports(name)
            for fault in self._fault(name, target, line)
        ]
        try:
            graphlib.TopologicalSorter({name: [to for to, _ in self.imports(name)] for name in self.paths}).prepare()
        except graphlib.CycleError as error:
            found.append(f"modules import each other: {' -> '.join(error.args[1])}")
        return found

    def _fault(self, name: str, target: str, line: int) -> Iterator[str]:
        where = f"{self.paths[name].relative_to(self.root)}:{line}: imports {target}"
        if target not in self.paths:
            yield f"{where}, which does not exist"
            return
        room, other = self.room(name), self.room(target)
        if room != other and self._floor_of[other] >= self._floor_of[room]:
            yield f"{where} from the room {other!r}, which is not below its own"
        elif room == other == "passes" and self.paths[name].name != "__init__.py":
            yield f"{where}, but a pass imports no other pass"
        elif room == "passes" and target == "tpugraph.ir.graphdef":
            yield f"{where}, but a pass knows no protobuf"

    def summary(self) -> str:
        """How large the house is, in one sentence."""
        arrows, heights = self.arrows(), self.heights()
        count = sum(map(len, arrows.values()))
        floors = max(heights.values())
        return f"{len(self.paths)} modules in {len(arrows)} rooms on {floors} floors, with {count} arrows between rooms"


def _floors(path: Path) -> list[tuple[str, list[str]]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["FLOORS"]:
            table: list[tuple[str, list[str]]] = ast.literal_eval(node.value)
            return table
    raise ValueError(f"{path} has no table FLOORS")


def _module(package: str, path: Path) -> str:
    parts = [package, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(arguments: list[str]) -> int:
    """Prints the floors, highest first, or what breaks their order; the exit code."""
    house = House(Path(__file__).absolute().parents[1])
    if "--check" in arguments:
        faults = house.faults()
        print(*faults, sep="\n", end="\n" if faults else "")
        return 1 if faults else 0
    arrows = house.arrows()
    for floor, rooms in reversed(house.floors):
        for room in rooms:
            print(
                f"{floor:<12} {room:<14} {len(house.modules(room)):>3} modules, imports {' '.join(sorted(arrows[room])) or '-'}"
            )
    print(house.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
