"""A mesh of devices, and how each value of a step lies on it, for XLA's own partitioner.

XLA divides one program, the plain step at the global batch, among all devices of a mesh once it is told how arguments and
results are sharded (https://openxla.org/shardy, https://arxiv.org/abs/2105.04663). Rows of inputs are sharded along the axis
``data``; variables are replicated where nothing else is asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import near_nodes
from tpugraph.xla import jax_client
from tpugraph.xla.module import HELD, Module, Value

DATA = "data"
"""The axis along which the rows of inputs are sharded."""

PARTITIONERS = ("shardy", "gspmd")

Spec = tuple[tuple[str, ...], ...]
"""Of each dimension the axes of the mesh along which it is sharded."""


@dataclass(frozen=True)
class Mesh:
    """The devices as a grid with named axes.

    Attributes:
        axes: the number of devices along each axis, the first one outermost.
    """

    axes: Mapping[str, int]

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """A mesh from ``data:4,model:2``.

        Raises:
            UsageError: another form, an axis twice, or no axis ``data``.
        """
        axes: dict[str, int] = {}
        for part in text.split(","):
            found = re.fullmatch(r"\s*([A-Za-z_]\w*):([1-9]\d{0,5})\s*", part)
            if found is None or found[1] in axes:
                raise UsageError(
                    f"the mesh '{text}' is no list of AXIS:DEVICES with each axis once", fix="--mesh=data:4,model:2"
                )
            axes[found[1]] = int(found[2])
        if DATA not in axes:
            raise UsageError(f"the mesh '{text}' has no axis '{DATA}', along which the rows of a batch are sharded",
                             fix=f"--mesh={DATA}:1,{text}")  # fmt: skip
        return cls(axes)

    def __str__(self) -> str:
        return ",".join(f"{axis}:{count}" for axis, count in self.axes.items())

    def with_axis(self, axis: str) -> Mesh:
        """A mesh of the same devices, if they can be halved, that has another axis."""
        rows = self.axes[DATA]
        return Mesh({**self.axes, DATA: rows // 2 if rows % 2 == 0 else rows, axis: 2})

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axes.values())

    def along(self, axes: Iterable[str]) -> int:
        """Into how many pieces some axes cut a dimension."""
        return math.prod(self.axes[axis] for axis in axes)

    def pieces(self, spec: Spec) -> int:
        """Into how many pieces a value is cut."""
        return math.prod(self.along(axes) for axes in spec)

    def hlo_sharding(self, spec: Spec) -> str:
        """The sharding of a value in the syntax of HLO, as GSPMD reads it."""
        used = [axis for axes in spec for axis in axes]
        if not used:
            return "{replicated}"
        names = list(self.axes)
        rest = self.size // self.along(used)
        tiles = [*(self.along(axes) for axes in spec), *([rest] if rest > 1 else [])]
        runs: list[list[int]] = []  # neighbours of the mesh that stay neighbours, which HLO writes as one dimension
        for place in [names.index(axis) for axis in [*used, *(axis for axis in names if axis not in used)]]:
            if runs and runs[-1][-1] + 1 == place:
                runs[-1].append(place)
            else:
                runs.append([place])
        grid = ",".join(str(self.along(names[place] for place in run)) for run in sorted(runs))
        turned = f"T({','.join(str(sorted(runs).index(run)) for run in runs)})" if len(runs) > 1 else ""
        tail = " last_tile_dim_replicate" if rest > 1 else ""
        return f"{{devices=[{','.join(map(str, tiles))}]<=[{grid}]{turned}{tail}}}"

    def sdy_sharding(self, spec: Spec, free: Collection[int] = ()) -> str:
        """The sharding of a value as an attribute of Shardy's dialect, on the mesh ``@mesh``; open in some dimensions."""
        each = (
            ", ".join([*(f'"{axis}"' for axis in axes), *("?" if d in free else "")]) for d, axes in enumerate(spec)
        )
        dimensions = ", ".join(f"{{{axes}}}" for axes in each)
        return f"#sdy.sharding<@mesh, [{dimensions}]>"


@dataclass(frozen=True)
class ShardRule:
    """How variables whose whole name a regular expression matches are sharded.

    Attributes:
        text: as it was written, ``REGEX=SPEC``.
        pattern: the regular expression.
        spec: of each dimension its axes; of those that are left out none.
    """

    text: str
    pattern: re.Pattern[str]
    spec: Spec

    @classmethod
    def parse(cls, text: str) -> ShardRule:
        """A rule from ``.*/word_embeddings=model,-``: an axis for each dimension, several as ``data+model``, ``-`` for none.

        Raises:
            UsageError: another form, or no regular expression.
        """
        regex, equals, words = text.rpartition("=")
        parts = [part.strip() for part in words.split(",")]
        if not equals or not regex or not all(re.fullmatch(r"-|\w+(\+\w+)*", part) for part in parts):
            raise UsageError(f"'{text}' does not say how variables are sharded: REGEX=SPEC",
                             fix="an axis or - for each dimension, as in --shard='.*/word_embeddings=model,-'")  # fmt: skip
        try:
            pattern = re.compile(regex)
        except re.error as error:
            raise UsageError(
                f"'{regex}' is no regular expression: {error}", fix="escape what is meant literally"
            ) from error
        return cls(text, pattern, tuple(() if part == "-" else tuple(part.split("+")) for part in parts))


@dataclass(frozen=True)
class Sharding:
    """The sharding of a variable.

    Attributes:
        variable: the whole variable.
        spec: the axes of each dimension.
        shape, bytes: of the shard on a device.
        because: the deciding rule.
    """

    variable: Value
    spec: Spec
    shape: tuple[int, ...]
    bytes: int
    because: str

    @property
    def kind(self) -> str:
        """``replicated``, or ``sharded`` with the spec."""
        axes = ",".join("+".join(of) or "-" for of in self.spec)
        return f"sharded {axes}" if any(self.spec) else "replicated"

    @property
    def words(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"{self.kind}: each device holds {self.variable.dtype}[{shape}], {self.bytes:,} bytes"

    def __str__(self) -> str:
        return f"{self.words}; {self.because}"


@dataclass(frozen=True)
class Layout:
    """A mesh and the user's sharding rules; :meth:`specs` gives the sharding of each value.

    Attributes:
        mesh: the mesh.
        rules: of variables; the last one that matches holds.
        shard_optimizer: the axis along which the optimizer's variables are sharded; "" to shard each as its variable.
        inputs: of inputs, by the shape of an example, the axes of the batch's dimensions; rows along ``data`` for others.
        partitioner: one of ``PARTITIONERS``.
        tf32: whether GPUs round the operands of float32 products and convolutions to TensorFloat-32, which is faster.
        shrinks: whether a mesh of no given size uses fewer devices along ``data`` where all of them would not divide the batch.
    """

    mesh: Mesh
    rules: Sequence[ShardRule] = ()
    shard_optimizer: str = ""
    inputs: Mapping[tuple[int, ...], Spec] = field(default_factory=dict)
    partitioner: str = "shardy"
    tf32: bool = False
    shrinks: bool = False

    @classmethod
    def parse(
        cls, mesh: str, shard: Iterable[str] = (), shard_optimizer: str = "", partitioner: str = "shardy"
    ) -> Layout:
        """A layout from the texts of flags.

        Raises:
            UsageError: a text in another form, or an axis that the mesh does not have.
        """
        made = cls(Mesh.parse(mesh), [ShardRule.parse(text) for text in shard], shard_optimizer, {}, partitioner)
        for what, axes in (
            *((f"--shard='{rule.text}'", [axis for of in rule.spec for axis in of]) for rule in made.rules),
            (f"--shard_optimizer={shard_optimizer}", [shard_optimizer] if shard_optimizer else []),
        ):
            for axis in axes:
                if axis not in made.mesh.axes:
                    raise UsageError(f"{what}: the mesh {made.mesh} has no axis '{axis}'",
                                     fix=f"one of {', '.join(made.mesh.axes)}; or --mesh={made.mesh.with_axis(axis)}")  # fmt: skip
            if len(set(axes)) < len(axes):
                raise UsageError(f"{what}: one axis cannot shard two dimensions", fix="each axis once")
        if partitioner not in PARTITIONERS:
            raise UsageError(f"there is no partitioner '{partitioner}'", fix=f"one of {', '.join(PARTITIONERS)}")
        return made

    def specs(self, module: Module) -> dict[Value, Spec]:
        """The sharding of each argument and result of a step that was lowered for one core.

        Raises:
            UsageError: a rule that matches no variable, or a dimension that the devices of its axes do not divide.
        """
        found = {value: _padded((), value.shape) for value in {*module.arguments, *module.results}}
        inputs = [value for value in module.arguments if value.kind == "infeed"]
        found |= {value: _padded(self._of_input(value), value.shape) for value in inputs}
        if inputs and self.mesh.size > 1 and not any(axes for value in inputs for axes in found[value]):
            wanted, (rows, devices) = self.mesh.axes[DATA], self._dividing(module)
            fits = Mesh({**self.mesh.axes, DATA: devices})
            raise UsageError(f"the mesh {self.mesh} does not divide the batch of {rows} rows",
                             fix=f"--mesh={fits}, or --global_batch={math.ceil(rows / wanted) * wanted}")  # fmt: skip
        variables = self.shardings(module)
        return found | {value: variables[value.name].spec for value in found if value.kind in HELD}

    def shardings(self, module: Module) -> dict[str, Sharding]:
        """The sharding of each variable of a step, by name.

        Raises:
            UsageError: as :func:`specs`.
        """
        held = {value.name: value for value in module.arguments if value.kind in HELD}
        said = self._of_variables({name: value.shape for name, value in held.items()}, optimizer_variables(module))
        found = {}
        for name, value in held.items():
            spec, because = _padded(said[name][0], value.shape), said[name][1]
            shard = tuple(size // self.mesh.along(axes) for size, axes in zip(value.shape, spec, strict=True))
            found[name] = Sharding(value, spec, shard, value.bytes // self.mesh.pieces(spec), because)
        return found

    def shrunk(self, module: Module) -> Layout:
        """The same with as many devices along ``data`` as divide the batch, where ``shrinks`` asks for that."""
        return replace(self, mesh=Mesh({**self.mesh.axes, DATA: self._dividing(module)[1]})) if self.shrinks else self

    def _dividing(self, module: Module) -> tuple[int, int]:
        """The rows of a batch, and the most devices along ``data`` that divide them."""
        inputs = (value for value in module.arguments if value.kind == "infeed")
        rows = max((value.shape[1] for value in inputs if len(value.shape) > 1), default=0)
        return rows, most_dividing(rows, self.mesh.axes[DATA])

    def _of_variables(
        self, shapes: Mapping[str, tuple[int, ...]], optimizer: Mapping[str, str]
    ) -> dict[str, tuple[Spec, str]]:
        """The spec of each variable, and the deciding rule."""
        found: dict[str, tuple[Spec, str]] = dict.fromkeys(shapes, ((), "no --shard names it"))
        holds: dict[str, ShardRule] = {}
        for rule in self.rules:
            matched = [name for name in shapes if rule.pattern.fullmatch(name)]
            if not matched:
                close = near_nodes(rule.pattern.pattern, shapes) or [name for name in shapes if shapes[name]][:3]
                raise UsageError(
                    f"--shard='{rule.text}' matches no variable", fix=f"the nearest names: {', '.join(close)}"
                )
            holds |= dict.fromkeys(matched, rule)
        for name, rule in holds.items():
            self._check(name, shapes[name], rule)
            found[name] = rule.spec, f"--shard='{rule.text}'"
        for name, of in optimizer.items():
            if name in shapes and name not in holds:
                found[name] = self._of_optimizer(found[of][0], shapes[name], f"as its variable '{of}'")
        return found

    def _of_optimizer(self, spec: Spec, shape: tuple[int, ...], because: str) -> tuple[Spec, str]:
        """A variable of the optimizer, which lies as the variable that it belongs to, and along the axis of the optimizer."""
        axis = self.shard_optimizer
        if not axis or any(axis in axes for axes in spec):
            return spec, because
        whole = list(_padded(spec, shape))
        fits = [d for d, size in enumerate(shape) if size % self.mesh.along((*whole[d], axis)) == 0]
        if not fits:
            return spec, f"{because}; the devices along {axis} divide no dimension of it"
        best = max(fits, key=lambda d: shape[d])
        whole[best] = (*whole[best], axis)
        return tuple(whole), f"{because}, and --shard_optimizer={axis}"

    def _check(self, name: str, shape: tuple[int, ...], rule: ShardRule) -> None:
        if len(rule.spec) > len(shape):
            raise UsageError(f"--shard='{rule.text}' names {len(rule.spec)} dimensions, and '{name}' has the shape {list(shape)}",
                             fix="an axis or - for each dimension, and a pattern that matches no other variable")  # fmt: skip
        for size, axes in zip(shape, rule.spec, strict=False):
            if size % self.mesh.along(axes):
                raise UsageError(
                    f"--shard='{rule.text}': {self.mesh.along(axes)} devices along {'+'.join(axes)} do not divide the"
                    f" dimension {size} of '{name}' {list(shape)}",
                    fix=self._another(name, shape, axes),
                )

    def _another(self, name: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> str:
        """The fix for a dimension that is not divided: another dimension, or fewer devices."""
        count, said = self.mesh.along(axes), "+".join(axes)
        fits = [d for d, size in enumerate(shape) if size % count == 0]
        if not fits:
            return f"as many devices along {said} as divide a dimension, or leave '{name}' out"
        spec = ",".join(said if d == fits[-1] else "-" for d in range(len(shape)))
        return f"add --shard='{re.escape(name)}={spec}' after it"

    def _of_input(self, value: Value) -> Spec:
        """An input is [steps, rows, ...]; one whose rows the devices do not divide is replicated."""
        wanted = self.inputs.get(value.shape[2:], ((DATA,),))
        dimensions = value.shape[1:]
        fits = len(wanted) <= len(dimensions) and all(
            size % self.mesh.along(axes) == 0 for size, axes in zip(dimensions, wanted, strict=False)
        )
        return ((), *wanted) if fits else ()


def _padded(spec: Spec, shape: Sequence[int]) -> Spec:
    """A spec that names all dimensions of a shape."""
    return (*spec, *[()] * (len(shape) - len(spec)))


def most_dividing(rows: int, devices: int) -> int:
    """The largest number of these devices that divides the rows."""
    return next(count for count in range(devices, 0, -1) if rows % count == 0)


def optimizer_variables(module: Module) -> dict[str, str]:
    """Of each variable of the optimizer the variable that it belongs to, by name.

    These have the shape of a variable that stands in their name, as TensorFlow's slot creator and Keras name them
    (``tensorflow/python/training/slot_creator.py``), and the step writes them.
    """
    shapes = {value.name: value.shape for value in module.arguments if value.kind in HELD and value.shape}
    found = {}
    for value in module.results:
        scopes = value.name.split("/")
        held = (
            "/".join(scopes[first:last]) for first in range(len(scopes)) for last in range(len(scopes) - 1, first, -1)
        )
        owner = next((name for name in held if shapes.get(name) == value.shape), None) if value.kind in HELD else None
        if owner is not None:
            found[value.name] = owner
    return found


def sharded(module: Module, specs: Mapping[Value, Spec]) -> dict[str, Spec]:
    """The variables that are sharded, by name."""
    return {value.name: specs[value] for value in module.arguments if value.kind in HELD and any(specs.get(value, ()))}


def sharded_shapes(module: Module, specs: Mapping[Value, Spec]) -> dict[str, tuple[int, ...]]:
    """The shapes of the variables that are sharded, those of the optimizer left out."""
    shapes, slots = {value.name: value.shape for value in module.arguments}, optimizer_variables(module)
    return {name: shapes[name] for name in sharded(module, specs) if name not in slots}


# --------------------------------------------------------------------------- what the compiler is told


def annotated(module: Module, layout: Layout, specs: Mapping[Value, Spec]) -> Any:
    """The module, parsed, with the sharding of each argument and result of ``main``."""
    ir = jax_client.load("jaxlib.mlir.ir", "pjrt")
    parsed, mesh = jax_client.parse(module.code), layout.mesh
    with parsed.context, ir.Location.unknown():
        main = next(f for f in parsed.body.operations if f.attributes["sym_name"].value == "main")
        for kind, values in (("arg_attrs", module.arguments), ("res_attrs", module.results)):
            held = main.attributes[kind] if kind in main.attributes else [{}] * len(values)
            made = [ir.DictAttr.get(dict(old.items()) | _attribute(ir, layout, specs[value]))
                    for old, value in zip(held, values, strict=True)]  # fmt: skip
            main.attributes[kind] = ir.ArrayAttr.get(made)
        if any(any(specs[value]) for value in module.arguments if value.kind in HELD):
            _constrain_loop(ir, main, module, layout, specs)
        _replicate_unsupported(ir, parsed, layout)
        if layout.partitioner == "shardy":
            axes = ", ".join(f'"{axis}"={count}' for axis, count in mesh.axes.items())
            ir.InsertionPoint.at_block_begin(parsed.body).insert(ir.Operation.parse(f"sdy.mesh @mesh = <[{axes}]>"))
    return parsed


def _constrain_loop(ir: Any, main: Any, module: Module, layout: Layout, specs: Mapping[Value, Spec]) -> None:
    """Constrain the variables that the loop of steps carries, and each gradient to lie as its variable.

    Without that the partitioner carries the sharding of an optimizer's variable through the update into backpropagation, whose
    values are sharded by rows, and gathers these.
    """
    owners = optimizer_variables(module)
    for loop in main.regions[0].blocks[0].operations:
        if loop.operation.name != "stablehlo.while":
            continue
        body = loop.regions[1].blocks[0]
        results = body.operations[len(body.operations) - 1].operands
        carried = {number: value for number, operand in enumerate(loop.operands)
                   if (value := _argument(ir, operand, module)) is not None and value.kind in HELD}  # fmt: skip
        named = {value.name: value for value in carried.values()}
        held = []
        for number, value in carried.items():
            held += [(body.arguments[number], value), (results[number], value)]
            owner = named.get(owners.get(value.name, ""), value)
            if specs[owner] != specs[value]:
                held += [(gradient, owner) for gradient in _gradients(ir, results[number], value.shape)]
        for operand, value in dict(held).items():
            _constrain(ir, operand, layout, specs[value])


def _argument(ir: Any, value: Any, module: Module) -> Value | None:
    """The argument of ``main`` that a value is; the bridge reshapes each to its own shape."""
    while _op(ir, value) == "reshape":
        value = value.owner.operands[0]
    return None if _op(ir, value) else module.arguments[ir.BlockArgument(value).arg_number]


_ELEMENTWISE = frozenset(
    "abs add clamp convert divide maximum minimum multiply negate power rsqrt select sign sqrt subtract".split()
)
_FILLS = frozenset(("constant", "broadcast_in_dim", "iota"))


def _gradients(ir: Any, value: Any, shape: tuple[int, ...]) -> list[Any]:
    """The gradients that an update reads: of its operands of a shape, behind elementwise ops, those that no such op makes."""
    found, todo, seen = [], [value], set()
    while todo:
        value = todo.pop()
        if tuple(value.type.shape) != shape or value in seen:
            continue
        seen.add(value)
        name, operands = _op(ir, value), [] if isinstance(value.owner, ir.Block) else list(value.owner.operands)
        if name in _ELEMENTWISE or (name == "reshape" and value.type == operands[0].type):
            todo += operands
        elif name == "scatter" and _op(ir, operands[0]) not in _FILLS:
            todo.append(operands[0])  # an update of rows; a scatter into zeros makes a gradient
        elif name and name not in _FILLS:
            found.append(value)
    return found


def _op(ir: Any, value: Any) -> str:
    """The StableHLO op that makes a value; "" of an argument."""
    return "" if isinstance(value.owner, ir.Block) else value.owner.name.removeprefix("stablehlo.")


def _attribute(ir: Any, layout: Layout, spec: Spec, free: Collection[int] = ()) -> dict[str, Any]:
    """A sharding as the partitioner reads it."""
    if layout.partitioner == "shardy":
        return {"sdy.sharding": ir.Attribute.parse(layout.mesh.sdy_sharding(spec, free))}
    return {"mhlo.sharding": ir.StringAttr.get(layout.mesh.hlo_sharding(spec))}


def _constrain(ir: Any, value: Any, layout: Layout, spec: Spec, free: Collection[int] = ()) -> None:
    """Constrain the sharding of a value for all its readers; the partitioner chooses for the ``free`` dimensions."""
    said = _attribute(ir, layout, spec, free)
    if layout.partitioner == "shardy":
        name, said = "sdy.sharding_constraint", {"sharding": said["sdy.sharding"]}
    else:
        unspecified = f"unspecified_dims=[{','.join(map(str, sorted(free)))}]" if free else ""
        name = "stablehlo.custom_call"
        said |= {"call_target_name": ir.StringAttr.get("Sharding"), "backend_config": ir.StringAttr.get(unspecified)}
    block = isinstance(value.owner, ir.Block)
    where = ir.InsertionPoint.at_block_begin(value.owner) if block else ir.InsertionPoint.after(value.owner)
    made = ir.Operation.create(name, results=[value.type], operands=[value], attributes=said, ip=where)
    value.replace_all_uses_except(made.result, made)


def _replicate_unsupported(ir: Any, module: Any, layout: Layout) -> None:
    """Replicate the dimensions along which XLA's partitioner divides an op wrongly."""
    wrong = {"stablehlo.convolution": _of_convolution, "stablehlo.select_and_scatter": _of_maximum,
             "stablehlo.scatter": _of_scatter}  # fmt: skip
    found: list[Any] = []
    jax_client.find(module.operation, wrong, found)
    for operation in found:
        for value, dimensions in wrong[operation.name](operation, layout):
            if dimensions:
                rank = len(value.type.shape)
                _constrain(ir, value, layout, ((),) * rank, set(range(rank)).difference(dimensions))


_Dimensions = Iterator[tuple[Any, Sequence[int]]]
"""Values, and dimensions of each."""


def _of_convolution(operation: Any, layout: Layout) -> _Dimensions:
    """Spatial dimensions: where images and windows are both divided, XLA sums over all devices, along idle axes too.

    Images that the layout divides along rows or columns stay divided; in a kernel's gradient only where all axes divide them.
    """
    dialect = jax_client.load("jaxlib.mlir.dialects.stablehlo", "pjrt")
    numbers = dialect.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    divided = {axis for spec in layout.inputs.values() for axes in spec for axis in axes}
    sums_rows = numbers.input_feature_dimension == 0  # of a kernel's gradient
    if sums_rows and divided == set(layout.mesh.axes):
        return
    yield operation.operands[1], numbers.kernel_spatial_dimensions
    if sums_rows or not divided:
        yield operation.operands[0], numbers.input_spatial_dimensions
        yield operation.results[0], numbers.output_spatial_dimensions


def _of_maximum(operation: Any, _: Layout) -> _Dimensions:
    """Dimensions with windows of two strides or more: XLA counts elements of the gradient twice."""
    windows, strides = (operation.attributes[name] for name in ("window_dimensions", "window_strides"))
    overlap = [d for d, (size, stride) in enumerate(zip(windows, strides, strict=True)) if size >= 2 * stride]
    yield from ((value, overlap) for value in (*list(operation.operands)[:2], operation.results[0]))


def _of_scatter(operation: Any, layout: Layout) -> _Dimensions:
    """Dimensions that the devices do not divide: XLA ends the process."""
    for value in list(operation.operands)[len(operation.results) :]:
        yield value, [d for d, size in enumerate(value.type.shape) if size % layout.mesh.size]


def options(layout: Layout, devices: Sequence[Any]) -> Any:
    """Compile options for one program that is divided among the devices."""
    client = jax_client.load("jaxlib.xla_client", "pjrt")
    made = client.CompileOptions()
    made.num_replicas, made.num_partitions = 1, len(devices)
    made.device_assignment = client.DeviceAssignment.create(np.array([[device.id for device in devices]]))
    made.executable_build_options.use_spmd_partitioning = True
    made.executable_build_options.use_shardy_partitioner = layout.partitioner == "shardy"
    return made
