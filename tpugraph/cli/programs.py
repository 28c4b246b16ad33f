"""The program that a command runs: MODEL as it is, or converted first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tpugraph import compiler
from tpugraph.analysis import is_tpu_graph, num_replicas
from tpugraph.cli.console import Console
from tpugraph.cli.flags import Parsed, pairs
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.compiler.report import batch
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.model_files import EVENT_FILES, Loaded, parse
from tpugraph.ir.side_effects import files_touched
from tpugraph.runtime import batch_search
from tpugraph.runtime.engines import device_count
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import first_few
from tpugraph.tpu import program as tpu_program
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.program import Program, cores_of
from tpugraph.xla import stablehlo
from tpugraph.xla.mesh import DATA, Layout, Sharding
from tpugraph.xla.module import Module

_MOST = 12


def options(flags: Parsed, **more: Any) -> ConvertOptions:
    """How a command line converts: the flags that are fields of ConvertOptions."""
    values = {**flags.values, **more}
    found = {option.name: values[option.name] for option in fields(ConvertOptions) if option.name in values}
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    if "mode" in found:
        form, example = "NAME=VALUE,UPDATE", "accuracy=accuracy/value,accuracy/update_op"
        metrics = {n: tuple(both.split(",")) for n, both in pairs(found["metrics"], "metrics", form, example).items()}
        for name, both in metrics.items():
            if len(both) != 2 or not all(both):
                raise UsageError(
                    f"--metrics={name}={','.join(both)} is not of the form {form}", fix=f"--metrics={example}"
                )
        found["metrics"] = metrics or None
        form = "NAME=TENSOR"
        found["predictions"] = pairs(found["predictions"], "predictions", form, form) or None
    return ConvertOptions(**found)


def mode_of(flags: Parsed) -> str:
    """What MODEL is for: as it was converted, or as ``--mode`` says of a plain graph."""
    mode = tpu_program.mode_of([node.name for node in graphdef.sniff(Path(flags.model)).graph_def.node])
    return str(flags["mode"]) if mode == "train" else mode


def in_folder(flags: Parsed) -> Parsed:
    """The command line with the graph and the ``--checkpoint`` found in MODEL, where that is a folder; unchanged for others.

    An evaluation in an Estimator's ``model_dir`` takes the evaluation graph, which Estimator writes only into event files below
    it, and the folder's checkpoint. A SavedModel predicts with its own variables. A ``--checkpoint`` that was given stays.
    """
    folder = chosen = checkpoint = Path(flags.model)
    variables = folder / "variables" / "variables"
    if flags["mode"] == "eval" and (folder / "checkpoint").exists():
        found = sorted({path.parent for path in folder.glob(f"eval*/{EVENT_FILES}")}) or [folder]
        chosen = folder / "eval" if folder / "eval" in found else found[0]
        if len(found) > 1 and chosen.name != "eval":
            raise UsageError(f"'{folder}' holds evaluations of several names: {', '.join(p.name for p in found)}",
                             fix=f"give the folder of one of them: {found[0]} --checkpoint={folder}")  # fmt: skip
    elif flags["mode"] == "predict" and variables.with_suffix(".index").exists():
        checkpoint = variables
    else:
        return flags
    values = dict(flags.values)
    if values.get("checkpoint", "") is None and values.get("model_dir") is None:
        values["checkpoint"] = str(checkpoint)
    return replace(flags, model=str(chosen), values=values)


def load(flags: Parsed, console: Console, *, whole: bool = False) -> Program:
    """The converted graph in MODEL, or the plain one converted, for one core where XLA partitions the step; prints the batch."""
    loaded = graphdef.sniff(Path(flags.model))
    cores = cores_of(loaded.graph_def)
    one_core = whole or by_xla(flags)
    if one_core:
        refuse_cores(flags)
    plain = plain_of(flags.model) if one_core or cores is None or flags["mode"] != "train" else None
    if plain is not None:
        program = convert_plain(flags, plain, num_replicas=1 if one_core else flags["num_replicas"] or cores)
        console.say(program.summary().splitlines()[0], program.report["batch"]["line"],
                    *(f"note        {line}" for line in program.report["step_order"]["said"]))  # fmt: skip
        return program
    refuse_late(flags)
    graph = graphdef.from_graph_def(loaded.graph_def, source=flags.model)
    check_form(graph)
    rows = batch_of(graph)
    console.say(rows["line"])
    return Program(loaded.graph_def, {"source": flags.model, "batch": rows})


def plain_of(model: str) -> Loaded | None:
    """The plain graph of a MODEL: the graph itself, or what it keeps where it is converted, if anything."""
    loaded = graphdef.sniff(Path(model))
    if cores_of(loaded.graph_def) is None:
        return loaded
    kept = parse(loaded.plain, Path(f"the plain graph in {model}")) if loaded.plain else None
    return kept and replace(kept, options=loaded.options)


def kept_plain(model: str) -> Loaded:
    """As :func:`plain_of`; refuses a converted graph that keeps none."""
    if plain := plain_of(model):
        return plain
    raise UsageError(f"'{model}' is converted and keeps no plain graph", fix="give the plain graph that it was made of")


def unconverted(model: str) -> Graph:
    """The graph in MODEL; refuses one that is converted, even where it keeps the plain graph."""
    graph = graphdef.load(model)
    if is_tpu_graph(graph):
        raise UsageError(
            f"'{model}' is converted already; there is no plain graph to compare it with", fix="give the plain graph"
        )
    return graph


def graph_of(flags: Parsed) -> Graph:
    """The graph in MODEL; of one that is converted, refuses flags of the conversion."""
    graph = graphdef.load(flags.model)
    if is_tpu_graph(graph):
        refuse_late(flags)
    return graph


def convert_plain(flags: Parsed, plain: Loaded | None = None, /, **more: Any) -> Program:
    """Convert the plain graph of MODEL, by the flags that were given, else by the options of the conversion that kept it."""
    plain = plain or kept_plain(flags.model)
    return convert(graphdef.from_loaded(plain, source=flags.model), _asked(flags, plain, **more))


def by_xla(flags: Parsed) -> bool:
    """Whether XLA partitions the plain step, which is then converted for one core; --mesh without --engine implies it."""
    if flags.values.get("engine") == "xla":
        return True
    if "engines" in flags.given:
        return "xla" in flags["engines"]
    return "engine" not in flags.given and flags.values.get("mesh") is not None


def why_on_cores(flags: Parsed) -> str:
    """Why XLA cannot divide the step of MODEL: see :func:`tpugraph.compiler.why_on_cores`."""
    plain = plain_of(flags.model)
    return compiler.why_on_cores(plain and plain.graph_def, _asked(flags, plain), plain.options if plain else {})


def refuse_cores(flags: Parsed) -> None:
    if why := why_on_cores(flags):
        fix = "--engine=pjrt" if "model_dir" in flags.values else "leave XLA's partitioner out"
        raise UsageError(f"the step of '{flags.model}' runs on cores only: {why}", fix=fix)


def _asked(flags: Parsed, plain: Loaded | None, **more: Any) -> ConvertOptions:
    """The options of the command line; where it says nothing, those of the conversion that kept a plain training graph."""
    kept = plain.options if plain and flags.values.get("mode", "train") == "train" else {}
    unsaid = {name: value for name, value in kept.items() if name not in {*flags.given, "passes"}}
    return options(flags, **unsaid | more)


def layout_of(flags: Parsed, platform: str | None = None) -> Layout | None:
    """The mesh and the shardings of variables where XLA partitions the step, on devices of a ``platform`` if given, else None."""
    if not by_xla(flags) and platform is None:
        emulated = {"platform"} if flags.values.get("engine") == "emulator" and "engine" in flags.given else set()
        given = sorted({"shard", "shard_optimizer", "partitioner", "mesh", "tf32", *emulated} & flags.given)
        if given:
            raise UsageError(f"--{given[0]} is for XLA's own partitioner",
                             fix="--engine=xla" if "engine" in flags.values else "--mesh=data:4,model:2")  # fmt: skip
        return None
    if by_xla(flags):
        refuse_cores(flags)
    mesh, cores = flags["mesh"], flags["num_replicas"]
    along_data = f"{DATA}:{cores or device_count(platform or flags['platform'] or 'cpu')}" if mesh is None else mesh
    found = Layout.parse(along_data, flags["shard"], flags["shard_optimizer"], flags["partitioner"])
    if mesh is not None and cores not in (None, found.mesh.size) and "engines" not in flags.values:
        raise UsageError(f"--mesh={mesh} has {found.mesh.size} devices, and --num_replicas={cores} asks for another number",
                         fix="leave --num_replicas out")  # fmt: skip
    return replace(found, tf32=flags.values.get("tf32", False), shrinks=mesh is None and not (cores and by_xla(flags)))


def plain_step(flags: Parsed, rows: int = 0) -> tuple[Graph, Module]:
    """The plain step of MODEL as a TPU graph of one core, and its StableHLO, with so many rows in the global batch if given."""
    program = convert_plain(flags, num_replicas=1, **({"global_batch": rows} if rows else {}))
    graph = graphdef.from_graph_def(program.graph_def, source=flags.model)
    return graph, stablehlo.lower(batch_search.without_hints(graph))


def shardings(flags: Parsed) -> dict[str, Sharding]:
    """The sharding of each variable on the mesh that a command names, by name; nothing without a mesh.

    Raises:
        UsageError: as a command that trains on it.
    """
    layout = layout_of(flags)
    if layout is None:
        return {}
    if mode_of(flags) != "train":
        raise UsageError("evaluation and prediction run on emulated cores, not on a mesh", fix="leave --mesh out")
    _, module = plain_step(flags)
    layout.specs(module)  # refuses a mesh that does not divide the batch
    return layout.shardings(module)


def restore(session: TPUSession, source: str | Path, console: Console) -> None:
    """Restore a checkpoint, and say which one."""
    step = session.restore(source)
    console.say(f"restored {session.restored_from}" + (f" at step {step:,}" if step >= 0 else ""))


def files_lines(program: Program, rebind: Mapping[str, str]) -> list[str]:
    """The files that a program reads and writes when it runs, beside what the flags name: a line for each kind."""
    touched = files_touched(graphdef.from_graph_def(program.graph_def))
    lines = []
    for does in ("reads", "writes"):
        names = [rebind.get(name, name) for name in touched.get(does, ())]
        lines += [f"{does:<11} {first_few(names, _MOST)}"] if names else []
    return lines


def refuse_late(flags: Parsed) -> None:
    late = sorted(flags.given & {option.name for option in fields(ConvertOptions)})
    if late:
        raise UsageError(f"'{flags.model}' is converted already, which --{late[0]} cannot change",
                         fix=f"convert the plain graph again with --{late[0]}={flags[late[0]]}, and run that without it")  # fmt: skip


def batch_of(graph: Graph) -> dict[str, Any]:
    """The batch of a converted graph, as the report of a conversion has it."""
    return batch(batch_search.rows_of(graph), num_replicas(graph))
