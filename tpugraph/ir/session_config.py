"""The configuration of every TensorFlow session in which tpugraph runs a graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2


def guarded(config: Any = None) -> Any:
    """A session's configuration in which TensorFlow runs the graph that it was given.

    TensorFlow's remapper fuses a MatMul with an addition behind it wherever the added tensor has the shape of a bias. With
    oneDNN, which the processor decides on, it takes a tensor of shape [1, 2] for one, and the fused kernel then refuses
    it: a right graph runs on one machine and fails on another. The remapper is off where nobody asked for it.

    Args:
        config: a ``tf.compat.v1.ConfigProto``, which stays as it is, or None.
    """
    made = tf.compat.v1.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    options = made.graph_options.rewrite_options
    if options.remapping == rewriter_config_pb2.RewriterConfig.DEFAULT:
        options.remapping = rewriter_config_pb2.RewriterConfig.OFF
    return made
