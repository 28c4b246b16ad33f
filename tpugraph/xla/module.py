"""A lowered cluster: code, arguments and results. Needs neither TensorFlow nor jax."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

SIZES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
         "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16}  # fmt: skip
"""Bytes of one element."""

HELD = ("variable", "shard")
"""The kinds of values that stay on the devices from one call to the next."""


@dataclass(frozen=True)
class Value:
    """One argument or result of a module."""

    # count: int32 [], the iterations to run; seed: int32 [2], for random numbers; infeed and outfeed: one row per iteration;
    # host and output: before and after the loop; variable; shard: the rows of a variable that a core holds
    kind: str
    name: str  # the variable's or tensor's name in the TPU graph; a number for infeed and outfeed
    dtype: str  # the short name of the element type
    shape: tuple[int, ...]  # the shape on one core

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * SIZES[self.dtype]


@dataclass(frozen=True)
class Module:
    """The program of every core."""

    code: bytes  # the StableHLO module as MLIR bytecode; main takes and returns what follows, in this order
    num_replicas: int  # the number of cores that its collectives go over
    iterations: int  # the most iterations of one call, the rows of infeed and outfeed
    arguments: tuple[Value, ...]  # what main takes
    results: tuple[Value, ...]  # what it returns; a variable that is not written is not returned
    seconds: dict[str, float] = field(default_factory=dict)  # how long the lowering took, by stage
    # the number of loops, conditionals outside of them, and all-reduces
    facts: dict[str, Any] = field(default_factory=dict)
