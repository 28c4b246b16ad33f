"""Collectives as nodes of the cluster: what cores combine, and the rows or entries of all of them, or this core's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import REPLICATED_ATTR
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.placements import Shard
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.rewrite.step_nodes import StepNodes
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")
_BOOL = attrs.dtype("bool")
_WIDE = ("int64", "uint64")


class Collectives(StepNodes):
    """Combines values, rows and entries over the cores, inside the cluster."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the cores."""
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

    # ------------------------------------------------------------------ rows and entries

    def gather(self, tensor: Tensor, rows: Shard) -> Tensor:
        """The rows of all cores, in the order of the whole batch, on every core."""
        if tensor.shape is None or None in tensor.shape:
            return self._gather_open(tensor, rows)
        shape = static_shape(self.graph, tensor)
        every = self.stack(tensor)
        local = shape[rows.axis] // rows.outer
        apart = [*shape[: rows.axis], rows.outer, local, *shape[rows.axis + 1 :]]
        if math.prod(apart[: rows.axis + 1]) != 1:
            split = self.reshape(every, [self.count, *apart])
            order = [*range(1, rows.axis + 2), 0, *range(rows.axis + 2, len(apart) + 1)]
            every = self.transpose(split, order)
        whole = [*shape[: rows.axis], shape[rows.axis] * self.count, *shape[rows.axis + 1 :]]
        return self.reshape(every, whole)

    def _gather_open(self, tensor: Tensor, rows: Shard) -> Tensor:
        """As ``gather``, of rows with dimensions that data say, which are equally long on all cores."""
        shape, axis = tensor.shape, rows.axis
        if shape is None or rows.outer > 1:
            raise ConversionError(f"all rows of '{tensor}' are read, and its rank is not known", node=tensor.node,
                                  origin=self.graph.source, fix="give it a shape: tf.ensure_shape, or tf.reshape")  # fmt: skip
        every = self.stack(tensor)
        if axis:
            every = self.transpose(every, [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)])
        times = self.constant([self.count if place == axis else 1 for place in range(len(shape))], _INT32, tensor)
        whole = self.add("Mul", f"{tensor.node.name}/of_the_batch", [self.shape(tensor), times],
                         {"T": _INT32, REPLICATED_ATTR: True}, _INT32, (len(shape),), tensor)  # fmt: skip
        made = tuple(size and size * (self.count if place == axis else 1) for place, size in enumerate(shape))
        return self.add("Reshape", f"{tensor.node.name}/gathered", [every, whole], {"T": tensor.dtype, "Tshape": _INT32},
                        tensor.dtype, made, tensor)  # fmt: skip

    def own_rows(self, tensor: Tensor, rows: Shard) -> Tensor:
        """This core's rows of a value that every core holds whole; other dimensions may be open where the rows are one batch."""
        if rows.outer == 1 and tensor.shape is not None and tensor.shape[rows.axis] is None:
            return self._own_open(tensor, rows.axis)
        told = rows.outer == 1 and tensor.shape is not None and tensor.shape[rows.axis] is not None
        shape = [d or 0 for d in tensor.shape or ()] if told else static_shape(self.graph, tensor)
        piece = shape[rows.axis] // rows.outer // self.count
        apart = tensor
        axis = rows.axis
        if rows.outer > 1:
            apart = self.reshape(tensor, [*shape[:axis], rows.outer, shape[axis] // rows.outer, *shape[axis + 1 :]])
            axis += 1
        rank = len(apart.shape or ())
        unit = np.zeros(rank, "int32")
        unit[axis] = piece
        begin = self.add("Mul", f"{tensor.node.name}/begin", [self.constant(unit, _INT32, tensor), self.own_id(tensor)],
                         {"T": _INT32}, _INT32, (rank,), tensor)  # fmt: skip
        made = (*(apart.shape or ())[:axis], piece, *(apart.shape or ())[axis + 1 :])
        size = self.constant([-1 if d is None else d for d in made], _INT32, tensor)
        cut = self.add("Slice", f"{tensor.node.name}/own_rows", [apart, begin, size],
                       {"T": tensor.dtype, "Index": _INT32}, tensor.dtype, made, tensor)  # fmt: skip
        if rows.outer == 1:
            return cut
        return self.reshape(cut, [*shape[: rows.axis], rows.outer * piece, *shape[rows.axis + 1 :]])

    def first_rows(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """As many rows from the first on, the same on every core."""
        cut = [self.constant(np.asarray(numbers), _INT32, tensor) for numbers in ([0] * len(shape), shape)]
        return self.add("Slice", f"{tensor.node.name}/own_rows", [tensor, *cut], {"T": tensor.dtype, "Index": _INT32},
                        tensor.dtype, tuple(shape), tensor)  # fmt: skip

    def _own_open(self, tensor: Tensor, axis: int) -> Tensor:
        """As ``own_rows``, of as many rows as data say."""
        rank = len(tensor.shape or ())
        by = self.constant([self.count if place == axis else 1 for place in range(rank)], _INT32, tensor)
        size = self.add(
            "FloorDiv", f"{tensor.node.name}/own_size", [self.shape(tensor), by], {"T": _INT32}, _INT32, (rank,), tensor
        )
        unit = self.constant([int(place == axis) for place in range(rank)], _INT32, tensor)
        ahead = self.add(
            "Mul", f"{tensor.node.name}/ahead", [unit, self.own_id(tensor)], {"T": _INT32}, _INT32, (rank,), tensor
        )
        begin = self.add("Mul", f"{tensor.node.name}/begin", [ahead, size], {"T": _INT32}, _INT32, (rank,), tensor)
        return self.add("Slice", f"{tensor.node.name}/own_rows", [tensor, begin, size], {"T": tensor.dtype, "Index": _INT32},
                        tensor.dtype, tensor.shape, tensor)  # fmt: skip

    def numbered(self, tensor: Tensor, shift: int | np.ndarray[Any, Any]) -> Tensor:
        """Numbers of this core's rows as those of the whole batch; ``shift`` is how many a core has, and broadcasts."""
        kind = tensor.dtype
        step = self.constant(np.asarray(shift), kind, tensor)
        own = self.cast(self.own_id(tensor), kind)
        shape = np.shape(shift)
        offset = self.add("Mul", f"{tensor.node.name}/offset", [step, own], {"T": kind}, kind, shape, tensor)
        return self.add("AddV2", f"{tensor.node.name}/of_the_batch", [tensor, offset], {"T": kind}, kind, tensor.shape,
                        tensor)  # fmt: skip

    # ------------------------------------------------------------------ any number of entries

    def gather_entries(self, tensor: Tensor, most: int | None = None) -> Tensor:
        """The entries of all cores, however many each has: padded to ``most``, gathered, the padding taken out."""
        bound = bounded_shape(tensor)
        if bound and bound[0] is None and most is not None:
            bound = (most, *bound[1:])
        if bound is None or None in bound or not bound:
            return self._gather_counted(tensor)
        limit = int(bound[0] or 0)
        if tensor.shape is not None and tensor.shape[0] == limit:
            return self.gather(tensor, Shard(0))
        count = self._first(self.shape(tensor))
        missing = self.add("Sub", f"{tensor.node.name}/missing", [self.constant(limit, _INT32, tensor), count],
                           {"T": _INT32}, _INT32, (), tensor)  # fmt: skip
        first = self.add("Pack", f"{tensor.node.name}/padding/0", [self.constant(0, _INT32, tensor), missing],
                         {"N": 2, "T": _INT32, "axis": 0}, _INT32, (2,), tensor)  # fmt: skip
        rest = [self.constant([0, 0], _INT32, tensor) for _ in bound[1:]]
        padding = self.add("Pack", f"{tensor.node.name}/padding", [first, *rest], {"N": len(bound), "T": _INT32, "axis": 0},
                           _INT32, (len(bound), 2), tensor)  # fmt: skip
        padded = self.add("Pad", f"{tensor.node.name}/padded", [tensor, padding],
                          {"T": tensor.dtype, "Tpaddings": _INT32}, tensor.dtype, bound, tensor)  # fmt: skip
        every = self.gather(padded, Shard(0))
        counts = self.stack(count)
        used = self.add("Less", f"{tensor.node.name}/used",
                        [self.constant(np.arange(limit)[None, :], _INT32, tensor), self.reshape(counts, [self.count, 1])],
                        {"T": _INT32}, _BOOL, (self.count, limit), tensor)  # fmt: skip
        flat = self.reshape(used, [self.count * limit])
        where = self.add("Where", f"{tensor.node.name}/where", [flat], {"T": _BOOL}, _INT64, (None, 1), tensor)
        return self.add("GatherNd", f"{tensor.node.name}/gathered", [every, where],
                        {"Tparams": tensor.dtype, "Tindices": _INT64}, tensor.dtype, (None, *bound[1:]), tensor)  # fmt: skip

    def _gather_counted(self, tensor: Tensor) -> Tensor:
        """As ``gather_entries``, without a bound: padded to as many as the core with the most has."""
        rank = len(tensor.shape or (None,))
        length = self.shape(tensor)
        count = self._first(length)
        most = self.extreme(count, "max")
        missing = self.add("Sub", f"{tensor.node.name}/missing", [most, count], {"T": _INT32}, _INT32, (), tensor)
        pack = {"T": _INT32, "axis": 0}
        first = self.add("Pack", f"{tensor.node.name}/padding/0", [self.constant(0, _INT32, tensor), missing], {"N": 2, **pack},
                         _INT32, (2,), tensor)  # fmt: skip
        rest = [self.constant([0, 0], _INT32, tensor) for _ in range(rank - 1)]
        padding = self.add(
            "Pack", f"{tensor.node.name}/padding", [first, *rest], {"N": rank, **pack}, _INT32, (rank, 2), tensor
        )
        open_shape = (None, *(tensor.shape or (None,))[1:])
        padded = self.add("Pad", f"{tensor.node.name}/padded", [tensor, padding], {"T": tensor.dtype, "Tpaddings": _INT32},
                          tensor.dtype, open_shape, tensor)  # fmt: skip
        every = self._gather_open(padded, Shard(0))
        start, one = self.constant(0, _INT32, tensor), self.constant(1, _INT32, tensor)
        places = self.add(
            "Range", f"{tensor.node.name}/places", [start, most, one], {"Tidx": _INT32}, _INT32, (None,), tensor
        )
        counts = self.reshape(self.stack(count), [self.count, 1])
        used = self.add(
            "Less", f"{tensor.node.name}/used", [places, counts], {"T": _INT32}, _BOOL, (self.count, None), tensor
        )
        flat = self.reshape(used, [-1])
        where = self.add("Where", f"{tensor.node.name}/where", [flat], {"T": _BOOL}, _INT64, (None, 1), tensor)
        return self.add("GatherNd", f"{tensor.node.name}/gathered", [every, where],
                        {"Tparams": tensor.dtype, "Tindices": _INT64}, tensor.dtype, open_shape, tensor)  # fmt: skip

    def own_entries(self, tensor: Tensor, shape: Tensor) -> Tensor:
        """This core's entries of those of all cores, which every core holds."""
        count, rest = self._first(self.cast(shape, _INT32)), (tensor.shape or ())[1:]
        begin = self.counted_before(shape, tensor)
        pack, rank = {"N": len(rest) + 1, "T": _INT32, "axis": 0}, len(rest) + 1
        zeros, wide = ([self.constant(v, _INT32, tensor) for _ in rest] for v in (0, -1))
        start = self.add("Pack", f"{tensor.node.name}/start", [begin, *zeros], pack, _INT32, (rank,), tensor)
        size = self.add("Pack", f"{tensor.node.name}/size", [count, *wide], pack, _INT32, (rank,), tensor)
        return self.add("Slice", f"{tensor.node.name}/own_entries", [tensor, start, size],
                        {"T": tensor.dtype, "Index": _INT32}, tensor.dtype, (None, *rest), tensor)  # fmt: skip

    def counted_before(self, shape: Tensor, near: Tensor) -> Tensor:
        """How many entries the cores in front of this one have together, of shapes whose first number counts them."""
        count, numbers = self._first(self.cast(shape, _INT32)), self.constant(np.arange(self.count), _INT32, near)
        before = self.add("Less", f"{near.node.name}/before", [numbers, self.own_id(near)], {"T": _INT32}, _BOOL,
                          (self.count,), near)  # fmt: skip
        ahead = self.add("Mul", f"{near.node.name}/ahead", [self.stack(count), self.cast(before, _INT32)], {"T": _INT32},
                         _INT32, (self.count,), near)  # fmt: skip
        return self.add("Sum", f"{near.node.name}/begin", [ahead, self.constant([0], _INT32, near)],
                        {"T": _INT32, "Tidx": _INT32, "keep_dims": False}, _INT32, (), near)  # fmt: skip

    def _first(self, vector: Tensor) -> Tensor:
        """The first of some whole numbers."""
        ends = [self.constant([v], _INT32, vector) for v in (0, 1, 1)]
        return self.add(
            "StridedSlice", f"{vector.node.name}/rows", [vector, *ends], attrs.first_element(), _INT32, (), vector
        )


def _is_open(tensor: Tensor) -> bool:
    return tensor.shape is None or None in tensor.shape


def static_shape(graph: Graph, tensor: Tensor) -> list[int]:
    """The shape of a tensor; an error where it is open."""
    shape = tensor.shape
    if shape is None or None in shape:
        raise ConversionError(f"the rows of '{tensor}' are read by all cores, and its shape is open", node=tensor.node,
                              origin=graph.source, fix="give it a fixed shape")  # fmt: skip
    return [int(d or 0) for d in shape]
