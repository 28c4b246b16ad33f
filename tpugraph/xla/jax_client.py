"""XLA modules and compilers through jax, which is imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tpugraph.support.errors import RunError

SMALLER = (
    "--fit searches a mesh on which the step fits; or a smaller batch, or fewer steps per call: --iterations_per_loop"
)


def load(name: str, extra: str) -> Any:
    """Import a module of an optional package; the fix names the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise RunError(f"{package} is not installed", fix=f"python -m pip install 'tpugraph[{extra}]'") from error


def need(extra: str, *packages: str) -> None:
    """Check that optional packages are installed, without importing them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise RunError(f"{package} is not installed", fix=f"python -m pip install 'tpugraph[{extra}]'")


def joined() -> bool:
    """Whether this process was joined with others."""
    jax = sys.modules.get("jax")  # without jax nothing was joined
    return jax is not None and bool(jax.distributed.is_initialized())


def devices(platform: str) -> list[Any]:
    """jax's devices of a platform; a RunError where there are none."""
    jax = load("jax", "pjrt")
    try:
        return list(jax.devices(platform))
    except RuntimeError as error:
        fix = "python -m pip install 'jax[cuda12]', or platform='cpu'" if platform == "gpu" else "platform='cpu'"
        raise RunError(f"jax finds no {platform}: {str(error).splitlines()[0]}", fix=fix) from error


def parse(code: bytes) -> Any:
    """Parse a StableHLO module with jax's MLIR, in a context of its own.

    TensorFlow's bridge leaves ``mhlo.copy`` ops, which are identities and which TPU compilers refuse. It restarts the numbering
    of all-reduce channels in each function, so that two may share one; a sum over all replicas needs none.
    """
    ir = load("jaxlib.mlir.ir", "pjrt")
    with load("jax.interpreters.mlir", "pjrt").make_ir_context() as context:
        try:
            module = ir.Module.parse(code, context)
        except ir.MLIRError as error:
            raise _unreadable(str(error)) from error
        copies: list[Any] = []
        find(module.operation, ("mhlo.copy",), copies)
        for operation in copies:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()
        sums: list[Any] = []
        find(module.operation, ("stablehlo.all_reduce",), sums)
        for operation in sums:
            if "channel_handle" in operation.attributes:
                del operation.attributes["channel_handle"]
    return module


def _unreadable(text: str) -> RunError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "")
    named = _PLACE.search(said)
    return RunError(f"jax cannot read the module: {said.removeprefix('error:').strip()[:300]}",
                    node=named.group(1) if named else None,
                    fix="update jax, or write it again with a TensorFlow that is no newer than this jax")  # fmt: skip


def find(operation: Any, names: Collection[str], found: list[Any]) -> None:
    """Append the operations with these names inside ``operation``."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name in names:
                    found.append(inner.operation)
                find(inner.operation, names, found)


def exact_products(module: Any) -> None:
    """Compute float32 products and convolutions in float32: by default XLA rounds their operands to TensorFloat-32 on GPUs."""
    ir = load("jaxlib.mlir.ir", "pjrt")
    found: list[Any] = []
    find(module.operation, ("stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution"), found)
    with module.context:
        exact = ir.ArrayAttr.get([ir.Attribute.parse("#stablehlo<precision HIGHEST>")] * 2)
    for operation in found:
        operation.attributes["precision_config"] = exact


def order_convolutions(module: Any) -> None:
    """Transpose operands and results of convolutions to the dimension order of XLA's fast CPU kernels.

    XLA does that itself outside of loops alone (``xla/service/cpu/conv_canonicalization.cc``); in the loop of steps a kernel's
    gradient took 70 times as long.
    """
    ir, dialect = load("jaxlib.mlir.ir", "pjrt"), load("jaxlib.mlir.dialects.stablehlo", "pjrt")

    def ordered(kind: Any, order: Sequence[int]) -> Any:
        return ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type)

    def transposed(value: Any, order: Sequence[int], where: Any) -> Any:
        made = {"permutation": ir.DenseI64ArrayAttr.get(list(order))}
        results = [ordered(value.type, order)]
        return ir.Operation.create("stablehlo.transpose", results=results, operands=[value], attributes=made, ip=where)

    found: list[Any] = []
    find(module.operation, ("stablehlo.convolution",), found)
    for operation in found:
        with module.context, operation.location:
            old = dialect.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
            images = [old.input_batch_dimension, *old.input_spatial_dimensions, old.input_feature_dimension]
            kernel = [
                *old.kernel_spatial_dimensions,
                old.kernel_input_feature_dimension,
                old.kernel_output_feature_dimension,
            ]
            output = [old.output_batch_dimension, *old.output_spatial_dimensions, old.output_feature_dimension]
            for number, order in enumerate((images, kernel)):
                operation.operands[number] = transposed(
                    operation.operands[number], order, ir.InsertionPoint(operation)
                ).result
            last = len(output) - 1
            inner = list(range(1, last))
            operation.attributes["dimension_numbers"] = dialect.ConvDimensionNumbers.get(
                0, last, inner, last - 1, last, [d - 1 for d in inner], 0, last, inner
            )
            result = operation.results[0]
            result.set_type(ordered(result.type, output))
            back = transposed(result, np.argsort(output).tolist(), ir.InsertionPoint.after(operation))
            result.replace_all_uses_except(back.result, back)


def options(num_replicas: int, devices: list[Any]) -> Any:
    """Compile options for one replica per device."""
    client = load("jaxlib.xla_client", "pjrt")
    made = client.CompileOptions()
    made.num_replicas, made.num_partitions = num_replicas, 1
    ids = np.array([device.id for device in devices]).reshape(num_replicas, 1)
    made.device_assignment = client.DeviceAssignment.create(ids)
    return made


class CompilerRefusal(RunError):
    """An XLA compiler refuses the lowered step."""


class TooLarge(CompilerRefusal):
    """The step needs more memory than a core has."""

    def __init__(self, target: str, what: str, needed: int, available: int, node: str | None) -> None:
        super().__init__(
            f"the step does not fit on a core of {target}: it needs {needed / 2**30:,.2f} GiB for {what}, which is "
            f"{(needed - available) / 2**30:,.2f} GiB more than the {available / 2**30:,.2f} GiB that there are",
            node=node,
            fix=SMALLER,
        )
        self.needed = needed
        self.available = available


def _bytes(text: str) -> int:
    """Bytes from XLA's notation, such as ``21.03G``."""
    return int(float(text.rstrip("KMGT")) * 1024 ** ("KMGT".find(text[-1]) + 1))


def refused(error: Exception, target: str) -> CompilerRefusal:
    """The compiler's message as an error, with the node that it names."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = _OP_NAME.search(text)
    node = named.group(1) if named else None
    full = _TOO_LARGE.search(text)
    if full:
        return TooLarge(target, full.group(1) or "its tensors", _bytes(full.group(2)), _bytes(full.group(3)), node)
    first = lines[0][:300] if lines else type(error).__name__
    fix = "--partitioner=gspmd, which takes sizes that the data decide" if "Shardy propagation" in text else None
    return CompilerRefusal(f"the compiler for {target} refuses the step: {first}", node=node, fix=fix)


_OP_NAME = re.compile(r'op_name="([^";]+)')
_PLACE = re.compile(r'fused\["([^"]+)"')
_TOO_LARGE = re.compile(
    r"total memory required(?: for ([\w ]+?))? \(([\d.]+[KMGT]?)\) exceeds available HBM \(([\d.]+[KMGT]?)\)"
)
