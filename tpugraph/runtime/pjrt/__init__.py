"""The engine ``pjrt``: a step compiled for PJRT devices, and bundles that train with jax and NumPy alone."""

from tpugraph.runtime.pjrt.bundle import CompiledStep, load

__all__ = ["CompiledStep", "load"]
