"""``tpugraph view``: what a conversion did, as one page to look at, or as JSON."""

from __future__ import annotations

from pathlib import Path

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed
from tpugraph.compiler.tpu_check import view
from tpugraph.views.view_data import Lives


def run(flags: Parsed, console: Console) -> Outcome:
    output = check_writable(Path(flags["output"] or f"{Path(flags.model).stem}.{flags['format']}"), "--output")
    graph = programs.graph_of(flags)
    shardings = programs.shardings(flags)
    found = view(graph, programs.options(flags, **({"num_replicas": 1} if shardings else {})))
    for node in found.data.nodes:
        if node.name in shardings:
            one = shardings[node.name]
            node.lives = [Lives(0, "shard" if any(one.spec) else "replicate", one.words, one.because, deciding=[])]
    found.save(output, flags["format"])
    console.say(found.data.verdict)
    console.say(f"wrote {output} ({output.stat().st_size:,} bytes)")
    return Outcome({"verdict": found.data.verdict, "runs": found.data.runs, "stages": len(found.data.stages),
                    "nodes": len(found.data.alive()), "written": [str(output)]})  # fmt: skip
