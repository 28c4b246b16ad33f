"""Shapes within TF1 loops, which TensorFlow's own inference does not follow: to it, what a loop carries has any shape."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.ir.while_loops import carried


def within_loops(graph: Graph) -> dict[str, list[Shape]]:
    """The shapes of the outputs of each node by its name, those within loops too; the graph stays as it is.

    What a loop carries is taken to keep the shape that it comes in with. Where that is the shape at the end of an
    iteration too, it has it in all of them; what has another there is left to TensorFlow, and the rest is taken anew.

    Raises:
        GraphError: TensorFlow refuses the graph.
    """
    kept = {merge.name for merge in graph.of_type(*ops.MERGE) if carried(merge) is not None and not merge.uses(1)}
    while True:
        once = graphdef.copy(graph)
        loops = [loop for name in kept if (loop := carried(once[name])) is not None]
        for loop in loops:
            once.retype(loop.merge, "Identity", inputs=[loop.initial], attrs={"T": loop.merge.attr("T")})
        shapes.infer(once)
        other = {loop.merge.name for loop in loops if loop.closing.out().shape != loop.merge.out().shape}
        if not other:
            return {node.name: [shape for _, shape in node.outputs or ()] for node in once}
        kept -= other
