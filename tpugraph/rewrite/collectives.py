"""Builds collectives in the cluster from CrossReplicaSum: reductions, all-gathers, and slices of a core's own rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.placements import Shard
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.rewrite.step_nodes import REPLICATED, StepNodes
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")
_WIDE = ("int64", "uint64")
_SMALL = ("bool", "int8", "uint8", "int16", "uint16")
"""Dtypes that are summed over cores as int32."""


class Collectives(StepNodes):
    """Builds collectives inside the cluster."""

    def sum(self, tensor: Tensor) -> Tensor:
        kind = tensor.dtype
        if kind.name in _WIDE:
            return self._reduced(self.stack(tensor), "Sum", tensor)
        wire = kind if kind.name in ops.REDUCE_DTYPES else _INT32 if kind.name in _SMALL else None
        if wire is None:
            raise ConversionError(f"a value of dtype {kind} cannot be summed over cores", node=tensor.node,
                                  origin=self.graph.source, fix="cast it to float32 first")  # fmt: skip
        groups = self.constant([list(range(self.count))], _INT32, tensor, name="CrossReplicaSum/group_assignment")
        sent = self.cast(tensor, wire)
        total = self.add(tensor, "CrossReplicaSum", "CrossReplicaSum", [sent, groups], tensor.shape, scope="")
        return self.cast(total, kind)

    def sum_of_first(self, shape: Tensor) -> Tensor:
        """A shape whose first element is summed over the cores; the others are equal on all."""
        rank = int((shape.shape or (1,))[0] or 1)
        numbers = self.sum(shape)
        if rank == 1:
            return numbers
        by_each = self.constant([1, *[self.count] * (rank - 1)], numbers.dtype, numbers)
        return self.add(numbers, "FloorDiv", "of_each", [numbers, by_each], numbers.shape)

    def extreme(self, tensor: Tensor, op: str) -> Tensor:
        """The elementwise ``max`` or ``min`` over the cores; for booleans any, or all."""
        kind = tensor.dtype
        numbers = self.cast(tensor, _INT32) if kind.name == "bool" else tensor
        return self.cast(self._reduced(self.stack(numbers), {"max": "Max", "min": "Min"}[op], tensor), kind)

    def _reduced(self, every: Tensor, op: str, tensor: Tensor) -> Tensor:
        axis = self.constant([0], _INT32, tensor)
        return self.add(tensor, op, "of_all_cores", [every, axis], tensor.shape, keep_dims=False)

    def stack(self, tensor: Tensor) -> Tensor:
        """All-gather along a new dimension 0."""
        kind = tensor.dtype
        shape: Sequence[int | None] = tensor.shape or ()
        if tensor.shape is None or None in tensor.shape:
            wide = self.add(tensor, "ExpandDims", "wide", [tensor, self.constant(0, _INT32, tensor)], (1, *shape))
        else:
            wide = self.reshape(tensor, [1, *static_shape(self.graph, tensor)])
        if kind.name == "bool":
            return self.cast(self.sum(self._at_own_place(self.cast(wide, _INT32), shape)), kind)
        if kind.name in _WIDE:  # CrossReplicaSum takes no 64-bit integers: both halves are sent
            halves = self._bits(wide, _INT32, (1, *shape, 2))
            return self._bits(self.sum(self._at_own_place(halves, (*shape, 2))), kind, (self.count, *shape))
        return self.sum(self._at_own_place(wide, shape))

    def _bits(self, tensor: Tensor, kind: DType, shape: Sequence[int | None]) -> Tensor:
        return self.add(tensor, "Bitcast", kind.name, [tensor], tuple(shape), type=kind)

    def _at_own_place(self, wide: Tensor, shape: Sequence[int | None]) -> Tensor:
        """This core's slice of an otherwise zero tensor; NaN of one core does not spread to the others."""
        places = (self.count, *[1] * len(shape))
        numbers = self.constant(np.arange(self.count, dtype="int32").reshape(places), _INT32, wide)
        own = self.add(wide, "Equal", "own_place", [numbers, self.own_id(wide)], places, incompatible_shape_error=True)
        zero = self.constant(np.zeros(()), wide.dtype, wide)
        return self.add(wide, "SelectV2", "spread", [own, wide, zero], (self.count, *shape))

    def share(self, tensor: Tensor) -> Tensor:
        """Make a replicated value partial: its parts sum up to it. Integers stay whole on core 0."""
        return self.scaled(tensor, 1.0 / self.count) if tensor.dtype.floating else self.first(tensor)

    def scaled(self, tensor: Tensor, factor: float) -> Tensor:
        number = self.constant(np.asarray(factor), tensor.dtype, tensor)
        return self.add(tensor, "Mul", "share", [tensor, number], tensor.shape)

    def first(self, tensor: Tensor) -> Tensor:
        """The value on core 0, zeros on the others."""
        zero = self.constant(np.zeros(()), tensor.dtype, tensor)
        numbers = [self.own_id(tensor), self.constant(0, _INT32, tensor)]
        own = self.add(tensor, "Equal", "on_core_0", numbers, (), incompatible_shape_error=True)
        return self.add(tensor, "SelectV2", "of_core_0", [own, tensor, zero], tensor.shape)

    def gather(self, tensor: Tensor, rows: Shard) -> Tensor:
        """All-gather the rows, in the order of the global batch."""
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
        """As ``gather``, for rows with unknown dimensions that are equal on all cores."""
        shape, axis = tensor.shape, rows.axis
        if shape is None or rows.outer > 1:
            raise ConversionError(f"all rows of '{tensor}' are read, but its rank is unknown", node=tensor.node,
                                  origin=self.graph.source, fix="give it a shape: tf.ensure_shape, or tf.reshape")  # fmt: skip
        every = self.stack(tensor)
        if axis:
            every = self.transpose(every, [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)])
        times = self.constant([self.count if place == axis else 1 for place in range(len(shape))], _INT32, tensor)
        whole = self.add(tensor, "Mul", "of_the_batch", [self.shape(tensor), times], (len(shape),), **REPLICATED)
        made = tuple(size and size * (self.count if place == axis else 1) for place, size in enumerate(shape))
        return self.add(tensor, "Reshape", "gathered", [every, whole], made)

    def own_rows(self, tensor: Tensor, rows: Shard) -> Tensor:
        """Slice this core's rows out of a replicated value; other dimensions may be unknown where the rows are one batch."""
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
        begin = self.add(tensor, "Mul", "begin", [self.constant(unit, _INT32, tensor), self.own_id(tensor)], (rank,))
        made = (*(apart.shape or ())[:axis], piece, *(apart.shape or ())[axis + 1 :])
        size = self.constant([-1 if d is None else d for d in made], _INT32, tensor)
        cut = self.add(tensor, "Slice", "own_rows", [apart, begin, size], made)
        if rows.outer == 1:
            return cut
        return self.reshape(cut, [*shape[: rows.axis], rows.outer * piece, *shape[rows.axis + 1 :]])

    def first_rows(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The first rows, up to the local shape, on every core."""
        cut = [self.constant(np.asarray(numbers), _INT32, tensor) for numbers in ([0] * len(shape), shape)]
        return self.add(tensor, "Slice", "own_rows", [tensor, *cut], tuple(shape))

    def _own_open(self, tensor: Tensor, axis: int) -> Tensor:
        """As ``own_rows``, for an unknown number of rows."""
        rank = len(tensor.shape or ())
        by = self.constant([self.count if place == axis else 1 for place in range(rank)], _INT32, tensor)
        size = self.add(tensor, "FloorDiv", "own_size", [self.shape(tensor), by], (rank,))
        unit = self.constant([int(place == axis) for place in range(rank)], _INT32, tensor)
        ahead = self.add(tensor, "Mul", "ahead", [unit, self.own_id(tensor)], (rank,))
        begin = self.add(tensor, "Mul", "begin", [ahead, size], (rank,))
        return self.add(tensor, "Slice", "own_rows", [tensor, begin, size], tensor.shape)

    def numbered(self, tensor: Tensor, shift: int | np.ndarray[Any, Any]) -> Tensor:
        """Local row indices made global; ``shift``, the rows of a core, broadcasts."""
        step = self.constant(np.asarray(shift), tensor.dtype, tensor)
        own = self.cast(self.own_id(tensor), tensor.dtype)
        offset = self.add(tensor, "Mul", "offset", [step, own], np.shape(shift))
        return self.add(tensor, "AddV2", "of_the_batch", [tensor, offset], tensor.shape)

    def gather_entries(self, tensor: Tensor) -> Tensor:
        """All-gather ragged entries: pad to their bound, gather, remove the padding."""
        bound = bounded_shape(tensor)
        limit = int(bound[0] or 0) if bound and None not in bound else None
        if limit is not None and tensor.shape is not None and tensor.shape[0] == limit:
            return self.gather(tensor, Shard(0))
        open_shape = (None, *(tensor.shape or (None,))[1:])
        rank = len(open_shape)
        count = self._first(self.shape(tensor))
        most = self.extreme(count, "max") if limit is None else self.constant(limit, _INT32, tensor)
        missing = self.add(tensor, "Sub", "missing", [most, count], ())
        behind = self.add(tensor, "Pack", "padding/0", [self.constant(0, _INT32, tensor), missing], (2,), axis=0)
        rest = [self.constant([0, 0], _INT32, tensor) for _ in range(rank - 1)]
        padding = self.add(tensor, "Pack", "padding", [behind, *rest], (rank, 2), axis=0)
        padded = self.add(tensor, "Pad", "padded", [tensor, padding], open_shape if limit is None else bound)
        every = self.gather(padded, Shard(0))
        if limit is None:
            ends = [self.constant(0, _INT32, tensor), most, self.constant(1, _INT32, tensor)]
            places = self.add(tensor, "Range", "places", ends, (None,))
            counts = self.stack(count)
        else:
            counts = self.stack(count)
            places = self.constant(np.arange(limit)[None, :], _INT32, tensor)
        wide = self.reshape(counts, [self.count, 1])
        used = self.add(tensor, "Less", "used", [places, wide], (self.count, limit))
        flat = self.reshape(used, [-1 if limit is None else self.count * limit])
        where = self.add(tensor, "Where", "where", [flat], (None, 1))
        return self.add(tensor, "GatherNd", "gathered", [every, where], open_shape)

    def own_entries(self, tensor: Tensor, shape: Tensor) -> Tensor:
        """Slice this core's entries out of all-gathered ones."""
        count, rest = self._first(self.cast(shape, _INT32)), (tensor.shape or ())[1:]
        begin = self.counted_before(shape, tensor)
        zeros, wide = ([self.constant(v, _INT32, tensor) for _ in rest] for v in (0, -1))
        start = self.add(tensor, "Pack", "start", [begin, *zeros], (len(rest) + 1,), axis=0)
        size = self.add(tensor, "Pack", "size", [count, *wide], (len(rest) + 1,), axis=0)
        return self.add(tensor, "Slice", "own_entries", [tensor, start, size], (None, *rest))

    def counted_before(self, shape: Tensor, near: Tensor) -> Tensor:
        """The number of entries on the preceding cores, from shapes whose first element counts them."""
        count, numbers = self._first(self.cast(shape, _INT32)), self.constant(np.arange(self.count), _INT32, near)
        before = self.add(near, "Less", "before", [numbers, self.own_id(near)], (self.count,))
        ahead = self.add(near, "Mul", "ahead", [self.stack(count), self.cast(before, _INT32)], (self.count,))
        return self.add(near, "Sum", "begin", [ahead, self.constant([0], _INT32, near)], (), keep_dims=False)

    def _first(self, vector: Tensor) -> Tensor:
        ends = [self.constant([v], _INT32, vector) for v in (0, 1, 1)]
        return self.add(vector, "StridedSlice", "rows", [vector, *ends], (), **attrs.first_element())


def static_shape(graph: Graph, tensor: Tensor) -> list[int]:
    """The shape of a tensor; an error where it is not static."""
    shape = tensor.shape
    if shape is None or None in shape:
        raise ConversionError(f"the rows of '{tensor}' are read by all cores, but its shape is unknown", node=tensor.node,
                              origin=graph.source, fix="give it a fixed shape")  # fmt: skip
    return [int(d or 0) for d in shape]
