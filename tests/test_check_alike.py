"""Nodes that XLA cannot tell apart become one, and no other: what is refused in a big graph is refused in the small one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import breaking
from tpugraph import analysis
from tpugraph.compiler import convert
from tpugraph.compiler.deduplicate import merge_alike
from tpugraph.ir import Graph, graphdef
from tpugraph.xla import stablehlo

tf1 = tf.compat.v1


def _converted(part: Callable[[Any, Any], Any]) -> Graph:
    return graphdef.from_graph_def(convert(breaking.build(part), **breaking.OPTIONS).graph_def)


def _layers(count: int, odd: Callable[[Any, Any], Any] | None = None) -> Callable[[Any, Any], Any]:
    """Layers that are all alike, with something put behind the last but one."""

    def part(x: Any, w: Any) -> Any:
        for number in range(count):
            kernel = tf1.get_variable(f"kernel_{number}", [3, 3])
            x = tf.reshape(tf.tanh(x @ kernel), [32, 3])
            if odd is not None and number == count - 2:
                x = odd(x, kernel)
        return 0.01 * tf.reduce_sum(x @ w)

    return part


def _ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in analysis.cluster_nodes(graph) if node.op != "NoOp")  # which only order others


def test_of_layers_that_are_alike_two_remain_however_many_there_are() -> None:
    few, many = _converted(_layers(3)), _converted(_layers(12))
    assert (_ops(few)["Tanh"], _ops(many)["Tanh"]) == (3, 12)
    assert merge_alike(many) - merge_alike(few) > 9 * 10
    assert _ops(few) == _ops(many)
    assert _ops(many)["Tanh"] == 1
    assert stablehlo.lower(many).code


def test_merging_again_finds_nothing() -> None:
    graph = _converted(_layers(4))
    assert merge_alike(graph) > 0
    assert merge_alike(graph) == 0


def _whole(w: Any, least: int) -> Any:
    return tf.cast(tf.reduce_sum(w) * 0.0, tf.int32) + least


ODD = {
    "a shape that depends on the weights": ("constant", lambda x, w: x @ tf.reshape(w, tf.stack([_whole(w, 3), 3]))),
    "a shape of which one element does": ("constant", lambda x, w: x @ tf.reshape(w, [3, _whole(w, 3)])),
    "an axis that depends on the weights": ("constant", lambda x, w: x + tf.reduce_sum(x, _whole(w, 1), keepdims=True)),
    "another op": ("kernel", lambda x, w: x * tf.nn.fractional_max_pool(w[None, :, :, None], [1, 1, 1, 1])[0][0, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_the_one_layer_that_xla_refuses_is_found_among_those_that_it_takes(odd: str) -> None:
    cause, part = ODD[odd]
    graph = _converted(_layers(4, part))
    assert merge_alike(graph) > 0
    with pytest.raises(stablehlo.Refused) as raised:
        stablehlo.lower(graph)
    assert raised.value.cause == cause


def test_known_values_that_differ_keep_their_readers_apart() -> None:
    def part(x: Any, w: Any) -> Any:
        four = tf.concat([w, w[:1]], 0)
        turned = [tf.reshape(four + float(i), shape) for i, shape in enumerate([[2, 2], [2, 2], [1, 4], [4]])]
        return 0.01 * tf.add_n([tf.reduce_sum(value) for value in turned])

    graph = _converted(part)
    before = _ops(graph)["Reshape"]
    merge_alike(graph)
    shapes = Counter(tuple(node.out().shape) for node in graph.of_type("Reshape") if analysis.in_cluster(node))
    assert before > sum(shapes.values())
    assert {(2, 2), (1, 4), (4,)} <= set(shapes)


def test_a_part_of_a_value_that_xla_knows_stays_known() -> None:
    """The second of two elements is known though the first is not, as in the shape of a tensor with an open dimension."""

    def part(x: Any, w: Any) -> Any:
        pairs = [(tf.stack([_whole(w, number), number]), number) for number in (1, 3, 4)]
        tiled = [tf.tile(x, [1, pair[1]]) + tf.ones([32, 3 * number]) for pair, number in pairs]
        return 0.01 * tf.add_n([tf.reduce_sum(value) for value in tiled])

    graph = _converted(part)
    merge_alike(graph)
    assert stablehlo.lower(graph).code


def test_what_follows_a_loop_within_a_branch_stays_in_the_branch() -> None:
    def part(x: Any, w: Any) -> Any:
        total = tf.reduce_sum(w)

        def looped() -> Any:
            halved = tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), [0, total])[1]
            return tf.tanh(tf.ensure_shape(halved, []))

        return 0.01 * (tf1.cond(total > 0.0, looped, lambda: -total) + tf.tanh(tf.sin(tf.cos(total * 2.0))))

    graph = _converted(part)
    before = _ops(graph)["Tanh"]
    assert before == 2
    merge_alike(graph)
    assert _ops(graph)["Tanh"] == before


@pytest.mark.parametrize("name", ["branch", "bounded", "loop_in_loop", "embedded_adagrad", "dropout"])
def test_control_flow_and_random_ops_still_lower(name: str) -> None:
    graph = _converted(breaking.GOOD[name])
    flow = {op: count for op, count in _ops(graph).items() if op in ("Merge", "Switch", "NextIteration", "Exit")}
    merge_alike(graph)
    assert {op: _ops(graph)[op] for op in flow} == flow
    assert stablehlo.lower(graph).code


def test_a_variable_of_the_same_kind_as_the_number_of_steps_is_not_taken_for_it() -> None:
    def part(x: Any, w: Any) -> Any:
        whole = tf1.get_variable("whole", [], tf.int32, initializer=tf1.zeros_initializer(), trainable=False)
        return 0.01 * tf.reduce_sum(x) * tf.cast(whole, tf.float32)

    graph = _converted(part)
    merge_alike(graph)
    assert {"whole", "w"} <= {value.name for value in stablehlo.lower(graph).arguments if value.kind == "variable"}
