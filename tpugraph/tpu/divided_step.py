"""A step of evaluation or prediction, divided into what keeps rows apart and the tail, which mixes them."""

from __future__ import annotations

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, minimum_cut, must_be_host, shapes
from tpugraph.analysis.batch_constants import told
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.support.errors import ConversionError, ShapeError
from tpugraph.tpu.host_epilogue import goes_beside
from tpugraph.tpu.own_rows import OwnRows
from tpugraph.tpu.padded_batch import Batch


def _batch(graph: Graph, step: NodeSet) -> Batch:
    """The padded batch of a core, and what is told of the constants that may hold its rows."""
    padded = graph.result(PaddedBatches)
    sparse = [[graph.tensor(name) for name in names] for names in padded.sparse]
    return Batch(
        padded.rows,
        [graph.tensor(name) for name in padded.tensors],
        [(numbers, values, shape) for numbers, values, shape in sparse],
        told(graph, padded.rows, step),
        padded.baked,
    )


class DividedStep:
    """The two parts of a step.

    Args:
        graph: the graph, whose batches are padded.

    Attributes:
        cone: the nodes of the step.
        tail: what reads the rows of all cores, writes, or follows a write.
        placed: how the rows of a core live in each tensor.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        roles = graph.roles
        self.roots = [graph[name] for name in roles.roots]
        self.cone = graph.ancestors(self.roots)
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.of_model: NodeSet = graph.descendants(variables, data_only=True)
        self.host_bound = {n: None for n in self.cone if n in self.of_model and must_be_host(n)}
        ends = {graph[name]: None for name in roles.predictions.values()}
        writes = {node: None for node in self.cone if node.op in ops.WRITES}
        forced = {**self.host_bound, **ends, **writes}
        batch = _batch(graph, self.cone)
        self.seeds = batch.dense
        self.placed = OwnRows(graph, batch, self.cone, forced)
        while self.placed.tell_shapes():
            self.placed = OwnRows(graph, batch, self.cone, forced)
        self.behind = self.placed.behind
        self.tail = self._tail(forced)
        while read := self._read_only_there():  # the host finds these in the rows of all cores
            forced.update(read)
            self.placed.give_to_host(read)
            self.tail = self._tail(forced)

    def _read_only_there(self) -> NodeSet:
        """What makes numbers and entries of a core's rows alone that the tail reads."""
        seeds = self.placed.batch.tensors()
        read = [t for n in self.tail for t in n.inputs if t not in seeds and self.placed.only_here(t)]
        return {t.node: None for t in read}

    def _tail(self, forced: NodeSet) -> NodeSet:
        """What reads the rows of all cores, writes, or follows a write; a container is used on one side."""
        found = {n: None for n in self.cone if n in forced or self.placed.mixes(n) or self._only_watches(n)}
        stack = list(found)
        while stack:
            node = stack.pop()
            followers = [use.node for use in node.uses()] + self.placed.beside(node)
            waiting = [n for n in node.control_uses() if n not in self.behind]
            if node.op in ops.WRITES or node.op in ops.GROUPS:  # what is uniform may read what was written
                followers += waiting
            followers += [n for n in waiting if n.op in ops.GROUPS]
            for follower in followers:
                if follower in self.cone and follower not in found:
                    found[follower] = None
                    stack.append(follower)
        return found

    def _only_watches(self, node: Node) -> bool:
        return node in self.behind and not node.outputs

    # ------------------------------------------------------------------ where the rows cross

    def cut(self) -> list[Tensor]:
        """The tensors whose rows the tail reads: of all ways to cut, the one with the fewest bytes."""
        inside = analysis.conditional(self.graph)
        frame_of = analysis.frames(self.graph)
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = dict.fromkeys(self.seeds)
        sinks: dict[Tensor, None] = {}
        for tensor in [t for n in self.cone if n in self.behind and n not in self.tail for t in self._rows_of(n)]:
            node, size = tensor.node, shapes.byte_size(tensor)
            read_inside = any(frame_of[use.node] for use in node.uses() if use.node.op not in ops.ENTER)
            in_loop = read_inside or (frame_of[node] and node.op not in ops.EXIT)
            bound = node in inside or in_loop or (ops.is_stateful(node.op) and not must_be_host(node))
            rows = self.placed.rows(tensor)
            first = rows is not None and rows.axis == 0 and rows.outer == 1
            if goes_beside(tensor):
                size = None if node in self.of_model else shapes.element_count(tensor.shape)
            if not bound and size is not None:
                capacity[tensor] = 2 * size + (not first)  # rows that come first need not be moved on their way
            if any(self._starts(t) for t in node.inputs):
                sources[tensor] = None
            for use in node.uses(tensor.port):
                if use.node in self.tail:
                    sinks[tensor] = None
                elif use.node in self.cone:  # what is put into a container, another op takes out
                    made = [use.node, *self.placed.beside(use.node)]
                    edges.extend((tensor, out) for node in made for out in self._rows_of(node))
        found = minimum_cut(edges, capacity, list(sources), list(sinks))
        if found is None:
            raise self._uncut_error(list(sinks), capacity)
        return found[1]

    def _starts(self, tensor: Tensor) -> bool:
        """Whether what reads the tensor cannot be computed from rows: they meet the model there, or were entries."""
        return self.placed.only_here(tensor) or (tensor.node in self.of_model and tensor.node not in self.behind)

    def _rows_of(self, node: Node) -> list[Tensor]:
        outputs = (node.out(port) for port in range(len(node.outputs or ())))
        return [tensor for tensor in outputs if self.placed.rows(tensor) is not None]

    def _uncut_error(self, sinks: list[Tensor], capacity: dict[Tensor, int]) -> ShapeError:
        tensor = next((t for t in sinks if t not in capacity), sinks[0])
        reader = next(use.node.name for use in tensor.node.uses(tensor.port) if use.node in self.tail)
        return ShapeError(
            f"'{tensor}' ({tensor.dtype}), which '{reader}' reads on the host, cannot travel through the device",
            node=tensor.node,
            origin=self.graph.source,
            fix="turn strings into numbers in the dataset (an index into a vocabulary, say)",
        )

    # ------------------------------------------------------------------ the model on the wrong side

    def refuse_in_the_middle(self) -> None:
        """Refuse a host op whose result the model goes on with.

        Raises:
            ConversionError: there is one.
        """
        for node in self.graph.topological_order(self.host_bound):
            if node.op in ops.WRITES:
                continue
            after = self.graph.descendants([node], data_only=True)
            reader = next((n for n in after if n in self.cone and self._multiplies_variables(n)), None)
            if reader is not None:
                raise ConversionError(
                    f"the op {node.op} runs on a host only, but is in the middle of the step: "
                    f"'{reader.name}' on the device reads it and it depends on variables",
                    node=node,
                    origin=self.graph.source,
                    fix="compute it in the input pipeline, or replace it by TensorFlow ops",
                )

    def _multiplies_variables(self, node: Node) -> bool:
        return node.op in ops.PRODUCTS and any(
            t.node in self.of_model and t.node not in self.behind for t in node.inputs[1:]
        )

    def note_products(self) -> list[str]:
        """Parts of the model behind an op that mixes rows run on the host; each is told with the culprit."""
        found = []
        for node in self.tail:
            if self._multiplies_variables(node):
                blame = self.placed.blame(node)
                text = f"'{node.name}' runs on the host, since '{blame.node.name}' ({blame.node.op}) {blame.reason}"
                self.graph.note(node, text)
                found.append(text)
        return found
