"""The configuration of every TensorFlow session in which tpugraph runs a graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig


def guarded(config: Any = None, *, converted: bool = False, parts: bool = False) -> Any:
    """A session's configuration in which TensorFlow runs the graph that it was given.

    Two optimizers that change results are off unless ``config`` asks for them. The remapper fuses a MatMul with the addition of
    a bias. Where TensorFlow uses oneDNN, which depends on the processor, it takes any tensor of shape [1, 2] for a bias, and the
    fused kernel refuses it. The arithmetic optimizer replaces a product with ones by a Tile of the producer's output 0, even
    where another output of the producer was multiplied.

    Args:
        converted: whether the graph is a converted one. Then the second round of all optimizers, swapping to host memory, and the
            round trip through TFG are off as well: they make no step faster and take longer than many a training on emulated
            cores. A plain graph keeps them: what its unordered reads and writes see may depend on the second round.
        parts: whether only parts of the graph run; nodes of other parts need no kernels.
    """
    made = tf.compat.v1.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    made.graph_options.place_pruned_graph |= parts
    options = made.graph_options.rewrite_options
    for optimizer in ("remapping", "arithmetic_optimization"):
        if getattr(options, optimizer) == RewriterConfig.DEFAULT:
            setattr(options, optimizer, RewriterConfig.OFF)
    if not converted:
        return made
    if options.meta_optimizer_iterations == RewriterConfig.DEFAULT_NUM_ITERS:
        options.meta_optimizer_iterations = RewriterConfig.ONE
    if options.memory_optimization == RewriterConfig.DEFAULT_MEM_OPT:
        options.memory_optimization = RewriterConfig.NO_MEM_OPT
    options.disable_tfg_optimizer = True
    return made
