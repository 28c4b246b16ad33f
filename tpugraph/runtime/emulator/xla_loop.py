"""Small dense training loops as one XLA computation: the cores folded onto one device, lowered as for a TPU, launched by TensorFlow.

The executor spends one to two microseconds per op, whatever its size; a small model on N cores is N times hundreds of tiny ops.
Where every device op is in :data:`tpugraph.ops.FUSED` (no random op, no convolution, no control flow, no assertion), every
shape is static, and all values together are small, the cluster becomes a function: copies per core, stacked where every op
vectorizes, and sums as additions. The host's loop stages the batches of all steps, one XlaLaunch runs the steps, and the output
loop reads what each step sent.
"""

from __future__ import annotations

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, NodeSet, in_cluster, shapes
from tpugraph.analysis.shapes import element_count
from tpugraph.analysis.trip_counts import steps_per_loop
from tpugraph.control_flow import functionalize
from tpugraph.control_flow.functionalize import raise_control_flow
from tpugraph.ir import Graph, Node, Output, Tensor, attrs, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import counted
from tpugraph.ir.walks import reached, readers, source_of
from tpugraph.runtime.emulator.copies import Copies, copy_per_core, lower_boundary, lower_sums
from tpugraph.runtime.emulator.stack_cores import stack
from tpugraph.runtime.host_part import COUNT, HostPart, take_host_part
from tpugraph.xla.cut_cluster import Cluster, cut

FEWEST_STEPS = 100  # compiling takes about a second; below so many steps per loop it does not pay
MOST_ELEMENTS = 2_000_000  # beyond this, the ops are big enough for the executor, which runs several at a time
MOST_BYTES = 128 * 2**20  # the biggest size of all batches and results of a loop


def compile_loop(graph: Graph, count: int) -> int:
    """Compile a training loop in place where it is small and dense; returns the number of ops, 0 where it is not."""
    steps = steps_per_loop(graph)
    if steps < FEWEST_STEPS or not _fits(graph, count, steps):
        return 0
    copy = graphdef.copy(graph)
    shapes.infer(copy)
    outputs, same = _fold(copy, count)
    found = cut(copy, iterations=steps)
    found.outputs = outputs
    size = len(copy)
    name = _function(found)
    host = take_host_part(graph, steps, folded=True, same=same)
    graph.library = copy.library
    _launch(graph, found, name, host)
    return size


# --------------------------------------------------------------------------- what to compile


def _fits(graph: Graph, count: int, steps: int) -> bool:
    varying, frame_of = analysis.replica_varying(graph), analysis.frames(graph)
    cluster: NodeSet = {node: None for node in graph if in_cluster(node)}
    if not all(_compiles(node, frame_of[node]) for node in cluster) or not _in_like_loops(graph, cluster, frame_of):
        return False
    elements = sum(_elements(node) * (count if node in varying else 1) for node in cluster if node.op in ops.FUSED)
    fed = [(kind, shape) for node in graph.of_type("InfeedEnqueueTuple", "OutfeedDequeueTuple")
           for kind, shape in zip(node.attr("dtypes"), node.attr("shapes"), strict=True)]  # fmt: skip
    if not all(_known(kind, shape) for kind, shape in fed):
        return False
    staged = steps * sum((element_count(shape) or 0) * (kind.size or 0) for kind, shape in fed)
    small = elements <= MOST_ELEMENTS and staged <= MOST_BYTES
    return small and _constants_known(graph, cluster) and not _shared_with_host(graph, cluster, frame_of)


def _in_like_loops(graph: Graph, cluster: NodeSet, frame_of: dict[Node, str]) -> bool:
    """Whether the device and both sides of the host are in one loop each, which count to the same number of steps."""
    puts, gets = graph.of_type("InfeedEnqueueTuple"), graph.of_type("OutfeedDequeueTuple")
    frames = [
        {frame_of[node] for node in cluster} - {""},
        *({frame_of[node] for node in ends} for ends in (puts, gets)),
    ]
    if any(len(found) != 1 for found in frames):
        return False
    limit = source_of(graph["tpugraph/iterations_per_loop"].out()).node
    loops = {frame_of[condition]: counted(condition) for condition in graph.of_type(*ops.LOOP_COND)}
    found = [loops.get(frame) for (frame,) in frames]
    return all(loop is not None and loop.limit is limit for loop in found)


def _compiles(node: Node, frame: str) -> bool:
    if node.op in ops.CONTROL_FLOW:
        return node.op not in ops.SWITCH or node.inputs[1].node.op in ops.LOOP_COND
    if node.op in ops.TPU_SYSTEM | ops.CONSTANTS | ops.GROUPS:
        return True
    if node.op not in ops.FUSED or node.outputs is None:
        return False
    if node.op in ops.BROADCAST_AXES:
        return True  # made of constants alone, which is checked
    known = all(_known(kind, shape) for kind, shape in node.outputs)
    outside = [t for t in node.inputs if not in_cluster(t.node) and t.node.op not in ops.CONSTANTS]
    if not all(_known(t.dtype, t.shape) for t in outside):
        return False
    return (known or not frame or _carries(node)) and all(
        t.dtype.name == "resource" or t.dtype.name in attrs.SIZE_OF for t in node.inputs
    )


def _carries(node: Node) -> bool:
    """Whether the node is part of the loop itself: it hands a carried value from or to the next step, or compares the counter."""
    around = ops.NEXT_ITERATION | ops.LOOP_COND
    from_loop = any(t.node.op in ops.SWITCH for t in node.inputs)
    return from_loop or (bool(node.uses()) and all(use.node.op in around for use in node.uses()))


def _known(kind: attrs.DType, shape: attrs.Shape) -> bool:
    return kind.name == "resource" or (kind.name in attrs.SIZE_OF and element_count(shape) is not None)


def _elements(node: Node) -> int:
    return sum(element_count(shape) or 0 for _, shape in node.outputs or ())


def _constants_known(graph: Graph, cluster: NodeSet) -> bool:
    """Whether every operand that XLA needs at compile time is made of constants (or of shapes, which are static)."""
    known = ops.SHAPE_OF | ops.CONSTANTS
    computed = ops.FUSED | ops.ENTER
    other = [
        n for n in graph if n.op not in known and (n.op not in computed or n.op in ops.READS or n.op in ops.WRITES)
    ]
    unknown = reached(other, lambda node: (use.node for use in node.uses() if use.node.op not in known))
    for node in cluster:
        if node.op in ops.FUSED:
            record, count = ops.record(node.op), len(node.inputs)
            # slices that move, which XLA takes too, are left to the executor
            needed = record.size_operands(count) if node.op in ops.SLICES else record.constant_operands(count)
            if any(node.inputs[index].node in unknown for index in needed):
                return False
    return True


def _shared_with_host(graph: Graph, cluster: NodeSet, frame_of: dict[Node, str]) -> bool:
    """Whether a loop of the host uses a variable that the device writes: one launch for all steps leaves no order between them."""
    handed_on = ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS
    for variable in graph.of_type(*ops.RESOURCE_VARIABLES):
        found = [node for node in readers(variable, through=handed_on) if node.op not in handed_on]
        written = any(node in cluster and node.op in ops.WRITES for node in found)
        if written and any(node not in cluster and frame_of[node] for node in found):
            return True
    return False


# --------------------------------------------------------------------------- the function


def _fold(graph: Graph, count: int) -> tuple[dict[str, Tensor], bool]:
    """Fold the cores onto one whose infeed and outfeed have a leading dimension of cores; returns what the cluster returns, by
    the name of the tensor in the TPU graph, and whether all cores send the same."""
    copies = copy_per_core(graph, analysis.replica_varying(graph), count)
    lower_sums(graph, copies, graph.of_type("CrossReplicaSum"))
    lower_boundary(graph, copies, graph.of_type("TPUReplicatedInput"), ())
    outputs = {str(node.out(core)): copies.tensor(node.inputs[0], core)
               for node in graph.of_type("TPUReplicatedOutput") for core in node.used_ports()}  # fmt: skip
    enters = [node for node in graph.of_type(*ops.ENTER) if in_cluster(node) and not node.attr("is_constant", False)]
    for entry in enters:
        for merge in entry.consumers()[1:]:  # the values that the cores carry enter the loop one by one
            own = graph.clone_subgraph([entry], lambda name: f"{name}/core")[entry]
            for index, tensor in enumerate(merge.inputs):
                if tensor.node is entry:
                    graph.set_input(merge, index, own.out())
    for take in [node for node in graph.of_type("InfeedDequeueTuple") if copies.core_of(node) == 0]:
        _fold_infeed(graph, copies, take)
    frame_of = analysis.frames(graph)
    chosen: NodeSet = {node: None for node in graph
                       if in_cluster(node) and frame_of[node] and (node.op in ops.FUSED or node.op in ops.CONSTANTS)
                       and node.op not in ops.UNPACKS}  # fmt: skip
    stacked = stack(graph, copies, chosen, ops.FUSED)
    graph.set_attr([node for node in stacked if not in_cluster(node)], CLUSTER_ATTR, CLUSTER)
    gives = [node for node in graph.of_type("OutfeedEnqueueTuple") if copies.core_of(node) == 0]
    for give in gives:
        _fold_outfeed(graph, copies, give)
    writes = [node for node in graph.of_type(*ops.WRITES) if in_cluster(node)]
    ends = graph.of_type("TPUReplicateMetadata", "TPUReplicatedOutput", "OutfeedEnqueueTuple", "OutfeedDequeueTuple")
    limit = [graph["tpugraph/iterations_per_loop"], graph["tpugraph/iterations_per_loop/Initializer"]]
    # what one core alone sends, say
    graph.remove_dead([*writes, *ends, *limit, *(tensor.node for tensor in outputs.values())])
    return outputs, not any(copies.varies(give) for give in gives)


def _marked(graph: Graph, name: str) -> Builder:
    return Builder(graph, name, marks={CLUSTER_ATTR: CLUSTER})


def _fold_infeed(graph: Graph, copies: Copies, take: Node) -> None:
    each, known = copies.nodes(take), list(take.outputs or ())
    make = _marked(graph, take.name)
    stacked: list[Output] = [(kind, (copies.count, *(shape or ()))) for kind, shape in known]
    graph.set_attr(take, "shapes", [shape for _, shape in stacked])
    graph.set_outputs(take, stacked)
    for port, (_, shape) in enumerate(known):
        shapes = [shape] * copies.count
        pieces = make.node("Unpack", [take.out(port)], name="cores", shapes=shapes, num=copies.count, axis=0)
        for core, node in enumerate(each):
            for use in node.uses(port):
                if use.node is not pieces:
                    graph.set_input(use.node, use.index, pieces.out(core))
    for node in each[1:]:
        graph.replace_control_uses(node, [take])
    graph.remove_all(each[1:])


def _fold_outfeed(graph: Graph, copies: Copies, give: Node) -> None:
    if not copies.varies(give):
        return
    each = copies.nodes(give)
    for port in range(len(give.inputs)):
        values = [node.inputs[port] for node in each]
        shape = (copies.count, *(values[0].shape or ()))
        graph.set_input(give, port, _marked(graph, give.name).add("Pack", values, shape, axis=0))
    for node in each[1:]:
        graph.replace_control_uses(node, [give])
        graph.add_controls(give, node.controls)
    graph.remove_all(each[1:])


def _function(found: Cluster) -> str:
    graph = found.graph
    raise_control_flow(graph)
    arguments = [found.count, *found.infeed, *found.host.values(), *found.variables.values()]
    given = {tensor.node for tensor in arguments}
    body = [node for node in graph if node not in given]
    results = [*found.outfeed, *found.outputs.values()]
    return functionalize.make_function(graph, "tpugraph_loop", body, [[t] for t in arguments], results)


def _launch(graph: Graph, found: Cluster, name: str, host: HostPart) -> None:
    values = [graph.tensor(COUNT), *host.staged[0], *map(graph.tensor, found.host)]
    variables = [graph[name].out() for name in found.variables]
    results = [*found.outfeed, *found.outputs.values()]
    launch = graph.add(
        "XlaLaunch", "tpugraph/steps", [*values, *variables],
        attrs={"Tconstants": [], "Targs": [t.dtype for t in values], "Nresources": len(variables),
               "Tresults": [t.dtype for t in results], "function": attrs.Func(name)},
        outputs=[(t.dtype, t.shape) for t in results],
    )  # fmt: skip
    given = [*host.outfeed[0], *(host.outputs[output] for output in found.outputs)]
    for port, placeholder in enumerate(given):
        graph.replace_uses(placeholder, launch.out(port))
    graph.remove_all([placeholder.node for placeholder in given])
