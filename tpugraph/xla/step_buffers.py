"""Infeed and outfeed of a cluster as buffers with a row for each iteration of its loop."""

from __future__ import annotations

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, shapes
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.attrs import DType, Shape
from tpugraph.support.errors import RunError
from tpugraph.xla.cluster_parts import Cluster, DeviceLoop, add, argument, constant, entered

_INT32 = attrs.dtype("int32")
_MARK = {CLUSTER_ATTR: CLUSTER}


def take_infeed(found: Cluster, loop: DeviceLoop) -> None:
    """Let the loop read each batch of its infeed from row i of a buffer, which is an argument.

    Raises:
        RunError: the size of a batch is not known.
    """
    graph = found.graph
    for take in graph.of_type("InfeedDequeueTuple"):
        for port, (kind, shape) in enumerate(take.outputs or ()):
            _check_static(take, kind, shape)
            buffer = argument(graph, f"infeed_{port}", (kind, (found.iterations, *(shape or ()))))
            found.infeed.append(buffer)
            axis = constant(graph, loop, np.int32(0))
            batch = add(graph, "GatherV2", [entered(graph, loop, buffer), loop.number, axis], (kind, shape),
                         {"Tparams": kind, "Tindices": _INT32, "Taxis": _INT32, "batch_dims": 0})  # fmt: skip
            graph.replace_uses(take.out(port), batch)
        graph.replace_control_uses(take, [loop.number.node])
        graph.remove(take)


def give_outfeed(found: Cluster, loop: DeviceLoop) -> None:
    """Let the loop write what it sends to row i of a buffer, which is a result.

    Raises:
        RunError: the size of what is sent is not known.
    """
    graph = found.graph
    for give in graph.of_type("OutfeedEnqueueTuple"):
        for tensor in give.inputs:
            known = shapes.element_count(tensor.shape) is not None
            shape = tensor.shape if known else _sent_shape(graph, give, tensor)
            _check_static(give, tensor.dtype, shape)
            found.outfeed.append(_stacked(found, loop, tensor, shape or ()))
        graph.replace_control_uses(give, give.controls)
        graph.remove(give)


def _sent_shape(graph: Graph, give: Node, tensor: Tensor) -> Shape:
    """The shape that the host expects, where inference inside the cluster leaves it open."""
    expected = next((d.attr("shapes") for d in graph.of_type("OutfeedDequeueTuple")), None) or []
    index = list(give.inputs).index(tensor)
    return expected[index] if index < len(expected) else None


def _stacked(found: Cluster, loop: DeviceLoop, tensor: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """The values of all iterations, [iterations, ...]; zeros where an iteration did not take place."""
    graph, kind = found.graph, tensor.dtype
    whole: Output = (kind, (found.iterations, *shape))
    size = constant(graph, None, np.asarray(whole[1], "int32"))
    zero = constant(graph, None, np.zeros((), kind.name))
    empty = add(graph, "Fill", [size, zero], whole, {"T": kind, "index_type": _INT32})
    entry = entered(graph, loop, empty, constant=False)
    merge = graph.add("Merge", "tpugraph/outfeed/Merge", [entry, entry], attrs={"T": kind, "N": 2, **_MARK},
                      outputs=[whole, (_INT32, ())])  # fmt: skip
    switch = graph.add("Switch", "tpugraph/outfeed/Switch", [merge.out(), loop.condition.out()],
                       attrs={"T": kind, **_MARK}, outputs=[whole, whole])  # fmt: skip
    front = constant(graph, loop, np.int32(0))
    row = add(graph, "ExpandDims", [tensor, front], (kind, (1, *shape)), {"T": kind, "Tdim": _INT32})
    zeros = [constant(graph, loop, np.int32(0)) for _ in shape]
    start = add(graph, "Pack", [loop.number, *zeros], (_INT32, (1 + len(zeros),)),
                 {"N": 1 + len(zeros), "T": _INT32, "axis": 0})  # fmt: skip
    written = add(graph, "XlaDynamicUpdateSlice", [switch.out(1), row, start], whole,
                   {"T": kind, "Tindices": _INT32})  # fmt: skip
    graph.set_input(merge, 1, add(graph, "NextIteration", [written], whole, {"T": kind}))
    return add(graph, "Exit", [switch.out(0)], whole, {"T": kind})


def _check_static(node: Node, kind: DType, shape: Shape) -> None:
    if not shapes.is_static(shape) or kind.size is None:
        raise RunError(f"a tensor of the infeed or outfeed is {kind}{shape}: its size is not known", node=node)
