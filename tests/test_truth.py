"""Converted graphs train as TensorFlow 1.15's Estimator did: recorded losses and variables of real graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sampling import SUITE, part, runs

from models import CORPUS, corpus, folders
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.testing import Training

pytestmark = pytest.mark.slow

STEPS = 24
PLAIN = [name for name in folders(CORPUS, "plain") if not name.startswith("mnist")]
GLOBAL8 = [name for name in folders(CORPUS, "global8") if not name.startswith("mnist") and name != "batch_norm"]
CNN = "mnist_cnn_no_dropout"
LOOPS = [("model.ckpt-0.meta", 1), ("model.pb", 5), ("model.ckpt-0.meta", 6), ("model.pb", 24)]
"""File and steps per loop. Both files become the same TPU graph, as a test says, so each loop is trained from one."""


def test_every_recording_is_compared() -> None:
    assert GLOBAL8 == [
        "clip_adam", "dnn_classifier", "iris_dnn", "linear_classifier", "lstm_dynamic", "ref_variables", "while_cond",
    ]  # fmt: skip
    assert sorted([*GLOBAL8, "batch_norm", "queue_runner"]) == PLAIN


BOTH = [*GLOBAL8, "batch_norm", CNN]


@pytest.mark.parametrize(
    ("name", "iterations"),
    [
        (name, LOOPS[place % len(LOOPS)][1]) for place, name in enumerate(BOTH)
    ],  # each length of a loop, at two models and more
)
def test_both_files_of_a_model_become_the_same_graph(name: str, iterations: int) -> None:
    first, second = (
        convert(CORPUS / name / file, iterations_per_loop=iterations).graph_def.SerializeToString(deterministic=True)
        for file in ("model.ckpt-0.meta", "model.pb")
    )
    assert first == second


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "file", "iterations"),
    [
        (name, *loop)
        for place, name in enumerate(GLOBAL8)
        for at, loop in enumerate(LOOPS)
        if runs((place + at) % 2 == 0)
    ],
)
def test_eight_cores_train_as_one_on_the_whole_batch(name: str, file: str, iterations: int) -> None:
    model = corpus(name)
    found = testing.run_on_cores(
        model.folder / file,
        steps=STEPS,
        num_replicas=8,
        checkpoint=model.checkpoint,
        iterations_per_loop=iterations,
    )
    testing.assert_same_training(found, model.recorded("global8"), relative=1e-3, absolute=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "iterations"),
    [
        (name, iterations)
        for place, name in enumerate(PLAIN)
        for iterations in (1, 24)
        if name != "batch_norm" and runs(iterations == (1, 24)[place % 2])
    ],
)
def test_one_core_trains_as_the_plain_graph(name: str, iterations: int) -> None:
    model = corpus(name)
    found = testing.run_on_cores(
        model.folder / "model.pb",
        steps=STEPS,
        num_replicas=1,
        checkpoint=model.checkpoint,
        iterations_per_loop=iterations,
    )
    # 1e-4, as TensorFlow 2.21 repeats its own plain graphs to 1e-7.
    testing.assert_same_training(found, model.recorded("plain"), relative=1e-4, absolute=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(("file", "iterations"), part(LOOPS, 2))
def test_batch_norm_on_eight_cores(file: str, iterations: int) -> None:
    """Losses as recorded at the whole batch: those of the first steps closely, each of which follows from all variables.

    Later ones and the variables at the end loosely: normalization spreads the last bits of a CPU's own convolutions.
    """
    model = corpus("batch_norm")
    found = testing.run_on_cores(
        model.folder / file, steps=STEPS, num_replicas=8, checkpoint=model.checkpoint, iterations_per_loop=iterations
    )
    recorded = model.losses("global8")
    np.testing.assert_allclose(found.losses[:8], recorded[:8], rtol=5e-6)  # measured: 4e-7
    np.testing.assert_allclose(found.losses, recorded, rtol=1e-3)  # measured: 9e-7, with AMX 5e-5
    for name, value in model.recorded("global8").variables.items():
        close = 2.5e-1 if name.endswith("Momentum") else 2e-2  # measured: 6e-3 and 1.4e-4, with AMX 8.4e-2 and 5.7e-3
        np.testing.assert_allclose(found.variables[name], value, rtol=0, atol=close * np.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("iterations", [1, 24])
def test_batch_norm_on_one_core(iterations: int) -> None:
    """Losses as recorded; variables as the plain graph on this machine, as normalization spreads its convolutions' last bits.

    On a CPU with AVX-512, TensorFlow 2.21's replay of the plain graph departs from the recording by up to 5 % in momenta.
    """
    model = corpus("batch_norm")
    found = testing.run_on_cores(
        model.folder / "model.pb",
        steps=STEPS,
        num_replicas=1,
        checkpoint=model.checkpoint,
        iterations_per_loop=iterations,
    )
    np.testing.assert_allclose(found.losses, model.losses("plain"), rtol=1e-4)
    plain = testing.run_plain(model.folder / "model.pb", steps=STEPS, checkpoint=model.checkpoint)
    testing.assert_same_training(found, plain, relative=1e-6, absolute=1e-8)  # measured: 0


# ------------------------------------------------------------------ the convolutional net
#
# TensorFlow 2.21's own replay of the plain CNN graph departs from the recording of 1.15: other convolution kernels sum in
# another order, and over 24 steps variables with elements near zero differ by 1 to 20 % of themselves, while losses agree
# to 6e-4. So losses are compared with the recording, and variables with the plain graph on the same TensorFlow.


#
# Nor can 24 steps of 8 cores be the same to the last bits, even on one TensorFlow: sums in another order differ by 1e-7
# until one of them puts a max-pool or a ReLU on its other side, at step 10 or at step 2, as the CPU and the order of the
# sums are. So variables are compared closely after one step (measured: 9e-8) and loosely after 24 (measured: 2.8e-2 and
# 9.5e-2, the bias of a layer; kernels 1.4e-3).


def departures(found: Training, cores: int, steps: int, *, losses: float = 2e-5) -> dict[str, float]:
    """Of each variable: how far it is from the plain graph on this TensorFlow, whose step averages ``cores`` batches."""
    model = corpus(CNN)
    plain = testing.run_plain(model.folder / "model.pb", steps=steps, checkpoint=model.checkpoint, micro_batches=cores)
    np.testing.assert_allclose(found.losses, plain.losses, rtol=losses)
    assert set(found.variables) == set(plain.variables)
    return {
        key: float(np.linalg.norm(found.variables[key] - value) / max(np.linalg.norm(value), 1e-6))
        for key, value in plain.variables.items()
    }


def cnn_on_cores(cores: int, steps: int, *, file: str = "model.pb", iterations: int = 6) -> Training:
    model = corpus(CNN)
    return testing.run_on_cores(
        model.folder / file,
        steps=steps,
        num_replicas=cores,
        checkpoint=model.checkpoint,
        iterations_per_loop=iterations,
    )


def assert_recorded_losses(found: Training, mode: str, steps: int = STEPS) -> None:
    assert len(found.losses) == steps
    np.testing.assert_allclose(found.losses, corpus(CNN).losses(mode)[:steps], rtol=1e-3, atol=1e-5)


# A loop a step, and a shorter one behind a whole one: as many steps as it takes. That of 12 trains below.
@pytest.mark.parametrize(("file", "iterations", "steps"), [("model.ckpt-0.meta", 1, 3), ("model.pb", 5, 8)])
def test_cnn_losses_on_eight_cores(in_corpus: Path, file: str, iterations: int, steps: int) -> None:
    assert_recorded_losses(cnn_on_cores(8, steps, file=file, iterations=iterations), "global8", steps)


@pytest.mark.sampled
def test_cnn_losses_and_variables_on_eight_cores(in_corpus: Path) -> None:
    """The steps of one loop; in the gate those of two."""
    steps = STEPS // 2 if SUITE else STEPS
    trained = cnn_on_cores(8, steps, file="model.ckpt-0.meta", iterations=12)
    assert_recorded_losses(trained, "global8", steps)
    found = departures(trained, 8, steps, losses=1e-3)
    assert max(found.values()) < 3e-1, found


def test_cnn_variables_after_one_step_of_eight_cores(in_corpus: Path) -> None:
    found = departures(cnn_on_cores(8, 1), 8, 1, losses=2e-6)
    assert max(found.values()) < 2e-6, found  # of a bias that is a sum of 25,088 numbers, which one thread adds up


def test_cnn_on_one_core(in_corpus: Path) -> None:
    found = cnn_on_cores(1, STEPS)
    assert_recorded_losses(found, "plain")
    assert max(departures(found, 1, STEPS).values()) < 1e-6  # measured: 0


def test_cnn_with_dropout_draws_the_plain_stream_on_one_core(in_corpus: Path, mnist_cnn_checkpoint: Path) -> None:
    model = corpus("mnist_cnn")
    found = testing.run_on_cores(
        model.folder / "model.pb", steps=STEPS, num_replicas=1, checkpoint=mnist_cnn_checkpoint
    )
    np.testing.assert_allclose(found.losses, model.losses("plain"), rtol=1e-3, atol=1e-5)
