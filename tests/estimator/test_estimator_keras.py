"""model_to_estimator: Keras models through the compiler."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from closeness import assert_close
from models import rows_of
from tpugraph import model_to_estimator

FEATURES, TARGETS = rows_of(48, 3)
ROWS, STEPS, RATE = 16, 6, 0.1


def regression(*, optimizer: Any = None) -> Any:
    inputs = tf_keras.Input((3,), name="x")
    hidden = tf_keras.layers.Dense(4, activation="tanh", name="hidden")(inputs)
    normal = tf_keras.layers.BatchNormalization(name="normal")(hidden)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(1, name="y")(normal))
    model.compile(optimizer or tf_keras.optimizers.legacy.Adam(RATE), "mse", metrics=["mae"])
    return model


def batches(*, repeat: bool = False) -> Any:
    data = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS[:, None]))
    return (data.repeat() if repeat else data).batch(ROWS, drop_remainder=True)


@pytest.mark.filterwarnings("ignore:.*state_updates:UserWarning")  # Keras's own evaluate and fit, with v2 behaviour off
def test_it_trains_as_the_model_itself_does(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    """Two rounds of three batches; the model keeps its weights until it is trained itself, with the same result."""
    model = regression()
    made = model_to_estimator(model, model_dir=tmp_path, metric_names_map={"mae": "off by"}, use_tpu=use_tpu)
    name = next(name for name in made.evaluate(batches) if name not in ("loss", "global_step"))
    assert made.evaluate(batches)["loss"] == pytest.approx(model.evaluate(FEATURES, TARGETS, ROWS, verbose=0)[0],
                                                           rel=1e-5)  # fmt: skip
    made.train(lambda: batches(repeat=True), max_steps=STEPS)
    assert any("8 cores" in line for line in said) == use_tpu
    found = made.evaluate(batches)
    answers = np.asarray([row["y"] for row in made.predict(batches)])
    model.fit(FEATURES, TARGETS, ROWS, epochs=2, shuffle=False, verbose=0)
    loss, off_by = model.evaluate(FEATURES, TARGETS, ROWS, verbose=0)
    assert (found["loss"], found[name]) == (pytest.approx(loss, rel=1e-4), pytest.approx(off_by, rel=1e-4))
    assert_close(answers, model.predict(FEATURES, verbose=0), 1e-4)
    assert_close(made.get_variable_value("hidden/kernel"), model.get_weights()[0], 1e-4)
    assert found["global_step"] == STEPS


def test_inputs_and_outputs_go_by_name_or_order(tmp_path: Path) -> None:
    left, right = tf_keras.Input((2,), name="left"), tf_keras.Input((1,), name="right")
    total = tf_keras.layers.Concatenate()([left, right])
    outputs = [tf_keras.layers.Dense(1, name="first")(total), tf_keras.layers.Dense(2, name="second")(total)]
    model = tf_keras.Model([left, right], outputs)
    model.compile(tf_keras.optimizers.legacy.SGD(RATE), "mse", loss_weights=[1.0, 2.0])
    parts = {"right": FEATURES[:, 2:], "left": FEATURES[:, :2]}
    wanted = {"second": np.stack([TARGETS, -TARGETS], 1), "first": TARGETS[:, None]}

    def named() -> Any:
        return tf.data.Dataset.from_tensor_slices((parts, wanted)).batch(ROWS)

    def ordered() -> Any:
        sides = (parts["left"], parts["right"]), (wanted["first"], wanted["second"])
        return tf.data.Dataset.from_tensor_slices(sides).batch(ROWS)

    made = model_to_estimator(model, model_dir=tmp_path)
    loss = made.evaluate(named)["loss"]
    assert loss == pytest.approx(made.evaluate(ordered)["loss"], rel=1e-6)
    assert next(made.predict(named)).keys() == {"first", "second"}
    with pytest.raises(ValueError,
                       match=r"the features of input_fn have no 'left' of the Keras model, but \['right'\]"):  # fmt: skip
        made.evaluate(lambda: tf.data.Dataset.from_tensor_slices(({"right": FEATURES[:, 2:]}, wanted)).batch(ROWS))


def test_a_format_of_checkpoints_that_is_not_written() -> None:
    with pytest.raises(ValueError, match="one of saver"):
        model_to_estimator(keras_model=regression(), checkpoint_format="checkpoint")
