"""The modules of ``tf`` itself from which Keras 3 took something: ``tf.layers``, ``tf.keras`` and ``tf.nn.rnn_cell``."""

from __future__ import annotations

from tpugraph.compat.symbol_record import Page, Symbol, found_in

KERAS = "tf_keras.api._v1.keras"

_VERSION = "tpugraph.compat.pieces.variables"

ROOT: Page = {
    "keras": Symbol(KERAS),
    "python": Symbol("tensorflow.python"),
    **found_in("tpugraph.compat.pieces.variables", "Variable"),
    **found_in(_VERSION, "__version__=VERSION VERSION", "it is 1.15.5, the version whose tree this is"),
}
VERSIONS: Page = found_in(_VERSION, "VERSION", "it is 1.15.5, the version whose tree this is")
CLUSTER_RESOLVER: Page = found_in(
    "tpugraph", "TPUClusterResolver", "names of TPUs are not looked up: give an address, or 'local'"
)
TPU_EXPERIMENTAL: Page = found_in("tpugraph", "AdagradParameters AdamParameters StochasticGradientDescentParameters")
TPU_EMBEDDING: Page = found_in("tpugraph", "TableConfig FeatureConfig AdagradParameters AdamParameters "
                               "StochasticGradientDescentParameters")  # fmt: skip
LAYERS: Page = found_in("tpugraph.compat.pieces.normalization", "BatchNormalization") | found_in(
    f"{KERAS}.__internal__.legacy.layers",
    "InputSpec Layer Conv1D Conv2D Conv2DTranspose Conv3D Conv3DTranspose SeparableConv1D SeparableConv2D conv1d conv2d "
    "conv2d_transpose conv3d conv3d_transpose separable_conv1d separable_conv2d Dense Dropout Flatten dense dropout flatten "
    "batch_normalization AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D "
    "MaxPooling3D average_pooling1d average_pooling2d average_pooling3d max_pooling1d max_pooling2d max_pooling3d",
)
LAYERS_EXPERIMENTAL: Page = found_in(
    f"{KERAS}.__internal__.legacy.layers.experimental", "keras_style_scope set_keras_style"
)
