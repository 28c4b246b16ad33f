"""Questions along graphs of any length: loops, not recursion, and each question once."""

import math

import numpy as np
import pytest

from tpugraph import testing
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.trip_counts import interval
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph, Tensor, attrs

FLOAT, INT = attrs.dtype("float32"), attrs.dtype("int32")
LONG = 2_000
"""Twice as far as recursion goes."""


def constant(graph: Graph, value: int) -> Tensor:
    return graph.add("Const", "c", attrs={"dtype": INT, "value": np.int32(value)}, outputs=[(INT, ())]).out()


def chain(graph: Graph, op: str, start: Tensor, length: int, operands: int = 1) -> Tensor:
    for _ in range(length):
        start = graph.add(op, "n", [start] * operands, attrs={"T": start.dtype}, outputs=[start.node.output(0)]).out()
    return start


def test_a_long_chain_is_walked_to_its_end() -> None:
    graph = Graph()
    start = graph.add("Placeholder", "x", attrs={"dtype": FLOAT}, outputs=[(FLOAT, (5, 1))])
    found = graph.add("Where", "found", [start.out()], attrs={"T": FLOAT}, outputs=[(FLOAT, (None, 2))]).out()
    assert bounded_shape(chain(graph, "Neg", found, LONG)) == (5, 2)
    assert known_value(chain(graph, "Identity", constant(graph, 7), LONG)) == 7
    assert interval(chain(graph, "Minimum", chain(graph, "Identity", constant(graph, 7), LONG), LONG, 2)) == (7, 7)


def test_a_question_that_many_ways_lead_to_is_asked_once() -> None:
    graph = Graph()
    start = graph.add("Placeholder", "x", attrs={"dtype": FLOAT}, outputs=[(FLOAT, (5, 1))])
    found = graph.add("Where", "found", [start.out()], attrs={"T": FLOAT}, outputs=[(FLOAT, (None, 2))]).out()
    assert bounded_shape(chain(graph, "Mul", found, 200, 2)) == (5, 2)  # 2**200 ways
    one = constant(graph, 1)
    assert known_value(chain(graph, "Maximum", one, 200, 2)) == 1
    assert interval(chain(graph, "Maximum", one, 200, 2)) == (1, 1)
    unknown = graph.add("Placeholder", "any", attrs={"dtype": INT}, outputs=[(INT, ())]).out()
    assert interval(unknown) == (-math.inf, math.inf)


@pytest.mark.parametrize(("outputs", "half"), [(" : int32[]", 3), ("", None)])
def test_a_quotient_of_whole_numbers_is_known_where_its_dtype_is(outputs: str, half: int | None) -> None:
    """In the body of a function no dtype is known: there a sum of whole numbers is one, and a quotient may be cut to one."""
    graph = testing.parse(f"""
    seven = Const() {{dtype: int32, value: int32[]7}} : int32[]
    two = Const() {{dtype: int32, value: int32[]2}} : int32[]
    sum = AddV2(seven, two) {{T: int32}}{outputs}
    half = Div(seven, two) {{T: int32}}{outputs}
    """)
    assert known_value(graph["sum"].out()) == 9
    assert known_value(graph["half"].out()) == half
