"""TF1 conditionals raised to functional ones: Switch and Merge become If.

A Switch sends its value to one of its two outputs and leaves the other dead, and what reads a dead value is dead, up to
the Merge that joins both sides. So every node has a *path*: the predicates, outermost first, that must have a certain value
for the node to run. All nodes whose path starts with one predicate become an If of two functions, and what is nested
in them is raised inside the functions.

One predicate may need several Ifs, one after the other: what a model computes in a branch goes through the loss and
comes back as a gradient into the same branch. The nodes between the same two crossings are a *phase*. What a later
phase reads of an earlier one is computed again, which only what has no effects can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.control_flow import scopes
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import Func
from tpugraph.ir.conditionals import decides
from tpugraph.ir.walks import source_of
from tpugraph.support.errors import ConversionError

Path = tuple[tuple[Tensor, int], ...]
"""Predicates with the output of their Switches (0 is false), outermost first."""

_BOOL = attrs.dtype("bool")
_INT32 = attrs.dtype("int32")


def raise_branches(graph: Graph) -> int:
    """Turn every conditional of a graph without loops into If ops; returns how many Ifs were made.

    Raises:
        ConversionError: a conditional that is not of the form that ``tf.cond`` and its gradient make.
    """
    made = 0
    _let_through(graph)
    while graph.of_type(*ops.SWITCH):
        path = _paths(graph)
        switch = next((n for n in graph.topological_order() if n.op in ops.SWITCH and not path[n]), None)
        if switch is None:
            raise ConversionError("no Switch stands outside of all conditionals", node=graph.of_type(*ops.SWITCH)[0])
        made += _raise_one(graph, decides(switch), path)
    return made


def finishing(nodes: Iterable[Node]) -> Callable[[Graph], object] | None:
    """What is left to raise in a function of some nodes: their conditionals; None where they have none."""
    return raise_branches if any(node.op in ops.SWITCH for node in nodes) else None


def _let_through(graph: Graph) -> None:
    """What a function returns is there whenever it is called: a Switch that no Merge joins again lets its value through.

    So it is in the gradient of a loop within a branch, whose stacks are read behind a Switch of that branch.
    """
    results = graph.of_type(scopes.RESULT)
    if not results or not graph.of_type(*ops.SWITCH):
        return
    path = _paths(graph)
    given = dict.fromkeys(crossing for node in results for crossing in path[node])
    for switch in graph.of_type(*ops.SWITCH):
        for side in (0, 1):
            if (decides(switch), side) in given:
                graph.replace_uses(switch.out(side), switch.inputs[0])


def has_effects(node: Node) -> bool:
    """Whether running the node twice, or not at all, makes a difference."""
    return node.op not in ops.WITHOUT_EFFECTS and ops.is_stateful(node.op)


# --------------------------------------------------------------------------- what runs when


def _awaited(borders: Iterable[Node]) -> dict[Node, None]:
    """What Switches wait for, themselves or by the identities between them and the predicate."""
    found: dict[Node, None] = {}

    def passed(node: Node) -> bool:
        found.update(dict.fromkeys(node.controls))
        return True

    for border in borders:
        found.update(dict.fromkeys(border.controls))
        source_of(border.inputs[1], where=passed)
    return found


def _paths(graph: Graph) -> dict[Node, Path]:
    """The path of each node; of a Switch, what must hold for it to run, not for what follows it."""
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
    if len(paths) == 2:
        first, second = paths
        outer = first[:-1]
        if first and second and outer == second[:-1] and first[-1][0] == second[-1][0] and first[-1] != second[-1]:
            return outer
    raise ConversionError(
        "the Merge does not join the two sides of one predicate",
        node=merge, fix="write the conditional with tf.cond",
    )  # fmt: skip


# --------------------------------------------------------------------------- one predicate


@dataclass
class _Phase:
    """The nodes and joins of one predicate between two crossings of its border."""

    nodes: list[Node] = field(default_factory=list)
    merges: list[Node] = field(default_factory=list)


@dataclass
class _Branch:
    """One side of an If: the nodes it computes, and what they read from outside by what stands for it inside."""

    nodes: dict[Node, None]
    reads: dict[Tensor, list[Tensor]]
    results: list[Tensor]


def _raise_one(graph: Graph, predicate: Tensor, path: dict[Node, Path]) -> int:
    inside = {node: p[0][1] for node, p in path.items() if p and p[0][0] == predicate}
    borders = {n for n in path if n.op in ops.SWITCH and not path[n] and decides(n) == predicate}
    joins = [n for n in path if n.op in ops.MERGE and not path[n] and _joins(n, predicate, path)]
    phases = _phases(graph, inside, borders, joins)
    made = 0
    for number in sorted(phases):
        made += _make_if(graph, predicate, phases[number], inside, borders)
    for border in borders:  # what only waits for a Switch waits for the value
        graph.replace_control_uses(border, [t.node for t in border.inputs[:1]])
    graph.remove_all([*inside, *joins, *borders])
    return made


def _joins(merge: Node, predicate: Tensor, path: dict[Node, Path]) -> bool:
    return _path_of(merge.inputs[0], path)[0][0] == predicate


def _phases(graph: Graph, inside: dict[Node, int], borders: set[Node], joins: list[Node]) -> dict[int, _Phase]:
    """The phases by number: how often the way to a node left the conditional and came back."""
    joined = dict.fromkeys(joins)
    number: dict[Node, int] = {}  # outside: the number of the first phase that may follow
    phases: dict[int, _Phase] = {}
    for node in graph.topological_order():
        before = [number[p] for p in node.producers()]
        number[node] = max(before, default=0)
        if node in joined:
            phases.setdefault(number[node], _Phase()).merges.append(node)
            number[node] += 1
        elif node in inside:
            phases.setdefault(number[node], _Phase()).nodes.append(node)
    return phases


def _make_if(graph: Graph, predicate: Tensor, phase: _Phase, inside: dict[Node, int], borders: set[Node]) -> int:
    effects = [node for node in phase.nodes if has_effects(node)]
    if not effects and not phase.merges:
        return 0  # nothing of it is wanted
    branches = [_branch(side, phase, effects, inside, borders) for side in (0, 1)]
    reads = list(dict.fromkeys(t for branch in branches for t in branch.reads))
    near = (phase.merges or effects)[0]
    names = [
        _save(graph, branch, reads, f"{near.name}/{label}")
        for branch, label in zip(branches, ("false", "true"), strict=True)
    ]
    entered = [t.node for n in [*phase.nodes, *phase.merges] for t in n.inputs if t.node in borders]
    awaited = [*_awaited(dict.fromkeys(entered)), *(c for n in phase.nodes for c in n.controls)]
    waits = dict.fromkeys(c for c in awaited if c not in inside and c not in borders and c is not predicate.node)
    made = graph.add(
        "If" if effects else "StatelessIf",
        f"{near.name}/If",
        [predicate, *reads],
        controls=waits,
        attrs={"Tcond": _BOOL, "Tin": [t.dtype for t in reads], "Tout": [m.out().dtype for m in phase.merges],
               "then_branch": Func(names[1]), "else_branch": Func(names[0]), "output_shapes": [],
               "_xla_propagate_compile_time_consts": True},
        outputs=[m.output(0) for m in phase.merges],
        source=near,
    )  # fmt: skip
    for port, merge in enumerate(phase.merges):
        graph.replace_uses(merge.out(), made.out(port))
        _replace_index(graph, merge, predicate, inside, borders)
        graph.replace_control_uses(merge, [made])
    for node in effects:
        for waiting in node.control_uses():
            if waiting not in inside:
                graph.add_control(waiting, made)
                graph.remove_control(waiting, node)
    return 1


def _branch(side: int, phase: _Phase, effects: list[Node], inside: dict[Node, int], borders: set[Node]) -> _Branch:
    """What one side computes: what its results and effects need, of earlier phases too."""
    results = [next(t for t in m.inputs if _side(t, inside, borders) == side) for m in phase.merges]
    wanted: dict[Node, None] = dict.fromkeys(n for n in effects if inside[n] == side)
    now = {*phase.nodes}
    reads: dict[Tensor, list[Tensor]] = {}
    stack = list(wanted)
    for tensor in results:
        _need(tensor, inside, borders, wanted, reads, stack)
    while stack:
        node = stack.pop()
        if node not in now and has_effects(node):
            raise ConversionError(
                "a later part of the conditional needs what this node did in an earlier one", node=node,
                fix="compute it outside of tf.cond and use the result in both branches",
            )  # fmt: skip
        for tensor in node.inputs:
            _need(tensor, inside, borders, wanted, reads, stack)
        for control in node.controls:
            again = control in now or _is_pivot(control)
            if again and control not in wanted and inside.get(control) == side:
                wanted[control] = None
                stack.append(control)
    return _Branch(wanted, reads, results)


def _is_pivot(node: Node) -> bool:
    """Whether constants wait for the node so that they are in a branch, as of a conditional within this one."""
    return node.op in ops.IDENTITIES and node.inputs[0].node.op in ops.SWITCH


def _side(tensor: Tensor, inside: dict[Node, int], borders: set[Node]) -> int:
    return tensor.port if tensor.node in borders else inside[tensor.node]


def _need(
    tensor: Tensor,
    inside: dict[Node, int],
    borders: set[Node],
    wanted: dict[Node, None],
    reads: dict[Tensor, list[Tensor]],
    stack: list[Node],
) -> None:
    if tensor.node in inside:
        if tensor.node not in wanted:
            wanted[tensor.node] = None
            stack.append(tensor.node)
        return
    outer = tensor.node.inputs[0] if tensor.node in borders else tensor
    group = reads.setdefault(outer, [outer])
    if tensor not in group:
        group.append(tensor)


def _save(graph: Graph, branch: _Branch, reads: Iterable[Tensor], name: str) -> str:
    arguments = [branch.reads.get(tensor, [tensor]) for tensor in reads]
    return scopes.make_function(graph, _function_name(name), branch.nodes, arguments, branch.results,
                                finish=finishing(branch.nodes))  # fmt: skip


def _function_name(name: str) -> str:
    return "tpugraph_" + "".join(c if c.isalnum() else "_" for c in name)


def _replace_index(graph: Graph, merge: Node, predicate: Tensor, inside: dict[Node, int], borders: set[Node]) -> None:
    """The number of the input that a Merge took, which is its second output."""
    if not merge.uses(1):
        return
    if _side(merge.inputs[1], inside, borders) != 1:
        raise ConversionError("the index of a Merge is read whose first input is the true branch", node=merge)
    attributes = {"SrcT": _BOOL, "DstT": _INT32, "Truncate": False}
    index = graph.add(
        "Cast", f"{merge.name}/index", [predicate], attrs=attributes, outputs=[(_INT32, ())], source=merge
    )
    graph.replace_uses(merge.out(1), index.out())
