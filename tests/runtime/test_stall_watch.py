"""A run during which the process is idle for too long is ended."""

import pytest
import tensorflow as tf

from models import corpus
from tpugraph.compiler import convert
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError


def test_a_queue_that_nobody_fills_is_named_by_the_session() -> None:
    graph_def = convert(corpus("queue_runner").graph(), num_replicas=1, iterations_per_loop=2).graph_def
    for node in graph_def.node:
        if node.op.startswith("QueueEnqueue"):
            node.op = "NoOp"
            node.attr.clear()
            held = [f"^{text.lstrip('^').partition(':')[0]}" for text in node.input]
            del node.input[:]
            node.input.extend(dict.fromkeys(held))
    with TPUSession(graph_def, stall_seconds=1.0) as session:
        session.initialize()
        with pytest.raises(RunError, match=r"nothing went on for 1 s") as caught:
            session.train(2)
    assert "queue" in str(caught.value.fix)
    assert caught.value.node


def test_a_queue_whose_input_fails_is_an_error_and_no_end_of_the_data() -> None:
    graph_def = convert(corpus("queue_runner").graph(), num_replicas=1, iterations_per_loop=2).graph_def
    wrong = graph_def.node.add(name="wrong", op="Const")
    wrong.attr["dtype"].type = tf.bool.as_datatype_enum
    wrong.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(False))
    refusal = graph_def.node.add(name="refusal", op="Assert", input=["wrong", "wrong"])
    refusal.attr["T"].list.type.append(tf.bool.as_datatype_enum)
    for node in graph_def.node:
        if node.op.startswith("QueueEnqueue"):
            node.input.append("^refusal")
    with TPUSession(graph_def) as session:
        session.initialize()
        with pytest.raises(RunError, match="assertion failed") as caught:
            session.train(2)
    assert "refusal" in str(caught.value)
