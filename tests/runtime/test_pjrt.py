"""PJRT: the compiled loop on virtual devices trains as the Estimator did, and shares checkpoints with the emulator."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from forked import Programs
from sampling import part

import breaking
from closeness import assert_close
from command_line import Command
from models import CORPUS, batches, corpus, family, finish, rows_of, squared_error, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import engines
from tpugraph.runtime import session as session_module
from tpugraph.runtime.pjrt.compiled import CompiledLoop
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError, TpuGraphError, UsageError
from tpugraph.tpu.program import Program
from tpugraph.xla import jax_client
from tpugraph.xla.module import Module

pytestmark = pytest.mark.slow

tf1 = tf.compat.v1
STEPS = 24
IRIS = corpus("iris_dnn")
EXAMPLE = Path(__file__).parents[2] / "examples/iris"


def assert_engines_agree(program: Program, variable_name: str, relative: float) -> None:
    """Six steps on the emulator and through PJRT: the same losses, the same variable."""
    found = []
    for engine in ("emulator", "pjrt"):
        with TPUSession(program, engine=engine) as session:
            found.append((session.train(6), session.value(variable_name).astype(np.float32)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=relative)
    assert_close(found[1][1], found[0][1], relative)


RECORDED = [
    ("while_cond", "plain"), ("iris_dnn", "plain"), ("sparse_momentum", "plain"), ("keras_lstm_cfv2", "plain"),
    ("iris_dnn", "global8"), ("lstm_dynamic", "plain"), ("clip_adam", "plain"), ("ref_variables", "global8"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "mode"), part(RECORDED, 2))
def test_devices_train_as_the_estimator_did(name: str, mode: str) -> None:
    """On eight of them, or as many as divide the batch."""
    model = corpus(name) if (CORPUS / name).exists() else family(name)
    program = convert(model.graph(), iterations_per_loop=7, **model.options(mode))
    model.assert_recorded(model.trained(program, STEPS, engine="pjrt"), mode)


@pytest.mark.parametrize(("name", "cores"), [("batch_norm", 8), ("batch_norm", 1), ("queue_runner", 4)])
def test_losses_are_those_that_were_recorded(name: str, cores: int) -> None:
    model = corpus(name)
    program = convert(model.graph(), num_replicas=cores, iterations_per_loop=8)
    losses = model.trained(program, STEPS, engine="pjrt").losses
    np.testing.assert_allclose(losses[:10], model.losses("plain")[:10], rtol=1e-5)
    np.testing.assert_allclose(losses, model.losses("plain"), rtol=1e-3)


@pytest.mark.parametrize(("kind", "precision"), [(tf.float16, 2e-3), (tf.bfloat16, 5e-2)])
def test_gradients_of_half_precision_are_summed_over_the_cores(kind: tf.DType, precision: float,
                                                               new_process: Programs) -> None:  # fmt: skip
    ran = new_process("-c", f"import tensorflow as tf; tf.matmul(*[tf.ones([4, 4], '{kind.name}')] * 2)")
    if ran.code < 0:  # where oneDNN is held to less than the CPU has
        pytest.skip(f"TensorFlow's own product of {kind.name} ends the process, with signal {-ran.code}")
    assert ran.code == 0, ran.err

    def build() -> None:
        features, targets = batches(rows_of(96, 3), 4)
        weights = tf1.get_variable("w", initializer=tf.constant([[0.5], [-0.25], [1.0]], kind))
        predicted = tf.squeeze(tf.cast(features, kind) @ weights, 1)
        finish(tf.reduce_mean(tf.square(predicted - tf.cast(targets, kind))), tf1.train.GradientDescentOptimizer(0.125))

    program = convert(trace(build, resource=True), num_replicas=2, iterations_per_loop=3)
    assert_engines_agree(program, "w", precision)


@pytest.mark.parametrize("name", ["loop_in_loop", "branch_in_loop", "loop_in_branch_in_loop"])
def test_gradients_of_nested_control_flow_are_those_of_the_emulator(name: str) -> None:
    program = convert(breaking.graph(f"gradient_of_{name}"), num_replicas=2, iterations_per_loop=3)
    assert_engines_agree(program, "w", 1e-5)


def test_sparse_adagrad_is_made_dense() -> None:
    def build() -> None:
        data = np.arange(96, dtype=np.int32) % 7, rows_of(96, 3)[1]
        numbers, targets = batches(data, 4)
        table = variable("table", (90, 2))  # too large for the cores to add up densely
        predicted = tf.reduce_sum(tf.nn.embedding_lookup(table, numbers), 1)
        finish(tf.reduce_mean(tf.square(predicted - targets)), tf1.train.AdagradOptimizer(0.1))

    program = convert(trace(build, resource=True), num_replicas=2, iterations_per_loop=3)
    assert [node for node in program.graph_def.node if node.op == "ResourceSparseApplyAdagrad"]
    assert_engines_agree(program, "table", 1e-5)


def test_checkpoints_go_back_and_forth(tmp_path: Path) -> None:
    program = convert(IRIS.graph(), iterations_per_loop=4)
    found: list[float] = []
    for engine, start, reached in (("pjrt", IRIS.checkpoint, 0), ("emulator", tmp_path, 4), ("pjrt", tmp_path, 8)):
        with TPUSession(program, engine=engine) as session:
            assert session.restore(start) == reached
            found += session.train(4)
            session.save(tmp_path / "model.ckpt")
    np.testing.assert_allclose(found, IRIS.trained(program, 12).losses, rtol=1e-5)


# --------------------------------------------------------------------------- input that is read ahead


def test_the_next_loop_is_read_while_the_devices_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input and devices are both slowed down to 0.3 s a loop; nothing is read that is not trained on."""
    spans: dict[str, list[tuple[float, float]]] = {"read": [], "run": []}

    def slowly(kind: type, name: str, what: str) -> None:
        real = getattr(kind, name)

        def work(*arguments: Any, **more: Any) -> Any:
            started = time.monotonic()
            found = real(*arguments, **more)
            time.sleep(max(0.0, started + 0.3 - time.monotonic()))
            spans[what].append((started, time.monotonic()))
            return found

        monkeypatch.setattr(kind, name, work)

    slowly(CompiledLoop, "_read", "read")
    slowly(Devices, "run", "run")
    program = convert(IRIS.graph(), num_replicas=1, iterations_per_loop=4)
    with TPUSession(program, engine="pjrt") as session:
        assert len(session.train(16)) == 16
    assert len(spans["read"]) == len(spans["run"]) == 4
    for (start, end), (read_start, read_end) in zip(spans["run"][:3], spans["read"][1:], strict=True):
        shared = min(end, read_end) - max(start, read_start)
        assert shared > 0.5 * (read_end - read_start)


def test_a_shorter_loop_takes_a_part_of_what_was_read() -> None:
    """Training that is broken off, and goes on in other steps, sees every batch once and in order."""
    program = convert(IRIS.graph(), num_replicas=2, iterations_per_loop=4)

    class BrokenOff(Exception):
        pass

    def break_off(step: int, losses: list[float]) -> None:
        found.extend(losses)
        raise BrokenOff

    found: list[float] = []
    with IRIS.session(program, engine="pjrt") as session:
        with pytest.raises(BrokenOff):
            session.train(12, on_loop=break_off)
        found += session.train(1)
        found += session.train(7)
    np.testing.assert_allclose(found, IRIS.trained(program, 12, engine="pjrt").losses, rtol=1e-5)


# --------------------------------------------------------------------------- the choice of the engine


def test_the_report_says_which_engine_runs_and_why() -> None:
    program = convert(IRIS.graph(), num_replicas=2)
    with TPUSession(program) as session:
        assert session.report == {"engine": "emulator", "reason": "the master has no TPU devices", "platform": None}
    with TPUSession(program, engine="pjrt") as session:
        assert [session.report[name] for name in ("engine", "platform", "devices")] == ["pjrt", "cpu", "cpu"]
    with TPUSession(convert(IRIS.folder / "model.pb", num_replicas=2), engine="auto", platform="cpu") as session:
        assert [session.report[name] for name in ("engine", "mesh")] == ["xla", "data:8"]


USUAL: dict[str, Any] = {"on_tpu": False, "hosts": 1, "trains": True}


@pytest.mark.parametrize(("seen", "tried", "platform", "reason"), [
    ([], ["emulator"], None, "jax sees no accelerator"),
    (["gpu"], ["xla", "pjrt", "emulator"], "gpu", "jax sees devices of the platform 'gpu'"),
    (["gpu", "tpu"], ["xla", "pjrt", "emulator"], "tpu", "jax sees devices of the platform 'tpu'"),
])  # fmt: skip
def test_auto_goes_by_the_devices(seen: list[str], tried: list[str], platform: str | None, reason: str,
                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(engines, "_sees", lambda name: name in seen)
    found = engines.to_try("auto", None, **USUAL)
    assert [choice.engine for choice in found] == tried
    assert (found[0].platform, found[0].reason) == (platform, reason)


def test_auto_leaves_to_the_emulator_what_the_devices_cannot_run(tmp_path: Path, command: Command,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    program = convert(breaking.graph("crop"), num_replicas=2, iterations_per_loop=2)
    with TPUSession(program) as session:
        expected = session.train(4)
    reason = "the devices cannot run the graph: XLA has no kernel for CropAndResize"
    with TPUSession(program, engine="auto", platform="cpu") as session:
        assert (session.report["engine"], session.report["platform"]) == ("emulator", None)
        assert session.report["reason"].startswith(reason)
        assert session.train(4) == expected
    program.save(tmp_path / "crop_tpu.pb")
    run = ["run", tmp_path / "crop_tpu.pb", "--steps=2"]
    assert f"engine emulator: {reason}" in command(*run, "--engine=auto", "--platform=cpu").out
    command.refused(*run, "--engine=pjrt")
    monkeypatch.setattr(session_module, "joined", lambda: True)
    with pytest.raises(
        TpuGraphError, match="the step runs on cores only: the graph is converted, and keeps no plain graph"
    ):
        TPUSession(program, engine="auto", platform="cpu")


def test_auto_leaves_to_tensorflow_what_pjrt_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_sees", lambda name: True)
    for more, engine in (({"on_tpu": True}, "master"), ({"hosts": 2}, "emulator"), ({"trains": False}, "emulator"),
                         ({}, "xla")):  # fmt: skip
        assert engines.to_try("auto", None, **USUAL | more)[0].engine == engine


def test_devices_that_are_named_divide_the_plain_step(command: Command, tmp_path: Path) -> None:
    """Of a plain graph, and of a converted file as it was converted; what runs on cores only does, and a line says why."""
    plain = EXAMPLE / "model.ckpt-0.meta"
    run = ["--platform=cpu", "--steps=2", f"--checkpoint={EXAMPLE / 'model.ckpt-0'}"]
    assert "engine xla on data:8 cpu devices" in command("run", plain, *run).out
    command("convert", plain, "--global_batch=20", "--iterations_per_loop=7", "-o", tmp_path / "twenty.pb")
    said = command("run", tmp_path / "twenty.pb", *run).out
    assert "global batch 20 = 1 core x 20" in said
    assert "note: 5 of 8 devices train: more do not divide the batch" in said
    with TPUSession(tmp_path / "twenty.pb", platform="cpu") as session:
        assert [session.report["mesh"], session.iterations_per_loop] == ["data:5", 7]
    command("convert", plain, "--batch_norm=per_core", "-o", tmp_path / "cores.pb")
    said = command("run", tmp_path / "cores.pb", *run).out
    assert "engine pjrt on 8 cpu devices: XLA does not divide the plain step: " in said
    assert "runs on cores only: batch_norm=per_core normalises each core's rows" in said
    refused = command.refused("run", tmp_path / "cores.pb", "--engine=xla", "--steps=2")
    assert "runs on cores only: batch_norm=per_core" in refused
    assert "fix     --engine=pjrt" in refused


def test_what_xla_cannot_divide_runs_on_cores(command: Command, tmp_path: Path) -> None:
    def build() -> None:
        features, targets = batches(rows_of(64, 6, seed=3), 16)
        product = tf.squeeze(features @ variable("kernel", (6, 1)), 1)
        kinds = tf.size(tf.unique(tf.cast(product, tf.int32))[0])  # a size that the data decide
        finish(
            tf.reduce_mean(tf.square(product - targets)) + 0.0 * tf.cast(kinds, tf.float32),
            tf1.train.AdamOptimizer(0.01),
        )

    graphdef.save(trace(build), tmp_path / "sized.pb")
    run = ["run", tmp_path / "sized.pb", "--steps=2"]
    said = command(*run, "--platform=cpu").out
    assert "engine pjrt on 8 cpu devices: XLA does not divide the plain step: " in said
    assert "fix     --partitioner=gspmd" in command.refused(*run, "--mesh=data:8")
    assert "engine xla on data:8" in command(*run, "--mesh=data:8", "--partitioner=gspmd").out


@pytest.mark.parametrize(("engine", "platform", "more", "fault"), [
    ("gpu", None, {}, "there is no engine 'gpu'"),
    ("pjrt", "rocm", {}, "there is no platform 'rocm'"),
    ("emulator", "gpu", {}, "the emulator takes none"),
    ("pjrt", None, {"trains": False}, "training graphs alone"),
    ("pjrt", None, {"on_tpu": True}, "not on those of a master"),
])  # fmt: skip
def test_an_engine_that_cannot_be(engine: str, platform: str | None, more: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        engines.to_try(engine, platform, **USUAL | more)
    assert caught.value.fix


def test_the_command_runs_on_pjrt_devices(tmp_path: Path, command: Command) -> None:
    words = ["run", IRIS.folder / "model.pb", "--steps=6", f"--checkpoint={IRIS.checkpoint}", "--json"]
    words += [f"--losses={tmp_path / 'losses'}", "--iterations_per_loop=3", "--engine=pjrt", "--platform=cpu"]
    said = command(*words)
    engine = json.loads(said.out)["engine"]
    assert (engine["engine"], engine["platform"]) == ("pjrt", "cpu")
    assert "engine pjrt on 8 cpu devices" in said.err
    losses = [json.loads(line)["loss"] for line in (tmp_path / "losses").read_text().splitlines()]
    np.testing.assert_allclose(losses, IRIS.losses("plain")[:6], rtol=1e-5)


# --------------------------------------------------------------------------- random streams


def noisy(rows: int = 4, *, in_loop: bool = False) -> Graph:
    """A model whose loss is nothing but the noise that each core draws."""

    def build() -> None:
        features, targets = batches(rows_of(96, 3), rows)
        weights = variable("w", (3, 1))

        def draw(i: int, total: object) -> object:
            return i + 1, total + tf1.random_uniform([rows], seed=4)

        noise = tf1.while_loop(lambda i, _: i < 3, draw, (0, tf.zeros([rows])))[1] if in_loop else draw(0, 0.0)[1]
        finish(tf.reduce_mean(noise + 0.0 * squared_error(features, targets, weights)),
               tf1.train.GradientDescentOptimizer(0.1))  # fmt: skip

    return trace(build)


@pytest.mark.parametrize("in_loop", [False, True])
def test_every_core_and_step_draws_its_own_values_and_again_the_same(in_loop: bool) -> None:
    def losses(cores: int, loop: int, seed: int = 0) -> list[float]:
        program = convert(noisy(in_loop=in_loop), num_replicas=cores, iterations_per_loop=loop)
        with TPUSession(program, engine="pjrt", seed=seed) as session:
            return session.train(6)

    first = losses(2, 3)
    assert len(set(first)) == 6
    np.testing.assert_allclose(losses(2, 2), first, rtol=1e-6)  # however the steps are cut into loops
    assert losses(2, 3, seed=1) != first
    assert all(0 < loss < (3 if in_loop else 1) for loss in first)
    assert not np.allclose(losses(1, 3), first, rtol=1e-3)


# --------------------------------------------------------------------------- what goes wrong


def test_what_jax_lacks_is_said() -> None:
    with pytest.raises(RunError, match="nothing_of_this_name is not installed") as caught:
        jax_client.load("nothing_of_this_name.inside", "pjrt")
    assert caught.value.fix == "python -m pip install 'tpugraph[pjrt]'"
    with pytest.raises(RunError, match=r"jax finds no gpu|for 8 devices, and there are") as caught:
        Devices(Module(b"", 8, 1, (), ()), platform="gpu")
    assert caught.value.fix
