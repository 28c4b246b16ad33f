"""No wait without an end: addresses where nobody answers are named in time, and Ctrl-C ends every such wait."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workers import free_ports

from command_line import Command
from tpugraph.runtime import masters
from tpugraph.runtime.pjrt.processes import meet
from tpugraph.support.errors import RunError, UsageError

IRIS = Path(__file__).parents[2] / "examples" / "iris" / "model.pb"


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address where somebody takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("flags", "words"), [
    (["--master=grpc://localhost:1"], "no TensorFlow server answers at 'grpc://localhost:1' within 1 s"),
    (["--workers=localhost:1,localhost:2"],
     "worker 0 (grpc://localhost:1), worker 1 (grpc://localhost:2) of 2 do not answer"),
    (["--engine=pjrt", "--coordinator=localhost:{port}", "--processes=2", "--process=1"],
     "process 0 does not answer at the coordinator's address localhost:{port} within 1 s"),
    (["--engine=pjrt", "--coordinator=localhost:{port}", "--processes=2"],
     "of 2 processes these did not come to localhost:{port} within 1 s: 1"),
])  # fmt: skip
def test_who_does_not_answer_is_named_in_time(flags: list[str], words: str, command: Command) -> None:
    port = free_ports(1)[0]
    began = time.monotonic()
    asked = [flag.format(port=port) for flag in flags]
    error = command.refused("run", IRIS, "--steps=1", "--num_replicas=2", "--connect_timeout=1", *asked)
    assert words.format(port=port) in error
    assert time.monotonic() - began < 10


def test_a_server_that_says_nothing_is_no_server(deaf: str) -> None:
    with pytest.raises(RunError, match="no TensorFlow server answers at"):
        masters.reach(f"grpc://{deaf}", None, 1.0)
    with pytest.raises(RunError, match="process 0 does not answer"):
        meet(deaf, 2, 1, 1.0, {})


@pytest.mark.parametrize("wait", ["master", "workers", "process 0", "process 1"])
@pytest.mark.usefixtures("answers_ctrl_c")
def test_ctrl_c_ends_a_wait_within_a_second(wait: str, deaf: str) -> None:
    waits = {
        "master": lambda: masters.reach(f"grpc://{deaf}", None, 60.0),
        "workers": lambda: masters.reach("", [deaf, deaf], 60.0),
        "process 0": lambda: meet(f"localhost:{free_ports(1)[0]}", 2, 0, 60.0, {}),
        "process 1": lambda: meet(deaf, 2, 1, 60.0, {}),
    }
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.5, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        waits[wait]()
    assert time.monotonic() - sent[0] < 1


def test_processes_meet_whatever_comes_between(deaf: str) -> None:
    place = f"127.0.0.1:{free_ports(1)[0]}"
    failed: list[BaseException] = []

    def come(process: int) -> None:
        try:
            for link in meet(place, 3, process, 20.0, {}).values():
                link.close()
        except RunError as error:
            failed.append(error)

    threads = [threading.Thread(target=come, args=[process]) for process in (2, 1, 0)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join(30)
    assert failed == []


@pytest.mark.parametrize("place", ["localhost", "localhost:x", "localhost:0", "localhost:70000", ":80"])
def test_addresses_that_cannot_be(place: str) -> None:
    with pytest.raises(UsageError, match=r"is no HOST:PORT with a port from 1 to 65535"):
        meet(place, 2, 0, 1.0, {})
    with pytest.raises(UsageError, match=r"process 0 cannot listen at the coordinator's address 192.0.2.1:8470"):
        meet("192.0.2.1:8470", 2, 0, 1.0, {})


def test_a_port_that_is_taken_and_a_host_that_is_not_there_are_named(deaf: str, command: Command) -> None:
    error = command.refused("worker", f"--workers={deaf}", "--task=0")
    assert f"the worker cannot listen at '{deaf}': Address already in use" in error
    error = command.refused("worker", "--workers=no-such-host.invalid:8470", "--task=0")
    assert "the host of the worker 'no-such-host.invalid:8470' cannot be found" in error
