"""``--set_shape``: shapes that the graph leaves open, as of a batch without ``drop_remainder``."""

from __future__ import annotations

from collections.abc import Iterable

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, attrs
from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import did_you_mean

SET_SHAPE = "_tpugraph_set_shape"
"""The attribute of a node whose shapes were told: the texts, with blanks between."""


def set_shapes(graph: Graph, told: Iterable[str]) -> None:
    """Give tensors shapes; a batch of another shape ends the run with an error.

    ``told`` is ``NODE:DIMS`` or ``NODE:OUTPUT:DIMS``, the sizes with commas between; ``?`` leaves one open.
    """
    told = list(told)
    if told:
        shapes.infer(graph)
    for text in told:
        name, _, sizes = text.rpartition(":")
        node, _, port = name.partition(":")
        dims = [size.strip() for size in sizes.split(",")]
        if not name or not all(size == "?" or size.isdigit() for size in dims) or not (port or "0").isdigit():
            raise UsageError(
                f"--set_shape={text} is not of the form NODE:DIMS",
                fix="NODE:DIMS or NODE:OUTPUT:DIMS, as in --set_shape=IteratorGetNext:1:32,?; ? stays open",
            )
        if node not in graph:
            raise UsageError(f"--set_shape names no node of the graph: '{node}'", origin=graph.source,
                             fix=did_you_mean(node, [n.name for n in graph], "`tpugraph inspect MODEL` lists nodes"))  # fmt: skip
        source, shape = graph[node], tuple(None if size == "?" else int(size) for size in dims)
        if int(port or 0) >= len(source.outputs or ()):
            raise UsageError(f"--set_shape={text}: '{node}' has no output {port or 0}", origin=graph.source,
                             fix=f"name one of 0 to {len(source.outputs or ()) - 1}")  # fmt: skip
        tensor = source.out(int(port or 0))
        known = tensor.shape
        if known is not None and (
            len(known) != len(shape) or any(a != b for a, b in zip(known, shape, strict=True) if a and b)
        ):
            raise UsageError(f"--set_shape={text}: '{tensor}' has the shape {shapes.shown(known)}", origin=graph.source,
                             fix="say only what is open there")  # fmt: skip
        if source.op in ops.GET_NEXT:
            _mark(graph, source, text)
            shapes_of_element = source.attr("output_shapes")
            shapes_of_element[tensor.port] = shape
            graph.set_attr(source, "output_shapes", [attrs.encode(shape) for shape in shapes_of_element])
            continue
        uses = source.uses(tensor.port)
        if not uses:
            raise UsageError(
                f"--set_shape: nothing reads '{tensor}'", origin=graph.source, fix="name an output that is read"
            )
        ensured = graph.add("EnsureShape", f"{node}/shape_set", [tensor], source=source, device=source.device,
                            attrs={"T": tensor.dtype, "shape": attrs.encode(shape)})  # fmt: skip
        _mark(graph, ensured, text)
        for use in uses:
            graph.set_input(use.node, use.index, ensured.out())


def _mark(graph: Graph, node: Node, text: str) -> None:
    """Have a run know who told the shape that a batch has not."""
    graph.set_attr(node, SET_SHAPE, f"{node.attr(SET_SHAPE, '')} {text}".strip())
