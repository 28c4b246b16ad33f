"""Several hosts: one loop whose body has a part on each of them.

The replicas are divided among the hosts. Variables, their updates and constants exist once per host. Each host sums over its own
replicas, then over the sums of all hosts; all add the same numbers in the same order. TensorFlow's collectives are not used: its
servers refuse them for good once a worker was lost. The loop, the outfeed and everything outside the loop are on the first host;
``tpugraph/mirror`` copies its variables to the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import behind, joins_branches
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.support.errors import RunError


@dataclass
class Hosts:
    """The hosts of a session, and the nodes that are not on the first one."""

    devices: tuple[str, ...]  # the device of each host; replicas are divided among them in order, equally
    replicas: int  # number of replicas over all hosts
    # host of a node; the first host, or every one, for a node that is not in it
    at: dict[Node, int] = field(default_factory=dict)
    # of each host but the first, its copy of a node outside the loop
    copies: dict[int, dict[Node, Node]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.devices)

    @property
    def cores(self) -> int:
        return self.replicas // self.count

    @property
    def others(self) -> range:
        return range(1, self.count)

    def of_core(self, core: int) -> int:
        return core // self.cores

    def put(self, nodes: Iterable[Node], host: int) -> None:
        self.at.update(dict.fromkeys(nodes, host))

    def copy_outside(self, graph: Graph, node: Node, host: int) -> Node:
        """A host's own copy of a node outside the loop and of all that leads to it; tables are initialised there."""
        known = self.copies.setdefault(host, {})
        if node in known:
            return known[node]
        chosen = [n for n in graph.ancestors([node]) if n not in known]
        own = {n: [c] for n, c in known.items()}
        made = graph.clone_subgraph(chosen, lambda name: f"{name}/host_{host}", replace_controls=own)
        for copy in made.values():
            for index, tensor in enumerate(copy.inputs):
                if tensor.node in known:
                    graph.set_input(copy, index, known[tensor.node].out(tensor.port))
        known.update(made)
        self.put(made.values(), host)
        for table in [n for n in made if n.op in ops.TABLES]:
            for use in table.uses():
                if use.node.op in ops.TABLE_INITIALIZERS:
                    self._also(graph, use.node, host)
        return made[node]

    def copy_iterator(self, graph: Graph, iterator: Node, maker: Node, host: int) -> Node:
        """A host's own copy of an iterator and of what makes it, dataset and all."""
        self._also(graph, maker, host)
        return self.copies[host][iterator]

    def _also(self, graph: Graph, initializer: Node, host: int) -> None:
        """Let what waits for an initializer wait for the host's own as well."""
        waiting = [node for node in initializer.control_uses() if node not in self.at]
        made = self.copy_outside(graph, initializer, host)
        for node in waiting:
            graph.add_control(node, made)


MIRROR = "tpugraph/mirror"  # gives the variables of all hosts the values of those on the first one
_HANDLES = frozenset({"resource", "variant"})
_ONCE = ops.GET_NEXT | ops.DEQUEUES | ops.PYTHON | ops.UNWRAPS


def spread(graph: Graph, copies: Copies, sums: list[Node], hosts: Hosts) -> None:
    """Put the parts of the fused loop on their hosts, and give each node its device."""
    frame_of = analysis.frames(graph)
    sums = _sums_of_loop(graph, sums, frame_of)
    frame = frame_of[sums[0]]
    _place_replicas(graph, copies, hosts)
    mirrored, alone = _what_hosts_need(graph, frame, frame_of, hosts)
    for host, nodes in alone.items():
        hosts.put(nodes, host)
    sums = [node for node in sums if node in mirrored]
    parts = {node: list(node.inputs) for node in sums}
    reductions = [_reduce(graph, node, hosts, mirrored) for node in sums]
    in_branches = set(behind(node for node in mirrored if node.op in ops.SWITCH))
    ends = [n for n in mirrored if (n.op in ops.WRITES or n in reductions) and n not in in_branches]
    for node in mirrored:
        graph.set_controls(node, [c for c in node.controls if not hosts.at.get(c)])
    variables = _handles(graph, mirrored)
    done, of_hosts = [], [{node: node for node in mirrored}]
    for host in hosts.others:
        made = _copy(graph, frame, mirrored, variables, host, hosts)
        for total, of_all in parts.items():
            _sum_parts(graph, made[total], of_all[host * hosts.cores : (host + 1) * hosts.cores])
        done.append(graph.add("NoOp", f"tpugraph/host_{host}/step", controls=[made[n] for n in ends], outputs=[]))
        hosts.put([done[-1]], host)
        of_hosts.append(made)
    for total, reduced in zip(sums, reductions, strict=True):
        for made in of_hosts:
            _sum_parts(graph, made[reduced], [each[total].out() for each in of_hosts])
    for node in graph.of_type(*ops.NEXT_ITERATION):
        if frame_of.get(node) == frame and node not in hosts.at:
            graph.add_controls(node, [*reductions, *done])
    _add_mirror(graph, variables, hosts)
    for node in graph:
        graph.set_device(node, hosts.devices[hosts.at.get(node, 0)])


def _sums_of_loop(graph: Graph, sums: list[Node], frame_of: dict[Node, str]) -> list[Node]:
    """Those of the sums over the cores that each step makes."""
    sums = [node for node in sums if node.op in ops.ADD_N and frame_of[node]]
    if not sums:
        raise RunError("nothing is summed over the cores, so there is nothing for several hosts to agree on",
                       origin=graph.source)  # fmt: skip
    for node in sums:
        if frame_of[node] != frame_of[sums[0]]:
            raise RunError("a sum over the cores inside a loop of the model cannot be taken over several hosts",
                           node=node, fix="run it on one host")  # fmt: skip
    return sums


# --------------------------------------------------------------------------- what goes where


def _place_replicas(graph: Graph, copies: Copies, hosts: Hosts) -> None:
    for node, core in copies.cores().items():
        if node in graph:
            hosts.at[node] = hosts.of_core(core)
    for node in graph.topological_order():
        if node not in hosts.at:
            host = next((hosts.at[t.node] for t in node.inputs
                         if t.dtype.name in _HANDLES and hosts.at.get(t.node)), 0)  # fmt: skip
            if host:
                hosts.at[node] = host


def _what_hosts_need(graph: Graph, frame: str, frame_of: dict[Node, str],
                     hosts: Hosts) -> tuple[NodeSet, dict[int, list[Node]]]:  # fmt: skip
    """The nodes of the loop that several hosts need, and those that one host alone needs."""
    updates = [n for n in graph if n.op in ops.WRITES and in_cluster(n) and frame_of[n] and n not in hosts.at]
    wanted: dict[Node, set[int]] = {}
    for host in range(hosts.count):
        stack = [n for n, place in hosts.at.items() if place == host and frame_of.get(n)]
        stack += updates
        for node in updates:
            wanted.setdefault(node, set()).add(host)
        while stack:
            for before in stack.pop().producers():
                if before in hosts.at or not frame_of[before] or _drives(before, frame, frame_of):
                    continue
                if before.op in _ONCE or host in wanted.setdefault(before, set()):
                    continue
                wanted[before].add(host)
                stack.append(before)
    alone: dict[int, list[Node]] = {}
    mirrored: NodeSet = {}
    for node in graph:
        needing = wanted.get(node, set())
        if len(needing) == 1:
            alone.setdefault(next(iter(needing)), []).append(node)
        elif needing and node.op not in ops.RANDOM:
            mirrored[node] = None
    return mirrored, alone


def _drives(node: Node, frame: str, frame_of: dict[Node, str]) -> bool:
    """Whether a node is part of the loop itself, which is on the first host."""
    if frame_of[node] != frame:
        return False
    if node.op in ops.SWITCH:
        return node.inputs[1].node.op in ops.LOOP_COND
    if node.op in ops.MERGE:
        return not joins_branches(node)
    return node.op in ops.LOOP_COND | ops.NEXT_ITERATION | ops.EXIT


# --------------------------------------------------------------------------- sums over the hosts


def _reduce(graph: Graph, total: Node, hosts: Hosts, mirrored: NodeSet) -> Node:
    """Sum the first host's parts; the node behind it, which the readers read, is to sum over the hosts."""
    users = total.uses()
    _sum_parts(graph, total, list(total.inputs[: hosts.cores]))
    reduced = Builder(graph, f"{total.name}/hosts").add("AddN", [total.out()], total.out().shape, name="sum")
    for use in users:
        graph.set_input(use.node, use.index, reduced)
    graph.replace_control_uses(total, [reduced.node])
    mirrored[reduced.node] = None
    return reduced.node


def _sum_parts(graph: Graph, total: Node, parts: list[Tensor]) -> None:
    kind = total.attr("T")
    if len(parts) == 1:
        graph.retype(total, "Identity", inputs=parts, attrs={"T": kind})
    else:
        graph.retype(total, "AddN", inputs=parts, attrs={"T": kind, "N": len(parts)})


# --------------------------------------------------------------------------- what each host has of its own


def _handles(graph: Graph, mirrored: NodeSet) -> NodeSet:
    """The handles outside the loop that mirrored nodes use."""
    found: NodeSet = {}
    for entry in mirrored:
        if entry.op in ops.ENTER and entry.inputs[0].dtype.name == "resource":
            source = entry.inputs[0].node
            if source.op not in ops.RESOURCE_VARIABLES | ops.TABLES:
                raise RunError(f"the {source.op} that the step uses cannot exist on several hosts", node=source,
                               origin=graph.source)  # fmt: skip
            found[source] = None
    return found


def _copy(graph: Graph, frame: str, mirrored: NodeSet, handles: Iterable[Node], host: int,
          hosts: Hosts) -> dict[Node, Node]:  # fmt: skip
    """A host's own copy of what is mirrored; what is on that host reads it."""
    own = {handle.out(): hosts.copy_outside(graph, handle, host).out() for handle in handles}
    made = graph.clone_subgraph(mirrored, lambda name: f"{name}/host_{host}", replace=own)
    for node, copy in made.items():
        if node.op in ops.ENTER and node.attr("frame_name") != frame:
            graph.set_attr(copy, "frame_name", f"{node.attr('frame_name')}/host_{host}")
    for node in [n for n, place in hosts.at.items() if place == host and n in graph]:
        for index, tensor in enumerate(node.inputs):
            if tensor.node in made:
                graph.set_input(node, index, made[tensor.node].out(tensor.port))
        if any(c in made for c in node.controls):
            graph.set_controls(node, [made.get(c, c) for c in node.controls])
    hosts.put(made.values(), host)
    return made


def _add_mirror(graph: Graph, handles: Iterable[Node], hosts: Hosts) -> None:
    """The op that gives the variables of all hosts the values of the first one's."""
    make, updates = Builder(graph, MIRROR), []
    for handle in handles:
        if handle.op in ops.RESOURCE_VARIABLES:
            kind, shape = handle.attr("dtype"), handle.attr("shape")
            value = make.add("ReadVariableOp", [handle.out()], shape, name="read", dtype=kind)
            for host in hosts.others:
                updates.append(make.node("AssignVariableOp", [hosts.copies[host][handle].out(), value], name="assign"))
                hosts.put(updates[-1:], host)
    graph.add("NoOp", MIRROR, controls=updates, outputs=[])
