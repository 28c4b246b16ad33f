"""End of the data inside a loop: the loop ends after the last whole step instead of failing.

Each IteratorGetNext of the loop becomes an IteratorGetNextAsOptional in the loop's condition, behind ``i < limit`` so
that no batch is taken for a step that will not run. The loop goes on only while every core has a batch.
"""

from __future__ import annotations

import numpy as np

from tpugraph import analysis, ops
from tpugraph.ir import Graph, Node, Tensor, attrs

BESIDE_TRAINING = ("tpugraph/evaluate", "tpugraph/predict")
"""Entry points of graphs whose data end with empty batches instead of an end."""

OPTIONAL = "/optional"
"""What the name of a read gets when it becomes one that tells the end of the data."""

_BOOL = attrs.dtype("bool")
_INT32 = attrs.dtype("int32")
_VARIANT = attrs.dtype("variant")


def stop_at_end_of_data(graph: Graph, condition: Node) -> int:
    """Rewrite the loop that ``condition`` controls; returns how many reads were rewritten."""
    frame_of = analysis.frames(graph)
    takes = [n for n in graph.of_type("IteratorGetNext") if frame_of[n] == frame_of[condition]]
    if not takes:
        return 0
    more = condition.inputs[0]
    gate = graph.add(
        "Switch", "tpugraph/end/gate", [more, more], attrs={"T": _BOOL}, outputs=[(_BOOL, ()), (_BOOL, ())]
    )
    go = graph.add("Identity", "tpugraph/end/go", [gate.out(1)], attrs={"T": _BOOL}, outputs=[(_BOOL, ())])
    optionals = [_as_optional(graph, take, go, takes) for take in takes]
    present = [
        graph.add("OptionalHasValue", "tpugraph/end/has_value", [o.out()], outputs=[(_BOOL, ())]).out()
        for o in optionals
    ]
    if any(name in graph for name in BESIDE_TRAINING):  # here empty batches follow the data
        present = [_has_rows(graph, takes[0], optionals[0])]
    every = _all(graph, present, go)
    joined = graph.add(
        "Merge",
        "tpugraph/end/more",
        [gate.out(0), every],
        attrs={"T": _BOOL, "N": 2},
        outputs=[(_BOOL, ()), (_INT32, ())],
    )
    graph.set_input(condition, 0, joined.out())
    for take, optional in zip(takes, optionals, strict=True):
        _read_in_body(graph, take, optional, condition)
    return len(takes)


def _as_optional(graph: Graph, take: Node, go: Node, takes: list[Node]) -> Node:
    kept = {"output_types": take.attr("output_types"), "output_shapes": take.raw_attrs["output_shapes"]}
    # The order of the cores: each read waits for the one before it, which was rewritten already.
    earlier = [graph[f"{c.name}{OPTIONAL}"] for c in take.controls if c in takes and f"{c.name}{OPTIONAL}" in graph]
    return graph.add(
        "IteratorGetNextAsOptional",
        f"{take.name}{OPTIONAL}",
        [take.inputs[0]],
        attrs=kept,
        controls=[go, *earlier],
        outputs=[(_VARIANT, ())],
        source=take,
    )


def _has_rows(graph: Graph, take: Node, optional: Node) -> Tensor:
    """Whether the batch of core 0 has rows; the cores behind it have none where it has none."""
    kinds, shapes = take.attr("output_types"), take.attr("output_shapes")
    kept = {"output_types": kinds, "output_shapes": take.raw_attrs["output_shapes"]}
    value = graph.add("OptionalGetValue", "tpugraph/end/batch", [optional.out()], attrs=kept,
                      outputs=list(zip(kinds, shapes, strict=True)))  # fmt: skip
    dense = next(port for port, shape in enumerate(shapes) if shape)  # a sparse tensor comes wrapped, without rows
    shape = graph.add("Shape", "tpugraph/end/shape", [value.out(dense)], attrs={"T": kinds[dense], "out_type": _INT32},
                      outputs=[(_INT32, (len(shapes[dense]),))])  # fmt: skip
    bounds = [
        graph.add("Const", "tpugraph/end/bound", controls=[optional], attrs={"dtype": _INT32, "value": np.asarray(v, "int32")},
                  outputs=[(_INT32, np.shape(v))]).out()
        for v in ([0], [1], [1], 0)
    ]  # fmt: skip
    rows = graph.add("StridedSlice", "tpugraph/end/rows", [shape.out(), *bounds[:3]], outputs=[(_INT32, ())],
                     attrs=attrs.first_element())  # fmt: skip
    return graph.add("Greater", "tpugraph/end/has_rows", [rows.out(), bounds[3]], attrs={"T": _INT32},
                     outputs=[(_BOOL, ())]).out()  # fmt: skip


def _all(graph: Graph, present: list[Tensor], go: Node) -> Tensor:
    if len(present) == 1:
        return present[0]
    pack = graph.add(
        "Pack",
        "tpugraph/end/pack",
        present,
        attrs={"N": len(present), "T": _BOOL, "axis": 0},
        outputs=[(_BOOL, (len(present),))],
    )
    axis = graph.add(
        "Const",
        "tpugraph/end/axis",
        controls=[go],
        attrs={"dtype": _INT32, "value": np.zeros(1, "int32")},
        outputs=[(_INT32, (1,))],
    )
    return graph.add(
        "All",
        "tpugraph/end/all",
        [pack.out(), axis.out()],
        attrs={"Tidx": _INT32, "keep_dims": False},
        outputs=[(_BOOL, ())],
    ).out()


def _read_in_body(graph: Graph, take: Node, optional: Node, condition: Node) -> None:
    switch = graph.add(
        "Switch",
        f"{take.name}/switch",
        [optional.out(), condition.out()],
        attrs={"T": _VARIANT},
        outputs=[(_VARIANT, ())] * 2,
    )
    kept = {"output_types": take.attr("output_types"), "output_shapes": take.raw_attrs["output_shapes"]}
    graph.set_controls(take, [c for c in take.controls if c.op not in ops.GET_NEXT | ops.UNWRAPS])
    graph.retype(take, "OptionalGetValue", inputs=[switch.out(1)], attrs=kept)
