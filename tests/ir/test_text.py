"""The text form prints and parses back."""

import pytest

from models import CORPUS, corpus, family
from tpugraph import testing
from tpugraph.ir.text import format_node
from tpugraph.support.errors import LoadError

LINES = [
    "x = Test()",
    "a/b_c.d-1 = Test(x:1, x) ^x",
    "y = Test() {a: 1, b: -2.5, c: true, d: \"text\", e: float32, f: [1,?,3], g: [], h: [...]}",
    "y = Test() {l: (1; 2), m: (\"a, b\"; \"c\"), n: (float32; int32), o: ([2,?]; [...]; []), p: ()}",
    "y = Const() {dtype: float32, value: float32[2,2][[1.0, 2.0], [3.5, -4.0]]}",
    "y = Const() {dtype: string, value: object[2][\"one\", \"a \\\"quoted\\\" one\"]}",
    "y = Const() {dtype: int64, value: int64[]7}",
    "y = Const() {dtype: bool, value: bool[2][true, false]}",
    "y = While() {body: &body_12, cond: &cond_3}",
    "y = Test() @/job:tpu_worker/task:0/device:CPU:0",
    "y = Test() {T: int32_ref} @/cpu:0 : float32[16,?], int32[], float32_ref[...]",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_line_prints_as_it_parses(line: str) -> None:
    source = line if line.startswith("x") else f"x = Test()\n{line}"
    assert testing.graph_text(testing.parse(source)).splitlines()[-1] == line


@pytest.mark.parametrize("name", sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir()))
def test_a_real_graph_prints_and_parses_back(name: str) -> None:
    graph = corpus(name).graph()
    lines = [line for line in testing.graph_text(graph).splitlines()]
    small = [line for line in lines if "]#" not in line]
    names = {line.partition(" ")[0] for line in small}
    large = graph.descendants(node for node in graph if node.name not in names)
    closed = [node for node in graph if node not in large]
    source = "".join(format_node(node) + "\n" for node in closed)
    assert testing.graph_text(testing.parse(source)) == source
    assert len(closed) > len(graph) / 4


def test_what_prints_and_parses() -> None:
    assert "= While(" in testing.graph_text(family("dynamic_while_v2").graph())
    assert testing.graph_text(testing.parse("\n  # a comment\n\n   x = Test()\n")) == "x = Test()\n"
    assert testing.parse("y = Test(x)\nx = Test()")["y"].inputs[0].node.name == "x"
    assert str(testing.parse("x = Test()").edits) == "+0 -0 ~0"
    graph = testing.parse(
        "x = Placeholder() {dtype: float32}\ny = MatMul(x, x) {transpose_a: true, transpose_b: false}"
    )
    assert "MatMul(x, x) {T: float32, transpose_a: true, transpose_b: false}" in testing.graph_text(graph)
    assert testing.graph_text(graph, implied=False).splitlines()[1] == "y = MatMul(x, x) {transpose_a: true}"
    graph = testing.parse("x = Const() {dtype: int32, value: int32[65]" + str(list(range(65))) + "}")
    text = testing.graph_text(graph)
    assert "int32[65]#" in text
    testing.assert_raises_block(testing.parse, text, words=["line 1", "digest"], max_length=200, kind=LoadError)


@pytest.mark.parametrize("line", ["nonsense", "x = Test(", "x Test()", "x = Test() trailing"])
def test_a_line_that_is_no_node(line: str) -> None:
    testing.assert_raises_block(testing.parse, f"a = Test()\n{line}", max_length=200, kind=LoadError,
                                words=["line 2 is not a node", line[:8]])  # fmt: skip
