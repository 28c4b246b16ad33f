"""Meshes: how values lie on them, what a user may ask for, and that the plain step trains alike on any of them."""

import re
from pathlib import Path

import numpy as np
import pytest

import models
import tpugraph
from command_line import Command
from models import batches, finish, tf1
from programs import PROGRAMS
from programs.harness import Program, check, compare, layout_of, run_partitioned, run_plain, trace
from tpugraph.cli import fitting
from tpugraph.compiler import ConvertOptions
from tpugraph.runtime.session import TPUSession
from tpugraph.testing.verification import verify
from tpugraph.xla import jax_client
from tpugraph.xla.mesh import Layout, Mesh, ShardRule, optimizer_variables
from tpugraph.xla.module import Module, Value

IRIS = Path(__file__).parents[2] / "examples/iris"

MESHES = ("data:8", "data:4,model:2", "data:2,model:4")
"""The last one shards the optimizer along its rows, too."""


@pytest.mark.parametrize(("mesh", "spec", "hlo"), [
    ("data:8", ((), ()), "{replicated}"),
    ("data:8", (("data",), ()), "{devices=[8,1]<=[8]}"),
    ("data:4,model:2", ((), ("data",)), "{devices=[1,4,2]<=[8] last_tile_dim_replicate}"),
    ("data:4,model:2", ((), ("model",)), "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
    ("data:4,model:2", (("data", "model"),), "{devices=[8]<=[8]}"),
    ("data:2,x:2,model:2", (("model",), ("data",)), "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dim_replicate}"),
])  # fmt: skip
def test_a_spec_in_the_syntax_of_hlo(mesh: str, spec: tuple[tuple[str, ...], ...], hlo: str) -> None:
    assert Mesh.parse(mesh).hlo_sharding(spec) == hlo


def module(rows: int = 8, **variables: tuple[int, ...]) -> Module:
    held = tuple(Value("variable", name.replace("__", "/"), "float32", shape) for name, shape in variables.items())
    return Module(b"", 1, 5, (Value("infeed", "0", "float32", (5, rows, 3)), *held), held)


def test_slots_lie_as_their_variable_and_along_the_axis_of_the_optimizer() -> None:
    made = module(dense__kernel=(4, 6), dense__kernel__Adam=(4, 6), training__dense__kernel__v=(4, 6), dense__count=())
    assert optimizer_variables(made) == {"dense/kernel/Adam": "dense/kernel", "training/dense/kernel/v": "dense/kernel"}
    layout = Layout.parse("data:4,model:2", [".*/kernel=-,model"], "data")
    found = {value.name: spec for value, spec in layout.specs(made).items() if value.kind == "variable"}
    assert found["dense/kernel"] == ((), ("model",))
    assert found["dense/kernel/Adam"] == found["training/dense/kernel/v"] == (("data",), ("model",))
    assert found["dense/count"] == ()


def test_the_last_rule_that_matches_holds_and_no_other_has_to_fit() -> None:
    made = module(table=(5, 4), other=(6, 4))
    layout = Layout.parse("data:4,model:2", [".*=model,-", "table=-,model"])
    found = {value.name: spec for value, spec in layout.specs(made).items() if value.kind == "variable"}
    assert found == {"table": ((), ("model",)), "other": (("model",), ())}


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", ["images/convolution_2", "embeddings/two_lookups_adam_2"])
def test_the_plain_step_trains_alike_on_any_mesh(name: str, mesh: str, partitioner: str) -> None:
    program: Program = PROGRAMS[name]
    traced = trace(program, 16, resource=program.resource)
    last = mesh == MESHES[-1]
    layout = Layout.parse(mesh, [], "data", partitioner) if last else layout_of(traced, mesh, partitioner=partitioner)
    found = run_partitioned(traced, program.steps, layout)
    made = found.report["collectives"]
    assert made, "XLA has not divided the step"
    assert len(found.report["sharded"]) >= len(layout.rules)
    if last and name.startswith("images"):  # the update alone is sharded: no gather but of the new variables
        assert made.get("all-gather", 0) <= sum(value.nbytes for value in found.start.values())
    verdict = compare(found, run_plain(traced, program.steps))
    assert verdict.outcome == "equal", verdict


@pytest.mark.parametrize(("name", "mesh"), [
    ("statistics/batch_norm_fused_2", "data:4,model:2"),  # a window that two axes would share
    ("embeddings/sampled_softmax_2", "data:8"),  # a scatter of 19 rows
    ("attention/attention_over_batch_2", "data:4,model:2"),
    ("loops/loop_max_2", "data:2,model:4"),
])  # fmt: skip
def test_programs_train_alike_on_a_mesh(name: str, mesh: str) -> None:
    """``tools/campaign.py --named=_2$ --mesh=MESH`` runs all."""
    verdict = check(PROGRAMS[name], 8, layout={"mesh": mesh})
    assert verdict.outcome == "equal", verdict


def test_a_mesh_draws_what_the_plain_graph_draws() -> None:
    """All but truncated normal numbers, which a kernel draws until they fit."""

    def build() -> None:
        (x,) = batches((np.ones((32, 5), np.float32),), 8)
        noise = tf1.random_normal([3, 5]), tf1.truncated_normal([8, 5], name="cut")
        whole = tf1.cast(tf1.random_uniform([8, 5], 0, 9, tf1.int64), tf1.float32)
        weights = tf1.get_variable("w", [5])
        y = tf1.nn.dropout(x * weights, rate=0.5) + weights * whole + tf1.reduce_sum(noise[0], 0) + 0.0 * noise[1]
        finish(tf1.reduce_mean(y * y), tf1.train.GradientDescentOptimizer(0.01))

    found = verify(models.trace(build), 3, ConvertOptions(), layout=Layout.parse("data:4,model:2"))
    assert found.ok, found.comparisons
    assert found.notes == ["XLA draws other numbers than TensorFlow for 'cut/TruncatedNormal': what reads them differs"]


def test_a_checkpoint_goes_from_one_mesh_to_another_and_to_the_emulator(tmp_path: Path) -> None:
    """Bit for bit, the optimizer's variables too."""
    program = tpugraph.convert(IRIS / "model.ckpt-0.meta", num_replicas=1, iterations_per_loop=6)
    layout = Layout.parse("data:4,model:2", ["dense(_1)?/kernel=-,model"], "data")
    with TPUSession(program, engine="xla", mesh=layout) as session:
        session.restore(IRIS / "model.ckpt-0")
        session.train(6)
        assert session.report["sharded"]["dense/kernel/Adagrad"] == [["data"], ["model"]]
        session.save(tmp_path / "model.ckpt")
        expected = session.values()
    for engine in ({"engine": "xla", "mesh": "data:8"}, {"engine": "emulator"}):
        with TPUSession(program, **engine) as session:
            session.restore(tmp_path / "model.ckpt-6")
            found = session.values()
        assert all(np.array_equal(found[name], value) for name, value in expected.items())


def test_rules_are_read_from_the_last_equals_sign() -> None:
    assert ShardRule.parse("a=b=model+data,-").spec == (("model", "data"), ())


# --------------------------------------------------------------------------- command lines


def test_a_mesh_of_more_devices_than_there_are(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_client, "joined", lambda: True)  # the devices are those that jax sees
    said = command.refused("run", IRIS / "model.ckpt-0.meta", "--steps=2", "--mesh=data:16")
    assert re.search(r"there (is|are) \d+ device", said)
    assert re.search(r"fix +--mesh=data:\d+", said)


def test_verify_on_a_platform_means_xla(command: Command) -> None:
    words = "verify", IRIS / "model.ckpt-0.meta", f"--checkpoint={IRIS / 'model.ckpt-0'}", "--platform=cpu"
    assert "the mesh data:8, 4 steps, with the plain graph: no variable differs" in command(*words).out
    assert "--platform is for XLA's own partitioner" in command.refused(*words, "--engine=emulator")


def test_run_takes_the_first_way_that_fits(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """On devices that say their memory, which is a little too small for a core that holds all variables."""
    words = (
        "run",
        IRIS / "model.ckpt-0.meta",
        f"--checkpoint={IRIS / 'model.ckpt-0'}",
        "--steps=6",
        "--iterations_per_loop=6",
    )
    monkeypatch.setattr(fitting, "device_memory", lambda platform: 4500)
    lines = command(*words, "--fit").out.splitlines()
    tried = [line for line in lines if line.startswith(("too large", "fits"))]
    assert len(tried) > 1
    assert [line.startswith("fits") for line in tried] == [False] * (len(tried) - 1) + [True]
    taken = next(line for line in lines if line.startswith("tpugraph run"))
    assert "--mesh=data:4,model:2 --shard='dense/kernel" in taken
    assert lines[-1].split("loss ")[1] == command(*words, "--mesh=data:8").out.split("loss ")[-1].strip()
