"""The program that a command runs: MODEL as it is, or converted first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tpugraph.analysis import num_replicas
from tpugraph.cli.console import Console
from tpugraph.cli.flags import Parsed, pairs
from tpugraph.compiler import ConvertOptions, convert, why_on_cores
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.model_files import EVENT_FILES, Loaded, parse
from tpugraph.ir.side_effects import files_touched
from tpugraph.runtime.engines import accelerator, device_count
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.program import Program, cores_of
from tpugraph.xla.mesh import DATA, Layout

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
    nodes = {node.name for node in graphdef.sniff(Path(flags.model)).graph_def.node}
    for name, mode in (("tpugraph/evaluate", "eval"), ("tpugraph/predict", "predict")):
        if name in nodes:
            return mode
    return str(flags["mode"])


def evaluated(flags: Parsed) -> Parsed:
    """The command line of an evaluation where MODEL is an Estimator's ``model_dir``: the graph is that of its evaluations.

    Estimator writes it into event files below the ``model_dir`` alone. ``--checkpoint`` is then the folder, unless given.
    """
    folder = Path(flags.model)
    if flags["mode"] != "eval" or not (folder / "checkpoint").exists():
        return flags
    found = sorted({path.parent for path in folder.glob(f"eval*/{EVENT_FILES}")}) or [folder]
    chosen = folder / "eval" if folder / "eval" in found else found[0]
    if len(found) > 1 and chosen.name != "eval":
        raise UsageError(f"'{folder}' holds evaluations of several names: {', '.join(p.name for p in found)}",
                         fix=f"give the folder of one of them: {found[0]} --checkpoint={folder}")  # fmt: skip
    values = dict(flags.values)
    if "checkpoint" in values and values["checkpoint"] is None and values.get("model_dir") is None:
        values["checkpoint"] = flags.model
    return replace(flags, model=str(chosen), values=values)


def predicted(flags: Parsed) -> Parsed:
    """The command line of a prediction where MODEL is a SavedModel: its variables are the checkpoint, unless one is given."""
    variables = Path(flags.model, "variables", "variables")
    own = flags["mode"] == "predict" and variables.with_suffix(".index").exists()
    if not own or flags["checkpoint"] is not None or flags["model_dir"] is not None:
        return flags
    return replace(flags, values={**flags.values, "checkpoint": str(variables)})


def load(flags: Parsed, console: Console) -> Program:
    """The converted graph in MODEL, or the plain one converted; says the batch."""
    loaded = graphdef.sniff(Path(flags.model))
    plain, cores = plain_graph(flags), cores_of(loaded.graph_def)
    if plain is not None:
        asked, model = _asked(flags, loaded), plain_model(flags)
        program = convert(model, replace(asked, num_replicas=1 if by_xla(flags) else asked.num_replicas or cores))
        console.say(program.summary().splitlines()[0])
        console.say(program.report["batch"]["line"])
        for line in program.report["step_order"]["said"]:
            console.say(f"note        {line}")
        return program
    refuse_late(flags)
    graph = graphdef.from_graph_def(loaded.graph_def, source=flags.model)
    check_form(graph)
    console.say(batch_line(graph))
    rows, cores = _rows_of_a_core(graph), num_replicas(graph)
    return Program(loaded.graph_def, {"source": flags.model, "global_rows": None if rows is None else rows * cores})


def plain_graph(flags: Parsed) -> Loaded | None:
    """The plain graph of a command: MODEL, or the one that a converted MODEL keeps where another mode is asked for."""
    loaded = graphdef.sniff(Path(flags.model))
    if not _is_converted(loaded):
        return loaded
    if (flags["mode"] == "train" and not by_xla(flags)) or not loaded.plain:
        return None
    return parse(loaded.plain, Path(f"the plain graph in {flags.model}"))


def plain_model(flags: Parsed) -> str | Graph:
    loaded = graphdef.sniff(Path(flags.model))
    if not _is_converted(loaded):
        return flags.model
    if not loaded.plain:
        raise UsageError(
            f"'{flags.model}' is converted and keeps no plain graph", fix="give the plain graph that it was made of"
        )
    return graphdef.from_loaded(parse(loaded.plain, Path(f"the plain graph in {flags.model}")), source=flags.model)


def by_xla(flags: Parsed) -> bool:
    """Whether XLA divides the plain step, which is then converted for one core; a mesh asks for it where no engine is named."""
    if "engines" in flags.given or flags.values.get("engine") == "xla":
        return flags.values.get("engine") == "xla" or "xla" in flags["engines"]
    return "engine" not in flags.given and bool(flags.values.get("mesh"))


def on_devices(flags: Parsed, console: Console) -> Parsed:
    """The command line with the engine of devices, where these are named or found and no engine is.

    XLA divides the plain step; a step of cores is lowered for cores, and a line says why.
    """
    joins = flags["distributed"] == "auto" or flags["coordinator"] is not None
    named, platform = flags["platform"] or joins, flags["platform"]
    auto = flags["engine"] == "auto" and not joins
    if auto:
        named = platform = platform or accelerator()
    if not named or by_xla(flags) or ("engine" in flags.given and not auto):
        return flags
    why = _why_on_cores(flags)
    if why and not auto:
        console.say(f"note: engine pjrt: {why}")
    engine = "xla" if not why else "auto" if auto else "pjrt"
    return replace(flags, values={**flags.values, "engine": engine, "platform": platform})


def _why_on_cores(flags: Parsed) -> str:
    """Why XLA cannot divide the step of MODEL: see :func:`tpugraph.compiler.why_on_cores`."""
    loaded = graphdef.sniff(Path(flags.model))
    plain: Any = loaded.graph_def
    if _is_converted(loaded):
        plain = parse(loaded.plain, Path(flags.model)).graph_def if loaded.plain else None
    return why_on_cores(plain, _asked(flags, loaded), loaded.options)


def _asked(flags: Parsed, loaded: Loaded) -> ConvertOptions:
    """How the plain graph is converted: as the command line says, then as a converted graph that keeps it was."""
    kept = loaded.options if flags.values.get("mode", "train") == "train" else {}
    return options(flags, **{name: kept[name] for name in kept if name not in {*flags.given, "passes"}})


def layout_of(flags: Parsed) -> Layout | None:
    """How values lie on the mesh where XLA divides the step, else None."""
    if not by_xla(flags):
        given = sorted({"shard", "shard_optimizer", "partitioner", "mesh"} & flags.given)
        if given:
            raise UsageError(f"--{given[0]} is for XLA's own partitioner",
                             fix="--engine=xla" if "engine" in flags.values else "--mesh=data:4,model:2")  # fmt: skip
        return None
    if why := _why_on_cores(flags):
        fix = "--engine=pjrt" if "model_dir" in flags.values else "leave XLA's partitioner out"
        raise UsageError(f"XLA divides the plain step, and that of '{flags.model}' is one of cores: {why}", fix=fix)
    sized = flags["mesh"] or flags["num_replicas"]
    mesh = flags["mesh"] or f"{DATA}:{flags['num_replicas'] or device_count(flags['platform'] or 'cpu')}"
    found = Layout.parse(mesh, flags["shard"], flags["shard_optimizer"], flags["partitioner"])
    return replace(found, fits=not sized)


def is_converted(model: str) -> bool:
    return _is_converted(graphdef.sniff(Path(model)))


def _is_converted(loaded: Loaded) -> bool:
    return cores_of(loaded.graph_def) is not None


def files_lines(program: Program, rebind: Mapping[str, str]) -> list[str]:
    """The files that a program reads and writes when it runs, beside what the flags name: a line for each kind."""
    touched = files_touched(graphdef.from_graph_def(program.graph_def))
    lines = []
    for does in ("reads", "writes"):
        names = [rebind.get(name, name) for name in touched.get(does, ())]
        more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
        lines += [f"{does:<11} {', '.join(names[:_MOST])}{more}"] if names else []
    return lines


def refuse_late(flags: Parsed) -> None:
    late = sorted(flags.given & {option.name for option in fields(ConvertOptions)})
    if late:
        raise UsageError(f"'{flags.model}' is converted already, which --{late[0]} cannot change",
                         fix=f"convert the plain graph again with --{late[0]}={flags[late[0]]}, and run that without it")  # fmt: skip


def batch_line(graph: Graph) -> str:
    """The batch of a converted graph, such as ``global batch 128 = 8 cores x 16``."""
    cores = num_replicas(graph)
    rows = _rows_of_a_core(graph)
    return (
        counted(cores, "core") if rows is None else f"global batch {rows * cores} = {counted(cores, 'core')} x {rows}"
    )


def _rows_of_a_core(graph: Graph) -> int | None:
    shapes = [shape for node in graph.of_type("InfeedDequeueTuple") for shape in node.attr("shapes") or []]
    counts = Counter(shape[0] for shape in shapes if shape)
    return max(counts, key=lambda n: (counts[n], n)) if counts else None


def global_rows(program: Program) -> int | None:
    """Rows of the global batch of a program that :func:`load` gave; None where its input has no shape that tells."""
    rows: int | None = program.report["batch"]["global"] if "batch" in program.report else program.report["global_rows"]
    return rows
