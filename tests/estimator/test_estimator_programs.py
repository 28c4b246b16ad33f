"""Whole programs in processes of their own: the example, and TensorFlow 1 rules."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from forked import Programs

from estimators import served

tf1 = tf.compat.v1


@pytest.fixture(scope="module")
def run(new_process: Programs) -> Callable[..., str]:
    """What a Python program prints; TensorFlow alone is loaded before it begins."""

    def printed(*words: str) -> str:
        done = new_process(*words)
        assert done.code == 0, done.err[-3000:]
        return done.out + done.err

    return printed


@pytest.mark.slow
def test_the_iris_example_trains_the_same_with_cores_and_without(run: Callable[..., str], tmp_path: Path) -> None:
    losses = []
    for use_tpu in ("true", "false"):
        folder = tmp_path / use_tpu
        printed = run("examples/iris.py", "--train_steps=200", f"--use_tpu={use_tpu}", f"--model_dir={folder}")
        found = re.search(r"trained 200 steps in .*, loss ([\d.]+)", printed)
        assert found is not None, printed[-2000:]
        losses.append(float(found[1]))
        accuracy = re.search(r"Test set accuracy: ([\d.]+)", printed)
        assert accuracy is not None
        assert float(accuracy[1]) > 0.9
        assert len(re.findall(r'Prediction is "(\w+)" \([\d.]+%\), expected "\1"', printed)) == 3
        assert list((folder / "export").glob("*/saved_model.pb"))
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


@pytest.mark.slow
def test_the_mnist_example_and_its_model_served_by_saved_model_cli(run: Callable[..., str], tmp_path: Path) -> None:
    small = ["--train_steps=20", "--iterations=10", "--batch_size=32", "--train_examples=400", "--test_examples=41"]
    printed = run("examples/mnist.py", *small, f"--model_dir={tmp_path}")
    pattern = r"evaluated 41 examples in 2 batches on 8 cores at step 20: accuracy [\d.]+, loss ([\d.]+)"
    evaluated = re.search(pattern, printed)
    assert evaluated is not None, printed[-2000:]
    assert float(evaluated[1]) < np.log(10)  # that of guessing; after 100 steps accuracy is 0.97
    assert len(re.findall(r"Prediction is \d \([\d.]+%\)", printed)) == 5
    assert "without cores" not in printed
    (model,) = (tmp_path / "export").iterdir()
    record = next(tf1.io.tf_record_iterator(str(tmp_path / "data" / "test-41.tfrecords")))
    picture = tf.train.Example.FromString(record).features.feature["image_raw"].bytes_list.value[0]
    images = np.stack([np.frombuffer(picture, np.uint8), np.zeros(784)]).astype(np.float32) / 255 - 0.5
    np.save(tmp_path / "images.npy", images)
    run("-m", "tensorflow.python.tools.saved_model_cli", "run", f"--dir={model}", "--tag_set=serve",
        "--signature_def=serving_default", f"--inputs=images={tmp_path / 'images.npy'}", f"--outdir={tmp_path}")  # fmt: skip
    found = served(model, images=images)
    np.testing.assert_allclose(np.load(tmp_path / "probabilities.npy"), found["probabilities"], atol=1e-6)
    assert np.load(tmp_path / "digit.npy").shape == (2,)


OLD_RULES = """
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
import numpy as np
import estimators
made = estimators.estimator(sys.argv[1])
made.train(estimators.input_fn, max_steps=6)
made.train(lambda params: tf.data.make_one_shot_iterator(estimators.dataset(params["batch_size"])).get_next(), steps=2)
assert not tf.resource_variables_enabled()
assert np.allclose(made.get_variable_value("w")[:, 0].shape, (3,))
other = estimators.estimator(sys.argv[1], use_tpu=False).train(estimators.input_fn, max_steps=9)
print("step", other.get_variable_value("global_step"))
"""


def test_under_the_rules_of_tensorflow_1(run: Callable[..., str], tmp_path: Path) -> None:
    assert "step 9" in run("-c", OLD_RULES, str(tmp_path))
