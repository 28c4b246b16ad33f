"""tpugraph compile: what the real TPU compiler says of a graph, and what stops before it does."""

import json
import os
import re
import signal
import sys
import threading
from functools import partial
from typing import Any
from unittest import mock

import jax
import pytest

from command_line import Command
from models import CORPUS, ORACLE, corpus
from tpugraph import cli
from tpugraph.cli.console import interruptible
from tpugraph.compiler import adopt_tpu_estimator, convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import RunError, UsageError
from tpugraph.xla import bridge, fit, memory_layouts, stablehlo, topologies
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import Layout
from tpugraph.xla.module import Module, Value
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES, Compiled

pytestmark = pytest.mark.slow


IRIS = CORPUS / "iris_dnn" / "model.pb"


def lowered(model: str, **options: Any) -> Module:
    return stablehlo.lower(graphdef.from_graph_def(convert(corpus(model).graph(), **options).graph_def))


def test_the_module_says_what_it_takes_and_returns() -> None:
    module = lowered("iris_dnn", iterations_per_loop=5)
    assert (module.num_replicas, module.iterations) == (8, 5)
    assert [a.kind for a in module.arguments[:3]] == ["count", "seed", "infeed"]
    assert {a.shape[0] for a in module.arguments if a.kind == "infeed"} == {5}
    names = [a.name for a in module.arguments if a.kind == "variable"]
    assert len(names) == 13
    assert names == [r.name for r in module.results if r.kind == "variable"]  # each is written in this model
    assert module.facts == {"all_reduces": 7, "loops": 1, "conditionals": 0, "own_streams": []}


def test_lowering_twice_gives_the_same_bytes() -> None:
    assert lowered("while_cond").code == lowered("while_cond").code


def test_the_order_in_which_functions_are_found_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of a node come in another order in another process."""
    found, inner = [], bridge._called
    for reverse in (False, True):
        turned = partial(sorted, reverse=reverse)
        monkeypatch.setattr(bridge, "_called", lambda *given, turned=turned: dict(turned(inner(*given).items())))
        found.append(lowered("iris_dnn", iterations_per_loop=4).code)
    assert found[0] == found[1]


@pytest.mark.parametrize(("topology", "most"), [("v3:2x2", 61.5e12), ("v5e:2x4", 197e12)])
def test_the_command_tells_memory_traffic_and_the_largest_tensors(topology: str, most: float, command: Command) -> None:
    out, err = command("compile", IRIS, "--global_batch=256", f"--topology={topology}", "--json")
    found = json.loads(out)
    assert found["topology"] == topology
    assert found["num_replicas"] == found["cores"] == 8
    assert 0 < found["peak"] < found["hbm"]
    assert found["infeed_bytes"] == 5 * 32 * 4
    assert found["all_reduce_bytes"] >= 4 * (4 * 10 + 10 + 10 * 10 + 10 + 10 * 3 + 3)
    assert found["flops"] > 3 * 2 * 32 * (4 * 10 + 10 * 10 + 10 * 3) * 0.8
    assert found["tensors"][0]["bytes"] >= found["tensors"][0]["elements"]
    assert {tensor["node"] for tensor in found["tensors"]} == {f"infeed {number}" for number in range(5)}
    assert 0 < found["share_of_peak"] < 1
    assert found["share_of_peak"] == pytest.approx(found["flops"] / found["step_seconds"] / most)
    assert "% of the peak), bound by" in err
    assert f"compiled for {topology} in " in err


@pytest.mark.parametrize("name", ["while_cond", "lstm_dynamic"])
def test_control_flow_compiles(name: str) -> None:
    assert topologies.compile_for(lowered(name, iterations_per_loop=4), "v3:2x2").seconds > 0


@pytest.mark.parametrize("name", ["iris_tpu", "mnist_cnn_tpu", "batch_norm_tpu", "mnist_host_call_tpu"])
def test_graphs_of_tpu_estimator_lower(name: str) -> None:
    graph = graphdef.load(ORACLE / f"{name}.pb")
    adopt_tpu_estimator.add_entry_points(graph)
    module = stablehlo.lower(graph)
    assert module.num_replicas == 8
    assert module.facts["all_reduces"] > 0


def test_the_topologies_are_listed(command: Command) -> None:
    listed = command("compile", "--topologies").out
    assert [line.split()[0] for line in listed.splitlines()] == list(TOPOLOGIES)
    assert {name.partition(":")[0] for name in TOPOLOGIES} == set(CHIPS)


def test_the_known_topologies_have_the_cores_that_libtpu_says() -> None:
    for name in ("v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:2x4", "v5p:2x2x2", "v6e:2x4"):
        assert len(topologies._devices(name)) == TOPOLOGIES[name], name


def test_the_pip_line_comes_before_the_work(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    said = command("compile", IRIS, code=2)
    assert tuple(said) == ("", "error: libtpu is not installed\n  fix     python -m pip install 'tpugraph[tpu]'\n")


@pytest.mark.parametrize(("own", "fix"), [(None, "python -m pip install -U libtpu"),
                                          ("/a.so", "unset TPU_LIBRARY_PATH")])  # fmt: skip
def test_a_compiler_that_cannot_be_loaded(own: str | None, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mock.Mock(side_effect=jax.errors.JaxRuntimeError("INTERNAL: Failed to open it"))
    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", broken)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    if own:
        monkeypatch.setenv("TPU_LIBRARY_PATH", own)
    with pytest.raises(RunError, match="has no topology 'v3:2x2': INTERNAL: Failed to open it") as caught:
        topologies.compile_for(Module(b"", 8, 1, (), ()), "v3:2x2")
    assert (caught.value.fix or "").startswith(fix)


def test_more_replicas_than_any_topology_of_the_kind() -> None:
    with pytest.raises(UsageError, match="v2:4x4 has 32 cores") as caught:
        topologies.check("v2:4x4", 64)
    assert caught.value.fix == "convert with --num_replicas=32"


def test_a_module_that_does_not_fit_says_by_how_much() -> None:
    program = convert(corpus("iris_dnn").graph(), global_batch=256)
    module = stablehlo.lower(graphdef.from_graph_def(program.graph_def), iterations=30_000_000)
    fault = r"does not fit on a core of v5e:2x4: it needs [\d.,]+ GiB for .*, which is [\d.,]+ GiB more"
    with pytest.raises(RunError, match=fault) as caught:
        topologies.compile_for(module, "v5e:2x4")
    assert "--iterations_per_loop" in caught.value.block()
    assert isinstance(caught.value, TooLarge)
    assert caught.value.available == CHIPS["v5e"].hbm


# --------------------------------------------------------------------------- while the compiler works


@pytest.mark.usefixtures("answers_ctrl_c")
def test_ctrl_c_does_not_wait_for_the_compiler() -> None:
    over = threading.Event()

    def compiler() -> None:
        signal.raise_signal(signal.SIGINT)  # the main thread sees it while this one goes on
        over.wait()

    with pytest.raises(KeyboardInterrupt):
        interruptible(compiler)
    assert not over.is_set()
    over.set()


def test_what_the_compiler_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
    assert interruptible(threading.current_thread) is not threading.main_thread()


@pytest.mark.parametrize(("flags", "error", "seen"), [
    ("", None, False),
    ("--xla_something=1", None, True),
    ("", RunError("it does not fit"), False),
    ("", ValueError("unforeseen"), True),
])  # fmt: skip
def test_the_log_of_libtpu_is_shown_where_nothing_else_says_what_failed(
    flags: str, error: Exception | None, seen: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """libtpu ends the process over a flag that it does not know; what it says of it must not be held back then."""

    def talking(module: Module, topology: str, layout: Layout | None) -> Compiled:
        assert threading.current_thread() is not threading.main_thread()
        os.write(2, b"the log of libtpu\n")
        if error:
            raise error
        return Compiled({"aliased": 0}, {}, {}, topology, 8, module.num_replicas, 1.5, 2.0, 3.0, 5, ())

    monkeypatch.setattr(topologies, "compile_for", talking)
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    if flags:
        monkeypatch.setenv("LIBTPU_INIT_ARGS", flags)
    assert cli.main(["compile", str(IRIS), "--topology=v3:2x2"]) == (2 if error else 0)
    said = capfd.readouterr().err
    assert str(error or "") in said
    assert ("the log of libtpu" in said) is seen


# --------------------------------------------------------------------------- the largest batch


@pytest.fixture
def _small_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that answers at once, and a core that holds 100 of its rows."""

    def answer(module: Module, topology: str, layout: Layout | None) -> Compiled:
        rows = next(v.shape[1] for v in module.arguments if v.kind == "infeed")
        limit = CHIPS["v3"].hbm
        if rows > 100:
            raise TooLarge(topology, "the program", rows * limit // 100, limit, "dense/MatMul")
        memory = {**dict.fromkeys(("arguments", "outputs", "aliased", "code"), 0), "temporaries": rows * limit // 100}
        return Compiled(memory, {"all-reduce": 4}, {}, topology, 8, module.num_replicas, 1.5, 2.0, 3.0, 5, ())

    monkeypatch.setattr(topologies, "compile_for", answer)


@pytest.mark.usefixtures("_small_core")
def test_the_command_searches_the_largest_batch(command: Command) -> None:
    out, err = command("compile", IRIS, "--topology=v3:2x2", "--largest_batch", "--json")
    assert json.loads(out)["largest_batch"] in range(93, 101)
    assert "batch       4 rows per core need 634.1 MiB: fits" in err
    assert ": too large" in err
    assert f"largest     {json.loads(out)['largest_batch']} rows per core" in err


@pytest.mark.usefixtures("_small_core")
def test_a_batch_that_does_not_fit_says_which_would(command: Command) -> None:
    err = command.refused("compile", IRIS, "--global_batch=1024", "--topology=v3:2x2")
    assert "it needs 19.81 GiB for the program, which is 4.33 GiB more than the 15.48 GiB that there are" in err
    assert "node    dense/MatMul" in err
    assert re.search(r"fix +a batch of at most (9\d|100) rows per core fits", err)


# --------------------------------------------------------------------------- layouts

HLO = """HloModule m

%fused_computation (p: f32[10,3]) -> f32[10,3] {
  ROOT %inside = f32[9999,9999]{1,0:T(8,128)} negate(%p)
}

%body (t: (f32[3])) -> (f32[3]) {
  %all-reduce.1 = (f32[10,3]{1,0:T(8,128)}, f32[3]{0:T(128)}) all-reduce(%a, %b), metadata={op_name="sum;other"}
  %x = bf16[64,100]{0,1:T(8,128)(2,1)} fusion(%c), kind=kLoop, metadata={op_name="dense/MatMul"}
}

ENTRY %main (a: f32[100,2]) -> f32[] {
  %p = f32[100,2]{1,0:T(8,128)} parameter(1), metadata={op_name="XLA_Args"}
  %moved = f32[100,2]{1,0:T(8,128)S(1)} copy-done(%p)
  %near = f32[100,8]{1,0:T(8,128)S(1)} fusion(%moved), kind=kLoop
  ROOT %last = f32[]{:T(128)} all-reduce(%y), metadata={op_name="loss"}
}
"""


def test_tensors_with_their_padding() -> None:
    found = {p.shape: (p.node, p.bytes, p.elements) for p in memory_layouts.largest(HLO)}
    assert found["f32[10,3]{1,0:T(8,128)}"] == ("sum", 16 * 128 * 4, 120)
    assert found["f32[3]{0:T(128)}"] == ("sum", 512, 12)
    assert found["bf16[64,100]{0,1:T(8,128)(2,1)}"] == ("dense/MatMul", 104 * 128 * 2, 64 * 100 * 2)
    assert not [shape for shape in found if "9999" in shape]


def test_arguments_are_among_the_largest_tensors_and_copies_of_them_are_not() -> None:
    found = memory_layouts.largest(HLO, ["count", "infeed 0"])
    largest = [("", "f32[100,8]{1,0:T(8,128)S(1)}", True), ("infeed 0", "f32[100,2]{1,0:T(8,128)}", False)]
    assert [(p.node, p.shape, p.on_chip) for p in found[:2]] == largest
    assert sum(p.shape.startswith("f32[100,2]") for p in found) == 1


def test_bytes_that_are_reduced_in_each_step() -> None:
    assert memory_layouts.collectives(HLO) == {"all-reduce": 120 + 12}


DIVIDED = """HloModule m

%all-reduce-scatter.1 (input: f32[64,256]) -> f32[8,256] {
  %all-reduce.1 = f32[64,256]{1,0:T(8,128)} all-reduce(%input), channel_id=7
}

%fused_computation.1 (p: bf16[8,256]) -> (bf16[8,256], bf16[64,256]) {
  %all-gather.1 = bf16[64,256]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=9
}

%async_collective_fusion.2 (p: bf16[8,256]) -> (bf16[8,256], bf16[64,256]) {
  %all-gather.2 = bf16[64,256]{1,0:T(8,128)(2,1)S(1)} all-gather(%p), channel_id=9
}

%body (t: (f32[3])) -> (f32[3]) {
  %all-gather.3 = f32[8,32,2]{1,2,0:T(2,128)} all-gather(%a), channel_id=1
  %all-gather.4 = (f32[4,9], f32[32,9]) all-gather-start(%b), channel_id=2
}

ENTRY %main (a: f32[100,2]) -> f32[] {
}
"""


def test_collectives_beside_fusions_count_once() -> None:
    gathered = 64 * 256 * 2 + 8 * 32 * 2 * 4 + 32 * 9 * 4
    assert memory_layouts.collectives(DIVIDED) == {"reduce-scatter": 8 * 256 * 4, "all-gather": gathered}


def test_whole_variables_that_a_core_gathers() -> None:
    shapes = {"kernel": (64, 256), "alike": (64, 256), "bias": (256,), "out": (256, 2), "turned": (9, 32)}
    assert memory_layouts.gathered(DIVIDED, shapes) == {"kernel": 64 * 256 * 2, "out": 8 * 32 * 2 * 4}


# --------------------------------------------------------------------------- ways that fit


def test_fit_tries_one_way_after_another(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiler to whose cores a step fits that has variables along ``model``."""
    limit = CHIPS["v5e"].hbm
    asked: list[str] = []

    def answer(module: Module, topology: str, layout: Layout | None) -> Compiled:
        assert layout is not None
        asked.append(str(layout.mesh))
        if "model" not in layout.mesh.axes:
            raise TooLarge(topology, "the program", 2 * limit, limit, "dense/MatMul")
        memory = dict.fromkeys(("arguments", "outputs", "aliased", "temporaries", "code"), 1)
        return Compiled(memory, {"all-gather": 2048}, {}, topology, 8, 8, 1.5, 2.0, 3.0, 5, ())

    monkeypatch.setattr(topologies, "compile_for", answer)
    assert cli.main(["compile", str(IRIS), "--topology=v5e:2x4", "--fit", "--json"]) == 0
    out, err = capsys.readouterr()
    assert asked == ["data:8", "data:8", "data:4,model:2"]
    assert err.splitlines()[-1].startswith(f"tpugraph run {IRIS} --mesh=data:4,model:2 --shard='dense/kernel")
    assert [way["fits"] for way in json.loads(out)["fit"]] == [False, False, True]
    assert json.loads(out)["fit"][-1]["cost"]["collectives"] == {"all-gather": 2048}


def test_fit_says_that_nothing_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(module: Module, topology: str, layout: Layout | None) -> Compiled:
        raise TooLarge(topology, "the program", 2**40, 2**34, None)

    monkeypatch.setattr(topologies, "compile_for", answer)
    assert cli.main(["compile", str(IRIS), "--topology=v5e:2x4", "--fit", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "too large   every device holds all variables, global batch 16:" in err
    assert "no mesh was found that fits v5e:2x4" in err
    table = json.loads(out)["fit"]
    assert all(way["cost"]["memory"]["arguments"] < 2**16 < way["cost"]["memory"]["temporaries"] for way in table)


def ways(*measures: str, rows: int = 64, devices: int = 8) -> list[str]:
    """The flags of the ways that keep these measures and go on from them."""
    shapes = {"table": (800, 16), "table/Adam": (800, 16), "up": (16, 64), "down": (64, 16), "bias": (64,)}
    held = tuple(Value("variable", name, "float32", shape) for name, shape in shapes.items())
    step = Module(b"", 1, 5, held, held), ["table"], devices, rows
    return [found.flags for more in fit.MEASURES if (found := fit.way([*measures, more], *step)) is not None]


def test_each_way_keeps_what_lowered_the_memory() -> None:
    assert ways(fit.MEASURES[1])[:2] == ["--mesh=data:8 --shard_optimizer=data"] * 2
    assert ways(*fit.MEASURES[1:3])[2:4] == [
        "--mesh=data:8 --shard='table=data,-' --shard_optimizer=data",
        "--mesh=data:4,model:2 --shard='table=data+model,-' --shard='up=-,model' --shard='down=model,-' --shard_optimizer=data",
    ]
    assert ways()[:4] == [
        "--mesh=data:8",
        "--mesh=data:8 --shard_optimizer=data",
        "--mesh=data:8 --shard='table=data,-'",
        "--mesh=data:4,model:2 --shard='table=model,-' --shard='up=-,model' --shard='down=model,-'",
    ]


def test_one_device_holds_all() -> None:
    assert ways(devices=1) == ["--mesh=data:1"]


def test_ways_divide_the_rows_of_the_batch() -> None:
    meshes = [flags.partition(" ")[0] for flags in ways(rows=4)]
    assert meshes == ["--mesh=data:4"] * 3 + ["--mesh=data:4,model:2", "--mesh=data:2,model:4", "--mesh=data:1,model:8"]


def test_compile_says_how_variables_lie(command: Command) -> None:
    flags = (
        "--topology=v5e:2x4",
        "--mesh=data:2,model:2",
        "--shard=dense(_1)?/kernel=-,model",
        "--shard_optimizer=data",
    )
    said = command("compile", IRIS, *flags).out
    assert "variables   2 sharded -,model, 280 bytes per core, the largest 'dense_1/kernel' [10, 10]" in said
    assert "variables   2 sharded data,model, 140 bytes per core, the largest 'dense_1/kernel/Adagrad' [10, 10]" in said
    found = command.json("compile", IRIS, *flags)["sharded"]
    assert found["dense/kernel/Adagrad"] == [["data"], ["model"]]
    assert "dense/bias" not in found
