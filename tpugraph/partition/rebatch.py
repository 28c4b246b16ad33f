"""Gives the constants that shape a batch another number of rows: reshape targets, tile multiples, zero states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import evidence
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import Known, Poly, Size, follows_batch, known
from tpugraph.analysis.step import ClosedShapes, SplitConstants
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.ir.attrs import Shape
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ShapeError

_ = _dimension_rules


class Resizing:
    """One change of the batch in a part of a graph.

    Args:
        graph: the graph, with shapes.
        nodes: that part.
        batch: the rows that are written into the graph.
        rows: the rows that it is to have.
        seeds: the dimensions of the tensors by which the batch comes in.
        what: what is done to the batch, for errors: ``the batch cannot be WHAT with certainty``.
        fix: for errors.
    """

    def __init__(self, graph: Graph, nodes: Iterable[Node], batch: int, rows: int, seeds: Mapping[Tensor, Dims], *,
                 what: str, fix: str) -> None:  # fmt: skip
        self.graph = graph
        self.batch = batch
        self.rows = rows
        self._what = what
        self._fix = fix
        chosen = dict.fromkeys(nodes)
        shape_of = (graph.kept(ClosedShapes) or ClosedShapes()).shape_of
        self.dims = Dimensions(graph, analysis.loop_order(graph, chosen), batch, seeds, shape_of=shape_of)
        evidence.weigh(self.dims)
        batches = [t for t, dims in seeds.items() if any(isinstance(s, Poly) for s in dims)]
        readers = [use.node for tensor in batches for use in tensor.node.uses(tensor.port)]
        self._varying = analysis.varying_from(graph, readers, within=chosen)

    def uncertain(self, node: Node | str, fault: str) -> ShapeError:
        """The error where it is not certain what holds the batch."""
        return ShapeError(f"the batch cannot be {self._what} with certainty: {fault}", node=node, origin=self.graph.source,
                          fix=self._fix)  # fmt: skip

    def constants(self) -> SplitConstants:
        """Re-derive the constants that hold the batch; returns what they hold of it.

        Raises:
            ShapeError: one may hold it, and that is not certain.
        """
        elements: dict[str, Elements] = {}
        shapes: dict[str, Dims] = {}
        for node in [n for n in self.dims.order if n.op in ops.CONSTANTS and constant(n).dtype != object]:
            dims = self.dims.dims(node.out())
            if dims is not None and any(map(follows_batch, dims)):
                shapes[node.name] = self._resize(node, dims)
            elif constant(node).dtype.kind in "iu":
                found = self._elements(node)
                if found is not None:
                    elements[node.name] = found
        return SplitConstants(elements, shapes)

    def attributes(self, node: Node) -> None:
        """Open the shapes in attributes, which only check, where they may hold the batch."""
        shape = node.attr("element_shape")
        if shape and any(d is not None and d % self.batch == 0 for d in shape):
            opened = tuple(None if d is None or d % self.batch == 0 else d for d in shape)
            self.graph.set_attr(node, "element_shape", opened)
        if node.op in ops.FUNCTIONAL and node.has_attr("output_shapes"):
            self.graph.set_attr(node, "output_shapes", [])

    def verify(self, before: Mapping[Node, Iterable[tuple[Any, Shape]]]) -> None:
        """Check that every dimension that follows the batch has its new size, and every other one its old.

        Args:
            before: the outputs that the nodes had.

        Raises:
            ShapeError: a shape became another.
        """
        for node, outputs in before.items():
            for port, ((_, old), (_, new)) in enumerate(zip(outputs, node.outputs or [], strict=True)):
                dims = self.dims.dims(node.out(port))
                if old is None or new is None or dims is None or not len(old) == len(new) == len(dims):
                    continue
                wanted = [self._size(size) for size in dims]
                if any(now is not None and 0 <= size != now for now, size in zip(new, wanted, strict=True)):
                    raise self.uncertain(node, f"its shape {list(old)} becomes {list(new)}, which is no share of it")

    # ------------------------------------------------------------------ one constant

    def _final(self, size: Size) -> Known:
        found = known(size)
        return found if found is not None else self.dims.sizes.at(size)

    def _size(self, size: Size) -> int:
        found = self._final(size)
        return found.at(self.rows) if isinstance(found, Poly) else found

    def _elements(self, node: Node) -> Elements | None:
        """Give the elements that follow the batch their new values; None where none does."""
        value, elements = constant(node), self.dims.elements(node.out())
        for index, size in enumerate(elements or ()):
            if self.dims.in_doubt(size) and (
                _shapes_varying(node, self._varying)
                or (self.dims.sizes.at(size) == self.batch and _starts(node, self._varying))
            ):
                raise self.uncertain(node, f"the constant {value.tolist()} may hold the batch at place {index}")
        if elements is None or not any(s is not None and follows_batch(s) for s in elements):
            return None
        numbers = [old if s is None else self._size(s) for s, old in zip(elements, value.ravel().tolist(), strict=True)]
        new = np.asarray(numbers, value.dtype).reshape(value.shape)
        self.graph.set_attr(node, "value", new)
        self.graph.note(node, f"holds the batch: {value.tolist()} becomes {new.tolist()}")
        return [None if size is None else self._final(size) for size in elements]

    def _resize(self, node: Node, dims: Dims) -> Dims:
        value = constant(node)
        if value.size and (value != value.reshape(-1)[0]).any():
            raise self.uncertain(node, "a constant with different rows has one row per example of the batch")
        shape = tuple(self._size(size) for size in dims)
        self.graph.set_attr(node, "value", np.full(shape, value.reshape(-1)[0], value.dtype))
        self.graph.note(node, f"holds the batch: shape {value.shape} becomes {shape}")
        return tuple(self._final(size) for size in dims)


def _starts(node: Node, varying: analysis.NodeSet) -> bool:
    """Whether a constant shapes what a loop starts with and carries on as a value of the batch."""
    stack, seen = [(node, False)], {node}
    while stack:
        at, shaped = stack.pop()
        for use in at.uses():
            follower = use.node
            if shaped and follower.op in ops.MERGE and follower in varying:
                return True
            shapes = _shapes(use)
            hands_on = ops.ENTER | ops.IDENTITIES if shaped else _HAND_ON | ops.STRIDED_SLICES
            if (shapes or follower.op in hands_on) and follower not in seen:
                seen.add(follower)
                stack.append((follower, shaped or shapes))
    return False


def _shapes_varying(node: Node, varying: analysis.NodeSet) -> bool:
    """Whether a constant shapes a value of the batch, put together with others."""
    found = reached((node,), lambda at: (use.node for use in at.uses() if use.node.op in _HAND_ON))
    return any(_shapes(use) and use.node in varying for at in found for use in at.uses())


def _shapes(use: Use) -> bool:
    """Whether an operand holds the sizes of the result."""
    return _SHAPED_BY.get(use.node.op) == use.index


_SHAPED_BY = {**ops.SHAPED_BY, **dict.fromkeys(ops.TILES, 1), **dict.fromkeys(ops.PLAIN_SLICES, 2)}
"""Where a constant in doubt would change the shape of a result: of the size operands those that are a whole shape."""

_HAND_ON = ops.PACKS | ops.CONCATS | ops.SAME_NUMBERS | ops.SHAPED_ANEW - ops.RESHAPES
"""Ops that vectors of sizes are put together with."""
