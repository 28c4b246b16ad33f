"""The configuration of every TensorFlow session in which tpugraph runs a graph."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

OWN_THREADS = "TF_OVERRIDE_GLOBAL_THREADPOOL"
"""The environment variable by which each session has threads of its own to divide an op among, not those of the first session.

TensorFlow reads it when it makes the first device of the process.
"""


def guarded(config: Any = None, *, converted: bool = False, parts: bool = False, threads: int = 0) -> Any:
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

    Each session has threads of its own, where the process has made no session before and its environment does not say
    otherwise. So the number of threads for an op can be that of one graph; without threads of its own a session ignores it.

    Args:
        config: a ``tf.compat.v1.ConfigProto``, which stays as it is, or None.
        converted: whether it is for a converted graph.
        parts: whether parts of the graph run alone: others need no kernels, as collectives of a replica have none.
        threads: how many threads work on an op, where nobody asked for a number; 0 leaves that to TensorFlow.
    """
    made = tf.compat.v1.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    made.graph_options.place_pruned_graph |= parts
    options = made.graph_options.rewrite_options
    for optimizer in ("remapping", "arithmetic_optimization"):
        if getattr(options, optimizer) == RewriterConfig.DEFAULT:
            setattr(options, optimizer, RewriterConfig.OFF)
    own = os.environ.setdefault(OWN_THREADS, "true").lower() in ("1", "true")
    if own and not made.intra_op_parallelism_threads and made.inter_op_parallelism_threads != 1:
        made.intra_op_parallelism_threads = threads
    if not converted:
        return made
    if options.meta_optimizer_iterations == RewriterConfig.DEFAULT_NUM_ITERS:
        options.meta_optimizer_iterations = RewriterConfig.ONE
    if options.memory_optimization == RewriterConfig.DEFAULT_MEM_OPT:
        options.memory_optimization = RewriterConfig.NO_MEM_OPT
    options.disable_tfg_optimizer = True
    return made
