"""The picture of docs/architecture.md: the way of a graph through tpugraph, with the passes as the code has them.

tools/make_docs.py writes it to docs/data_flow.svg.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

WIDE = 100
"""The most letters of a line of passes."""

BOX, ARROW = 'fill="#eef3fb" stroke="#4a6fa5"', 'fill="none" stroke="#444" stroke-width="1.5" marker-end="url(#tip)"'
PIPELINE, PROGRAM = 'fill="#f7f7f2" stroke="#8a8a6a"', 'fill="#eaf6ee" stroke="#4f8a63"'


def picture(passes: Sequence[str]) -> str:
    """The picture as SVG.

    Args:
        passes: the names of the pipeline's passes, in order.
    """
    lines = lines_of(passes)
    low = 230 + 26 * len(lines)  # where the pipeline ends
    drawn = [
        box(20, 30, 190, 90, BOX, "plain training graph", ".pb  .pbtxt  .meta", "SavedModel, model_dir"),
        box(270, 30, 150, 90, BOX, "Graph", "graphdef.load"),
        box(480, 30, 180, 90, BOX, "Roles", "loss, train op, step, input,", "variables, summaries"),
        box(20, 165, 860, low - 165, PIPELINE, "Pipeline: what a pass requires is checked before it, what it ensures after it",
            *lines, "gradients, reduction, divergence and minimum cut are analyses that the passes ask"),
        box(20, low + 45, 300, 110, PROGRAM, "Program: TPU graph and report", "host: input loop, infeed, outfeed, summaries",
            "device: one cluster with the training loop", "entry points tpugraph/…"),
        box(400, low + 60, 140, 80, BOX, "TPUSession", "restore, train, save"),
        box(620, low + 15, 260, 52, BOX, "TPU master", "runs the graph as it is"),
        box(620, low + 75, 260, 52, BOX, "emulator", "N cores as ordinary TensorFlow ops"),
        box(620, low + 135, 260, 52, BOX, "PJRT", "the loop compiled for devices of jax"),
        arrow("M210 75 H268"), arrow("M420 75 H478"), arrow("M345 120 V163"), arrow("M570 120 V163"),
        arrow(f"M170 {low} V{low + 43}"), arrow(f"M320 {low + 100} H398"),
        arrow(f"M540 {low + 86} C580 {low + 86} 580 {low + 41} 618 {low + 41}"),
        arrow(f"M540 {low + 100} H618"),
        arrow(f"M540 {low + 114} C580 {low + 114} 580 {low + 161} 618 {low + 161}"),
        '<text x="578" y="146" font-size="12">names and reasons</text>',
    ]  # fmt: skip
    return "\n".join([head(low + 202, len(passes)), *drawn, "</svg>", ""])


def lines_of(passes: Sequence[str]) -> list[str]:
    """The names of the passes one after the other, in lines of at most WIDE letters."""
    lines = [""]
    for number, name in enumerate(passes):
        part = f"→  {name}" if number else name
        if len(lines[-1]) + len(part) + 2 > WIDE:
            lines.append("")
        lines[-1] = f"{lines[-1]}  {part}".strip()
    return lines


def box(x: int, y: int, width: int, height: int, style: str, title: str, *lines: str) -> str:
    """A box with a title and lines below it, each in the middle."""
    middle, step = x + width // 2, 20 if width < 500 else 26
    first = y + (height - step * len(lines)) // 2 + 4
    words = [f'<text x="{middle}" y="{first}" text-anchor="middle" font-weight="bold">{html.escape(title)}</text>']
    words += [f'<text x="{middle}" y="{first + step * place}" text-anchor="middle" font-size="12">{html.escape(line)}</text>'
              for place, line in enumerate(lines, 1)]  # fmt: skip
    return "\n".join([f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" {style}/>', *words])


def arrow(path: str) -> str:
    """An arrow along a path."""
    return f'<path d="{path}" {ARROW}/>'


def head(height: int, count: int) -> str:
    """What stands before the boxes."""
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" font-family="Helvetica, Arial, sans-serif"
 font-size="14" fill="#222" role="img">
<!-- Written by tools/make_docs.py. -->
<title>The way of a graph through tpugraph</title>
<desc>Files become a Graph, roles are found, {count} passes rewrite it into a TPU graph, and a session runs that on a TPU
master, on emulated cores or, compiled, on devices of jax.</desc>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path
 d="M0 0 L10 5 L0 10 z" fill="#444"/></marker></defs>
<rect width="900" height="{height}" fill="#ffffff"/>"""
