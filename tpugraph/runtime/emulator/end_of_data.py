"""End of the data inside a loop: the loop ends after the last whole step instead of failing.

Each IteratorGetNext of the loop becomes an IteratorGetNextAsOptional in the loop's condition, behind ``i < limit`` so
that no batch is taken for a step that will not run. The loop goes on only while every core has a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder

BESIDE_TRAINING = ("tpugraph/evaluate", "tpugraph/predict")
"""Entry points of graphs whose data end with empty batches instead of an end."""

OPTIONAL = "/optional"
"""What the name of a read gets when it becomes one that tells the end of the data."""


def stop_at_end_of_data(graph: Graph, condition: Node) -> None:
    """Rewrite the reads of the loop that ``condition`` controls."""
    frame_of = analysis.frames(graph)
    takes = [n for n in graph.of_type("IteratorGetNext") if frame_of[n] == frame_of[condition]]
    if not takes:
        return
    make, more = Builder(graph, "tpugraph/end"), condition.inputs[0]
    gate = make.node("Switch", [more, more], name="gate", shapes=[(), ()])
    go = make.identity(gate.out(1), name="go").node
    optionals = [_as_optional(graph, take, go, takes) for take in takes]
    if any(name in graph for name in BESIDE_TRAINING):  # here empty batches follow the data
        present = [_has_rows(make, takes[0], optionals[0])]
    else:
        present = [make.add("OptionalHasValue", [o.out()], (), name="has_value") for o in optionals]
    if len(present) > 1:
        packed = make.add("Pack", present, (len(present),), name="pack", axis=0)
        axis = make.constant(np.zeros(1, "int32"), name="axis", controls=[go])
        present = [make.add("All", [packed, axis], (), name="all", keep_dims=False)]
    joined = make.node("Merge", [gate.out(0), *present], name="more", shapes=[(), ()])
    graph.set_input(condition, 0, joined.out())
    for take, optional in zip(takes, optionals, strict=True):
        switch = Builder(graph).node("Switch", [optional.out(), condition.out()], name=f"{take.name}/switch",
                                     shapes=[(), ()])  # fmt: skip
        graph.set_controls(take, [c for c in take.controls if c.op not in ops.GET_NEXT | ops.UNWRAPS])
        graph.retype(take, "OptionalGetValue", inputs=[switch.out(1)], attrs=_element(take))


def _element(take: Node) -> dict[str, Any]:
    return {"output_types": take.attr("output_types"), "output_shapes": take.raw_attrs["output_shapes"]}


def _as_optional(graph: Graph, take: Node, go: Node, takes: list[Node]) -> Node:
    # The order of the cores: each read waits for the one before it, which was rewritten already.
    earlier = [graph[f"{c.name}{OPTIONAL}"] for c in take.controls if c in takes and f"{c.name}{OPTIONAL}" in graph]
    return Builder(graph, source=take).node(
        "IteratorGetNextAsOptional", [take.inputs[0]], name=f"{take.name}{OPTIONAL}", shapes=[()],
        controls=[go, *earlier], **_element(take),
    )  # fmt: skip


def _has_rows(make: Builder, take: Node, optional: Node) -> Tensor:
    """Whether the batch of core 0 has rows; the cores behind it have none where it has none."""
    shapes = take.attr("output_shapes")
    value = make.node("OptionalGetValue", [optional.out()], name="batch", shapes=shapes, **_element(take))
    dense = next(port for port, shape in enumerate(shapes) if shape)  # a sparse tensor comes wrapped, without rows
    shape = make.add("Shape", [value.out(dense)], (len(shapes[dense]),), name="shape", out_type=attrs.dtype("int32"))
    zero, one, nothing = (
        make.constant(np.asarray(v, "int32"), name="bound", controls=[optional]) for v in ([0], [1], 0)
    )
    rows = make.add("StridedSlice", [shape, zero, one, one], (), name="rows", **attrs.first_element())
    return make.add("Greater", [rows, nothing], (), name="has_rows")
