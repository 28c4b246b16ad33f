"""``tpugraph inspect --why=NODE``: where a value lives, and the reasons for it, back to the input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

from command_line import Command
from models import CORPUS, tf1, trace, variable
from tpugraph.cli.inspect import describe, explain
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import graphdef


def told(model: Path, node: str, **options: Any) -> list[str]:
    """The lines about where a node's values live."""
    found = explain(str(model), node, ConvertOptions(), **options)
    assert not found["error"]
    lines = describe(found).splitlines()
    return [line for line in lines if line.split()[0] in ("value", "lives", "then", "since")]


def links(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.split()[0] in ("lives", "since")]


def test_a_chain_leaves_a_loop_and_its_containers() -> None:
    node = "gradients/rnn/while/rnn/multi_rnn_cell/cell_0/basic_lstm_cell/MatMul/Enter_grad/b_acc_3"
    lines = told(CORPUS / "lstm_dynamic" / "model.pb", node)
    assert "the input" in lines[-1]
    names = links(lines)
    assert len(names) == len(set(names)), "each value once"
    assert any("StackPopV2" in name for name in names)
    assert any("TensorArrayReadV3" in name for name in names)


def test_with_why_all_every_operand_is_followed() -> None:
    model, node = CORPUS / "iris_dnn" / "model.pb", "gradients/dense/MatMul_grad/MatMul_1"
    some, every = told(model, node), told(model, node, everything=True)
    names = links(every)
    assert set(links(some)) < set(names)
    assert len(names) == len(set(names))
    for line in every:  # whatever is named as an operand has a line of its own
        operands = line.partition(" (from ")[2].removesuffix(")")
        assert all(text.strip("'") in names for text in operands.split(", ") if text)


def written(tmp_path: Path, loss: Callable[[Any], Any]) -> Path:
    """A model with one weight that trains to a loss of its rows, 32 in a batch."""

    def build() -> Any:
        data = tf1.data.Dataset.from_tensor_slices([[1.0], [2.0]] * 32).batch(32, drop_remainder=True)
        x = tf1.data.make_initializable_iterator(data).get_next()
        made = tf1.identity(loss(x * variable("w", (1,))), name="loss")
        tf1.summary.scalar("loss", made)
        return tf1.train.GradientDescentOptimizer(0.1).minimize(made, name="train")

    graphdef.save(trace(build), tmp_path / "model.pb")
    return tmp_path / "model.pb"


def test_a_long_chain_has_one_line_for_links_that_are_alike(tmp_path: Path) -> None:
    def loss(x: Any) -> Any:
        for _ in range(400):
            x = tf1.tanh(x)
        return tf1.reduce_mean(x)

    path = written(tmp_path, loss)
    lines = told(path, "Tanh_399")
    assert lines[2] == "    since   ... 399 more for the same reason: Tanh"
    assert len(lines) == 5
    assert len(links(told(path, "Tanh_399", everything=True))) == 402


def test_an_op_without_a_partition_rule_says_why_its_operand_is_gathered(tmp_path: Path) -> None:
    def loss(x: Any) -> Any:
        numbers = tf1.cast(tf1.reshape(x, [-1]), "int32", name="numbers")
        counts = tf.raw_ops.DenseBincount(input=numbers, size=8, weights=tf.zeros([0]), name="counts")
        return tf1.reduce_mean(x) + tf1.reduce_sum(tf1.stop_gradient(counts))

    lines = told(written(tmp_path, loss), "counts")
    rule = "DenseBincount has no partition rule for such operands: whole operands on every core"
    assert lines[1] == f"    lives   counts (DenseBincount): replicated; {rule}"
    assert lines[2].startswith("    since   numbers (Cast): sharded along dimension 0 (4 rows a core)")
    assert lines[3] == f"    then    all-gathered (dimension 0, 128 bytes) for 'counts' (DenseBincount): {rule}"


def test_what_lies_on_all_cores_is_told(tmp_path: Path) -> None:
    def loss(x: Any) -> Any:
        return tf1.reduce_mean(x) + tf1.reduce_sum(tf1.random_normal([3], name="noise"))

    lines = told(written(tmp_path, loss), "noise/RandomStandardNormal")
    assert lines[-1] == "    then    broadcast: every core has what core 0 draws"
    path = written(tmp_path, lambda x: tf1.reduce_mean(tf1.square(tf1.concat([x, 2.0 * x], 0, name="both"))))
    assert "both (ConcatV2): sharded along dimension 0 (4 rows a core of each of 2 batches)" in told(path, "both")[1]


def test_without_a_saver_a_variable_is_saved_under_its_name(tmp_path: Path) -> None:
    with mock.patch.object(tf1.train, "Saver"):  # trace makes one otherwise
        path = written(tmp_path, tf1.reduce_mean)
    found = explain(str(path), "w", ConvertOptions())
    assert "trained, saved as 'w', since the graph has no saver, first value by 'w/Assign'" in describe(found)


MODEL = CORPUS / "iris_dnn" / "model.pb"


def test_asking(command: Command) -> None:
    assert "(from 'dense/BiasAdd')" in command("inspect", MODEL, "--why=dense/Relu", "--why_all").out
    assert "lives" not in command("inspect", MODEL, "--why=dense/Relu", "--num_replicas=1").out

    def converted() -> bytes:
        return convert(CORPUS / "lstm_dynamic" / "model.pb",
                       num_replicas=8).graph_def.SerializeToString(deterministic=True)  # fmt: skip

    before = converted()
    told(CORPUS / "lstm_dynamic" / "model.pb", "rnn/Maximum")
    assert converted() == before
