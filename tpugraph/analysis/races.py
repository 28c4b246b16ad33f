"""Races: a read and a write of a variable that the plain graph leaves unordered, so that scheduling decides.

``Optimizer.minimize`` makes few: it applies a gradient after all gradients of its op, but a value that only the reported loss
reads, such as a penalty on a ref variable, is unordered. Handwritten steps (``tf.gradients``, then ``assign``) make more: a
gradient or a learning rate may read a variable before or after its assignment, and since a ref variable is assigned in place
(``tensorflow/core/kernels/assign_op.h``), even an earlier snapshot shows the new value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis.state import reaching, written_variables
from tpugraph.analysis.step import OrderedRace, OrderedRaces
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.ir.conditionals import NONE, sides
from tpugraph.ir.walks import reached
from tpugraph.support.wording import first_of


@dataclass(frozen=True)
class Race:
    """An unordered read and write of one variable."""

    read: Node
    write: Node
    variable: Node


def find(graph: Graph, roots: Iterable[Node]) -> list[Race]:
    """The races of a step, without reads and writes in different branches of a conditional."""
    step = graph.ancestors(roots)
    writes = Writes(graph)
    ours = sum(writes.bit(node) for node in writes.nodes if node in step)
    side_of = sides(graph)
    found = [
        Race(read, write, variable)
        for variable, all_writes in writes.of_variable.items()
        for read in _reads(variable)
        if read in step
        for write in writes.listed(all_writes & ours & ~writes.before(read, variable))
        if not any((predicate, 1 - port) in side_of.get(write, NONE) for predicate, port in side_of.get(read, NONE))
    ]
    bit_of = {read: 1 << i for i, read in enumerate(dict.fromkeys(race.read for race in found))}
    before = reaching(graph, [race.write for race in found], bit_of)
    return [race for race in found if not before.get(race.write, 0) & bit_of[race.read]]


def _reads(variable: Node) -> list[Node]:
    found: dict[Node, None] = {}

    def sharing(node: Node) -> Iterator[Node]:
        for reader, index in node.uses():
            if reader.op in ops.WRITES and index in ops.WRITES[reader.op].variables:
                if not reader.op.startswith("Resource"):  # a ref write forwards its reference
                    yield reader
            elif reader.op in ops.SHARES_MEMORY and (index == 0 or reader.op in ops.MERGE):
                yield reader
            else:
                found[reader] = None

    reached((variable,), sharing)
    return list(found)


# --------------------------------------------------------------------------- write order
# Writes that happen before a node, whatever else the executor runs.


class Writes:
    """Which writes each node follows, as bit sets over all writes of the graph."""

    def __init__(self, graph: Graph) -> None:
        self._frame_of, self._sides = analysis.frames(graph), sides(graph)
        following = graph.descendants(graph.of_type(*ops.WRITES))
        loops = any(node.op in ops.NEXT_ITERATION for node in following)
        order = analysis.loop_order(graph, following) if loops else graph.topological_order(following)
        self.nodes = [node for node in order if node.op in ops.WRITES]
        self.targets = {node: written_variables(node) for node in self.nodes}
        self._bit = {node: 1 << i for i, node in enumerate(self.nodes)}
        self.of_variable: dict[Node, int] = {}
        for node in self.nodes:
            for variable in self.targets[node]:
                self.of_variable[variable] = self.of_variable.get(variable, 0) | self._bit[node]
        self._before: dict[Node, int] = {}
        rounds: dict[str, int] = {}  # by loop, the writes of an iteration, which precede all of the loop's results
        upto: dict[Node, int] = {}  # the writes before a node, and itself
        groups: dict[int, int] = {}  # shared by nodes with equal control inputs
        for node in order:
            frame = self._frame_of[node]
            seen = rounds.get(frame, 0) if node.op in ops.EXIT else 0
            for producer, _ in node.inputs:
                seen |= upto.get(producer, 0)
            group = groups.get(id(node.controls))
            if group is None:
                group = groups[id(node.controls)] = reduce(or_, (upto.get(c, 0) for c in node.controls), 0)
            seen |= group
            if seen:
                self._before[node] = seen
            upto[node] = seen | self._bit.get(node, 0)
            if node.op in ops.NEXT_ITERATION:
                rounds[frame] = rounds.get(frame, 0) | seen

    def bit(self, node: Node) -> int:
        """The bit of a write; 0 where the node is no write."""
        return self._bit.get(node, 0)

    def before(self, node: Node, variable: Node) -> int:
        """The writes of ``variable`` that ``node`` follows."""
        return self._before.get(node, 0) & self.of_variable.get(variable, 0)

    def before_read(self, use: Use, variable: Node) -> int:
        """The writes of ``variable`` that a read follows; a Merge takes what one branch read, after its own writes."""
        if use.node.op not in ops.MERGE:
            return self.before(use.node, variable)
        source = use.node.inputs[use.index].node
        return (self._before.get(source, 0) | self._bit.get(source, 0)) & self.of_variable.get(variable, 0)

    def waits(self, use: Use, variable: Node) -> list[Node]:
        """Control inputs for a read of ``variable`` for ``use`` that order it behind the same writes, and that always run.

        These are the writes; but a write in a branch may not run, and no edge may cross the border of a loop. There they are
        the Merge of the branches, or the loop's entry or exit.
        """
        reader = use.node.inputs[use.index].node if use.node.op in ops.MERGE else use.node
        wanted = self.before_read(use, variable)
        writes = self.listed(wanted)
        if all(self._runs_with(node, reader) for node in writes):
            return writes
        found: dict[Node, None] = {}
        stack = list(reader.producers()) if reader is use.node else [reader]
        seen = {use.node}
        while stack:
            node = stack.pop()
            if node in seen or not (self._before.get(node, 0) | self.bit(node)) & wanted:
                continue
            seen.add(node)
            if self.bit(node) & wanted or node.op in ops.MERGE | ops.EXIT | ops.ENTER:
                found[node] = None
            else:
                stack.extend(node.producers())
        return list(found)

    def _runs_with(self, write: Node, reader: Node) -> bool:
        """Whether the write always runs where the reader does, and in the same loop."""
        same = self._frame_of.get(write) == self._frame_of.get(reader)
        return same and self._sides.get(write, NONE) <= self._sides.get(reader, NONE)

    def follow(self, node: Node, waits: Iterable[Node]) -> None:
        """Record a new node with its control inputs."""
        for other in waits:
            self._before[node] = self._before.get(node, 0) | self._before.get(other, 0) | self.bit(other)

    def listed(self, bits: int) -> list[Node]:
        """The writes in a bit set."""
        found = []
        while bits:  # a step has thousands of writes, and few of them are asked for
            lowest = bits & -bits
            found.append(self.nodes[lowest.bit_length() - 1])
            bits ^= lowest
        return found


# --------------------------------------------------------------------------- race order
# The order given to racing reads and writes: reads first, or writes first where asked for.

READS_FIRST, WRITES_FIRST = ORDERS = ("reads_first", "writes_first")
"""What ``--step_order`` may be."""


def settle(graph: Graph, roots: Iterable[Node], order: str, *, in_branches_alone: bool = False) -> OrderedRaces:
    """Order the races of a step by control edges; returns each race with ``read``, ``write`` or "" as what comes first.

    With ``writes_first`` a read stays before the write where the other order would close a cycle (two optimizers beside each
    other that read what the other one writes) or where the read is in a loop. With ``in_branches_alone`` writes wait only for reads
    in branches and for those that wait for something: variables become resource variables next, which puts every other read first.
    """
    found = find(graph, roots)
    rest = found
    if order == WRITES_FIRST:
        rest = put_writes_first(graph, roots, found)
    # the new control inputs of the write of each race, where possible
    late = dict.fromkeys(graph.of_type(*ops.WRITES))
    waits = _ends_before(graph, roots, [(race, race.read, race.write) for race in rest], late)
    maybe = analysis.conditional(graph) if waits and in_branches_alone else dict.fromkeys(race.read for race in waits)
    _wait(graph, ((race.write, ends) for race, ends in waits.items() if race.read in maybe or race.read.controls))
    first_of = {**dict.fromkeys(found, "write"), **dict.fromkeys(rest, ""), **dict.fromkeys(waits, "read")}
    named = (OrderedRace(r.read.name, r.write.name, r.variable.name, first_of[r]) for r in found)
    return OrderedRaces(order, tuple(named))


def put_writes_first(graph: Graph, roots: Iterable[Node], races: Iterable[Race]) -> list[Race]:
    """Order each read after the writes that race with it; returns the races that are left.

    For a write in a branch or loop, the read waits for the Merge or the loop's exit; reads in loops stay unordered. A snapshot
    of a ref variable taken before the write is taken again.
    """
    found = list(races)
    pairs = [(race, race.write, race.read) for race in found if _can_be_late(race)]
    waits = _ends_before(graph, roots, pairs, {race.read for race in found})
    _wait(graph, ((race.read, ends) for race, ends in waits.items()))
    ends_of: dict[tuple[Node, Node], list[Node]] = {}
    for race, ends in waits.items():
        ends_of.setdefault((race.read, race.variable), []).extend(ends)
    for (read, variable), ends in ends_of.items():
        _read_again(graph, read, variable, ends)
    return [race for race in found if race not in waits]


def sentences(found: OrderedRaces) -> list[str]:
    """Sentences for the report: races where reads come first, where writes do, and where the order stays open."""
    other = WRITES_FIRST if found.order == READS_FIRST else READS_FIRST
    kept = f"--step_order={other} takes the other order"
    turned = (
        "writes cannot come first here: in a loop, or each of two waits for the other" if other == READS_FIRST else kept
    )
    said = []
    for first, words in (
        ("read", f"reads come first ({turned})"),
        ("write", f"writes come first ({kept})"),
        ("", "they stay in no order, in a branch or a loop, and chance decides"),
    ):
        these = [race for race in found.races if race.first == first]
        if these:
            variables = first_of(list(dict.fromkeys(race.variable for race in these)))
            said.append(f"the plain graph leaves to chance whether '{these[0].read}' reads {variables} before or after "
                        f"'{these[0].write}' writes it: {words}")  # fmt: skip
    return said


def as_data(found: OrderedRaces) -> dict[str, Any]:
    """The requested order, and each race with what comes first in it; for reports."""
    pairs = [
        {"read": race.read, "write": race.write, "variable": race.variable, "first": race.first or None}
        for race in found.races
    ]
    return {"order": found.order, "races": pairs, "said": sentences(found)}


def _wait(graph: Graph, waits: Iterable[tuple[Node, Sequence[Node]]]) -> None:
    for node, ends in waits:
        graph.add_controls(node, [end for end in ends if end not in node.controls])


def _ends_before(
    graph: Graph, roots: Iterable[Node], pairs: list[tuple[Race, Node, Node]], late: Container[Node]
) -> dict[Race, list[Node]]:
    """The control inputs that would order the second node of each pair after the first, for pairs where that is possible."""
    if not pairs:
        return {}
    step = graph.ancestors(roots)
    order = {node: i for i, node in enumerate(graph.topological_order(step, last=late))}
    frames, side_of = analysis.frames(graph), sides(graph)

    def beside(second: Node, node: Node) -> bool:
        return not frames[node] and side_of.get(node, NONE) <= side_of.get(second, NONE)

    waits = {}
    for race, first, second in pairs:
        ends = _ends(first, step, partial(beside, second))
        # Edges that agree with one topological order cannot close a cycle.
        if not frames[second] and ends and all(order[end] < order[second] for end in ends):
            waits[race] = ends
    return waits


def _can_be_late(race: Race) -> bool:
    """Whether a read can be moved behind a write: of a resource variable, or of a reference by nodes that can be copied."""
    if race.variable.op not in ops.REF_VARIABLES:
        return True
    chains = [chain for chain in (_alias_chain(t, race.variable) for t in race.read.inputs) if chain is not None]
    borders = ops.MERGE | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION
    nodes = [node for chain in chains for node in chain]
    return bool(chains) and not any(node.op.startswith("Ref") or node.op in borders for node in nodes)


def _alias_chain(tensor: Tensor, variable: Node) -> list[Node] | None:
    """The chain of nodes by which a tensor aliases a ref variable, the last one first; None where it does not."""
    found: dict[Node, None] = {}
    node = tensor.node
    while node is not variable:
        if node.op not in ops.SHARES_MEMORY or node in found:
            return None
        found[node] = None
        node = node.inputs[0].node
    return list(found)


def _read_again(graph: Graph, read: Node, variable: Node, waits: Sequence[Node]) -> None:
    """Read a ref variable's value again behind other nodes, in place of a snapshot that may be older."""
    for index, tensor in enumerate(read.inputs):
        chain = _alias_chain(tensor, variable) if variable.op in ops.REF_VARIABLES else None
        if not chain:
            continue
        copies = graph.clone_subgraph(chain, lambda name: f"{name}/late")
        graph.add_controls(copies[chain[-1]], waits)  # it dereferences when it runs
        graph.set_input(read, index, copies[tensor.node].out(tensor.port))
        for node in chain:
            if node.consumers():
                break
            graph.remove(node)


def _ends(first: Node, step: Container[Node], beside: Callable[[Node], bool]) -> list[Node]:
    """The first nodes after the first one that are in no loop, and in no branch that the second is not in."""
    found = reached((first,), lambda node: () if beside(node) else (n for n in node.consumers() if n in step))
    return [node for node in found if beside(node)]
