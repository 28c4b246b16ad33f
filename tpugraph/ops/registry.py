"""Queries on any op type; those without a record are answered from TensorFlow's op registry."""

from __future__ import annotations

from functools import cache
from typing import Any

from tpugraph.ops.record import Op, records

_HOST_PREFIXES = ("Decode", "Parse", "QueueDequeue", "QueueEnqueue", "QueueSize", "Reader", "LookupTable", "Iterator")
"""Prefixes of TensorFlow's op families that run on a host only."""


@cache
def record(op: str) -> Op:
    """The record of an op type; a conservative one where there is none."""
    known = records().get(op)
    return known or Op(op, family="unknown", host_only=is_dataset(op) or op.startswith(_HOST_PREFIXES))


@cache
def op_def(op: str) -> Any:
    """TensorFlow's definition of an op type; None for an unknown op."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


@cache
def required_attrs(op: str) -> frozenset[str]:
    """The attributes of an op type without default; empty for an unknown op."""
    definition = op_def(op)
    attributes = () if definition is None else definition.attr
    return frozenset(a.name for a in attributes if not a.HasField("default_value"))


@cache
def function_attrs(op: str) -> frozenset[str]:
    """The attributes of an op type that name a function; empty for an unknown op."""
    definition = op_def(op)
    return frozenset(() if definition is None else (a.name for a in definition.attr if a.type == "func"))


@cache
def attr_names(op: str) -> frozenset[str]:
    """The attributes of an op type; empty for an unknown op."""
    definition = op_def(op)
    return frozenset(() if definition is None else (attribute.name for attribute in definition.attr))


@cache
def is_stateful(op: str) -> bool:
    """Whether the op has side effects or depends on state; True for an unknown op."""
    definition = op_def(op)
    return True if definition is None else bool(definition.is_stateful)


@cache
def is_folded_away(op: str) -> bool:
    """Whether TensorFlow might constant-fold the op at import though it has side effects, since it is declared stateless."""
    return record(op).reach is not None and not is_stateful(op)


@cache
def is_dataset(op: str) -> bool:
    """Whether the op makes a tf.data dataset."""
    return op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4")) and op_def(op) is not None


def is_host_only(op: str) -> bool:
    """Whether the op runs on a host only, for any dtype."""
    return record(op).host_only
