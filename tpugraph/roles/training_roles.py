"""Roles: which node is the loss, the train op, the step counter, the input, an update - found by structure.

Collections and names are hints that rank candidates; they never decide alone, since real graphs mislead (the
``train_op`` collection holds optimizer ops, not the train op; the iterator's initialiser is in no collection).
"""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.state import feeding, flows_from, written_variables
from tpugraph.ir import Graph, Node
from tpugraph.ir.function_library import functions_named
from tpugraph.ir.pattern import anything, either, match, number, op
from tpugraph.ir.saves import saved_by
from tpugraph.ir.walks import source_of, variable_of
from tpugraph.roles.findings import Finding, Roles, Variable, named
from tpugraph.roles.losses import find_loss
from tpugraph.roles.train_ops import check_gradients, find_train_op, find_updates, no_update


def find(graph: Graph, *, train_op: str | None = None, loss: str | None = None) -> Roles:
    """Find the roles of a plain training graph.

    Args:
        graph: the graph as loaded.
        train_op: name of the train op, or several separated by commas; found by structure when None.
        loss: name of the loss tensor; found by structure when None.

    Raises:
        RolesError: no training step, several that compete, or a name that is not in the graph.
    """
    writes = [node for node in graph if node.op in ops.WRITES]
    inputs = [node for node in graph if node.op in ops.INPUTS]
    varying = flows_from(graph, [*inputs, *_noise(graph, loss)])
    restored = graph.descendants(graph.of_type(*ops.RESTORES), data_only=True)
    moving = [node for node in writes if node in varying and node not in restored]
    loss_finding, loss_others = find_loss(graph, varying, moving, loss)
    updates = find_updates(graph, moving, graph.tensor(loss_finding.name))
    if train_op is None:
        train_ops, train_others = find_train_op(graph, updates, writes)
    else:
        train_ops, train_others = [named(graph, name, "train op") for name in train_op.split(",")], []
    cone = graph.ancestors(graph[finding.name] for finding in train_ops)
    updates = [node for node in updates if node in cone]
    beside = feeding(graph, [node for node in moving if node in cone], updates, graph.tensor(loss_finding.name))
    if not updates:
        raise no_update(graph, train_ops, inputs, writes, cone)
    check_gradients(graph, graph.tensor(loss_finding.name), cone, updates)
    variables = find_variables(graph, writes, cone, restored, updates)
    return Roles(
        loss=loss_finding,
        train_ops=train_ops,
        step=find_step(graph, writes, cone),
        inputs=[Finding(n.name, input_reason(n)) for n in inputs if n in cone],
        variables=variables,
        updates=[Finding(n.name, _update_reason(n)) for n in (*updates, *beside)],
        summaries=_summaries(graph),
        metrics=[Finding(n.name, "accumulates batch values outside the train op") for n in moving if n not in cone],
        savers=[Finding(n.name, "writes the checkpoint") for n in graph.of_type(*ops.TENSOR_SAVES)],
        table_initializers=[n.name for n in graph.of_type(*ops.TABLE_INITIALIZERS)],
        iterator_initializers=[n.name for n in graph.of_type(*ops.MAKE_ITERATOR)],
        enqueues=[n.name for n in graph.of_type(*ops.ENQUEUES)],
        other_candidates={"train_op": train_others, "loss": loss_others},
        replica=_combines_replicas(graph),
    )


def _combines_replicas(graph: Graph) -> bool:
    """Whether the program sums over its replicas itself, or asks which of them it is."""
    inlined = (node.op for function in functions_named(graph).values() for node in function.node_def)
    return bool(graph.of_type(*ops.OF_REPLICAS)) or not ops.OF_REPLICAS.isdisjoint(inlined)


def _noise(graph: Graph, loss: str | None) -> list[Node]:
    """The random numbers that a named loss is made of: a generator's loss may depend on them and not on the input."""
    if loss is None:
        return []
    behind = graph.ancestors([graph.tensor(named(graph, loss, "loss").name).node])
    return [node for node in behind if node.op in ops.RANDOM]


def find_step(graph: Graph, writes: list[Node], cone: dict[Node, None]) -> Finding | None:
    """The step counter: a whole scalar variable that one of ``writes`` within ``cone`` increments by one, or None."""
    hinted = {name.partition(":")[0] for name in graph.collections.get("global_step", [])}
    found: list[tuple[tuple[bool, bool, bool, int], Finding]] = []
    for position, node in enumerate(writes):
        if node not in cone or ops.WRITES[node.op].kind != "assign":
            continue
        variables = written_variables(node)
        if not variables or not match(_ADDS_ONE, node.out()):
            continue
        variable = variables[0]
        kind = variable.attr("dtype")
        if kind is None or kind.floating or variable.attr("shape") != ():
            continue
        rank = (variable.name in hinted, variable.name == "global_step", kind.name == "int64", -position)
        found.append((rank, Finding(variable.name, f"a scalar {kind} that '{node.name}' increments by one")))
    return max(found, key=lambda item: item[0])[1] if found else None


_ADDS_ONE = either(
    op(("AssignAdd", "AssignAddVariableOp"), anything(), number(1)),
    op(("Assign", "AssignVariableOp"), anything(), op(("Add", "AddV2"), anything(), number(1), swaps=True)),
)


def find_variables(
    graph: Graph, writes: list[Node], cone: dict[Node, None], restored: dict[Node, None], updates: list[Node]
) -> dict[str, Variable]:
    """All variables by name, with initialiser, checkpoint key and slice (from the saver), and whether they are trained.

    Args:
        graph: the graph.
        writes: its variable-writing nodes.
        cone: the nodes of the training step; writes in it are no initialisers.
        restored: the nodes that depend on a restored value.
        updates: the writes that train.
    """
    variables = {node.name: Variable(node.name) for node in graph.of_type(*ops.VARIABLES)}
    for node in writes:
        written = written_variables(node)
        fact = ops.WRITES[node.op]
        if node in cone or node in restored or fact.kind != "assign" or fact.additive or not written:
            continue
        variable = variables[written[0].name]
        if variable.initializer is None:
            variable.initializer = node.name
    for node in updates:
        fact = ops.WRITES[node.op]
        target = variable_of(node.inputs[fact.variables[0]])
        if target is not None:
            variables[target.name].trained = True
    for node in graph.of_type(*ops.TENSOR_SAVES):
        _read_saver(node, variables)
    return variables


def _read_saver(save: Node, variables: dict[str, Variable]) -> None:
    for key, piece, tensor in saved_by(save) or ():
        variable = variable_of(source_of(tensor, ops.READS | ops.IDENTITIES | ops.CASTS))
        if variable is not None:
            variables[variable.name].key = key
            variables[variable.name].slice = piece


def _summaries(graph: Graph) -> list[Finding]:
    merged = [
        n for n in graph.of_type(*ops.MERGED_SUMMARIES) if not any(u.node.op in ops.MERGED_SUMMARIES for u in n.uses())
    ]
    if merged:
        best = max(merged, key=lambda n: len(n.inputs))
        return [Finding(best.name, f"merges {len(best.inputs)} summaries")]
    return [Finding(n.name, "a summary") for n in graph.of_type(*(ops.SUMMARIES - ops.MERGED_SUMMARIES))]


def input_reason(node: Node) -> str:
    """How an input op gets its batch."""
    if node.op in ops.GET_NEXT:
        return "takes the next batch from an iterator"
    if node.op in ops.DEQUEUES:
        return "takes the next batch from a queue"
    return "is fed from outside"


def _update_reason(node: Node) -> str:
    fact = ops.WRITES[node.op]
    names = ", ".join(v.name for v in written_variables(node))
    if fact.kind == "apply":
        return f"optimizer step on {names}"
    return f"writes {names}, which the loss reads, from the input"
