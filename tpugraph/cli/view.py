"""``tpugraph view``: what a conversion did, as one page to look at, or in a form that other programs draw."""

from __future__ import annotations

from pathlib import Path

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed
from tpugraph.compiler.viewing import view
from tpugraph.ir import graphdef
from tpugraph.views.view_data import Lives

_ENDINGS = {"html": ".html", "model_explorer": ".model_explorer.json", "json": ".json"}


def run(flags: Parsed, console: Console) -> Outcome:
    output = Path(flags["output"] or Path(flags.model).stem + _ENDINGS[flags["format"]])
    check_writable(output, "--output")
    graph = graphdef.load(flags.model)
    if graph.of_type("TPUReplicateMetadata"):
        programs.refuse_late(flags)
    shardings = programs.shardings(flags)
    found = view(graph, programs.options(flags, **({"num_replicas": 1} if shardings else {})))
    for node in found.data.nodes:
        if node.name in shardings:
            one = shardings[node.name]
            node.lives = [Lives(0, "shard" if any(one.spec) else "replicate", one.words, one.because, deciding=[])]
    written = found.save(output, flags["format"])
    console.say(found.data.verdict)
    for place in written:
        console.say(f"wrote {place} ({place.stat().st_size:,} bytes)")
    return Outcome({"verdict": found.data.verdict, "runs": found.data.runs, "stages": len(found.data.stages),
                    "nodes": len(found.data.alive()), "written": [str(place) for place in written]})  # fmt: skip
