"""Several processes, joined by jax.distributed on the loopback interface, train to the same variables as one."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from forked import Programs
from workers import free_ports

from command_line import Command
from models import corpus
from tpugraph.compiler import convert
from tpugraph.runtime.pjrt import processes as joining
from tpugraph.support.errors import UsageError

pytestmark = pytest.mark.slow


def train_in_processes(new_process: Programs, words: list[str], count: int, folder: Path) -> list[dict]:
    joined = [*words, f"--coordinator=127.0.0.1:{free_ports(1)[0]}", f"--processes={count}", "--json"]
    running = [new_process.start("-m", "tpugraph", *joined, f"--process={process}",
                                 f"--losses={folder / f'losses_{process}'}") for process in range(count)]  # fmt: skip
    ended = [process.wait() for process in running]
    for process in ended:
        assert process.code == 0, process.err
    return [json.loads(process.out.splitlines()[-1]) for process in ended]  # Gloo says on stdout that it is connected


def test_two_processes_train_to_the_variables_of_one(new_process: Programs, tmp_path: Path) -> None:
    model = corpus("iris_dnn")
    out = tmp_path / "out"
    words = ["run", str(model.folder / "model.pb"), "--steps=5", "--num_replicas=2", "--iterations_per_loop=2"]
    words += [f"--checkpoint={model.checkpoint}", f"--model_dir={out}", "--engine=pjrt", "--platform=cpu"]
    found = train_in_processes(new_process, words, 2, tmp_path)
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
                                                             (3, 0, "8 cores cannot be dealt out to 3 processes")])  # fmt: skip
def test_processes_that_cannot_be_joined(processes: int, process: int, fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        joining.join("127.0.0.1:1", processes, process, platform="cpu", cores=8)
    assert caught.value.fix


@pytest.mark.parametrize(("words", "fault"), [
    (["--processes=2", "--engine=pjrt"], "several processes need a place to meet"),
    (["--coordinator=127.0.0.1:1", "--processes=2"], "--coordinator joins processes of PJRT"),
])  # fmt: skip
def test_flags_that_do_not_go_together(words: list[str], fault: str, command: Command) -> None:
    assert fault in command.refused("run", corpus("iris_dnn").folder / "model.pb", "--steps=1", *words)


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
