"""The largest elements of windows taken before negative ones become zero, instead of after: the same numbers, of fewer elements.

Convolutional nets write ``max_pool(relu(x))``. The largest of rectified elements is the largest element rectified, and its
gradient goes to the same element: to none where no element of the window is positive, else to the first that is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import in_cluster
from tpugraph.analysis.shapes import element_count
from tpugraph.ir import Graph, Node


@dataclass(frozen=True)
class _Pooled:
    """A rectifier that is read by a pool, and in training by the gradients of both."""

    relu: Node
    pool: Node
    pool_gradient: Node | None = None
    relu_gradient: Node | None = None


def pool_first(graph: Graph) -> int:
    """Let pools of the device read what rectifiers read, and these the pools; returns how many pools were moved.

    Args:
        graph: the graph, with shapes.
    """
    found = [pooled for relu in graph.of_type(*ops.RECTIFIERS) if in_cluster(relu) and (pooled := _pooled(relu))]
    for pooled in found:
        _swap(graph, pooled)
    return len(found)


def _pooled(relu: Node) -> _Pooled | None:
    """What a rectifier is to a pool; None where anything else reads it, or where the pool is no smaller."""
    readers = {role: [use.node for use in relu.uses() if use.node.op in role] for role in _READERS}
    pools, pool_gradients, relu_gradients = readers.values()
    if len(pools) != 1 or sum(map(len, readers.values())) != len(relu.uses()) or relu.control_uses():
        return None
    pool = pools[0]
    before, after = element_count(relu.out().shape), element_count(pool.out().shape)
    if pool.controls or before is None or after is None or after >= before:
        return None
    if not pool_gradients and not relu_gradients:
        return _Pooled(relu, pool)
    if len(pool_gradients) != 1 or len(relu_gradients) != 1:
        return None
    found = _Pooled(relu, pool, pool_gradients[0], relu_gradients[0])
    return found if _backwards(found, pool_gradients[0], relu_gradients[0]) else None


_READERS = (ops.MAX_POOLS, ops.MAX_POOL_GRADIENTS, ops.RECTIFIER_GRADIENTS)


def _backwards(found: _Pooled, of_pool: Node, of_relu: Node) -> bool:
    """Whether the gradients are those of the two, one behind the other, and nothing else reads or awaits what is between."""
    values, largest = found.relu.out(), found.pool.out()
    chained = of_pool.inputs[:2] == (values, largest) and of_relu.inputs == (of_pool.out(), values)
    alone = len(of_pool.uses()) == 1 and not of_pool.control_uses()
    return chained and alone and not of_pool.controls and not of_relu.controls


def _swap(graph: Graph, found: _Pooled) -> None:
    relu, pool, of_pool, of_relu = found.relu, found.pool, found.pool_gradient, found.relu_gradient
    values, small = relu.inputs[0], list(pool.outputs or ())
    graph.set_input(pool, 0, values)
    graph.replace_uses(pool.out(), relu.out(), where=lambda use: use.node is not of_pool)
    graph.set_attr_of(
        [node for node in (relu, of_relu) if node], "_output_shapes", None
    )  # theirs are of the windows now
    graph.retype(relu, relu.op, inputs=[pool.out()], outputs=small)
    if of_pool is None or of_relu is None:
        return
    graph.replace_uses(of_relu.out(), of_pool.out())
    graph.retype(of_relu, of_relu.op, inputs=[of_pool.inputs[2], relu.out()], outputs=small)
    graph.set_input(of_pool, 0, values)
    graph.set_input(of_pool, 2, of_relu.out())
