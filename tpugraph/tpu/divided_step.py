"""A step of evaluation or prediction, divided into what the device computes and the tail, which the host runs behind it."""

from __future__ import annotations

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, minimum_cut, must_be_host, shapes
from tpugraph.analysis.placements import Shard
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.support.errors import ConversionError
from tpugraph.tpu.own_rows import OwnRows
from tpugraph.tpu.padded_batch import padded_batch


class DividedStep:
    """The two parts of a step.

    Args:
        graph: the graph, whose batches are padded.

    Attributes:
        batch: the padded batch.
        cone: the nodes of the step.
        tail: what the host runs on the plain batch: what reads its rows together, writes, or follows a write.
        placed: how the rows of the batch live in each tensor.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        roles = graph.roles
        self.roots = [graph[name] for name in roles.roots]
        self.cone = graph.ancestors(self.roots)
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.of_model: NodeSet = graph.descendants(variables, data_only=True)
        self.host_bound = {n: None for n in self.cone if n in self.of_model and must_be_host(n)}
        ends = {graph.tensor(name).node: None for name in (*roles.predictions.values(), roles.loss.name) if name}
        writes = {node: None for node in self.cone if node.op in ops.WRITES}
        self.forced = {**self.host_bound, **ends, **writes}
        self.batch = padded_batch(graph)
        self.placed = OwnRows(graph, self.batch, self.cone, self.forced)
        self.behind = self.placed.behind
        self.tail = self._tail()

    def _tail(self) -> NodeSet:
        """What the host runs on the plain batch, writes, or follows a write; a container is used on one side."""
        found = {n: None for n in self.cone if n in self.forced or self.placed.mixes(n) or self._only_watches(n)}
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
        """What the tail reads of the device: of all ways to cut the model, the one with the fewest bytes.

        What cannot leave the device where it is read is computed by the tail as well.
        """
        while True:
            edges, capacity, sources, sinks = self._flow()
            found = minimum_cut(edges, capacity, list(sources), list(sinks))
            if found is not None:
                return found[1]
            self.placed.give_to_host(t.node for t in sinks if t not in capacity)
            self.tail = self._tail()

    def _flow(self) -> tuple[list[tuple[Tensor, Tensor]], dict[Tensor, int], dict[Tensor, None], dict[Tensor, None]]:
        """What the model hands on of the batch up to the tail, and what each tensor costs that may leave the device."""
        inside = analysis.conditional(self.graph)
        frame_of = analysis.frames(self.graph)
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = {}
        sinks: dict[Tensor, None] = {}
        for tensor in [t for n in self.cone for t in self._of_batch(n)]:
            node, size = tensor.node, shapes.byte_size(tensor)
            if not (node in inside or frame_of[node]) and size is not None and self._may_leave(tensor):
                capacity[tensor] = size
            if any(t.node in self.of_model and t.node not in self.behind for t in node.inputs) or not self._before(
                node
            ):
                sources[tensor] = None
            for use in node.uses(tensor.port):
                if use.node in self.tail:
                    sinks[tensor] = None
                elif use.node in self.cone:  # what is put into a container, another op takes out
                    made = [use.node, *self.placed.beside(use.node)]
                    edges.extend((tensor, out) for reader in made for out in self._of_batch(reader))
        return edges, capacity, sources, sinks

    def _before(self, node: Node) -> bool:
        return any(t in self._of_batch(t.node) for t in node.inputs)

    def _of_batch(self, node: Node) -> list[Tensor]:
        """What the model makes on the device of the batch: of rows that are padded, those alone that stay apart."""
        if node not in self.of_model or node not in self.behind or node in self.tail:
            return []
        outputs = [node.out(port) for port in range(len(node.outputs or ()))]
        return outputs if self.batch.whole else [t for t in outputs if self.placed.rows(t) is not None]

    def _may_leave(self, tensor: Tensor) -> bool:
        if tensor.dtype.name not in ops.INFEED_DTYPES:
            return False
        rows = self.placed.rows(tensor)
        return self.batch.whole or (isinstance(rows, Shard) and rows.axis == 0 and rows.outer == 1)

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
