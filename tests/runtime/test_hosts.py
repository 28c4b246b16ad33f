"""Many hosts: worker processes that share the cores give what one host with as many cores gives."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from forked import Programs
from workers import Workers, workers

import estimators
import tpugraph
from closeness import assert_close
from command_line import Command
from models import corpus
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.runtime import masters
from tpugraph.runtime.masters import host_devices, reach
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.workers import WorkerJob, answers, cluster_of, serve
from tpugraph.testing import Training

pytestmark = pytest.mark.slow

IRIS = corpus("iris_dnn")
LOST = r"worker 1 \(grpc://127\.0\.0\.1:\d+\) was lost"


def trained(where: dict[str, Any], folder: Path, steps: int = 6, **options: Any) -> tuple[list[float], np.ndarray]:
    made = estimators.estimator(folder, cores=16, rows=64, loop=3, save_summary_steps=1, **where, **options)
    made.train(estimators.input_fn, steps=steps)
    made.close()
    losses = estimators.losses_in(folder)
    return [losses[step] for step in sorted(losses)], made.get_variable_value("w")


def resolver(running: Workers) -> Any:
    return tpugraph.TPUClusterResolver(",".join(f"grpc://{address}" for address in running.addresses))


@pytest.fixture(scope="module")
def program() -> Any:
    return convert(IRIS.graph(), num_replicas=16, iterations_per_loop=4)


def test_a_program_gives_what_one_host_gives(program: Any, two: Workers) -> None:
    wanted = IRIS.trained(program, 10)
    with IRIS.session(program, cluster=two.addresses) as session:
        assert (session.num_hosts, session.num_replicas) == (2, 16)
        found = Training(session.train(10), session.values())
        testing.assert_same_training(found, wanted, relative=1e-4, absolute=1e-6)
        np.testing.assert_allclose(found.losses, wanted.losses, rtol=1e-5)
        assert session.notes == []


@pytest.mark.parametrize("form", ["cluster", "master"])
def test_an_estimator_on_two_workers(form: str, two: Workers, tmp_path: Path, said: list[str]) -> None:
    where = {"cluster": resolver(two)} if form == "cluster" else {"master": f"grpc://{two.addresses[0]}"}
    losses, weights = trained(where, tmp_path)
    assert "global batch 64 = 16 cores x 4 on 2 workers" in said
    wanted, by_hand = estimators.by_hand(6, rows=64)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert_close(weights[:, 0], by_hand, 1e-5)


def test_each_worker_is_asked_for_its_own_input(two: Workers, tmp_path: Path) -> None:
    seen = []

    def input_fn(params: dict[str, Any]) -> Any:
        context = params["context"]
        seen.append((params["batch_size"], context.current_host, context.num_hosts, context.num_of_replicas_per_host))
        return estimators.dataset(params["batch_size"]).shard(context.num_hosts, context.current_host)

    made = estimators.estimator(tmp_path, cores=16, rows=64, loop=3, save_summary_steps=1, cluster=resolver(two))
    made.train(input_fn, steps=6)
    made.close()
    assert seen == [(32, 0, 2, 8), (32, 1, 2, 8)]
    losses = estimators.losses_in(tmp_path)
    np.testing.assert_allclose([losses[s] for s in sorted(losses)], estimators.by_hand(6, rows=64)[0], rtol=1e-5)


def test_the_commands(two: Workers, command: Command) -> None:
    """Two processes of `tpugraph worker`, and a `tpugraph run` that uses them."""
    them = f"--workers={','.join(two.addresses)}"
    found = command.json("run", IRIS.folder / "model.pb", "--num_replicas=8", "--iterations_per_loop=6", "--steps=12",
                         f"--checkpoint={IRIS.checkpoint}", them)  # fmt: skip
    wanted = IRIS.losses("plain")
    assert [found["first_loss"], found["last_loss"]] == pytest.approx([wanted[0], wanted[11]], rel=1e-3)


def test_a_worker_that_dies_is_named_and_training_resumes(program: Any, tmp_path: Path, new_process: Programs,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    with workers(new_process, 2) as running:
        options = {"save_checkpoints_steps": 3, "save_checkpoints_secs": None}
        made = estimators.estimator(tmp_path, cores=16, rows=64, loop=3, cluster=resolver(running), **options)
        made.train(estimators.input_fn, steps=3)
        threading.Timer(2.0, running.kill, [1]).start()
        began = time.monotonic()
        with pytest.raises(tpugraph.RunError, match=LOST):
            made.train(estimators.input_fn, steps=1_000_000)
        assert time.monotonic() - began < 30
        reached = int(str(made.latest_checkpoint()).rpartition("-")[2])
        running.start(1)
        made.train(estimators.input_fn, steps=3)
        assert made.get_variable_value("global_step") == reached + 3
        made.close()
        monkeypatch.setattr("tpugraph.runtime.workers.ANSWER_SECONDS", 1.0)
        with TPUSession(program, cluster=running.addresses) as session:
            session.train(4)
            running.freeze(1)  # it hangs
            with pytest.raises(tpugraph.RunError, match=r"worker 1 .* was lost"):
                session.train(4)
            with pytest.raises(tpugraph.RunError, match="has lost a worker"):
                session.train(4)


def test_a_worker_that_dies_while_the_session_begins_is_named(
    program: Any, new_process: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow waits for good for a worker that goes between the question who is there and the first graph."""
    begin = masters.Master.session

    def killed_first(*arguments: Any, **named: Any) -> Any:
        running.kill(1)
        return begin(*arguments, **named)

    monkeypatch.setattr(masters.Master, "session", killed_first)
    began = time.monotonic()
    with workers(new_process, 2) as running, pytest.raises(tpugraph.RunError, match=LOST):
        TPUSession(program, cluster=running.addresses)
    assert time.monotonic() - began < 30


def test_clusters_that_cannot_run(program: Any, two: Workers) -> None:
    with pytest.raises(tpugraph.RunError, match=r"worker 1 \(grpc://127.0.0.1:9\) of 2 does not answer"):
        TPUSession(program, cluster=[two.addresses[0], "127.0.0.1:9"], reach_seconds=0.1)
    with pytest.raises(tpugraph.RunError, match=r"has 1 workers, but .* knows of 2"):
        TPUSession(program, cluster=two.addresses[:1])
    with pytest.raises(tpugraph.RunError, match="3 cores cannot be divided evenly among 2 workers"):
        TPUSession(convert(IRIS.graph(), num_replicas=3, global_batch=33), cluster=two.addresses)


def test_forms_of_a_cluster_and_its_hosts() -> None:
    wanted = WorkerJob("worker", ("a:1", "b:2"))
    assert cluster_of(["grpc://a:1", "b:2"]) == wanted
    assert cluster_of({"worker": ["a:1", "b:2"]}) == wanted
    assert cluster_of(tf.train.ClusterSpec({"worker": ["a:1", "b:2"]})) == wanted
    assert cluster_of(None) is None
    assert (wanted.master, wanted.name(1), wanted.name(2)) == ("grpc://a:1", "worker 1 (grpc://b:2)", "worker 2")
    for bad in ({}, [], 3):
        with pytest.raises(tpugraph.UsageError):
            cluster_of(bad)
    tasks = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (1, 0)]
    assert host_devices([*tasks, "/job:worker/replica:0/task:0/device:GPU:0"]) == tuple(reversed(tasks))
    assert host_devices(["/job:localhost/replica:0/task:0/device:CPU:0"]) == ()
    assert reach("", None).hosts == 1
    assert not answers("127.0.0.1:9", 0.2)
    assert not answers("no address", 0.2)
    with pytest.raises(tpugraph.UsageError, match="no worker 2 among 2"):
        serve(["a:1", "b:2"], 2)
