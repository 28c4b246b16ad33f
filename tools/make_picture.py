"""Writes docs/transformation.svg, the picture at the top of the README, from a conversion of the iris graph.

python tools/make_picture.py            writes it
python tools/make_picture.py --check    exit code 1 where it is not current

The boxes stand at fixed places; how many nodes each holds and how many bytes go where is told by the conversion itself.
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
from tpugraph.views.view_data import NodeView, ViewData, current  # noqa: E402

MODEL = ROOT / "examples" / "iris" / "model.ckpt-0.meta"
PICTURE = ROOT / "docs" / "transformation.svg"
STEPS = 6
HOST, DEVICE, SUM, GONE = "#fcd34d", "#93c5fd", "#c084fc", "#e5e7eb"
MADE_FOR = {"infeed": "infeed", "outfeed": "outfeed", "partition": "partition", "training-loop": "loops",
            "replicate": "loops", "entry-points": "entry points", "resource-variables": "variables"}  # fmt: skip
"""What the nodes that a pass made are there for."""


def kinds(view: ViewData, report: dict[str, Any], stage: int) -> Counter[str]:
    """How many nodes of a stage are there for what: the plain graph's by what they were, the passes' own by the pass."""
    nodes = view.alive(stage)
    starts = {finding["name"] for finding in report["inputs"]}
    feeding = _behind(
        view, stage, {n for n, node in nodes.items() if node.name in starts or _op(node, stage) == "MakeIterator"}
    )
    return Counter(_kind(node, number in feeding, report) for number, node in nodes.items())


def _op(node: NodeView, stage: int) -> str | None:
    return current(node, stage).op


def _behind(view: ViewData, stage: int, found: set[int]) -> set[int]:
    """The numbers of some nodes and of all that they read."""
    nodes = view.alive(stage)
    pending = list(found)
    for number in pending:  # grows while it is walked
        new = [source for source, _ in current(nodes[number], stage).inputs or [] if source not in found]
        found.update(new)
        pending += new
    return found


def _kind(node: NodeView, feeds: bool, report: dict[str, Any]) -> str:
    if not node.side:
        return "left out"
    if node.made_by is not None:
        return f"{MADE_FOR[node.made_by]} on the {node.side}"
    scope = node.name.partition("/")[0]
    if node.side == "device":
        return {"gradients": "gradients", report["train_ops"][0]["name"]: "optimizer"}.get(scope, "model")
    if feeds:
        return "input"
    owned = any(node.name == name or node.name.startswith(f"{name}/") for name in report["variables"])
    return "variables on the host" if owned else "summaries"


# --------------------------------------------------------------------------- drawing


def box(x: int, y: int, width: int, title: str, text: str, colour: str) -> str:
    """A box with a title and a line below it."""
    middle = x + width // 2
    return (f'<rect x="{x}" y="{y}" width="{width}" height="44" rx="6" fill="{colour}"/>'
            f'<text x="{middle}" y="{y + 19}" text-anchor="middle" font-weight="bold">{html.escape(title)}</text>'
            f'<text x="{middle}" y="{y + 35}" text-anchor="middle" font-size="12">{html.escape(text)}</text>')  # fmt: skip


def frame(x: int, y: int, width: int, height: int, title: str) -> str:
    """A frame around boxes, with its title at the top."""
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" fill="#f9fafb" stroke="#9ca3af"/>'
            f'<text x="{x + 12}" y="{y + 21}" font-weight="bold">{html.escape(title)}</text>')  # fmt: skip


def arrow(path: str, label: str = "", at: tuple[int, int] = (0, 0)) -> str:
    """An arrow along a path, with a label at a place; one that crosses between host and device has one."""
    colour, tip = ("#ea580c", "cut") if label else ("#4b5563", "tip")
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#{tip})"/>'
    words = (
        f'<text x="{at[0]}" y="{at[1]}" font-size="12" fill="#9a3412" text-anchor="middle">{html.escape(label)}</text>'
    )
    return line + words if label else line


def count(found: Counter[str], *names: str) -> str:
    """How many nodes are there for some things."""
    total = sum(found.pop(name) for name in names)
    return f"{total} node{'' if total == 1 else 's'}"


def before(found: Counter[str]) -> list[str]:
    """The plain graph, on the left."""
    rows = [("input pipeline", count(found, "input"), HOST), ("model and loss", count(found, "model"), DEVICE),
            ("gradients", count(found, "gradients"), DEVICE), ("optimizer", count(found, "optimizer"), DEVICE)]  # fmt: skip
    drawn = [box(36, 70 + 80 * place, 160, *row) for place, row in enumerate(rows)]
    drawn += [arrow(f"M116 {114 + 80 * place} V{146 + 80 * place}") for place in range(3)]
    drawn += [
        box(222, 230, 160, "variables", count(found, "variables on the host"), HOST),
        box(222, 150, 160, "summaries, metrics", count(found, "summaries"), HOST),
        box(222, 310, 160, "what no step needs", count(found, "left out"), GONE),
        arrow("M196 332 C212 332 206 252 220 252"),
        arrow("M196 172 H220"),
    ]
    assert not found, found
    return drawn


def after(found: Counter[str], report: dict[str, Any]) -> list[str]:
    """The TPU graph, on the right: the host, and the one program of all cores."""
    traffic, sums = report["bytes_per_step"], report["collectives"]
    cores = report["num_replicas"]
    infeed = count(found, "partition on the host", "infeed on the host")
    host = [("input pipeline", count(found, "input"), HOST), ("split, infeed", infeed, HOST),
            ("outfeed, summaries", count(found, "outfeed on the host", "summaries"), HOST),
            ("variables", count(found, "variables on the host"), HOST)]  # fmt: skip
    said = f"{sums['sums']} sums, {sums['bytes']} bytes"
    device = [("model and loss", count(found, "model"), DEVICE), ("gradients", count(found, "gradients"), DEVICE),
              ("all-reduce, own rows", f"{count(found, 'partition on the device')}: {said}", SUM),
              ("optimizer", count(found, "optimizer"), DEVICE)]  # fmt: skip
    drawn = [box(458, 70 + 80 * place, 164, *row) for place, row in enumerate(host)]
    drawn += [box(830, 70 + 80 * place, 190, *row) for place, row in enumerate(device)]
    drawn += [arrow(f"M925 {114 + 80 * place} V{146 + 80 * place}") for place in range(3)]
    drawn += [
        box(458, 390, 164, "loops, entry points", count(found, "loops on the host", "entry points on the host"), HOST),
        box(830, 390, 190, "loop, infeed, outfeed",
            count(found, "loops on the device", "infeed on the device", "outfeed on the device"), DEVICE),
        arrow("M540 114 V146"),
        arrow("M622 172 C700 172 720 92 828 92", f"{traffic['infeed']:,} bytes a step", (716, 86)),
        arrow("M830 104 C740 150 740 252 624 252", f"{traffic['outfeed']} bytes a step", (752, 253)),
        arrow("M828 332 H624", "read and updated", (722, 325)),
        arrow("M1022 332 C1064 332 1064 92 1022 92"),
        f'<text x="1042" y="212" text-anchor="middle" font-size="12" transform="rotate(-90 1042 212)">{STEPS} steps</text>',
        f'<text x="835" y="462" font-size="12">{cores} cores run it, each on {report["batch"]["per_core"]} rows</text>',
    ]  # fmt: skip
    assert not found, found
    return drawn


def picture() -> str:
    """The picture as SVG."""
    history = History(MODEL.name)
    report = convert(MODEL, num_replicas=8, iterations_per_loop=STEPS, history=history).report
    view, last = history.view, len(history.view.stages) - 1
    plain, made = view.stages[0].nodes, view.stages[last].nodes
    drawn = [
        frame(20, 30, 378, 440, f"An Estimator's graph: {plain} nodes"),
        frame(445, 30, 190, 440, "TPU graph: the host"),
        frame(812, 24, 270, 440, ""), frame(806, 30, 270, 440, f"the device: {report['nodes']['device']} of {made} nodes"),
        *before(kinds(view, report, 0)), *after(kinds(view, report, last), report),
        '<path d="M404 250 H440" stroke="#4b5563" stroke-width="5" marker-end="url(#tip)"/>',
    ]  # fmt: skip
    return "\n".join([HEAD, *drawn, "</svg>", ""])


def tip(name: str, colour: str) -> str:
    """The tip of an arrow."""
    shape = f'<path d="M0 0 L10 5 L0 10 z" fill="{colour}"/>'
    size = 'refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
    return f'<marker id="{name}" viewBox="0 0 10 10" {size} orient="auto">{shape}</marker>'


HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1100 490" role="img"
 font-family="Helvetica, Arial, sans-serif" font-size="13">
<!-- Written by tools/make_picture.py from examples/iris/model.ckpt-0.meta. -->
<title>What tpugraph makes of a training graph</title>
<desc>On the left the graph of an Estimator. On the right what it becomes: the input stays on the host and feeds a loop on
the device, where every core works on its own rows and gradients are summed over the cores.</desc>
<defs>{tip("tip", "#4b5563")}{tip("cut", "#ea580c")}</defs>
<rect width="1100" height="490" fill="#ffffff"/>"""


def main() -> int:
    """Write the picture, or say whether it is current."""
    made = picture()
    if "--check" in sys.argv[1:]:
        current_one = PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == made
        print("current" if current_one else f"{PICTURE.name} is not current: run tools/make_picture.py")
        return 0 if current_one else 1
    PICTURE.write_text(made, encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
