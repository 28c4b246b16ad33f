"""``tpugraph inspect --why=NODE``: where a value lives, and the reasons for it, back to the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models import CORPUS, tf1, trace, variable
from programs import PROGRAMS
from programs import trace as traced
from tpugraph import cli
from tpugraph.cli import why
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import graphdef


def told(model: Path, node: str, **options: Any) -> list[str]:
    """The lines about where a node's values live."""
    found = why.explain(str(model), node, ConvertOptions(), **options)
    assert not found["error"]
    lines = why.describe(found).splitlines()
    return [line for line in lines if line.split()[0] in ("value", "batch", "lives", "since")]


def written(tmp_path: Path, name: str, **sizes: Any) -> Path:
    """A program as a file."""
    program = PROGRAMS[name].sized(**sizes)
    made = traced(program, program.rows)
    path = tmp_path / "model.pb"
    path.write_bytes(made.graph.as_graph_def().SerializeToString())
    return path


GRADIENT = """\
  value     gradients/dense/MatMul_grad/MatMul_1 : float32[4,10]
    batch   no dimension follows the batch
    lives   gradients/dense/MatMul_grad/MatMul_1 (MatMul): a part of a sum over the cores; works along the rows of 'k'; \
then combined, since 'Adagrad/update_dense/kernel/ApplyAdagrad' (ResourceApplyAdagrad) reads it whole \
(also 'gradients/dense/BiasAdd_grad/tuple/control_dependency')
    since   input_layer/concat (ConcatV2): rows of this core along dimension 0; row by row \
(also 'input_layer/PetalWidth/Reshape', 'input_layer/SepalLength/Reshape', 'input_layer/SepalWidth/Reshape')
    since   input_layer/PetalLength/Reshape (Reshape): rows of this core along dimension 0; rows stay rows
    since   input_layer/PetalLength/ExpandDims (ExpandDims): rows of this core along dimension 0; rows stay rows
    since   IteratorGetNext (IteratorGetNext): rows of this core along dimension 0; \
the input: its first dimension has the 32 rows of a core's batch"""

CONSTANT = """\
  value     gradients/sparse_softmax_cross_entropy_loss/Sum_grad/Const : int32[1]
    batch   the number is b, where b is the rows of the batch: \
tied by 'gradients/sparse_softmax_cross_entropy_loss/Mul_grad/Mul_1' (Mul), 'input_layer/PetalLength/Reshape' (Reshape)
    lives   gradients/sparse_softmax_cross_entropy_loss/Sum_grad/Const (Const): made of sizes that follow the batch; a \
constant: the number is b, where b is the rows of the batch: \
tied by 'gradients/sparse_softmax_cross_entropy_loss/Mul_grad/Mul_1' (Mul), 'input_layer/PetalLength/Reshape' (Reshape)"""

BOUND = """\
  value     rnn/Maximum : int32[]
    batch   no dimension follows the batch
    lives   rnn/Maximum (Maximum): a candidate for the maximum over the cores; the largest of the largest; \
then combined, since 'rnn/Minimum' (Minimum) reads it whole
    since   rnn/Max (Max): a candidate for the maximum over the cores; the largest of the rows
    since   rnn/CheckSeqLen (Identity): rows of this core along dimension 0; handed on
    since   rnn/sequence_length (Identity): rows of this core along dimension 0; handed on
    since   IteratorGetNext (IteratorGetNext): rows of this core along dimension 0; \
the input: its first dimension has the 16 rows of a core's batch"""


@pytest.mark.parametrize(
    ("model", "node", "text"),
    [
        ("iris_dnn", "gradients/dense/MatMul_grad/MatMul_1", GRADIENT),
        ("iris_dnn", "gradients/sparse_softmax_cross_entropy_loss/Sum_grad/Const", CONSTANT),
        ("lstm_dynamic", "rnn/Maximum", BOUND),
    ],
)
def test_a_chain_ends_where_the_batch_comes_in(model: str, node: str, text: str) -> None:
    assert told(CORPUS / model / "model.pb", node) == text.splitlines()


def test_an_update_tells_of_what_it_reads() -> None:
    lines = told(CORPUS / "iris_dnn" / "model.pb", "Adagrad/update_dense/kernel/ApplyAdagrad")
    assert "tuple/control_dependency_1 (Identity): the same on every core; handed on" in lines[2]
    assert "gradients/dense/MatMul_grad/MatMul_1 (MatMul): a part of a sum over the cores" in lines[3]
    assert "the input" in lines[-1]


def test_a_chain_leaves_a_loop_and_its_containers() -> None:
    node = "gradients/rnn/while/rnn/multi_rnn_cell/cell_0/basic_lstm_cell/MatMul/Enter_grad/b_acc_3"
    lines = told(CORPUS / "lstm_dynamic" / "model.pb", node)
    assert "the input" in lines[-1]
    links = [line.split()[1] for line in lines[2:]]
    assert len(links) == len(set(links)), "each value once"
    assert any("StackPopV2" in link for link in links)
    assert any("TensorArrayReadV3" in link for link in links)


def test_what_a_pass_took_apart_tells_of_what_the_cores_combine() -> None:
    lines = told(CORPUS / "batch_norm" / "model.pb", "batch_normalization/FusedBatchNormV3")
    values = [line.split()[1] for line in lines if line.split()[0] == "value"]
    assert [value.rpartition("/")[2] for value in values] == ["mean", "variance"]


def test_with_why_all_every_operand_is_followed() -> None:
    model, node = CORPUS / "iris_dnn" / "model.pb", "gradients/dense/MatMul_grad/MatMul_1"
    some, every = told(model, node), told(model, node, everything=True)
    names = [line.split()[1] for line in every[2:]]
    assert set(line.split()[1] for line in some[2:]) < set(names)
    assert len(names) == len(set(names))
    for line in every[2:]:  # whatever is named as an operand has a line of its own
        operands = line.partition(" (from ")[2].removesuffix(")")
        assert all(text.strip("'") in names for text in operands.split(", ") if text)


def test_a_long_chain_has_one_line_for_links_that_are_alike(tmp_path: Path) -> None:
    def build() -> Any:
        data = tf1.data.Dataset.from_tensor_slices([[1.0], [2.0]] * 8).batch(4, drop_remainder=True)
        x = tf1.data.make_initializable_iterator(data).get_next()
        for _ in range(400):
            x = tf1.tanh(x)
        loss = tf1.reduce_mean(x * variable("w", (1,)), name="loss")
        tf1.summary.scalar("loss", loss)
        return tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")

    path = tmp_path / "deep.pb"
    graphdef.save(trace(build), path)
    lines = told(path, "Tanh_399")
    assert len(lines) == 6
    assert lines[3] == "    since   ... 398 more for the same reason: Tanh"
    assert len(told(path, "Tanh_399", everything=True)) == 2 + 400 + 1


# ------------------------------------------------------------------ sizes


def test_a_size_that_is_no_number_of_rows_says_what_it_is(tmp_path: Path) -> None:
    model = written(tmp_path, "bert", hidden=4, heads=2, depth=0)
    lines = told(model, "GatherV2")
    assert any("dimension 0 is 5*b" in line for line in lines)
    (line,) = [line for line in lines if "dimension 1 is 4" in line]
    assert line.endswith("and not the rows of the batch: a number of the model")


def test_a_constant_of_which_nothing_speaks_is_a_number_of_the_model(tmp_path: Path) -> None:
    def build() -> Any:
        data = tf1.data.Dataset.from_tensor_slices([[1.0], [2.0]] * 8).batch(4, drop_remainder=True)
        x = tf1.data.make_initializable_iterator(data).get_next()
        loss = tf1.reduce_mean(x * variable("w", (1,)) * tf1.constant(4.0, name="four"), name="loss")
        tf1.summary.scalar("loss", loss)
        return tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")

    path = tmp_path / "four.pb"
    graphdef.save(trace(build), path)
    lines = told(path, "four")
    assert lines[1:] == [
        "    batch   the number is 4, and not the rows of the batch: nothing speaks for it being a number of rows",
        "    lives   four (Const): the same on every core; a constant",
    ]


# ------------------------------------------------------------------ the command


def test_the_flag_and_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(CORPUS / "iris_dnn" / "model.pb")
    assert cli.main(["inspect", model, "--why=dense/Relu", "--why_all"]) == 0
    assert "(from 'dense/BiasAdd')" in capsys.readouterr().out
    assert cli.main(["inspect", model, "--why=dense/Relu", "--num_replicas=1"]) == 0
    assert "lives" not in capsys.readouterr().out


def test_asking_changes_nothing_in_the_graph() -> None:
    model = CORPUS / "lstm_dynamic" / "model.pb"
    before = convert(model, num_replicas=8).graph_def.SerializeToString(deterministic=True)
    told(model, "rnn/Maximum")
    assert convert(model, num_replicas=8).graph_def.SerializeToString(deterministic=True) == before
