"""Decides which inputs can resume at a saved position: those of the same form, for any number of cores and any engine.

The position of an input is tf.data's state of its stages: their progress and their buffered elements. tf.data restores it
wherever stages have the same names, and returns buffered elements even of other shapes. So a checkpoint describes the stages,
each with the shapes of elements that it may buffer, and the position of another form is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis.batched_input import makers_of
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.roles.findings import saved_by
from tpugraph.runtime.pipelines import is_tuned
from tpugraph.tpu.checkpoint_nodes import ITERATOR_KEY

_FORM = "{}/form"  # checkpoint key of the form of an input, by the key of its position
_STRING = attrs.dtype("string")


def save_forms(graph: Graph) -> dict[str, str]:
    """Save the form of an input with its position; returns the forms by checkpoint key.

    A form has a line per stage, the last one first.
    """
    save = graph.get("tpugraph/save_with_input")
    entries = None if save is None else saved_by(save)
    if save is None or entries is None:
        return {}
    start = ITERATOR_KEY.format("")
    names = [key.removeprefix(start) for key, _, _ in entries if key.startswith(start)]
    forms = {_FORM.format(start + name): _form(graph, graph[name]) for name in names if name in graph}
    for operand, more in ((1, list(forms)), (2, [""] * len(forms))):
        held = save.inputs[operand].node
        texts = np.concatenate([held.attr("value"), np.array([text.encode() for text in more], object)])
        graph.set_input(save, operand, _texts(graph, held.name, texts))
    values = [_texts(graph, key, np.array(form.encode(), object)) for key, form in forms.items()]
    kinds = [*save.attr("dtypes"), *[_STRING] * len(values)]
    graph.retype(save, save.op, inputs=[*save.inputs, *values], attrs={**save.raw_attrs, "dtypes": kinds})
    return forms


def _texts(graph: Graph, name: str, value: np.ndarray) -> Tensor:
    return graph.add("Const", name, attrs={"dtype": _STRING, "value": value}, outputs=[(_STRING, value.shape)]).out()


def _form(graph: Graph, iterator: Node) -> str:
    makers = makers_of(iterator)
    around = ops.SAME_ELEMENTS - ops.PREFETCH_DATASETS  # options and the like
    before = graph.ancestors(makers, data_only=True)
    stages = [node for node in before if ops.is_dataset(node.op) and node.op not in around]
    tuned = any(is_tuned(graph, maker.inputs[0]) for maker in makers)
    return "\n".join(node.op + _held(node, tuned=tuned) for node in stages)


def _held(stage: Node, *, tuned: bool) -> str:
    """The shapes of the elements that a stage may buffer; "" for one without buffer."""
    batches = stage.op in ops.BATCH_DATASETS | ops.REBATCH_DATASETS
    # tf.data fuses map and batch into one stage with a thread
    fused = batches and stage.inputs[0].node.op in ops.MAP_DATASETS
    maps = stage.op in ops.PLAIN_MAP_DATASETS and not tuned  # else tf.data parallelizes it
    repeats = stage.op in ops.REPEAT_DATASETS
    if (batches and not fused) or maps or repeats or not stage.has_attr("output_shapes"):
        return ""
    return " of " + ", ".join(_text(shape) for shape in stage.attr("output_shapes"))


def _text(shape: attrs.Shape) -> str:
    return "any shape" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def why_not(prefix: Path, forms: Mapping[str, str]) -> str:
    """Why inputs of these forms cannot resume at a checkpoint's position; "" where all can."""
    reader = tf.train.load_checkpoint(str(prefix))
    for key, own in forms.items():
        if not reader.has_tensor(key):
            return "the position of the input was saved by an earlier version of tpugraph"
        saved = reader.get_tensor(key).decode("utf-8", "replace")
        for there, here in itertools.zip_longest(saved.splitlines(), own.splitlines(), fillvalue="nothing"):
            if there != here:
                return (f"the position of the input was saved with {there}, this graph has {here}, and only the input and the "
                        "batch of a core that saved it go on from it")  # fmt: skip
    return ""
