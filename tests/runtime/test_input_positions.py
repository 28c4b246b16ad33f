"""The position of an input in a checkpoint: that of the rows, whatever the number of cores and the engine that saved it."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from command_line import Command
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession

tf1 = tf.compat.v1
IRIS = Path(__file__).parents[2] / "examples" / "iris"
ROWS = np.arange(480, dtype=np.float32) / 100


def changed(x: Any) -> Any:
    return x + 0.0


INPUTS: dict[str, Callable[[Any, int], Any]] = {
    "in order": lambda d, rows: d.repeat().batch(rows, drop_remainder=True),
    "shuffled": lambda d, rows: d.shuffle(90, seed=3).repeat().batch(rows, drop_remainder=True),
    "changed": lambda d, rows: d.shuffle(90, seed=3).batch(rows, drop_remainder=True).map(changed).repeat(),
    "tuned": lambda d, rows: d.map(changed, num_parallel_calls=tf.data.AUTOTUNE).repeat().batch(
        rows, drop_remainder=True),
    "ahead": lambda d, rows: d.map(changed).repeat().batch(rows, drop_remainder=True).prefetch(5),
}  # fmt: skip


@functools.cache
def program(name: str, rows: int, cores: int) -> Any:
    """A program whose losses tell which rows a step had: their mean square, since the weight stays 1."""
    with tf.Graph().as_default() as graph:
        data = INPUTS[name](tf.data.Dataset.from_tensor_slices(ROWS), rows)
        iterator = tf1.data.make_initializable_iterator(data)
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        weight = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        loss = tf.reduce_mean(weight * tf.square(iterator.get_next()))
        tf1.train.GradientDescentOptimizer(0.0).minimize(loss, tf1.train.get_or_create_global_step())
        plain = graphdef.from_graph_def(graph.as_graph_def(add_shapes=True))
    return convert(plain, num_replicas=cores, iterations_per_loop=3)


@functools.cache
def stream(name: str) -> np.ndarray:
    with tf.Graph().as_default(), tf1.Session() as session:
        batch = tf1.data.make_one_shot_iterator(INPUTS[name](tf.data.Dataset.from_tensor_slices(ROWS), 8)).get_next()
        return np.concatenate([session.run(batch) for _ in range(100)])


def losses_of(name: str, begin: int, steps: int, width: int) -> np.ndarray:
    """The losses of steps of so many rows, behind rows that were read before."""
    rows = stream(name)[begin : begin + steps * width]
    return np.mean(np.square(rows.reshape(steps, width)), axis=1)


def saved(folder: Path, of: Any, **options: Any) -> str:
    """The checkpoint of six steps."""
    with TPUSession(of, **options) as session:
        session.train(6)
        return session.save(folder / "model.ckpt")


def resumed(of: Any, prefix: str, **options: Any) -> tuple[Sequence[float], list[str]]:
    """The losses of four steps that follow a checkpoint, and what the session noted."""
    with TPUSession(of, **options) as session:
        assert session.restore(prefix) == 6
        return session.train(4), session.notes


@pytest.mark.parametrize("name", INPUTS)
def test_training_goes_on_with_other_cores_and_loops(name: str, tmp_path: Path) -> None:
    queues = name in ("shuffled", "ahead")
    prefix = saved(tmp_path, program(name, 32, 8), queues=queues)
    for cores, others in ((2, queues), (4, not queues)):
        losses, notes = resumed(program(name, 32, cores), prefix, queues=others)
        np.testing.assert_allclose(losses, losses_of(name, 6 * 32, 4, 32), rtol=1e-5)
        assert notes == []


@pytest.mark.parametrize("name", ["in order", "shuffled"])
def test_another_batch_goes_on(name: str, tmp_path: Path) -> None:
    losses, notes = resumed(program(name, 8, 2), saved(tmp_path, program(name, 32, 8)))
    np.testing.assert_allclose(losses, losses_of(name, 6 * 32, 4, 8), rtol=1e-5)
    assert notes == []


@pytest.mark.parametrize("name", ["shuffled", "tuned"])
def test_compiled_devices_and_emulated_cores_go_on_from_each_other(name: str, tmp_path: Path) -> None:
    of = program(name, 8, 2)
    for number, (first, second) in enumerate((("emulator", "pjrt"), ("pjrt", "emulator"))):
        losses, notes = resumed(of, saved(tmp_path / str(number), of, engine=first), engine=second)
        np.testing.assert_allclose(losses, losses_of(name, 6 * 8, 4, 8), rtol=1e-5)
        assert notes == []


def test_the_command_goes_on_with_half_of_the_cores(tmp_path: Path, command: Command) -> None:
    """Iris on eight cores, and then on four: the rows go on behind those of the first run."""
    model, start = str(IRIS / "model.ckpt-0.meta"), f"--checkpoint={IRIS / 'model.ckpt-0'}"
    command("run", model, "--steps=4", "--iterations_per_loop=2", start, f"--model_dir={tmp_path}")
    half = ["--num_replicas=4", "--steps=4", "--iterations_per_loop=2", f"--model_dir={tmp_path}"]
    said = command("run", model, *half)
    assert f"restored {tmp_path}/model.ckpt-4 at step 4" in said.out
    assert "anew" not in said.out + said.err


OTHERS = {
    "the batch read ahead": ("ahead", 32, ("ahead", 8, 4), (
        "the position of the input was saved with PrefetchDataset of [32], this graph has PrefetchDataset of [8], "
        "and only the input and the batch of a core that saved it go on from it")),
    "the batch of a tuned stage": ("tuned", 32, ("tuned", 8, 4), "this graph has PrefetchDataset of [8]"),
    "the stages": ("ahead", 32, ("in order", 32, 8),
                   "the position of the input was saved with BatchDatasetV2, this graph has RangeDataset of [], and"),
    "what an earlier version saved": ("in order", 32, ("in order", 32, 8),
                                      "the position of the input was saved by an earlier version of tpugraph"),
    "what TensorFlow refuses": ("ahead", 32, ("shuffled", 32, 8), "the input cannot go on from its position: NotFound"),
}  # fmt: skip
"""What was saved, what it is restored in, and why the input cannot go on."""


@pytest.mark.parametrize("case", OTHERS)
def test_another_input_starts_anew_with_a_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, rows, (other, width, cores), words = OTHERS[case]
    position = "tpugraph.runtime.checkpoints.input_position"
    with monkeypatch.context() as patch:
        if "earlier version" in case:
            patch.setattr(f"{position}.save_forms", lambda graph: {})
        prefix = saved(tmp_path, program(name, rows, 8))
    if "refuses" in case:
        monkeypatch.setattr(f"{position}.why_not", lambda prefix, forms: "")
    losses, (note,) = resumed(program(other, width, cores), prefix)
    np.testing.assert_allclose(losses, losses_of(other, 0, 4, width), rtol=1e-5)
    assert words in note
    assert note.endswith(": it starts anew at step 6")


@pytest.mark.parametrize("with_input", [True, False])
def test_restored_without_a_position_the_input_of_a_session_that_trained_starts_anew(
    with_input: bool, tmp_path: Path
) -> None:
    with TPUSession(program("shuffled", 32, 8)) as session:
        session.train(6)
        prefix = session.save(tmp_path / "model.ckpt", with_input=not with_input)
        session.train(2)
        session.restore(prefix, with_input=with_input)
        np.testing.assert_allclose(session.train(4), losses_of("shuffled", 0, 4, 32), rtol=1e-5)
