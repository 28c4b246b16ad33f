"""The batch that a step reads, and how the input is given another batch size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.batched_input import batch_size, makers_of, single
from tpugraph.analysis.values import constant
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import ShapeError


@dataclass(frozen=True)
class Take:
    """A node that hands a batch to the step."""

    node: Node  # IteratorGetNext or a dequeue
    size: Node | None  # the constant with the batch size; None where no constant decides it
    # the datasets from the batching one to the last, and the iterator; empty for a queue
    chain: tuple[Node, ...] = ()

    @property
    def rows(self) -> int | None:
        """The batch size: of the static shapes, else of the constant."""
        static = {shape[0] for shape in self.shapes() if shape and shape[0] is not None}
        if len(static) == 1:
            return static.pop()
        return None if self.size is None else int(constant(self.size).item())

    @property
    def is_open(self) -> bool:
        """Whether the batch dimension is unknown in all static shapes."""
        return all(not shape or shape[0] is None for shape in self.shapes())

    def opens(self) -> Node | None:
        """The dataset behind the batching one that makes the batch size unknown, such as a filter."""
        above, dataset = None, self.chain[0] if self.chain else None
        while dataset is not None and dataset.op not in ops.BATCHING:
            above = dataset if _is_open(dataset) else above
            dataset = dataset.inputs[0].node if dataset.inputs else None
        return None if dataset is None or _is_open(dataset) else above

    def shapes(self) -> list[Shape]:
        node = self.node
        return (
            list(node.attr("output_shapes")) if node.has_attr("output_shapes") else [s for _, s in node.outputs or ()]
        )

    def elements(self) -> list[Tensor]:
        """The outputs of the node with one entry per row."""
        return [self.node.out(port) for port, shape in enumerate(self.shapes()) if shape and shape[0] == self.rows]


def _is_open(dataset: Node) -> bool:
    shapes = dataset.attr("output_shapes") if dataset.has_attr("output_shapes") else []
    return any(shape is None or shape[:1] == (None,) for shape in shapes)


def takes_of(graph: Graph) -> list[Take]:
    """The nodes that hand batches to the step, in the order of the roles."""
    return [_take(graph[finding.name]) for finding in graph.roles.inputs]


def _take(node: Node) -> Take:
    if node.op in ops.BATCH_DEQUEUES:
        return Take(node, single(node.inputs[1]))
    iterator = node.inputs[0].node if node.inputs else None
    makers = makers_of(iterator) if iterator is not None else []
    if node.op not in ops.GET_NEXT or iterator is None or len(makers) != 1:
        return Take(node, None)
    chain, dataset = [iterator], makers[0].inputs[0].node
    while dataset.op in ops.ELEMENTS:
        chain.append(dataset)
        dataset = dataset.inputs[0].node
    if dataset.op in ops.BATCHING and dataset.op not in ops.REBATCH_DATASETS:
        return Take(node, batch_size(dataset), (dataset, *reversed(chain)))
    return Take(node, None, (makers[0].inputs[0].node, iterator))


def resize(graph: Graph, take: Take, rows: int) -> str:
    """Set the batch size of an input to ``rows``; returns a description of the change.

    The batch size of the dataset or dequeue is changed where a constant holds it; else the last dataset is unbatched and
    batched again, in order.
    """
    before = take.rows
    if take.size is not None:
        operand = next(use for use in take.size.uses() if use.node in (take.node, *take.chain))
        make = Builder(graph, take.size.name, source=take.size, device=take.size.device)
        size = make.constant(np.asarray(rows, constant(take.size).dtype), name=f"rows_{rows}")
        graph.set_input(operand.node, operand.index, size)
        said = f"'{operand.node.name}' batches {rows} rows in place of {before}"
    elif take.chain and before is not None and len(take.elements()) == len(take.shapes()):
        said = _batch_again(graph, take, rows)
    else:
        raise ShapeError(f"'{take.node.name}' ({take.node.op}) reads from no dataset that can be batched again",
                         node=take.node, origin=graph.source,
                         fix="batch the dataset by a constant: dataset.batch(64)")  # fmt: skip
    for node in (*take.chain, take.node):
        for name in filter(node.has_attr, ("output_shapes", "_output_shapes")):
            graph.set_attr(node, name, [_with_rows(s, before, rows) for s in node.attr(name)])
    return said


def _batch_again(graph: Graph, take: Take, rows: int) -> str:
    """A dataset behind the last one that unbatches it and batches ``rows`` rows."""
    last, iterator = take.chain
    make = Builder(graph, last.name, device=last.device, source=last)
    sizes = make.constant(np.asarray([rows], "int64"), name="rows")
    drops = make.constant(np.asarray(not take.is_open), name="drop_remainder")
    kept = {"output_types": last.raw_attrs["output_types"], "output_shapes": last.raw_attrs["output_shapes"]}
    maker = next(use for use in last.uses() if use.node.op in ops.MAKE_ITERATOR and iterator in use.node.producers())
    again = graph.add("RebatchDatasetV2", f"{last.name}/rows_{rows}", [last.out(), sizes, drops], attrs=kept,
                      device=last.device, source=last, outputs=[(attrs.dtype("variant"), ())])  # fmt: skip
    graph.set_input(maker.node, maker.index, again.out())
    graph.set_attr(again, "output_shapes", [_with_rows(s, take.rows, rows) for s in again.attr("output_shapes")])
    return f"the batches of '{last.name}' are put together anew, {rows} rows each"


def _with_rows(shape: Shape, before: int | None, rows: int) -> Shape:
    return (rows, *shape[1:]) if shape and shape[0] == before else shape
