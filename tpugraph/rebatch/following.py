"""Finds the dimensions that scale with the batch, forward from the input, and the constants that hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.placements import Placement, Replicate, Shard
from tpugraph.analysis.signatures import WHOLE
from tpugraph.analysis.values import constant, integers, known_vector
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing
from tpugraph.spmd.rules.reshape import reshaped
from tpugraph.spmd.rules.signature import size_of
from tpugraph.support.errors import GraphError

PROBE = 7
"""The factor by which the batch grows when TensorFlow's shape functions are asked."""
_PASSED_ON = ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | ops.SWITCH | ops.MERGE
_ASKED_NOTHING = (
    _PASSED_ON | ops.CONTROL_FLOW | ops.VARIABLES | frozenset(ops.WRITES) | frozenset(ops.CONTENTS) | ops.DRAWS
)


class Following:
    """The dimensions and constants of one step that follow the batch.

    They are found by placements: the dimension along which a tensor would be sharded by rows scales with the batch. Where an op
    combines all rows, such as a product of rows with rows, TensorFlow's shape function says which dimensions of its result
    scale, and another layer of placements follows these.
    """

    def __init__(
        self, graph: Graph, order: Sequence[Node], rows: int, elements: Iterable[Tensor], literals: Iterable[str]
    ) -> None:
        self.graph, self.order, self.rows = graph, order, rows
        self.literals = frozenset(literals)
        self.forced: list[dict[Tensor, Placement]] = [{tensor: Shard(0) for tensor in elements}]
        self.changes: dict[Node, Change] = {}  # how each constant follows
        self.lists: dict[str, None] = {}  # containers with one element per row
        # by node and name, attributes with shapes of elements, the rows unknown
        self.opened: dict[tuple[str, str], Any] = {}
        self.layers: list[Placing] = []
        self.axes: dict[Tensor, set[int]] = {}  # the dimensions of each tensor that follow
        self.twin = graphdef.copy(graph)  # the graph with a batch :data:`PROBE` times as large, as far as is known
        for node in graph:
            self.twin.set_outputs(self.twin[node.name], node.outputs or ())

    def propagate(self) -> None:
        """Propagate dimensions forward, and update the twin."""
        self.layers = [Placing(self.graph, self.order, self.rows, forced) for forced in self.forced]
        self.axes = {}
        for layer in self.layers:
            layer.solve()
            for tensor in (*(n.out(port) for n in self.order for port in range(len(n.outputs or ()))), *layer.seeds):
                rows = layer.made(tensor) or layer.seeds.get(tensor)
                rank = rows.axis + 1 if tensor.shape is None and isinstance(rows, Shard) else len(tensor.shape or ())
                if isinstance(rows, Shard) and rows.axis < rank and size_of(tensor, rows.axis) != 1:
                    self.axes.setdefault(tensor, set()).add(rows.axis)
        for node in self.graph:
            kinds = [kind for kind, _ in node.outputs or ()]
            made = [(kind, self.scaled(node.out(port), Fraction(PROBE))) for port, kind in enumerate(kinds)]
            self.twin.set_outputs(self.twin[node.name], made)
        for node, change in self.changes.items():
            self.twin.set_attr(self.twin[node.name], "value", change.value(node, Fraction(PROBE)))

    def scaled(self, tensor: Tensor, scale: Fraction) -> Shape:
        """The shape of a tensor with ``scale`` times the batch."""
        shape, follow = tensor.shape, self.axes.get(tensor, ())
        return shape and tuple(d and int(d * scale) if axis in follow else d for axis, d in enumerate(shape))

    def in_twin(self, tensor: Tensor) -> Tensor:
        return self.twin[tensor.node.name].out(tensor.port)

    def extent(self) -> tuple[int, ...]:
        """The number of dimensions and elements found so far; unchanged at the fixpoint."""
        elements = [int(np.count_nonzero(c.exponents)) for c in self.changes.values() if c.exponents is not None]
        dimensions = sum(len(change.axes) for change in self.changes.values())
        return sum(elements), dimensions, sum(map(len, self.forced)), len(self.lists)

    def force(self, tensor: Tensor, axis: int) -> None:
        """Mark a dimension of a tensor as following the batch."""
        if axis in self.axes.get(tensor, ()):
            return
        place = next((i for i, layer in enumerate(self.layers) if tensor not in self.forced[i]
                      and not isinstance(layer.made(tensor), Shard)), len(self.forced))  # fmt: skip
        if place == len(self.forced):
            self.forced.append({})
        self.forced[place][tensor] = Shard(axis)
        self.axes.setdefault(tensor, set()).add(axis)

    def change(
        self,
        node: Node,
        why: str,
        *,
        place: int = 0,
        power: int = 1,
        axis: int | None = None,
        formula: Formula | None = None,
    ) -> bool:
        """Mark an element or a dimension of a constant as following the batch; returns whether that is possible."""
        if node.name in self.literals:
            return False
        if axis is None:
            found = self.changes.setdefault(node, Change(np.zeros(constant(node).shape, int), why=why))
            if found.exponents is None:
                return False
            found.exponents.flat[place] = power
            found.formula, found.rows = formula, self.rows
            return True
        if not can_be_longer(constant(node)):
            return False
        self.changes.setdefault(node, Change(None, why=why)).axes.add(axis)
        self.force(node.out(), axis)
        return True

    def follow_size(self, tensor: Tensor, place: int, why: str) -> bool:
        """Mark a size, or an element of a vector of sizes, as following; False where no constant holds it."""
        node, value, twin = tensor.node, known_vector(tensor), known_vector(self.in_twin(tensor))
        if twin is not None and value is not None and twin[place] != value[place]:
            return True
        if node.op in ops.CONSTANTS:
            return constant(node).ravel()[place] == -1 or self.change(node, why, place=place)
        if node.op in ops.SHAPES:
            return size_of(node.inputs[tensor.port], place) is None or self.lift(node.inputs[tensor.port], place, why)
        if node.op in ops.IDENTITIES | ops.ENTER | ops.CASTS | ops.RESHAPES | ops.EXPANSIONS:
            return self.follow_size(node.inputs[0], place, why)
        if node.op in ops.PACKS:
            return self.follow_size(node.inputs[place], 0, why)
        if node.op in ops.CONCATS:
            for index in ops.record(node.op).data_operands(len(node.inputs)):
                length = size_of(node.inputs[index], 0) or 0
                if place < length:
                    return self.follow_size(node.inputs[index], place, why)
                place -= length
        if node.op in ops.SLICES and len(node.inputs[0].shape or ()) == 1:
            begin = [0] if node.attr("begin_mask", 0) & 1 else integers(node.inputs[1])
            return begin is not None and self.follow_size(node.inputs[0], begin[0] + place, why)
        if ops.COMPUTES.get(node.op) is np.multiply:
            sizes = [integers(t) for t in node.inputs]
            held = [i for i, size in enumerate(sizes) if size and size[0] % self.rows == 0]
            return len(held) == 1 and self.follow_size(node.inputs[held[0]], place, why)
        return False

    def lift(self, tensor: Tensor, axis: int, why: str) -> bool:
        """Lengthen a constant with equal rows; False where its further rows are unknown."""
        return self._lift(tensor, axis, why, set())

    def _lift(self, tensor: Tensor, axis: int, why: str, seen: set[Tensor]) -> bool:
        node = tensor.node
        if axis in self.axes.get(tensor, ()) or tensor in seen:
            return True
        seen.add(tensor)
        if node.op in ops.CONSTANTS:
            return self.change(node, why, axis=axis)
        if node.op in _PASSED_ON | ops.CASTS:
            data = node.inputs if node.op in ops.MERGE else node.inputs[:1]
            return all(self._lift(operand, axis, why, seen) for operand in data)
        if node.op in ops.RANGES:
            return self._forced(tensor, 0, self.follow_size(node.inputs[1], 0, why))
        if node.op in ops.RESHAPES:
            return self._lift_reshaped(node, axis, why, seen)
        if node.op in ops.TILES | ops.BROADCASTS | ops.FILLS | ops.DRAWS:
            return self._lift_repeated(node, axis, why, seen)
        if node.op in ops.DIAGONALS and axis >= len(tensor.shape or ()) - 2:
            return self._forced(
                tensor, axis, self._lift(node.inputs[0], len(node.inputs[0].shape or ()) - 1, why, seen)
            )
        rows = ops.record(node.op).rows_operand
        if rows is not None and axis == 0:
            return self._forced(tensor, 0, self.follow_size(node.inputs[rows], 0, why))
        signature = factors.signature(node) if node.inputs and node.op not in ops.CONTENTS else None
        letters = None if signature is None else signature.outputs[tensor.port]
        if signature is None or letters is None or letters[axis] == WHOLE:
            return False
        held = [(t, named.index(letters[axis])) for t, named in zip(node.inputs, signature.inputs, strict=True)
                if named and letters[axis] in named]  # fmt: skip
        wide = [(t, place) for t, place in held if size_of(t, place) != 1]
        return bool(wide) and all(self._lift(t, place, why, seen) for t, place in wide)

    def _lift_repeated(self, node: Node, axis: int, why: str, seen: set[Tensor]) -> bool:
        told = ops.record(node.op).shaped_by
        told = 1 if told is None else told
        if node.op in ops.TILES | ops.BROADCASTS:
            place = axis - len(node.out().shape or ()) + len(node.inputs[0].shape or ())
            if place >= 0 and size_of(node.inputs[0], place) != 1:
                return self._lift(node.inputs[0], place, why, seen) and (
                    node.op in ops.TILES or self.follow_size(node.inputs[told], axis, why)
                )
        return self._forced(node.out(), axis, self.follow_size(node.inputs[told], axis, why))

    def _lift_reshaped(self, node: Node, axis: int, why: str, seen: set[Tensor]) -> bool:
        before, after = node.inputs[0].shape, node.out().shape
        if before is None or after is None or None in (*before, *after):
            return False
        rows = reshaped(after, Shard(axis), before, self.rows)
        known = rows is not None and rows.outer == 1 and self._lift(node.inputs[0], rows.axis, why, seen)
        return self._forced(node.out(), axis, known)

    def _forced(self, tensor: Tensor, axis: int, known: bool) -> bool:
        """Mark a dimension as following where its values at more rows are known."""
        if known:
            self.force(tensor, axis)
        return known

    def wanted(self) -> Iterator[tuple[Node, Tensor, int]]:
        """Operands that are read by rows but do not follow: node, tensor, dimension."""
        for layer in self.layers:
            for node, verdict in layer.verdicts.items():
                for index, want in verdict.wants.items():
                    tensor = node.inputs[index]
                    if (
                        isinstance(want, Shard)
                        and want.axis not in self.axes.get(tensor, ())
                        and size_of(tensor, want.axis) != 1
                    ):
                        yield node, tensor, want.axis

    def gathers(self) -> dict[Node, None]:
        """Nodes that combine all rows."""
        return {node: None for layer in self.layers for node, verdict in layer.verdicts.items()
                for index, want in verdict.wants.items()
                if isinstance(want, Replicate) and isinstance(layer.read(node.inputs[index]), Shard)}  # fmt: skip

    def ask_shape_functions(self) -> None:
        """Propagate the dimensions that TensorFlow's shape functions find."""
        gathering = self._gathering()
        asked = [
            n
            for n in self.order
            if n.op not in _ASKED_NOTHING and n.outputs and (n in gathering or self._differs_at_probe(n))
        ]
        for node, outputs in inferred(self.twin, [self.twin[node.name] for node in asked]).items():
            plain = self.graph[node.name]
            for port, shape in enumerate(outputs):
                old = plain.out(port).shape
                if shape is None or old is None or len(shape) != len(old):
                    continue
                for axis, (before, after) in enumerate(zip(old, shape, strict=True)):
                    if before and after and after != before and after % (before * PROBE) == 0:
                        self.force(plain.out(port), axis)

    def _gathering(self) -> dict[Node, None]:
        """Nodes that combine all rows, without reshapes to sizes that do not change."""
        return {n: None for n in self.gathers() if n.op not in ops.RESHAPES or -1 in (integers(n.inputs[1]) or ())}

    def _differs_at_probe(self, node: Node) -> bool:
        """Whether a size operand differs between the batches, by constant folding on both graphs."""
        told = {
            *ops.record(node.op).size_operands(len(node.inputs)),
            *ops.record(node.op).constant_operands(len(node.inputs)),
        }
        for index in told:
            tensor = node.inputs[index]
            if tensor.dtype.name not in ("int32", "int64"):
                continue
            if known_vector(tensor) != known_vector(self.in_twin(tensor)):
                return not self.axes.get(node.out())
        return False


def step_nodes(graph: Graph, takes: Sequence[Node]) -> list[Node]:
    """The nodes of a step without its input, in topological order."""
    before = graph.ancestors(takes)
    behind = graph.descendants(takes, data_only=True)
    roots = [graph[name] for name in graph.roles.kept if name in graph]
    cone = graph.ancestors([*behind, *roots])
    chosen = {n: None for n in graph if n in cone and n not in before and not ops.is_dataset(n.op)}
    return analysis.loop_order(graph, chosen)


# --------------------------------------------------------------------------- changes
# A constant that depends on the batch, and its new value.

Formula = Callable[[Fraction], Any]

_COUNTS: tuple[Formula, ...] = (
    lambda rows: rows,
    lambda rows: rows**2,
    lambda rows: rows - 1,
    lambda rows: rows * (rows - 1),
)
_FORMULAS: tuple[Formula, ...] = (*_COUNTS, *(lambda rows, count=count: 1 / count(rows) for count in _COUNTS), math.log)


def formula_of(number: float, rows: int) -> Formula | None:
    """The formula of the rows that gives a number: the rows, their square, pairs of rows, a reciprocal of these, their logarithm."""
    return next((f for f in _FORMULAS if rows > 1 and math.isclose(number, f(Fraction(rows)), rel_tol=1e-6)), None)


@dataclass
class Change:
    """A constant that follows the batch."""

    # for each element, the power of the scale that multiplies it; None for a value with rows
    exponents: np.ndarray[Any, Any] | None
    axes: set[int] = field(default_factory=set)  # dimensions that follow, for a value with rows
    why: str = ""  # the reading in a sentence
    formula: Formula | None = None  # how a single number depends on the rows; takes precedence over the power
    rows: int = 0  # the argument of the formula

    def factors(self, scale: Fraction) -> list[Fraction]:
        """The factor of each element for ``scale`` times the batch."""
        if self.formula is not None:
            return [Fraction(self.formula(self.rows * scale)) / Fraction(self.formula(Fraction(self.rows)))]
        return [scale ** int(power) for power in ([] if self.exponents is None else self.exponents.ravel())]

    def value(self, node: Node, scale: Fraction) -> np.ndarray[Any, Any]:
        """The constant's value for ``scale`` times the batch."""
        old = constant(node)
        if self.exponents is None:
            return _longer(old, [int(d * scale) if axis in self.axes else d for axis, d in enumerate(old.shape)])
        made = old * np.asarray([float(factor) for factor in self.factors(scale)]).reshape(old.shape)
        return (np.rint(made) if old.dtype.kind in "iu" else made).astype(old.dtype)

    def cuts(self, old: np.ndarray[Any, Any], scale: Fraction) -> bool:
        """Whether a value of an integer dtype would become a fraction."""
        factors = self.factors(scale)
        return any((int(v) * factor).denominator != 1 for v, factor in zip(old.ravel(), factors, strict=bool(factors)))


def _longer(old: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if (old == old.flat[0]).all():
        return np.full(shape, old.flat[0], old.dtype)
    return np.arange(shape[0], dtype=old.dtype) if old.ndim == 1 else np.eye(*shape, dtype=old.dtype)


def can_be_longer(value: np.ndarray[Any, Any]) -> bool:
    """Whether a constant's further rows are known: equal elements, ``np.arange(rows)``, ``np.eye(rows)``."""
    if value.dtype.kind not in "fiub" or not value.size:
        return False
    counts = value.ndim == 1 and (value == np.arange(len(value))).all()
    unit = value.ndim == 2 and value.shape[0] == value.shape[1] and (value == np.eye(len(value))).all()
    return bool((value == value.flat[0]).all() or counts or unit)


# --------------------------------------------------------------------------- shape functions
# TensorFlow's shape functions, run on single nodes.


def inferred(twin: Graph, nodes: Sequence[Node]) -> Mapping[Node, list[Shape]]:
    """The shapes by each node's own shape function, asked alone; without nodes that it refuses."""
    left = list(nodes)
    while left:
        alone, made = Graph(), {}
        alone.library, alone.versions = twin.library, twin.versions
        for number, node in enumerate(left):
            inputs = [_operand(alone, tensor, f"n{number}/{index}") for index, tensor in enumerate(node.inputs)]
            kept = {name: value for name, value in node.raw_attrs.items() if not name.startswith("_")}
            made[node] = alone.add(node.op, f"n{number}/asked", inputs, attrs=kept)
        try:
            shapes.infer(alone)
        except GraphError as error:
            refused = next((node for node, copy in made.items() if error.node and copy.name in error.node), None)
            if refused is None:
                return {}
            left.remove(refused)
            continue
        return {node: [shape for _, shape in copy.outputs or ()] for node, copy in made.items()}
    return {}


def _operand(alone: Graph, tensor: Tensor, name: str) -> Tensor:
    value = known_vector(tensor) if tensor.dtype.name in ("int32", "int64") and len(tensor.shape or ()) < 2 else None
    if value is not None and None not in value and len(value) <= 64:
        array = np.asarray(value if tensor.shape else value[0], tensor.dtype.name)
        return alone.add(
            "Const", name, attrs={"dtype": tensor.dtype, "value": array}, outputs=[(tensor.dtype, array.shape)]
        ).out()
    known = {} if tensor.shape is None else {"shape": tensor.shape}
    return alone.add(
        "Placeholder", name, attrs={"dtype": tensor.dtype, **known}, outputs=[(tensor.dtype, tensor.shape)]
    ).out()
