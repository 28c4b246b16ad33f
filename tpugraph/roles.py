"""Roles: which node is the loss, the train op, the step counter, the input, an update - found by structure.

Collections and names are hints that rank candidates; they never decide alone, since real graphs mislead (the
``train_op`` collection holds optimizer ops, not the train op; the iterator's initialiser is in no collection).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tpugraph import ops, shapes
from tpugraph.errors import RolesError
from tpugraph.ir import Graph, Node, Tensor

_LOSS_TAG = re.compile(r"(?:.*/)?(?:loss|total_loss|batch_loss)(?:_(\d+))?$")


@dataclass(frozen=True)
class Finding:
    """A node or tensor in a role, and why."""

    name: str
    reason: str


@dataclass
class Variable:
    """One variable of the graph.

    Attributes:
        name: name of the variable's node.
        key: its key in checkpoints, or None where no saver writes it.
        slice: the ``shape_and_slices`` text of its saver entry ("" for the whole variable).
        initializer: name of the op that gives it its first value, or None.
        trained: whether a gradient updates it.
    """

    name: str
    key: str | None = None
    slice: str = ""
    initializer: str | None = None
    trained: bool = False


@dataclass
class Roles:
    """What :func:`find` found. All values are names, so that rewriting keeps them valid."""

    loss: Finding
    train_ops: list[Finding]
    step: Finding | None
    inputs: list[Finding]
    variables: dict[str, Variable]
    updates: list[Finding]
    summaries: list[Finding] = field(default_factory=list)
    metrics: list[Finding] = field(default_factory=list)
    savers: list[Finding] = field(default_factory=list)
    table_initializers: list[str] = field(default_factory=list)
    iterator_initializers: list[str] = field(default_factory=list)
    enqueues: list[str] = field(default_factory=list)
    other_candidates: dict[str, list[Finding]] = field(default_factory=dict)
    # Of evaluation and prediction only: see tpugraph.evaluation_roles.
    mode: str = "train"
    values: dict[str, str] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    # Filled in by the passes that make these nodes.
    loss_share: str = ""
    step_loss: str = ""
    tail: list[str] = field(default_factory=list)
    infeed: list[str] = field(default_factory=list)
    outfeed: str = ""
    results: dict[str, str] = field(default_factory=dict)
    batch_rows: int = 0
    rows: str = ""
    device_ends: list[str] = field(default_factory=list)

    @property
    def roots(self) -> list[str]:
        """Names of the nodes that a step is run for: train ops and loss, metric updates and loss, or predictions."""
        named = [*(f.name for f in self.train_ops), self.loss.name]
        if self.mode != "train":
            named = [*(f.name for f in self.updates), self.loss.name, *self.predictions.values()]
        return list(dict.fromkeys(name.partition(":")[0] for name in named if name))

    @property
    def trained(self) -> list[str]:
        """Names of the trained variables."""
        return [variable.name for variable in self.variables.values() if variable.trained]


# --------------------------------------------------------------------------- variables and writes


def variable_of(tensor: Tensor) -> Node | None:
    """The variable whose handle or reference the tensor is, or None."""
    seen = set()
    node = tensor.node
    while node not in seen:
        seen.add(node)
        if node.op in ops.VARIABLES:
            return node
        if node.op in ops.WRITES and not node.op.startswith("Resource"):
            node = node.inputs[0].node  # a ref write hands its reference on
        elif node.op in ops.HANDLE_ALIASES or node.op in ops.MERGE:
            node = node.inputs[0].node
        else:
            return None
    return None


def written_variables(node: Node) -> list[Node]:
    """The variables that a node writes, in operand order."""
    fact = ops.WRITES.get(node.op)
    if fact is None:
        return []
    found = [variable_of(node.inputs[i]) for i in fact.variables]
    return [variable for variable in found if variable is not None]


# --------------------------------------------------------------------------- flow through state


def _reads_after(graph: Graph, write: Node) -> list[Node]:
    """The reads of what ``write`` writes that wait for it: its value flows on through the variable."""
    variables = written_variables(write)
    after = graph.descendants([write])
    found = []
    for node in after:
        if node.op in ops.WRITES or node.op in ops.VARIABLES or node.op in ops.HANDLE_ALIASES - {"Identity"}:
            continue
        reference = node.op in ops.READS | ops.GATHERS
        for tensor in node.inputs[:1] if reference else node.inputs:
            variable = variable_of(tensor) if reference or _is_reference(tensor) else None
            if variable in variables:
                found.append(node)
                break
    return found


def _is_reference(tensor: Tensor) -> bool:
    """Whether a tensor is a ref variable, handed on by aliases."""
    node = tensor.node
    while node.op in ops.HANDLE_ALIASES - {"Identity"} and node.inputs:
        node = node.inputs[0].node
    return node.op in ops.REF_VARIABLES


def flows_from(graph: Graph, sources: list[Node]) -> dict[Node, None]:
    """What depends on the sources over data, also through a variable that is written and read again in the step."""
    found = graph.descendants(sources, data_only=True)
    pending = [node for node in found if node.op in ops.WRITES]
    while pending:
        reads = [read for write in pending for read in _reads_after(graph, write) if read not in found]
        more = [node for node in graph.descendants(reads, data_only=True) if node not in found]
        found.update(dict.fromkeys(more))
        pending = [node for node in more if node.op in ops.WRITES]
    return found


def _feeding(graph: Graph, moving: list[Node], updates: list[Node], loss: Tensor) -> list[Node]:
    """Writes of state that the updates read back: slots that sparse Adam writes row by row, accumulated gradients.

    State that the loss reads is none of them: it reaches the updates through the loss.
    """
    forward = graph.ancestors([loss.node], data_only=True)
    read = graph.ancestors([t.node for node in updates for t in node.inputs], data_only=True)
    own = {v for node in updates for v in written_variables(node)}

    def feeds(node: Node) -> bool:
        return ops.WRITES[node.op].kind == "scatter" or any(
            v in read and v not in own and v not in forward for v in written_variables(node)
        )

    return [node for node in moving if node not in updates and feeds(node)]


# --------------------------------------------------------------------------- find


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
    varying = flows_from(graph, inputs)
    restored = graph.descendants(graph.of_type(*ops.RESTORES), data_only=True)
    moving = [node for node in writes if node in varying and node not in restored]
    loss_finding, loss_others = _find_loss(graph, varying, moving, loss)
    updates = _updates(graph, moving, graph.tensor(loss_finding.name))
    if train_op is None:
        train_ops, train_others = _find_train_op(graph, updates, writes)
    else:
        train_ops, train_others = [named(graph, name, "train op") for name in train_op.split(",")], []
    cone = graph.ancestors(graph[finding.name] for finding in train_ops)
    updates = [node for node in updates if node in cone]
    feeding = _feeding(graph, [node for node in moving if node in cone], updates, graph.tensor(loss_finding.name))
    if not updates:
        raise _no_update_error(graph, train_ops, inputs, writes, cone)
    _check_gradients(graph, graph.tensor(loss_finding.name), cone, updates)
    variables = find_variables(graph, writes, cone, restored, updates)
    return Roles(
        loss=loss_finding,
        train_ops=train_ops,
        step=find_step(graph, writes, cone),
        inputs=[Finding(n.name, input_reason(n)) for n in inputs if n in cone],
        variables=variables,
        updates=[Finding(n.name, _update_reason(n)) for n in (*updates, *feeding)],
        summaries=_summaries(graph),
        metrics=[Finding(n.name, "accumulates batch values outside the train op") for n in moving if n not in cone],
        savers=[Finding(n.name, "writes the checkpoint") for n in graph.of_type("SaveV2")],
        table_initializers=[n.name for n in graph.of_type(*ops.TABLE_INITIALIZERS)],
        iterator_initializers=[n.name for n in graph.of_type(*ops.MAKE_ITERATOR)],
        enqueues=[n.name for n in graph.of_type(*ops.ENQUEUES)],
        other_candidates={"train_op": train_others, "loss": loss_others},
    )


def named(graph: Graph, name: str, role: str) -> Finding:
    """What the user named.

    Raises:
        RolesError: there is no such node; the names that come close are given.
    """
    if name.partition(":")[0] not in graph:
        last = name.rpartition("/")[2]
        close = [n.name for n in graph if n.name.rpartition("/")[2] == last][:3]
        close = close or difflib.get_close_matches(name, [n.name for n in graph], n=3)
        raise RolesError(
            f"the {role} '{name}' is not in the graph",
            origin=graph.source,
            fix=f"did you mean {' or '.join(close)}?" if close else "`tpugraph inspect` lists the candidates",
        )
    return Finding(name.removesuffix(":0"), "named by the user")


# --------------------------------------------------------------------------- loss


def _find_loss(
    graph: Graph, varying: Iterable[Node], moving: list[Node], name: str | None
) -> tuple[Finding, list[Finding]]:
    if name is not None:
        return _named_loss(graph, varying, name), []
    varying = varying if isinstance(varying, dict) else dict.fromkeys(varying)
    ranked = _summarised_losses(graph, varying)
    if not ranked:
        ranked = _unread_scalars(graph, varying, moving)
    if not ranked and not moving:
        raise _no_train_op_error(graph)
    if not ranked:
        raise RolesError(
            "no loss was found: no scalar depends on both the input and a variable",
            origin=graph.source,
            fix="name it with --loss=TENSOR, or give a training graph",
        )
    return ranked[0], ranked[1:4]


def _named_loss(graph: Graph, varying: Iterable[Node], name: str) -> Finding:
    """The loss that the user named: a number that depends on the input."""
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
    elif tensor.node not in dict.fromkeys(varying):
        fault = f"'{name}' is no loss: it does not depend on the input"
    else:
        return finding
    raise RolesError(fault, node=tensor.node, origin=graph.source, fix="name the scalar that training makes smaller")


def _summarised_losses(graph: Graph, varying: dict[Node, None]) -> list[Finding]:
    """Losses by their summary: Estimator writes one under the tag ``loss`` (``loss_1`` where the model has its own)."""
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in enumerate(graph.of_type("ScalarSummary")):
        tag_node = node.inputs[0].node
        if tag_node.op != "Const" or node.inputs[1].node not in varying:
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


def _unread_scalars(graph: Graph, varying: dict[Node, None], moving: list[Node]) -> list[Finding]:
    """Losses by structure: a scalar of the input that covers the trained variables and that nothing computes on."""
    if any(node.outputs is None for node in varying):
        shapes.infer(graph)
    trained = {v for node in moving for v in written_variables(node)[:1]}
    backward = graph.ancestors(moving, data_only=True)
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in enumerate(varying):
        readers = [use.node for use in node.uses() if use.node.op not in ops.SUMMARIES | ops.IDENTITIES]
        if readers or node in backward or not node.outputs or len(node.outputs) != 1:
            continue
        kind, shape = node.outputs[0]
        if not kind.floating or shape != ():
            continue
        cone = graph.ancestors([node], data_only=True)
        covered = sum(1 for variable in trained if variable in cone)
        apart = sum(1 for n in cone if n in varying and n not in backward)
        if covered:
            found.append(
                (
                    (covered, -apart, -position),
                    Finding(node.name, f"a scalar of the input that reads {covered} trained variables"),
                )
            )
    return [finding for _, finding in sorted(found, key=lambda item: item[0], reverse=True)]


# --------------------------------------------------------------------------- train op


def _updates(graph: Graph, moving: list[Node], loss: Tensor) -> list[Node]:
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
    made: dict[Node, None] = {}  # what the step computes for this write alone
    pending = [value]
    while pending:
        node = pending.pop()
        if node in made or node in forward:
            continue
        if node.op in ops.BACKPROPAGATION or node.op in ops.MULTILINEAR - ops.ELEMENTWISE:
            return False
        made[node] = None
        pending += [tensor.node for tensor in node.inputs]
    reads = ops.READS | ops.IDENTITIES | ops.HANDLE_ALIASES
    used = [n for n in graph.descendants([variable], data_only=True) if n in forward and n.op not in reads]
    if not used:
        return False
    cone = graph.ancestors([value], data_only=True)
    if not any(node.op in ops.INPUTS for node in cone):
        return False  # made of other state, as sparse Adam's steps are of its slots
    return not any(node in cone for node in used if node is not variable)


def _no_train_op_error(graph: Graph) -> RolesError:
    apart = next(iter(graph.of_type(*ops.APART)), None)
    if apart is not None:
        what, fix = ops.APART[apart.op]
        return RolesError(f"the train op cannot be found: {what}", node=apart, origin=graph.source, fix=fix)
    return RolesError(
        "the graph has no train op: no variable is updated from the input",
        origin=graph.source,
        fix="give the training graph (not one for evaluation or prediction), or name it with --train_op",
    )


def _find_train_op(graph: Graph, updates: list[Node], writes: list[Node]) -> tuple[list[Finding], list[Finding]]:
    if not updates:
        raise _no_train_op_error(graph)
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
    sinks = [node for node in reached if not node.consumers()]
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
    rivals = [f for n, f in zip(sinks[1:], findings[1:], strict=True) if reached[n][0] & missed]
    if rivals:
        names = ", ".join(f"{f.name} ({f.reason})" for f in [findings[0], *rivals][:4])
        raise RolesError(
            f"the graph has several train ops and none contains the others: {names}",
            origin=graph.source,
            fix=f"choose with --train_op={best.name}, or run them together with "
            f"--train_op={','.join(f.name for f in [findings[0], *rivals])}",
        )
    return findings[:1], findings[1:4]


def _train_finding(node: Node, reached: tuple[int, int], total: int, hinted: bool) -> Finding:
    count = reached[0].bit_count()
    where = ", in the collection train_op" if hinted else ""
    return Finding(
        node.name, f"runs {count} of {total} updates and {reached[1].bit_count()} writes, nothing follows it{where}"
    )


def _no_update_error(
    graph: Graph, train_ops: list[Finding], inputs: list[Node], writes: list[Node], cone: dict[Node, None]
) -> RolesError:
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


def _check_gradients(graph: Graph, loss: Tensor, cone: dict[Node, None], updates: list[Node]) -> None:
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


# --------------------------------------------------------------------------- the rest


def find_step(graph: Graph, writes: list[Node], cone: dict[Node, None]) -> Finding | None:
    """The step counter: a whole scalar variable that one of ``writes`` within ``cone`` increments by one, or None."""
    hinted = {name.partition(":")[0] for name in graph.collections.get("global_step", [])}
    found: list[tuple[tuple[bool, bool, bool, int], Finding]] = []
    for position, node in enumerate(writes):
        if node not in cone or ops.WRITES[node.op].kind != "assign":
            continue
        variables = written_variables(node)
        if not variables or not _adds_one(node):
            continue
        variable = variables[0]
        kind = variable.attr("dtype")
        if kind is None or kind.floating or variable.attr("shape") != ():
            continue
        rank = (variable.name in hinted, variable.name == "global_step", kind.name == "int64", -position)
        found.append((rank, Finding(variable.name, f"a scalar {kind} that '{node.name}' increments by one")))
    return max(found, key=lambda item: item[0])[1] if found else None


def _adds_one(node: Node) -> bool:
    value = node.inputs[1].node
    if node.op in ("AssignAdd", "AssignAddVariableOp"):
        return value.op == "Const" and value.attr("value").size == 1 and value.attr("value").item() == 1
    if node.op in ("Assign", "AssignVariableOp") and value.op in ("Add", "AddV2"):
        return any(
            t.node.op == "Const" and t.node.attr("value").size == 1 and t.node.attr("value").item() == 1
            for t in value.inputs
        )
    return False


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
        if node in cone or node in restored or ops.WRITES[node.op].kind != "assign" or not written:
            continue
        variable = variables[written[0].name]
        if variable.initializer is None and node.op in ("Assign", "AssignVariableOp"):
            variable.initializer = node.name
    for node in updates:
        fact = ops.WRITES[node.op]
        target = variable_of(node.inputs[fact.variables[0]])
        if target is not None:
            variables[target.name].trained = True
    for node in graph.of_type("SaveV2"):
        _read_saver(node, variables)
    return variables


def _read_saver(save: Node, variables: dict[str, Variable]) -> None:
    names, slices = save.inputs[1].node, save.inputs[2].node
    if names.op != "Const" or slices.op != "Const":
        return
    entries = zip(names.attr("value").tolist(), slices.attr("value").tolist(), save.inputs[3:], strict=True)
    for key, piece, tensor in entries:
        source = tensor
        while source.node.op in ops.READS | ops.IDENTITIES | {"Cast"}:
            source = source.node.inputs[0]
        variable = variable_of(source)
        if variable is not None:
            variables[variable.name].key = key.decode()
            variables[variable.name].slice = piece.decode()


def _summaries(graph: Graph) -> list[Finding]:
    merged = [n for n in graph.of_type("MergeSummary") if not any(u.node.op == "MergeSummary" for u in n.uses())]
    if merged:
        best = max(merged, key=lambda n: len(n.inputs))
        return [Finding(best.name, f"merges {len(best.inputs)} summaries")]
    return [Finding(n.name, "a summary") for n in graph.of_type(*(ops.SUMMARIES - {"MergeSummary"}))]


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
