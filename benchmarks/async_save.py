"""How long a save keeps training waiting, in the background and not, for as many variables as BERT-base has.

    python benchmarks/async_save.py

Both ways save the same 110 million numbers after a step, in turn; the goal is that --async_save waits at most a fifth as long.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import tensorflow as tf

import tpugraph

tf1 = tf.compat.v1
WIDTH, LAYERS, WORDS = 768, 12, 30522
ROUNDS = 3


def model() -> tf.Graph:
    """A graph with the variables of BERT-base, each of which a step changes."""
    shapes = [(WORDS, WIDTH), (512, WIDTH), (2, WIDTH), (WIDTH, WIDTH)]
    shapes += LAYERS * ([(WIDTH, WIDTH)] * 4 + [(WIDTH,)] * 9 + [(WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH)])
    with tf.Graph().as_default() as graph:
        data = (
            tf.data.Dataset.from_tensor_slices(np.arange(64, dtype=np.float32)).repeat().batch(8, drop_remainder=True)
        )
        rows = tf1.data.make_one_shot_iterator(data).get_next()
        step = tf1.train.get_or_create_global_step()
        found = [tf1.get_variable(f"v{i}", shape, initializer=tf1.zeros_initializer(), use_resource=True)
                 for i, shape in enumerate(shapes)]  # fmt: skip
        total = tf.add_n([tf.reduce_sum(value) for value in found])
        loss = tf.reduce_mean(tf.square(total * 1e-9 - rows))
        tf1.train.GradientDescentOptimizer(1e-6).minimize(loss, global_step=step)
        tf1.train.Saver()
    return graph


def waits(session: tpugraph.TPUSession, folder: Path, *, in_background: bool) -> float:
    """Seconds for which a save after a step keeps the next one waiting."""
    session.train(1)
    began = time.perf_counter()
    session.save(folder / "model.ckpt", in_background=in_background, keep=1)
    waited = time.perf_counter() - began
    session.train(1)
    session.wait_for_save()
    return waited


def main() -> int:
    """Build and measure; returns the exit code."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "model.pb").write_bytes(model().as_graph_def().SerializeToString())
        program = tpugraph.convert(Path(place, "model.pb"), num_replicas=1, iterations_per_loop=1)
        return measure(program, Path(place))


def measure(program: tpugraph.Program, folder: Path) -> int:
    """Save both ways in turn, and compare."""
    with tpugraph.TPUSession(program) as session:
        session.initialize()
        size = sum(value.nbytes for value in session.values().values()) / 2**20
        found: dict[bool, list[float]] = {False: [], True: []}
        for in_background in (False, True) * ROUNDS:
            found[in_background].append(waits(session, folder, in_background=in_background))
    plain, background = median(found[False]), median(found[True])
    print(f"{size:,.0f} MiB of variables: a save waits {plain:.2f} s, in the background {background:.3f} s; ratio "
          f"{plain / background:.1f}")  # fmt: skip
    return 0 if plain >= 5 * background else 1


if __name__ == "__main__":
    sys.exit(main())
