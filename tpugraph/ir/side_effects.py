"""Ops that read or write files, print, call Python or end the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, function_library
from tpugraph.support.errors import RunError

_WORDS = {"reads": "reads a file", "writes": "writes a file", "prints": "prints", "calls": "calls a Python function",
          "ends": "ends the process"}  # fmt: skip


@dataclass(frozen=True)
class SideEffect:
    """A side effect of a node.

    Attributes:
        node: the node, or the node that calls the function which has the side effect.
        op: the op that does it.
        does: ``reads``, ``writes``, ``prints``, ``calls`` or ``ends``.
        files: the names that it opens, as far as constants hold them.
    """

    node: str
    op: str
    does: str
    files: tuple[str, ...]

    @property
    def words(self) -> str:
        """What it does, such as ``reads a file``."""
        return _WORDS[self.does]


def side_effects(graph: Graph, nodes: Iterable[Node]) -> Iterator[SideEffect]:
    """The side effects of nodes and of the functions that they call."""
    chosen = list(nodes)
    for node in chosen:
        if node.op in ops.REACH and not _in_memory(node):
            yield SideEffect(str(node), node.op, ops.REACH[node.op], _names_before(graph, node))
    for node in function_library.callers(graph, chosen):
        for name, function in function_library.used_by(graph, [node]).items():
            yield from _side_effects_in(graph, node, name, function)


def _side_effects_in(graph: Graph, caller: Node, name: str, function: Any) -> Iterator[SideEffect]:
    """The side effects of a function, which names files itself or is given their names."""
    found = [definition for definition in function.node_def if definition.op in ops.REACH]
    if not found:
        return
    own = [
        value
        for node in function.node_def
        if node.op in ops.CONSTANTS
        for value in node.attr["value"].tensor.string_val
    ]
    names = _texts(own) or _strings(graph, caller.inputs)
    for definition in found:
        where = f"{definition.name} ({definition.op}) in the function '{name}'"
        yield SideEffect(where, definition.op, ops.REACH[definition.op], names)


def refuse_to_end(graph: Graph) -> None:
    """Refuse to run a graph that would end the process, as an Abort op does.

    Raises:
        RunError: it has such an op, which is named.
    """
    for found in side_effects(graph, graph):
        if found.does == "ends":
            raise RunError("an op of the graph ends the process when it runs", node=found.node, origin=graph.source,
                           fix="remove it from the graph")  # fmt: skip


def files_touched(graph: Graph) -> dict[str, list[str]]:
    """The files that a graph reads and writes when it runs, under ``reads`` and ``writes``, each once.

    What names a file is a string constant; a name that is computed is told by its node.
    """
    found: dict[str, dict[str, None]] = {}
    for one in side_effects(graph, graph):
        if one.does in ("reads", "writes") and not one.node.startswith("tpugraph/"):  # checkpoints are told apart
            found.setdefault(one.does, {}).update(dict.fromkeys(one.files or [f"what {one.node} names"]))
    return {does: sorted(names) for does, names in found.items()}


def _in_memory(node: Node) -> bool:
    """Whether a cache keeps what it holds in memory: it names no file."""
    if ops.record(node.op).elements != "cached" or len(node.inputs) < 2:
        return False
    name = node.inputs[1].node
    return name.op in ops.CONSTANTS and not any(name.attr("value").ravel().tolist())


def _names_before(graph: Graph, node: Node) -> tuple[str, ...]:
    """The strings that the file operand of a node is made of."""
    operand = ops.FILE_OPERANDS.get(node.op)
    return () if operand is None or operand >= len(node.inputs) else _strings(graph, node.inputs[operand : operand + 1])


def _strings(graph: Graph, tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """The string constants that tensors are made of."""
    before = graph.ancestors([tensor.node for tensor in tensors], data_only=True)
    held = [
        n.attr("value").ravel().tolist() for n in before if n.op in ops.CONSTANTS and n.attr("dtype").name == "string"
    ]
    return _texts(value for values in held for value in values)


def _texts(values: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.decode("utf-8", "replace") for value in values if value))
