"""Compare and reduce: the first tensor that differs is named, and a fault comes down to a few nodes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from forked import Programs

import models
import tpugraph
from models import CORPUS, batches, finish, tf1
from programs import PROGRAMS
from programs.harness import trace
from tpugraph import cli, ops, roles
from tpugraph.analysis import shapes
from tpugraph.analysis.placements import REPLICATE, SUM, Shard
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError
from tpugraph.testing import assert_raises_block
from tpugraph.testing.cut_graph import Unit, units_of
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.reduce import Question, attempt, look, smallest
from tpugraph.testing.tensor_comparison import OnCores
from tpugraph.testing.verification import verify

IRIS = str(CORPUS / "iris_dnn" / "model.pb")
WRONG = planted.BEHIND.format("ScaleGradient")


def _units(middle: object) -> list[Unit]:
    graph = planted.tower(2, middle=middle)
    shapes.infer(graph)
    found = roles.find(graph)
    return units_of(graph, graph.ancestors(graph[name] for name in found.roots))


def test_loops_and_conditionals_are_units() -> None:
    whole = [unit for unit in _units(planted.loop) if len(unit) > 2]
    assert len(whole) == 1
    assert {node.op for node in whole[0]} >= ops.ENTER & {"Enter"} | {
        "Exit",
        "NextIteration",
        "LoopCond",
        "StackPushV2",
        "StackPopV2",
    }
    whole = [unit for unit in _units(planted.branch) if len(unit) > 2]
    assert len(whole) == 1
    assert {"Switch", "Merge", "Elu"} <= {node.op for node in whole[0]}
    assert not any("layer_1/" in node.name for node in whole[0])


@pytest.mark.parametrize("hints", [[], ["node_200"]])
def test_the_search_finds_two_units_among_many(hints: list[str]) -> None:
    graph = tpugraph.Graph()
    before = []
    for number in range(300):
        before = [
            graph.add(
                "Test",
                f"scope_{number // 30}/node_{number}" if not hints else f"node_{number}",
                [n.out() for n in before],
            )
        ]
    nodes, tried = list(graph), []

    def shows(kept: Sequence[Unit]) -> bool:
        tried.append(kept)
        return {(nodes[200],), (nodes[203],)} <= set(kept)

    assert smallest([(node,) for node in nodes], shows, hints) == [(nodes[200],), (nodes[203],)]
    assert len(tried) < 60


def test_of_two_ways_the_near_one_is_kept() -> None:
    """A symptom at the end of a chain that needs one of two leaves, with what leads from the leaf to the end."""
    graph = tpugraph.Graph()
    leaves = {number: graph.add("Test", f"leaf_{number}") for number in (92, 80)}
    before: list[Any] = []
    for number in range(100):
        read = [leaves[number].out()] if number in leaves else []
        before = [graph.add("Test", f"node_{number}", [*before, *read]).out()]

    def shows(kept: Sequence[Unit]) -> bool:
        held = {unit[0].name for unit in kept}
        return any({f"leaf_{leaf}", *(f"node_{number}" for number in range(leaf, 100))} <= held for leaf in leaves)

    found = smallest([(node,) for node in graph], shows, ["node_99"])
    assert [unit[0].name for unit in found] == ["leaf_92", *(f"node_{number}" for number in range(92, 100))]


def test_values_of_cores_make_up_that_of_the_plain_graph() -> None:
    whole = np.arange(24.0).reshape(8, 3)
    assert np.array_equal(OnCores("", Shard(0)).whole([whole[:4], whole[4:]]), whole)
    twice = OnCores("", Shard(0, outer=2))  # two batches of four rows, one after the other
    parts = [whole[[0, 1, 4, 5]], whole[[2, 3, 6, 7]]]
    assert np.array_equal(twice.whole(parts), whole)
    assert twice.difference(whole, [parts[0], parts[1] + 23]) == [0, 1]
    assert np.array_equal(OnCores("", SUM).whole([whole, whole]), 2 * whole)
    assert OnCores("", REPLICATE).difference(whole, [whole, whole + 23]) == [0, 1]


def test_compare_names_the_first_tensor_that_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", IRIS, "--num_replicas=4"]) == 0
    assert "no tensor differs by more than 0.0001" in capsys.readouterr().out
    assert cli.main(["compare", IRIS, "--num_replicas=4", f"--passes={WRONG}"]) == 1
    said = capsys.readouterr().out
    assert "4 differing tensors in step 1, the first is" in said
    assert "tensor    gradients/dense_2/BiasAdd_grad/BiasAddGrad (BiasAddGrad)" in said
    assert "lives     replicated, each core's is compared" in said
    assert "as read   by gradients/dense_2/BiasAdd_grad/tuple/control_dependency_1" in said
    assert "made of   gradients/sparse_softmax_cross_entropy_loss/xentropy/xentropy_grad/mul: the same" in said


@pytest.mark.parametrize("cores", [2, 8])
def test_a_sum_that_is_missing_is_named_with_its_tensor(cores: int) -> None:
    first = tpugraph.compare(IRIS, num_replicas=cores, passes="prune,...,planted:LoseSum").first
    assert first is not None
    assert first.tensor == "gradients/dense_1/BiasAdd_grad/BiasAddGrad"
    assert first.reader == "gradients/dense_1/BiasAdd_grad/tuple/control_dependency_1"
    assert first.unseen == ()
    assert not verify(IRIS, 2, ConvertOptions(num_replicas=cores, passes="prune,...,planted:LoseSum")).ok


@pytest.mark.parametrize("name", ["clip_adam", "linear_classifier", "lstm_dynamic", "while_cond"])
def test_no_tensor_of_a_real_graph_differs(name: str) -> None:
    found = tpugraph.compare(CORPUS / name / "model.pb", num_replicas=4, steps=2)
    assert found.differences == []
    assert len(found.compared) > 60


def test_compare_on_a_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = ["--mesh=data:4,model:2", "--shard=dense(_1)?/kernel=-,model"]
    assert cli.main(["compare", IRIS, *mesh, "--steps=2"]) == 0
    assert "compared    95 tensors on the mesh data:4,model:2: plain, xla" in capsys.readouterr().out
    assert cli.main(["compare", IRIS, *mesh, "--engines=emulator,xla", "--tensors=dense_2/.*"]) == 0
    assert "tensors on 8 cores and the mesh data:4,model:2: emulator, xla" in capsys.readouterr().out
    assert cli.main(["compare", IRIS, *mesh, f"--passes={WRONG}"]) == 1
    said = capsys.readouterr().out
    assert "differing tensors in step 1, the first is" in said
    assert "tensor    gradients/dense_2/BiasAdd_grad/tuple/control_dependency_1 (Identity)" in said
    assert "between plain and xla" in said
    assert "lives     as XLA divides it, the whole is compared" in said


def test_compare_says_what_a_mesh_does_not_have() -> None:
    """Sizes that the data decide are in no step that XLA divides: they are left out, and said to be."""
    found = tpugraph.compare(CORPUS / "lstm_dynamic" / "model.pb", engines=("plain", "xla"))
    assert found.differences == []
    assert len(found.compared) > 60
    assert any(
        "not compared with xla, of a size that the data decide: 'Adam/update_embedding/" in n for n in found.notes
    )


def test_what_xla_draws_otherwise_is_not_compared() -> None:
    def build() -> None:
        (x,) = batches((np.ones((8, 4), np.float32),), 8)
        y = tf1.multiply(x, tf1.get_variable("w", [4]), name="y")
        noisy = tf1.add(y, tf1.truncated_normal([8, 4], name="cut"), name="noisy")
        finish(tf1.reduce_mean(noisy * noisy), tf1.train.GradientDescentOptimizer(0.01))

    found = tpugraph.compare(models.trace(build), engines=("plain", "xla"), steps=2)
    assert found.differences == []
    assert "y" in found.compared
    assert not {"noisy", "w"} & {*found.compared}
    assert found.notes[0].startswith("XLA draws other numbers than TensorFlow for 'cut/TruncatedNormal'")
    assert found.notes[1].endswith("tensors made of such numbers not compared with xla")


def test_rows_in_another_order_are_no_difference() -> None:
    """Adam adds up rows in the order of ``tf.unique``, and the cores in the order of the table."""
    traced = trace(PROGRAMS["embeddings/two_lookups_adam_2"], 16)
    graph = graphdef.from_graph_def(traced.graph.as_graph_def())
    assert tpugraph.compare(graph, num_replicas=8, loss=traced.loss, train_op=traced.train).differences == []


def test_a_variable_alone_is_compared_after_the_step() -> None:
    assert tpugraph.compare(IRIS, num_replicas=2, tensors="^dense/kernel$").compared == ["dense/kernel"]
    wrong = planted.BEHIND.format("ScaleGradient")
    found = tpugraph.compare(IRIS, num_replicas=2, tensors="^dense_2/bias$", passes=wrong)
    assert [difference.tensor for difference in found.differences] == ["dense_2/bias"]


@pytest.mark.parametrize("when", ["", "differ", "refused", "xla:", "crashes:now"])
def test_what_is_no_fault_is_refused(when: str) -> None:
    assert_raises_block(Question, when, max_length=200, kind=UsageError,
                        words=["is no symptom", "differs, refused:CODE"])  # fmt: skip


def test_a_wrong_gradient_comes_down_to_a_few_nodes(new_process: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """The whole way: the command, the graph that it writes, and the pytest, which fails with the pass and passes without it."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reduce", IRIS, "--num_replicas=4", f"--passes={WRONG}", "-o", "small.pb"]) == 0
    said = capsys.readouterr().out
    assert "BiasAddGrad(recorded/weighted)" in said
    assert f"--passes={WRONG}" in said
    assert len(graphdef.load("small.pb")) <= 20
    text = Path("test_small.py").read_text()
    assert "testing.symptom(MODEL, 'differs'" in text
    ran = new_process("-m", "pytest", "-q", "test_small.py", cwd=tmp_path)
    assert ran.code == 1
    assert "differs by" in ran.out


def test_a_cut_whose_difference_is_of_another_size_is_no_reduction(tmp_path: Path) -> None:
    model = tmp_path / "model.pb"
    graphdef.save(planted.tower(2), model)
    asked = Question("differs", ConvertOptions(num_replicas=4, passes=WRONG))
    found = look(str(model), asked)
    assert found.shows
    assert found.difference == pytest.approx(0.01, rel=1e-3)
    again = replace(asked, signature=found.signature, difference=found.difference)
    assert look(str(model), again).shows
    grown = look(str(model), replace(again, difference=found.difference / 600))
    assert not grown.shows
    assert "which is another fault" in grown.words
    assert not look(str(model), replace(again, signature="Mean:0")).shows


def test_what_the_tpu_compiler_itself_complains_of_is_seen(tmp_path: Path) -> None:
    """There is a kernel for XLA, so that nothing refuses the transform before the compiler of a TPU does."""
    model = tmp_path / "model.pb"
    graphdef.save(planted.tower(1, middle=planted.wide_transform), model)
    question = Question("xla:operand type for FFT", ConvertOptions(num_replicas=8))
    found = look(str(model), question)
    assert found.shows
    assert "Unexpected operand type for FFT: c128" in found.words
    assert not look(str(model), replace(question, when="xla:does not fit")).shows


def test_first_values_are_given_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new fetch of a large graph costs a walk over it, so that one run for each variable would take minutes."""
    plain = PlainRun(planted.tower(3))
    plain.open({})
    start = plain.values([name for name in plain.roles.variables if "kernel" in name])
    runs: list[object] = []
    honest = PlainRun._run
    monkeypatch.setattr(
        PlainRun, "_run", lambda self, fetch, feed=None: (runs.append(fetch), honest(self, fetch, feed))[1]
    )
    plain.open({name: value + 1 for name, value in start.items()})
    found = plain.values(list(start))
    plain.close()
    assert len(start) == 9
    assert len(runs) <= 5
    assert all(np.array_equal(found[name], value + 1) for name, value in start.items())


def test_a_refused_op_comes_down_to_itself() -> None:
    found = tpugraph.reduce(planted.tower(12, middle=planted.without_kernel), "refused:kernel", num_replicas=8)
    assert found.nodes <= 20
    assert found.graph.of_type("RandomGamma")
    assert "RandomGamma" in found.words


def test_a_try_that_dies_or_does_not_end_is_an_answer(tmp_path: Path) -> None:
    model = tmp_path / "model.pb"
    graphdef.save(planted.tower(1), model)
    found = attempt(model, Question("crashes"), 0.01)
    assert (found.shows, found.words) == (True, "there was no end in time")
    assert not attempt(model, Question("crashes", signature="KeyError at x.py:1"), 0.01).shows
    dies = ConvertOptions(num_replicas=8, passes=planted.BEHIND.format("Stumble{op=Tanh, how=abort}"))
    assert attempt(model, Question("crashes", dies), 120).words == "the process died of signal 6"
