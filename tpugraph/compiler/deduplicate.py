"""Makes a TPU graph small for the question of whether XLA takes it: nodes that XLA cannot tell apart become one.

A network of a hundred equal layers asks XLA the same hundred times. What its kernels see of a node is the op, the attributes,
dtype and shape of each operand, and the values of those operands that are known when the step is compiled. Where all of these
agree, the first node stands for the others. What the graph then computes is another thing; whether it compiles is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.conditionals import joins_branches
from tpugraph.ir.walks import reached, variable_of

_HANDLE = "resource"
_APART = frozenset({_HANDLE, "variant", "string"})
"""Dtypes of what may be changed or hold anything: such a value stays what it is, unless it is the handle of a variable."""


def merge_alike(graph: Graph) -> int:
    """Let one node of the cluster stand for all that XLA cannot tell from it, in place; returns how many nodes that removes.

    Conditionals and what is inside of them stay as they are, and so does what XLA must know of a value that the step
    computes. Edges into the removed nodes lead to those that stand for them.

    Args:
        graph: the TPU graph; shapes are inferred where they are not known.

    Raises:
        ShapeError: its shapes contradict each other.
    """
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    device = analysis.cluster_nodes(graph)
    read = {t.node: None for node in device for t in node.inputs if t.node not in device}
    outside = [node for node in read if node.op in ops.CONSTANTS | ops.CLUSTER_INPUTS]
    classes = _Classes(graph, device)
    first: dict[Hashable, Node] = {}
    stands: dict[Node, Node] = {}
    for node in graph.topological_order([*outside, *device]):
        key = classes.of_node(node)
        if key is not None and first.setdefault(key, node) is not node:
            stands[node] = first[key]
    _keep_reached(device, stands)
    _redirect(graph, stands)
    return graph.remove_all(stands)


def _keep_reached(device: Iterable[Node], stands: dict[Node, Node]) -> None:
    """Take nodes back out of those to remove until each op that stays has a reader that stays, where it had one.

    XLA does not look at what nothing reads: two alike ops at the ends of different chains would hide one of the chains.
    """
    while True:
        staying = [node for node in device if node not in stands]
        read = {
            stands.get(source, source)
            for node in staying
            for source in (*node.controls, *(t.node for t in node.inputs))
        }
        unread = [
            node for node in staying if node not in read and node.inputs and any(c in stands for c in node.consumers())
        ]
        if not unread:
            return
        for node in unread:
            stands.pop(next((c for c in node.consumers() if c in stands), node), None)


def _redirect(graph: Graph, stands: dict[Node, Node]) -> None:
    """Let the edges from nodes that go to nodes that stay come from those that stand for them."""
    for reader in dict.fromkeys(c for node in stands for c in node.consumers() if c not in stands):
        graph.set_inputs(reader, [stands.get(t.node, t.node).out(t.port) for t in reader.inputs])
        graph.set_controls(reader, [stands.get(control, control) for control in reader.controls])


class _Classes:
    """What XLA can know of nodes and tensors, as keys that are equal where it is. Ask in topological order.

    Args:
        graph: the graph.
        device: the nodes of its cluster.
    """

    def __init__(self, graph: Graph, device: Iterable[Node]) -> None:
        self._frame_of = analysis.frames(graph)
        self._branches = _behind_branches(graph)
        self._asked_for = _asked_for(device)
        self._number: dict[Hashable, int] = {}  # a small key for each key of a known value
        self._known: dict[Node, int] = {}

    def of_node(self, node: Node) -> Hashable | None:
        """The key of a node; None for one that no other is like."""
        known = self._is_known(node)
        if not _replaceable(node) or (node in self._asked_for and not known):
            return None
        operands = tuple(self._of_tensor(tensor) for tensor in node.inputs)
        outputs = tuple((kind.name, shape) for kind, shape in node.outputs or ())
        key = (node.op, self._frame_of[node], _attributes(node), operands, outputs)
        if known:
            self._known[node] = self._number.setdefault(key, len(self._number))
        return None if node in self._branches else key

    def _of_tensor(self, tensor: Tensor) -> Hashable:
        """The key of an operand: its value where that is known, else dtype and shape, else the operand itself."""
        node = tensor.node
        if node in self._known:
            return self._known[node], tensor.port
        kind, shape = tensor.dtype.name, tensor.shape
        if kind == _HANDLE:
            variable = _variable(node)
            return tensor if variable is None else (kind, variable.attr("dtype").name, variable.attr("shape"))
        return tensor if kind in _APART or not shapes.is_static(shape) else (kind, shape)

    def _is_known(self, node: Node) -> bool:
        """Whether a value is known when the step is compiled: made of constants and static shapes alone."""
        if node.op in ops.CONSTANTS:
            return True
        if node.op in ops.RANDOM or not node.inputs or not _replaceable(node):
            return False
        if node.op in ops.SHAPE_OF | ops.FILLED_LIKE:
            return all(shapes.is_static(tensor.shape) for tensor in node.inputs)
        return all(tensor.node in self._known for tensor in node.inputs)


def _replaceable(node: Node) -> bool:
    """Whether another node's results can stand in for those of a node."""
    if node.op in ops.ENTER:
        return bool(node.attr("is_constant")) and _whole(node)
    if node.op in ops.CONTROL_FLOW | ops.CONTAINERS | ops.LISTS or (
        node.op in ops.TPU_SYSTEM and not _MERGED & {node.op}
    ):
        return False
    return bool(node.inputs or node.outputs) and _whole(node)


_MERGED = ops.ALL_REDUCES | ops.CLUSTER_INPUTS


def _whole(node: Node) -> bool:
    return all(
        shapes.is_static(shape) and kind.name not in _APART if kind.name != _HANDLE else _variable(node) is not None
        for kind, shape in node.outputs or ()
    )


def _variable(node: Node) -> Node | None:
    """The variable whose handle a node hands on; None where it is no variable's."""
    variable = variable_of(node.out(), ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS)
    return variable if variable is not None and variable.op in ops.RESOURCE_VARIABLES else None


def _attributes(node: Node) -> tuple[tuple[str, bytes], ...]:
    raw: dict[str, Any] = dict(node.raw_attrs)
    return tuple(
        sorted((name, value.SerializeToString(deterministic=True)) for name, value in raw.items() if name[0] != "_")
    )


def _behind_branches(graph: Graph) -> set[Node]:
    """The nodes of conditionals, from a Switch to the Merge that joins its branches, and those between a loop and its Exit."""

    def inside(nodes: Iterable[Node]) -> Iterable[Node]:
        return (node for node in nodes if not joins_branches(node) and node.op not in ops.EXIT)

    first: list[Node] = []
    for node in graph.of_type(*ops.SWITCH):
        loops = node.inputs[1].node.op in ops.LOOP_COND
        first += inside(use.node for use in node.uses(0 if loops else None))
    return set(reached(first, lambda node: inside(node.consumers())))


def _asked_for(device: Iterable[Node]) -> set[Node]:
    """What makes the operands that XLA must know, and the conditions of loops.

    XLA may know a part of a value that depends on the step, and loops are taken apart by what their conditions read.
    """
    stack = [node.inputs[i].node for node in device for i in ops.record(node.op).constant_operands(len(node.inputs))]
    stack += [node for node in device if node.op in ops.LOOP_COND]
    computed = ops.SHAPE_OF | ops.FILLED_LIKE
    starts = [node for node in stack if node.op not in computed]
    return set(reached(starts, lambda node: (t.node for t in node.inputs if t.node.op not in computed)))
