"""TPU graphs that TPUEstimator built: give them the entry points of a converted graph; one session runs both."""

from __future__ import annotations

import numpy as np

from tpugraph import analysis, ops, roles
from tpugraph.analysis import CLUSTER_ATTR, HOST_DEVICE, in_cluster, shapes
from tpugraph.analysis.step import Outfed
from tpugraph.control_flow.loops import add_results, loop_of_frame, unite
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import carried, counted, frame_chain, frames_around
from tpugraph.ir.walks import source_of
from tpugraph.passes.entry_points import EntryPoints
from tpugraph.roles.findings import Finding, Roles
from tpugraph.roles.training_roles import of_every_mode
from tpugraph.support.errors import RunError
from tpugraph.tpu.outfeed import MADE_BY, HostSide, read_in_loop
from tpugraph.tpu.program import DEVICE_PARTS

_INT32 = attrs.dtype("int32")
DEFAULT_ITERATIONS = 100
"""Steps per loop where the graph does not say: TPUEstimator sets the number at run time."""


def add_entry_points(graph: Graph) -> bool:
    """Give a TPUEstimator training graph the entry points of a converted one; a RunError where it is not of the documented form.

    The loss of each step, which is core 0's own there, becomes the mean over the cores: the cluster sends it over its outfeed, too.
    Returns False, and changes nothing, where the graph has entry points.
    """
    if any(name in graph for name in DEVICE_PARTS.values()):
        return False
    shapes.infer(graph)
    graph.stage = MADE_BY
    graph.set_attr([node for node in graph if node.has_attr("_class")], "_class", None)  # its nodes may be merged
    _wait_at_entries(graph)
    limit, condition = _limit(graph)
    graph.roles = _roles(graph)
    loss = _carried_loss(graph, condition)
    _send_loss(graph, loss)
    _name_limit(graph, limit)
    _read_outfeed(graph, limit)
    output = _one(graph, "TPUReplicatedOutput")
    add_results(graph, train=str(output.out()), enqueue=_feeding_loop(graph).name)
    graph.stage = None
    EntryPoints().run(graph)
    return True


def _wait_at_entries(graph: Graph) -> None:
    """Move control edges from outside of a loop to its Enters, as executors of graphs need it."""
    frame_of, around = analysis.frames(graph), frames_around(graph)
    waits = {}
    for node in graph:
        inside = around[frame_of[node]] if node.op in ops.ENTER else frame_of[node]
        for control in node.controls:
            outside = around[frame_of[control]] if control.op in ops.EXIT else frame_of[control]
            if inside != outside:
                waits[node, control] = next(f for f in frame_chain(around, inside) if around[f] == outside)
    for (node, control), frame in waits.items():
        graph.remove_control(node, control)
        for enter in graph.of_type(*ops.ENTER):
            if frame_of[enter] == frame and control not in enter.controls:
                graph.add_control(enter, control)


def _one(graph: Graph, op: str) -> Node:
    found = graph.of_type(op)
    if len(found) != 1:
        raise RunError(f"the graph has {len(found)} {op}, not one", origin=graph.source,
                       fix="give a training graph as TPUEstimator writes it")  # fmt: skip
    return found[0]


def _limit(graph: Graph) -> tuple[Node, Node]:
    """The variable that holds the number of iterations, and the condition of the device loop."""
    for condition in graph.of_type(*ops.LOOP_COND):
        loop = counted(condition) if in_cluster(condition) else None
        if loop is not None:
            return loop.limit, condition
    raise RunError("the cluster has no loop over a number of iterations that a variable holds", origin=graph.source,
                   fix="only training graphs run so far; evaluation and prediction graphs loop otherwise")  # fmt: skip


def _roles(graph: Graph) -> Roles:
    cluster = analysis.cluster_nodes(graph)
    return Roles(
        loss=Finding("", "the loop carries it"),
        train_ops=[],
        step=roles.find_step(graph, cluster),
        inputs=[],
        variables=roles.find_variables(graph, cluster),
        updates=[],
        **of_every_mode(graph),
    )


def _carried_loss(graph: Graph, condition: Node) -> Tensor:
    """The float scalar that the device loop carries from step to step."""
    for use in condition.uses():
        loop = carried(use.node.inputs[0].node) if use.node.op in ops.SWITCH else None
        if loop is not None and loop.merge.out().dtype.floating:
            return loop.following
    raise RunError("the device loop carries no loss", node=condition, origin=graph.source)


def _send_loss(graph: Graph, loss: Tensor) -> None:
    """Append this core's share of the loss to the outfeed tuple."""
    enqueue = _one(graph, "OutfeedEnqueueTuple")
    count = _one(graph, "TPUReplicateMetadata").attr("num_replicas")
    # The carried value waits for the outfeed; what it copies does not.
    loss = source_of(loss, where=lambda node: enqueue in node.controls)
    source = loss.node
    make, kind = Builder(graph, "tpugraph", marks={CLUSTER_ATTR: enqueue.attr(CLUSTER_ATTR)}), loss.dtype
    cores = make.constant(1.0 / count, kind, name="cores", controls=[source])
    share = make.add("Mul", [loss, cores], loss.shape, name="share")
    one = make.constant(np.ones(1, "int32"), name="one", controls=[source])
    vector = make.add("Reshape", [share, one], (1,), name="vector")
    graph.set_attr(enqueue, "dtypes", [*enqueue.attr("dtypes"), kind])
    graph.set_inputs(enqueue, [*enqueue.inputs, vector])
    for dequeue in graph.of_type("OutfeedDequeueTuple"):
        shapes_held = [attrs.encode(s) if s is not None else s for s in dequeue.attr("shapes")]
        graph.set_attr(dequeue, "dtypes", [*dequeue.attr("dtypes"), kind])
        graph.set_attr(dequeue, "shapes", [*shapes_held, (1,)])
        graph.set_attr(dequeue, "_output_shapes", None)
        graph.set_outputs(dequeue, [*(dequeue.outputs or []), (kind, (1,))])


def _name_limit(graph: Graph, limit: Node) -> None:
    make = Builder(graph)
    first = make.constant(DEFAULT_ITERATIONS, _INT32, name="tpugraph/iterations_per_loop/Initializer")
    assign = make.node("AssignVariableOp", [limit.out(), first], name="tpugraph/iterations_per_loop/Assign")
    make.identity(limit.out(), name="tpugraph/iterations_per_loop")
    add_results(graph, limit_init=assign.name)


def _read_outfeed(graph: Graph, limit: Node) -> None:
    """Read the outfeed in a loop; host functions of the user's see what the last step of a loop sent."""
    dequeues = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    if not dequeues:
        raise RunError("nothing reads the outfeed", origin=graph.source)
    if any(analysis.frames(graph)[node] for node in dequeues):
        raise RunError("the outfeed is read in a loop of an unknown form", node=dequeues[0])
    for node in dequeues:
        node.made_by = MADE_BY
        graph.set_device(node, node.device or HOST_DEVICE)
        for waiting in node.control_uses():
            graph.remove_control(waiting, node)
    loss = HostSide(graph, dequeues).total(len(dequeues[0].outputs or []) - 1)
    graph.keep(Outfed(loss=str(loss)))
    read_in_loop(graph, limit.out())


def _feeding_loop(graph: Graph) -> Node:
    """The Exit of the loop in which the infeed is written: those of several hosts become one."""
    enqueues = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    frame_of = analysis.frames(graph)
    loops = [loop_of_frame(graph, frame) for frame in dict.fromkeys(frame_of[node] for node in enqueues)]
    first = loops[0] if loops else None
    if first is None or not all(loop is not None and unite(graph, loop, first) for loop in loops[1:]):
        raise RunError("the infeed is not written in loops over the steps", origin=graph.source)
    frame_of = analysis.frames(graph)
    ends = [node for node in graph.of_type(*ops.EXIT) if frame_of[node] == first.frame]
    return ends[0] if len(ends) == 1 else graph.add("NoOp", "tpugraph/infeed/hosts", controls=ends, outputs=[])
