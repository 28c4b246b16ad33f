"""Shapes within TF1 loops, which TensorFlow's own inference does not follow: to it, what a loop carries has any shape."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, graphdef, is_back_edge
from tpugraph.ir.attrs import Shape


def within_loops(graph: Graph) -> dict[str, list[Shape]]:
    """The shapes of the outputs of each node by its name, those within loops too; the graph stays as it is.

    What a loop carries is taken to keep the shape that it comes in with. Where that is the shape at the end of an
    iteration too, it has it in all of them; what has another there is left to TensorFlow, and the rest is taken anew.

    Raises:
        GraphError: TensorFlow refuses the graph.
    """
    kept = {merge.name for merge in graph.of_type(*ops.MERGE) if _enters(merge) and not merge.uses(1)}
    while True:
        once = graphdef.copy(graph)
        closing = {once[name]: _back(once[name]) for name in kept}
        for merge, back in closing.items():
            enter = next(tensor.node for tensor in merge.inputs if tensor.node is not back)
            once.retype(merge, "Identity", inputs=enter.inputs, attrs={"T": merge.attr("T")})
        shapes.infer(once)
        other = {merge.name for merge, back in closing.items() if back and back.out().shape != merge.out().shape}
        if not other:
            return {node.name: [shape for _, shape in node.outputs or ()] for node in once}
        kept -= other


def _enters(merge: Node) -> bool:
    return {tensor.node.op in ops.ENTER for tensor in merge.inputs} == {True, False} and _back(merge) is not None


def _back(merge: Node) -> Node | None:
    """What brings a loop's Merge the value of the iteration before."""
    return next((tensor.node for tensor in merge.inputs if is_back_edge(tensor.node, merge)), None)
