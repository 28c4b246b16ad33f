"""How many threads work on one op: all that TensorFlow has, or one, so that ops of several cores run beside each other.

TensorFlow divides each large op among its threads, and runs several ops at a time as well. Where cores enough are emulated
for every processor to have some, that is twice as many threads as processors, over ops of the few rows of a core. One
thread for each op is faster then: nothing is divided, and no thread waits for another within an op.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from tpugraph import ops
from tpugraph.analysis import in_cluster, signatures
from tpugraph.analysis.shapes import element_count
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.joined_products import Joint

_AS_AN_ELEMENT = 20
"""Multiplications of a product that take as long as reading or writing an element."""

_PART_OF_A_SHARE = 5
"""An op that exists once may be so large a part of a processor's share of a step: the other processors may wait for it."""


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def one_thread_each(graph: Graph, copies: Copies, joints: Sequence[Joint]) -> bool:
    """Whether a step is faster with one thread for each op.

    It is where every processor has as many cores as the others, and no op that the cores have in common is a large part of
    the step.

    Args:
        graph: the lowered graph, with shapes.
        copies: the copies of its nodes.
        joints: products of the cores that are going to be joined.
    """
    threads = processors()
    if threads < 2 or copies.count % threads:
        return False
    joined = {node for joint in joints for node in joint.products}
    cores = copies.cores()
    by_core = sum(_work([node]) for node in cores if node not in joined)
    by_core += sum(_work(joint.products) for joint in joints if joint.total is None)
    once = [_work([node]) for node in graph if in_cluster(node) and node not in cores]
    once += [_work(joint.products) for joint in joints if joint.total is not None]
    return max(once, default=0.0) * threads * _PART_OF_A_SHARE <= by_core + sum(once)


def _work(nodes: Sequence[Node]) -> float:
    """About how long an op takes, as elements that are read and written; nothing where shapes are not known.

    Of products that are joined each has its rows, and all have the weight, which is most of what they read.
    """
    first = nodes[0]
    tensors = [*first.inputs, *(first.out(port) for port in range(len(first.outputs or ())))]
    work = float(sum(_count(tensor) for tensor in tensors))
    if first.op in ops.WRITES:
        write = ops.WRITES[first.op]
        work += 2 * len(write.variables) * _count(first.inputs[write.value])
    if _is_product(first):
        work += len(nodes) * _multiplications(tensors) / _AS_AN_ELEMENT
    return work


def _is_product(node: Node) -> bool:
    """Whether it multiplies each element of an operand by many of another: a matrix product, a convolution, a gradient of one."""
    signature = signatures.of(node)
    return signature is not None and len(signature.linear) > 1 and node.op not in ops.ELEMENTWISE


def _multiplications(tensors: Sequence[Tensor]) -> float:
    """Of a product [a, b] by [b, c] that is a * b * c, the root of the three sizes multiplied.

    Each place of a filter, the one tensor without rows, is multiplied by all of them; of many matrices each by its own.
    """
    largest = sorted(tensors, key=_count)[-3:]
    found = math.sqrt(math.prod(map(_count, largest)))
    shapes = [tensor.shape or () for tensor in largest]
    leading = [shape[0] if len(shape) > 2 else None for shape in shapes]
    alone = [
        shape for shape, size in zip(shapes, leading, strict=True) if size is not None and leading.count(size) == 1
    ]
    places = math.prod(size or 1 for size in (alone or shapes)[0][:-2])
    return found * math.sqrt(places) if alone else found / math.sqrt(places)


def _count(tensor: Tensor) -> int:
    return element_count(tensor.shape) or 0
