"""What the host hands to the device: where it lives on the cores, and what its dimensions are.

An element of the batch is told by the datasets of the input, or else by its size. What the host makes of it is followed by
the rules that hold on the device: the host computes with the rows of one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.batched_input import with_input
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.input_rows import Same, dims_from_input, same_in_each_batch
from tpugraph.analysis.placements import REPLICATE, Entries, PerCore, Placement, Shard, Sized
from tpugraph.analysis.placing import Placing, shard_of
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, known
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.partition.demands import finds_distinct
from tpugraph.support.errors import ConversionError

_BEGINNINGS = ops.INPUTS | ops.RANDOM
Analyse = Callable[[dict[Node, None]], Placing]
"""Gives the placements of some nodes on the host."""


@dataclass(frozen=True)
class FedValues:
    """What the device reads that the host makes.

    Attributes:
        placements: where each tensor lives.
        dims: the dimensions of tensors with a shape.
        elements: of sizes of entries, what they count.
        together: of what the host makes of several rows of a core's batch, the op that takes these together.
        constants: what is the same in each batch.
    """

    placements: dict[Tensor, Placement] = field(default_factory=dict)
    dims: dict[Tensor, Dims] = field(default_factory=dict)
    elements: dict[Tensor, Elements] = field(default_factory=dict)
    together: dict[Tensor, Node] = field(default_factory=dict)
    constants: dict[Tensor, Same] = field(default_factory=dict)

    def refuse_several_rows(self, origin: str) -> None:
        """Refuse what the host makes of several rows: of the whole batch it would be another value.

        Raises:
            ConversionError: it names the op that takes rows together.
        """
        for tensor, node in self.together.items():
            made = "" if tensor.node is node else f", and '{tensor}', which the device reads, is made of it"
            raise ConversionError(
                f"'{node.name}' ({node.op}) takes the rows of a batch together on the host, where a core has its own rows "
                f"only{made}: of the whole batch it would be another value",
                node=node, origin=origin,
                fix="let the input pipeline give numbers instead of strings, so that this is computed on the device",
            )  # fmt: skip

    def place_constants(self, dimensions: Dimensions, origin: str) -> None:
        """Place the constants of the input that turn out to have a row for each of the batch.

        Raises:
            ConversionError: one has a row for each of a core's batch, and they differ: those of other cores are not known;
                or one is a number that may count the rows of a core's batch.
        """
        several = dimensions.sizes.whole > dimensions.rows > 1
        for tensor, same in self.constants.items():
            if several and tensor.shape == () and same.number and same.number % dimensions.rows == 0:
                raise ConversionError(
                    f"'{tensor}' is {same.number:g} in each batch of the input, and a core's batch has {dimensions.rows} rows: "
                    "if it counts them, the whole batch has more, and nothing says so", node=tensor.node, origin=origin,
                    fix="count rows in the model, by tf.shape of a feature; write a number of the model there as well",
                )  # fmt: skip
            dims = [known(size) for size in dimensions.dims(tensor) or ()]
            rows = next((axis for axis, size in enumerate(dims) if isinstance(size, Poly)), None)
            if rows is None:
                continue
            if not same.even:
                raise ConversionError(
                    f"'{tensor}' is the same in each batch of the input and has a row for each of its {dimensions.rows}: which "
                    "the rows of other cores would have is not known", node=tensor.node, origin=origin,
                    fix="let its rows come with those of the input, one for each example",
                )  # fmt: skip
            self.placements[tensor] = shard_of(dims, rows) or self.placements[tensor]  # type: ignore[arg-type]


def measured_only(graph: Graph, device: NodeSet, sources: Iterable[Node]) -> NodeSet:
    """What is made of values of the device and has nothing but its shape asked for, as the mean of a loss that nobody fetches.

    Args:
        graph: the graph.
        device: the nodes on the device.
        sources: the nodes whose shapes constants are.
    """
    others = [node for node in sources if node not in device]
    behind = graph.descendants(device, data_only=True) if others else {}
    made = graph.ancestors([node for node in others if node in behind], data_only=True)
    return {node: None for node in made if node in behind and node not in device}


def read_from_host(graph: Graph, nodes: Mapping[Node, None], shape_of: Mapping[str, str]) -> dict[Tensor, None]:
    """What the device reads of nodes that are no variables, and the tensors whose shapes its constants are.

    Args:
        graph: the graph.
        nodes: the nodes on the device.
        shape_of: by the name of a constant, the tensor whose shape it was computed from.
    """
    found = {t: None for n in nodes for t in n.inputs if t.node not in nodes and t.node.op not in ops.VARIABLES}
    for name, source in shape_of.items():
        node, _, port = source.partition(":")
        if name in graph and graph[name] in nodes and node in graph and graph[node] not in nodes:
            found[graph[node].out(int(port or 0))] = None
    return found


def values_fed(graph: Graph, tensors: Iterable[Tensor], rows: int, analyse: Analyse | None) -> FedValues:
    """Where tensors live that come from the host, and their dimensions.

    Args:
        graph: the graph, with shapes.
        tensors: the tensors.
        rows: rows of one core's batch.
        analyse: for what the host makes of the input; None where all is told by its size, as the pieces of a split batch are.
    """
    inputs = graph.descendants(graph.of_type(*_BEGINNINGS), data_only=True)
    fed = FedValues()
    of_input = [tensor for tensor in tensors if fed.placements.setdefault(tensor, REPLICATE) and tensor.node in inputs]
    host = _host_part(graph, of_input, analyse) if analyse is not None else None
    together = _of_several_rows(graph, host, of_input) if host is not None else {}
    told, same = (dims_from_input(graph, rows), same_in_each_batch(graph)) if of_input else ({}, {})
    for tensor in of_input:
        placed = _by_host(host, tensor) if host is not None and tensor.node not in together else None
        found: Sequence[Size] | None = host.dims(tensor) if host is not None and isinstance(placed, Shard) else None
        if tensor in same and tensor.shape is not None and None not in tensor.shape:
            fed.constants[tensor] = same[tensor] if analyse is not None else Same(same[tensor].even)
            placed, found = REPLICATE, [Unknown(int(size or 0)) for size in tensor.shape]
        elif placed is None and tensor in told:
            placed, found = _of_dims(told[tensor]), told[tensor]
        placed = fed.placements[tensor] = _by_size(tensor, rows) if placed is None else placed
        if tensor.node in together:
            node = fed.together[tensor] = together[tensor.node]
            fed.placements[tensor] = PerCore(f"'{node.name}' takes the rows of each core together on its host")
        if placed == Entries("shape") and tensor.shape:
            fed.elements[tensor] = [ROWS, *[None] * (int(tensor.shape[0] or 1) - 1)]
        dims = found if found is not None else _dims_by_size(tensor, placed)
        if dims is not None:
            fed.dims[tensor] = tuple(dims)
    if analyse is not None:
        fed.dims.update(
            {t: dims for t in with_input(graph, of_input) if t not in fed.dims and (dims := _of_element(t, told, rows))}
        )
    return fed


def _of_element(element: Tensor, told: Mapping[Tensor, Dims], rows: int) -> Dims | None:
    """The dimensions of an element of the batch that the host makes something of: the model may ask for its shape.

    Of one row, a shape in which other dimensions are 1 as well, or that is [1], tells nothing apart.
    """
    found = told.get(element) or _dims_by_size(element, _by_size(element, rows))
    if found is None or (rows == 1 and (len(found) == 1 or (element.shape or ()).count(1) > 1)):
        return None
    return tuple(found)


def _dims_by_size(tensor: Tensor, placed: Placement) -> Sequence[Size] | None:
    """The dimensions where the static shape is all that is known of them; None where not even the rank is."""
    if tensor.shape is None:
        return None
    made: list[Size] = [Unknown(-1) if size is None else int(size) for size in tensor.shape]
    return [ROWS, *made[1:]] if placed == Shard(0) else made


def _host_part(graph: Graph, tensors: list[Tensor], analyse: Analyse) -> Placing | None:
    """The placements of what the host makes between the input and some tensors; None where it makes nothing."""
    made = [tensor.node for tensor in tensors if tensor.node.op not in _BEGINNINGS]
    before = graph.ancestors(made, data_only=True) if made else {}
    nodes = {node: None for node in before if node.op not in _BEGINNINGS | ops.VARIABLES}
    if not nodes:
        return None
    placing = analyse(nodes)
    placing.solve()
    return placing


def _by_host(host: Placing, tensor: Tensor) -> Placement | None:
    """How a tensor lives where the rules tell it; None where its size does, as of what an op makes that no rule describes."""
    found = host.made(tensor)
    if tensor.shape == ():
        return found if found == Entries("shape") or isinstance(found, PerCore) else None  # how many entries there are
    if tensor.shape and tensor.shape[0] is None:
        return found if isinstance(found, Entries) else None
    return found if isinstance(found, PerCore) or (isinstance(found, Shard) and found != Shard(0)) else None


def _of_several_rows(graph: Graph, host: Placing, tensors: Iterable[Tensor]) -> dict[Node, Node]:
    """What is made of rows that a known op takes all together, with that op; the numbers of distinct values as well."""
    distinct = {t.node: finds_distinct(host, t) for t in tensors if t.shape == ()}
    found = {counts: maker for counts, maker in distinct.items() if maker is not None}
    for node, verdict in host.verdicts.items():
        known = ops.is_recorded(node.op) and not ops.is_host_only(node.op)
        if known and any(isinstance(host.read(node.inputs[i]), Shard | Entries | Sized) for i in verdict.wants):
            found = dict.fromkeys(graph.descendants([node], data_only=True), node) | found
    return found


def _of_dims(dims: Dims) -> Placement:
    """How a value lives of whose dimensions all is known."""
    rows = [shard_of(dims, axis) for axis, size in enumerate(dims) if isinstance(size, Poly)]  # type: ignore[arg-type]
    return rows[0] if len(rows) == 1 and rows[0] else PerCore("each core reads its own part of the input")


def _by_size(tensor: Tensor, rows: int) -> Placement:
    """Where an element of the batch lives by its size, or what the host makes by an op that no rule describes."""
    shape = tensor.shape
    if shape and shape[0] == rows:
        return Shard(0)
    if shape and shape[0] is None:
        return Entries(
            "local" if len(shape) == 2 and tensor.dtype.name == "int64" else "values"
        )  # as of a sparse tensor
    if shape and len(shape) == 1 and tensor.dtype.name == "int64":
        return Entries("shape")
    return PerCore(f"each core reads its own '{tensor}', which has no row for each example")
