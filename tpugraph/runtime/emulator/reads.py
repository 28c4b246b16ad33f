"""One read of the input per step, for all cores and on each host.

The cores' batches of a step become one element of the dataset, by a Batch at its end, and are unpacked without a copy. With
several hosts each reads a pipeline of its own, every step whole, and keeps the batches of its cores: all pipelines stand at one
position, which a checkpoint holds, and any number of hosts goes on from it.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import frames
from tpugraph.analysis.shapes import element_count, is_static
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.nondeterminism import named_operands
from tpugraph.ir.walks import reached, readers, source_of
from tpugraph.runtime.emulator.constant_rows import INT64, HeldRows, read_by_number, read_in_order, scalar
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.pipelines import ahead_of


@dataclass(frozen=True)
class ReadOfStep:
    """What reads the batches of all cores of a step.

    Attributes:
        nodes: the reads, and what takes the batches out of them.
        parts: of each core the tensors of its batch.
    """

    nodes: list[Node]
    parts: list[list[Tensor]]


def read_on_each(graph: Graph, iterator: Node, maker: Node, step: ReadOfStep, hosts: Hosts) -> None:
    """Give every host but the first an iterator and a read of its own, and its cores what that reads.

    Args:
        graph: the graph.
        iterator: what the step reads.
        maker: what gives the iterator its dataset.
        step: the read; it stays that of the first host.
        hosts: the hosts.
    """
    if any(tensor.dtype.name == "resource" for part in step.parts for tensor in part):
        return  # a handle is of no use on another host
    _draw_alike(graph, maker)
    for host in hosts.others:
        own = hosts.copy_iterator(graph, iterator, maker, host)
        made = _copy(graph, step, hosts, host)
        for tensor in itertools.chain(*step.parts[host * hosts.cores : (host + 1) * hosts.cores]):
            graph.replace_uses(tensor, made[tensor.node].out(tensor.port))
        _restore_too(graph, iterator, own, hosts, host)


def _copy(graph: Graph, step: ReadOfStep, hosts: Hosts, host: int) -> dict[Node, Node]:
    """A host's own copy of a read, with all of the loop that leads to it."""
    frame_of = frames(graph)
    frame = frame_of[step.nodes[0]]
    chosen = reached(step.nodes, lambda node: (t.node for t in node.inputs if frame_of[t.node] == frame))
    made = graph.clone_subgraph(chosen, lambda name: f"{name}/host_{host}")
    for copy in made.values():
        for index, tensor in enumerate(copy.inputs):
            if frame_of.get(tensor.node, frame) != frame:
                graph.set_input(copy, index, hosts.copy_outside(graph, tensor.node, host).out(tensor.port))
    hosts.put(made.values(), host)
    return made


def _restore_too(graph: Graph, iterator: Node, own: Node, hosts: Hosts, host: int) -> None:
    """Let what gives the first host's iterator a position give it to a host's own as well."""
    restores = [node for node in graph.of_type("DeserializeIterator") if node.inputs[0].node is iterator]
    made = graph.clone_subgraph(restores, lambda name: f"{name}/host_{host}", replace={iterator.out(): own.out()})
    hosts.put(made.values(), host)
    for node, copy in made.items():
        for waiting in node.control_uses():
            graph.add_control(waiting, copy)


def _draw_alike(graph: Graph, maker: Node) -> None:
    """Give a pipeline that shuffles without a seed one that is drawn here, so that all hosts put its rows in one order."""
    for node in graph.ancestors([maker], data_only=True):
        seeds = [tensor for name, tensor in named_operands(node) if name in ("seed", "seed2")]
        if len(seeds) != 2 or any(scalar(tensor.node) != 0 for tensor in seeds):
            continue
        for index, tensor in enumerate(node.inputs):
            if tensor in seeds:
                drawn = np.int64(random.SystemRandom().randrange(1, 2**31))
                graph.set_input(node, index, Builder(graph, node.name, source=node).constant(drawn, name="drawn"))


MOST_BYTES = 256 * 2**10
"""Batches of one core that are bigger are read one by one on one host: copying them costs more than a read."""


def read_together(graph: Graph, takes: list[Node], hosts: Hosts | None = None) -> None:
    """Let the cores' reads of one step become one read, of each iterator where that is possible; on many hosts one each.

    Args:
        graph: the graph.
        takes: all reads of the loop, in the order of the cores.
        hosts: the hosts, where there are many.
    """
    groups: dict[Node | None, list[Node]] = {}
    for take in takes:
        groups.setdefault(_iterator(take), []).append(take)
    for iterator, group in groups.items():
        maker = None if iterator is None else _maker(graph, iterator, group)
        if iterator is None or maker is None:
            continue
        step = _read_of_step(graph, iterator, maker, group)
        if hosts is not None and len(group) == hosts.replicas:
            read_on_each(graph, iterator, maker, step, hosts)


def _read_of_step(graph: Graph, iterator: Node, maker: Node, takes: list[Node]) -> ReadOfStep:
    """The read of all cores of a step, where that is possible, or the reads as they were."""
    for by_number in (read_in_order, read_by_number):
        held = by_number(graph, maker, takes[0], len(takes))
        if held is not None:
            return _read_rows(graph, iterator, takes, held)
    if _batch(graph, maker, takes):
        return _read_once(graph, iterator, takes)
    return ReadOfStep(takes, [[take.out(port) for port in range(len(take.outputs or ()))] for take in takes])


def _maker(graph: Graph, iterator: Node, takes: list[Node]) -> Node | None:
    """What gives the iterator its dataset, where these reads are all that there are and their shapes are known."""
    makers = [use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR]
    static = all(is_static(shape) for shape in takes[0].attr("output_shapes"))
    in_order = all(before in after.controls for before, after in itertools.pairwise(takes))
    fits = len(makers) == 1 and static and in_order and not _other_reads(iterator, takes)
    return makers[0] if fits else None


def _iterator(take: Node) -> Node | None:
    node = source_of(take.inputs[0], ops.ENTER | ops.IDENTITIES).node
    return node if node.op in ops.ITERATORS else None


def _other_reads(iterator: Node, takes: list[Node]) -> bool:
    found = readers(iterator, through=ops.ENTER | ops.IDENTITIES)
    return any(node.op in ops.GET_NEXT and node not in takes for node in found)


# --------------------------------------------------------------------------- the dataset


def _batch(graph: Graph, maker: Node, takes: list[Node]) -> bool:
    """Batch the dataset by the number of reads, where its elements are small."""
    sizes = [(element_count(shape) or 0) * (kind.size or math.inf) for kind, shape in takes[0].outputs or ()]
    if sum(sizes) > MOST_BYTES:
        return False
    kinds, own = takes[0].attr("output_types"), takes[0].attr("output_shapes")
    shapes = [(len(takes), *shape) for shape in own]
    before = ahead_of(graph, maker, maker.inputs[0], kinds, own)
    make = Builder(graph, "tpugraph/reads", source=maker)
    extra = [make.constant(value, name="value") for value in (np.int64(len(takes)), np.bool_(True))]
    dataset = make.node("BatchDatasetV2", [before, *extra], name="of_a_step", shapes=[()], metadata="",
                        output_types=kinds, output_shapes=shapes, parallel_copy=False)  # fmt: skip
    graph.set_input(maker, 0, dataset.out())
    return True


# --------------------------------------------------------------------------- the reads


def _read_once(graph: Graph, iterator: Node, takes: list[Node]) -> ReadOfStep:
    """Let the first read take the batches of all these cores."""
    first, cores = takes[0], len(takes)
    before = first.outputs or []
    shapes: list[attrs.Shape] = [(cores, *(shape or ())) for _, shape in before]
    graph.set_attr(iterator, "output_shapes", shapes)
    pieces = []
    for port, (kind, shape) in enumerate(before):
        piece = graph.add("Unpack", f"{first.name}/core", [first.out(port)], attrs={"T": kind, "num": cores, "axis": 0},
                          outputs=[(kind, shape)] * cores, source=first)  # fmt: skip
        pieces.append(piece)
    for core, take in enumerate(takes):
        for port, piece in enumerate(pieces):
            graph.replace_uses(take.out(port), piece.out(core), where=lambda use: use.node not in pieces)
    for take in takes[1:]:
        graph.replace_control_uses(take, [first])
    graph.remove_all(takes[1:])
    graph.set_attr(first, "output_shapes", shapes)
    graph.set_outputs(first, [(kind, shape) for (kind, _), shape in zip(before, shapes, strict=True)])
    return ReadOfStep([first, *pieces], [[piece.out(core) for piece in pieces] for core in range(cores)])


def _read_rows(graph: Graph, iterator: Node, takes: list[Node], held: HeldRows) -> ReadOfStep:
    """Let the reads be the cores' parts of stacked rows."""
    read = held.read
    graph.set_attr(iterator, "output_types", [INT64])
    graph.set_attr(iterator, "output_shapes", read.attr("output_shapes"))
    pieces = []
    for port, stacked in enumerate(held.rows):
        kind, shape = takes[0].output(port)
        piece = graph.add("Unpack", f"{takes[0].name}/core", [stacked],
                          attrs={"T": kind, "num": len(takes), "axis": 0}, outputs=[(kind, shape)] * len(takes),
                          source=takes[0])  # fmt: skip
        for core, take in enumerate(takes):
            graph.replace_uses(take.out(port), piece.out(core))
        pieces.append(piece)
    for take in takes:
        graph.replace_control_uses(take, [read])
    graph.remove_all(takes)
    nodes = [read, *(stacked.node for stacked in held.rows), *pieces]
    return ReadOfStep(nodes, [[piece.out(core) for piece in pieces] for core in range(len(takes))])
