"""``tpugraph diff``: how two graphs differ by what they mean."""

from __future__ import annotations

from collections import Counter

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.ir import graphdef
from tpugraph.ir.difference import difference
from tpugraph.support.wording import counted

_MOST = 20


def run(flags: Parsed, console: Console) -> Outcome:
    first, second = graphdef.load(flags.model), graphdef.load(flags.other)
    found = difference(first, second)
    added, removed = Counter(second[name].op for name in found.added), Counter(first[name].op for name in found.removed)
    kinds = Counter(kind for change in found.changed for kind in {kind for kind, _ in change.facts})
    changes = [
        [f"~ {change.node} ({change.op})", *(f"    {text}" for _, text in change.facts)] for change in found.changed
    ]
    parts = (
        ("added", added, [[f"+ {text}"] for text in found.added.values()]),
        ("removed", removed, [[f"- {text}"] for text in found.removed.values()]),
        ("changed", kinds, changes),
    )
    console.say(f"{flags.model}: {len(first):,} nodes; {flags.other}: {len(second):,} nodes")
    if not found:
        console.say("the same graph")
    for label, counts, blocks in parts:
        if blocks:
            console.say(f"{label:<12}{counted(len(blocks), 'node')}: {_listed(counts)}")
    for name, what in found.functions.items():
        console.say(f"function    {name}: {what}")
    for label, _, blocks in reversed(parts):
        most = len(blocks) if flags["all"] else _MOST
        if blocks:
            console.say("", *(line for block in blocks[:most] for line in block))
        if len(blocks) > most:
            console.say(f"  ... and {len(blocks) - most:,} more that were {label}; --all lists all")
    more = {"added_ops": added, "removed_ops": removed, "nodes": [len(first), len(second)]}
    return Outcome({**vars(found), **more, "same": not found}, code=1 if found else 0)


def _listed(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(8))
    return f"{shown}{', ...' if len(counts) > 8 else ''}"
