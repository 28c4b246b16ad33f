"""The input of many hosts: each reads a pipeline of its own, and all of them read every step whole.

A host hands its own cores' batches on and leaves the others'. So all hosts together see what one host with as many cores
sees, and their pipelines stand at one position, which is also the one of one host: a checkpoint holds that of the first,
and whatever number of hosts goes on from it begins there.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np

from tpugraph.analysis import frames
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.ir.nondeterminism import named_operands
from tpugraph.ir.walks import reached
from tpugraph.runtime.emulator.host_list import Hosts
from tpugraph.runtime.emulator.rows_of_constants import scalar


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
