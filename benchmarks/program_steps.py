"""Iris and MNIST programs for Estimator: steps per second on 8 emulated cores, and under another TensorFlow that still has Estimator.

python benchmarks/program_steps.py --python=PYTHON [--steps 1000] [--repeats 3]

PYTHON is the interpreter of an environment with TensorFlow 1.15 or 2.15. Both sides train the same model on the same
batches, as many rows in all, and time the steps after the first ones. MNIST has the layers of the published programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from _measure import interleave, ratio, show, verdict

PROGRAM = """
import json, sys, time
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
name, steps, rows = sys.argv[1], int(sys.argv[2]), 256
first = 100 if name == "iris" else 20
random = np.random.RandomState(0)
features = random.rand(1024, 4 if name == "iris" else 784).astype("float32")
labels = random.randint(0, 3 if name == "iris" else 10, 1024).astype("int32")

def input_fn():
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(rows, drop_remainder=True).prefetch(4)

def variable(name, *shape):
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())

def dense(x, inner, outer, name, activation=tf.identity):
    return activation(tf.matmul(x, variable(name, inner, outer)) + variable(name + "_bias", 1, outer))

def iris(x):
    return dense(dense(dense(x, 4, 10, "a", tf.nn.relu), 10, 10, "b", tf.nn.relu), 10, 3, "c")

def mnist(x):
    x = tf.reshape(x, [-1, 28, 28, 1])
    for before, after in ((1, 32), (32, 64)):
        x = tf.nn.relu(tf.nn.conv2d(x, variable("conv%d" % after, 5, 5, before, after), [1, 1, 1, 1], "SAME"))
        x = tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    return dense(dense(tf.reshape(x, [-1, 3136]), 3136, 1024, "a", tf.nn.relu), 1024, 10, "b")

def model_fn(features, labels, mode):
    logits = {"iris": iris, "mnist": mnist}[name](features)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.AdagradOptimizer(0.05).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

class Clock(tf.train.SessionRunHook):
    marks = []

    def before_run(self, context):
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, context, values):
        self.marks.append((int(values.results), time.time()))

config = tf.estimator.RunConfig(save_checkpoints_steps=10 ** 9, save_summary_steps=10 ** 9, log_step_count_steps=first)
tf.estimator.Estimator(model_fn, config=config).train(input_fn, hooks=[Clock()], max_steps=first + steps)
marks = [mark for mark in Clock.marks if mark[0] >= first]
print(json.dumps((marks[-1][0] - marks[0][0]) / (marks[-1][1] - marks[0][1])))
"""


def rate(command: list[str], name: str, steps: int) -> float:
    """Steps per second of a program under an interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        program.write_text(PROGRAM)
        words = [*command, str(program), name, str(steps)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with TensorFlow 1.15 or 2.15")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    ours = [sys.executable, "-m", "tpugraph.compat", "--use_tpu=true", "--num_cores=8"]
    failed = 0
    for name, steps in (("iris", options.steps), ("mnist", max(options.steps // 10, 50))):
        sides = {"8 cores": partial(rate, ours, name, steps), "the other": partial(rate, [options.python], name, steps)}
        found = interleave(sides, options.repeats)
        show(found, "steps/s")
        failed |= verdict(f"{name}, steps per second", ratio(found, "8 cores", "the other"), 1.0, most=False)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
