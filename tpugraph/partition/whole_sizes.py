"""Shapes and sizes of what holds the whole batch on every core: written anew in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.placements import Entries, Held, Partial, Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, Size, at, depends_on_data, follows_batch
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.partition.collectives import Collectives
from tpugraph.partition.scaled_shapes import scale, told_of
from tpugraph.partition.told_bounds import PARTS, ToldBounds

_LISTS = frozenset(op for op, held in ops.LIST_CONTENTS.items() if held.length is not None)
_TOLD_BOUNDS = PARTS | ops.SPLITS | ops.RANGES | ops.BROADCAST_AXES | ops.CONCAT_OFFSETS | _LISTS
"""Ops told sizes that are not those of their output, where a negative one has a meaning."""

_ELEMENT_SHAPES = ("element_shape", "element_shape_except0")
"""Attributes that say the shape of the elements of a container, or that but for its first dimension."""


@dataclass(frozen=True)
class WholeSizes:
    """The sizes of one step on so many cores.

    Attributes:
        placing: the solved analysis.
        count: number of cores.
    """

    placing: Placing
    count: int

    @cached_property
    def _told(self) -> ToldBounds:
        return ToldBounds(self.placing, self.count)

    def readers(self) -> dict[Node, bool]:
        """The nodes that are told sizes, and whose output, operands or sizes are of the whole batch.

        True of those that have the whole batch in their output or in what they read, before their operands are edited.
        """
        told = [node for node in self.placing.verdicts if node.op in ops.TOLD_SIZES and node.outputs]
        counted = self._shapes_of_whole()
        return {
            node: whole for node in told
            if (whole := self._is_whole(node))
            or any(node.inputs[i].node in counted for i in _size_operands(node))
            or self._compares_one_row(node)
            or self._lays_flat(node)
        }  # fmt: skip

    def _compares_one_row(self, node: Node) -> bool:
        """Whether shapes are compared in which one row of a core's batch looks like a dimension to broadcast."""
        sizes = [s for i in _size_operands(node) for s in self.placing.sizes(node.inputs[i]) or ()]
        return node.op in ops.BROADCAST_AXES and any(
            isinstance(s, Poly) and s.at(self.placing.d.rows) == 1 for s in sizes
        )

    def _lays_flat(self, node: Node) -> bool:
        """Whether rows are laid one behind the other, or made again of what lies so: of how many, each core knows its own.

        So is what lies so already, where the number of all cores says what shape it is given.
        """
        if node.op not in ops.RESHAPES:
            return False
        kinds = {type(self.placing.read(node.inputs[0])), type(self.placing.made(node.out()))}
        return kinds == {Shard, Entries} or (
            kinds == {Entries} and isinstance(self.placing.read(node.inputs[1]), Partial)
        )

    def _is_whole(self, node: Node) -> bool:
        made = map(node.out, range(len(node.outputs or ())))
        return (
            any(map(self._whole_axes, made))
            or self._reads_whole(node)
            or self._steps_by_rows(node)
            or self._told.of_other_dimensions(node)
        )

    def _steps_by_rows(self, node: Node) -> bool:
        """Whether a range of a fixed length, as that of where each of some lists of rows begins, goes by sizes of the batch."""
        if node.op not in ops.RANGES or not isinstance(self.placing.made(node.out()), Replicate):
            return False
        return any(isinstance(s, Poly) for t in node.inputs for s in self.placing.sizes(t) or ())

    def _shapes_of_whole(self) -> Mapping[Node, None]:
        """The nodes whose numbers are made of the shape of what holds the whole batch on every core."""
        shapes = [n for n in self.placing.verdicts if n.op in ops.SHAPE_OF and any(map(self._whole_axes, n.inputs))]
        found: dict[Node, None] = {}
        while shapes:
            found |= self.placing.graph.descendants(shapes, data_only=True)
            shapes = self._taken_back(found)
        return found

    def _taken_back(self, counted: Mapping[Node, None]) -> list[Node]:
        """The nodes that take such numbers out of a container, as the gradient of a loop takes the shapes that the loop had."""
        handles = self.placing.d.handles
        puts = [n for n in counted if n.op in ops.CONTENTS and ops.CONTENTS[n.op].puts is not None]
        filled = {handles[n.inputs[0]] for n in puts if n.inputs[0] in handles}
        takes = [n for n in self.placing.verdicts if n.op in ops.CONTENTS and ops.CONTENTS[n.op].takes is not None]
        return [n for n in takes if n not in counted and handles.get(n.inputs[0]) in filled] if filled else []

    def tell_shapes(self) -> None:
        """Record the shapes that tensors with a whole batch have from now on."""
        for node in self.placing.verdicts:
            outputs = [(t.dtype, self._shape(t)) for t in map(node.out, range(len(node.outputs or ())))]
            if outputs == node.outputs:
                continue
            if node.op in ops.CONSTANTS:
                self._widen(node, outputs[0][1])
            else:
                self.placing.graph.set_outputs(node, outputs)
        self._tell_containers()

    def _widen(self, node: Node, shape: Shape) -> None:
        """Give a constant of equal elements the size of the whole batch along dimensions that no core has rows of."""
        value = constant(node)
        if self.placing.d.level(node.out()) is None or not value.size or shape is None or None in shape:
            return
        self.placing.graph.set_attr(node, "value", np.full(shape, value.ravel()[0], value.dtype))
        self.placing.graph.set_outputs(node, [(node.out().dtype, shape)])

    def _tell_containers(self) -> None:
        """Containers, and what is taken out of them, say which shape an element has."""
        placing = self.placing
        for node in placing.verdicts:
            name = next(filter(node.has_attr, _ELEMENT_SHAPES), None) if node.op in ops.CONTENTS else None
            if name is None:
                continue
            handle = node.out() if node.op in ops.CONTAINERS else node.inputs[0]
            placement = placing.read(handle)
            held = placing.d.containers.get(placing.d.handles.get(handle, handle))
            element = placing.held.get(placement.key) if isinstance(placement, Held) else None
            if held is None or held.dims is None:
                continue
            own = element.axis if isinstance(element, Shard) else None
            dims = [placing.final(s) for s in held.dims]
            if not any(isinstance(s, Poly) and a != own for a, s in enumerate(dims)):
                continue
            rows = placing.d.rows
            local = tuple(at(s, rows if a == own else rows * self.count) for a, s in enumerate(dims))
            placing.graph.set_attr(node, name, attrs.encode(local[1:] if name.endswith("except0") else local))

    def _shape(self, tensor: Tensor) -> Shape:
        dims = self.placing.d.dims(tensor)
        # What data tell TensorFlow may have found of one core's rows, where it is made of their numbers alone.
        told = any(map(depends_on_data, dims or ()))
        if tensor.shape is not None and None not in tensor.shape and not told and not self._whole_axes(tensor):
            return tensor.shape
        if dims is None:
            return tensor.shape
        return tuple(s if s >= 0 else None for s in self._local(tensor))

    def _reads_whole(self, node: Node) -> bool:
        """Whether an operand is read with the whole batch in it."""
        wants = self.placing.verdicts[node].wants
        for index, tensor in enumerate(node.inputs):
            placement = wants.get(index, self.placing.read(tensor))
            sizes, parts = self.placing.d.dims(tensor) or (), node.op in PARTS
            if isinstance(placement, Replicate | Partial) and any(_grows(size, told=parts) for size in sizes):
                return True
        return False

    def _whole_axes(self, tensor: Tensor) -> list[int]:
        axes = self.placing.d.axes(tensor)
        placement = self.placing.made(tensor) if axes else None
        own = placement.axis if isinstance(placement, Shard) else None
        return [a for a in axes if a != own]

    def _local(self, tensor: Tensor) -> list[int]:
        """The dimensions that a tensor has on a core."""
        placement = self.placing.made(tensor) or self.placing.read(tensor)
        own = placement.axis if isinstance(placement, Shard) else None
        rows = self.placing.d.rows
        return [at(s, rows if a == own else rows * self.count) for a, s in enumerate(self.placing.dims(tensor) or [])]

    def resize(self, node: Node, collectives: Collectives, *, whole: bool) -> None:
        """Write the sizes anew that a node is told; those of the whole batch where it has that, or reads it."""
        graph, placing = self.placing.graph, self.placing
        shape = self._local(node.out())
        told: dict[int, list[int]] = {}
        shaped_by = ops.record(node.op).shaped_by
        if node.op in ops.TILES:
            told[1] = [a // max(b, 1) for a, b in zip(shape, self._local(node.inputs[0]), strict=True)]
        elif (rows := ops.record(node.op).rows_operand) is not None:
            told[rows] = shape[:1]
        elif node.op in ops.ONE_HOTS:
            axis = int(node.attr("axis", -1))
            told[1] = [shape[axis]]
        elif node.op in _TOLD_BOUNDS:
            told = self._bounds(node, whole=whole)
            self._scale_bounds(node, collectives, whole=whole)
        elif node.op in ops.DIAGONALS:
            told = {i: [shape[i - 4]] for i in (2, 3) if placing.d.numbers(node.inputs[i]) != [-1]}
        if shaped_by is not None:
            told[shaped_by] = shape
        for index, value in told.items():
            operand = node.inputs[index]
            one_open = node.op in ops.RESHAPES and value.count(-1) == 1  # TensorFlow finds it
            if (value is shape or node.op not in _TOLD_BOUNDS) and min(value, default=0) < 0 and not one_open:
                scale(placing, node, index, value, collectives)
                continue
            if operand.node.op in ops.CONSTANTS and constant(operand.node).ravel().tolist() == value:
                continue
            form = (-1, 2) if node.op in ops.PADS else () if operand.shape == () else (-1,)
            array = np.asarray(value).reshape(form)
            made = collectives.instead(operand, array, name=f"{node.name}/of_all_cores")
            graph.set_input(node, index, made)

    def _bounds(self, node: Node, *, whole: bool) -> dict[int, list[int]]:
        """The bounds that a node is told, by operand, where they are known and follow the batch, or count from the end of it."""
        told: dict[int, list[int]] = {}
        for index in _size_operands(node):
            sizes = self.placing.sizes(node.inputs[index]) or []
            counted = self._told.from_end(node, index, sizes) if whole else sizes
            if counted != sizes or any(isinstance(s, Poly) for s in sizes):
                told[index] = self._told.numbers(node, counted, whole=whole or node.op in ops.BROADCAST_AXES)
        return told

    def _scale_bounds(self, node: Node, collectives: Collectives, *, whole: bool) -> None:
        """Count the bounds of which data tell some as a node needs them that takes parts, or puts something around.

        So of two shapes that are compared where the other is counted so. The shape that a gradient of a slice is told has a number
        for each dimension, and is that of the output.
        """
        compares = node.op in ops.BROADCAST_AXES and any(self.placing.sizes(tensor) for tensor in node.inputs)
        shaped_by = ops.record(node.op).shaped_by
        for index in _size_operands(node) if compares or node.op in PARTS else ():
            if index != shaped_by and self.placing.sizes(node.inputs[index]) is None:
                bounds = self._told.numbers(node, told_of(self.placing, node.inputs[index]), whole=whole or compares)
                scale(self.placing, node, index, bounds, collectives)


def _grows(size: Size, *, told: bool) -> bool:
    """Whether there is more of what has such a size where the batch is larger: rows, or, if that is asked, as much as data say."""
    return follows_batch(size) or (told and depends_on_data(size))


def _size_operands(node: Node) -> tuple[int, ...]:
    return ops.record(node.op).size_operands(len(node.inputs))
