"""keras_to_tpu_model: what a Keras model does on cores is what it does on this machine."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tpugraph.compat.v1 as tf_1
from closeness import assert_close
from models import rows_of

tf1 = tf.compat.v1
FEATURES, TARGETS = rows_of(88, 3)
ROWS = 16
pytestmark = pytest.mark.filterwarnings("ignore:.*(state_updates|fit_generator).*:UserWarning")


def pair(optimizer: Any = None) -> tuple[Any, Any]:
    models = []
    for _ in range(2):
        inputs = tf_keras.Input((3,))
        outputs = tf_keras.layers.Dense(1)(tf_keras.layers.Dense(4, "tanh")(inputs))
        models.append(tf_keras.Model(inputs, outputs))
        models[-1].compile(optimizer() if optimizer else tf_keras.optimizers.legacy.SGD(0.1), "mse", metrics=["mae"])
    models[1].set_weights(models[0].get_weights())
    resolver = tf_1.contrib.cluster_resolver.TPUClusterResolver("local")
    strategy = tf_1.contrib.tpu.TPUDistributionStrategy(resolver)
    return models[0], tf_1.contrib.tpu.keras_to_tpu_model(models[1], strategy)


def endless() -> Iterator[Any]:
    start = 0
    while True:
        taken = np.arange(start, start + ROWS) % len(FEATURES)
        yield FEATURES[taken].astype(np.float64), TARGETS[taken]
        start += ROWS


def data() -> Any:
    return tf.data.Dataset.from_tensor_slices((FEATURES, TARGETS)).repeat().batch(ROWS, drop_remainder=True)


def test_it_fits_evaluates_and_predicts_as_the_model_does(said: list[str]) -> None:
    """With a learning rate of its own in each epoch and a part of the rows for validation; fit goes on where it ended."""
    model, on_cores = pair()
    rate = [0.1, 0.02, 0.3]
    wanted, found = (
        one.fit(FEATURES, TARGETS, ROWS, epochs=3, shuffle=False, verbose=0, validation_split=0.09,
                callbacks=[tf_keras.callbacks.LearningRateScheduler(rate.__getitem__)])
        for one in (model, on_cores)
    )  # fmt: skip
    assert found.epoch == [0, 1, 2]
    for name, values in found.history.items():
        assert values == pytest.approx(wanted.history[name], rel=1e-4), name
    assert sum(name.startswith("val_") for name in found.history) == 2
    again = on_cores.fit(FEATURES[:64], TARGETS[:64], ROWS, epochs=2, initial_epoch=1, shuffle=False)
    model.fit(FEATURES[:64], TARGETS[:64], ROWS, shuffle=False, verbose=0)
    assert f"epoch 2 of 2: loss {again.history['loss'][0]:.6g}" in said
    assert "global batch 16 = 8 cores x 2" in said
    assert on_cores.evaluate(FEATURES[:43], TARGETS[:43]) == pytest.approx(
        model.evaluate(FEATURES[:43], TARGETS[:43], verbose=0), rel=1e-4
    )
    assert_close(on_cores.predict(FEATURES[:37]), model.predict(FEATURES[:37]), 1e-4)
    assert on_cores.evaluate(FEATURES, TARGETS) == pytest.approx(model.evaluate(FEATURES, TARGETS, verbose=0), rel=1e-4)
    for mine, plain in zip(on_cores.sync_to_cpu().get_weights(), model.get_weights(), strict=True):
        assert_close(mine, plain, 1e-4)


def test_generators_and_input_functions() -> None:
    """TensorFlow's own optimizer; a generator goes on from epoch to epoch, and so does a Dataset."""
    with tf.Graph().as_default(), tf1.Session().as_default():
        model, on_cores = pair(lambda: tf1.train.MomentumOptimizer(0.05, 0.9))
        wanted = model.fit(endless(), steps_per_epoch=3, epochs=2, verbose=0)
        assert on_cores.fit_generator(endless(), 3, 2).history["loss"] == pytest.approx(
            wanted.history["loss"], rel=1e-4
        )
        on_cores.set_weights(model.get_weights())
        model.compile(tf1.train.MomentumOptimizer(0.05, 0.9), "mse")
        wanted = model.fit(endless(), steps_per_epoch=3, epochs=2, verbose=0)
        found = on_cores.fit(data, steps_per_epoch=3, epochs=2)
        assert found.history["loss"] == pytest.approx(wanted.history["loss"], rel=1e-4)


def test_a_callback_stops_it() -> None:
    _, on_cores = pair()
    stop = tf_keras.callbacks.EarlyStopping("val_loss", min_delta=1e9)
    found = on_cores.fit(FEATURES, TARGETS, ROWS, epochs=9, callbacks=[stop], validation_data=(FEATURES, TARGETS))
    assert found.epoch == [0, 1]


@pytest.mark.parametrize(("do", "error", "words"), [
    (lambda m: m.fit(FEATURES, TARGETS, class_weight={0: 1.0}), ValueError, "weights of classes or rows are not taken"),
    (lambda m: m.fit(endless()), ValueError, "steps_per_epoch is missing"),
    (lambda m: m.fit(FEATURES, TARGETS[:3]), ValueError, r"arrays of \[3, 88\] rows: all must have as many"),
    (lambda m: m.evaluate(data(), steps=1), TypeError, "a Dataset belongs to the graph that it was made in"),
    (lambda m: m.fit(iter([(FEATURES, TARGETS, TARGETS)]), steps_per_epoch=1), ValueError, "a generator gave 3 parts"),
])  # fmt: skip
def test_it_refuses(do: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        do(pair()[1])
