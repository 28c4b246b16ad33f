"""What a core makes of its own rows in an evaluation or prediction, and what is asked for of the rows of all cores.

The placement analysis says of each value of the step whether it holds the rows of a core, a part of a reduction over the
batch, or the same on every core. Batches are padded here, and only the host knows how many rows of each are true. So only
rows that stay apart are made on the cores: what an op asks for as a whole (see :class:`~tpugraph.analysis.placing.Verdict`)
and what the cores would add up, the host makes from the true rows of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, evidence, shapes
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import placement_rules as _placement_rules  # registers its rules
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placements import REPLICATE, Entries, Held, Partial, PerCore, Placement, Replicate, Shard, Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Known, Poly, Size, Unknown, follows_batch, known
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.ops.arithmetic import truncated_quotient
from tpugraph.support.errors import ShapeError
from tpugraph.tpu.padded_batch import Batch

_ = (_dimension_rules, _placement_rules)
_FIX = "batch the dataset without drop_remainder, so that the graph is traced with an open number of rows"
_SCALES = ops.DIVISIONS | ops.computing(np.multiply, np.floor_divide, truncated_quotient)


@dataclass(frozen=True)
class Blame:
    """Why a node reads the rows of all cores: the first node on the way that does, and the reason in words."""

    node: Node
    reason: str


class OwnRows:
    """The analysis of one step.

    Args:
        graph: the graph, with shapes.
        batch: the batch of one core.
        step: the nodes of the step.
        host: those that the host runs whatever they compute.
    """

    def __init__(self, graph: Graph, batch: Batch, step: Iterable[Node], host: Iterable[Node] = ()) -> None:
        self.graph = graph
        self.batch = batch
        seeds = batch.tensors()
        before = graph.ancestors([t.node for t in seeds])
        order = analysis.loop_order(graph, {n: None for n in step if n not in before})
        same = dict.fromkeys(batch.told.same, False)
        only = None if batch.baked else ()
        self.d = d = Dimensions(graph, order, batch.rows, batch.dims(), batch.elements(), chosen=same, only=only)
        evidence.weigh(d, divisors=False)
        self.placing = Placing(graph, order, d, batch.placements())
        self.placing.solve()
        sized = [n for n in order if n.op in ops.CONSTANTS and self.placing.made(n.out()) != REPLICATE]
        origins = [*(t.node for t in [*seeds, *batch.told.holds()]), *sized]
        self.behind = graph.descendants(origins, data_only=True)
        self._conflicts = {place for place, _, _ in d.sizes.conflicts}
        self._asking = {n: None for n in order if self._asks(n)}
        self._mixed = self._spread([*host, *self._asking])
        self._users: dict[str, list[Node]] = {}
        for node in order:
            for held in (self.placing.read(t) for t in node.inputs):
                if isinstance(held, Held):
                    self._users.setdefault(held.key, []).append(node)

    # ------------------------------------------------------------------ answers

    def rows(self, tensor: Tensor) -> Shard | None:
        """Where a tensor holds rows of this core, each made of the same row of the batch alone; else None."""
        placement = self._placement(tensor)
        if not isinstance(placement, Shard) or placement.shift or not self._bears_out(tensor, placement):
            return None
        return None if tensor.node in self._mixed else placement

    def only_here(self, tensor: Tensor) -> bool:
        """Whether a tensor holds entries of sparse rows, or numbers of rows, which mean nothing beside other cores' rows."""
        placement = self._placement(tensor)
        return tensor.node not in self._mixed and (
            (isinstance(placement, Entries) and self.sizes(tensor) is None)
            or (isinstance(placement, Shard) and bool(placement.shift))
        )

    def sizes(self, tensor: Tensor) -> list[Known] | None:
        """The elements of a tensor made of sizes, some of which follow the batch; None of any other tensor."""
        elements = self.d.elements(tensor)
        if not elements or any(e is None or _is_open(e) for e in elements):
            return None
        found = [self.placing.final(e) for e in elements if e is not None]
        return found if any(isinstance(e, Poly) for e in found) and all(map(_is_whole, found)) else None

    def level_rows(self, tensor: Tensor) -> list[Known] | None:
        """The dimensions of a constant with rows of the batch that are all alike; None of any other tensor."""
        dims = (
            self.placing.dims(tensor) if tensor.node.op in ops.CONSTANTS and self.d.level(tensor) is not None else None
        )
        return dims if dims and any(isinstance(s, Poly) for s in dims) and all(map(_is_whole, dims)) else None

    def elements_held(self, node: Node) -> list[Known] | None:
        """The dimensions of an element of the container that a node makes or reads; None where they are not known."""
        handle = (
            node.inputs[0] if node.inputs and node.inputs[0] in self.d.handles else node.out() if node.outputs else None
        )
        held = None if handle is None else self.d.containers.get(self.d.handles.get(handle, handle))
        return None if held is None or held.dims is None else [self.placing.final(size) for size in held.dims]

    def give_to_host(self, nodes: Iterable[Node]) -> None:
        """Let the host run more nodes."""
        self._mixed = self._spread([*self._mixed, *nodes])

    def mixes(self, node: Node) -> bool:
        """Whether a node reads the rows of all cores, or what is made of them."""
        return node in self._mixed

    def beside(self, node: Node) -> list[Node]:
        """The nodes that use the same containers as a node."""
        keys = [p.key for p in map(self.placing.read, node.inputs) if isinstance(p, Held)]
        return [other for key in keys for other in self._users.get(key, ()) if other is not node]

    def blame(self, node: Node) -> Blame:
        """The first node on the way to a node that reads the rows of all cores, or of the loop around it."""
        frame_of = analysis.frames(self.graph)
        seen = {node}
        while True:
            before = [t.node for t in node.inputs if t.node in self._mixed and t.node not in seen]
            if not before:
                break
            node = before[0]
            seen.add(node)
        if node not in self._asking:
            node = next((n for n in self._asking if frame_of[n] == frame_of[node]), node)
        return Blame(node, self._reason(node))

    # ------------------------------------------------------------------ constants

    def refuse_doubt(self, tensor: Tensor) -> None:
        """Refuse a constant that the host reads where it may hold the rows of a batch, or cannot follow their true number.

        Raises:
            ShapeError: it names the constant.
        """
        told, rows = self.batch.told, self.batch.rows
        elements = self.d.elements(tensor) or []
        if tensor in told.others or (any(map(_follows, elements)) and self.sizes(tensor) is None):
            raise self._doubt(f"the constant '{tensor}' depends on the number of rows of a batch, and is no multiple of it",
                              tensor, "compute it from tf.shape(features)[0]")  # fmt: skip
        if not self.batch.baked or told.knows(tensor.node) or self.sizes(tensor) is not None:
            return
        if rows == 1:
            raise ShapeError("the graph was traced with batches of one row, so any 1 in it may be the number of rows",
                             origin=self.graph.source, fix=_FIX)  # fmt: skip
        axes = self.d.axes(tensor)
        if axes and self.d.level(tensor) is None:
            raise self._doubt(f"the constant '{tensor}' has {(tensor.shape or ())[axes[0]]} rows of its own, which cannot "
                              "follow the true number", tensor, _FIX)  # fmt: skip
        if self._may_hold_rows(tensor):
            value = constant(tensor.node).tolist()
            raise self._doubt(f"it is not certain whether the constant '{tensor}' = {value} is the number of rows of a batch",
                              tensor, _FIX)  # fmt: skip

    def _may_hold_rows(self, tensor: Tensor) -> bool:
        """Whether nothing says of a constant, which may hold the number of rows, that it does or does not."""
        value = constant(tensor.node)
        if value.dtype.kind == "f":
            return (
                value.ndim == 0 and value == self.batch.rows and any(u.node.op in _SCALES for u in tensor.node.uses())
            )
        elements = self.d.elements(tensor)
        return value.dtype.kind in "iu" and any(e is not None and self._in_doubt(e) for e in elements or ())

    def _in_doubt(self, size: Size) -> bool:
        if not isinstance(size, Unknown) or size.value < 1 or size.value % self.batch.rows:
            return False
        return known(size) is None or size.root() in self.d.defaulted

    def _doubt(self, fault: str, tensor: Tensor, fix: str) -> ShapeError:
        return ShapeError(fault, node=tensor.node, origin=self.graph.source, fix=fix)

    # ------------------------------------------------------------------ what asks

    def _placement(self, tensor: Tensor) -> Placement | None:
        seed = self.placing.seeds.get(tensor)
        return seed if seed is not None else self.placing.made(tensor)

    def _asks(self, node: Node) -> bool:
        """Whether a node asks for whole values, adds rows up, or makes what no single row decides."""
        verdict = self.placing.verdicts.get(node)
        if verdict is None or node not in self.behind:
            return False
        if verdict.wants or node in self._conflicts or any(t in self.batch.told.others for t in node.inputs):
            return True
        return any(self._is_no_row(node.out(port), made) for port, made in enumerate(verdict.outputs))

    def _spread(self, mixing: list[Node]) -> NodeSet:
        """What is made of values of the whole batch; a loop that holds one is run in one place, as a whole."""
        frame_of = analysis.frames(self.graph)
        while True:
            found = self.graph.descendants(mixing, data_only=True)
            loops = {frame_of[n] for n in found} - {""}
            more = [n for n in self.placing.verdicts if frame_of[n] in loops and n in self.behind and n not in found]
            mixing += [n for n in more if n.op not in ops.CONSTANTS]
            if all(n.op in ops.CONSTANTS for n in more):
                return found

    def _is_no_row(self, tensor: Tensor, placement: Placement | None) -> bool:
        if isinstance(placement, Partial | PerCore) or placement is None:
            return True
        if isinstance(placement, Shard):
            return not self._bears_out(tensor, placement) or tensor.node.op in ops.RANDOM
        return isinstance(placement, Replicate) and any(isinstance(s, Poly) for s in self.placing.dims(tensor) or ())

    def _bears_out(self, tensor: Tensor, rows: Shard) -> bool:
        """Whether the dimensions of a tensor are those of such rows, and no other dimension follows the batch."""
        dims = self.placing.dims(tensor)
        if dims is None or rows.axis >= len(dims):
            return False
        follow = [axis for axis, size in enumerate(dims) if isinstance(size, Poly)]
        return follow == [rows.axis] and dims[rows.axis] == Poly((0, rows.outer * rows.inner))

    def _reason(self, node: Node) -> str:
        verdict = self.placing.verdicts.get(node)
        seen = [self.placing.read(t) for t in node.inputs]
        if any(isinstance(s, Sized) for s in seen) and not any(isinstance(s, Shard) for s in seen):
            return "computes with the number of rows"
        if verdict is not None and verdict.why.startswith("no rule"):
            return "may combine rows of the batch (nothing is known of this op)"
        return "combines rows of the batch"

    # ------------------------------------------------------------------ shapes

    def tell_shapes(self) -> bool:
        """Tell TensorFlow the number of rows where its own inference leaves it open (in loops, behind tables).

        Returns:
            Whether anything was new; then the shapes of the graph were inferred again.
        """
        told = False
        for node in self.placing.verdicts:
            outputs = [node.out(port) for port in range(len(node.outputs or ()))]
            known = [self._shape(tensor) for tensor in outputs]
            if known != [shape for _, shape in node.outputs or ()]:
                self.graph.set_attr(node, "_output_shapes", [attrs.encode(shape) for shape in known])
                told = True
        if told:
            shapes.infer(self.graph)
        return told

    def _shape(self, tensor: Tensor) -> Shape:
        shape, rows = tensor.shape, self.rows(tensor)
        if rows is None or (shape is not None and shape[rows.axis] is not None):
            return shape
        dims = [self.d.sizes.at(s) for s in self.d.dims(tensor) or ()]
        if shape is None:
            return tuple(s if s >= 0 else None for s in dims)
        return (*shape[: rows.axis], dims[rows.axis], *shape[rows.axis + 1 :])


def _is_open(size: Size) -> bool:
    """Whether data decide a size."""
    return isinstance(size, Unknown) and known(size) is None and size.value < 0


def _follows(size: Size | None) -> bool:
    return size is not None and follows_batch(size)


def _is_whole(size: Known) -> bool:
    """Whether so many rows make a whole number whatever their number is."""
    return not isinstance(size, Poly) or all(isinstance(factor, int) for factor in size.c)
