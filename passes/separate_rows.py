"""What keeps the rows of a batch apart goes to the device; what mixes them reads the true rows of all cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpugraph import analysis, ops, shapes
from tpugraph.analysis import NodeSet, minimum_cut, must_be_host
from tpugraph.baked_sizes import AT_TWICE, find_baked, told
from tpugraph.errors import ConversionError, ShapeError
from tpugraph.host_tail import HostTail, goes_beside
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.pipeline import Pass
from tpugraph.row_entries import is_within
from tpugraph.row_states import WITHIN, Batch, Entries, Rows, Sizes, State
from tpugraph.rows import RowFlow


@dataclass(frozen=True)
class SeparateRows(Pass):
    """What mixes the rows of a batch reads the true rows of all cores; all before it keeps the rows apart.

    Metrics and mean losses see exactly the global batch without its padding. As few bytes as possible cross per step:
    what a core can compute row by row, it does.
    """

    requires = ("shapes_known", "resource_variables")
    ensures = ("rows_separate",)
    breaks = ("shapes_known",)

    def run(self, graph: Graph) -> None:
        _drop_prints(graph)
        _name_predictions(graph)
        step = _Step(graph)
        step.refuse_in_the_middle()
        cut = step.cut()
        tail = HostTail(graph, step.cone, step.tail, step.flow.state, cut, {})
        step.refuse_entries([*step.tail, *tail.own()])
        if step.batch.baked:
            tail.baked = find_baked(graph, step.batch.rows, step.seeds, [*step.tail, *tail.own()], step.flow.state)
        tail.build()
        graph.facts[self.name] = {
            "crossing": [str(tensor) for tensor in cut],
            "host_nodes": len(tail.nodes),
            "models_on_host": step.note_products(),
        }


def _drop_prints(graph: Graph) -> None:
    for node in graph.of_type(*ops.PRINTS):
        if node.inputs and node.outputs:
            graph.replace_uses(node.out(), node.inputs[0])
            graph.note(node, "dropped: nothing is printed in evaluation and prediction")


def _name_predictions(graph: Graph) -> None:
    """Give each prediction a node of its own, which the host runs."""
    roles = graph.roles
    for name, text in roles.predictions.items():
        tensor = graph.tensor(text)
        node = graph.add("Identity", f"tpugraph/prediction/{tensor.node.name}", [tensor], attrs={"T": tensor.dtype},
                         outputs=[(tensor.dtype, tensor.shape)], source=tensor.node)  # fmt: skip
        roles.predictions[name] = node.name


def _sparse(graph: Graph, tensors: list[list[str]]) -> dict[Tensor, State]:
    """What indices, values and dense shape of the batch's sparse tensors are."""
    found: dict[Tensor, State] = {}
    for names in tensors:
        numbers, values, shape = (graph.tensor(name) for name in names)
        origin, rank = (numbers.node.name,), (numbers.shape or (None, 2))[1] or 2
        found |= {numbers: Entries(origin, "rows"), values: Entries(origin, "values")}
        found[shape] = Sizes((1, *[WITHIN] * (rank - 1)))
    return found


class _Step:
    """The step, divided into what keeps rows apart and the tail, which mixes them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        roles, facts = graph.roles, graph.facts["pad-batches"]
        self.roots = [graph[name] for name in roles.roots]
        self.cone = graph.ancestors(self.roots)
        self.seeds = [graph.tensor(name) for name in facts["padded"]]
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.of_model: NodeSet = graph.descendants(variables, data_only=True)
        self.host_bound = {n: None for n in self.cone if n in self.of_model and must_be_host(n)}
        ends = {graph[name]: None for name in roles.predictions.values()}
        writes = {node: None for node in self.cone if node.op in ops.WRITES}
        forced = {**self.host_bound, **ends, **writes}
        self.batch = Batch(facts["batch_rows"], facts["baked"], frozenset(graph.facts.get(AT_TWICE, {})))
        numbers = {t: s for t, s in told(graph, self.batch.rows, self.cone).items() if not isinstance(s, Rows)}
        states = {**dict.fromkeys(self.seeds, Rows(0)), **_sparse(graph, facts["sparse"]), **numbers}
        self.flow = RowFlow(graph, self.batch, states, self.cone, forced)
        while self.flow.tell_shapes():
            self.flow = RowFlow(graph, self.batch, states, self.cone, forced)
        self.behind = graph.descendants((t.node for t in states), data_only=True)
        self.tail = self._tail(forced)
        while read := self._entries_read(states):  # the host finds these in the rows of all cores
            forced.update(read)
            self.flow = RowFlow(graph, self.batch, states, self.cone, forced)
            self.tail = self._tail(forced)

    def _entries_read(self, states: Mapping[Tensor, State]) -> NodeSet:
        """What finds entries of sparse rows that the tail reads."""
        read = [t for n in self.tail for t in n.inputs if t not in states and is_within(self.flow.state(t))]
        return {t.node: None for t in read}

    def _tail(self, forced: NodeSet) -> NodeSet:
        """What mixes rows, writes, or follows a write."""
        found = {n: None for n in self.cone if n in forced or self.flow.mixes(n) or self._only_watches(n)}
        stack = list(found)
        while stack:
            node = stack.pop()
            followers = [use.node for use in node.uses()]
            waiting = [n for n in node.control_uses() if n not in self.behind]
            if node.op in ops.WRITES or node.op == "NoOp":  # what is uniform may read what was written
                followers += waiting
            followers += [n for n in waiting if n.op == "NoOp"]
            for follower in followers:
                if follower in self.cone and follower not in found:
                    found[follower] = None
                    stack.append(follower)
        return found

    def _only_watches(self, node: Node) -> bool:
        return node in self.behind and not node.outputs and node not in {t.node for t in self.seeds}

    # ------------------------------------------------------------------ where the rows cross

    def cut(self) -> list[Tensor]:
        """The tensors whose rows the tail reads: of all ways to cut, the one with the fewest bytes."""
        inside = analysis.conditional(self.graph)
        frame_of = analysis.frames(self.graph)
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = dict.fromkeys(self.seeds)
        sinks: dict[Tensor, None] = {}
        rows = [t for n in self.cone if n in self.behind and n not in self.tail for t in self._rows_of(n)]
        for tensor in rows:
            node, size = tensor.node, shapes.byte_size(tensor)
            in_loop = any(frame_of[use.node] for use in node.uses()) or (frame_of[node] and node.op not in ops.EXIT)
            bound = node in inside or in_loop or (ops.is_stateful(node.op) and not must_be_host(node))
            state = self.flow.state(tensor)
            whole = isinstance(state, Rows) and state.axis == 0 and state.outer == 1
            if goes_beside(tensor):
                size = None if node in self.of_model else shapes.element_count(tensor.shape)
            if whole and not bound and size is not None:
                capacity[tensor] = size
            if any(self._starts(t) for t in node.inputs):
                sources[tensor] = None
            for use in node.uses(tensor.port):
                if use.node in self.tail:
                    sinks[tensor] = None
                elif use.node in self.cone:
                    edges.extend((tensor, out) for out in self._rows_of(use.node))
        found = minimum_cut(edges, capacity, list(sources), list(sinks))
        if found is None:
            raise self._uncut_error(list(sinks), capacity)
        return found[1]

    def _starts(self, tensor: Tensor) -> bool:
        """Whether what reads the tensor cannot be computed from rows: they meet the model there, or were entries."""
        return is_within(self.flow.state(tensor)) or (tensor.node in self.of_model and tensor.node not in self.behind)

    def refuse_entries(self, nodes: Iterable[Node]) -> None:
        """Entries of sparse rows are not gathered from the cores."""
        for node in nodes:
            found = next((t for t in node.inputs if is_within(self.flow.state(t))), None)
            if found is not None:
                raise ShapeError(
                    f"'{node.name}' on the host reads '{found}', entries of sparse rows, for all cores together",
                    node=found.node,
                    origin=self.graph.source,
                    fix="make them dense rows first (an indicator or embedding column, sparse.to_dense)",
                )

    def _rows_of(self, node: Node) -> list[Tensor]:
        outputs = (node.out(port) for port in range(len(node.outputs or ())))
        return [tensor for tensor in outputs if isinstance(self.flow.state(tensor), Rows)]

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
        """A host op whose result the model goes on with."""
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
                blame = self.flow.blame(node)
                text = f"'{node.name}' runs on the host, since '{blame.node.name}' ({blame.node.op}) {blame.reason}"
                self.graph.note(node, text)
                found.append(text)
        return found
