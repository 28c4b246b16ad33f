"""``tpugraph diff``: how two graphs differ by what they mean."""

from __future__ import annotations

from collections import Counter

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.ir import graphdef
from tpugraph.ir.difference import difference

_MOST = 20


def run(flags: Parsed, console: Console) -> Outcome:
    first, second = graphdef.load(flags.model), graphdef.load(flags.other)
    found = difference(first, second)
    added, removed = (
        Counter(graph[name].op for name in names) for graph, names in ((second, found.added), (first, found.removed))
    )
    kinds = Counter(kind for change in found.changed for kind in {kind for kind, _ in change.facts})
    console.say(f"{flags.model}: {len(first):,} nodes; {flags.other}: {len(second):,} nodes")
    if not found:
        console.say("the same graph")
    for label, size, counts in (("added", len(found.added), added), ("removed", len(found.removed), removed),
                                ("changed", len(found.changed), kinds)):  # fmt: skip
        if size:
            console.say(f"{label:<12}{size:,} node{'' if size == 1 else 's'}: {_listed(counts)}")
    for name, what in found.functions.items():
        console.say(f"function    {name}: {what}")
    most = None if flags["all"] else _MOST
    changes = [
        [f"~ {change.node} ({change.op})", *(f"    {text}" for _, text in change.facts)] for change in found.changed
    ]
    for kind, shown in (
        ("changed", changes),
        ("removed", [[f"- {text}"] for text in found.removed.values()]),
        ("added", [[f"+ {text}"] for text in found.added.values()]),
    ):
        for line in ["", *(line for block in shown[:most] for line in block)] if shown else ():
            console.say(line)
        if shown[:most] != shown:
            console.say(f"  ... and {len(shown) - _MOST:,} more that were {kind}; --all lists all")
    result = {
        **vars(found),
        "added_ops": added,
        "removed_ops": removed,
        "same": not found,
        "nodes": [len(first), len(second)],
    }
    return Outcome(result, code=1 if found else 0)


def _listed(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(8))
    return f"{shown}{', ...' if len(counts) > 8 else ''}"
