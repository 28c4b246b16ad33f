"""A TPU graph from a file has the form of one, or is refused by name before anything of it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.python.framework import tensor_util

from models import corpus
from tpugraph import cli
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import LoadError, RunError
from tpugraph.tpu.form_check import check_form

IRIS = corpus("iris_dnn")


@pytest.fixture(scope="module")
def converted() -> Any:
    return convert(IRIS.graph(), num_replicas=2, iterations_per_loop=2).graph_def


def node(graph_def: Any, name: str) -> Any:
    return next(node for node in graph_def.node if node.name == name)


def without(name: str) -> Callable[[Any], None]:
    def change(graph_def: Any) -> None:
        graph_def.node.remove(node(graph_def, name))

    return change


def with_limit(value: Any) -> Callable[[Any], None]:
    def change(graph_def: Any) -> None:
        tensor = node(graph_def, "tpugraph/iterations_per_loop/Initializer").attr["value"].tensor
        tensor.CopyFrom(tensor_util.make_tensor_proto(np.asarray(value, "int32")))

    return change


def with_cores(count: int) -> Callable[[Any], None]:
    def change(graph_def: Any) -> None:
        next(n for n in graph_def.node if n.op == "TPUReplicateMetadata").attr["num_replicas"].i = count

    return change


def with_a_text_for_a_step(graph_def: Any) -> None:
    step = node(graph_def, "tpugraph/global_step")
    step.Clear()
    step.name, step.op = "tpugraph/global_step", "Const"
    step.attr["dtype"].type = 7
    step.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto("x"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("tpugraph/dequeue"), "it has lost the entry point 'tpugraph/dequeue'"),
        (without("tpugraph/shutdown"), "it has lost the entry point 'tpugraph/shutdown'"),
        (with_limit([3, 3]), "the number of steps per loop is no constant of at least 1"),
        (with_limit(0), "the number of steps per loop is no constant of at least 1"),
        (with_cores(0), "it claims 0 cores; 1 to 4,096 can be"),
        (with_cores(10**9), "it claims 1,000,000,000 cores; 1 to 4,096 can be"),
        (with_cores(3), "it has 3 cores, and InfeedEnqueueTuple for 0, 1"),
        (with_a_text_for_a_step, "'tpugraph/global_step' gives string, not int32 or int64"),
    ],
)
def test_what_a_damaged_tpu_graph_lacks_is_named(
    change: Callable[[Any], None], words: str, converted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = type(converted).FromString(converted.SerializeToString())
    change(damaged)
    path = tmp_path / "tpu.pb"
    path.write_bytes(damaged.SerializeToString())
    for command in (
        ["inspect", str(path)],
        ["run", str(path), "--steps=1"],
        ["compile", str(path), "-o", str(tmp_path / "o")],
    ):
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: the TPU graph is damaged: {words}\n")
        assert f"  from    {path}\n  fix     convert the plain graph again" in said
    assert not (tmp_path / "o").exists()


def test_a_session_runs_sound_graphs_alone(converted: Any) -> None:
    check_form(graphdef.from_graph_def(converted))
    damaged = type(converted).FromString(converted.SerializeToString())
    with_limit(-1)(damaged)
    with pytest.raises(LoadError, match="no constant of at least 1"):
        TPUSession(damaged)
    damaged = type(converted).FromString(converted.SerializeToString())
    damaged.node.add(name="end", op="Abort")
    node(damaged, "tpugraph/train").input.append("^end")
    with pytest.raises(RunError, match="ends the process when it runs") as caught:
        TPUSession(damaged)
    assert caught.value.node == "end (Abort)"
