"""Roles of a plain training graph, found by structure: loss, train op, updates, step counter, variables."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.state import feeding, flows_from, reaching, written_variables
from tpugraph.analysis.values import constant_at
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.function_library import functions_named
from tpugraph.ir.pattern import anything, either, match, number, op
from tpugraph.ir.walks import reached, source_of, variable_of
from tpugraph.roles.findings import Finding, Roles, Variable, named, saved_by
from tpugraph.support.errors import RolesError


def find(graph: Graph, *, train_op: str | None = None, loss: str | None = None) -> Roles:
    """Find the roles of a plain training graph.

    Collections and names only rank candidates: real graphs mislead (the ``train_op`` collection holds optimizer ops, not the
    train op; the iterator's initialiser is in no collection).
    """
    writes, inputs = graph.of_type(*ops.WRITES), graph.of_type(*ops.INPUTS)
    varying = flows_from(graph, [*inputs, *_noise(graph, loss)])
    restored = from_checkpoints(graph)
    moving = [node for node in writes if node in varying and node not in restored]
    loss_finding, loss_others = find_loss(graph, varying, moving, loss)
    loss_finding = loss_finding if loss else _unscaled(graph, loss_finding)
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
    check_gradients(graph, graph.tensor(loss_finding.name), updates)
    variables = find_variables(graph, cone, updates)
    return Roles(
        loss=loss_finding,
        train_ops=train_ops,
        step=find_step(graph, cone),
        inputs=[Finding(n.name, input_reason(n)) for n in inputs if n in cone],
        variables=variables,
        updates=[Finding(n.name, _update_reason(n)) for n in (*updates, *beside)],
        summaries=_summaries(graph),
        metrics=[Finding(n.name, "accumulates batch values outside the train op") for n in moving if n not in cone],
        **of_every_mode(graph),
        enqueues=[n.name for n in graph.of_type(*ops.ENQUEUES)],
        other_candidates={"train_op": train_others, "loss": loss_others},
        replica=_combines_replicas(graph),
    )


def from_checkpoints(graph: Graph) -> dict[Node, None]:
    """The nodes that depend on values restored from a checkpoint."""
    return graph.descendants(graph.of_type(*ops.RESTORES), data_only=True)


def of_every_mode(graph: Graph) -> dict[str, Any]:
    """The roles common to all modes: savers, and initializers of tables and iterators."""
    return {
        "savers": [Finding(n.name, "writes the checkpoint") for n in graph.of_type(*ops.TENSOR_SAVES)],
        "table_initializers": [n.name for n in graph.of_type(*ops.TABLE_INITIALIZERS)],
        "iterator_initializers": [n.name for n in graph.of_type(*ops.MAKE_ITERATOR)],
    }


def _combines_replicas(graph: Graph) -> bool:
    """Whether the program has collectives or reads its replica's index."""
    inlined = (node.op for function in functions_named(graph).values() for node in function.node_def)
    return bool(graph.of_type(*ops.OF_REPLICAS)) or not ops.OF_REPLICAS.isdisjoint(inlined)


def _unscaled(graph: Graph, found: Finding) -> Finding:
    """The replica's own loss, where CrossShardOptimizer differentiates loss / replicas."""
    sums = graph.of_type("CrossReplicaSum")
    groups = constant_at(sums[0].inputs[1]) if sums else None
    scaled = match(op(ops.computing(np.multiply), anything("loss"), number(name="share")), graph.tensor(found.name))
    shown = any(use.node.op in ops.SUMMARIES for use in graph.tensor(found.name).node.uses())
    if (
        groups is None
        or not scaled
        or shown
        or not np.isclose(scaled["share"].node.attr("value"), 1 / groups.shape[-1], atol=0)
    ):
        return found
    return Finding(str(scaled["loss"]), f"'{found.name}' is a replica's share of it, {found.reason}")


def _noise(graph: Graph, loss: str | None) -> list[Node]:
    """The random ops of a loss that the user names: a generator's loss may depend on them and not on the input."""
    if loss is None:
        return []
    behind = graph.ancestors([graph.tensor(named(graph, loss, "loss").name).node])
    return [node for node in behind if node.op in ops.RANDOM]


def find_step(graph: Graph, cone: Container[Node]) -> Finding | None:
    """The step counter: an integer scalar variable that a node of the step increments by one, or None.

    One in the collection ``global_step`` may be changed in another way.
    """
    hinted = {name.partition(":")[0] for name in graph.collections.get("global_step", [])}
    found: list[tuple[tuple[bool, bool, bool, int], Finding]] = []
    for position, node in enumerate(graph.of_type(*ops.WRITES)):
        if node not in cone or ops.WRITES[node.op].kind != "assign":
            continue
        variables = written_variables(node)
        adds_one = match(_ADDS_ONE, node.out())
        if not variables or not (adds_one or variables[0].name in hinted):
            continue
        variable = variables[0]
        kind = variable.attr("dtype")
        if kind is None or kind.floating or variable.attr("shape") != ():
            continue
        rank = (variable.name in hinted, variable.name == "global_step", kind.name == "int64", -position)
        how = "increments by one" if adds_one else "changes"
        found.append((rank, Finding(variable.name, f"a scalar {kind} that '{node.name}' {how}")))
    return max(found, key=lambda item: item[0])[1] if found else None


_ADDS_ONE = either(
    op(("AssignAdd", "AssignAddVariableOp"), anything(), number(1)),
    op(("Assign", "AssignVariableOp"), anything(), op(("Add", "AddV2"), anything(), number(1), swaps=True)),
)


def find_variables(graph: Graph, cone: Container[Node], updates: Iterable[Node] = ()) -> dict[str, Variable]:
    """All variables by name, with initializer, checkpoint key and slice (from the saver), and whether they are trained.

    ``cone`` is the step, whose writes are no initializers; ``updates`` are the training writes.
    """
    variables = {node.name: Variable(node.name) for node in graph.of_type(*ops.VARIABLES)}
    restored = from_checkpoints(graph)
    for node in graph.of_type(*ops.WRITES):
        written = written_variables(node)
        fact = ops.WRITES[node.op]
        if node in cone or node in restored or fact.kind != "assign" or fact.additive or not written:
            continue
        variable = variables[written[0].name]
        if variable.initializer is None:
            variable.initializer = node.name
    for node in updates:
        target = variable_of(node.inputs[ops.WRITES[node.op].variables[0]])
        if target is not None:
            variables[target.name].trained = True
    for save in graph.of_type(*ops.TENSOR_SAVES):
        for key, piece, tensor in saved_by(save) or ():
            held = variable_of(source_of(tensor, ops.READS | ops.IDENTITIES | ops.CASTS))
            if held is not None:
                variables[held.name].key, variables[held.name].slice = key, piece
    return variables


def _summaries(graph: Graph) -> list[Finding]:
    merged = [
        n for n in graph.of_type(*ops.MERGED_SUMMARIES) if not any(u.node.op in ops.MERGED_SUMMARIES for u in n.uses())
    ]
    if merged:
        best = max(merged, key=lambda n: len(n.inputs))
        return [Finding(best.name, f"merges {len(best.inputs)} summaries")]
    return [Finding(n.name, "a summary") for n in graph.of_type(*(ops.SUMMARIES - ops.MERGED_SUMMARIES))]


def input_reason(node: Node) -> str:
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


# --------------------------------------------------------------------------- the loss


_LOSS_TAG = re.compile(r"(?:.*/)?(?:loss|total_loss|batch_loss)(?:_(\d+))?$")


def find_loss(
    graph: Graph, varying: dict[Node, None], moving: list[Node], name: str | None
) -> tuple[Finding, list[Finding]]:
    """The loss, and the next candidates, among the nodes that vary with the input; a RolesError where there is none."""
    if name is not None:
        return _named_loss(graph, varying, name), []
    ranked = _summarised_losses(graph, varying)
    if not ranked:
        ranked = _unread_scalars(graph, varying, moving)
    if not ranked and not moving:
        raise no_train_op(graph)
    if not ranked:
        raise RolesError("no loss was found: no scalar depends on both the input and a variable", origin=graph.source,
                         fix="name it with --loss=TENSOR, or give a training graph")  # fmt: skip
    return ranked[0], ranked[1:4]


def _named_loss(graph: Graph, varying: Container[Node], name: str) -> Finding:
    finding = named(graph, name, "loss")
    tensor = graph.tensor(finding.name)
    if tensor.node.outputs is None:
        shapes.infer(graph)
    outputs = tensor.node.outputs or []
    if tensor.port >= len(outputs):
        fault = f"'{name}' is no loss: '{tensor.node.name}' has {len(outputs)} outputs"
    elif not tensor.dtype.floating:
        fault = f"'{name}' is no loss: it holds {tensor.dtype}"
    elif shapes.element_count(tensor.shape) not in (1, None):
        fault = f"'{name}' is no loss: it has {shapes.element_count(tensor.shape)} elements, not one"
    elif tensor.node not in varying:
        fault = f"'{name}' is no loss: it does not depend on the input"
    else:
        return finding
    raise RolesError(fault, node=tensor.node, origin=graph.source, fix="name the scalar that training minimizes")


def _summarised_losses(graph: Graph, varying: dict[Node, None]) -> list[Finding]:
    """Losses by summary tag: Estimator writes ``loss`` (``loss_1`` where the model has its own)."""
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in enumerate(graph.of_type("ScalarSummary")):
        tag_node = node.inputs[0].node
        if tag_node.op not in ops.CONSTANTS or tag_node.attr("value").size != 1 or node.inputs[1].node not in varying:
            continue
        tag = tag_node.attr("value").item()
        tag = tag.decode() if isinstance(tag, bytes) else str(tag)
        match = _LOSS_TAG.match(tag)
        if match is None:
            continue
        plain = int("/" not in tag and tag.startswith("loss"))
        rank = (plain, int(match[1] or 0), position)
        found.append((rank, Finding(str(node.inputs[1]), f"summarised under the tag '{tag}'")))
    return [finding for _, finding in sorted(found, key=lambda item: item[0], reverse=True)]


_LOOKS_ON = ops.SUMMARIES | ops.IDENTITIES
_HANDED_ON = ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | ops.SWITCH | ops.MERGE
_FLOWS = ops.CONTENTS.keys() | ops.CONTAINERS | ops.CONTAINER_GRADIENTS
"""Ops on containers: their scalar outputs, such as a TensorArray's flow, only order them."""


def _unread_scalars(graph: Graph, varying: dict[Node, None], moving: list[Node]) -> list[Finding]:
    """Losses by structure: scalars without readers that depend on the input and on trained variables."""
    if any(node.outputs is None for node in varying):
        shapes.infer(graph)
    backward = graph.ancestors(moving, data_only=True)
    candidates = [
        (position, node)
        for position, node in enumerate(varying)
        if node not in backward and _unread_scalar(node) and not _unread_gradient(node, backward)
    ]
    trained = _bits(v for node in moving for v in written_variables(node)[:1])
    apart = _bits(node for node in varying if node not in backward)
    covered = reaching(graph, [node for _, node in candidates], trained, data_only=True)
    beside = reaching(graph, [node for _, node in candidates if covered.get(node)], apart, data_only=True)
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in candidates:
        count = covered.get(node, 0).bit_count()
        if count:
            rank = (count, -beside.get(node, 0).bit_count(), -position)
            found.append((rank, Finding(node.name, f"a scalar of the input that reads {count} trained variables")))
    return [finding for _, finding in sorted(found, key=lambda item: item[0], reverse=True)]


def _unread_scalar(node: Node) -> bool:
    if not node.outputs or len(node.outputs) != 1 or any(reader.op not in _LOOKS_ON for reader, _ in node.uses()):
        return False
    kind, shape = node.outputs[0]
    return kind.floating and shape == () and source_of(node.out(), _HANDED_ON).node.op not in _FLOWS


def _unread_gradient(node: Node, backward: Mapping[Node, None]) -> bool:
    """Whether a node is the unread gradient of an untrained operand, grouped by ``tf.tuple`` with gradients that are read."""
    node = source_of(node.out()).node
    for group in node.control_uses():
        together = group.controls if group.op in ops.GROUPS else ()
        handed_on = {
            reader.inputs[0].node
            for reader in group.control_uses()
            if reader.op in ops.IDENTITIES and reader in backward
        }
        if handed_on.intersection(together):
            return True
    return False


def _bits(nodes: Iterable[Node]) -> dict[Node, int]:
    return {node: 1 << number for number, node in enumerate(dict.fromkeys(nodes))}


def no_train_op(graph: Graph) -> RolesError:
    apart = next(iter(graph.of_type(*ops.APART)), None)
    if apart is not None:
        what, fix = ops.APART[apart.op]
        return RolesError(f"the train op cannot be found: {what}", node=apart, origin=graph.source, fix=fix)
    fix = "give the training graph (not one for evaluation or prediction), or name it with --train_op"
    if graph.signatures:
        fix = "`tpugraph run --mode=predict` computes what a signature of the SavedModel names; training needs the training graph"
    return RolesError("the graph has no train op: no variable is updated from the input", origin=graph.source, fix=fix)


# --------------------------------------------------------------------------- the train op


def find_updates(graph: Graph, moving: list[Node], loss: Tensor) -> list[Node]:
    """The training writes: optimizer ops, and assignments to variables that the loss reads."""
    forward = graph.ancestors([loss.node], data_only=True)
    found = [node for node in moving if ops.WRITES[node.op].kind == "apply"
             or any(variable in forward for variable in written_variables(node)[:1])]  # fmt: skip
    trained = [node for node in found if not _is_statistic(graph, node, forward)]
    return trained or found


def _is_statistic(graph: Graph, write: Node, forward: dict[Node, None]) -> bool:
    """Whether an assignment stores a statistic of the batch that the loss reads, such as a count, and no gradient.

    A gradient depends on nodes of backpropagation, and on nodes between the variable and the loss.
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
        return False  # computed from other state, as sparse Adam's step is from its slots
    return not any(node in cone for node in used if node is not variable)


def _backpropagates(value: Node, forward: dict[Node, None]) -> bool:
    """Whether the nodes used only for a write include a backpropagation op, or a layer's product of a gradient."""

    def forwards_it(node: Node) -> bool:
        """Whether a node only forwards a value that the loss reads."""
        through = ops.IDENTITIES | ops.TRANSPOSES | ops.CASTS
        return source_of(node.out(), through, where=lambda at: at not in forward).node in forward

    made = reached([value] if value not in forward else [],
                   lambda node: [tensor.node for tensor in node.inputs if tensor.node not in forward])  # fmt: skip
    return any(node.op in ops.BACKPROPAGATION for node in made) or any(
        node.op in ops.LAYER_PRODUCTS and not all(forwards_it(t.node) for t in node.inputs) for node in made
    )


def find_train_op(graph: Graph, updates: list[Node], writes: list[Node]) -> tuple[list[Finding], list[Finding]]:
    """The train op, and the next candidates: nodes without readers that depend on the most updates, then on the most writes."""
    if not updates:
        raise no_train_op(graph)
    sinks = [node for node in graph.descendants(updates) if not node.consumers()]
    if not sinks:
        raise RolesError("all updates of variables end in a loop, and no node ends the step", node=updates[0],
                         origin=graph.source, fix="--train_op=NODE names the node that ends a step")  # fmt: skip
    runs = reaching(graph, sinks, _bits([*updates, *writes]))  # the lowest bits are those of the updates
    full = (1 << len(updates)) - 1
    hinted = {name.partition(":")[0] for name in graph.collections.get("train_op", [])}
    position = {node: i for i, node in enumerate(graph)}

    def rank(node: Node) -> tuple[int, int, bool, int]:
        return ((runs[node] & full).bit_count(), runs[node].bit_count(), node.name in hinted, position[node])

    sinks.sort(key=rank, reverse=True)
    best = sinks[0]
    missed = full & ~runs[best]
    findings = []
    for node in sinks:
        update, write, is_hinted, _ = rank(node)
        where = ", in the collection train_op" if is_hinted else ""
        reason = f"runs {update} of {len(updates)} updates and {write} writes, nothing follows it{where}"
        findings.append(Finding(node.name, reason))
    rivals = [
        finding
        for node, finding in zip(sinks[1:], findings[1:], strict=True)
        if runs[node] & missed and (node.name in hinted or best.name not in hinted)
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


def no_input(graph: Graph, fix: str) -> RolesError:
    fault = "the graph reads no input: there is no iterator, queue or placeholder"
    return RolesError(fault, origin=graph.source, fix=fix)


def no_update(
    graph: Graph, train_ops: list[Finding], inputs: list[Node], writes: list[Node], cone: dict[Node, None]
) -> RolesError:
    name = train_ops[0].name if train_ops else None
    if not inputs:
        return no_input(graph, "give the training graph that Estimator.train writes (it holds its input pipeline)")
    if not any(node in cone for node in writes):
        fault = f"'{name}' is no train op: it writes no variable"
    else:
        fault = f"there is no gradient path from the loss to what '{name}' writes"
    return RolesError(fault, node=name, origin=graph.source, fix="name the right train op with --train_op")


def check_gradients(graph: Graph, loss: Tensor, updates: list[Node]) -> None:
    """Refuse a train op whose updates write no variable that the loss reads."""
    forward = graph.ancestors([loss.node], data_only=True)
    if not any(variable in forward for node in updates for variable in written_variables(node)[:1]):
        raise RolesError(f"there is no gradient path from the loss '{loss}' to any variable that the train op updates",
                         node=updates[0], origin=graph.source,
                         fix="name the loss with --loss and the train op with --train_op")  # fmt: skip
