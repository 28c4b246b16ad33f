"""The configuration of every TensorFlow session in which tpugraph runs a graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig


def guarded(config: Any = None, *, converted: bool = False, parts: bool = False) -> Any:
    """A session's configuration in which TensorFlow runs the graph that it was given.

    TensorFlow's remapper fuses a MatMul with an addition behind it wherever the added tensor has the shape of a bias. With
    oneDNN, which the processor decides on, it takes a tensor of shape [1, 2] for one, and the fused kernel then refuses
    it: a right graph runs on one machine and fails on another. Its arithmetic optimizer takes a product with ones, which only
    makes a value wider, for a tile of the first output of the op that made the value, whichever output it was: of two features
    of an iterator the other one. Both are off where nobody asked for them.

    TensorFlow optimizes a graph before its first run, which takes longer than many a training on emulated cores. Of a
    converted graph what makes no step faster is left out, where nobody asked for it: the second round of all optimizations,
    the search for tensors to swap out of a GPU's memory, and the round trip through another form of the graph. A plain graph
    runs as its user's TensorFlow runs it: where it reads what it writes in no order, that may depend on the second round.

    Args:
        parts: whether parts of the graph run alone: others need no kernels, as collectives of a replica have none.
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
