"""Writes docs/transformation.svg, the picture at the top of the README; the conversion of the iris graph counts the nodes.

python tools/make_picture.py
"""

from __future__ import annotations

import html
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT)]

from tpugraph.compiler import convert  # noqa: E402
from tpugraph.views.history import History  # noqa: E402
from tpugraph.views.view_data import ViewData, current  # noqa: E402

MODEL, PICTURE, STEPS = ROOT / "examples" / "iris" / "model.ckpt-0.meta", ROOT / "docs" / "transformation.svg", 6
COLOURS = {"host": "#fcd34d", "device": "#93c5fd", "sum": "#c084fc", "": "#e5e7eb"}
MADE_FOR = {"training-loop": "loops", "replicate": "loops", "entry-points": "loops", "resource-variables": "variables"}
"""What the nodes that a pass made are there for, where its own name does not say it."""
PLAIN = [("input pipeline", 36, 70, "host", "input"), ("model and loss", 36, 150, "device", "model"),
         ("gradients", 36, 230, "device", "gradients"), ("optimizer", 36, 310, "device", "optimizer"),
         ("variables", 222, 230, "host", "variables host"), ("summaries, metrics", 222, 150, "host", "summaries"),
         ("what no step needs", 222, 310, "", "left out")]  # fmt: skip
MADE = [("input pipeline", 458, 70, "host", "input"), ("split, infeed", 458, 150, "host", "partition host", "infeed host"),
        ("outfeed, summaries", 458, 230, "host", "outfeed host", "summaries"), ("variables", 458, 310, "host", "variables host"),
        ("loops, entry points", 458, 390, "host", "loops host"), ("model and loss", 830, 70, "device", "model"),
        ("gradients", 830, 150, "device", "gradients"), ("all-reduce, own rows", 830, 230, "sum", "partition device"),
        ("optimizer", 830, 310, "device", "optimizer"),
        ("loop, infeed, outfeed", 830, 390, "device", "loops device", "infeed device", "outfeed device")]  # fmt: skip
"""Title, place and colour of each box, and which nodes it counts."""


def kinds(view: ViewData, report: dict[str, Any], stage: int) -> Counter[str]:
    """How many nodes of a stage are there for what: the plain graph's by their place, the passes' own by the pass."""
    nodes, starts = view.alive(stage), {finding["name"] for finding in report["inputs"]}
    feeding = [n for n, node in nodes.items() if node.name in starts or current(node, stage).op == "MakeIterator"]
    for number in feeding:  # grows while it is walked
        feeding += [n for n, _ in current(nodes[number], stage).inputs or [] if n not in feeding]

    def kind(number: int) -> str:
        node = nodes[number]
        scope = node.name.partition("/")[0]
        if not node.side:
            return "left out"
        if node.made_by is not None:
            return f"{MADE_FOR.get(node.made_by, node.made_by)} {node.side}"
        if node.side == "device":
            return {"gradients": "gradients", report["train_ops"][0]["name"]: "optimizer"}.get(scope, "model")
        owned = any(f"{node.name}/".startswith(f"{name}/") for name in report["variables"])
        return "input" if number in feeding else "variables host" if owned else "summaries"

    return Counter(map(kind, nodes))


def text(x: int, y: int, words: str, more: str = 'text-anchor="middle"') -> str:
    """Words at a place."""
    return f'<text x="{x}" y="{y}" {more}>{html.escape(words)}</text>'


def boxes(table: list[Any], found: Counter[str], told: str = "") -> list[str]:
    """A box for each line of a table; together they count all nodes."""
    drawn = []
    for title, x, y, colour, *counted in table:
        count, wide = sum(found.pop(kind) for kind in counted), 190 if x > 800 else 162
        words = f"{count} node{'s' * (count != 1)}{told if colour == 'sum' else ''}"
        drawn += [f'<rect x="{x}" y="{y}" width="{wide}" height="44" rx="6" fill="{COLOURS[colour]}"/>',
                  text(x + wide // 2, y + 19, title, 'text-anchor="middle" font-weight="bold"'),
                  text(x + wide // 2, y + 35, words, 'text-anchor="middle" font-size="12"')]  # fmt: skip
    assert not found, found
    return drawn


def arrows(*paths: str, colour: str = "#4b5563") -> list[str]:
    """Arrows along paths."""
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#tip)"/>' for path in paths
    ]


def picture() -> str:
    """The picture as SVG."""
    history = History(MODEL.name)
    report = convert(MODEL, num_replicas=8, iterations_per_loop=STEPS, history=history).report
    view, last = history.view, len(history.view.stages) - 1
    traffic, sums = report["bytes_per_step"], report["collectives"]
    per_core = f"{report['num_replicas']} cores run it, each on {report['batch']['per_core']} rows"
    made = f"the device: {report['nodes']['device']} of {view.stages[last].nodes} nodes"
    label = 'font-size="12" fill="#9a3412" text-anchor="middle"'
    frames = [(20, 30, 378, f"An Estimator's graph: {view.stages[0].nodes} nodes"), (445, 30, 190, "TPU graph: the host"),
              (812, 24, 270, ""), (806, 30, 270, made)]  # fmt: skip
    drawn = [f'<rect x="{x}" y="{y}" width="{wide}" height="440" rx="9" fill="#f9fafb" stroke="#9ca3af"/>'
             + text(x + 12, y + 21, title, 'font-weight="bold"') for x, y, wide, title in frames]  # fmt: skip
    drawn += boxes(PLAIN, kinds(view, report, 0))
    drawn += boxes(MADE, kinds(view, report, last), f": {sums['sums']} sums, {sums['bytes']} bytes")
    drawn += arrows(*(f"M{x} {y} v32" for x in (116, 925) for y in (114, 194, 274)), "M540 114 V146", "M196 172 H220",
                    "M196 332 C212 332 206 252 220 252", "M1022 332 C1064 332 1064 92 1022 92", "M402 250 H440")  # fmt: skip
    drawn += arrows(
        "M622 172 C700 172 720 92 828 92", "M830 104 C740 150 740 252 624 252", "M828 332 H624", colour="#ea580c"
    )
    drawn += [text(716, 86, f"{traffic['infeed']:,} bytes a step", label), text(722, 325, "read and updated", label),
              text(752, 253, f"{traffic['outfeed']} bytes a step", label),
              text(1042, 212, f"{STEPS} steps", 'text-anchor="middle" font-size="12" transform="rotate(-90 1042 212)"'),
              text(835, 462, per_core, 'font-size="12"')]  # fmt: skip
    return "\n".join([HEAD, *drawn, "</svg>", ""])


HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1100 490" role="img"
 font-family="Helvetica, Arial, sans-serif" font-size="13">
<!-- Written by tools/make_picture.py from examples/iris/model.ckpt-0.meta. -->
<title>What tpugraph makes of a training graph</title>
<desc>On the left the graph of an Estimator. On the right what it becomes: the input stays on the host and feeds a loop on
the device, where every core works on its own rows and gradients are summed over the cores.</desc>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"
 orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="context-stroke"/></marker></defs>
<rect width="1100" height="490" fill="#ffffff"/>"""

if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
