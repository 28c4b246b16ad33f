"""Writes a core's local sizes and shapes, from placements.

Shapes that the graph computes stay global; only the size operands of nodes that produce sharded values become local.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis.placements import Entries, Held, Placement, Shard
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.rewrite.collectives import Collectives
from tpugraph.rewrite.step_nodes import REPLICATED
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing
from tpugraph.support.errors import ConversionError

_ELEMENT_SHAPES = ("element_shape", "element_shape_except0")


def local_shape(shape: Shape, placement: Placement | None, cores: int) -> Shape:
    """The local shape of a tensor with a global shape and a placement."""
    if shape is None or not isinstance(placement, Shard) or shape[placement.axis] is None:
        return shape
    return tuple((size or 0) // cores if axis == placement.axis else size for axis, size in enumerate(shape))


class LocalSizes:
    """Rewrites the sizes of one step."""

    def __init__(self, placing: Placing, collectives: Collectives) -> None:
        self.placing = placing
        self.graph = placing.graph
        self.c = collectives
        self._shapes = {n: [shape for _, shape in n.outputs or ()] for n in placing.order}

    def own(self, size: int) -> int:
        """The local size of a sharded dimension of ``size`` elements."""
        return size // self.placing.cores

    def write(self) -> None:
        """Rewrite the size operands of all nodes that build or split sharded values, then their inferred shapes."""
        nodes = [node for node in self.placing.order if node.outputs]
        for node in nodes:
            if node.op in ops.SHAPES | ops.SIZES:
                self._make_shape_global(node)
        for node in nodes:
            self._resize(node)
        for node in nodes:
            self._tell_elements(node)
        for node in [*nodes, *{t.node: None for t in self.placing.seeds}]:
            outputs = [(kind, self._local(node, port, shape)) for port, (kind, shape) in enumerate(node.outputs or ())]
            if outputs != node.outputs:
                self.graph.expect_outputs(node, outputs)

    def _local(self, node: Node, port: int, shape: Shape) -> Shape:
        tensor = node.out(port)
        placement = self.placing.made(tensor) or self.placing.seeds.get(tensor)
        verdict = self.placing.verdicts.get(node)
        if verdict is not None and port in verdict.cuts:
            return shape
        if isinstance(placement, Shard) and shape is not None and (shape[placement.axis] or 0) % self.placing.cores:
            raise ConversionError(f"'{tensor}' has {shape[placement.axis]} rows along dimension {placement.axis}, which do not "
                                  f"divide over {self.placing.cores} cores", node=node, origin=self.graph.source)  # fmt: skip
        return local_shape(shape, placement, self.placing.cores)

    def _make_shape_global(self, node: Node) -> None:
        """Make the local Shape of a sharded tensor global for every reader."""
        for port, operand in enumerate(node.inputs):
            rows, tensor = self.placing.read(operand), node.out(port)
            uses = node.uses(port)
            if not isinstance(rows, Shard) or not uses:
                continue
            shape = operand.shape
            if shape is not None and None not in shape:
                value = np.prod(np.asarray(shape), dtype=np.int64) if node.op in ops.SIZES else np.asarray(shape)
                made = self.c.instead(tensor, value, name=f"{node.name}/of_the_batch")
            else:
                times: Sequence[int] | int = self.placing.cores
                if node.op in ops.SHAPES:
                    times = [self.placing.cores if axis == rows.axis else 1 for axis in range(len(shape or ()))]
                factor = self.c.constant(np.asarray(times), tensor.dtype, tensor)
                made = self.c.add(tensor, "Mul", "of_the_batch", [tensor, factor], tensor.shape, **REPLICATED)
            for use in uses:
                self.graph.set_input(use.node, use.index, made)

    def _resize(self, node: Node) -> None:
        made = self.placing.made(node.out())
        record = ops.record(node.op)
        if node.op in ops.SLICES | ops.SLICE_GRADIENTS | ops.PADS | ops.SPLITS:
            self._resize_part(node)
        if not isinstance(made, Shard):
            return
        if node.op in ops.IDENTITIES and node.has_attr("shape"):  # EnsureShape
            self.graph.set_attr(node, "shape", attrs.encode(local_shape(node.attr("shape"), made, self.placing.cores)))
        # a Squeeze without axes would also remove the dimension of the rows where the core has one row
        if node.op in ops.SQUEEZES and not node.attr("squeeze_dims", ()):
            ones = [axis for axis, size in enumerate(node.inputs[0].shape or ()) if size == 1]
            self.graph.set_attr(node, "squeeze_dims", attrs.encode(ones))
        if record.shaped_by is not None:
            self._tell(node, record.shaped_by, self._shapes[node][0], made)
        elif record.rows_operand is not None and made.axis == 0:
            self._tell(node, record.rows_operand, (self._shapes[node][0] or (None,))[:1], made)

    def _tell(self, node: Node, index: int, shape: Shape, made: Shard) -> None:
        """Make a size operand local, where the node's output is sharded."""
        operand, cores = node.inputs[index], self.placing.cores
        if self.placing.read(operand) == Entries("shape"):
            return
        local = (
            None if shape is None else [d and self.own(d) if axis == made.axis else d for axis, d in enumerate(shape)]
        )
        opened = None if local is None else sum(size is None for size in local)
        if local is not None and (opened == 0 or (opened == 1 and node.op in ops.RESHAPES)):
            value = np.asarray([-1 if size is None else size for size in local])
            self._set(node, index, value if operand.shape != () else value[0])
            return
        rank = (operand.shape or (None,))[0] if operand.shape else 0
        by: Sequence[int] = [cores if axis == made.axis else 1 for axis in range(rank or made.axis + 1)]
        divisor = self.c.constant(np.asarray(by if operand.shape != () else cores), operand.dtype, operand)
        made_of = self.c.add(operand, "FloorDiv", "own_sizes", [operand, divisor], operand.shape, scope=node.name)
        self.graph.set_input(node, index, made_of)

    def _set(self, node: Node, index: int, value: np.ndarray) -> None:
        operand = node.inputs[index]
        known = integers(operand)
        if operand.node.op in ops.CONSTANTS and known == np.ravel(value).tolist():
            return
        made = self.c.instead(operand, value, name=f"{node.name}/own_sizes")
        self.graph.set_input(node, index, made)

    def _resize_part(self, node: Node) -> None:
        gradient, record, count = node.op in ops.SLICE_GRADIENTS, ops.record(node.op), len(node.inputs)
        rows = self.placing.read(node.inputs[record.data_operands(count)[0]])
        if not isinstance(rows, Shard) or not isinstance(self.placing.made(node.out()), Shard):
            return
        if node.op in ops.PLAIN_SLICES:
            self._resize_slice(node, rows)
        elif node.op in ops.PADS:
            amounts = integers(node.inputs[1])
            if amounts is not None and any(amounts[2 * rows.axis : 2 * rows.axis + 2]):
                value = np.asarray(amounts).reshape(-1, 2)
                value[rows.axis] = [self.own(size) for size in value[rows.axis]]
                self._set(node, 1, value)
        elif node.op in ops.SPLITS:
            self._resize_split(node, rows)
        elif node.op in ops.STRIDED_SLICES | ops.SLICE_GRADIENTS:
            self._resize_strided(node, rows, gradient=gradient)

    def _resize_split(self, node: Node, rows: Shard) -> None:
        record, count = ops.record(node.op), len(node.inputs)
        (data,), named = record.data_operands(count), record.axis_operand(count)
        axis = None if named is None else integers(node.inputs[named])
        for told in record.size_operands(count):
            sizes = integers(node.inputs[told])
            if sizes is not None and axis is not None and axis[0] % len(node.inputs[data].shape or (1,)) == rows.axis:
                self._set(node, told, np.asarray([size if size < 0 else self.own(size) for size in sizes]))

    def _resize_slice(self, node: Node, rows: Shard) -> None:
        begin, size = integers(node.inputs[1]), known_vector(node.inputs[2])
        before, after = (node.inputs[0].shape or ())[rows.axis], (self._shapes[node][0] or ())[rows.axis]
        if before == after or begin is None:
            if size is not None and None not in size:
                self._set(node, 2, np.asarray([-1 if axis == rows.axis else s for axis, s in enumerate(size)]))
            else:
                self._tell(node, 2, self._shapes[node][0], rows)
            return
        self._set(node, 1, np.asarray([self.own(b) if a == rows.axis else b for a, b in enumerate(begin)]))
        self._tell(node, 2, self._shapes[node][0], rows)

    def _resize_strided(self, node: Node, rows: Shard, *, gradient: bool) -> None:
        made = self.placing.made(node.out())
        shape = self._shapes[node][0] if gradient else node.inputs[0].shape
        part = node.inputs[4].shape if gradient else self._shapes[node][0]
        assert isinstance(made, Shard)
        for axis, target, place in factors.sliced_places(node, len(shape or ())) or ():
            whole_rows, part_rows = (made, rows) if gradient else (rows, made)
            if axis != whole_rows.axis or target != part_rows.axis or place is None:
                continue
            if (shape or ())[axis] == (part or ())[target]:
                for mask in ("begin_mask", "end_mask"):
                    self.graph.set_attr(node, mask, int(node.attr(mask, 0)) | 1 << place)
                continue
            for index, mask in (
                ((2, "begin_mask"), (3, "end_mask")) if gradient else ((1, "begin_mask"), (2, "end_mask"))
            ):
                bounds = integers(node.inputs[index - gradient])
                if bounds is not None and not int(node.attr(mask, 0)) >> place & 1:
                    bounds[place] = self.own(bounds[place]) if bounds[place] > 0 else -self.own(-bounds[place])
                    self._set(node, index - gradient, np.asarray(bounds))

    def _tell_elements(self, node: Node) -> None:
        contents = ops.CONTENTS.get(node.op)
        if contents is None:
            return
        index = contents.shape if contents.element_shape is None else contents.element_shape
        makes = node.op in ops.CONTAINERS or (index is not None and contents.takes is None)
        handle = node.out() if makes else node.inputs[0]
        placement = self.placing.read(handle)
        held = self.placing.held.get(placement.key) if isinstance(placement, Held) else None
        if not isinstance(held, Shard):
            return
        for name in filter(node.has_attr, _ELEMENT_SHAPES):
            shape = node.attr(name)
            if shape is None:
                continue
            axis = held.axis - (name == "element_shape_except0")
            told = tuple(None if a == axis else size for a, size in enumerate(shape)) if axis >= 0 else shape
            self.graph.set_attr(node, name, attrs.encode(told))
        if index is not None:
            sizes = known_vector(node.inputs[index])
            if contents.takes is not None:  # where the operand is computed
                sizes = sizes or list(self._shapes[node][contents.takes] or ())[int(contents.stacked) :]
            if sizes is not None and held.axis < len(sizes) and None not in sizes:
                local = [s if a != held.axis or (s or 0) < 0 else self.own(s or 0) for a, s in enumerate(sizes)]
                self._set(node, index, np.asarray(local))
