"""Where the rows of a batch stand in what the host hands over, as the datasets of the input tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tpugraph import ops
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import loop_order, shapes
from tpugraph.analysis.constant_values import constant, fixed
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sides_of_step import cluster_nodes, fed_to_device
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, known, poly
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph, Node, Tensor, function_library
from tpugraph.ir.attrs import Shape
from tpugraph.ir.function_library import Body
from tpugraph.ir.walks import source_of
from tpugraph.support.errors import GraphError

_ = _dimension_rules


def rows_from_input(graph: Graph) -> tuple[int, dict[Tensor, Dims]] | None:
    """The rows of a core's batch, and the dimensions of what crosses to the device where the datasets of the input tell them.

    A dataset that batches by a constant says how many rows there are, and that they come first; what its elements pass on
    the way to the device is followed from there. Where the host divides batches, the rows are those of a part. None where
    that tells nothing, as of a dataset that does not batch.
    """
    taken = _taken(graph)
    return None if taken is None else _crossing(graph, *taken)


def _crossing(graph: Graph, rows: int, made: dict[Tensor, Dims]) -> tuple[int, dict[Tensor, Dims]] | None:
    """The rows of a core's batch, and what the elements of a batch of so many ``rows`` are when they cross to the device."""
    fed = fed_to_device(graph)
    between = graph.ancestors([t.node for t in fed], data_only=True).keys() & graph.descendants(
        [t.node for t in made], data_only=True).keys() - cluster_nodes(graph).keys()  # fmt: skip
    order = loop_order(graph, dict.fromkeys(node for node in graph if node in between))
    dimensions = Dimensions(graph, order, rows, made)
    crossing = {t: dimensions.dims(t) for t in fed if t.node in between}
    held = [size for dims in crossing.values() for size in map(known, dims or ()) if isinstance(size, Poly)]
    return _of_parts(rows, held, {t: dims for t, found in crossing.items() if (dims := _settled(found))})


def dims_from_input(graph: Graph, rows: int) -> dict[Tensor, Dims]:
    """The dimensions that the datasets tell of elements of the batch, and of what crosses to the device.

    Args:
        graph: the graph, with shapes.
        rows: rows of a core's batch; where the datasets tell another number, nothing is told.
    """
    taken = _taken(graph)
    if taken is None:
        return {}
    told, crossing = taken[1] if taken[0] == rows else {}, _crossing(graph, *taken)
    elements = {tensor: found for tensor, dims in told.items() if (found := _settled(dims))}
    return elements | (crossing[1] if crossing is not None and crossing[0] == rows else {})


@dataclass(frozen=True)
class Same:
    """A part of a batch that is the same in each, as a constant that a dataset function adds to the rows is.

    Attributes:
        even: whether all of its elements are equal, as far as that can be seen.
        number: the number that it is, where it is one and that can be seen.
    """

    even: bool
    number: float | None = None


def same_in_each_batch(graph: Graph) -> dict[Tensor, Same]:
    """The parts of a batch that are the same in each."""
    found: dict[Tensor, Same] = {}
    for take in graph.of_type(*ops.GET_NEXT):
        dataset = _dataset_of(take)
        parts: list[Same | None] = [None] * len(take.outputs or ())
        for node in reversed(list(_sources(dataset)) if dataset is not None else []):
            if node.op in ops.MAP_DATASETS:
                body = function_library.function_body(graph, node.attr("f").name, node)
                parts = [_is_constant(body, result, parts) for result in body.results]
            elif node.op not in ops.ELEMENTS:
                parts = [None] * len(node.attr("output_shapes", ()))
        found |= {take.out(port): same for port, same in enumerate(parts) if same is not None}
    return found


def _is_constant(body: Body, result: Tensor, parts: Sequence[Same | None]) -> Same | None:
    """What is the same in each result of a dataset function; None where it varies."""
    made = source_of(result, ops.IDENTITIES).node
    if made in body.arguments:
        index = body.arguments.index(made)
        return parts[index] if index < len(parts) else None
    before = body.graph.ancestors([made])
    if any(node in body.arguments or ops.is_stateful(node.op) for node in before):
        return None
    value = known_value(result)
    number = float(value.item()) if value is not None and value.size == 1 and value.dtype.kind in "iuf" else None
    return Same(made.op in ops.FILLS or (made.op in ops.CONSTANTS and len(np.unique(constant(made))) < 2), number)


def _taken(graph: Graph) -> tuple[int, dict[Tensor, Dims]] | None:
    """The rows of a batch and the dimensions of its elements; None where one dataset does not tell, or several differ."""
    made: dict[Tensor, Dims] = {}
    sizes: set[int] = set()
    for take in graph.of_type(*ops.GET_NEXT):
        dataset = _dataset_of(take)
        found = None if dataset is None else _elements(graph, dataset)
        if found is None or len(found[1]) != len(take.outputs or ()):
            return None
        sizes.add(found[0])
        made |= {take.out(port): dims for port, dims in enumerate(found[1]) if dims is not None}
    return (sizes.pop(), made) if len(sizes) == 1 else None


def _of_parts(rows: int, held: Sequence[Poly], told: dict[Tensor, Dims]) -> tuple[int, dict[Tensor, Dims]] | None:
    """The same in rows of a core's part, where the host divides each batch into parts of as many rows.

    Args:
        rows: those of a batch.
        held: the sizes that cross and follow the batch.
        told: the dimensions of what crosses, where all of them are known.
    """
    least = min([1, *(size.c[1] for size in held)])  # of several elements for each row all cross, and no fewer rows
    if not held or least <= 0 or rows * least < 2:
        return None
    made = {
        t: tuple(
            poly((size.c[0], *(Fraction(k) / least for k in size.c[1:]))) if isinstance(size, Poly) else size
            for size in dims
        )
        for t, dims in told.items()
    }
    whole = all(size.c[0] == 0 and len(size.c) == 2 and (size.c[1] / least) % 1 == 0 for size in held)
    return (int(rows * least), made) if whole and rows * least == int(rows * least) else None


def _settled(dims: Dims | None) -> Dims | None:
    """The dimensions, where each is known to be a number or to follow the batch."""
    found = [known(size) for size in dims or ()]
    return tuple(size for size in found if size is not None) if dims and None not in found else None


def _dataset_of(take: Node) -> Node | None:
    """The dataset of the one iterator of the graph that a batch is taken from."""
    makers = [use.node for use in take.inputs[0].node.uses() if use.node.op in ops.MAKE_ITERATOR]
    return makers[0].inputs[0].node if len(makers) == 1 else None


def _elements(graph: Graph, dataset: Node) -> tuple[int, list[Dims | None]] | None:
    """The rows of a batch and the dimensions of the parts of an element; None where no one dataset batches by a constant."""
    chain = list(_sources(dataset))
    batcher = chain[-1]
    if batcher.op not in ops.BATCHING:
        return None
    size = fixed(batcher.inputs[ops.BATCHING[batcher.op].size])
    if size is None or len(size) != 1 or size[0] < 2:
        return None
    parts = [_batched(shape) for shape in batcher.attr("output_shapes")]
    for node in reversed(chain[:-1]):
        if node.op in ops.MAP_DATASETS:
            parts = _mapped(graph, node, size[0], parts)
        elif node.op in ops.FLAT_MAP_DATASETS:
            parts = _sliced(graph, node, size[0], parts)
        elif node.op not in ops.ELEMENTS:
            return None
    return size[0], parts


def has_batches_of_one(graph: Graph) -> bool:
    """Whether all datasets of the input batch by one: their elements do not tell, as every 1 might be that row."""
    datasets = [_dataset_of(take) for take in graph.of_type(*ops.GET_NEXT)]
    batchers = [None if dataset is None else list(_sources(dataset))[-1] for dataset in datasets]
    sizes = [
        fixed(batcher.inputs[ops.BATCHING[batcher.op].size]) if batcher and batcher.op in ops.BATCHING else None
        for batcher in batchers
    ]
    return bool(sizes) and all(size is not None and list(size) == [1] for size in sizes)


def _sources(dataset: Node) -> Iterator[Node]:
    """The datasets from one back to that which batches, or that has another number of sources than one."""
    while True:
        yield dataset
        sources = [t.node for t in dataset.inputs if ops.is_dataset(t.node.op)]
        if dataset.op in ops.BATCHING or len(sources) != 1:
            return
        (dataset,) = sources


def _batched(shape: Shape) -> Dims | None:
    return None if not shape else (ROWS, *(Unknown(-1) if size is None else size for size in shape[1:]))


def _mapped(graph: Graph, node: Node, rows: int, parts: list[Dims | None]) -> list[Dims | None]:
    """The dimensions of what the function of a dataset makes of each element."""
    body = function_library.function_body(graph, node.attr("f").name, node)
    return _made_by(body, body.results, rows, parts)


def _sliced(graph: Graph, node: Node, rows: int, parts: list[Dims | None]) -> list[Dims | None]:
    """The same where the function returns the slices of what it makes."""
    body = function_library.function_body(graph, node.attr("f").name, node)
    made = source_of(body.results[0], ops.IDENTITIES).node
    if made.op not in ops.SLICE_DATASETS:
        return [None] * len(node.attr("output_shapes"))
    return [dims[1:] if dims else None for dims in _made_by(body, made.inputs, rows, parts)]


def _made_by(body: Body, results: Sequence[Tensor], rows: int, parts: list[Dims | None]) -> list[Dims | None]:
    for index, (argument, kind) in enumerate(zip(body.arguments, body.types, strict=True)):
        part = parts[index] if index < len(parts) else None
        body.graph.set_attr(argument, "dtype", kind)
        body.graph.set_attr(argument, "shape", None if part is None else tuple(_number(size, rows) for size in part))
    try:
        shapes.infer(body.graph)
    except GraphError:  # TensorFlow takes no such body as a graph, and what it makes is told by its shape alone
        return [None] * len(results)
    seeds = {a.out(): part for a, part in zip(body.arguments, parts, strict=False) if part is not None}
    wanted = body.graph.ancestors([result.node for result in results], data_only=True)
    order = loop_order(body.graph, dict.fromkeys(n for n in body.graph if n in wanted and n not in body.arguments))
    dimensions = Dimensions(body.graph, order, rows, seeds)
    return [_settled(dimensions.dims(result)) for result in results]


def _number(size: Size, rows: int) -> int | None:
    found = known(size)
    return found.at(rows) if isinstance(found, Poly) else found


__all__ = ["dims_from_input", "has_batches_of_one", "rows_from_input", "same_in_each_batch"]
