"""Functions of ``tf.contrib`` that hand on to another one: of ``tpu``, and of the plugins of ``tensorboard``."""

from __future__ import annotations

from typing import Any


def export_estimator_savedmodel(estimator: Any, export_dir_base: Any, serving_input_receiver_fn: Any, assets_extra: Any = None,
                                as_text: bool = False, checkpoint_path: Any = None,
                                strip_default_attrs: bool = False) -> str:  # fmt: skip
    """Write the trained model of an estimator as a SavedModel; returns its folder."""
    del strip_default_attrs  # they are always stripped
    found: str = estimator.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra, as_text=as_text,
                                              checkpoint_path=checkpoint_path)  # fmt: skip
    return found


def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Tell TensorBoard which tensors of a checkpoint are embeddings; the file lies where the writer writes."""
    from tensorboard.plugins import projector

    projector.visualize_embeddings(summary_writer.get_logdir(), config)
