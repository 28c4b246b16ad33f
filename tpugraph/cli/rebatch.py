"""``tpugraph rebatch``: the plain graph with another batch."""

from __future__ import annotations

from pathlib import Path

from tpugraph import ops
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed
from tpugraph.cli.programs import kept_plain
from tpugraph.compiler import ConvertOptions, find_roles
from tpugraph.compiler.conversion import another_batch
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError


def run(flags: Parsed, console: Console) -> Outcome:
    model, rows = Path(flags.model), flags["global_batch"]
    if not rows:
        raise UsageError("rebatch needs the rows of the batch", fix=f"tpugraph rebatch {model} --global_batch=256")
    output = check_writable(Path(flags["output"] or f"{model.stem}_{rows}.pb"), "--output")
    loaded = kept_plain(flags.model)
    graph = graphdef.from_loaded(loaded, source=str(model))
    graph.roles = find_roles(graph, ConvertOptions(train_op=flags["train_op"], loss=flags["loss"]))
    found = another_batch(graph, rows, batch_constants=flags["batch_constants"], literals=flags["literals"])
    console.say(*found.lines())
    names = {node.name for node in loaded.graph_def.node}
    for node in graph.of_type(*ops.MAKE_ITERATOR):
        if node.name not in names:
            console.say(f"a one-shot iterator is an initializable one now: run '{node.name}' before the first step")
    if output.suffix == ".meta":
        graphdef.save_meta(loaded, output, graphdef.to_graph_def(graph))
    else:
        graphdef.save(graph, output)
    console.say(f"wrote {output} ({output.stat().st_size:,} bytes)")
    return Outcome(vars(found) | {"output": str(output)})
