"""Arithmetic, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph.ops.facts import Ordering, Rank, Trusted
from tpugraph.ops.record import Call, floating, letters, page

op = page("arithmetic", dims="elementwise")

# --------------------------------------------------------------------------- linear in all operands together

op("AddN", linear="all", role="add_n")
op("Add AddV2", linear="all", computes=np.add)
op("Sub", linear="all", computes=np.subtract)
op("Neg", linear="all", computes=np.negative)
op("Conj Real Imag Complex", linear="all")
op("AccumulateNV2", linear="all", role="add_n", instead="tf.add_n")
op("ZerosLike", linear="all", role="filled", computes=np.zeros_like, differentiable=False)
op("CheckNumerics", linear="all", role="check", alias="memory")
op("CheckNumericsV2", linear="all", role="check", alias="memory", instead="tf.debugging.check_numerics of TensorFlow 1")
op("Identity", linear="all", role="identity", computes=np.asarray, alias="handle")
op("Snapshot PreventGradient EnsureShape", linear="all", role="identity", computes=np.asarray, alias="memory")
op("StopGradient", linear="all", role="identity", computes=np.asarray, alias="memory", differentiable=False)
op("IdentityN", dims=None, linear="all", role="identity", alias="memory")  # one output per operand, equal to it


def _cast(call: Call) -> str | None:
    """Not linear: a cast to an integer or narrower dtype rounds, one to bool compares."""
    kinds = [call.attr(name, None) for name in ("SrcT", "DstT")]
    names = [getattr(kind, "name", "bool") for kind in kinds]
    real = [name.startswith(("float", "bfloat", "double", "half", "complex")) for name in names]
    if "bool" in names or (real[0] and (not real[1] or kinds[1].size < kinds[0].size)):
        return None
    return "all"


op("Cast", linear=_cast, role="cast", computes=np.asarray)

# --------------------------------------------------------------------------- linear in some operands

op("Mul", linear="each", computes=np.multiply)
op("MulNoNan", linear="each")
op("RealDiv Div", linear=floating("0"), role="division", computes=np.divide)
op("DivNoNan", linear="0", role="guarded_division")
op("Xdivy Xlogy Xlog1py", linear="0")
op("SelectV2", linear="1+2")


def _select(call: Call) -> str | None:
    """A condition vector selects rows; it does not broadcast like the other operands."""
    condition, value = call.ranks[:2]
    if condition is None or value is None:
        return None
    row = letters(value)
    return f"a, {row}, {row} -> {row}" if condition == 1 and row else "elementwise"


op("Select", dims=_select, linear="1+2")
op("ReluGrad Relu6Grad EluGrad SeluGrad LeakyReluGrad SoftplusGrad SoftsignGrad", linear="0", backward=True)
op("FakeQuantWithMinMaxArgsGradient", linear="0")
op("TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad", linear="1", backward=True)
op("InvGrad", linear="1", instead="tf.math.reciprocal", backward=True)

# --------------------------------------------------------------------------- not linear


def truncated_quotient(a: Any, b: Any) -> Any:
    """The quotient truncated towards zero, as C's integer division."""
    return np.trunc(np.divide(a, b))


op("OnesLike", role="filled", computes=np.ones_like, differentiable=False)
op("Abs", computes=np.abs)
op("ComplexAbs Angle Acos Acosh Asin Asinh Atan Atan2 Atanh Cos Cosh Sin Sinh Tan Tanh")
op("Exp", computes=np.exp)
op("Log", computes=np.log)
op("Erf Erfc Erfinv Ndtri Expm1 Log1p Digamma Lgamma Polygamma Zeta Igamma Igammac IgammaGradA")
op("Betainc")
op("BesselI0e BesselI1e RandomGammaGrad")
_SPECIAL = "compute it in the input function; of the special functions XLA has i0e, i1e, lgamma, digamma, igamma, betainc, zeta"
op("BesselI0 BesselI1 BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1", instead=_SPECIAL)
op("Dawsn Expint FresnelCos FresnelSin Spence", instead=_SPECIAL)
op("Sqrt", computes=np.sqrt)
op("Square", computes=np.square)
op("Inv Reciprocal Pow Rsqrt SquaredDifference NextAfter")
op("Elu LeakyRelu Relu Relu6 Selu Sigmoid Softplus Softsign")
op("ClipByValue")
op("Maximum", computes=np.maximum)
op("Minimum", computes=np.minimum)
op("Mod TruncateMod", computes=np.fmod)
op("FloorMod", computes=np.remainder)
op("TruncateDiv", computes=truncated_quotient)
op("FakeQuantWithMinMaxArgs")
op("FakeQuantWithMinMaxVars", dims="..., -, - -> ...")
op("FakeQuantWithMinMaxVarsGradient", dims="..., ..., -, - -> ..., , ", linear="0")
op("FakeQuantWithMinMaxVarsPerChannel", dims="...c, c, c -> ...c")
op("FakeQuantWithMinMaxVarsPerChannelGradient", dims="...c, ...c, c, c -> ...c, c, c", linear="0",
   trusted=Trusted(ranks=(Rank(0, 1, exact=False), Rank(1, 1, exact=False))))  # fmt: skip
op("Ceil", computes=np.ceil, differentiable=False)
op("Floor", computes=np.floor, differentiable=False)
op("FloorDiv", computes=np.floor_divide, differentiable=False)
op("Rint Round", computes=np.rint, differentiable=False)
op("Sign IsFinite IsInf IsNan", differentiable=False)
op("LogicalAnd", computes=np.logical_and, differentiable=False)
op("LogicalOr", computes=np.logical_or, differentiable=False)
op("LogicalNot", computes=np.logical_not, differentiable=False)
op("Equal", computes=np.equal, differentiable=False)
op("NotEqual", computes=np.not_equal, differentiable=False)
op("ApproximateEqual")
op("Less", computes=np.less, differentiable=False, ordering=Ordering(0, 1, 0))
op("LessEqual", computes=np.less_equal, differentiable=False, ordering=Ordering(0, 1, 1))
op("Greater", computes=np.greater, differentiable=False, ordering=Ordering(1, 0, 0))
op("GreaterEqual", computes=np.greater_equal, differentiable=False, ordering=Ordering(1, 0, 1))
op("Bucketize", differentiable=False)
op("BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift PopulationCount")


def _bitcast(call: Call) -> str | None:
    """Elementwise where both dtypes have the same size."""
    sizes = {getattr(call.attr(name, None), "size", None) for name in ("T", "type")}
    return "elementwise" if len(sizes) == 1 and None not in sizes else None


op("Bitcast", dims=_bitcast, alias="memory")
