"""Which tensors keep the rows of a batch apart, and which mix them.

A tensor keeps rows apart when each row of it depends on the same row of the input and on nothing else of the batch.
Only such tensors may be computed on padded batches, core by core: their true rows, put one after the other, are what
the whole batch would give. :mod:`tpugraph.batch_dims` asks which dimensions grow with the batch; this asks more, since
a softmax over the batch keeps its shape and mixes all rows.

Everything is one of five:

- ``UNIFORM``: does not depend on the batch, not even on its size;
- :class:`Rows`: keeps the rows apart, and this is where they are;
- :class:`Sizes`: a small vector of whole numbers made of shapes, some of which grow with the batch;
- :class:`Entries`: any number of entries for each row, as of a sparse tensor (see :mod:`tpugraph.row_entries`);
- ``MIXED``: none of these, or not known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tpugraph import analysis, attrs, ops, row_rules, shapes
from tpugraph.analysis.dataflow import Says, Solver
from tpugraph.attrs import Shape
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.row_states import MIXED, UNIFORM, Batch, Rows, State


@dataclass(frozen=True)
class Blame:
    """Why a node is mixed: the first node on the way whose inputs keep the rows apart."""

    node: Node
    reason: str


class RowFlow:
    """The analysis.

    Args:
        graph: the graph, with shapes; every batch has its full number of rows.
        batch: the batch of one core.
        seeds: the batch itself: tensors whose dimension 0 holds the rows, and parts of sparse ones.
        within: the nodes to analyse.
        mixed: nodes that count as mixed whatever they compute.
    """

    def __init__(
        self,
        graph: Graph,
        batch: Batch,
        seeds: Mapping[Tensor, State],
        within: Iterable[Node],
        mixed: Container[Node] = (),
    ) -> None:
        self.graph = graph
        self.batch = batch
        self.mixed = mixed
        behind = graph.descendants((t.node for t in seeds), data_only=True)
        sources = {tensor.node for tensor in seeds}
        chosen = {node: None for node in within if node in behind and node not in sources}
        self._order = graph.topological_order(chosen)
        self._frame_of = analysis.frames(graph)
        self._spoiled: set[str] = set()
        self._flow: Solver[State, Says[State]] = Solver(self._order, self._says)
        self._states = self._flow.facts
        self._states.update(seeds)
        self._flow.wake(self._order)
        self._flow.run()
        while spoiled := self._spoil_loops():
            self._flow.wake(n for n in self._order if self._frame_of[n] in spoiled)
            self._flow.run()

    def state(self, tensor: Tensor) -> State:
        """What a tensor is."""
        return self._states.get(tensor, UNIFORM)

    def states(self, node: Node) -> list[State]:
        """What the outputs of a node are."""
        return [self.state(node.out(port)) for port in range(len(node.outputs or ()))]

    def mixes(self, node: Node) -> bool:
        """Whether an output of the node mixes rows."""
        return any(state == MIXED for state in self.states(node))

    def blame(self, node: Node) -> Blame:
        """The op that mixed the rows first on the way to a mixed node."""
        seen = {node}
        while True:
            before = [t.node for t in node.inputs if self.state(t) == MIXED and t.node not in seen]
            if not before:
                return Blame(node, row_rules.reason(node, [self.state(t) for t in node.inputs]))
            node = before[0]
            seen.add(node)

    def tell_shapes(self) -> bool:
        """Tell TensorFlow the number of rows where its own inference leaves it open (in loops, behind tables).

        Returns:
            Whether anything was new; then the shapes of the graph were inferred again.
        """
        told = False
        known: dict[Tensor, Shape] = {}
        for node in self._order:
            outputs = [node.out(port) for port in range(len(node.outputs or ()))]
            shapes_of = [self._known_shape(tensor, known) for tensor in outputs]
            known.update(zip(outputs, shapes_of, strict=True))
            if shapes_of != [shape for _, shape in node.outputs or ()]:
                self.graph.set_attr(node, "_output_shapes", [attrs.encode(shape) for shape in shapes_of])
                told = True
        if told:
            shapes.infer(self.graph)
        return told

    def _known_shape(self, tensor: Tensor, known: dict[Tensor, Shape]) -> Shape:
        state, shape = self.state(tensor), tensor.shape
        if not isinstance(state, Rows) or tensor.dtype.name == "resource" or shape == ():
            return shape
        if shape is None:
            source = tensor.node.inputs[0]
            shape = known.get(source, source.shape)
        if shape is None or state.axis >= len(shape) or shape[state.axis] is not None:
            return shape
        whole = state.outer * self.batch.rows * state.inner
        return (*shape[: state.axis], whole, *shape[state.axis + 1 :])

    # ------------------------------------------------------------------ parts

    def _says(self, node: Node) -> Says[State]:
        return Says(self._apply(node, [self.state(t) for t in node.inputs]))

    def _apply(self, node: Node, inputs: list[State]) -> list[State]:
        count = len(node.outputs or ())
        if node in self.mixed or self._frame_of[node] in self._spoiled or MIXED in inputs:
            return [MIXED] * count
        if all(state == UNIFORM for state in inputs):
            return [UNIFORM] * count
        found = row_rules.apply(node, inputs, self.batch)
        return (
            [row_rules.join(self.state(node.out(p)), s) for p, s in enumerate(found)] if node.op in ops.MERGE else found
        )

    def _spoil_loops(self) -> set[str]:
        """A loop with a mixed value anywhere is mixed as a whole, as it runs in one place."""
        frames = {self._frame_of[n] for n in self._order if self._frame_of[n] and self.mixes(n)} - self._spoiled
        self._spoiled |= frames
        return frames
