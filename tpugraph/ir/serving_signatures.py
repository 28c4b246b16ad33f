"""Signatures of a SavedModel: what it is fed and what it hands out, by names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT = "serving_default"
"""The signature that is taken where none is named."""


@dataclass(frozen=True)
class Signature:
    """One signature.

    Attributes:
        inputs: by name the tensor that is fed; "" where that is no dense tensor.
        outputs: by name the tensor that is handed out; "" where that is no dense tensor.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def signatures_of(meta: Any) -> dict[str, Signature]:
    """The signatures of a MetaGraphDef, by name; those that TensorFlow keeps for itself are not among them."""
    return {
        name: Signature(_named(found.inputs), _named(found.outputs))
        for name, found in sorted(meta.signature_def.items())
        if not name.startswith("__")
    }


def _named(tensors: Mapping[str, Any]) -> dict[str, str]:
    return {name: tensors[name].name for name in sorted(tensors)}
