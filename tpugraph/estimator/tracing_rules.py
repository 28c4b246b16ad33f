"""The rules under which the graphs of user functions are traced: those of TensorFlow 1, whatever the program has switched on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from tpugraph.estimator.run_config import RunConfig

tf1 = tf.compat.v1


def count_layers_anew() -> None:
    """Let Keras layers have the names in each trace that they had in the first, by which checkpoints know the variables.

    Keras 3 numbers layers over the whole process, not per graph, and has no public way to begin anew.
    """
    reset = getattr(sys.modules.get("keras.src.utils.naming"), "reset_uids", None)
    if reset is not None:
        reset()


class OpenGraph(tf.Graph):  # type: ignore[misc]
    """A graph that stays open: the hooks of a second training may add to it."""

    def finalize(self) -> None:
        """A scaffold finalizes the graph that it is used with; this one is not closed by it."""


@contextmanager
def tensorflow_1_graphs() -> Iterator[None]:
    """Loops and conditions are made of the old ops, as a TensorFlow 1 program makes them; variables are resources.

    TPUEstimator made resources of variables whatever the program had switched on or off, since nothing else runs on a TPU.
    """
    functional, resources = tf1.control_flow_v2_enabled(), tf1.resource_variables_enabled()
    tf1.disable_control_flow_v2()
    tf1.enable_resource_variables()
    try:
        yield
    finally:
        if functional:
            tf1.enable_control_flow_v2()
        if not resources:
            tf1.disable_resource_variables()


@contextmanager
def placed(config: RunConfig) -> Iterator[None]:
    """Within the block ops are placed by the ``device_fn`` of the configuration, where it has one."""
    if config.device_fn is None:
        yield
        return
    with tf1.device(config.device_fn):
        yield
