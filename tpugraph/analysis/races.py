"""Races: reads of a variable that the plain graph puts in no order with a write of it, so that chance decides.

``Optimizer.minimize`` makes few: it applies a gradient once all gradients of the op that it comes from are there, but what
only the reported loss reads, such as a penalty on a ref variable, waits for nothing. Steps that are written by hand
(``tf.gradients``, then ``assign``) make more: a gradient or a learning rate may read a variable before or after it is
assigned, and since a ref variable is assigned in place (``tensorflow/core/kernels/assign_op.h``), even a snapshot that was
taken before shows the new value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.state import union
from tpugraph.analysis.write_order import Writes
from tpugraph.ir import Graph, Node
from tpugraph.ir.conditionals import NONE, sides
from tpugraph.ir.node import Wait


@dataclass(frozen=True)
class Race:
    """A read and a write of one variable in no order."""

    read: Node
    write: Node
    variable: Node


def find(graph: Graph, roots: Iterable[Node]) -> list[Race]:
    """The races of a step; a read in one branch and a write in the other are none.

    Args:
        graph: a plain graph.
        roots: what a step runs: the train ops and the loss.
    """
    step = graph.ancestors(roots)
    writes = Writes(graph)
    after = _writes_after(graph, step, writes)
    ours = sum(writes.bit(node) for node in writes.nodes if node in step)
    side_of = sides(graph)
    found = []
    for variable, all_writes in writes.of_variable.items():
        for read in _reads(variable):
            if read not in step:
                continue
            known = writes.before(read, variable) | after.get(read, 0)
            for write in writes.listed(all_writes & ours & ~known):
                if not any(
                    (predicate, 1 - port) in side_of.get(write, NONE) for predicate, port in side_of.get(read, NONE)
                ):
                    found.append(Race(read, write, variable))
    return found


def _writes_after(graph: Graph, step: Mapping[Node, None], writes: Writes) -> dict[Node, int]:
    """Which writes of the step follow each node, as bit sets; through the back edges of loops too."""
    found: dict[Node, int] = {}  # with the node's own
    order = graph.topological_order(step)
    changed = True
    while changed:  # what goes round in a loop is seen in its next round
        changed = False
        groups: dict[Wait, int] = {}  # what follows all that wait for the same nodes
        for node in reversed(order):
            bits = union(found.get(use.node, 0) for use in node.uses())
            for wait in node.awaited():
                if wait not in groups:
                    groups[wait] = union(found.get(consumer, 0) for consumer in wait.nodes)
                bits |= groups[wait]
            bits |= writes.bit(node)
            changed = changed or (node.op in ops.MERGE and bits != found.get(node, 0))
            if bits:
                found[node] = bits
    return found


def _reads(variable: Node) -> list[Node]:
    """What reads the memory of a variable."""
    found: dict[Node, None] = {}
    stack, seen = [variable], {variable}
    while stack:
        for use in stack.pop().uses():
            node = use.node
            if node.op in ops.WRITES and use.index in ops.WRITES[node.op].variables:
                onward = not node.op.startswith("Resource")  # a ref write hands its reference on
            elif node.op in ops.SHARES_MEMORY and (use.index == 0 or node.op in ops.MERGE):
                onward = True
            else:
                found[node] = None
                onward = False
            if onward and node not in seen:
                seen.add(node)
                stack.append(node)
    return list(found)
