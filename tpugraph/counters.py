"""Variables that count the rows of the batch: every core has the same number, and the whole batch has more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.constants import constants_of, evaluate
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.state import variable_of, written_variables


@dataclass(frozen=True)
class Counter:
    """A write that adds a number that may be the rows of one core's batch.

    Attributes:
        reader: the node that adds it, and ``place``, the operand.
        place: see ``reader``.
        variable: the variable that counts.
        value: the number.
        certain: whether it was read from the shape of the batch; else it is a number of the same size.
    """

    reader: Node
    place: int
    variable: str
    value: float
    certain: bool


def find(graph: Graph, varying: NodeSet, batch: int | None) -> Iterator[Counter]:
    """The counters of a graph.

    Args:
        graph: the graph, with the shapes that are known folded into constants.
        varying: the replica-varying nodes; their writes are combined over the cores anyway.
        batch: rows of one core's batch.
    """
    trained = {finding.name for finding in graph.roles.updates}
    for node in [n for n in graph.of_type(*ops.WRITES) if in_cluster(n) and n not in varying]:
        added = None if batch is None or node.name in trained else _added(node)
        if added is None:
            continue
        reader, place = added
        found = evaluate(graph, reader.inputs[place])
        if found is None or found.size != 1 or found.dtype.kind not in "iuf":
            continue
        value = float(found.reshape(()))
        certain = _follows_batch(graph, reader.inputs[place], value, batch or 1)
        literal = "constants" not in graph.facts.get("split-batch", {}) and value > 1 and not value % (batch or 1)
        if certain or (literal and (batch or 1) > 1):
            yield Counter(reader, place, written_variables(node)[0].name, value, certain)


def _added(write: Node) -> tuple[Node, int] | None:
    """The node that adds a number to what the variable held, and the operand with the number."""
    fact = ops.WRITES[write.op]
    variables = written_variables(write)
    if fact.kind != "assign" or not variables:
        return None
    if fact.additive:
        return write, fact.value
    value = write.inputs[fact.value].node
    if value.op not in ("Add", "AddV2"):
        return None
    for place, other in ((0, 1), (1, 0)):
        read = value.inputs[other].node
        if read.op in ops.READS and variable_of(read.inputs[0]) is variables[0]:
            return value, place
    return None


def _follows_batch(graph: Graph, tensor: Tensor, value: float, batch: int) -> bool:
    """Whether a number is in proportion to the rows of one core's batch: it doubles when they do."""
    rescaled: Collection[str] = graph.facts.get("split-batch", {}).get("constants", ())
    folded = graph.facts.get("static-shapes", {}).get("folded", {})
    split = "constants" in graph.facts.get("split-batch", {})
    doubled: dict[Node, np.ndarray] = {}
    for node in constants_of(graph, tensor):
        shape = np.array(node.attr("value"))
        rows = folded.get(node.name)
        if node.name not in (rescaled if split else folded) or (rows is not None and not _leads(rows, batch, split)):
            continue
        shape.reshape(-1)[0] *= 2
        doubled[node] = shape
    found = evaluate(graph, tensor, instead=doubled) if doubled else None
    return found is not None and float(found.reshape(())) == 2 * value


def _leads(rows: int | None, batch: int, split: bool) -> bool:
    """Whether what leads a shape that was folded is the batch."""
    return split or rows == batch
