"""Sessions run graphs with TPU ops on emulated cores; every result is held against NumPy."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import replica_id
from tensorflow.python.tpu import device_assignment, topology, training_loop
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow.python.tpu.tpu_feed import InfeedQueue

from closeness import assert_close
from tpugraph.compat import v1
from tpugraph.compat.import_hook import tensorflow_1
from tpugraph.estimator.tpu_serving import inference_on_tpu
from tpugraph.runtime.tpu_op_fallback import SCOPE
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
CORES = 4


@pytest.fixture
def graph() -> Iterator[Any]:
    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture(params=["v1", "v2"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[None]:
    """Loops as TensorFlow 1 and as TensorFlow 2 writes them."""
    before = tf1.control_flow_v2_enabled()
    (tf1.enable_control_flow_v2 if request.param == "v2" else tf1.disable_control_flow_v2)()
    yield
    (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()


def weights(shape: list[int], start: float = 1.0) -> Any:
    return tf1.get_variable("w", shape, use_resource=True, initializer=tf1.constant_initializer(start))


def test_shards_and_rewrites_beside_each_other(graph: Any) -> None:
    x = tf1.placeholder(tf.float32, [4, 3])

    def step(rows: Any) -> tuple[Any, Any]:
        product = tf.matmul(rows, weights([3, 2]))
        return product, tpu_ops.cross_replica_sum(tf.reduce_sum(product))

    rows, total = tf1.tpu.shard(step, [x], num_shards=2, outputs_from_all_shards=[True, False])
    text = tf.as_string(total, name="text")
    with v1.Session() as session:
        session.run(tf1.global_variables_initializer())
        system = session.run(tf1.tpu.initialize_system())
        assert topology.Topology(system).num_tpus_per_task == 8
        found = session.run({"rows": rows, "text": ["text:0", text]}, {x: ROWS})
        assert_close(found["rows"], ROWS.sum(1, keepdims=True) * [1, 1], 1e-6)
        assert found["text"] == [b"132.000000"] * 2
        doubled = tf1.tpu.rewrite(lambda value: value * 2, [total])  # more of the graph, after the first run
        assert session.run(doubled, {x: ROWS}) == [264.0]
        call = session.make_callable(doubled, [x])
        assert call(ROWS + 1) == [312.0]
        assert session.run(doubled, {total: 5.0}) == [10.0]
        session.run(tf1.tpu.shutdown_system())


def training(steps: int) -> tuple[Any, Any, list[Any]]:
    """Placeholders of a batch with the op that feeds it, the loop of some steps, and what reads the losses of one."""
    queue = InfeedQueue(tuple_types=[tf.float32, tf.float32], tuple_shapes=[[8, 3], [8]])
    queue.set_number_of_shards(CORES)

    def step(_: Any, rows: Any, wanted: Any) -> Any:
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(rows, weights([3], 0.0)) - wanted))
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1))
        with tf.control_dependencies([optimizer.minimize(loss),
                                      tpu_ops.outfeed_enqueue_tuple([tf.reshape(loss, [1])])]):  # fmt: skip
            return tf.identity(loss)

    last = tf1.tpu.shard(lambda: training_loop.repeat(steps, step, [0.0], infeed_queue=queue), num_shards=CORES)
    batch = [tf1.placeholder(tf.float32, [8, 3]), tf1.placeholder(tf.float32, [8])]
    parts = [list(part) for part in zip(*(tf.split(tensor, CORES) for tensor in batch), strict=True)]
    enqueue = queue.generate_enqueue_ops(parts, tpu_ordinal_function=lambda core: core)
    losses = [tpu_ops.outfeed_dequeue_tuple([tf.float32], [[1]], device_ordinal=core)[0] for core in range(CORES)]
    return (batch, enqueue), last, losses


@pytest.mark.usefixtures("control_flow")
def test_a_loop_of_steps_with_infeed_and_outfeed(graph: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    wanted = rows @ np.float32([1, 2, 3])
    plain, expected = np.zeros(3), []
    for _ in range(5):
        error = rows @ plain - wanted
        expected.append(np.square(error).reshape(CORES, 2).mean(1))
        plain -= 0.1 * 2 / 8 * rows.T @ error
    with v1.Session(config=tf1.ConfigProto(operation_timeout_in_ms=20_000)) as session:
        for scope in ("first", "second"):  # the second is made when the first has been run
            with tf1.variable_scope(scope):
                (batch, enqueue), last, losses = training(steps=5)
            session.run(tf1.global_variables_initializer())
            feed = dict(zip(batch, (rows, wanted), strict=True))
            feeder = threading.Thread(target=lambda feed=feed,
                                      enqueue=enqueue: [session.run(enqueue, feed) for _ in range(5)])  # fmt: skip
            feeder.start()
            at_last = session.run(last)
            feeder.join()
            by_step = np.asarray([session.run(losses) for _ in range(5)])[:, :, 0]
            assert_close(session.run(graph.get_tensor_by_name(f"{scope}/w/Read/ReadVariableOp:0")), plain, 1e-5)
            assert_close(by_step, expected, 1e-5)
            assert_close(at_last[0] if len(at_last) == 1 else at_last, by_step[-1], 1e-6)


@pytest.mark.usefixtures("control_flow")
def test_a_loop_of_the_host_feeds_a_core(graph: Any) -> None:
    """The loop that waits for the feed gets a counterpart as a whole; the graph may be finalized."""

    def fed(turn: Any) -> Any:
        with tf.control_dependencies([tpu_ops.infeed_enqueue(tf.cast(turn, tf.float32), shape=[], device_ordinal=0)]):
            return turn + 1

    turns = tf1.while_loop(lambda turn: turn < 3, fed, [0])
    taken = tf1.tpu.rewrite(lambda: sum(tpu_ops.infeed_dequeue(tf.float32, []) for _ in range(3)))
    graph.finalize()
    with v1.Session(config=tf1.ConfigProto(operation_timeout_in_ms=20_000)) as session:
        assert session.run(turns) == 3
        assert session.run(taken) == [3.0]
    assert graph.finalized


@pytest.mark.parametrize("most", [None, 2])
def test_served_calls_compute_what_plain_ones_do(graph: Any, most: int | None) -> None:
    x = tf1.placeholder(tf.float32, [None, 3])
    table = weights([3, 2], 2.0)
    served = inference_on_tpu(lambda rows: tf.matmul(rows, table), [x], 1, most, 100)
    text = tf.as_string(served)
    with v1.Session() as session:
        session.run(tf1.global_variables_initializer())
        found, texts = session.run([served, text], {x: ROWS})
    assert_close(found, ROWS @ np.full((3, 2), 2.0), 1e-6)
    assert texts[0].tolist() == [b"6.000000", b"6.000000"]


def test_a_plain_graph_stays_as_it_is(graph: Any) -> None:
    total = tf.reduce_sum(tf1.placeholder_with_default(ROWS, [4, 3], name="x"))
    session = v1.InteractiveSession()
    try:
        assert session.run([total, "x:0"])[0] == 66.0
        assert session.make_callable(total)() == 66.0
        assert total.eval() == 66.0
    finally:
        session.close()
    assert not [op.name for op in graph.get_operations() if op.name.startswith(SCOPE)]


def optimised(session: Any, fetch: Any) -> bool:
    """Whether TensorFlow folds constants of what a session runs."""
    options, metadata = tf1.RunOptions(output_partition_graphs=True), tf1.RunMetadata()
    session.run(fetch, options=options, run_metadata=metadata)
    return not any(node.op == "AddV2" for part in metadata.partition_graphs for node in part.node)


def test_a_plain_graph_is_optimised_and_one_with_tpu_ops_runs(graph: Any) -> None:
    with v1.Session() as plain, v1.Session() as empty:
        assert optimised(plain, tf.constant(2.0) + 3.0)
        rewritten = tf1.tpu.rewrite(lambda: tf.constant(2.0) * 3.0)
        assert empty.run(rewritten) == [6.0]  # made before the graph had a TPU op, and run after
        with pytest.raises(RunError,
                           match=r"its first TPU op after this session had run without[^.]*\n.*before the first run"):  # fmt: skip
            plain.run(rewritten)


def test_sessions_that_tensorflow_opens_run_tpu_ops(graph: Any, tmp_path: Path) -> None:
    """With checkpoints, hooks and a step counter, as a program trains by hand."""
    step = tf1.train.get_or_create_global_step()

    def train() -> Any:
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.5))
        with tf.control_dependencies([optimizer.minimize(tf.reduce_sum(weights([2])), global_step=step)]):
            return tf.constant(0)

    trained = tf1.tpu.shard(train, num_shards=2)
    for wanted in (2, 4):
        hooks = [v1.train.StopAtStepHook(last_step=wanted)]
        with v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
            while not session.should_stop():
                session.run(trained)
    found = tf.train.load_checkpoint(str(tmp_path))
    assert found.get_tensor("global_step") == 4
    assert_close(found.get_tensor("w"), [-1.0, -1.0], 1e-6)


def test_what_is_not_emulated_is_named(graph: Any) -> None:
    cores = np.asarray([[[x, 0, 0, core] for x in range(2) for core in range(2)]], np.int32).reshape(1, 4, 4)
    mesh = topology.Topology(mesh_shape=np.int32([2, 1, 1, 2]), device_coordinates=cores)
    of_two = device_assignment.device_assignment(mesh, [1, 1, 1, 2], num_replicas=2)
    total = tf1.tpu.replicate(lambda x: x + 1, [[1.0], [2.0]], device_assignment=of_two)
    with v1.Session() as session, pytest.raises(RunError, match="a replica that spans several cores is not emulated"):
        session.run(total)


def test_programs_get_it_under_both_names() -> None:
    with tensorflow_1():
        names = {"__name__": "__main__"}
        exec("from tensorflow.python.client import session\nimport tensorflow as tf", names)
    assert names["session"].Session is names["tf"].Session is v1.Session is tf1.Session


def test_a_process_with_an_estimator_runs_tpu_ops_in_any_session() -> None:
    """In a process of its own, which imports nothing of the module tree."""
    program = """
        import tensorflow as tf, tpugraph
        from tensorflow.python.tpu import tpu
        tf1 = tf.compat.v1
        with tf.Graph().as_default():
            with tf1.Session() as before:
                assert before.run(tf.constant(1)) == 1
                tpugraph.TPUEstimator(lambda features, params: None, config=tpugraph.RunConfig(), train_batch_size=8)
                before.run(tf.constant(2))
        with tf.Graph().as_default(), tf1.Session() as session:
            found = tf1.tpu.shard(lambda x: tf1.tpu.cross_replica_sum(tf.reduce_sum(x)), [tf.ones([4, 3])], num_shards=4)
            assert session.run(found)[0].tolist() == [12.0] * 4, session.run(found)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300)


def test_the_number_of_a_core_is_refused_where_there_is_none(graph: Any) -> None:
    number = replica_id()
    with v1.Session() as session, pytest.raises(RunError, match="XlaReplicaId is the number of a core"):
        session.run(number)
