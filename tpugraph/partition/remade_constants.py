"""Constants that the user says to follow the rows, and that are no multiple of them: computed of a number that is one."""

from __future__ import annotations

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence import (
    one_less,
    picked_rows,
    reading_of_place,
    root_divisors,
    root_factors,
    shares_of_classes,
)
from tpugraph.analysis.evidence.readings import Reading, number_in, root_of_rows, share_of_rows
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.partition.row_formulas import fill, shape_of_one


def compute_chosen(graph: Graph, d: Dimensions) -> list[str]:
    """Compute what a flag says to follow the rows by the ops that made it of them; returns the names of the numbers of rows.

    What is a multiple of the rows, or a share of them that bounds something, stays a constant.
    """
    made: list[str] = []
    for node, reading in _readings(d).items():
        rows = _computed(graph, node, reading)
        made.append(rows.name)
    return made


def _readings(d: Dimensions) -> dict[Node, Reading]:
    """How the constants that are chosen are made of the rows, of those that are no multiple of them."""
    found = {
        made.constant: made.reading
        for made in (*one_less(d), *root_divisors(d), *root_factors(d), *shares_of_classes(d))
        if d.constants.choice(made.constant.name)
    }
    for picked in picked_rows(d):
        number, node = picked.written, picked.behind
        reading = reading_of_place(number, d.rows) if number is not None and d.constants.choice(node.name) else None
        if reading is not None and constant(node).size == 1:
            found[node] = reading
    for node in d.order if d.rows > 1 else ():
        reading = chosen_reading(node, d.rows) if d.constants.choice(node.name) and any(node.uses()) else None
        if reading is not None and node not in found:
            found[node] = reading
    return found


def chosen_reading(node: Node, rows: int) -> Reading | None:
    """How a constant of one number that is not whole is made of the rows; None where no way is known."""
    number = number_in(node) if node.outputs and node.out().dtype.floating else None
    if number is None or number == int(number):
        return None
    return share_of_rows(number, rows) or root_of_rows(number, rows)


def _computed(graph: Graph, node: Node, reading: Reading) -> Node:
    """Let the readers of a constant read what is computed of a number of rows; returns the constant that holds this."""
    make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
    kind, shape = node.out().dtype, shape_of_one(node)

    def number(value: float, name: str) -> Tensor:
        return make.constant(np.full(shape, value, kind.name), kind, name=name, controls=node.controls)

    rows = made = number(reading.of, "rows")
    for step in reading.steps:
        others = [rows] if step.by_rows else [] if step.by is None else [number(step.by, "by")]
        made = make.add(step.op, [made, *others], shape)
    fill(graph, node, made)
    graph.note(made.node, f"computes what the constant '{node.name}' is of {reading.of} rows or elements")
    return rows.node
