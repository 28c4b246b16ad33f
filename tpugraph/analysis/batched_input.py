"""The step's input: the iterator, its datasets, and the batch size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import ConversionError, ShapeError


def take_of(graph: Graph) -> Node:
    """The only op that takes a batch from an iterator."""
    takes = [graph[finding.name] for finding in graph.roles.inputs]
    queue = next((node for node in takes if node.op not in ops.GET_NEXT), None)
    if queue is not None:
        raise ConversionError(
            f"the input is read by {queue.op}, which does not tell the end of the data",
            node=queue,
            fix="read the input with tf.data: input_fn returns a Dataset",
        )
    if len(takes) != 1:
        names = ", ".join(node.name for node in takes[:3]) or "none"
        raise ConversionError(
            f"the step takes {len(takes)} batches from iterators, not one: {names}",
            node=takes[1] if takes else None,
            fix="put the datasets together with tf.data.Dataset.zip, so that a step takes one batch",
        )
    return takes[0]


def makers_of(iterator: Node) -> list[Node]:
    """The MakeIterator ops of an iterator."""
    return [use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR]


def dataset_of(take: Node) -> tuple[Node, Node]:
    """The iterator and its dataset."""
    iterator = take.inputs[0].node
    makers = makers_of(iterator)
    if iterator.op not in ops.ITERATORS or len(makers) != 1:
        raise ConversionError(
            f"'{iterator.name}' is an iterator of {len(makers)} datasets of the graph, not of one",
            node=iterator,
            fix="return the Dataset from input_fn, or use tf.compat.v1.data.make_initializable_iterator",
        )
    return iterator, makers[0].inputs[0].node


def stages(dataset: Node) -> Iterator[Node]:
    """The datasets from the last back to the batching one."""
    node: Node | None = dataset
    while node is not None:
        yield node
        sources = [t.node for t in node.inputs if ops.is_dataset(t.node.op)]
        node = sources[0] if len(sources) == 1 and node.op not in ops.BATCHING else None


def single(tensor: Tensor) -> Node | None:
    """The constant with one element that produces a tensor; else None."""
    node = tensor.node
    return node if node.op in ops.CONSTANTS and node.attr("value").size == 1 else None


def batch_size(dataset: Node) -> Node | None:
    return single(dataset.inputs[ops.BATCHING[dataset.op].size]) if dataset.op in ops.BATCHING else None


def drop_remainder(graph: Graph, dataset: Node) -> bool:
    """Make a batching dataset drop its last partial batch; returns whether it can."""
    batching = ops.BATCHING.get(dataset.op)
    if batching is None or batching.drop_remainder is None:
        return False
    make = Builder(graph, dataset.name, device=dataset.device, source=dataset)
    drops = make.constant(np.asarray(True), name="drop_remainder")
    graph.set_input(dataset, batching.drop_remainder % len(dataset.inputs), drops)
    return True


def rows_of(take: Node, batcher: Node | None) -> int:
    """Rows of a core's full batch: from the static shape, else from the batching dataset."""
    static = {shape[0] for shape in take.attr("output_shapes") if shape and shape[0] is not None}
    if len(static) == 1:
        return int(static.pop() or 0)
    size = None if batcher is None else batch_size(batcher)
    if size is not None:
        return int(size.attr("value").item())
    raise ShapeError(
        "the number of rows of a batch is not known: the dataset does not batch, or its batch size is computed",
        node=take,
        fix="batch the dataset by a constant: dataset.batch(64)",
    )


def is_sparse(take: Node, index: int) -> bool:
    """Whether an element of a batch is a sparse tensor, which a dataset yields as a variant."""
    wrapped = take.attr("output_types")[index].name == "variant"
    return wrapped and all(use.node.op in ops.SPARSE_UNWRAPS and rank_of(use.node) for use in take.uses(index))


def rank_of(unwrapped: Node) -> int:
    """The rank of an unwrapped sparse tensor; 0 where it is unknown."""
    shapes_known = unwrapped.attr("_output_shapes") if unwrapped.has_attr("_output_shapes") else [None]
    return int((shapes_known[0] or (None, None))[1] or 0)


def with_open_rows(take: Node, index: int, shape: Shape) -> Shape:
    """The shape with an unknown number of rows, None for a sparse tensor; refuses elements that cannot be padded."""
    kind = take.attr("output_types")[index]
    if is_sparse(take, index):
        return None
    if shape is None or not shape or kind.name in ("variant", "resource"):
        what = "a ragged value" if kind.name == "variant" else "not a batch of rows"
        raise ShapeError(
            f"element {index} of the batch ({kind}, shape {shape}) is {what}, so it cannot be padded",
            node=take,
            fix="let the dataset make dense batches: parse and densify in map, then batch",
        )
    if None in shape[1:] and take.uses(index):
        raise ShapeError(
            f"element {index} of the batch has the open dimension {1 + shape[1:].index(None)} besides its rows",
            node=take,
            fix="give the dimension a fixed size in the dataset (padded_batch with padded_shapes, or reshape)",
        )
    return (None, *shape[1:])


def commonest(sizes: Iterable[int | None]) -> int | None:
    """The most frequent size; the largest of several."""
    counts = Counter(filter(None, sizes))
    return max(counts, key=lambda size: (counts[size], size), default=None)


def rows_read(graph: Graph) -> int | None:
    """The batch size of a step, from the shapes of its input, else from the batching dataset or queue; None if unknown."""
    takes = [graph[finding.name] for finding in graph.roles.inputs if finding.name in graph]
    shapes = [shape for node in takes if node.has_attr("output_shapes") for shape in node.attr("output_shapes") or ()]
    if static := commonest(shape[0] for shape in shapes if shape):
        return static
    for take in takes:
        if take.op in ops.DEQUEUES and len(take.inputs) > 1:
            sizes = [single(take.inputs[1])]
        else:
            chains = (stages(maker.inputs[0].node) for source in take.inputs[:1] for maker in makers_of(source.node))
            sizes = [batch_size(node) for chain in chains for node in chain if node.op in ops.BATCHING]
        if sizes and sizes[0] is not None:
            return int(sizes[0].attr("value").item())
    return None
