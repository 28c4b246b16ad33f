"""The input of several hosts: the rows of one host, at one position, wherever training is resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_function
from workers import Workers

import estimators
import tpugraph
from models import corpus
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession
from tpugraph.testing import Training

pytestmark = pytest.mark.slow

tf1 = tf.compat.v1
IRIS = corpus("iris_dnn")


@pytest.fixture(scope="module")
def program() -> Any:
    return convert(IRIS.graph(), num_replicas=16, iterations_per_loop=4)


def in_two_parts(program: Any, folder: Path, first: Any, second: Any) -> tuple[Training, list[str]]:
    """Eight steps, saved, and eight more in another session, and what the sessions noted."""
    with IRIS.session(program, cluster=first) as session:
        losses = session.train(8)
        saved = session.save(folder / "model.ckpt")
        notes = session.notes
    with TPUSession(program, cluster=second) as session:
        session.restore(saved)
        return Training(losses + session.train(8), session.values()), notes + session.notes


def test_training_resumed_in_the_midst_of_the_data_is_the_same_to_the_bit(program: Any, two: Workers,
                                                                          tmp_path: Path) -> None:  # fmt: skip
    wanted = IRIS.trained(program, 16, cluster=two.addresses)
    found, notes = in_two_parts(program, tmp_path, two.addresses, two.addresses)
    testing.assert_same_training(found, wanted, relative=0, absolute=0)
    assert notes == []


@pytest.mark.parametrize("from_one", [True, False])
def test_one_host_and_two_go_on_from_each_other(from_one: bool, program: Any, two: Workers, tmp_path: Path) -> None:
    found, notes = in_two_parts(program, tmp_path, *((None, two.addresses) if from_one else (two.addresses, None)))
    np.testing.assert_allclose(found.losses, IRIS.trained(program, 16).losses, rtol=1e-5)
    assert notes == []


def test_inputs_of_each_worker_go_on_where_they_were(two: Workers, tmp_path: Path) -> None:
    def input_fn(params: dict[str, Any]) -> Any:
        context = params["context"]
        return estimators.dataset(params["batch_size"]).shard(context.num_hosts, context.current_host)

    where = tpugraph.TPUClusterResolver(",".join(f"grpc://{address}" for address in two.addresses))
    for _ in range(2):
        made = estimators.estimator(tmp_path, cores=16, rows=64, loop=3, save_summary_steps=1, cluster=where)
        made.train(input_fn, steps=3)
        made.close()
    losses = estimators.losses_in(tmp_path)
    np.testing.assert_allclose([losses[s] for s in sorted(losses)], estimators.by_hand(6, rows=64)[0], rtol=1e-5)


FORMS = {"by number": (), "batched": ("read_by_number",), "one by one": ("read_by_number", "read_batched")}


@pytest.fixture(scope="module")
def shuffled() -> Any:
    """The mean of 64 shuffled numbers, which is a step of all cores, as the loss of a program that combines its replicas."""
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_tensor_slices(np.arange(64, dtype=np.float32)).shuffle(64).repeat()
        rows = tf1.data.make_initializable_iterator(data.batch(4, drop_remainder=True))
        weight = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        loss = tf.reduce_mean(weight * rows.get_next())
        optimizer = tpugraph.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.0))
        with tpu_function.tpu_shard_context(16):
            optimizer.minimize(loss, global_step=tf1.train.get_or_create_global_step())
        tf1.summary.scalar("loss", loss)
        return convert(graphdef.from_graph_def(graph.as_graph_def(add_shapes=True)), num_replicas=16,
                       iterations_per_loop=3)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_all_hosts_together_read_each_row_once(form: str, shuffled: Any, two: Workers,
                                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A shuffle without a seed is drawn for all hosts: else their shares would overlap."""
    for name in FORMS[form]:
        monkeypatch.setattr(f"tpugraph.runtime.emulator.reads.{name}", lambda *_: None)
    with TPUSession(shuffled, cluster=two.addresses) as session:
        assert list(session.train(6)) == [31.5] * 6
