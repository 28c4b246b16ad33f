"""Row tables: variables that a step reads and writes only by row index, with their optimizer slots.

Every use of such a variable is row by row, so a core that holds some of the rows needs no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, signatures
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.ir.walks import reached, variable_of
from tpugraph.rewrite.row_updates import distinct_by

_SUMMED_AND_SLICED = ops.REDUCE_DTYPES - {"float16", "uint32"}
"""Dtypes that cores can sum and that TensorFlow restores as a whole tensor from slices of a checkpoint."""

_MOST_ROWS = 2**31 - 1
"""Row indices cross between cores as int32."""

_LOOKUPS = ops.PICKS | ops.GATHERS


@dataclass(frozen=True)
class RowTable:
    """A table with all its uses."""

    # the table, then its optimizer slots, each with its initializer
    variables: dict[Node, Node] = field(default_factory=dict)
    # gathers from a variable or its value; operand 1 holds the row indices
    lookups: NodeSet = field(default_factory=dict)
    steps: NodeSet = field(default_factory=dict)  # sparse updates
    # reads of whole variables, and elementwise results of these in the table's shape
    wide: NodeSet = field(default_factory=dict)
    dense: NodeSet = field(default_factory=dict)  # dense updates by such values

    @property
    def name(self) -> str:
        return next(iter(self.variables)).name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(next(iter(self.variables)).attr("shape"))


class NotByRows(Exception):
    """A variable is not used row by row; the message names the use."""


def row_tables(graph: Graph, cores: int, least_bytes: int) -> tuple[list[RowTable], dict[str, str]]:
    """The tables of at least ``least_bytes`` that can be sharded, and for each other looked-up variable the reason why not."""
    if not least_bytes:
        return [], {}
    found: list[RowTable] = []
    refused: dict[str, str] = {}
    uses = _Uses(graph, cores)
    for variable in graph.of_type(*ops.RESOURCE_VARIABLES):
        if _bytes(variable) < least_bytes or not uses.looks_up(variable):
            continue
        if any(variable in table.variables for table in found):
            continue
        try:
            found.append(uses.table(variable))
        except NotByRows as why:
            refused[variable.name] = str(why)
    return found, refused


def _bytes(variable: Node) -> int:
    shape = variable.attr("shape")
    known = shape is not None and len(shape) > 0 and is_static(tuple(shape))
    return prod(shape) * (variable.attr("dtype").size or 0) if known else 0


class _Uses:
    def __init__(self, graph: Graph, cores: int) -> None:
        self._device = analysis.cluster_nodes(graph)
        self._of_input = graph.descendants(graph.of_type(*ops.INPUTS), data_only=True)
        self._inner = analysis.nested(graph)
        self._roles = graph.roles.variables
        self._cores = cores

    def looks_up(self, variable: Node) -> bool:
        """Whether the device gathers rows of a variable, or of a value computed from variables and constants alone."""

        def following(node: Node) -> Iterator[Node]:
            return (use.node for use in node.uses() if use.node in self._device and use.node not in self._of_input)

        tables = reached([variable], following)
        uses = (use for table in tables for use in table.uses() if use.node in self._device)
        return any(use.node.op in _LOOKUPS and not use.index for use in uses)

    def table(self, variable: Node) -> RowTable:
        found, pending = RowTable(), {variable: None}
        while pending:
            member = pending.popitem()[0]
            found.variables[member] = first = self._initializer(member, variable)
            others = (other for use in member.uses() if use.node is not first for other in self._used(found, use))
            pending.update((other, None) for other in others if other not in found.variables)
        for node in (*found.wide, *found.dense):
            for tensor in node.inputs:  # operands in the table's shape are computed from it
                if tensor.node not in found.wide and not _small(tensor, found.shape):
                    raise NotByRows(f"{_called(node)} works on it whole, with '{tensor}'")
        return found

    def _initializer(self, variable: Node, table: Node) -> Node:
        role, shape = self._roles.get(variable.name), tuple(table.attr("shape"))
        if tuple(variable.attr("shape") or ()) != shape:
            raise NotByRows(f"'{variable.name}' is trained with it and has another shape")
        first = next((use.node for use in variable.uses() if role and use.node.name == role.initializer), None)
        if role is not None and role.slice:
            raise NotByRows(f"'{variable.name}' is a piece of a table in pieces")
        if first is None or first in self._device:
            raise NotByRows(f"'{variable.name}' has no first value from the host")
        if variable.attr("dtype").name not in _SUMMED_AND_SLICED:
            raise NotByRows(
                f"rows of {variable.attr('dtype')} cannot be summed over cores, or not be read from slices of a checkpoint"
            )
        if shape[0] > _MOST_ROWS:
            raise NotByRows(f"its {shape[0]:,} rows are more than the numbers that cores exchange can tell apart")
        if (self._cores - 1) * -(-shape[0] // self._cores) >= shape[0]:
            raise NotByRows(f"its {shape[0]} rows leave one of {self._cores} cores without any")
        return first

    def _used(self, table: RowTable, use: Use) -> Iterator[Node]:
        """Record a use of a variable or of its value; yields the optimizer slots that it adds to the table."""
        node = use.node
        if node not in self._device:
            raise NotByRows(f"{_called(node)} uses it whole on the host")
        if node in self._inner or node.op in ops.ENTER | ops.SWITCH:
            raise NotByRows(f"{_called(node)} uses it within a loop or a branch")
        fact = ops.WRITES.get(node.op)
        if _picks_rows(use):
            numbers = node.inputs[1]
            bounded = len(numbers.shape or ()) == 1 and is_static(bounded_shape(numbers))
            if not is_static(numbers.shape) and not bounded:
                raise NotByRows(f"nobody knows how many rows '{node.name}' looks up")
            table.lookups[node] = None
        elif fact is not None and fact.rows is not None and use.index in fact.variables and _is_by_rows(node):
            table.steps[node] = None
            yield from self._written(node)
            yield from self._updated_with(node, fact.rows, table.shape)
        elif fact is not None and fact.rows is None and use.index in (*fact.variables, fact.value):
            table.dense[node] = None
            yield from self._written(node)
            yield from self._behind(node, table.shape)
        elif node.op in ops.READS or _elementwise(node, table.shape):
            if node not in table.wide:
                table.wide[node] = None
                yield from self._behind(node, table.shape)
                for behind in node.uses():
                    yield from self._used(table, behind)
        else:
            raise NotByRows(f"{_called(node)} reads it whole")

    def _written(self, node: Node) -> Iterator[Node]:
        for index in ops.WRITES[node.op].variables:
            variable = variable_of(node.inputs[index], ())
            if variable is None:
                raise NotByRows(f"{_called(node)} writes it within a loop or a branch")
            yield variable

    def _updated_with(self, step: Node, rows: int, shape: tuple[int, ...]) -> Iterator[Node]:
        """Optimizer slots that separate ops update: variables of the same shape, updated in the same distinct rows."""
        if distinct_by(step.inputs[rows]) is None:
            return
        for node, index in step.inputs[rows].node.uses(step.inputs[rows].port):
            fact = ops.WRITES.get(node.op)
            if fact is not None and fact.rows == index:
                yield from (other for other in self._written(node) if tuple(other.attr("shape") or ()) == shape)

    def _behind(self, node: Node, shape: tuple[int, ...]) -> Iterator[Node]:
        """The variables from which a node's operands in the table's shape are computed elementwise."""
        seen, pending = {node}, [tensor.node for tensor in node.inputs if not _small(tensor, shape)]
        while pending:
            before = pending.pop()
            variable = variable_of(before.inputs[0], ()) if before.op in ops.READS else None
            if variable is not None:
                yield variable
            elif before not in seen and _elementwise(before, shape):
                pending += [tensor.node for tensor in before.inputs if not _small(tensor, shape)]
            seen.add(before)


def _called(node: Node) -> str:
    """A node as error messages name it."""
    return f"'{node.origin or node.name}' ({node.op})"


def _picks_rows(use: Use) -> bool:
    """Whether a use of a variable, or of its value, is a gather of rows."""
    node = use.node
    if use.index or node.op not in _LOOKUPS or len(node.inputs[1].shape or ()) == 0:
        return False
    axis = known_value(node.inputs[2]) if len(node.inputs) > 2 else 0
    given, numbers, made = node.inputs[0], node.inputs[1].shape, node.out().shape
    rank = len(made or ()) - len(numbers or ()) + 1
    by_rows = given.dtype.name == "resource" or len(given.shape or ()) == rank
    return axis == 0 and not node.attr("batch_dims", 0) and by_rows and made is not None


def _is_by_rows(node: Node) -> bool:
    """Whether an update gets row indices, not element coordinates."""
    fact = ops.WRITES[node.op]
    numbers, values = node.inputs[fact.rows or 0].shape, node.inputs[fact.value].shape
    return numbers is not None and values is not None and len(numbers) == 1


def _elementwise(node: Node, shape: tuple[int, ...]) -> bool:
    signature = signatures.of(node)
    return (
        signature is not None and signature.elementwise and len(node.outputs or ()) == 1 and node.out().shape == shape
    )


def _small(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor broadcasts over the rows of a table."""
    known = tensor.shape
    return known is not None and (len(known) < len(shape) or known[0] == 1)
