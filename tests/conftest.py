"""What tests share: the folder with the data files, the checkpoint that is put together from parts, an answer to Ctrl-C."""

import gc
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import forked
import numpy as np
import pytest
import tensorflow as tf
from workers import Workers, workers

from browser import NAMES, chromium
from command_line import Command
from estimators import lines
from models import CORPUS
from outside import program
from tpugraph.xla import jax_client

os.environ.setdefault(
    "TF_OVERRIDE_GLOBAL_THREADPOOL", "1"
)  # a session has the threads for an op that its configuration says

if (
    os.environ.get("TPUGRAPH_TEST_V2_BEHAVIOR") == "off"
):  # the first line of most programs that were written for TensorFlow 1
    tf.compat.v1.disable_v2_behavior()


LONGEST = """programs pjrt truth reduce xla_judge families published evaluation ops columns branches pjrt_processes
    compiled_loop docs bundle estimator_programs cli_evaluation""".split()
"""The test files that take longest: whole files go to workers, and one of these at the end would keep a single worker busy."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first; the others follow in the order of their names. What takes pages needs a browser."""
    for item in items:
        if "pages" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs_program(*NAMES))
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A program that a test needs is looked up before the test is set up."""
    for mark in item.iter_markers("needs_program"):
        program(*mark.args)


@pytest.fixture(scope="session", autouse=True)
def _xla_compiles_quickly() -> Iterator[None]:
    """On virtual devices XLA leaves out the passes of LLVM: what tests compile runs for a few steps, and the compiler for longer."""

    def hasty(num_replicas: int, devices: Sequence[Any]) -> Any:
        made = options(num_replicas, devices)
        if devices[0].platform == "cpu":
            debug_options = made.executable_build_options.debug_options
            debug_options.xla_backend_optimization_level = 0
            debug_options.xla_llvm_disable_expensive_passes = True
        return made

    options = jax_client.options
    with mock.patch.object(jax_client, "options", hasty):
        yield


@pytest.fixture(scope="session", autouse=True)
def _garbage_is_left_lying() -> Iterator[None]:
    """Python's collector does not walk the objects of traced graphs again and again; what was there before it never walks."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(0)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _garbage_is_collected_between_tests() -> Iterator[None]:
    """So that it does not fill the memory: graphs of TensorFlow, whose objects refer to each other, are such garbage."""
    yield
    if gc.get_count()[0] > 200_000:  # objects that are new since the last collection
        gc.collect()


@pytest.fixture(scope="module")
def pages() -> Iterator[Any]:
    """A real browser for the pages that tests write."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def new_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Programs]:
    """Runs Python programs, each in a process in which TensorFlow is loaded and nothing of tpugraph; it takes seconds to load.

    The hash seed of all of them is another one than that of the tests.
    """
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    with forked.programs(tmp_path_factory.mktemp("printed"), "tensorflow", environment={"PYTHONHASHSEED": seed}) as run:
        yield run


@pytest.fixture(scope="module")
def two(new_process: forked.Programs) -> Iterator[Workers]:
    """Two workers of one cluster."""
    with workers(new_process, 2) as running:
        yield running


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is said in a test."""
    with lines() as found:
        yield found


@pytest.fixture(params=[True, False], ids=["cores", "plain"])
def use_tpu(request: pytest.FixtureRequest) -> bool:
    """A test is run on cores, and without."""
    return bool(request.param)


@pytest.fixture
def in_corpus(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The MNIST graphs read ``mnist.tfrecords`` by that relative name: run in the folder that holds it."""
    monkeypatch.chdir(CORPUS)
    return CORPUS


@pytest.fixture(scope="session")
def mnist_cnn_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.ckpt-0`` of mnist_cnn: that of mnist_cnn_no_dropout with another kernel of the last layer."""
    reader = tf.train.load_checkpoint(str(CORPUS / "mnist_cnn_no_dropout" / "model.ckpt-0"))
    values = {key: reader.get_tensor(key) for key in sorted(reader.get_variable_to_dtype_map())}
    values["dense_1/kernel"] = np.load(CORPUS / "mnist_cnn" / "dense_1_kernel.npy")
    prefix = tmp_path_factory.mktemp("mnist_cnn") / "model.ckpt-0"
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=list(values), shape_and_slices=[""] * len(values),
                      tensors=list(values.values()))  # fmt: skip
    return prefix


@pytest.fixture
def answers_ctrl_c() -> Iterator[None]:
    """Python's own answer to Ctrl-C: a shell starts what runs in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
