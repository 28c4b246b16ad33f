"""A compiled HLO module read from its text: computations whose instructions stand in the order in which a core runs them.

Compilers print ``is_scheduled=true`` at the head of a module of which that is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph.xla.memory_layouts import Placed, placed

Tree = Placed | None | list["Tree"]
"""A shape: a tensor, None for what takes no memory (a token), or a tuple of shapes."""

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_SHAPE_PARTS = re.compile(r"[()]|[a-z]\w*\[[\d,]*\](?:\{[^}]*\})?")
_OP_NAME = re.compile(r'op_name="([^";]*)')
_OPERAND = re.compile(r"%([\w.\-]+)")
_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: unique in the module.
        opcode: what it does, such as ``fusion``.
        shape: what it gives.
        operands: the names of the instructions whose results it takes.
        text: what stands between the brackets of its operands.
        rest: its attributes.
        node: the node of the graph that it was made of, "" where the compiler does not say.
    """

    name: str
    opcode: str
    shape: Tree
    operands: tuple[str, ...]
    text: str
    rest: str
    node: str

    def number(self, name: str) -> int:
        """An attribute that is a number, such as ``index``."""
        found = re.search(rf"\b{name}=(\d+)", self.rest)
        if found is None:
            raise ValueError(f"{self.name} has no {name}")
        return int(found.group(1))

    def called(self, name: str) -> list[str]:
        """The computations that an attribute such as ``body`` names."""
        found = re.search(rf"\b{name}=(?:%([\w.\-]+)|\{{([^}}]*)\}})", self.rest)
        return [] if found is None else _OPERAND.findall(f"%{found.group(1)}" if found.group(1) else found.group(2))


@dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they run, and which of them is the result."""

    instructions: list[Instruction]
    root: str


@dataclass(frozen=True)
class ScheduledModule:
    """A module.

    Attributes:
        entry: the computation that runs first.
        computations: all of them by name.
        aliased: the number of the argument in whose memory a result is written, by the number of the result.
    """

    entry: Computation
    computations: dict[str, Computation]
    aliased: dict[int, int]


def read(text: str) -> ScheduledModule | None:
    """A module from its text; None where its instructions are in no order."""
    lines = iter(text.splitlines())
    head = next(lines, "")
    if "is_scheduled=true" not in head:
        return None
    computations: dict[str, Computation] = {}
    entry = ""
    for line in lines:
        if found := _HEAD.match(line):
            computations[found.group(2)] = _computation(lines)
            entry = found.group(2) if found.group(1) else entry
    aliased, _, _ = head.partition("input_output_alias=")[2].partition(" }")
    pairs = {int(result or 0): int(argument) for result, argument in _ALIAS.findall(aliased)}
    return ScheduledModule(computations[entry], computations, pairs)


def _computation(lines: Iterator[str]) -> Computation:
    """The instructions up to the closing bracket."""
    found, root = [], ""
    for line in lines:
        if line.startswith("}"):
            break
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        marked, name, shape, opcode, text, rest = match.groups()
        node = _OP_NAME.search(rest)
        found.append(Instruction(name, opcode, _shape(shape), tuple(_OPERAND.findall(text)), text, rest,
                                 node.group(1) if node else ""))  # fmt: skip
        root = name if marked else root
    return Computation(found, root)


def _shape(text: str) -> Tree:
    """A shape as HLO writes it, ``(f32[2]{0}, (s32[]))``."""
    open_tuples: list[list[Tree]] = [[]]
    for part in _SHAPE_PARTS.findall(text):
        if part == "(":
            open_tuples.append([])
        elif part == ")":
            inner = open_tuples.pop()
            open_tuples[-1].append(inner)
        else:
            open_tuples[-1].append(placed(part))
    return open_tuples[0][0]
