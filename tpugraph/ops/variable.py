"""Variables, and their reads and writes."""

from __future__ import annotations

from tpugraph.ops.facts import Rank, Trusted, Write
from tpugraph.ops.record import page

op = page("variable")

op("VariableV2 Variable TemporaryVariable", role="ref_variable")
op("VarHandleOp", role="resource_variable", effects=False)
op("ReadVariableOp", role="read", effects=False, fused=True)
op("ResourceGather", role="read_rows", effects=False)
op("ResourceGatherNd", role="read_places", effects=False)
op("VariableShape", role="variable_shape", effects=False)
op("RefIdentity", dims="elementwise", linear="all", alias="handle")
op("IsVariableInitialized", role="is_initialized", resource_op="VarIsInitializedOp")
op("VarIsInitializedOp", role="is_initialized", effects=False)


def writes(reference: str, resource: str, write: Write, **facts: object) -> None:
    """A write to a variable in both forms; ``reference`` is ``""`` where TensorFlow has only the resource form.

    The facts are those of the resource form.
    """
    op(reference, writes=write, resource_op=resource)
    op(resource, writes=write, **facts)


# --------------------------------------------------------------------------- assignments and rows

writes("Assign", "AssignVariableOp", Write("assign", (0,), 1), fused=True)
for _name in ("Add", "Sub"):
    _assign = Write("assign", (0,), 1, additive=True, adds=_name == "Add")
    writes(f"Assign{_name}", f"Assign{_name}VariableOp", _assign, fused=True)
    writes(
        f"Scatter{_name}",
        f"ResourceScatter{_name}",
        Write("scatter", (0,), 2, 1, additive=True, adds=_name == "Add"),
        dense_op=f"Assign{_name}VariableOp",
    )
    _places = Write("scatter", (0,), 2, 1, additive=True, adds=_name == "Add", places=True)
    writes(f"ScatterNd{_name}", f"ResourceScatterNd{_name}", _places)
for _name in ("Mul", "Div"):
    writes(f"Scatter{_name}", f"ResourceScatter{_name}", Write("scatter", (0,), 2, 1))
for _name in ("Update", "Min", "Max"):
    writes(f"Scatter{_name}", f"ResourceScatter{_name}", Write("scatter", (0,), 2, 1, idempotent=True))
    writes(f"ScatterNd{_name}", f"ResourceScatterNd{_name}", Write("scatter", (0,), 2, 1, places=True, idempotent=True))
op("CountUpTo", resource_op="ResourceCountUpTo")
op("ResourceCountUpTo")

# --------------------------------------------------------------------------- optimizer steps


def optimizer(
    name: str,
    variables: int,
    gradient: int,
    *,
    sparse: bool,
    skips_zeros: bool = False,
    ref: bool = True,
    xla: bool = True,
) -> None:
    """An optimizer's step: dense and, where TensorFlow has it, sparse.

    Args:
        name: the common part of the op types.
        variables: the number of written operands, which come first.
        gradient: the index of the gradient; in the sparse step the row indices follow it.
        sparse: whether there is a sparse step.
        skips_zeros: whether a zero gradient leaves the row unchanged.
        ref: whether there are steps on ref variables.
        xla: whether XLA has the dense step.
    """
    written = tuple(range(variables))
    writes(f"Apply{name}" if ref else "", f"ResourceApply{name}", Write("apply", written, gradient), fused=xla)
    if sparse:
        write = Write("apply", written, gradient, gradient + 1, additive=skips_zeros)
        op(f"SparseApply{name}" if ref else "", writes=write, resource_op=f"ResourceSparseApply{name}")
        op(f"ResourceSparseApply{name}", writes=write, dense_op=f"ResourceApply{name}")


optimizer("GradientDescent", 1, 2, sparse=False)
optimizer("ProximalGradientDescent", 1, 4, sparse=True)
optimizer("Adadelta", 3, 6, sparse=True)
optimizer("Adagrad", 2, 3, sparse=True, skips_zeros=True)
optimizer("AdagradV2", 2, 4, sparse=True, skips_zeros=True)
optimizer("AdagradDA", 3, 3, sparse=True)
optimizer("ProximalAdagrad", 2, 5, sparse=True)
optimizer("Ftrl", 3, 3, sparse=True)
optimizer("FtrlV2", 3, 3, sparse=True)
optimizer("Momentum", 2, 3, sparse=True)
optimizer("KerasMomentum", 2, 3, sparse=True, ref=False)
optimizer("Adam", 3, 9, sparse=False)
optimizer("AdaMax", 3, 8, sparse=False)
optimizer("AdamWithAmsgrad", 4, 10, sparse=False, ref=False, xla=False)
optimizer("RMSProp", 3, 7, sparse=True)
optimizer("CenteredRMSProp", 4, 8, sparse=True)
optimizer("AddSign", 2, 6, sparse=False)
optimizer("PowerSign", 2, 6, sparse=False)
op(
    "BoostedTreesUpdateEnsemble BoostedTreesUpdateEnsembleV2",
    apart=(
        "boosted trees are grown, not trained by gradients",
        "a TPU has no kernels for them: train them on a CPU",
    ),
)
op("BoostedTreesAggregateStats", trusted=Trusted(ranks=(Rank(0, 1), Rank(1, 2), Rank(2, 2), Rank(3, 2))))
op(
    "BoostedTreesExampleDebugOutputs BoostedTreesPredict BoostedTreesTrainingPredict",
    trusted=Trusted(ranks=(Rank(slice(1, None), 1, exact=False),)),
)
