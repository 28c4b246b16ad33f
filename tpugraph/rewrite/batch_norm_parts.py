"""Decomposes a fused batch norm and its gradient into arithmetic, in the order of TensorFlow's kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpugraph import ops
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.rewrite.collectives import Collectives

_INT32, _FLOAT = attrs.dtype("int32"), attrs.dtype("float32")


class BatchNormParts:
    """Builds the decomposition; all arithmetic is in float32, as in the kernels."""

    def __init__(self, nodes: Collectives) -> None:
        self.nodes = nodes
        self.graph = nodes.graph
        self._kept: dict[tuple[str, Tensor, Tensor | None], Tensor] = {}

    def forward(self, node: Node) -> None:
        """The output, the statistics for the moving averages, and mean and variance for the gradient."""
        x, scale, offset = map(self._float, node.inputs[:3])
        mean = self._reduce("Mean", "mean", x, node, controls=True)
        centred = self._centred(x, mean, node)
        square = self._op("Square", "square", [centred], node)
        variance = self._reduce("Mean", "variance", square, node)
        factor = self._op("Mul", "factor", [self._inverse_deviation(variance, node), scale], node)
        scaled = self._op("Mul", "scaled", [centred, self._spread(factor, node)], node)
        y = self._op("AddV2", "y", [scaled, self._spread(offset, node)], node)
        self._replace(node, 0, y)
        self._replace(node, 3, mean)
        self._replace(node, 4, variance)
        self._replace(node, 1, self._moved(mean, node.inputs[3], node) if node.uses(1) else mean)
        if node.uses(2):
            self._replace(node, 2, self._moved(self._unbiased(variance, x, node), node.inputs[4], node))
        self.graph.replace_control_uses(node, [y.node])

    def gradient(self, node: Node) -> None:
        """The gradients of operand, scale and offset, from two sums over the batch and their means."""
        dy, x, scale, mean, variance = map(self._float, node.inputs[:5])
        centred = self._centred(x, mean, node)
        inverse = self._inverse_deviation(variance, node)
        d_offset = self._reduce("Sum", "d_offset", dy, node, controls=True)
        product = self._op("Mul", "product", [dy, centred], node)
        products = self._reduce("Sum", "products", product, node, controls=True)
        d_scale = self._op("Mul", "d_scale", [products, inverse], node)
        if node.uses(0):
            count = self._count(x, node)
            mean_dy = self._op("RealDiv", "mean_dy", [d_offset, count], node)
            mean_product = self._op("RealDiv", "mean_product", [products, count], node)
            square = self._op("Square", "inverse_variance", [inverse], node)
            slope = self._op("Mul", "slope", [mean_product, square], node)
            along = self._op("Mul", "along", [centred, self._spread(slope, node)], node)
            rest = self._op("Sub", "dy_centred", [dy, self._spread(mean_dy, node)], node)
            factor = self._op("Mul", "factor", [inverse, scale], node)
            dx = self._op("Mul", "dx", [self._op("Sub", "rest", [rest, along], node), self._spread(factor, node)], node)
            self._replace(node, 0, dx)
        self._replace(node, 1, d_scale)
        self._replace(node, 2, d_offset)
        self.graph.replace_control_uses(node, [d_scale.node, d_offset.node])

    def _centred(self, x: Tensor, mean: Tensor, node: Node) -> Tensor:
        return self._once("centred", x, mean, lambda: self._op("Sub", "centred", [x, self._spread(mean, node)], node))

    def _inverse_deviation(self, variance: Tensor, node: Node) -> Tensor:
        def make() -> Tensor:
            epsilon = self.nodes.constant(node.attr("epsilon", 1e-4), _FLOAT, variance)
            return self._op("Rsqrt", "inverse", [self._op("AddV2", "above_zero", [variance, epsilon], node)], node)

        return self._once(f"inverse {node.attr('epsilon', 1e-4)}", variance, None, make)

    def _count(self, x: Tensor, node: Node) -> Tensor:
        """The elements per channel, computed from the shape, so that propagation sees its dependence on the batch."""

        def make() -> Tensor:
            rank, axes = _rank(node), self._axes(x, node)
            shape = self._op("Shape", "shape", [x], node, out_type=_INT32, form=(rank,))
            sizes = [shape, axes, self.nodes.constant(0, _INT32, x)]
            picked = self._op("GatherV2", "sizes", sizes, node, batch_dims=0, form=(rank - 1,))
            rest = self.nodes.constant([0], _INT32, x)
            product = self._op("Prod", "count", [picked, rest], node, keep_dims=False, form=())
            return self.nodes.cast(product, _FLOAT)

        return self._once(f"count {_channel(node)}", x, None, make)

    def _unbiased(self, variance: Tensor, x: Tensor, node: Node) -> Tensor:
        """Bessel's correction for the moving average; the variance of a single element is zero either way."""
        count = self._count(x, node)
        rest = self._op("Sub", "all_but_one", [count, self.nodes.constant(1, _FLOAT, x)], node)
        factor = self._op("DivNoNan", "bessel", [count, rest], node)
        return self._op("Mul", "unbiased", [variance, factor], node)

    def _moved(self, statistic: Tensor, average: Tensor, node: Node) -> Tensor:
        """The statistic, or where the op itself averages exponentially, the updated moving average."""
        factor = float(node.attr("exponential_avg_factor", 1.0))
        if factor == 1.0:
            return statistic
        weights = [self.nodes.constant(value, _FLOAT, statistic) for value in (factor, 1.0 - factor)]
        new = self._op("Mul", "new", [statistic, weights[0]], node)
        old = self._op("Mul", "old", [self._float(average), weights[1]], node)
        return self._op("AddV2", "average", [new, old], node)

    def _axes(self, x: Tensor, node: Node) -> Tensor:
        return self.nodes.constant([a for a in range(_rank(node)) if a != _channel(node)], _INT32, x)

    def _reduce(self, op: str, name: str, x: Tensor, node: Node, *, controls: bool = False) -> Tensor:
        """Reduce over all dimensions except the channels."""
        form = (channels_of(node),)
        made = self._op(op, name, [x, self._axes(x, node)], node, keep_dims=False, form=form)
        if controls:
            self.graph.add_controls(made.node, node.controls)
        return made

    def _spread(self, statistic: Tensor, node: Node) -> Tensor:
        """A value per channel, reshaped to broadcast against the operand, whose channels may be sharded."""
        if _channel(node) == _rank(node) - 1:
            return statistic
        shape = [-1 if a == _channel(node) else 1 for a in range(_rank(node))]
        return self._once(f"as {shape}", statistic, None, lambda: self.nodes.reshape(statistic, shape))

    def _op(self, op: str, name: str, inputs: list[Tensor], node: Node, *, form: attrs.Shape = None,
            **attributes: Any) -> Tensor:  # fmt: skip
        """A node near the fused one; elementwise unless a shape is given."""
        if form is None and None not in (shapes := [t.shape for t in inputs]):
            form = max((shape or () for shape in shapes), key=len)
        return self.nodes.add(node.out(), op, name, inputs, form, **attributes)

    def _float(self, tensor: Tensor) -> Tensor:
        return self._once("float", tensor, None, lambda: self.nodes.cast(tensor, _FLOAT))

    def _once(self, name: str, a: Tensor, b: Tensor | None, make: Callable[[], Tensor]) -> Tensor:
        """Build a node once that forward pass and gradient share."""
        if (name, a, b) not in self._kept:
            self._kept[name, a, b] = make()
        return self._kept[name, a, b]

    def _replace(self, node: Node, port: int, made: Tensor) -> None:
        if node.uses(port):
            self.graph.replace_uses(node.out(port), self.nodes.cast(made, node.out(port).dtype))


def _rank(node: Node) -> int:
    """The rank of the operand, which is not always inferred in the gradient of a loop."""
    return len(node.attr("data_format", "NHWC"))


def _channel(node: Node) -> int:
    return str(node.attr("data_format", "NHWC")).index("C")


def channels_of(node: Node) -> int | None:
    """The number of channels, from the shape of the scale."""
    scale = node.inputs[1 if node.op in ops.BATCH_NORMS else 2]
    return scale.shape[0] if scale.shape else None
