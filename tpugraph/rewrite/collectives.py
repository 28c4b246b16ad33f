"""Collectives as nodes of the cluster: what cores combine, and the rows or entries of all of them, or this core's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph.analysis import REPLICATED_ATTR
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.placements import Shard
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.ir.walks import reached
from tpugraph.rewrite.combining import Combining, static_shape
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")
_BOOL = attrs.dtype("bool")


class Collectives(Combining):
    """Combines values over the cores, and rows and entries, inside the cluster."""

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

    def gather_rows(self, tensor: Tensor, rows: Shard, most: Sequence[int | None] = ()) -> Tensor:
        """As ``gather``, of rows whose number may be open.

        Args:
            tensor: the rows.
            rows: where they are.
            most: how long each dimension is at most, where that is known.

        Raises:
            ConversionError: another dimension is as long as data say, and nothing bounds it.
        """
        shape = tensor.shape
        if shape is not None and None not in shape:
            return self.gather(tensor, rows)
        if not shape or (rows.axis == 0 and shape[0] is None):
            return self.gather_entries(tensor)
        bound = [longest if size is None else size for size, longest in zip(shape, most, strict=False)]
        if shape[rows.axis] is not None and len(bound) == len(shape) and None not in bound:
            return self._gather_padded(tensor, rows, [int(size or 0) for size in bound])
        axis, opened = shape.index(None), _opened_by(tensor.node)
        raise ConversionError(
            f"the rows of '{tensor}' are read by all cores, and '{opened.name}' ({opened.op}) makes dimension {axis} of them as "
            "long as data say when a step runs", node=tensor.node, origin=self.graph.source,
            fix="keep that dimension as long as it can be, and mask what is behind the end of each row: "
                "x * tf.sequence_mask(lengths, LONGEST) in place of x[:, :tf.reduce_max(lengths)]",
        )  # fmt: skip

    def _gather_padded(self, tensor: Tensor, rows: Shard, bound: list[int]) -> Tensor:
        """Rows whose other dimensions are as long as data say, alike on all cores: padded, gathered, and cut again."""
        rank, axis = len(bound), rows.axis
        length = self.shape(tensor)
        missing = self.add("Sub", f"{tensor.node.name}/missing", [self.constant(bound, _INT32, tensor), length], {"T": _INT32},
                           _INT32, (rank,), tensor)  # fmt: skip
        behind = {"N": 2, "T": _INT32, "axis": 1}
        padding = self.add("Pack", f"{tensor.node.name}/padding", [self.constant([0] * rank, _INT32, tensor), missing], behind,
                           _INT32, (rank, 2), tensor)  # fmt: skip
        padded = self.add("Pad", f"{tensor.node.name}/padded", [tensor, padding],
                          {"T": tensor.dtype, "Tpaddings": _INT32}, tensor.dtype, tuple(bound), tensor)  # fmt: skip
        every = self.gather(padded, rows)
        whole = self.sizes_of_all(length, [place == axis for place in range(rank)])
        made = tuple(
            size and size * (self.count if place == axis else 1) for place, size in enumerate(tensor.shape or ())
        )
        return self.add("Slice", f"{tensor.node.name}/gathered", [every, self.constant([0] * rank, _INT32, tensor), whole],
                        {"T": tensor.dtype, "Index": _INT32}, tensor.dtype, made, tensor)  # fmt: skip

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
        """The entries of all cores, however many each has: padded to their bound, gathered, the padding taken out.

        Args:
            tensor: the entries.
            most: how many a core has at most, where the shapes of what they are found in do not say.

        Raises:
            ConversionError: their number has no known bound.
        """
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
        """This core's entries of those of all cores, which every core holds.

        Args:
            tensor: the entries, core by core.
            shape: that of this core's own, a vector.
        """
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


def _opened_by(node: Node) -> Node:
    """The first node behind one with an open shape, itself among them, that reads none with one."""
    behind = reached((node,), lambda at: (t.node for t in at.inputs if _is_open(t)))
    return next((at for at in behind if not any(map(_is_open, at.inputs))), node)


def _is_open(tensor: Tensor) -> bool:
    return tensor.shape is None or None in tensor.shape
