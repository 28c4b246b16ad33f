"""The packages of ``tf.contrib`` that have nothing in their place, and what to use instead."""

from __future__ import annotations

_TF = "a function of tf itself; docs/compat.md lists what there is of tf.contrib"
_PROBABILITY = "tensorflow_probability"
_LEARN = "tf.estimator"

CONTRIB = {
    **dict.fromkeys("bayesflow distributions linear_optimizer".split(), _PROBABILITY),
    **dict.fromkeys(
        "legacy_seq2seq boosted_trees factorization tensor_forest timeseries kernel_methods".split(), _LEARN
    ),
    **dict.fromkeys("all_reduce nccl".split(), "nothing: TPUEstimator's cores need no strategy"),
    **dict.fromkeys("eager autograph".split(), "nothing: a program for Estimator makes graphs"),
    **dict.fromkeys("cloud bigtable hadoop ignite kafka kinesis libsvm".split(), "tf.data"),
    **dict.fromkeys("tensorrt lite fused_conv cudnn_rnn".split(), "nothing: it is for other devices than TPUs"),
    "cudnn_rnn": "tf.nn.rnn_cell.LSTMCell with tf.nn.dynamic_rnn",
    "image": "tf.image",
    "memory_stats": "tpugraph compile, which says how much memory a step takes",
    "mixed_precision": "tf.contrib.tpu.bfloat16_scope",
    "model_pruning": "tensorflow_model_optimization",
    "tfprof": "tf.profiler",
    "deprecated": "tf.summary",
    "stateless": "tf.random.stateless_uniform and the like",
    "checkpoint": "tf.train.Checkpoint",
    "quantization": "tf.quantization",
    "signal": "tf.signal",
    "saved_model": "tf.saved_model",
    "session_bundle": "tf.saved_model",
    "integrate": "scipy.integrate",
    "hooks": "tf.train.ProfilerHook",
    "feature_column": "tf.feature_column",
    **dict.fromkeys(
        "batching compiler constrained_optimization copy_graph decision_trees ffmpeg graph_editor grid_rnn input_pipeline keras "
        "labeled_tensor meta_graph_transform nearest_neighbor nn optimizer_v2 periodic_resample proto receptive_field recurrent "
        "reduce_slice_ops remote_fused_graph resampler rpc solvers sparsemax specs staging stat_summarizer testing text util".split(),
        _TF,
    ),
}
