"""Products with large weights, made once for the rows of all cores instead of once for each core.

A core multiplies its rows by a weight that all cores share, and the gradient of the weight is the sum over cores of what
their rows make. Where a weight is larger than the rows, reading and writing it for each core is most of the work: the rows
are put together, multiplied at once, and handed out again. A gradient is then the product over all rows, without a sum
behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.shapes import element_count
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.attrs import dtype
from tpugraph.ir.builder import Builder
from tpugraph.ir.frames import frames
from tpugraph.ir.regions import behind
from tpugraph.runtime.emulator.copies import Copies

_INT32 = dtype("int32")


@dataclass(frozen=True)
class Joint:
    """Products of the cores that are less work together.

    Attributes:
        products: one for each core.
        total: the sum over the cores that they are added up by; None where each core reads its own.
    """

    products: list[Node]
    total: Node | None


def joint_products(graph: Graph, copies: Copies, sums: Iterable[Node]) -> list[Joint]:
    """The products of the cores that are less work together.

    Args:
        graph: the lowered graph.
        copies: the copies of its nodes.
        sums: what was a CrossReplicaSum.
    """
    frame_of = frames(graph)
    core_of = copies.cores()
    branches = behind([switch for switch in graph.of_type(*ops.SWITCH) if switch.inputs[1].node in core_of])

    def together(products: list[Node]) -> bool:
        """Whether all of them run whenever one does."""
        return len({frame_of[node] for node in products}) == 1 and not any(node in branches for node in products)

    found = []
    for total in sums:
        products = _summed(total)
        if products and _pays(products[0].out(), *products[0].inputs) and together(products):
            found.append(Joint(products, total))
    for node in [node for node in graph.of_type(*ops.MATMULS) if core_of.get(node) == 0]:
        products = copies.nodes(node)
        if _shares_weight(products) and _pays(node.inputs[1], node.inputs[0], node.out()) and together(products):
            found.append(Joint(products, None))
    return found


def join_products(graph: Graph, joints: Iterable[Joint], groups: int = 1) -> None:
    """Make products of the cores together.

    What waited for the products of cores waits for their operands, or for the product that they became.

    Args:
        graph: the lowered graph.
        joints: the products.
        groups: how many products those become of which each core reads its own.
    """
    rows_of = _Rows()
    for joint in joints:
        if joint.total is not None:
            _join_sum(graph, joint.total, joint.products, rows_of)
            continue
        size = -(-len(joint.products) // groups)
        for first in range(0, len(joint.products), size):
            together = joint.products[first : first + size]
            if len(together) > 1:
                _join_rows(graph, together, rows_of)


def _pays(weight: Tensor, *others: Tensor) -> bool:
    """Whether a weight, or its gradient, is larger than the rows that are multiplied; sizes must be known."""
    size, *rest = (element_count(tensor.shape) for tensor in (weight, *others))
    known = [count for count in rest if count is not None]
    return size is not None and len(known) == len(rest) and size >= sum(known)


# --------------------------------------------------------------------------- gradients of weights


def _summed(total: Node) -> list[Node]:
    """The products that a sum adds, each over rows and read by nothing else; none where it adds anything else."""
    if total.op not in ops.ADD_N or len(total.inputs) < 2:
        return []
    found = [part.node for part in map(_made, total.inputs) if part is not None]
    alike = all(node.op in ops.MATMULS and node.attr("transpose_a") and not node.attr("transpose_b") for node in found)
    return found if alike and len(found) == len(total.inputs) == len(set(found)) else []


def _made(part: Tensor) -> Tensor | None:
    """What makes a value that goes to the sum alone, behind identities that nothing waits for."""
    while len(part.node.uses()) == 1:
        if part.node.op not in ops.IDENTITIES:
            return part
        if len(part.node.inputs) != 1 or part.node.control_uses():
            return None
        part = part.node.inputs[0]
    return None


def _join_sum(graph: Graph, total: Node, products: list[Node], rows_of: _Rows) -> None:
    replaced = [*_between(total, products), *products]
    waits = dict.fromkeys(control for node in replaced for control in node.controls if control not in products)
    make = Builder(graph, total.name, source=total)
    sides = [
        rows_of(make, [node.inputs[side] for node in products], name) for side, name in enumerate(("inputs", "slopes"))
    ]
    for node in products:
        graph.replace_control_uses(node, [operand.node for operand in node.inputs])
    attributes = {"T": total.attr("T"), "transpose_a": True, "transpose_b": False}
    graph.retype(total, "MatMul", inputs=sides, attrs=attributes)
    graph.add_controls(total, waits)
    graph.remove_all(replaced)


def _between(total: Node, products: list[Node]) -> list[Node]:
    """The identities between the products and the sum."""
    found = []
    for part in total.inputs:
        node = part.node
        while node not in products:
            found.append(node)
            node = node.inputs[0].node
    return found


# --------------------------------------------------------------------------- rows by weights


def _shares_weight(products: list[Node]) -> bool:
    """Whether the rows of each core, as many on all, are multiplied by one weight."""
    weights = {node.inputs[1] for node in products}
    rows = {node.inputs[0].shape for node in products}
    return (
        len(products) > 1 and len(weights) == len(rows) == 1 and not any(node.attr("transpose_a") for node in products)
    )


def _join_rows(graph: Graph, products: list[Node], rows_of: _Rows) -> None:
    first = products[0]
    make = Builder(graph, first.name, source=first)
    together = rows_of(make, [node.inputs[0] for node in products], "rows")
    controls = dict.fromkeys(control for node in products for control in node.controls)
    made = make.add("MatMul", [together, first.inputs[1]], name="joined", controls=controls, transpose_a=False,
                    transpose_b=first.attr("transpose_b"))  # fmt: skip
    axis = make.constant(0, _INT32, name="axis", controls=[together.node])
    shapes = [first.out().shape] * len(products)
    shares = make.node("Split", [axis, made], name="shares", shapes=shapes, num_split=len(products))
    for core, node in enumerate(products):
        graph.replace_uses(node.out(), shares.out(core))
        graph.replace_control_uses(node, [shares])
    graph.remove_all(products)


class _Rows:
    """The rows of all cores in one tensor, which a product and the gradient of its weight share."""

    def __init__(self) -> None:
        self._made: dict[tuple[Tensor, ...], Tensor] = {}

    def __call__(self, make: Builder, parts: list[Tensor], name: str) -> Tensor:
        """What holds the parts, one for each core, one below the other."""
        found = self._made.get(tuple(parts))
        if found is None:
            axis = make.constant(0, _INT32, name=f"{name}/axis", controls=[parts[0].node])
            shape = (None, (parts[0].shape or (None, None))[1])
            found = self._made[tuple(parts)] = make.add("ConcatV2", [*parts, axis], shape, name=name)
        return found
