"""Matrix products, linear algebra, Fourier transforms and recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

from tpugraph.ops.record import Call, page

op = page("matrix")

# --------------------------------------------------------------------------- products


def _product(batch: str, left: str, right: str) -> Callable[[Call], str]:
    """A matrix product; the attributes ``left`` and ``right`` transpose its operands."""

    def dims(call: Call) -> str:
        a = "ki" if call.attr(left, False) else "ik"
        b = "jk" if call.attr(right, False) else "kj"
        return f"{batch}{a}, {batch}{b} -> {batch}ij"

    return dims


def _einsum(call: Call) -> str | None:
    """The equation is the signature; a label that an operand repeats (a diagonal) is taken whole."""
    equation = str(call.attr("equation", "")).replace(" ", "")
    operands, _, output = equation.partition("->")
    repeated = {label for part in operands.split(",") for label in part if label.isalpha() and part.count(label) > 1}
    for label in repeated:
        operands, output = operands.replace(label, "*"), output.replace(label, "*")
    capitals = {label for label in operands if label.isupper()}  # capitals are ordinary labels in an equation
    free = sorted(set(ascii_lowercase) - set(operands))
    if len(free) < len(capitals):
        return None
    renamed = str.maketrans(dict(zip(sorted(capitals), free, strict=False)))
    operands, output = operands.translate(renamed), output.translate(renamed)
    inside = any("..." in part and not part.startswith("...") for part in [*operands.split(","), output])
    return None if inside or not equation else f"{operands}->{output}"


contraction = page("matrix", linear="each", tpu_lacks=frozenset({"int64", "uint64"}))
contraction("MatMul", dims=_product("", "transpose_a", "transpose_b"), role="matmul", fused=True)
contraction("BatchMatMul BatchMatMulV2", dims=_product("...", "adj_x", "adj_y"), role="product", fused=True)
contraction("BatchMatMulV3", dims=_product("...", "adj_x", "adj_y"))
contraction("Einsum", dims=_einsum)
op("SparseMatMul", dims=_product("", "transpose_a", "transpose_b"), linear="each")
op("Cross", dims="...C, ...C -> ...C", linear="each")

# --------------------------------------------------------------------------- bias

op(
    "BiasAdd",
    dims=lambda call: "nc..., c -> nc..." if call.attr("data_format", "") == "NCHW" else "...c, c -> ...c",
    linear="all",
    backward=True,
)

# --------------------------------------------------------------------------- parts of matrices


def _one_diagonal(k: int, dims: str) -> Callable[[Call], str | None]:
    """A diagonal has one dimension; a band, where operand ``k`` is no scalar, may have two."""
    return lambda call: dims if call.ranks[k] == 0 else None


op("MatrixBandPart", dims="...IJ, -, - -> ...IJ", linear="0")
op("MatrixDiag", dims="...I -> ...II", linear="all")
op(
    "MatrixDiagV2 MatrixDiagV3",
    role="diagonal",
    dims=_one_diagonal(1, "...*, -, -, -,  -> ...**"),
    linear="0+4",
    constants=(1, 2, 3),
    sizes=(2, 3),
)
op("MatrixDiagPart", dims="...** -> ...*", linear="all")
op("MatrixDiagPartV2", dims=_one_diagonal(1, "...**, -,  -> ...*"), linear="0+2", constants=(1,))
op("MatrixDiagPartV3", dims=_one_diagonal(1, "...**, -,  -> ...*"), linear="0+2", constants=(1, 2))
op("MatrixSetDiag", dims="...IJ, ...* -> ...IJ", linear="all")
op("MatrixSetDiagV2 MatrixSetDiagV3", dims=_one_diagonal(2, "...IJ, ...*, - -> ...IJ"), linear="0+1")
op("Diag DiagPart", linear="all")

# --------------------------------------------------------------------------- linear algebra

op("Cholesky MatrixInverse MatrixLogarithm", dims="...II -> ...II")
op("MatrixSquareRoot", dims="...II -> ...II", instead="tf.linalg.eigh and the square roots of the eigenvalues")
op("CholeskyGrad", dims="...II, ...II -> ...II", linear="1")
op("MatrixDeterminant", dims="...** -> ...")
op("LogMatrixDeterminant", dims="...** -> ..., ...")
op(
    "SelfAdjointEigV2 Eig",
    dims=lambda call: "...** -> ...*, ...**" if call.attr("compute_v", True) else "...** -> ...*, -",
)
op(
    "Svd",
    dims=lambda call: "...** -> ...*, ...**, ...**" if call.attr("compute_uv", True) else "...** -> ...*, -, -",
)
op("Qr", dims="...** -> ...**, ...**")
op("Lu", dims="...** -> ...**, ...*")
op("MatrixSolve MatrixTriangularSolve BandedTriangularSolve TridiagonalSolve", dims="...**, ...Ik -> ...Ik", linear="1")
op("MatrixSolveLs", dims="...**, ...*k, - -> ...*k", linear="1")
op("TridiagonalMatMul", dims="...**, ...**, ...**, ...*k -> ...*k", linear="0+1+2,3")
op("IsotonicRegression", dims="bI -> bI, bI")

# --------------------------------------------------------------------------- Fourier transforms

fft = page("matrix", tpu_lacks=frozenset({"float64", "complex128"}))
for _rank, _whole in (("", "I"), ("2D", "IJ"), ("3D", "IJK")):
    _lengths = "*" * len(_whole)
    fft(f"FFT{_rank} IFFT{_rank}", dims=f"...{_whole} -> ...{_whole}", linear="all")
    fft(f"RFFT{_rank} IRFFT{_rank}", dims=f"...{_lengths}, - -> ...{_lengths}", linear="0", constants=(1,))

# --------------------------------------------------------------------------- recurrent cells

op("GRUBlockCell", dims="b*, b*, **, **, *, * -> b*, b*, b*, b*")
op("GRUBlockCellGrad", dims="b*, b*, **, **, *, *, b*, b*, b*, b* -> b*, b*, b*, b*", linear="9", backward=True)
op("LSTMBlockCell", dims="b*, b*, b*, **, *, *, *, * -> b*, b*, b*, b*, b*, b*, b*")
op(
    "LSTMBlockCellGrad",
    dims="b*, b*, b*, **, *, *, *, *, b*, b*, b*, b*, b*, b*, b*, b* -> b*, b*, *, *, *",
    linear="14+15",
    backward=True,
)
op("BlockLSTM BlockLSTMV2", dims="-, *b*, b*, b*, **, *, *, *, * -> *b*, *b*, *b*, *b*, *b*, *b*, *b*")
op(
    "BlockLSTMGrad BlockLSTMGradV2",
    dims="-, *b*, b*, b*, **, *, *, *, *, *b*, *b*, *b*, *b*, *b*, *b*, *b*, *b*, *b* -> *b*, b*, b*, **, *, *, *, *",
    linear="16+17",
    backward=True,
)
