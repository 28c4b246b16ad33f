"""The pass shard-tables: each core holds some rows of a large table, and trains as if each held all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from evaluating import take

import tpugraph
from closeness import assert_close
from models import assert_same_on_cores, batches, check, finish, saved, tf1, trace, variable
from tpugraph import testing
from tpugraph.cli.command_line import main
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.passes.shard_tables import ShardTables
from tpugraph.runtime.emulator.emulation import lower
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.pjrt import bundling
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.support.errors import RunError
from tpugraph.tables.sharding import ShardedTables
from tpugraph.testing import tensor_comparison
from tpugraph.tpu.program import Program
from tpugraph.xla import stablehlo

TWO = {"num_replicas": 2, "shard_tables": 40}
WORDS, WIDTH, ROWS, STEPS = 103, 3, 24, 4
LEAST = 4 * WORDS * WIDTH
"""Bytes of the table: it is just large enough."""

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.3),
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.3),
    "adam": lambda: tf1.train.AdamOptimizer(0.05, epsilon=1e-3),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "ftrl": lambda: tf1.train.FtrlOptimizer(0.3),
}


def model(
    rows: int, optimizer: str = "adagrad", *, beside: Callable[[Any], Any] | None = None, words: int = WORDS
) -> Any:
    """Two words of each example, which many examples have in common, and in ``beside`` what else the loss has of the table."""
    random = np.random.default_rng(2)
    data = random.integers(0, words, (96, 2)) ** 2 // words, random.normal(size=96).astype(np.float32)
    numbers, targets = batches((data[0].astype(np.int32), data[1]), rows)
    table = variable("table", (words, WIDTH))
    predicted = tf.reduce_sum(tf.nn.embedding_lookup(table, numbers) * variable("w", (WIDTH,)), [1, 2])
    loss = tf.reduce_mean(tf.square(predicted - targets))
    return finish(loss if beside is None else loss + beside(table), OPTIMIZERS[optimizer]())


def converted(
    cores: int, build: Callable[[], Any] = lambda: model(ROWS), *, resource: bool = True, **options: Any
) -> Program:
    chosen = {"shard_tables": LEAST, "iterations_per_loop": 2} | options
    return convert(trace(build, resource=resource), num_replicas=cores, **chosen)


@pytest.fixture(scope="module")
def eight() -> Program:
    return converted(8)


@pytest.fixture(scope="module")
def trained(eight: Program, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, testing.Training]:
    """A checkpoint of eight cores that trained, and the same training by TensorFlow alone."""
    with tpugraph.TPUSession(eight) as session:
        session.initialize()
        session.train(STEPS)
        prefix = session.save(tmp_path_factory.mktemp("eight") / "model.ckpt")
    return prefix, testing.run_plain(trace(lambda: model(ROWS), resource=True), steps=STEPS)


def test_golden_step() -> None:
    graph = check(ShardTables(**TWO), "step", **TWO)
    table = graph.result(ShardedTables).tables["table"]
    assert (table.rows, table.rows_per_core, table.bytes_per_core, table.bytes) == (5, 3, 4 * 2 * 4, 5 * 2 * 4)


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("optimizer", "cores", "resource"),
    [("sgd", 2, True), ("adam", 3, True), ("adam", 2, False), ("momentum", 8, False), ("ftrl", 2, True)],
)
def test_shards_train_as_the_whole_table_does(optimizer: str, cores: int, *, resource: bool) -> None:
    """Rows of the optimizer that no core is asked for are left alone: momentum and Adam would show it."""
    assert_same_on_cores(lambda rows: model(rows, optimizer), cores=cores, steps=STEPS, resource=resource,
                                     shard_tables=LEAST)  # fmt: skip


@pytest.mark.parametrize("queues", [False, True], ids=["one loop", "queues"])
def test_eight_cores_and_queues(eight: Program, trained: tuple[str, testing.Training], *, queues: bool) -> None:
    with tpugraph.TPUSession(eight, queues=queues) as session:
        session.initialize()
        assert_close(np.asarray(session.train(STEPS)), np.asarray(trained[1].losses), 1e-5)
        values = session.values()
    assert values.keys() == {"table", "table/Adagrad", "w", "w/Adagrad", "global_step"}
    for name, value in values.items():
        assert_close(value, trained[1].variables[name], 1e-5)


def test_devices_hold_the_shards(eight: Program, trained: tuple[str, testing.Training], tmp_path: Path) -> None:
    """The engine of compiled loops: restored, trained, saved and restored by the emulator."""
    prefix, _ = trained
    with tpugraph.TPUSession(eight, engine="pjrt", platform="cpu") as session:
        session.restore(prefix)
        losses = session.train(STEPS)
        again = session.save(tmp_path / "model.ckpt")
        values = session.values()
    with tpugraph.TPUSession(eight) as session:
        session.restore(prefix)
        assert_close(np.asarray(losses), np.asarray(session.train(STEPS)), 1e-5)
        for name, value in session.values().items():
            assert_close(values[name], value, 1e-5)
            assert_close(tf.train.load_checkpoint(again).get_tensor(name), value, 1e-5)


def test_small_tables_and_one_core_have_no_shards() -> None:
    program = converted(1)
    assert not program.report["tables"]["sharded"]
    assert not [node for node in program.graph_def.node if "shard" in node.name]
    program = converted(2, shard_tables=LEAST + 1)
    assert program.report["tables"] == {"least_bytes": LEAST + 1, "sharded": {}, "whole": {}}


# ------------------------------------------------------------------ checkpoints


def test_a_checkpoint_has_the_table_whole(trained: tuple[str, testing.Training]) -> None:
    """TensorFlow alone reads it, under its own name."""
    prefix, plain = trained
    reader = tf.train.load_checkpoint(prefix)
    for name, value in plain.variables.items():
        assert_close(reader.get_tensor(name), value, 1e-5)
    with tf.Graph().as_default(), tf1.Session() as session:
        table = tf1.get_variable("table", (WORDS, WIDTH))
        tf1.train.Saver([table]).restore(session, prefix)
        assert_close(session.run(table), plain.variables["table"], 1e-5)


@pytest.mark.parametrize("cores", [1, 3])
def test_other_cores_go_on_from_it(trained: tuple[str, testing.Training], tmp_path: Path, cores: int) -> None:
    """Whole on one core, or in shards of other sizes; and back."""
    prefix, plain = trained
    with tpugraph.TPUSession(converted(cores)) as session:
        assert session.restore(prefix) == STEPS
        for name, value in session.values().items():
            assert_close(value, plain.variables[name], 1e-5)
        again = session.save(tmp_path / "model.ckpt")
    first, second = (tf.train.load_checkpoint(path) for path in (prefix, again))
    for name in plain.variables:
        assert np.array_equal(first.get_tensor(name), second.get_tensor(name))


def test_values_are_set_and_read_whole(eight: Program) -> None:
    value = np.arange(WORDS * WIDTH, dtype=np.float32).reshape(WORDS, WIDTH)
    with tpugraph.TPUSession(eight) as session:
        session.initialize()
        session.assign({"table": value})
        assert np.array_equal(session.value("table"), value)
        assert "table/shard_0" not in session.variable_names()
        with pytest.raises(RunError, match=r"\[104,3\]"):
            session.assign({"table": np.zeros((WORDS + 1, WIDTH), np.float32)})


# ------------------------------------------------------------------ what is said, what is left alone


def test_what_is_reported_and_inspected(eight: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = eight.report["tables"]["sharded"]["table"]
    assert found["variables"] == ["table", "table/Adagrad"]
    assert found["bytes_per_core"] == 2 * 14 * WIDTH * 4  # thirteen rows, and one for those of other cores
    assert found["sum_bytes"] == ROWS * 2 * 4 * (1 + WIDTH)  # ids, and rows
    assert eight.report["variables"].keys() == {"table", "table/Adagrad", "w", "w/Adagrad", "global_step"}
    assert eight.report["trained"] == ["w", "table"]
    assert (
        "sharded     table and 1 variable of the optimizer: 103 rows, 13 on each of 8 cores, 336 bytes of 2,472; lookups take "
        "2 sums, 768 bytes per step"
    ) in eight.summary()
    path = saved(trace(lambda: model(ROWS), resource=True), tmp_path)
    assert main(["inspect", str(path), "--why=table", f"--shard_tables={LEAST}"]) == 0
    assert "\n  lives     sharded: each of 8 cores holds 13 rows\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "said"),
    [(WORDS, "103"), (-1, "-1"), (2**32 + 1, "2147483647 or more"), (-(2**40), "-2147483648 or less")],
)
def test_a_number_of_no_row_is_refused_as_the_whole_table_refuses_it(number: int, said: str) -> None:
    """Even one that is the number of a row once cores have exchanged it in 32 bits."""

    def build() -> None:
        numbers, targets = batches((np.full((ROWS, 2), number, np.int64), np.zeros(ROWS, np.float32)), ROWS)
        found = tf.nn.embedding_lookup(variable("table", (WORDS, WIDTH)), numbers)
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(found, [1, 2]) - targets)), OPTIMIZERS["sgd"]())

    with tpugraph.TPUSession(converted(2, build)) as session:
        session.initialize()
        with pytest.raises(RunError, match=rf"indices\[0,0\] = {said} is not in \[0, 103\)"):
            session.train(1)


def in_branch(table: Any) -> Any:
    positive = tf.reduce_sum(tf.nn.embedding_lookup(table, [0])) > 0
    rows = tf1.cond(positive, lambda: tf.nn.embedding_lookup(table, [1, 2]), lambda: tf.ones((2, WIDTH)))
    return tf.reduce_sum(rows)


def of_halves(table: Any) -> Any:
    other = tf1.get_variable("halves", initializer=tf.ones((WORDS, 2 * WIDTH), tf.float16))
    found = tf.cast(tf.reduce_sum(tf.nn.embedding_lookup(other, [3])), tf.float32)
    return found + tf.reduce_sum(tf.nn.embedding_lookup(table, [0]))


USED_WHOLE: list[Any] = [
    (tf.nn.l2_loss, WORDS, "table", "'L2Loss' (L2Loss) reads it whole"),
    (lambda table: tf.reduce_sum(table * np.ones((WORDS, WIDTH), np.float32)), WORDS, "table", "'Sum_1' (Sum) reads it whole"),
    (in_branch, WORDS, "table", "'cond/embedding_lookup/Switch' (Switch) uses it within a loop or a branch"),
    (of_halves, WORDS, "halves", "rows of float16 cannot be summed over cores, or not be read from slices of a checkpoint"),
    (None, 9, "table", "its 9 rows leave one of 8 cores without any"),
]  # fmt: skip


@pytest.mark.parametrize(("beside", "words", "table", "why"), USED_WHOLE)
def test_what_is_used_whole_stays_whole(beside: Any, words: int, table: str, why: str) -> None:
    program = converted(8, lambda: model(ROWS, beside=beside, words=words), shard_tables=8)
    found = program.report["tables"]
    assert table not in found["sharded"]
    assert found["whole"][table] == why
    assert f"not sharded {table}: {why}" in program.summary()


@pytest.mark.parametrize(
    ("made", "why", "rows"),
    [
        (lambda table: 2 * table, "'gradients/mul_grad/Sum' (Sum) reads it whole", [0, 2]),
        (lambda table: tf.concat([tf.zeros([1, WIDTH]), table[1:]], 0), "'strided_slice' (StridedSlice) reads it whole", None),
    ],
    ids=["scaled", "with a row of zeros"],
)  # fmt: skip
def test_a_table_of_which_what_is_looked_up_is_made_is_named(made: Any, why: str, rows: list[int] | None) -> None:
    """And no other large variable, though rows are taken of what it makes of the batch."""

    def build() -> None:
        numbers, targets = batches((np.full((96, 2), 3, np.int64), np.zeros(96, np.float32)), ROWS)
        found = tf.nn.embedding_lookup(made(variable("table", (WORDS, WIDTH))), numbers)
        layer = tf.reduce_sum(found, 1) @ variable("layer", (WIDTH, 2 * WORDS))
        layer = layer if rows is None else tf.gather(layer, rows)
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(layer) - targets)), OPTIMIZERS["sgd"]())

    assert converted(2, build).report["tables"]["whole"] == {"table": why}


def test_workers_processes_and_bundles_share_no_tables(eight: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(("/job:worker/task:0", "/job:worker/task:1"), 8)
    with pytest.raises(RunError, match="the cores share the rows of 'table', and workers share none"):
        lower(graphdef.from_graph_def(eight.graph_def), hosts=hosts)
    module = stablehlo.lower(graphdef.from_graph_def(eight.graph_def))
    monkeypatch.setattr(Devices, "processes", 2)
    with pytest.raises(RunError, match="the cores share the rows of 'table', and no process has all of them"):
        Devices(module)
    with pytest.raises(
        RunError, match="the cores share the rows of the table 'table', and a bundle has every variable whole"
    ):
        bundling.make(eight)


@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_shards_are_evaluated_and_predict(mode: str) -> None:
    """Nineteen rows are two batches of twelve on three cores, the second of which is not full."""
    ids = np.random.default_rng(4).integers(0, WORDS, (19, 2)).astype(np.int64)

    def build() -> None:
        rows = take((ids, np.zeros(19, np.float32)), 12)
        score = tf.reduce_sum(tf.gather(variable("table", (WORDS, WIDTH)), rows[0]), [1, 2], name="score")
        tf1.metrics.mean(tf.exp(score) - rows[1], name="mean")

    named = {"predictions": {"score": "score:0"}} if mode == "predict" else {}
    graphs = [converted(cores, build, mode=mode, shard_tables=least, **named) for cores, least in ((1, 0), (3, LEAST))]
    assert "sharded     table: 103 rows" in graphs[1].summary()
    found = []
    for program in graphs:
        with tpugraph.TPUSession(program) as session:
            session.initialize()
            found.append(
                list(session.evaluate().values()) if mode == "eval" else [row["score"] for row in session.predict()]
            )
    assert_close(*(np.concatenate([np.ravel(part) for part in parts]) for parts in found), 1e-6)


def test_the_tensors_of_a_step_with_shards_are_those_of_the_plain_graph() -> None:
    graph = trace(lambda: model(ROWS), resource=True)
    found = tensor_comparison.compare(graph, engines=("plain", "emulator"), steps=1, num_replicas=2, shard_tables=LEAST)
    assert not found.differences
    assert len(found.compared) > 20
