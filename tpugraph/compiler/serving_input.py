"""Predictions of a SavedModel: its signature names them, and a file of examples replaces what is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder
from tpugraph.ir.function_library import named_operands
from tpugraph.ir.model_files import DEFAULT, Signature
from tpugraph.support.errors import ConversionError, UsageError
from tpugraph.support.suggestions import did_you_mean

FILE = "examples.tfrecord"
"""The file of ``tf.train.Example`` protos in the graph; ``--rebind`` names another."""

ROWS = 32
"""The batch size where the signature leaves it open."""

_STRING, _VARIANT = attrs.dtype("string"), attrs.dtype("variant")
_HELD = {"f": "float32", "i": "int64", "u": "int64", "b": "int64"}
"""The dtype in which an example holds numbers, by NumPy's letter for their kind."""


def read_examples(graph: Graph, name: str | None) -> dict[str, str]:
    """Replace what a SavedModel is fed by a file of examples; returns the predictions of the signature by name.

    A signature that takes serialised examples reads them as they are; one that takes numbers or text reads
    ``tf.train.Example`` protos with a feature for each input, by the input's name. Without ``name`` it is
    ``serving_default``, or the only one.
    """
    signature = _chosen(graph, name)
    shapes.infer(graph)
    fed = {key: graph.tensor(text) for key, text in signature.inputs.items() if text}
    fed = {key: tensor for key, tensor in fed.items() if tensor.node.op in ops.PLACEHOLDERS}
    if fed:
        traced = [tensor.node.attr("shape") for tensor in fed.values()]
        rows = next((shape[0] for shape in traced if shape and shape[0]), ROWS)
        _read(graph, _parsed(graph, fed), rows)
    return {key: text.removesuffix(":0") for key, text in signature.outputs.items() if text}


def _chosen(graph: Graph, name: str | None) -> Signature:
    known = graph.signatures
    if name is None and (DEFAULT in known or len(known) == 1):
        return known.get(DEFAULT) or next(iter(known.values()))
    if name is None:
        raise UsageError(
            f"'{graph.source}' has several signatures: {', '.join(known)}", fix=f"--signature={next(iter(known))}"
        )
    if name not in known:
        raise UsageError(f"'{graph.source}' has no signature '{name}'",
                         fix=did_you_mean(name, known, f"one of {', '.join(known)}" if known else "give a SavedModel"))  # fmt: skip
    return known[name]


@dataclass(frozen=True)
class _Feature:
    """A feature of an example."""

    key: str
    kind: DType
    # of one example; None for a list of any length, which is a sparse tensor to the graph
    shape: tuple[int, ...] | None
    default: Tensor | None  # where an example lacks it; a tensor without elements where it must not, None for a list
    read: tuple[Tensor, ...]  # the tensor that the graph reads; of a list its indices, values and shape


def _parsed(graph: Graph, fed: Mapping[str, Tensor]) -> list[_Feature]:
    """The features that the graph itself parses, else one for each input."""
    only = next(iter(fed.values())).node
    parsers = [use.node for use in only.uses() if next(named_operands(use.node))[0] == "serialized"]
    if len(fed) == 1 and len(parsers) == len(only.uses()) == 1:
        return _of_parser(graph, parsers[0])
    make = Builder(graph, "examples")
    found = []
    for key, tensor in fed.items():
        kind = _stored(graph, key, tensor.node)
        missing = make.constant(np.zeros(0, object if kind == _STRING else kind.name), kind, name="required")
        found.append(_Feature(key, kind, tuple(tensor.node.attr("shape")[1:]), missing, (tensor,)))
    return found


def _of_parser(graph: Graph, parser: Node) -> list[_Feature]:
    """The features of an op that parses examples: sparse, then dense ones."""
    held: dict[str, list[Tensor]] = {}
    for name, tensor in named_operands(parser):
        held.setdefault(name, []).append(tensor)
    dense, sparse, ragged = [_texts(held.get(f"{kind}_keys", [])) for kind in ("dense", "sparse", "ragged")]
    rows = parser.attr("dense_shapes")
    if dense is None or sparse is None or ragged != [] or any(shape is None or None in shape for shape in rows):
        raise ConversionError("the examples that the signature is fed hold ragged tensors, or features of open shape",
                              node=parser, origin=graph.source,
                              fix="export with FixedLenFeature, or with VarLenFeature, which is a sparse tensor")  # fmt: skip
    count = len(sparse)
    lists = [_Feature(key, kind, None, None, tuple(parser.out(port) for port in (at, count + at, 2 * count + at)))
             for at, (key, kind) in enumerate(zip(sparse, parser.attr("sparse_types"), strict=True))]  # fmt: skip
    fixed = zip(dense, parser.attr("Tdense"), rows, held.get("dense_defaults", []), strict=True)
    return lists + [_Feature(key, kind, tuple(shape), default, (parser.out(3 * count + at),))
                    for at, (key, kind, shape, default) in enumerate(fixed)]  # fmt: skip


def _texts(constants: list[Tensor]) -> list[str] | None:
    """The texts of constants; None where a tensor is no constant."""
    if any(tensor.node.op not in ops.CONSTANTS for tensor in constants):
        return None
    return [text.decode() for tensor in constants for text in np.ravel(tensor.node.attr("value"))]


def _read(graph: Graph, features: Sequence[_Feature], rows: int) -> None:
    """Add an input pipeline that parses the features, and let the graph read them."""
    make = Builder(graph, "examples")
    features = sorted(features, key=lambda feature: feature.key.encode())  # as the dataset hands them out
    parsed: dict[str, Any] = {"output_types": [_VARIANT if f.shape is None else f.kind for f in features],
                              "output_shapes": [None if f.shape is None else (None, *f.shape) for f in features]}  # fmt: skip
    dataset = _dataset(make, features, rows, parsed)
    iterator = make.add("IteratorV2", (), (), name="iterator", shared_name="", container="", **parsed)
    make.node("MakeIterator", [dataset, iterator], name="make_iterator")
    taken = make.node("IteratorGetNext", [iterator], name="next", shapes=parsed["output_shapes"], **parsed)
    for port, feature in enumerate(features):
        if feature.shape is None:
            _unwrap(graph, make, feature, taken.out(port))
            continue
        (read,) = feature.read
        value = taken.out(port)
        graph.replace_uses(read, value if feature.kind == read.dtype else make.cast(value, read.dtype))


def _dataset(make: Builder, features: Sequence[_Feature], rows: int, parsed: dict[str, Any]) -> Tensor:
    """Batches of examples from the file, parsed."""
    names = make.constant(np.array([FILE], object), _STRING, name="files")
    none = make.constant(np.array("", object), _STRING)
    buffer = make.constant(np.int64(0), name="buffer_size")
    records = make.add("TFRecordDataset", [names, none, buffer], (), name="records")
    size, keep = make.constant(np.int64(rows), name="batch_size"), make.constant(np.bool_(False), name="drop_remainder")
    batches = make.add(
        "BatchDatasetV2", [records, size, keep], (), name="batches", output_types=[_STRING], output_shapes=[(None,)]
    )
    one = make.constant(np.int64(1), name="parallel_calls")
    lists = [f for f in features if f.shape is None]
    fixed = [(f, f.default) for f in features if f.default is not None]
    return make.add("ParseExampleDatasetV2", [batches, one, *(default for _, default in fixed)], (), name="parse",
                    sparse_keys=[f.key for f in lists], sparse_types=[f.kind for f in lists],
                    dense_keys=[f.key for f, _ in fixed], Tdense=[f.kind for f, _ in fixed],
                    dense_shapes=[f.shape for f, _ in fixed], **parsed)  # fmt: skip


def _unwrap(graph: Graph, make: Builder, feature: _Feature, wrapped: Tensor) -> None:
    """Deserialize a sparse tensor, which datasets hand out as one variant."""
    forms = [(None, 2), (None,), (2,)]
    unwrapped = make.node("DeserializeSparse", [wrapped], name="list", shapes=forms, dtype=feature.kind)
    graph.set_attr(unwrapped, "_output_shapes", forms)  # as TensorFlow writes it: the rank stands nowhere else
    for port, read in enumerate(feature.read):
        graph.replace_uses(read, unwrapped.out(port))


def _stored(graph: Graph, key: str, node: Node) -> DType:
    """The dtype in which an example holds an input: text, float32 or int64."""
    kind, shape = node.attr("dtype"), node.attr("shape")
    stored = "string" if kind == _STRING else _HELD.get(np.dtype(kind.name).kind if kind.size else "")
    if stored is None or shape is None or len(shape) == 0 or None in shape[1:]:
        raise ConversionError(f"no example can hold the input '{key}': {kind} of shape {'?' if shape is None else list(shape)}",
                              node=node, origin=graph.source,
                              fix="export with an input of fixed shape behind the rows, or with serialised examples")  # fmt: skip
    return attrs.dtype(stored)
