"""Which writes train, and which node runs them: the train op."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.state import written_variables
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.roles.findings import Finding
from tpugraph.roles.losses import no_train_op
from tpugraph.support.errors import RolesError


def find_updates(graph: Graph, moving: list[Node], loss: Tensor) -> list[Node]:
    """The writes that train: optimizer ops, and plain writes of variables that the loss reads."""
    forward = graph.ancestors([loss.node], data_only=True)
    found = []
    for node in moving:
        fact = ops.WRITES[node.op]
        variables = written_variables(node)
        if fact.kind == "apply" or (variables and variables[0] in forward):
            found.append(node)
    trained = [node for node in found if not _is_statistic(graph, node, forward)]
    return trained or found


def _is_statistic(graph: Graph, write: Node, forward: dict[Node, None]) -> bool:
    """Whether a plain write keeps a number about the batch that the loss reads, such as a count, and no gradient.

    A gradient comes out of backpropagation, and what the loss made of the variable led to it. Neither is so here.
    """
    fact = ops.WRITES[write.op]
    if fact.kind != "assign":
        return False
    variable, value = written_variables(write)[0], write.inputs[fact.value].node
    if _backpropagates(value, forward):
        return False
    reads = ops.READS | ops.IDENTITIES | ops.HANDLE_ALIASES
    used = [n for n in graph.descendants([variable], data_only=True) if n in forward and n.op not in reads]
    if not used:
        return False
    cone = graph.ancestors([value], data_only=True)
    if not any(node.op in ops.INPUTS for node in cone):
        return False  # made of other state, as sparse Adam's steps are of its slots
    return not any(node in cone for node in used if node is not variable)


def _backpropagates(value: Node, forward: dict[Node, None]) -> bool:
    """Whether what the step computes for a write alone has an op of backpropagation, or a layer's product.

    A product of what the loss is computed from is none: one side of a layer's product is a gradient that came back.
    """
    made: dict[Node, None] = {}
    pending = [value]
    while pending:
        node = pending.pop()
        if node in made or node in forward:
            continue
        if node.op in ops.BACKPROPAGATION:
            return True
        if node.op in ops.LAYER_PRODUCTS and not all(_hands_on(t.node, forward) for t in node.inputs):
            return True
        made[node] = None
        pending += [tensor.node for tensor in node.inputs]
    return False


def _hands_on(node: Node, forward: dict[Node, None]) -> bool:
    """Whether a node is one that the loss is computed from, or hands one on."""
    hands_on = ops.IDENTITIES | ops.TRANSPOSES | ops.CASTS
    return source_of(node.out(), hands_on, where=lambda at: at not in forward).node in forward


def find_train_op(graph: Graph, updates: list[Node], writes: list[Node]) -> tuple[list[Finding], list[Finding]]:
    """The train op, and those that come next.

    Args:
        graph: the graph as loaded.
        updates: the writes that train.
        writes: all writes of variables.

    Raises:
        RolesError: there is none, or several of which none contains the others.
    """
    if not updates:
        raise no_train_op(graph)
    reached = _reached(graph, updates, writes)
    sinks = [node for node in reached if not node.consumers()]
    if not sinks:
        raise RolesError("a loop reads all that the updates of variables give, and nothing ends them", node=updates[0],
                         origin=graph.source, fix="choose with --train_op=NODE what ends a step")  # fmt: skip
    hinted = {name.partition(":")[0] for name in graph.collections.get("train_op", [])}
    position = {node: i for i, node in enumerate(graph)}

    def rank(node: Node) -> tuple[int, int, bool, int]:
        update, write = reached[node]
        return (update.bit_count(), write.bit_count(), node.name in hinted, position[node])

    sinks.sort(key=rank, reverse=True)
    best = sinks[0]
    full = (1 << len(updates)) - 1
    missed = full & ~reached[best][0]
    findings = [_train_finding(node, reached[node], len(updates), node.name in hinted) for node in sinks]
    rivals = [
        finding
        for node, finding in zip(sinks[1:], findings[1:], strict=True)
        if reached[node][0] & missed and (node.name in hinted or best.name not in hinted)
    ]
    if rivals:
        names = ", ".join(f"{f.name} ({f.reason})" for f in [findings[0], *rivals][:4])
        raise RolesError(
            f"the graph has several train ops and none contains the others: {names}",
            origin=graph.source,
            fix=f"choose with --train_op={best.name}, or run them together with "
            f"--train_op={','.join(f.name for f in [findings[0], *rivals])}",
        )
    return findings[:1], findings[1:4]


def _reached(graph: Graph, updates: list[Node], writes: list[Node]) -> dict[Node, tuple[int, int]]:
    """Of each node behind an update, as bits, which updates and which other writes it stands behind."""
    trains = {node: 1 << i for i, node in enumerate(updates)}
    others = {node: 1 << i for i, node in enumerate(writes)}
    reached: dict[Node, tuple[int, int]] = {}
    for node in graph.topological_order(graph.descendants(updates)):
        update, write = trains.get(node, 0), others.get(node, 0)
        for producer in node.producers():
            more = reached.get(producer)
            if more is not None:
                update |= more[0]
                write |= more[1]
        if update:
            reached[node] = (update, write)
    return reached


def _train_finding(node: Node, reached: tuple[int, int], total: int, hinted: bool) -> Finding:
    count = reached[0].bit_count()
    where = ", in the collection train_op" if hinted else ""
    return Finding(
        node.name, f"runs {count} of {total} updates and {reached[1].bit_count()} writes, nothing follows it{where}"
    )


def no_update(
    graph: Graph, train_ops: list[Finding], inputs: list[Node], writes: list[Node], cone: dict[Node, None]
) -> RolesError:
    """The error of a train op, or of none, that trains nothing."""
    name = train_ops[0].name if train_ops else None
    if not inputs:
        return RolesError(
            "the graph reads no input: there is no iterator, queue or placeholder",
            origin=graph.source,
            fix="give the training graph that Estimator.train writes (it holds its input pipeline)",
        )
    if not any(node in cone for node in writes):
        fault = f"'{name}' is no train op: it writes no variable"
    else:
        fault = f"there is no gradient path from the loss to what '{name}' writes"
    return RolesError(fault, node=name, origin=graph.source, fix="name the right train op with --train_op")


def check_gradients(graph: Graph, loss: Tensor, cone: dict[Node, None], updates: list[Node]) -> None:
    """A train op whose updates share nothing with the loss trains something else."""
    forward = graph.ancestors([loss.node], data_only=True)
    for node in updates:
        variables = written_variables(node)
        if variables and variables[0] in forward:
            return
    node = updates[0]
    raise RolesError(
        f"there is no gradient path from the loss '{loss}' to any variable that the train op updates",
        node=node,
        origin=graph.source,
        fix="name the loss with --loss and the train op with --train_op",
    )
