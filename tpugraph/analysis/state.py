"""State: the variable of a tensor, the writes of a node, and dataflow through variables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import source_of, variable_of


def written_variables(node: Node) -> list[Node]:
    """The variables that a node writes, in operand order."""
    fact = ops.WRITES.get(node.op)
    if fact is None:
        return []
    found = [variable_of(node.inputs[i]) for i in fact.variables]
    return [variable for variable in found if variable is not None]


def _reads(graph: Graph) -> dict[Node, list[Node]]:
    """The reads of each variable that take its value at the time they run."""
    found: dict[Node, list[Node]] = {}
    silent = ops.WRITES.keys() | ops.VARIABLES | (ops.HANDLE_ALIASES - ops.IDENTITIES)
    for node in graph:
        if node.op in silent:
            continue
        reads = node.op in ops.READS or node.op in ops.GATHERS
        for tensor in node.inputs[:1] if reads else node.inputs:
            # an Identity of a ref variable aliases its memory
            reads_it = reads or source_of(tensor, ops.HANDLE_ALIASES).node.op in ops.REF_VARIABLES
            variable = variable_of(tensor) if reads_it else None
            if variable is not None and found.setdefault(variable, [])[-1:] != [node]:
                found[variable].append(node)
    return found


def _reads_after(graph: Graph, writes: list[Node], reads: dict[Node, list[Node]]) -> list[Node]:
    """The reads that are ordered after a write of their variable: the written value flows to them."""
    bit_of: dict[Node, int] = {}  # one bit per variable
    written: dict[Node, int] = {}
    for write in writes:
        for variable in written_variables(write):
            bit = bit_of.setdefault(variable, 1 << len(bit_of))
            written[write] = written.get(write, 0) | bit
    waiting = [(read, bit) for variable, bit in bit_of.items() for read in reads.get(variable, ()) if _waits(read)]
    before = reaching(graph, [read for read, _ in waiting], written)
    return [read for read, bit in waiting if before.get(read, 0) & bit]


def reaching(graph: Graph, nodes: list[Node], bits: Mapping[Node, int], *, data_only: bool = False) -> dict[Node, int]:
    """For some nodes and their ancestors, the union of the bits of each node and its ancestors; without entries for 0."""
    region = graph.ancestors(nodes, data_only=data_only)
    found: dict[Node, int] = {}
    changed = bool(bits.keys() & region.keys())
    order = graph.topological_order(region) if changed else []
    while changed:  # facts cross a back edge in the next round
        changed = False
        groups: dict[int, int] = {}  # shared by nodes with equal control inputs
        for node in order:
            seen = bits.get(node, 0)
            for producer, _ in node.inputs:
                seen |= found.get(producer, 0)
            if not data_only and node.controls:
                group = groups.get(id(node.controls))
                if group is None:
                    group = groups[id(node.controls)] = reduce(or_, (found.get(c, 0) for c in node.controls))
                seen |= group
            changed = changed or (node.op in ops.NEXT_ITERATION and seen != found.get(node, 0))
            found[node] = seen
    return found


def _waits(read: Node) -> bool:
    """Whether a read depends on anything but its variable."""
    return any(producer.op not in ops.VARIABLES for producer, _ in read.inputs) or any(
        control.op not in ops.VARIABLES for control in read.controls
    )


def flows_from(graph: Graph, sources: list[Node]) -> dict[Node, None]:
    """The nodes that depend on the sources over data, also through a variable that is written and read again in the step."""
    found = graph.descendants(sources, data_only=True)
    pending = [node for node in found if node.op in ops.WRITES]
    reads = _reads(graph)
    while pending:
        unseen = {variable: [n for n in of_variable if n not in found] for variable, of_variable in reads.items()}
        after = _reads_after(graph, pending, unseen)
        more = [node for node in graph.descendants(after, data_only=True) if node not in found]
        found.update(dict.fromkeys(more))
        pending = [node for node in more if node.op in ops.WRITES]
    return found


def feeding(graph: Graph, moving: list[Node], updates: list[Node], loss: Tensor) -> list[Node]:
    """Writes of state that the updates read: slots that sparse Adam writes row by row, accumulated gradients.

    State that the loss reads is excluded, since it reaches the updates through the loss.
    """
    forward = graph.ancestors([loss.node], data_only=True)
    read = graph.ancestors([t.node for node in updates for t in node.inputs], data_only=True)
    own = {v for node in updates for v in written_variables(node)}

    def feeds(node: Node) -> bool:
        return ops.WRITES[node.op].kind == "scatter" or any(
            v in read and v not in own and v not in forward for v in written_variables(node)
        )

    return [node for node in moving if node not in updates and feeds(node)]
