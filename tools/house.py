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
from pathlib import Path

FLOORS = "tools/bazel/floors.bzl"
_ALONE = {"__main__.py": "cli", "export.py": "__init__.py"}
"""Modules directly below ``tpugraph`` that belong to a room."""


class House:
    """The modules of a checkout, the room of each, and what each imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        table = next(
            ast.literal_eval(node.value)
            for node in ast.parse((root / FLOORS).read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS"
        )
        self.floors = [(floor, [room for room in rooms if room not in _ALONE]) for floor, rooms in table]
        self.paths = {
            _module(package, path.relative_to(root / folder)): path
            for folder, package in (("tpugraph", "tpugraph"), ("passes", "tpugraph.passes"))
            for path in sorted((root / folder).rglob("*.py"))
            if not (root / folder / path.relative_to(root / folder).parts[0]).is_symlink()
        }
        self._floor_of = {room: place for place, (_, rooms) in enumerate(self.floors) for room in rooms}
        self._imports = {name: list(self._read_imports(name)) for name in self.paths}

    def room(self, name: str) -> str:
        """The room of a module: its first package below ``tpugraph``, or the file where it stands there alone."""
        path = self.paths[name]
        return _ALONE.get(path.name, path.name) if path.parent == self.root / "tpugraph" else name.split(".")[1]

    def modules(self, room: str) -> list[str]:
        return [name for name in self.paths if self.room(name) == room]

    def imports(self, name: str) -> list[tuple[str, int]]:
        """The modules of the house that a module names in an import statement, wherever it stands, and the lines."""
        return self._imports[name]

    def _read_imports(self, name: str) -> Iterator[tuple[str, int]]:
        path = self.paths[name]
        package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            targets = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                above = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                members = [f"{base}.{alias.name}" for alias in node.names]
                targets = [member if member in self.paths else base for member in members]
            for target in dict.fromkeys(targets):
                if target.partition(".")[0] == "tpugraph":
                    yield target, node.lineno

    def arrows(self) -> dict[str, set[str]]:
        """For each room the rooms that its modules import."""
        found: dict[str, set[str]] = {self.room(name): set() for name in self.paths}
        for name in self.paths:
            found[self.room(name)] |= {self.room(to) for to, _ in self.imports(name) if to in self.paths}
        return {room: others - {room} for room, others in found.items()}

    def faults(self) -> list[str]:
        """Everything that breaks the order of the house, one sentence each."""
        rooms = {name: self.room(name) for name in self.paths}
        homeless = [
            f"{name}: the room {room!r} is on no floor" for name, room in rooms.items() if room not in self._floor_of
        ]
        if homeless:
            return homeless
        found = [
            fault for name in self.paths for to, line in self.imports(name) for fault in self._fault(name, to, line)
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


def _module(package: str, path: Path) -> str:
    parts = [package, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    house = House(Path(__file__).absolute().parents[1])
    if "--check" in sys.argv:
        sys.exit("\n".join(house.faults()))
    for floor, rooms in reversed(house.floors):
        for room in rooms:
            below = " ".join(sorted(house.arrows()[room])) or "-"
            print(f"{floor:<12} {room:<14} {len(house.modules(room)):>3} modules, imports {below}")
    print(f"{len(house.paths)} modules in {len(house.arrows())} rooms")
