"""Raises TF1 control flow to functional control flow: loop frames become While, Switch and Merge become If.

Frames are taken from the inside out, so that a nested loop is one node when its surroundings are raised.

A Switch forwards its value to one output and leaves the other dead; readers of a dead value are dead, up to the Merge that
joins both branches. So each node has a *path*: the predicates, outermost first, with the value that each must have for the
node to run. All nodes whose path starts with one predicate become an If of two functions; nested conditionals are raised
inside them.

One predicate may need several Ifs in sequence: the forward pass leaves a branch, and its gradient enters it again. The nodes
between two such crossings are a *phase*. A later phase recomputes the values that it needs of an earlier one, which is only
possible for nodes without side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library, loops
from tpugraph.ir.attrs import Func
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import decides
from tpugraph.ir.function_library import ARGUMENT
from tpugraph.ir.loops import Carried
from tpugraph.ir.walks import reached, source_of
from tpugraph.support.errors import ConversionError, GraphError


def raise_control_flow(graph: Graph) -> dict[str, int]:
    """Raise every TF1 loop and conditional of a graph, nested ones and gradients included, to While and If, in place.

    Each tensor's dtype must be known. The results of a loop keep their names: an Exit becomes an Identity of the While.
    """
    for node in graph:
        if node.has_attr("_class"):
            graph.set_attr(node, "_class", None)  # a colocation with a node that may move into a function
    count = 0
    while graph.of_type(*ops.ENTER):
        _raise_loop(_innermost(graph))
        count += 1
    return {"loops": count, "conditionals": raise_branches(graph)}


# --------------------------------------------------------------------------- finding loops


@dataclass
class _Frame:
    """One loop; ``fixed`` are the Enters of loop-invariant values."""

    graph: Graph
    name: str
    nodes: dict[Node, None]
    condition: Node
    carried: list[Carried] = field(default_factory=list)
    fixed: list[Node] = field(default_factory=list)


def _innermost(graph: Graph) -> _Frame:
    frame_of = analysis.frames(graph)
    around = set(loops.frames_around(graph).values())
    name = next((frame_of[e] for e in graph.of_type(*ops.ENTER) if frame_of[e] not in around), None)
    if name is None:
        raise ConversionError("the loops enclose each other", node=graph.of_type(*ops.ENTER)[0])
    nodes = {node: None for node in graph if frame_of[node] == name}
    conditions = [node for node in nodes if node.op in ops.LOOP_COND]
    if len(conditions) != 1:
        raise ConversionError(
            f"the loop '{name}' has {len(conditions)} conditions, not one",
            node=next(iter(nodes)), fix="write the loop with tf.while_loop",
        )  # fmt: skip
    frame = _Frame(graph, name, nodes, conditions[0])
    for enter in (node for node in nodes if node.op in ops.ENTER):
        merge = next((use.node for use in enter.uses() if use.node.op in ops.MERGE), None)
        if merge is None:
            frame.fixed.append(enter)
        elif len(enter.uses()) > 1:
            raise ConversionError("the first value of a loop is read past its Merge", node=enter)
        else:
            carried = loops.carried(merge)
            if carried is None or merge.uses(1):
                raise ConversionError("the Merge closes no loop of tf.while_loop", node=merge)
            frame.carried.append(carried)
    return frame


# --------------------------------------------------------------------------- one loop


def _raise_loop(frame: _Frame) -> None:
    graph = frame.graph
    switches = {switch for carried in frame.carried for switch in carried.switches}
    closings = {t.node for c in frame.carried for t in c.merge.inputs}
    borders = {*frame.fixed, *switches, *closings, frame.condition, *(c.merge for c in frame.carried)}
    exits = [node for node in frame.nodes if node.op in ops.EXIT]
    inner = [node for node in frame.nodes if node not in borders and node.op not in ops.EXIT]
    test = _needed(frame, [frame.condition.inputs[0]], [], borders)
    effects = [node for node in inner if node not in test and has_effects(node)]
    body = _needed(frame, [c.following for c in frame.carried], effects, borders)
    arguments = [[c.merge.out(), *(switch.out(1) for switch in c.switches)] for c in frame.carried]
    arguments += [[enter.out()] for enter in frame.fixed]
    results = [*(c.following for c in frame.carried), *(e.out() for e in frame.fixed)]
    reads_condition = [use for use in frame.condition.uses() if use.node in body]
    if reads_condition:
        raise ConversionError("the loop's body reads its condition", node=reads_condition[0].node)
    names = {
        key: make_function(
            graph, _function_name(f"{frame.name}_{key}"), nodes, arguments, returned, finish=finishing(nodes)
        )
        for key, nodes, returned in (("cond", test, [frame.condition.inputs[0]]), ("body", body, results))
    }
    initial = [*(c.initial for c in frame.carried), *(e.inputs[0] for e in frame.fixed)]
    loop = graph.add(
        "While" if effects else "StatelessWhile",
        f"{frame.condition.name}/While",
        initial,
        controls=dict.fromkeys(c for n in frame.nodes for c in n.controls if c not in frame.nodes),
        attrs={"T": [t.dtype for t in initial], "cond": Func(names["cond"]), "body": Func(names["body"]),
               "output_shapes": [], "parallel_iterations": 1, "_xla_propagate_compile_time_consts": True},
        outputs=[group[0].node.output(group[0].port) for group in arguments],
        source=frame.condition,
    )  # fmt: skip
    _leave(frame, loop, exits)
    graph.remove_all(node for node in frame.nodes if node not in exits)


def _needed(frame: _Frame, results: Iterable[Tensor], effects: Iterable[Node], borders: set[Node]) -> dict[Node, None]:
    def behind(nodes: Iterable[Node]) -> Iterable[Node]:
        return (node for node in nodes if node in frame.nodes and node not in borders)

    return reached(behind([*(t.node for t in results), *effects]), lambda node: behind(node.producers()))


def _leave(frame: _Frame, loop: Node, exits: list[Node]) -> None:
    """Replace each Exit by an Identity of a result of the While."""
    number = {switch: i for i, c in enumerate(frame.carried) for switch in c.switches}
    for node in exits:
        left = source_of(node.inputs[0])  # gradients have an Identity between Switch and Exit
        switch = left.node
        if switch not in number or left.port != 0:
            raise ConversionError("a result of the loop is no loop variable", node=node)
        value = loop.out(number[switch])
        frame.graph.set_controls(node, [])
        frame.graph.retype(
            node, "Identity", inputs=[value], attrs={"T": value.dtype}, outputs=[loop.output(value.port)]
        )
    for node in frame.nodes:
        for waiting in node.control_uses():
            if waiting not in frame.nodes:
                frame.graph.remove_control(waiting, node)
                frame.graph.add_control(waiting, loop)


# --------------------------------------------------------------------------- conditionals


Path = tuple[tuple[Tensor, int], ...]
"""Predicates with the taken output of their Switches (0 is false), outermost first."""

_BOOL = attrs.dtype("bool")
_INT32 = attrs.dtype("int32")


def raise_branches(graph: Graph) -> int:
    """Raise every conditional of a graph without loops to If ops; returns the number of Ifs."""
    made = 0
    _let_through(graph)
    while graph.of_type(*ops.SWITCH):
        path = _paths(graph)
        switch = next((n for n in graph.topological_order() if n.op in ops.SWITCH and not path[n]), None)
        if switch is None:
            raise ConversionError("every Switch is inside another conditional", node=graph.of_type(*ops.SWITCH)[0])
        made += _Conditional(graph, decides(switch), path).replace()
    return made


def finishing(nodes: Iterable[Node]) -> Callable[[Graph], object] | None:
    """A function that raises the conditionals among some nodes of a function body; None where there are none."""
    return raise_branches if any(node.op in ops.SWITCH for node in nodes) else None


def _let_through(graph: Graph) -> None:
    """Bypass each Switch before a function result that no Merge joins again.

    The gradient of a loop within a branch reads its stacks behind such a Switch.
    """
    results = graph.of_type(RESULT)
    if not results or not graph.of_type(*ops.SWITCH):
        return
    path = _paths(graph)
    given = dict.fromkeys(crossing for node in results for crossing in path[node])
    for switch in graph.of_type(*ops.SWITCH):
        for side in (0, 1):
            if (decides(switch), side) in given:
                graph.replace_uses(switch.out(side), switch.inputs[0])


def has_effects(node: Node) -> bool:
    """Whether a node must run exactly once."""
    return node.op not in ops.WITHOUT_EFFECTS and ops.is_stateful(node.op)


# --------------------------------------------------------------------------- paths


def _awaited(borders: Iterable[Node]) -> dict[Node, None]:
    """The control inputs of Switches, and of the identities between them and the predicate."""
    found: dict[Node, None] = {}

    def passed(node: Node) -> bool:
        found.update(dict.fromkeys(node.controls))
        return True

    for border in borders:
        found.update(dict.fromkeys(border.controls))
        source_of(border.inputs[1], where=passed)
    return found


def _paths(graph: Graph) -> dict[Node, Path]:
    """The path of each node; a Switch has the path of its inputs."""
    found: dict[Node, Path] = {}
    for node in graph.topological_order():
        if node.op in ops.MERGE:
            found[node] = _joined(node, [_path_of(t, found) for t in node.inputs])
            continue
        paths = [_path_of(t, found) for t in node.inputs] + [found[c] for c in node.controls]
        found[node] = max(paths, key=len, default=())
        other = next((p for p in paths if found[node][: len(p)] != p), None)
        if other is not None:
            raise ConversionError(
                "the node reads from two branches that cannot both run",
                node=node, fix="join the branches with tf.cond before they meet",
            )  # fmt: skip
    return found


def _path_of(tensor: Tensor, found: dict[Node, Path]) -> Path:
    path = found[tensor.node]
    return (*path, (decides(tensor.node), tensor.port)) if tensor.node.op in ops.SWITCH else path


def _joined(merge: Node, paths: list[Path]) -> Path:
    first, second = paths if len(paths) == 2 else ((), ())
    if first and second and first[:-1] == second[:-1] and first[-1][0] == second[-1][0] and first[-1] != second[-1]:
        return first[:-1]
    raise ConversionError(
        "the Merge does not join the two sides of one predicate",
        node=merge, fix="write the conditional with tf.cond",
    )  # fmt: skip


# --------------------------------------------------------------------------- one predicate


@dataclass
class _Phase:
    """The nodes and Merges of one predicate between two crossings of its boundary."""

    nodes: list[Node] = field(default_factory=list)
    merges: list[Node] = field(default_factory=list)


@dataclass
class _Branch:
    """One branch of an If: its nodes, and the inner tensor for each outer one."""

    nodes: dict[Node, None]
    reads: dict[Tensor, list[Tensor]]
    results: list[Tensor]


class _Conditional:
    """One predicate's conditional: the nodes inside with their branches, the Switches at its boundary, the Merges that join."""

    def __init__(self, graph: Graph, predicate: Tensor, path: dict[Node, Path]) -> None:
        self.graph = graph
        self.predicate = predicate
        self.inside = {node: p[0][1] for node, p in path.items() if p and p[0][0] == predicate}
        outer = [node for node, p in path.items() if not p]
        self.borders = {node for node in outer if node.op in ops.SWITCH and decides(node) == predicate}
        self.joins = [n for n in outer if n.op in ops.MERGE and _path_of(n.inputs[0], path)[0][0] == predicate]

    def replace(self) -> int:
        """Replace each phase by an If; returns their number."""
        made = sum(self._make_if(phase) for _, phase in sorted(self._phases().items()))
        for border in self.borders:  # a control edge from a Switch becomes one from its operand
            self.graph.replace_control_uses(border, [t.node for t in border.inputs[:1]])
        self.graph.remove_all([*self.inside, *self.joins, *self.borders])
        return made

    def _phases(self) -> dict[int, _Phase]:
        """The phases: nodes grouped by how often a path to them left the conditional and entered it again."""
        joined = dict.fromkeys(self.joins)
        number: dict[Node, int] = {}  # for outside nodes: the number of the first phase that may follow
        phases: dict[int, _Phase] = {}
        for node in self.graph.topological_order():
            number[node] = max((number[p] for p in node.producers()), default=0)
            if node in joined:
                phases.setdefault(number[node], _Phase()).merges.append(node)
                number[node] += 1
            elif node in self.inside:
                phases.setdefault(number[node], _Phase()).nodes.append(node)
        return phases

    def _make_if(self, phase: _Phase) -> bool:
        graph, inside, borders = self.graph, self.inside, self.borders
        effects = [node for node in phase.nodes if has_effects(node)]
        if not effects and not phase.merges:
            return False  # none of its results is used
        branches = [self._branch(side, phase, effects) for side in (0, 1)]
        reads = list(dict.fromkeys(t for branch in branches for t in branch.reads))
        near = (phase.merges or effects)[0]
        names = [
            make_function(graph, _function_name(f"{near.name}_{label}"), branch.nodes,
                          [branch.reads.get(tensor, [tensor]) for tensor in reads], branch.results,
                          finish=finishing(branch.nodes))
            for branch, label in zip(branches, ("false", "true"), strict=True)
        ]  # fmt: skip
        entered = [t.node for n in [*phase.nodes, *phase.merges] for t in n.inputs if t.node in borders]
        awaited = [*_awaited(dict.fromkeys(entered)), *(c for n in phase.nodes for c in n.controls)]
        waits = dict.fromkeys(
            c for c in awaited if c not in inside and c not in borders and c is not self.predicate.node
        )
        made = graph.add(
            "If" if effects else "StatelessIf",
            f"{near.name}/If",
            [self.predicate, *reads],
            controls=waits,
            attrs={"Tcond": _BOOL, "Tin": [t.dtype for t in reads], "Tout": [m.out().dtype for m in phase.merges],
                   "then_branch": Func(names[1]), "else_branch": Func(names[0]), "output_shapes": [],
                   "_xla_propagate_compile_time_consts": True},
            outputs=[m.output(0) for m in phase.merges],
            source=near,
        )  # fmt: skip
        for port, merge in enumerate(phase.merges):
            graph.replace_uses(merge.out(), made.out(port))
            self._replace_index(merge)
            graph.replace_control_uses(merge, [made])
        for node in effects:
            for waiting in node.control_uses():
                if waiting not in inside:
                    graph.add_control(waiting, made)
                    graph.remove_control(waiting, node)
        return True

    def _side(self, tensor: Tensor) -> int:
        return tensor.port if tensor.node in self.borders else self.inside[tensor.node]

    def _branch(self, side: int, phase: _Phase, effects: list[Node]) -> _Branch:
        """The nodes that the results and side effects of one branch need, of earlier phases too."""
        results = [next(t for t in m.inputs if self._side(t) == side) for m in phase.merges]
        wanted: dict[Node, None] = dict.fromkeys(n for n in effects if self.inside[n] == side)
        now = {*phase.nodes}
        reads: dict[Tensor, list[Tensor]] = {}
        stack = list(wanted)

        def want(node: Node) -> None:
            if node not in wanted:
                wanted[node] = None
                stack.append(node)

        def need(tensor: Tensor) -> None:
            if tensor.node in self.inside:
                want(tensor.node)
                return
            outer = tensor.node.inputs[0] if tensor.node in self.borders else tensor
            group = reads.setdefault(outer, [outer])
            if tensor not in group:
                group.append(tensor)

        for tensor in results:
            need(tensor)
        while stack:
            node = stack.pop()
            if node not in now and has_effects(node):
                raise ConversionError(
                    "a later part of the conditional needs the side effect of this node in an earlier one", node=node,
                    fix="compute it outside of tf.cond and use the result in both branches",
                )  # fmt: skip
            for tensor in node.inputs:
                need(tensor)
            for control in node.controls:
                # constants have a control edge from a pivot, an Identity of a Switch, which puts them into its branch
                pivot = control.op in ops.IDENTITIES and control.inputs[0].node.op in ops.SWITCH
                if (control in now or pivot) and self.inside.get(control) == side:
                    want(control)
        return _Branch(wanted, reads, results)

    def _replace_index(self, merge: Node) -> None:
        """Replace the second output of a Merge, the index of the live input, by the predicate."""
        if not merge.uses(1):
            return
        if self._side(merge.inputs[1]) != 1:
            raise ConversionError("the index of a Merge is read whose first input is the true branch", node=merge)
        index = Builder(self.graph, merge.name, source=merge).cast(self.predicate, _INT32, name="index")
        self.graph.replace_uses(merge.out(1), index)


def _function_name(name: str) -> str:
    return "tpugraph_" + "".join(c if c.isalnum() else "_" for c in name)


# --------------------------------------------------------------------------- functions of nodes


def make_function(
    graph: Graph,
    name: str,
    nodes: Iterable[Node],
    arguments: Sequence[Sequence[Tensor]],
    results: Sequence[Tensor],
    *,
    finish: Callable[[Graph], object] | None = None,
) -> str:
    """Copy nodes into a library function; returns its name.

    The caller gets the nodes' outside control inputs. Results are outputs of the body, or argument tensors; ``finish`` edits
    the body, as a graph of its own, before it is stored.
    """
    given = [group[0] for group in arguments]
    if finish is None:
        alike = {tensor: group[0] for group in arguments for tensor in group[1:]}
        return function_library.add_function(graph, name, [*nodes], given, results, alike)
    body = Graph()
    body.library, body.versions, body.source, body.stage = graph.library, graph.versions, graph.source, graph.stage
    tensors: dict[Tensor, Tensor] = {}
    for index, group in enumerate(arguments):
        known = group[0].node.output(group[0].port)
        given[index] = body.add(ARGUMENT, f"in{index}", outputs=[known]).out()  # reserves the name
        tensors.update(dict.fromkeys(group, given[index]))
    _copy_into(body, graph.topological_order(nodes), tensors)
    copies = [tensors[tensor] for tensor in results]
    returned = [t if t.node.op == ARGUMENT else body.add(RESULT, "result", [t], outputs=[]).out() for t in copies]
    finish(body)
    found = [tensor.node.inputs[0] if tensor.node.op == RESULT else tensor for tensor in returned]
    inner = [node for node in body if node.op not in (ARGUMENT, RESULT)]
    function = function_library.add_function(body, name, inner, given, found, {})
    graph.library = body.library
    return function


RESULT = "_Retval"
"""A placeholder node for a result while the body is edited, so that edits of its producer reach it."""


def _copy_into(target: Graph, nodes: Sequence[Node], tensors: dict[Tensor, Tensor]) -> None:
    """Copy nodes of another graph, whose ``tensors`` it maps to those of ``target``; the outputs of the copies are added."""
    chosen = dict.fromkeys(nodes)
    for node in nodes:
        missing = next((t for t in node.inputs if t not in tensors and t.node not in chosen), None)
        if missing is not None:
            raise GraphError(f"the function reads '{missing}', which it does not have", node=node)
    outside: dict[Node, Sequence[Node]] = {c: () for node in nodes for c in node.controls if c not in chosen}
    copies = target.clone_subgraph(nodes, str, replace=tensors, replace_controls=outside)
    for node, copy in copies.items():
        for port in range(len(node.outputs or ())):
            tensors.setdefault(node.out(port), copy.out(port))
