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

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.repeatable import named_operands
from tpugraph.runtime.emulator.host_list import Hosts

_INT64 = attrs.dtype("int64")


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
        own, _ = hosts.copy_iterator(graph, iterator, maker, host)
        made = _copy(graph, step, hosts, host)
        for tensor in itertools.chain(*step.parts[host * hosts.cores : (host + 1) * hosts.cores]):
            graph.replace_uses(tensor, made[tensor.node].out(tensor.port))
        _restore_too(graph, iterator, own, hosts, host)


def _copy(graph: Graph, step: ReadOfStep, hosts: Hosts, host: int) -> dict[Node, Node]:
    """A host's own copy of a read, with what brings it the iterator and constants from outside of the loop."""
    chosen, stack = dict.fromkeys(step.nodes), list(step.nodes)
    while stack:
        for tensor in stack.pop().inputs:
            if tensor.node.op in ops.ENTER | ops.IDENTITIES and tensor.node not in chosen:
                chosen[tensor.node] = None
                stack += [tensor.node] if tensor.node.op in ops.IDENTITIES else []
    made = graph.clone_subgraph(chosen, lambda name: f"{name}/host_{host}")
    for node, copy in made.items():
        if node.op in ops.ENTER:
            source = node.inputs[0]
            graph.set_input(copy, 0, hosts.copy_outside(graph, source.node, host).out(source.port))
    hosts.put(made.values(), host)
    return made


def _restore_too(graph: Graph, iterator: Node, own: Node, hosts: Hosts, host: int) -> None:
    """Let what gives the first host's iterator a position give it to a host's own as well."""
    for node in [use.node for use in iterator.uses() if use.node.op == "DeserializeIterator"]:
        name, waiting = f"{node.name}/host_{host}", node.control_uses()
        made = graph.clone_subgraph([node], lambda _, name=name: name, replace={iterator.out(): own.out()})  # type: ignore[misc]
        hosts.put(made.values(), host)
        for each in waiting:
            graph.add_control(each, made[node])


def _draw_alike(graph: Graph, maker: Node) -> None:
    """Give a pipeline that shuffles without a seed one that is drawn here, so that all hosts put its rows in one order."""
    for node in graph.ancestors([maker], data_only=True):
        seeds = [tensor for name, tensor in named_operands(node) if name in ("seed", "seed2")]
        if len(seeds) != 2 or not all(_is_zero(tensor) for tensor in seeds):
            continue
        for index, tensor in enumerate(node.inputs):
            if tensor in seeds:
                drawn = np.int64(random.SystemRandom().randrange(1, 2**31))
                graph.set_input(node, index, Builder(graph, node.name, source=node).constant(drawn, name="drawn"))


def _is_zero(tensor: Tensor) -> bool:
    return tensor.node.op in ops.CONSTANTS and tensor.dtype == _INT64 and not tensor.node.attr("value").any()
