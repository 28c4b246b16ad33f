"""Shapes within TF1 loops, which TensorFlow's own inference does not follow: to it, what a loop carries has any shape."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.ir.loops import carried


def within_loops(graph: Graph) -> dict[str, list[Shape]]:
    """The shapes of the outputs of each node by its name, those within loops too; the graph stays as it is.

    What a loop carries begins with the shape that it comes in with, and loses each dimension that is another at the end of an
    iteration, until nothing changes. What has no known rank there is left to TensorFlow.

    Raises:
        GraphError: TensorFlow refuses the graph.
    """
    merges = [merge.name for merge in graph.of_type(*ops.MERGE) if carried(merge) is not None and not merge.uses(1)]
    kept = tried = _initial(graph, merges)
    while True:
        once = graphdef.copy(graph)
        loops = {name: loop for name in kept if (loop := carried(once[name])) is not None}
        for name, loop in loops.items():
            told = {"dtype": loop.merge.attr("T"), "shape": kept[name]}
            once.retype(loop.merge, "PlaceholderWithDefault", inputs=[loop.initial], attrs=told)
        shapes.infer(once)
        if inner := _initial(once, [name for name in merges if name not in tried]):
            kept, tried = kept | inner, tried | inner
            continue
        ends = {name: _common(kept[name], loop.closing.out().shape) for name, loop in loops.items()}
        if ends == kept:
            return {node.name: [shape for _, shape in node.outputs or ()] for node in once}
        kept = {name: shape for name, shape in ends.items() if shape is not None}


def _initial(graph: Graph, merges: list[str]) -> dict[str, Shape]:
    """The shapes that loops come in with, where they are known; an inner loop's may follow from the outer one's."""
    loops = {name: carried(graph[name]) for name in merges}
    return {name: loop.initial.shape for name, loop in loops.items() if loop and loop.initial.shape is not None}


def _common(a: Shape, b: Shape) -> Shape:
    """The dimensions that two shapes of one rank have in common; None of other shapes."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(size if size == other else None for size, other in zip(a, b, strict=True))
