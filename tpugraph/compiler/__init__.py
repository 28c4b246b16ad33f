"""The compiler: options, conversion, the check for TPUs, and TPU graphs that TPUEstimator built."""

from tpugraph.compiler.conversion import (
    build_passes,
    convert,
    find_roles,
    whole_step,
    why_on_cores,
    with_cores,
)
from tpugraph.compiler.options import ConvertOptions

__all__ = [
    "ConvertOptions",
    "build_passes",
    "convert",
    "find_roles",
    "whole_step",
    "why_on_cores",
    "with_cores",
]
