"""The symbols of TensorFlow 1.15 by module: the data behind the tree, behind ``tpugraph program`` and docs/compat.md."""

from __future__ import annotations

from tpugraph.compat.symbol_record import Page, Symbol
from tpugraph.compat.symbols import contrib_names as contrib
from tpugraph.compat.symbols import core_names as core
from tpugraph.compat.symbols import estimator_names
from tpugraph.compat.symbols.contrib_packages import CONTRIB

__all__ = ["BASES", "CONTRIB", "INSIDE", "PAGES"]

PAGES: dict[str, Page] = {
    "": core.ROOT,
    "compat": {"v1": Symbol("@"), "v2": Symbol("@compat.v2")},
    "distribute.cluster_resolver": core.CLUSTER_RESOLVER,
    "tpu.experimental": core.TPU_EXPERIMENTAL,
    "version": core.VERSIONS,
    "layers": core.LAYERS,
    "layers.experimental": core.LAYERS_EXPERIMENTAL,
    "python.tpu.tpu_embedding": core.TPU_EMBEDDING,
    "contrib.tpu": contrib.TPU,
    "contrib.tpu.profiler": contrib.TPU_PROFILER,
    "contrib.data": contrib.DATA,
    "contrib.cluster_resolver": contrib.CLUSTER_RESOLVER,
    "contrib.training": contrib.TRAINING,
    "contrib.summary": contrib.SUMMARY,
    "contrib.framework": contrib.FRAMEWORK,
    "contrib.layers": contrib.LAYERS,
    "contrib.opt": contrib.OPT,
    "contrib.estimator": contrib.ESTIMATOR,
    "contrib.quantize": contrib.QUANTIZE,
    "contrib.crf": contrib.CRF,
    "contrib.rnn": contrib.RNN,
    "contrib.seq2seq": contrib.SEQ2SEQ,
    "contrib.predictor": contrib.PREDICTOR,
    "contrib.distribute": contrib.DISTRIBUTE,
    "contrib.tensorboard.plugins.projector": contrib.PROJECTOR,
    **contrib.LEARN,
    **estimator_names.PAGES,
}
"""Of each module of the tree, by its name below ``tf``, the symbols with a record of their own."""

INSIDE: dict[str, Page] = {"estimator": estimator_names.INSIDE, "contrib.tpu": contrib.TPU_INSIDE,
                           "contrib.seq2seq": contrib.SEQ2SEQ_INSIDE}  # fmt: skip
"""What published programs take from the files of a module without being public in it; no promise of docs/compat.md."""

_RNN = f"{core.KERAS}.__internal__.legacy.rnn_cell"

BASES: dict[str, tuple[str, ...]] = {
    "": ("tensorflow.compat.v1",),
    "compat": ("tensorflow.compat.v1.compat",),
    "nn": ("tensorflow.compat.v1.nn",),
    "nn.rnn_cell": (_RNN,),
    "contrib.rnn": (_RNN, "tensorflow.compat.v1.nn"),
    "contrib.framework": ("tf_slim",),
    "contrib.layers": ("tf_slim.layers", "tf_slim"),
    "contrib.slim": ("tf_slim",),
    "contrib.slim.nets": ("tf_slim.nets",),
    "contrib.losses": ("tf_slim.losses",),
    "contrib.metrics": ("tf_slim.metrics",),
    "contrib.gan": ("tensorflow_gan",),
    "compat.v2": ("tensorflow.compat.v2",),
    "contrib.lookup": ("tensorflow.python.ops.lookup_ops",),
    "distribute": ("tensorflow.compat.v1.distribute",),
    "distribute.cluster_resolver": ("tensorflow.compat.v1.distribute.cluster_resolver",),
    "python.tpu": ("tensorflow.python.tpu",),
    "python.tpu.tpu_embedding": (),
    "tpu": ("tensorflow.compat.v1.tpu",),
    "tpu.experimental": ("tensorflow.compat.v1.tpu.experimental",),
    "version": ("tensorflow.compat.v1.version",),
}
"""The modules in which names without a record are looked up, first one first."""
