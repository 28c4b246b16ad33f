"""Several processes, joined by jax.distributed on the loopback interface, train to the same variables as one."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from forked import Programs
from workers import free_ports

from models import corpus
from tpugraph.compiler import convert
from tpugraph.runtime.pjrt import processes as joining
from tpugraph.support.errors import RunError, UsageError

pytestmark = pytest.mark.slow


IN_ENVIRONMENT = (
    "import os, sys, json; os.environ |= json.loads(sys.argv.pop(1)); from tpugraph import cli; sys.exit(cli.main())"
)


def cluster(kind: str, port: int, process: int) -> dict[str, str]:
    """What a cluster says to one of two processes of a job, which are on this machine."""
    own = {"slurm": {"JOB_ID": "7", "STEP_NODELIST": "localhost,b[01-02]", "NTASKS": "2", "PROCID": str(process), "LOCALID": "0"},
           "ompi": {"MCA_orte_hnp_uri": "61440.0;tcp://127.0.0.1:1", "COMM_WORLD_SIZE": "2", "COMM_WORLD_RANK": str(process),
                    "COMM_WORLD_LOCAL_RANK": str(process)}}[kind]  # fmt: skip
    return {**{f"{kind.upper()}_{name}": value for name, value in own.items()}, "JAX_COORDINATOR_PORT": str(port)}


def train_in_processes(new_process: Programs, words: list[str], by: str, folder: Path) -> list[dict]:
    [port], running = free_ports(1), []
    for process in range(2):
        own = [*words, "--json", f"--losses={folder / f'losses_{process}'}"]
        flags = [f"--coordinator=127.0.0.1:{port}", "--processes=2", f"--process={process}"]
        environment = {} if by == "flags" else cluster(by, port, process)
        own += ["--distributed=auto"] if environment else flags
        running.append(new_process.start("-c", IN_ENVIRONMENT, json.dumps(environment), *own))
    ended = [process.wait() for process in running]
    for process in ended:
        assert process.code == 0, process.err
    return [json.loads(process.out.splitlines()[-1]) for process in ended]  # Gloo says on stdout that it is connected


@pytest.mark.parametrize("by", ["flags", "slurm", "ompi"])
def test_two_processes_train_to_the_variables_of_one(by: str, new_process: Programs, tmp_path: Path) -> None:
    model = corpus("iris_dnn")
    out = tmp_path / "out"
    words = ["run", str(model.folder / "model.pb"), "--steps=5", "--num_replicas=2", "--iterations_per_loop=2"]
    words += [f"--checkpoint={model.checkpoint}", f"--model_dir={out}", "--engine=pjrt", "--platform=cpu"]
    found = train_in_processes(new_process, words, by, tmp_path)
    assert [f["engine"]["processes"] for f in found] == [2, 2]
    plain = model.trained(convert(model.graph(), num_replicas=2, iterations_per_loop=2), 5)
    for process in range(2):
        lines = (tmp_path / f"losses_{process}").read_text().splitlines()
        np.testing.assert_allclose([json.loads(line)["loss"] for line in lines], plain.losses, rtol=1e-5)
    assert tf.train.latest_checkpoint(str(out)) == str(out / "model.ckpt-5")  # process 0 wrote it, the other did not
    reader = tf.train.load_checkpoint(str(out / "model.ckpt-5"))
    for name, value in plain.variables.items():
        np.testing.assert_allclose(reader.get_tensor(name), value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("processes", "process", "fault"), [(2, 2, "there is no process 2 of 2"),
                                                             (3, 0, "8 cores cannot be divided evenly")])  # fmt: skip
def test_processes_that_cannot_be_joined(processes: int, process: int, fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        joining.join("127.0.0.1:1", processes, process, platform="cpu", cores=8, asked={})
    assert caught.value.fix


@pytest.mark.parametrize(("environment", "fault"), [
    ({}, "jax finds no cluster that this process is part of"),
    ({**cluster("slurm", 1, 0), "SLURM_NTASKS": "two"}, "jax finds a cluster, but not its processes: ValueError"),
])  # fmt: skip
def test_no_cluster_is_detected(environment: dict[str, str], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((UsageError, RunError), match=fault) as caught:
        joining.detect(1.0)
    assert "--coordinator=HOST:PORT" in str(caught.value.fix)


def test_processes_that_were_asked_for_different_things(tmp_path: Path) -> None:
    """Both processes name the flag that differs."""
    address = f"localhost:{free_ports(1)[0]}"
    with ThreadPoolExecutor() as pool:
        met = [pool.submit(joining.meet, address, 2, process, 20.0, {"--steps": steps, "--mesh": "data:8"})
               for process, steps in enumerate(["5", "7"])]  # fmt: skip
    for each in met:
        with pytest.raises(UsageError, match="process 1 was started with --steps=7, and process 0 with --steps=5"):
            each.result()


TWO_FRESH = """
import json, sys
import jax
import tpugraph

model, address, process = sys.argv[1:]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(address, 2, int(process))
with tpugraph.TPUSession(tpugraph.convert(model, num_replicas=1), engine="xla", mesh="data:4") as session:
    session.initialize()
    drawn = session.value("dense/kernel")
    session.train(2)
    print(json.dumps([float(drawn.sum()), float(session.value("dense/kernel").sum())]))
"""


def test_fresh_weights_are_those_of_the_first_process(new_process: Programs, tmp_path: Path) -> None:
    """Without a seed each draws its own."""
    graph_def = tf.compat.v1.GraphDef.FromString((corpus("iris_dnn").folder / "model.pb").read_bytes())
    for node in graph_def.node:
        if node.op == "RandomUniform":
            node.attr["seed"].i = node.attr["seed2"].i = 0
    (tmp_path / "model.pb").write_bytes(graph_def.SerializeToString())
    words = ["-c", TWO_FRESH, str(tmp_path / "model.pb"), f"127.0.0.1:{free_ports(1)[0]}"]
    running = [new_process.start(*words, str(process)) for process in range(2)]
    found = [json.loads(ran.out.splitlines()[-1]) for ran in (each.wait() for each in running)]
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


SAVED = [
    "--iterations_per_loop=2",
    "--mesh=data:2,model:2",
    "--shard=dense(_1)?/kernel=-,model",
    "--shard_optimizer=data",
]


@pytest.mark.parametrize(
    ("number", "victim", "code"), [(signal.SIGTERM, 1, 143), (signal.SIGKILL, 1, 2), (signal.SIGKILL, 0, 2)]
)
def test_joined_processes_end_together(
    number: int, victim: int, code: int, new_process: Programs, tmp_path: Path
) -> None:
    """After SIGTERM all save the same step; where one is lost, the others name it."""
    model = corpus("iris_dnn")
    words = [
        "run",
        str(model.folder / "model.pb"),
        "--steps=100000",
        *SAVED,
        f"--model_dir={tmp_path}",
        "--save_steps=20",
    ]
    words += [f"--coordinator=127.0.0.1:{free_ports(1)[0]}", "--processes=2"]
    running = [new_process.start("-m", "tpugraph", *words, f"--process={process}") for process in range(2)]
    until = time.monotonic() + 200
    while not list(tmp_path.glob("*.index")) and time.monotonic() < until:
        time.sleep(0.2)
    running[victim].signal(number)
    left = [running[1 - victim].wait(), *([running[victim].wait()] if number == signal.SIGTERM else [])]
    assert [process.code for process in left] == [code] * len(left)
    if number == signal.SIGKILL:
        assert f"process {victim} has ended, and the others cannot go on without it" in left[0].err
    else:
        saved = {re.search(r"saved \S+-(\d+)", process.out + process.err).group(1) for process in left}  # type: ignore[union-attr]
        assert len(saved) == 1
        assert saved == {re.findall(r"ckpt-(\d+)", tf.train.latest_checkpoint(str(tmp_path)) or "")[0]}
