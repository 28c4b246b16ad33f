"""Gives the constants that shape a batch another number of rows: reshape targets, tile multiples, zero states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.attrs import Shape
from tpugraph.batch_dims import BatchDims
from tpugraph.errors import ShapeError
from tpugraph.ir import Graph, Node


class Resizing:
    """One change of the batch in a part of a graph.

    Args:
        graph: the graph.
        dims: which dimensions of that part are the batch.
        batch: the rows that are written into the graph.
        rows: the rows that it is to have.
        varying: the nodes that depend on the batch.
        what: what is done to the batch, for errors: ``the batch cannot be WHAT with certainty``.
        fix: for errors.
    """

    def __init__(self, graph: Graph, dims: BatchDims, batch: int, rows: int, varying: analysis.NodeSet, *, what: str,
                 fix: str) -> None:  # fmt: skip
        self.graph = graph
        self.dims = dims
        self.batch = batch
        self.rows = rows
        self._varying = varying
        self._what = what
        self._fix = fix

    def size(self, held: int) -> int:
        """What a number of rows, or a multiple of it, becomes."""
        return held * self.rows // self.batch

    def uncertain(self, node: Node | str, fault: str) -> ShapeError:
        """The error where it is not certain what holds the batch."""
        return ShapeError(f"the batch cannot be {self._what} with certainty: {fault}", node=node, origin=self.graph.source,
                          fix=self._fix)  # fmt: skip

    def check(self) -> None:
        """Check that nothing joins the batch with something else.

        Raises:
            ShapeError: something does.
        """
        if self.dims.conflicts:
            node = self.dims.conflicts[0]
            raise self.uncertain(node, f"'{node.name}' joins the batch with a dimension that is not the batch")

    def constant(self, node: Node) -> bool:
        """Re-derive one constant; returns whether it held the batch.

        Raises:
            ShapeError: it may hold it, and that is not certain.
        """
        value, out = node.attr("value"), node.out()
        if value.dtype == object:
            return False
        scaled = [axis for axis in range(value.ndim) if self.dims.dim(out, axis)]
        if not scaled and value.ndim and value.dtype.kind == "f":
            open_axes = [axis for axis in range(value.ndim) if self.dims.dim(out, axis) is None]
            if open_axes and value.shape[open_axes[0]] == self.batch:
                raise self.uncertain(node, f"dimension {open_axes[0]} of the constant may be the batch")
        if scaled:
            return self._resize(node, value, scaled)
        if value.dtype.kind not in "iu" or value.ndim > 1 or value.size > 16:
            return False
        return self._elements(node)

    def attributes(self, node: Node) -> None:
        """Open the shapes in attributes, which only check, where they may hold the batch."""
        shape = node.attr("element_shape")
        if shape and any(d is not None and d % self.batch == 0 for d in shape):
            opened = tuple(None if d is None or d % self.batch == 0 else d for d in shape)
            self.graph.set_attr(node, "element_shape", opened)
        if node.op in ops.FUNCTIONAL and node.has_attr("output_shapes"):
            self.graph.set_attr(node, "output_shapes", [])

    def verify(self, before: Mapping[Node, Iterable[tuple[Any, Shape]]]) -> None:
        """Check that every batch dimension has the new size, and every other one its old, or one that fits the batch.

        Args:
            before: the outputs that the nodes had.

        Raises:
            ShapeError: a shape became another.
        """
        for node, outputs in before.items():
            for port, ((_, old), (_, new)) in enumerate(zip(outputs, node.outputs or [], strict=True)):
                if old is None or new is None or len(old) != len(new):
                    continue
                for axis, (was, now) in enumerate(zip(old, new, strict=True)):
                    is_batch = self.dims.certain(node.out(port), axis)
                    fits = was is None or now is None or was * self.rows == now * self.batch
                    if not fits and (was != now or is_batch):
                        raise self.uncertain(
                            node, f"its shape {list(old)} becomes {list(new)}, which is no share of it"
                        )

    def _elements(self, node: Node) -> bool:
        value = node.attr("value")
        new = value.copy().reshape(-1)
        for index, element in enumerate(value.reshape(-1).tolist()):
            tag = self.dims.element(node.out(), index, int(element))
            varying = self._varying
            if tag is None and (
                _shapes_varying(node, index, varying) or (element == self.batch and _starts(node, varying))
            ):
                raise self.uncertain(node, f"the constant {value.tolist()} may hold the batch at place {index}")
            if tag:
                new[index] = self.size(int(element))
        if (new == value.reshape(-1)).all():
            return False
        self.graph.set_attr(node, "value", new.reshape(value.shape))
        self.graph.note(node, f"holds the batch: {value.tolist()} becomes {new.reshape(value.shape).tolist()}")
        return True

    def _resize(self, node: Node, value: np.ndarray[Any, Any], axes: list[int]) -> bool:
        if value.size and (value != value.reshape(-1)[0]).any():
            raise self.uncertain(node, "a constant with different rows has one row per example of the batch")
        shape = tuple(self.size(d) if i in axes else d for i, d in enumerate(value.shape))
        self.graph.set_attr(node, "value", np.full(shape, value.reshape(-1)[0], value.dtype))
        self.graph.note(node, f"holds the batch: shape {value.shape} becomes {shape}")
        return True


def _starts(node: Node, varying: analysis.NodeSet) -> bool:
    """Whether a constant shapes what a loop starts with and carries on as a value of the batch."""
    stack, seen = [(node, False)], {node}
    while stack:
        at, shaped = stack.pop()
        for use in at.uses():
            follower = use.node
            if shaped and follower.op in ops.MERGE and follower in varying:
                return True
            shapes = follower.op in ops.TAKES_SIZES and use.index == ops.TAKES_SIZES[follower.op]
            hands_on = ops.ENTER | ops.IDENTITIES if shaped else ops.HANDS_ON_SIZES | {"StridedSlice"}
            if (shapes or follower.op in hands_on) and follower not in seen:
                seen.add(follower)
                stack.append((follower, shaped or shapes))
    return False


def _shapes_varying(node: Node, index: int, varying: analysis.NodeSet) -> bool:
    """Whether an element of a constant shapes a value of the batch (element by element through slices)."""
    for use in node.uses():
        if use.node.op in ops.TAKES_SIZES and use.index == ops.TAKES_SIZES[use.node.op] and use.node in varying:
            return True
        if use.node.op in ops.HANDS_ON_SIZES and _shapes_varying(use.node, index, varying):
            return True
    return False
