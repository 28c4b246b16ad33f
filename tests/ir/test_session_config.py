"""A right graph runs as it is: what TensorFlow's optimizers make wrong is off in every session that runs one."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from tpugraph.ir.session_config import guarded

tf1 = tf.compat.v1
ROOT = Path(__file__).parents[2]
RUN_IN_PLAIN_GRAPH = """
import tensorflow as tf
from tpugraph import graphdef, testing

tf1 = tf.compat.v1
with tf.Graph().as_default() as graph:
    w = tf1.get_variable("w", (3, 2), initializer=tf1.ones_initializer(), use_resource=False)
    x = tf1.data.make_one_shot_iterator(tf1.data.Dataset.from_tensors([[1.0, 2.0, 3.0]]).repeat()).get_next()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    gradient = tf.gradients(loss, w)[0] + [[0.0, 0.5]]  # has the shape of a bias, and is none for oneDNN
    with tf.control_dependencies([tf1.assign_add(tf1.train.get_or_create_global_step(), 1)]):
        tf.group(tf1.assign_sub(w, 0.001 * gradient), name="train")
    tf1.summary.scalar("loss", loss)
    tf1.train.Saver()
print(testing.run_plain(graphdef.from_graph_def(graph.as_graph_def()), steps=2, train_op="train", loss=loss.op.name).losses)
"""


@pytest.mark.parametrize("optimizer", ["remapping", "arithmetic_optimization"])
def test_optimizers_that_are_wrong_are_off_where_nobody_asked_for_them(optimizer: str) -> None:
    def given(config: Any = None) -> int:
        return int(getattr(guarded(config).graph_options.rewrite_options, optimizer))

    asked = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    assert given() == given(asked) == RewriterConfig.OFF
    assert guarded(asked).allow_soft_placement
    assert asked == tf.compat.v1.ConfigProto(allow_soft_placement=True)
    setattr(asked.graph_options.rewrite_options, optimizer, RewriterConfig.ON)
    assert given(asked) == RewriterConfig.ON


@pytest.mark.parametrize(("config", "second"), [(None, False), (guarded(), True)])
def test_a_product_with_ones_is_one_of_the_output_that_is_read(config: Any, second: bool) -> None:
    """TensorFlow takes the first output of the iterator; if it does so no longer, its optimizer need not be off."""
    data = np.arange(6, dtype="f").reshape(2, 3, 1)
    with tf.Graph().as_default() as graph:
        dataset = tf1.data.Dataset.from_tensors(tuple(data)).repeat()
        first, other = tf1.data.make_one_shot_iterator(dataset).get_next()
        made = [tf.reduce_sum(tf.sin(first)), tf.reduce_sum(tf.tanh(other * tf.ones([1, 3])))]
        with tf1.Session(graph=graph, config=config) as session:
            found = session.run(made)[1]
    assert np.isclose(found, 3 * np.tanh(data[int(second)]).sum())


def test_a_converted_graph_is_optimized_once_where_nobody_asked_for_more() -> None:
    options = guarded(converted=True).graph_options.rewrite_options
    assert options.meta_optimizer_iterations == RewriterConfig.ONE
    assert options.memory_optimization == RewriterConfig.NO_MEM_OPT
    asked = tf.compat.v1.ConfigProto()
    asked.graph_options.rewrite_options.meta_optimizer_iterations = RewriterConfig.TWO
    asked.graph_options.rewrite_options.memory_optimization = RewriterConfig.MANUAL
    given = guarded(asked, converted=True).graph_options.rewrite_options
    assert (given.meta_optimizer_iterations, given.memory_optimization) == (RewriterConfig.TWO, RewriterConfig.MANUAL)
    assert guarded().graph_options.rewrite_options.meta_optimizer_iterations == RewriterConfig.DEFAULT_NUM_ITERS


def test_a_matmul_behind_which_something_of_the_shape_of_a_bias_is_added_runs_with_onednn() -> None:
    settings = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", RUN_IN_PLAIN_GRAPH], cwd=ROOT, env=settings, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_session_on_a_graph_is_guarded() -> None:
    """A session made with ``graph=`` gets its configuration from ``guarded``, or from ``configured``, which calls it."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tpugraph").rglob("*.py"))}
    for path, source in sources.items():
        for call in ast.walk(ast.parse(source)) if "Session(" in source else ():
            if (
                not isinstance(call, ast.Call)
                or not isinstance(call.func, ast.Attribute)
                or call.func.attr != "Session"
            ):
                continue
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            config = given.get("config")
            safe = isinstance(config, ast.Call) and ast.unparse(config.func) in ("guarded", "configured")
            of_ours = path.name == "workers.py"  # sums one number of each worker; its config is from configured
            assert safe or of_ours or "graph" not in given, f"{path.name}:{call.lineno}"
