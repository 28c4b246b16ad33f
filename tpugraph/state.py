"""State: which variable a tensor refers to, what a node writes, and how values flow on through variables."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor


def variable_of(tensor: Tensor) -> Node | None:
    """The variable whose handle or reference the tensor is, or None."""
    seen = set()
    node = tensor.node
    while node not in seen:
        seen.add(node)
        if node.op in ops.VARIABLES:
            return node
        if node.op in ops.WRITES and not node.op.startswith("Resource"):
            node = node.inputs[0].node  # a ref write hands its reference on
        elif node.op in ops.HANDLE_ALIASES or node.op in ops.MERGE:
            node = node.inputs[0].node
        else:
            return None
    return None


def written_variables(node: Node) -> list[Node]:
    """The variables that a node writes, in operand order."""
    fact = ops.WRITES.get(node.op)
    if fact is None:
        return []
    found = [variable_of(node.inputs[i]) for i in fact.variables]
    return [variable for variable in found if variable is not None]


def _reads_after(graph: Graph, write: Node) -> list[Node]:
    """The reads of what ``write`` writes that wait for it: its value flows on through the variable."""
    variables = written_variables(write)
    after = graph.descendants([write])
    found = []
    for node in after:
        if node.op in ops.WRITES or node.op in ops.VARIABLES or node.op in ops.HANDLE_ALIASES - {"Identity"}:
            continue
        reference = node.op in ops.READS | ops.GATHERS
        for tensor in node.inputs[:1] if reference else node.inputs:
            variable = variable_of(tensor) if reference or _is_reference(tensor) else None
            if variable in variables:
                found.append(node)
                break
    return found


def _is_reference(tensor: Tensor) -> bool:
    """Whether a tensor is a ref variable, handed on by aliases; a snapshot by Identity shares the variable's memory."""
    node = tensor.node
    while node.op in ops.HANDLE_ALIASES and node.inputs:
        node = node.inputs[0].node
    return node.op in ops.REF_VARIABLES


def flows_from(graph: Graph, sources: list[Node]) -> dict[Node, None]:
    """What depends on the sources over data, also through a variable that is written and read again in the step."""
    found = graph.descendants(sources, data_only=True)
    pending = [node for node in found if node.op in ops.WRITES]
    while pending:
        reads = [read for write in pending for read in _reads_after(graph, write) if read not in found]
        more = [node for node in graph.descendants(reads, data_only=True) if node not in found]
        found.update(dict.fromkeys(more))
        pending = [node for node in more if node.op in ops.WRITES]
    return found


def feeding(graph: Graph, moving: list[Node], updates: list[Node], loss: Tensor) -> list[Node]:
    """Writes of state that the updates read back: slots that sparse Adam writes row by row, accumulated gradients.

    State that the loss reads is none of them: it reaches the updates through the loss.
    """
    forward = graph.ancestors([loss.node], data_only=True)
    read = graph.ancestors([t.node for node in updates for t in node.inputs], data_only=True)
    own = {v for node in updates for v in written_variables(node)}

    def feeds(node: Node) -> bool:
        return ops.WRITES[node.op].kind == "scatter" or any(
            v in read and v not in own and v not in forward for v in written_variables(node)
        )

    return [node for node in moving if node not in updates and feeds(node)]
