"""A run that stands still is ended: where all threads wait for each other, and where the processor is idle for too long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import tensorflow as tf

from models import corpus
from tpugraph.compiler import convert
from tpugraph.runtime import stall_watch
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.stall_watch import StallWatch, all_wait_for_each_other
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1
FUTEX = f"{stall_watch._FUTEX} 0x7f 0x80 0x2"


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stall_watch, "_TASKS", tmp_path)
    return tmp_path


def put(tasks: Path, number: int, call: str) -> None:
    (tasks / str(number)).mkdir()
    (tasks / str(number) / "syscall").write_text(call)


def test_threads_that_wait_for_each_other(tasks: Path) -> None:
    put(tasks, 1, f"{FUTEX} 0x0 0x0 0x0 0x7f 0x7f\n")
    put(tasks, 2, f"{FUTEX} 0x0 0x0 0x0 0x7f 0x7f\n")
    put(tasks, 3, f"{FUTEX} 0x7ffe 0x0 0x0 0x7f 0x7f\n")  # with a limit of time: it looks whether there was a signal
    assert all_wait_for_each_other({3})
    assert not all_wait_for_each_other(set())


@pytest.mark.parametrize("call", ["running\n", "0 0x5 0x7f 0x100 0x0 0x0 0x0 0x7f 0x7f\n", "-1 0x7f 0x7f\n"])
def test_one_that_works_or_waits_for_something_else_can_wake_the_others(call: str, tasks: Path) -> None:
    put(tasks, 1, f"{FUTEX} 0x0 0x0 0x0 0x7f 0x7f\n")
    put(tasks, 2, call)
    assert not all_wait_for_each_other({1, 2})


def test_this_process_is_awake() -> None:
    assert not all_wait_for_each_other({os.getpid()})  # the one that asks reads a file


def test_an_idle_run_is_ended() -> None:
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(1, [tf.float32])
        taken = queue.dequeue()
        session = tf1.Session()
    watch, began = StallWatch(session.close, idle_seconds=0.5), time.monotonic()
    with pytest.raises(tf.errors.CancelledError), watch.during():
        session.run(taken)
    assert watch.why == "nothing went on for 0.5 s"
    assert time.monotonic() - began < 10
    watch.stop()


def test_what_works_is_left_alone() -> None:
    watch = StallWatch(lambda: pytest.fail("it was at work"), idle_seconds=0.5)
    with watch.during():
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            sum(range(10_000))
    time.sleep(0.6)  # and nothing runs
    assert watch.why == ""
    watch.stop()


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
    graph_def.node.add(name="wrong", op="Const").attr["dtype"].type = 10
    wrong = graph_def.node[-1]
    wrong.attr["value"].tensor.dtype = 10
    wrong.attr["value"].tensor.tensor_shape.SetInParent()
    wrong.attr["value"].tensor.bool_val.append(False)
    refusal = graph_def.node.add(name="refusal", op="Assert", input=["wrong", "wrong"])
    refusal.attr["T"].list.type.append(10)
    for node in graph_def.node:
        if node.op.startswith("QueueEnqueue"):
            node.input.append("^refusal")
    with TPUSession(graph_def) as session:
        session.initialize()
        with pytest.raises(RunError, match="assertion failed") as caught:
            session.train(2)
    assert "refusal" in str(caught.value)
