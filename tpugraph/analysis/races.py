"""Races: reads of a variable that the plain graph puts in no order with a write of it, so that chance decides.

``Optimizer.minimize`` makes few: it applies a gradient once all gradients of the op that it comes from are there, but what
only the reported loss reads, such as a penalty on a ref variable, waits for nothing. Steps that are written by hand
(``tf.gradients``, then ``assign``) make more: a gradient or a learning rate may read a variable before or after it is
assigned, and since a ref variable is assigned in place (``tensorflow/core/kernels/assign_op.h``), even a snapshot that was
taken before shows the new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from tpugraph import analysis, ops
from tpugraph.analysis.write_order import Writes
from tpugraph.ir import Graph, Node
from tpugraph.ir.regions import NONE, sides
from tpugraph.ir.walks import reached


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
            known = writes.before(read, variable) | after.get(read, 0) | writes.bit(read)
            for write in writes.listed(all_writes & ours & ~known):
                if not any(
                    (predicate, 1 - port) in side_of.get(write, NONE) for predicate, port in side_of.get(read, NONE)
                ):
                    found.append(Race(read, write, variable))
    return found


def put_reads_first(graph: Graph, roots: Iterable[Node], races: Iterable[Race]) -> list[Race]:
    """Let each write wait for the reads that race with it, as a converted graph does; returns the races that are left.

    A read in a branch or a loop is waited for where its branches join or its loop is left; a write in a loop is let alone.
    """
    step = graph.ancestors(roots)
    writes = dict.fromkeys(graph.of_type(*ops.WRITES))
    order = {node: i for i, node in enumerate(graph.topological_order(step, last=writes))}
    frames, side_of = analysis.frames(graph), sides(graph)

    def beside(write: Node, node: Node) -> bool:
        return not frames[node] and side_of.get(node, NONE) <= side_of.get(write, NONE)

    left = []
    for race in races:
        ends = _ends(race.read, step, partial(beside, race.write))
        # Edges that agree with one order of the whole graph can never close a cycle.
        if frames[race.write] or not ends or any(order[end] >= order[race.write] for end in ends):
            left.append(race)
            continue
        graph.add_controls(race.write, [end for end in ends if end not in race.write.controls])
    return left


def _writes_after(graph: Graph, step: Mapping[Node, None], writes: Writes) -> dict[Node, int]:
    """Which writes of the step follow each node, as bit sets; through the back edges of loops too."""
    found: dict[Node, int] = {}
    order = graph.topological_order(step)
    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            before = bits = found.get(node, 0)
            for consumer in node.consumers():
                if consumer in step:
                    bits |= found.get(consumer, 0) | writes.bit(consumer)
            if bits != before:
                found[node] = bits
                changed = True
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


def _ends(read: Node, step: Mapping[Node, None], beside: Callable[[Node], bool]) -> list[Node]:
    """The first nodes beside the write (in no loop, and in no branch that it is not in) that are done after the read."""
    found = reached((read,), lambda node: () if beside(node) else (n for n in node.consumers() if n in step))
    return [node for node in found if beside(node)]
