"""Sizes of tensors in a compiled HLO module, parsed from its text.

A TPU tiles the last dimensions, ``f32[10,3]{1,0:T(8,128)}`` by 8 rows and 128 columns, so a tensor with few columns takes many
times the bytes of its elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_BITS = {"pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16, "s32": 32,
         "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128}  # fmt: skip
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::T\(([\d,]+)\))?[^}]*\})?")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.+?) ([a-z][\w\-]*)\(")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_NO_MEMORY = frozenset({"parameter", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "constant"})
_MOVES = frozenset({"copy-start", "copy-done"})
_NUMBER = re.compile(r" parameter\((\d+)\)")
_CHANNEL = re.compile(r" channel_id=(\d+)")
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass(frozen=True)
class Placed:
    """One tensor in the memory of a core."""

    node: str  # the graph's node or the argument that it comes from, "" where unknown
    shape: str  # as HLO writes it, with layout and tiles
    bytes: int  # with padding
    elements: int  # bytes without padding

    @property
    def on_chip(self) -> bool:
        """Whether it is in on-chip memory rather than in HBM."""
        return "S(1)" in self.shape


def largest(text: str, arguments: Sequence[str] = (), count: int = 5) -> tuple[Placed, ...]:
    """The largest tensors of a module, each node and shape once; ``arguments`` are the names of its arguments."""
    found: dict[tuple[str, str], Placed] = {}
    inside, _, entry = text.partition("\nENTRY ")
    for name, shapes in (*_made(inside), *_made(entry), *_given(entry, arguments)):
        for match in _SHAPE.finditer(shapes):
            placed = _placed(name, match)
            if placed is not None:
                found[name, placed.shape] = placed
    return tuple(sorted(found.values(), key=lambda p: (-p.bytes, p.node))[:count])


def _made(text: str) -> Iterator[tuple[str, str]]:
    """Node and shapes of each instruction that allocates."""
    for line, shapes, op in _instructions(text):
        if op not in _NO_MEMORY | _MOVES:
            named = _OP_NAME.search(line)
            yield named.group(1).partition(";")[0] if named else "", shapes


def _given(entry: str, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line, shapes, op in _instructions(entry):
        number = _NUMBER.search(line) if op == "parameter" else None
        if number and int(number.group(1)) < len(arguments):
            yield arguments[int(number.group(1))], shapes


def collectives(text: str) -> dict[str, int]:
    """The bytes of the results of each kind of collective, on one core in one iteration of the loop."""
    found: dict[str, int] = {}
    for kind, made in _combined(text):
        found[kind] = found.get(kind, 0) + sum(placed.elements for _, placed in made)
    return found


def gathered(text: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The bytes that all-gathers produce of each whole sharded variable, on one core in one iteration, largest first.

    Args:
        text: the module.
        shapes: the variables' global shapes; of equal ones the first is named.
    """
    found: dict[str, int] = {}
    for kind, made in _combined(text):
        for dims, placed in made if kind == "all-gather" else ():
            name = next((name for name, shape in shapes.items() if _splits(dims, shape)), None)
            if name is not None:
                found[name] = found.get(name, 0) + placed.elements
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _splits(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether ``dims`` is a shape with some dimensions split."""
    rest = [size for size in dims if size > 1]
    for size in shape:
        while size > 1 and rest and size % rest[0] == 0:
            size //= rest.pop(0)
        if size > 1:
            return False
    return not rest


def _combined(text: str) -> Iterator[tuple[str, list[tuple[list[int], Placed]]]]:
    """The kind and the results, with their dimensions, of each collective of the loop.

    A collective that a TPU overlaps with several fusions has a copy in each, with the same channel; a reduce-scatter is an
    all-reduce in a computation of that name.
    """
    scattered, channels = "", {""}
    for line in text.partition("\nENTRY ")[0].splitlines():
        if line.endswith("{") and not line.startswith(" "):
            scattered = line.rpartition("-> ")[2] if "all-reduce-scatter" in line.partition(" ")[0] else ""
        match = _INSTRUCTION.match(line)
        kind = match.group(2).removesuffix("-start") if match else ""
        channel = _CHANNEL.search(line)
        if match is None or kind not in _COLLECTIVES or (channel and channel.group(1) in channels):
            continue
        channels.add(channel.group(1) if channel else "")
        made = [
            (_dims(m), p) for m in _SHAPE.finditer(scattered or match.group(1)) if (p := _placed("", m)) is not None
        ]
        if kind not in (match.group(2), "all-reduce"):  # operands and results are listed together
            made = made[len(made) // 2 :]
        yield "reduce-scatter" if scattered else kind, made


def _dims(match: re.Match[str]) -> list[int]:
    return [int(d) for d in match.group(2).split(",") if d]


def _instructions(text: str) -> Iterator[tuple[str, str, str]]:
    """Line, shapes and op of each instruction outside of fusions, which take no memory inside."""
    fused = False
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            fused = line.startswith(("%fused", "fused"))
        match = None if fused else _INSTRUCTION.match(line)
        if match:
            yield line, match.group(1), match.group(2)


def _placed(node: str, match: re.Match[str]) -> Placed | None:
    kind, _, order_text, tile_text = match.groups()
    if kind not in _BITS:
        return None
    dims = _dims(match)
    elements = math.prod(dims) * _BITS[kind] // 8
    tile = [int(d) for d in (tile_text or "").split(",") if d]
    order = [int(d) for d in (order_text or "").split(",") if d]
    physical = [dims[d] for d in reversed(order)] if len(order) == len(dims) else dims
    padded = [*([1] * (len(tile) - len(physical))), *physical]
    for back, size in enumerate(reversed(tile), 1):
        padded[-back] = math.ceil(padded[-back] / size) * size
    return Placed(node, match.group(0), math.prod(padded) * _BITS[kind] // 8, elements)
