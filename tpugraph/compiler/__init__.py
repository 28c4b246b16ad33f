"""The compiler: options, conversion, the check for TPUs, and TPU graphs that TPUEstimator built."""

from tpugraph.compiler.conversion import (
    convert,
    find_roles,
    whole_step,
    why_on_cores,
)
from tpugraph.compiler.options import ConvertOptions

__all__ = [
    "ConvertOptions",
    "convert",
    "find_roles",
    "whole_step",
    "why_on_cores",
]
