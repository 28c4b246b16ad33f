"""The order that reads and writes get which the plain graph leaves in none: reads first, or writes first where asked for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import races
from tpugraph.analysis.races import Race
from tpugraph.analysis.step import OrderedRace, OrderedRaces
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.conditionals import NONE, sides
from tpugraph.ir.walks import reached
from tpugraph.support.wording import first_of

READS_FIRST, WRITES_FIRST = ORDERS = ("reads_first", "writes_first")
"""What ``--step_order`` may be."""


def settle(graph: Graph, roots: Iterable[Node], order: str, *, in_branches_alone: bool = False) -> OrderedRaces:
    """Give the races of a step an order, with edges between the nodes of each.

    With ``writes_first`` a read stays before the write where the other order would close a cycle (two optimizers beside each
    other that read what the other one writes) or where the read is in a loop.

    Args:
        graph: a plain graph.
        roots: what a step runs: the train ops and the loss.
        order: ``reads_first`` or ``writes_first``.
        in_branches_alone: make writes wait for reads in branches alone. That is enough where variables become resource variables
            next, which puts every other read first by itself, with fewer edges.

    Returns:
        Each race with what comes first in it.
    """
    found = races.find(graph, roots)
    rest = found
    if order == WRITES_FIRST:
        rest = put_writes_first(graph, roots, found)
    waits = _reads_first(graph, roots, rest)
    held = analysis.conditional(graph) if waits and in_branches_alone else dict.fromkeys(race.read for race in waits)
    _wait(graph, ((race.write, ends) for race, ends in waits.items() if race.read in held))
    first_of = {**dict.fromkeys(found, "write"), **dict.fromkeys(rest, ""), **dict.fromkeys(waits, "read")}
    named = (OrderedRace(r.read.name, r.write.name, r.variable.name, first_of[r]) for r in found)
    return OrderedRaces(order, tuple(named))


def put_writes_first(graph: Graph, roots: Iterable[Node], races: Iterable[Race]) -> list[Race]:
    """Let each read wait for the writes that race with it; returns the races that are left.

    A write in a branch or a loop is waited for where its branches join or its loop is left; a read in a loop is let alone.
    What was taken of a ref variable before the write is taken anew.
    """
    found = list(races)
    pairs = [(race, race.write, race.read) for race in found if _can_be_late(race)]
    waits = _ends_before(graph, roots, pairs, {race.read for race in found})
    _wait(graph, ((race.read, ends) for race, ends in waits.items()))
    ends_of: dict[tuple[Node, Node], list[Node]] = {}
    for race, ends in waits.items():
        ends_of.setdefault((race.read, race.variable), []).extend(ends)
    for (read, variable), ends in ends_of.items():
        _take_anew(graph, read, variable, ends)
    return [race for race in found if race not in waits]


def sentences(found: OrderedRaces) -> list[str]:
    """What is said of races: a sentence for those where reads come first, where writes do, and where neither does."""
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
            said.append(f"{_chance(these)}: {words}")
    return said


def as_data(found: OrderedRaces) -> dict[str, Any]:
    """The order that was asked for, and each race with what comes first in it; for reports."""
    pairs = [
        {"read": race.read, "write": race.write, "variable": race.variable, "first": race.first or None}
        for race in found.races
    ]
    return {"order": found.order, "races": pairs, "said": sentences(found)}


def _chance(these: list[OrderedRace]) -> str:
    variables = list(dict.fromkeys(race.variable for race in these))
    return (
        f"the plain graph leaves to chance whether '{these[0].read}' reads {first_of(variables)} before or after"
        f" '{these[0].write}' writes it"
    )


def _reads_first(graph: Graph, roots: Iterable[Node], races: Sequence[Race]) -> dict[Race, list[Node]]:
    """What the write of each race would wait for, of those that can."""
    late = dict.fromkeys(graph.of_type(*ops.WRITES))
    return _ends_before(graph, roots, [(race, race.read, race.write) for race in races], late)


def _wait(graph: Graph, waits: Iterable[tuple[Node, Sequence[Node]]]) -> None:
    for node, ends in waits:
        graph.add_controls(node, [end for end in ends if end not in node.controls])


def _ends_before(
    graph: Graph, roots: Iterable[Node], pairs: list[tuple[Race, Node, Node]], late: Container[Node]
) -> dict[Race, list[Node]]:
    """What the second node of each pair would wait for to follow the first one, of those that can."""
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
        # Edges that agree with one order of the whole graph can never close a cycle.
        if not frames[second] and ends and all(order[end] < order[second] for end in ends):
            waits[race] = ends
    return waits


def _can_be_late(race: Race) -> bool:
    """Whether a read can take what is written before it: a resource variable's, or a reference by nodes that can be copied."""
    if race.variable.op not in ops.REF_VARIABLES:
        return True
    chains = [chain for chain in (_handed_on_by(t, race.variable) for t in race.read.inputs) if chain is not None]
    return bool(chains) and all(_is_plain(node) for chain in chains for node in chain)


def _is_plain(node: Node) -> bool:
    """Whether a node that shares memory stands in no loop's edge, joins no branches, and hands on no reference."""
    return not node.op.startswith("Ref") and node.op not in ops.MERGE | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION


def _handed_on_by(tensor: Tensor, variable: Node) -> list[Node] | None:
    """The nodes by which a tensor shares a ref variable's memory, the last one first; None where it does not."""
    found: dict[Node, None] = {}
    node = tensor.node
    while node is not variable:
        if node.op not in ops.SHARES_MEMORY or node in found:
            return None
        found[node] = None
        node = node.inputs[0].node
    return list(found)


def _take_anew(graph: Graph, read: Node, variable: Node, waits: Sequence[Node]) -> None:
    """Let a read take a ref variable's value behind other nodes, where it had it from a snapshot that may be older."""
    for index, tensor in enumerate(read.inputs):
        chain = _handed_on_by(tensor, variable) if variable.op in ops.REF_VARIABLES else None
        if not chain:
            continue
        copies = graph.clone_subgraph(chain, lambda name: f"{name}/late")
        graph.add_controls(copies[chain[-1]], waits)  # it takes the reference's value when it runs
        graph.set_input(read, index, copies[tensor.node].out(tensor.port))
        for node in chain:
            if node.consumers():
                break
            graph.remove(node)


def _ends(first: Node, step: Container[Node], beside: Callable[[Node], bool]) -> list[Node]:
    """The first nodes beside the second (in no loop, and in no branch that it is not in) that are done after the first."""
    found = reached((first,), lambda node: () if beside(node) else (n for n in node.consumers() if n in step))
    return [node for node in found if beside(node)]
