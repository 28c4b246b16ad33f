"""What cores combine, as nodes of the cluster: sums, extremes, what each holds, and shares of what all hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.rewrite.step_nodes import StepNodes
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")
_BOOL = attrs.dtype("bool")
_WIDE = ("int64", "uint64")


class Combining(StepNodes):
    """Combines values over the cores, element by element.

    Args:
        graph: the graph.
        count: number of cores.
        flat: whether all values that are combined are outside of loops and branches.
    """

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the cores.

        Raises:
            ConversionError: values of that dtype cannot be summed over cores.
        """
        kind = tensor.dtype
        if kind.name in _WIDE:
            return self._reduced(self.stack(tensor), "Sum", tensor)
        wire = self._wire(kind)
        if wire is None:
            raise ConversionError(f"a value of dtype {kind} cannot be summed over cores", node=tensor.node,
                                  origin=self.graph.source, fix="cast it to float32 first")  # fmt: skip
        groups = self.constant([list(range(self.count))], _INT32, tensor, name="CrossReplicaSum/group_assignment")
        sent = self.cast(tensor, wire)
        total = self.add("CrossReplicaSum", "CrossReplicaSum", [sent, groups], {"T": wire}, wire, tensor.shape, tensor)
        return self.cast(total, kind)

    def sum_of_first(self, shape: Tensor) -> Tensor:
        """A shape whose first number is summed over the cores: the others are the same on each."""
        rank = int((shape.shape or (1,))[0] or 1)
        return self.sum(shape) if rank == 1 else self.sizes_of_all(shape, [place == 0 for place in range(rank)])

    def sizes_of_all(self, shape: Tensor, rows: Sequence[bool]) -> Tensor:
        """A shape as the whole batch has it, of which the data of a step tell a part: of its other numbers all cores have one.

        So are numbers of rows in one vector with values that every core has: no shape, they may be fractions.

        Args:
            shape: that of what a core holds, a vector.
            rows: which of its numbers count rows.
        """
        kind = shape.dtype
        if kind.floating:
            factors = self.constant(np.asarray([self.count if of_rows else 1 for of_rows in rows]), kind, shape)
            return self.add(
                "Mul", f"{shape.node.name}/of_all_cores", [shape, factors], {"T": kind}, kind, shape.shape, shape
            )
        return self.divided(self.sum(shape), [1 if of_rows else self.count for of_rows in rows])

    def divided(self, numbers: Tensor, by: Sequence[int]) -> Tensor:
        """Whole numbers, each divided by another one."""
        kind = numbers.dtype
        divisors = np.asarray(by).reshape([int(size or len(by)) for size in numbers.shape or (None,)])
        return self.add("FloorDiv", f"{numbers.node.name}/of_each", [numbers, self.constant(divisors, kind, numbers)],
                        {"T": kind}, kind, numbers.shape, numbers)  # fmt: skip

    def _wire(self, kind: DType) -> DType | None:
        """The dtype in which cores sum values of a dtype."""
        if kind.name in ops.REDUCE_DTYPES:
            return kind
        return _INT32 if kind.name in ("bool", "int8", "uint8", "int16", "uint16") else None

    def extreme(self, tensor: Tensor, op: str) -> Tensor:
        """The largest (``max``) or smallest (``min``) value over the cores, element by element; of flags any, or all."""
        kind = tensor.dtype
        numbers = self.cast(tensor, _INT32) if kind.name == "bool" else tensor
        return self.cast(self._reduced(self.stack(numbers), {"max": "Max", "min": "Min"}[op], tensor), kind)

    def _reduced(self, every: Tensor, op: str, tensor: Tensor) -> Tensor:
        """What all cores hold of a tensor, reduced over the cores."""
        axis = self.constant([0], _INT32, tensor)
        return self.add(op, f"{tensor.node.name}/of_all_cores", [every, axis],
                        {"T": every.dtype, "Tidx": _INT32, "keep_dims": False}, every.dtype, tensor.shape, tensor)  # fmt: skip

    def stack(self, tensor: Tensor) -> Tensor:
        """What each core holds, along a new dimension 0, on every core."""
        kind = tensor.dtype
        if tensor.shape is None or None in tensor.shape:
            shape: Sequence[int | None] = tensor.shape or ()
            wide = self.add("ExpandDims", f"{tensor.node.name}/wide", [tensor, self.constant(0, _INT32, tensor)],
                            {"T": kind, "Tdim": _INT32}, kind, (1, *shape), tensor)  # fmt: skip
        else:
            shape = static_shape(self.graph, tensor)
            wide = self.reshape(tensor, [1, *static_shape(self.graph, tensor)])
        if kind.name == "bool":
            return self.cast(self.sum(self._at_own_place(self.cast(wide, _INT32), shape)), kind)
        if kind.name in _WIDE:  # no sum over cores takes 64 bits: both halves are sent
            halves = self._bits(wide, _INT32, (1, *shape, 2))
            return self._bits(self.sum(self._at_own_place(halves, (*shape, 2))), kind, (self.count, *shape))
        return self.sum(self._at_own_place(wide, shape))

    def _bits(self, tensor: Tensor, kind: DType, shape: Sequence[int | None]) -> Tensor:
        return self.add("Bitcast", f"{tensor.node.name}/{kind.name}", [tensor], {"T": tensor.dtype, "type": kind}, kind,
                        tuple(shape), tensor)  # fmt: skip

    def _at_own_place(self, wide: Tensor, shape: Sequence[int | None]) -> Tensor:
        """Zeros but at this core's place; what is no number elsewhere does no harm there."""
        kind, whole = wide.dtype, (self.count, *shape)
        numbers = self.constant(np.arange(self.count, dtype="int32").reshape(-1, *[1] * len(shape)), _INT32, wide)
        own = self.add("Equal", f"{wide.node.name}/own_place", [numbers, self.own_id(wide)],
                       {"T": _INT32, "incompatible_shape_error": True}, _BOOL, (self.count, *[1] * len(shape)), wide)  # fmt: skip
        zero = self.constant(np.zeros(()), kind, wide)
        return self.add("SelectV2", f"{wide.node.name}/spread", [own, wide, zero], {"T": kind}, kind, whole, wide)

    def share(self, tensor: Tensor) -> Tensor:
        """A part of a replicated value; the parts of all cores sum up to it. Of whole numbers core 0 has all."""
        kind = tensor.dtype
        if kind.floating:
            return self.scaled(tensor, 1.0 / self.count)
        return self.first(tensor)

    def scaled(self, tensor: Tensor, factor: float) -> Tensor:
        """A tensor times a number."""
        number = self.constant(np.asarray(factor), tensor.dtype, tensor)
        return self.add("Mul", f"{tensor.node.name}/share", [tensor, number], {"T": tensor.dtype}, tensor.dtype,
                        tensor.shape, tensor)  # fmt: skip

    def first(self, tensor: Tensor) -> Tensor:
        """The value on core 0, zeros on all others."""
        zero = self.constant(np.zeros(()), tensor.dtype, tensor)
        own = self.add("Equal", f"{tensor.node.name}/on_core_0", [self.own_id(tensor), self.constant(0, _INT32, tensor)],
                       {"T": _INT32, "incompatible_shape_error": True}, _BOOL, (), tensor)  # fmt: skip
        return self.add("SelectV2", f"{tensor.node.name}/of_core_0", [own, tensor, zero], {"T": tensor.dtype},
                        tensor.dtype, tensor.shape, tensor)  # fmt: skip


def static_shape(graph: Graph, tensor: Tensor) -> list[int]:
    """The shape of a tensor; an error where it is open."""
    shape = tensor.shape
    if shape is None or None in shape:
        raise ConversionError(f"the rows of '{tensor}' are read by all cores, and its shape is open", node=tensor.node,
                              origin=graph.source, fix="give it a fixed shape")  # fmt: skip
    return [int(d or 0) for d in shape]
